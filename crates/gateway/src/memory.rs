//! Memory use of the process compared with its limit, in case the sum of all other limits was set too high.
//!
//! The thresholds are those of Envoy's overload coordinator. Above 90 % no new connection is accepted (it waits
//! in the kernel). Above 95 % no request is admitted. Both measures end once memory has been freed. Memory
//! use is read once a second, which is often enough as long as everything else is bounded.

use std::fs;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// No pressure, or no limit is set.
    None,
    /// Accept no connections.
    Accept,
    /// Admit no requests.
    Admit,
}

/// The limit, and the present pressure.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Limit in bytes, or 0 for no limit.
    bound: AtomicU64,
    pressure: AtomicU8,
}

impl Memory {
    pub(crate) fn new(bound: Option<u64>) -> Memory {
        let memory = Memory { bound: AtomicU64::new(bound.unwrap_or(0)), pressure: AtomicU8::new(0) };
        memory.look();
        memory
    }

    /// Sets the limit of a new policy.
    pub(crate) fn set(&self, bound: Option<u64>) {
        self.bound.store(bound.unwrap_or(0), Ordering::Relaxed);
        self.look();
    }

    /// Reads the memory use from the kernel and updates the pressure.
    pub(crate) fn look(&self) {
        let bound = self.bound.load(Ordering::Relaxed);
        let used = if bound == 0 { None } else { resident() };
        let pressure = used.map_or(Pressure::None, |used| pressure(used, bound));
        self.pressure.store(pressure as u8, Ordering::Relaxed);
    }

    /// Returns the pressure at the last reading.
    pub(crate) fn pressure(&self) -> Pressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::Accept,
            _ => Pressure::Admit,
        }
    }
}

fn pressure(used: u64, bound: u64) -> Pressure {
    let percent = u128::from(used) * 100 / u128::from(bound.max(1));
    match percent {
        0..90 => Pressure::None,
        90..95 => Pressure::Accept,
        _ => Pressure::Admit,
    }
}

/// Returns the resident memory of the process in bytes, from Linux's procfs, or `None` if there is no procfs.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_nothing_past_90_percent_and_admits_nothing_past_95() {
        let at = |used| pressure(used, 1000);
        assert_eq!(
            [at(0), at(899), at(900), at(949), at(950), at(5000)],
            [Pressure::None, Pressure::None, Pressure::Accept, Pressure::Accept, Pressure::Admit, Pressure::Admit,]
        );
    }

    #[test]
    fn the_process_knows_its_size() {
        let used = resident().expect("procfs is there");
        assert!(used > 100 * 1024, "{used} bytes");
        let memory = Memory::new(Some(used / 2));
        assert_eq!(memory.pressure(), Pressure::Admit);
        memory.set(Some(used * 100));
        assert_eq!(memory.pressure(), Pressure::None);
        memory.set(None);
        assert_eq!(memory.pressure(), Pressure::None);
    }
}
