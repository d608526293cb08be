//! Use of memory, descriptors and CPU time by a process, from `/proc` (proc(5)).

use std::fs;
use std::time::Duration;

use weirgate_lab::process::cpu_time;

/// The use at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Resident memory in kilobytes (1024 bytes).
    pub(crate) resident_kb: u64,
    /// Open descriptors.
    pub(crate) descriptors: u64,
    /// User and system time since its start.
    pub(crate) cpu: Duration,
}

impl Usage {
    /// Reads the use of process `id`.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn of(id: u32) -> Result<Usage, String> {
        let gone = |error: std::io::Error| format!("process {id} cannot be looked at: {error}");
        let status = fs::read_to_string(format!("/proc/{id}/status")).map_err(gone)?;
        let resident_kb = resident(&status).ok_or_else(|| format!("process {id} has ended"))?;
        let descriptors = fs::read_dir(format!("/proc/{id}/fd")).map_err(gone)?.count() as u64;
        Ok(Usage { resident_kb, descriptors, cpu: cpu_time(id).map_err(gone)? })
    }

    /// Returns the larger figure of each.
    pub(crate) fn max(self, other: Usage) -> Usage {
        Usage {
            resident_kb: self.resident_kb.max(other.resident_kb),
            descriptors: self.descriptors.max(other.descriptors),
            cpu: self.cpu.max(other.cpu),
        }
    }
}

/// Returns `VmRSS` of `/proc/ID/status`. A process that has ended has none.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let usage = Usage::of(std::process::id()).expect("it runs");
        assert!(usage.resident_kb > 0 && usage.descriptors >= 3);
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1234 kB\n"), Some(1234));
        assert_eq!(resident("Name:\tx\nState:\tZ (zombie)\n"), None);
    }
}
