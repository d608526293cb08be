//! The monitor: the node as a whole, for people to look at. No decision depends on it.
//!
//! Source: Feng and Lin's mQoS, which asks each server what its CPU, disk and network do, and Andreolini et al. for the
//! connections of the server (`source`). Read from the files in which the kernel tells: `/proc/stat`, `meminfo`,
//! `diskstats` and `net/dev`, and `net/tcp` for [`connections`]. They are read four times a second, a tenth of a
//! millisecond of CPU time each time on a small machine, by a reader of their few lines that matter rather than a
//! library for all of `/proc`, which would parse every field of every line.

mod counters;
mod sockets;

use std::fs;
use std::time::Duration;

use weirgate_config::NodeFigures;

pub use sockets::connections;

use counters::Counters;

/// Tells the node's figures between two readings.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    before: Option<(Duration, Counters)>,
}

impl Monitor {
    /// The figures since the last call; rates are 0 in the first. What cannot be read is 0.
    pub(crate) fn measure(&mut self, now: Duration) -> NodeFigures {
        let text = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let counters = Counters::parse(&text("stat"), &text("diskstats"), &text("net/dev"));
        let (memory_total, memory_available) = counters::memory(&text("meminfo"));
        let mut figures = NodeFigures {
            run_queue: counters.runnable as f64,
            memory_used: memory_total.saturating_sub(memory_available),
            memory_total,
            ..NodeFigures::default()
        };
        if let Some((at, before)) = self.before.replace((now, counters)) {
            let seconds = now.saturating_sub(at).as_secs_f64();
            // A counter that goes backwards (a disk was taken out) has no rate.
            let rate = |after: u64, before: u64| match seconds > 0.0 {
                true => after.saturating_sub(before) as f64 / seconds,
                false => 0.0,
            };
            let all = counters.ticks.saturating_sub(before.ticks);
            if all > 0 {
                figures.cpu = 100.0 * counters.busy.saturating_sub(before.busy).min(all) as f64 / all as f64;
            }
            figures.disk_read = rate(counters.disk_read, before.disk_read);
            figures.disk_write = rate(counters.disk_write, before.disk_write);
            figures.net_in = rate(counters.net_in, before.net_in);
            figures.net_out = rate(counters.net_out, before.net_out);
        }
        figures
    }
}

/// Ticks in which a CPU of this machine was busy, since its start.
pub(crate) fn machine_ticks() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    Some(Counters::parse(&text, "", "").busy)
}

/// Bytes that this machine's disks have read and written since its start.
pub(crate) fn machine_disk() -> Option<u64> {
    let text = fs::read_to_string("/proc/diskstats").ok()?;
    let counters = Counters::parse("", &text, "");
    Some(counters.disk_read.saturating_add(counters.disk_write))
}

/// Bytes that an interface has sent, or all but `lo` have. `None` if there is no such interface.
pub(crate) fn sent(interface: Option<&str>) -> Option<u64> {
    let text = fs::read_to_string("/proc/net/dev").ok()?;
    match interface {
        Some(name) => counters::sent(&text, name),
        None => Some(Counters::parse("", "", &text).net_out),
    }
}

/// Bytes of memory of this machine; 0 if it does not tell.
pub(crate) fn memory() -> u64 {
    counters::memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()).0
}

/// CPUs that this process may use, quotas left aside: a quota of the agent's own says nothing about the node.
///
/// # Errors
/// The kernel does not tell.
pub fn usable_cpus() -> Result<usize, String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpus = list.and_then(|list| counters::cpus(list.trim()));
    cpus.ok_or_else(|| "how many CPUs there are is not in /proc/self/status; say it with --cpus".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_figures() {
        let mut monitor = Monitor::default();
        let first = monitor.measure(Duration::ZERO);
        assert!(
            first.memory_total > 0 && first.memory_used > 0 && first.memory_used <= first.memory_total,
            "{first:?}"
        );
        assert!(first.run_queue >= 1.0 && first.cpu == 0.0, "{first:?}: who reads it runs");
        let second = monitor.measure(Duration::from_millis(250));
        assert!((0.0..=100.0).contains(&second.cpu), "{second:?}");
        assert!(usable_cpus().expect("it tells") >= 1);
        assert_eq!(memory(), second.memory_total);
    }
}
