//! The monitor: figures of the node as a whole, for people. No decision depends on them.
//!
//! Sources: Feng and Lin's mQoS, in which each server reports the use of its CPU, disk and network, and Andreolini et
//! al. for the connections of the server (`source`). The figures come from `/proc/stat`, `meminfo`, `diskstats` and
//! `net/dev`, and those of [`connections`] from `net/tcp`. The files are read four times a second. Each reading takes a
//! tenth of a millisecond of CPU time on a small machine, because a small parser reads only the few lines needed. A
//! library for all of `/proc` would parse every field of every line.

mod counters;
mod sockets;

use std::fs;
use std::time::Duration;

use weirgate_wire::NodeFigures;

pub use sockets::connections;

use counters::Counters;

/// Computes the node's figures between two readings.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    before: Option<(Duration, Counters)>,
}

impl Monitor {
    /// Returns the figures since the last call. Rates are 0 in the first call. A figure that cannot be read
    /// is 0.
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
            // A counter that decreases (a disk was removed) gives a rate of 0.
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

/// Returns the ticks in which a CPU of this machine was busy since its start.
pub(crate) fn machine_ticks() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    Some(Counters::parse(&text, "", "").busy)
}

/// Returns the number of bytes that this machine's disks have read and written since its start.
pub(crate) fn machine_disk() -> Option<u64> {
    let text = fs::read_to_string("/proc/diskstats").ok()?;
    let counters = Counters::parse("", &text, "");
    Some(counters.disk_read.saturating_add(counters.disk_write))
}

/// Returns the number of bytes sent by an interface, or by all interfaces but `lo`. `None` if there is no
/// such interface.
pub(crate) fn sent(interface: Option<&str>) -> Option<u64> {
    let text = fs::read_to_string("/proc/net/dev").ok()?;
    match interface {
        Some(name) => counters::sent(&text, name),
        None => Some(Counters::parse("", "", &text).net_out),
    }
}

/// Returns the memory of this machine in bytes, or 0 if it cannot be read.
pub(crate) fn memory() -> u64 {
    counters::memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()).0
}

/// Returns the number of CPUs that this process may use. Ignores quotas, because the agent's own quota says
/// nothing about the node.
///
/// # Errors
/// The kernel does not provide the number.
pub fn usable_cpus() -> Result<usize, String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpus = list.and_then(|list| counters::cpus(list.trim()));
    cpus.ok_or_else(|| "/proc/self/status has no number of CPUs; give it with --cpus".to_owned())
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
        assert!(first.run_queue >= 1.0 && first.cpu == 0.0, "{first:?}: the reader itself runs");
        let second = monitor.measure(Duration::from_millis(250));
        assert!((0.0..=100.0).contains(&second.cpu), "{second:?}");
        assert!(usable_cpus().expect("it tells") >= 1);
        assert_eq!(memory(), second.memory_total);
    }
}
