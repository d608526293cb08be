//! Resource use of the node, or of the server alone: the counters in a report.
//!
//! Source: Feng and Lin's mQoS, Sec. 3.1, where a monitor on the server reports the cost of each request to
//! the prober. The paper does not describe its counters. A request of a few milliseconds needs finer counters
//! than the 10 ms of `/proc/stat`. So CPU time is read from a cgroup, in nanoseconds with v1 and microseconds
//! with v2.
//!
//! The meter counts the whole machine or some groups. If a server shares its machine with others, its cgroup
//! separates its use from theirs (each service of systemd has one). A cgroup also keeps the use of processes
//! that have ended. With v2, disk traffic of a group comes from its `io.stat`. v1 counts it only under some
//! schedulers and limits, so with v1 the counters of the group's processes are used. The traffic of a process
//! that starts and ends between two reports is then missed. Bandwidth is that of network interfaces, because
//! the kernel does not count it for groups.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use weirgate_cgroup::{self as cgroup, Counter};
use weirgate_wire::Usage;

use crate::monitor::{machine_disk, machine_ticks, sent, usable_cpus};

/// Maximum depth below a group that is searched for processes. systemd and container managers nest less
/// deeply.
const MAX_LEVELS: usize = 8;

/// Maximum number of processes to read disk traffic from, at about 5 µs each. A server's pool has hundreds.
const MAX_PROCESSES: usize = 4096;

/// Ticks per second in `/proc/stat`. Linux has used this number for programs for decades, whatever its
/// internal rate.
const TICKS: f64 = 100.0;

/// Reads the resource use.
#[derive(Debug)]
pub struct Meter {
    /// Groups to be summed. If there are none, the whole machine is counted.
    groups: Vec<Group>,
    /// The whole machine's CPU time, if a cgroup counts it.
    machine: Option<Counter>,
    /// Interface to count. `None` means all but `lo`.
    interface: Option<String>,
    disk: Mutex<Traffic>,
}

#[derive(Debug)]
struct Group {
    cpu: Counter,
    directories: Vec<PathBuf>,
}

/// Disk traffic of processes that start and end.
#[derive(Debug, Default)]
struct Traffic {
    total: u64,
    /// Last known value of each process, by its process id.
    seen: BTreeMap<u32, u64>,
}

impl Meter {
    /// Opens a meter of these groups (paths from the root of the tree, or directories of v2), or of the
    /// machine if there are none. `interface` is the network interface to count. By default all but `lo` are
    /// counted.
    ///
    /// # Errors
    /// There is no such group or interface.
    pub fn open(groups: &[PathBuf], interface: Option<&str>) -> Result<Meter, String> {
        if let Some(name) = interface {
            sent(Some(name)).ok_or_else(|| format!("--interface: /proc/net/dev has no interface {name:?}"))?;
        }
        let whole = || cgroup::open(None).ok()?.cgroups.counter("").ok();
        Ok(Meter {
            machine: if groups.is_empty() { whole() } else { None },
            groups: groups.iter().map(|path| Group::open(path)).collect::<Result<_, _>>()?,
            interface: interface.map(str::to_owned),
            disk: Mutex::default(),
        })
    }

    /// Returns the present counters. A counter that cannot be read is `None`.
    pub fn read(&self) -> Usage {
        let all = usable_cpus().ok().map(|cpus| cpus as f64);
        let (cpu, cpus, disk) = match self.groups.is_empty() {
            true => {
                let nanos = self.machine.as_ref().and_then(Counter::read).map(|nanos| nanos as f64 / 1e9);
                (nanos.or_else(|| Some(machine_ticks()? as f64 / TICKS)), all, machine_disk())
            }
            false => {
                let nanos = self.groups.iter().map(|group| group.cpu.read()).sum::<Option<u64>>();
                // A group without a quota may use the whole machine.
                let quotas = self.groups.iter().map(Group::quota).sum::<Option<f64>>();
                let cpus = quotas.map_or(all, |quotas| Some(all.map_or(quotas, |all| quotas.min(all))));
                (nanos.map(|nanos| nanos as f64 / 1e9), cpus, self.groups_disk())
            }
        };
        let bandwidth = sent(self.interface.as_deref());
        Usage {
            used: [cpu, disk.map(|bytes| bytes as f64), bandwidth.map(|bytes| bytes as f64)],
            capacity: [cpus, None, None],
        }
    }

    fn groups_disk(&self) -> Option<u64> {
        let mut total = 0u64;
        let mut processes = Vec::new();
        for group in &self.groups {
            match group.directories.iter().find_map(|directory| fs::read_to_string(directory.join("io.stat")).ok()) {
                Some(text) => total = total.saturating_add(io_stat(&text)),
                None => {
                    group.directories.first().into_iter().for_each(|tree| members(tree, MAX_LEVELS, &mut processes))
                }
            }
        }
        let mut traffic = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        traffic.add(processes.into_iter().filter_map(|process| {
            let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
            Some((process, process_io(&text)?))
        }));
        Some(total.saturating_add(traffic.total))
    }
}

impl Group {
    fn open(path: &Path) -> Result<Group, String> {
        let why = |why: String| {
            format!("--usage-of {}: {why}; write a group such as system.slice/apache2.service", path.display())
        };
        let (root, name) = if path.is_absolute() { (Some(path), Path::new("")) } else { (None, path) };
        let name = name.to_str().ok_or_else(|| why("not UTF-8".to_owned()))?;
        let cgroups = cgroup::open(root).map_err(why)?.cgroups;
        let cpu = cgroups.counter(name).map_err(why)?;
        Ok(Group { cpu, directories: cgroups.trees().into_iter().map(|tree| tree.join(name)).collect() })
    }

    /// Returns the number of CPUs allowed by the group's quota, or `None` if it has no quota.
    fn quota(&self) -> Option<f64> {
        let directory = self.directories.first()?;
        let text = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let both = text("cpu.max")
            .or_else(|| Some(format!("{} {}", text("cpu.cfs_quota_us")?.trim(), text("cpu.cfs_period_us")?.trim())))?;
        quota(&both)
    }
}

impl Traffic {
    fn add(&mut self, processes: impl Iterator<Item = (u32, u64)>) {
        let mut now = BTreeMap::new();
        for (process, bytes) in processes {
            let before = self.seen.get(&process).copied().unwrap_or(0);
            // A smaller value belongs to another process with the same id.
            let more = if bytes >= before { bytes - before } else { bytes };
            self.total = self.total.saturating_add(more);
            now.insert(process, bytes);
        }
        self.seen = now;
    }
}

/// Collects the processes of a group and of the groups below it.
fn members(directory: &Path, levels: usize, found: &mut Vec<u32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let room = MAX_PROCESSES.saturating_sub(found.len());
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).take(room));
    if levels == 0 || room == 0 {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members(&entry.path(), levels - 1, found);
        }
    }
}

/// Returns the number of bytes read and written on all devices in a group's `io.stat`. Stacked layers count
/// only at the lowest one, because the kernel charges a group there.
fn io_stat(text: &str) -> u64 {
    let words = text.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    let bytes = words.filter(|(name, _)| matches!(*name, "rbytes" | "wbytes"));
    bytes.filter_map(|(_, number)| number.parse::<u64>().ok()).fold(0, u64::saturating_add)
}

/// Returns the number of bytes that a process caused devices to read and write (`/proc/PID/io`).
fn process_io(text: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    Some(field("read_bytes:")?.saturating_add(field("write_bytes:")?))
}

/// Returns the number of CPUs for `QUOTA PERIOD`, in microseconds, or `None` if there is no quota (`max`, or
/// -1).
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_counters_that_grow() {
        let meter = Meter::open(&[], None).expect("there is a machine");
        let (before, after) = (meter.read(), meter.read());
        assert!(before.capacity[0].is_some_and(|cpus| cpus >= 1.0), "{before:?}");
        for resource in 0..3 {
            let (Some(before), Some(after)) = (before.used[resource], after.used[resource]) else {
                panic!("resource {resource} is not told: {before:?}")
            };
            assert!(after >= before && before >= 0.0);
        }
    }

    #[test]
    fn a_group_counts_its_cpu_time_disk_and_quota() {
        let scratch = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| fs::write(scratch.path().join(name), text).expect("it is writable");
        write("cgroup.controllers", "cpu io\n");
        write("cpu.stat", "usage_usec 1500000\nuser_usec 1\n");
        write("cpu.max", "50000 100000\n");
        write("io.stat", "254:0 rbytes=4096 wbytes=1024 rios=1 wios=1 dbytes=9 dios=0\n8:0 rbytes=1 wbytes=0\n");
        let groups = [scratch.path().to_owned(), scratch.path().to_owned()];
        let one = Meter::open(&groups[..1], Some("lo")).expect("a group").read();
        assert_eq!((one.used[0], one.used[1], one.capacity[0]), (Some(1.5), Some(5121.0), Some(0.5)));
        assert!(one.used[2].is_some(), "the loopback counts if it is named");
        let two = Meter::open(&groups, None).expect("two groups").read();
        assert_eq!((two.used[0], two.used[1], two.capacity[0]), (Some(3.0), Some(10_242.0), Some(1.0)));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = Meter::open(&["no/such/group".into()], None).expect_err("there is none");
        assert!(error.contains("--usage-of no/such/group") && error.contains("apache2.service"), "{error}");
        let error = Meter::open(&[], Some("eth77")).expect_err("there is none");
        assert!(error.contains("no interface \"eth77\""), "{error}");
    }

    #[test]
    fn processes_come_and_go() {
        let mut traffic = Traffic::default();
        traffic.add([(1, 100), (2, 50)].into_iter());
        traffic.add([(1, 130)].into_iter());
        assert_eq!(traffic.total, 180);
        traffic.add([(1, 130), (2, 7)].into_iter());
        assert_eq!(traffic.total, 187, "the second is another process of that number");
        traffic.add([(1, 5)].into_iter());
        assert_eq!(traffic.total, 192);
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(process_io("rchar: 9\nread_bytes: 4096\nwrite_bytes: 10\n"), Some(4106));
        assert_eq!(process_io("rchar: 9\n"), None);
        for (text, cpus) in [("max 100000\n", None), ("-1 100000", None), ("150000 100000", Some(1.5)), ("", None)] {
            assert_eq!(quota(text), cpus, "{text}");
        }
    }
}
