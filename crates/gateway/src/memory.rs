//! The process's memory against its bound, for the case that the sum of all other bounds was set too high.
//!
//! Figures of Envoy's overload manager: past 90 % nothing new is accepted (the kernel keeps connections),
//! past 95 % requests are turned away at the door. Both end by themselves once memory is given back. Looked
//! at once a second: memory moves slower than that as long as everything else is bounded.

use std::fs;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How short memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// Not at all, or no bound is set.
    None,
    /// Accept no connection.
    Accept,
    /// Admit no request.
    Admit,
}

/// The bound and how close the process is to it.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Bytes; 0 is no bound.
    bound: AtomicU64,
    pressure: AtomicU8,
}

impl Memory {
    pub(crate) fn new(bound: Option<u64>) -> Memory {
        let memory = Memory { bound: AtomicU64::new(bound.unwrap_or(0)), pressure: AtomicU8::new(0) };
        memory.look();
        memory
    }

    /// A new policy.
    pub(crate) fn set(&self, bound: Option<u64>) {
        self.bound.store(bound.unwrap_or(0), Ordering::Relaxed);
        self.look();
    }

    /// Asks the kernel how much there is in use.
    pub(crate) fn look(&self) {
        let bound = self.bound.load(Ordering::Relaxed);
        let used = if bound == 0 { None } else { resident() };
        let pressure = used.map_or(Pressure::None, |used| pressure(used, bound));
        self.pressure.store(pressure as u8, Ordering::Relaxed);
    }

    /// As of the last look.
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

/// Resident bytes of the process, from Linux's procfs; `None` where there is none.
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
