//! Parsers for files in `/proc` (proc(5)).

/// Size of a sector in `diskstats`, in bytes, for every disk.
const SECTOR: u64 = 512;

/// Block devices with the traffic of underlying devices, or without any of their own. Their traffic would
/// count twice.
const STACKED: [&str; 6] = ["loop", "ram", "zram", "dm-", "md", "sr"];

/// Counters of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Total time of all CPUs, in the kernel's ticks.
    pub(super) ticks: u64,
    /// Part of that time that was not idle.
    pub(super) busy: u64,
    /// Number of tasks that run or are ready to run.
    pub(super) runnable: u64,
    /// In bytes, like the following fields.
    pub(super) disk_read: u64,
    pub(super) disk_write: u64,
    pub(super) net_in: u64,
    pub(super) net_out: u64,
}

impl Counters {
    /// Parses `stat`, `diskstats` and `net/dev`.
    pub(super) fn parse(stat: &str, disks: &str, net: &str) -> Counters {
        let mut counters = Counters::default();
        for line in stat.lines() {
            if let Some(times) = line.strip_prefix("cpu ") {
                // The fields are user, nice, system, idle, iowait, irq, softirq and steal. The first two already
                // include the fields after these eight.
                let times: Vec<u64> = numbers(times).take(8).collect();
                let time = |at: usize| times.get(at).copied().unwrap_or(0);
                counters.ticks = times.iter().sum();
                // Stolen time was used by another virtual machine.
                counters.busy = counters.ticks - time(3) - time(4) - time(7);
            } else if let Some(runnable) = line.strip_prefix("procs_running ") {
                counters.runnable = numbers(runnable).next().unwrap_or(0);
            }
        }
        let mut whole = "";
        for line in disks.lines() {
            let mut words = line.split_ascii_whitespace().skip(2);
            let Some(name) = words.next() else { continue };
            let stacked = STACKED.iter().any(|prefix| name.starts_with(prefix));
            if stacked || is_partition(name, whole) {
                continue;
            }
            whole = name;
            let fields: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
            let bytes = |at: usize| fields.get(at).copied().unwrap_or(0).saturating_mul(SECTOR);
            counters.disk_read = counters.disk_read.saturating_add(bytes(2));
            counters.disk_write = counters.disk_write.saturating_add(bytes(6));
        }
        for (name, fields) in net.lines().filter_map(|line| line.split_once(':')) {
            if name.trim() != "lo" {
                let fields: Vec<u64> = numbers(fields).collect();
                let field = |at: usize| fields.get(at).copied().unwrap_or(0);
                counters.net_in = counters.net_in.saturating_add(field(0));
                counters.net_out = counters.net_out.saturating_add(field(8));
            }
        }
        counters
    }
}

/// Returns the number of bytes sent by one interface of `net/dev`.
pub(super) fn sent(net: &str, interface: &str) -> Option<u64> {
    let mut lines = net.lines().filter_map(|line| line.split_once(':'));
    let (_, fields) = lines.find(|(name, _)| name.trim() == interface)?;
    numbers(fields).nth(8)
}

/// Returns whether `name` is a partition of the disk `whole`, which is listed before it: `sda1` of `sda`,
/// `nvme0n1p1` of `nvme0n1`.
fn is_partition(name: &str, whole: &str) -> bool {
    let rest = name.strip_prefix(whole).filter(|_| !whole.is_empty());
    let rest = rest.map(|rest| rest.strip_prefix('p').unwrap_or(rest));
    rest.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the total and the available bytes of `meminfo`.
pub(super) fn memory(meminfo: &str) -> (u64, u64) {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| numbers(line).next()).unwrap_or(0).saturating_mul(1024)
    };
    (field("MemTotal:"), field("MemAvailable:"))
}

/// Returns the number of CPUs in a list such as `0-3,8`.
pub(super) fn cpus(list: &str) -> Option<usize> {
    list.split(',').try_fold(0usize, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split_ascii_whitespace().map_while(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 5 50 1000 20 3 7 15 99 0\ncpu0 1 1 1 1\nintr 5 0\nprocs_running 4\nprocs_blocked 0\n";
    const DISKS: &str = "\
   8       0 sda 10 0 100 5 20 0 200 9 0 0 0\n   8       1 sda1 10 0 90 5 20 0 190 9 0 0 0
   8      16 sdb 1 0 1 0 1 0 1 0 0 0 0\n 259 0 nvme0n1 1 0 1000 0 1 0 2000 0 0 0 0
 259       1 nvme0n1p2 1 0 1000 0 1 0 2000 0 0 0 0\n 253 0 dm-0 1 0 7777 0 1 0 7777 0 0 0 0\n   7 0 loop0 1 0 9 0 1 0 9\n";
    const NET: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0
  eth0: 1500 10 0 0 0 0 0 0 700 5 0 0 0 0 0 0
  eth1:10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n";

    #[test]
    fn counters_are_those_of_whole_devices() {
        let counters = Counters::parse(STAT, DISKS, NET);
        assert_eq!((counters.ticks, counters.busy, counters.runnable), (1200, 165, 4));
        assert_eq!((counters.disk_read, counters.disk_write), (1101 * 512, 2201 * 512));
        assert_eq!((counters.net_in, counters.net_out), (1510, 720));
        assert_eq!(
            ["lo", "eth0", "eth1", "eth", "face"].map(|name| sent(NET, name)),
            [Some(999), Some(700), Some(20), None, None]
        );
    }

    #[test]
    fn what_is_missing_or_odd_is_zero() {
        assert_eq!(Counters::parse("", "", ""), Counters::default());
        let odd = Counters::parse("cpu  x\nprocs_running x\n", "a b sda x\n\n8 0\n", "eth0: \n: 5\n");
        assert_eq!(odd, Counters { net_in: 5, ..Counters::default() });
        assert_eq!(memory("MemTotal: x"), (0, 0));
    }

    #[test]
    fn memory_and_cpus() {
        assert_eq!(memory("MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:  512 kB\n"), (2 << 20, 512 << 10));
        for (list, count) in [("0", Some(1)), ("0-1", Some(2)), ("0-3,8,10-11", Some(7)), ("", None), ("3-1", None)] {
            assert_eq!(cpus(list), count, "{list}");
        }
    }
}
