//! Memory use of the process compared with its limit, in case the sum of all other limits was set too high.
//!
//! Above 80 % no reply is read ahead for a slow client. Above 90 % no new connection is accepted (it waits in the
//! kernel). Above 95 % no request is admitted. The last two thresholds are those of Envoy's overload manager. All
//! measures end once memory has been freed. Memory use is read once a second. Replies could fill the memory within a
//! second, so the limit also bounds their buffer.
//!
//! Pages of mapped files, such as the program's own, do not count. The kernel takes them back before a process or a
//! control group runs out of memory (its `Documentation/admin-guide/cgroup-v2.rst`, `memory.max`), and they can be a
//! third of a small limit.

use std::fs;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use weirgate_config::{Limits, MemoryLimit};

/// Memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// No pressure, or no limit is set.
    None,
    /// Read no reply ahead.
    Buffer,
    /// Accept no connections.
    Accept,
    /// Admit no requests.
    Admit,
}

/// The limit, and the present pressure.
pub(crate) struct Memory {
    /// Limit in bytes, or 0 for no limit.
    bound: AtomicU64,
    /// Maximum number of bytes buffered for slow clients, in the whole process.
    buffer: AtomicU64,
    pressure: AtomicU8,
}

impl Memory {
    pub(crate) fn new(limits: &Limits) -> Memory {
        let memory = Memory { bound: AtomicU64::new(0), buffer: AtomicU64::new(0), pressure: AtomicU8::new(0) };
        memory.set(limits);
        memory
    }

    /// Sets the limits of a new policy.
    pub(crate) fn set(&self, limits: &Limits) {
        let bound = match limits.memory {
            MemoryLimit::Cgroup => weirgate_cgroup::memory_limit(),
            MemoryLimit::Bytes(bytes) => Some(bytes),
            MemoryLimit::Off => None,
        };
        // The other three quarters are for requests, for the engine, and for the kernel's buffers of the sockets, which
        // count in a control group.
        let buffer = bound.map_or(u64::MAX, |bound| bound / 4).min(limits.buffer_total as u64);
        self.bound.store(bound.unwrap_or(0), Ordering::Relaxed);
        self.buffer.store(buffer, Ordering::Relaxed);
        self.look();
    }

    /// Returns the limit in bytes, if there is one.
    pub(crate) fn bound(&self) -> Option<u64> {
        Some(self.bound.load(Ordering::Relaxed)).filter(|bound| *bound > 0)
    }

    /// Returns the number of bytes that may be buffered for slow clients now.
    pub(crate) fn buffer(&self) -> u64 {
        if self.pressure() >= Pressure::Buffer { 0 } else { self.buffer.load(Ordering::Relaxed) }
    }

    /// Reads the memory use from the kernel and updates the pressure.
    pub(crate) fn look(&self) {
        let bound = self.bound.load(Ordering::Relaxed);
        let used = if bound == 0 { None } else { used() };
        let pressure = used.map_or(Pressure::None, |used| pressure(used, bound));
        self.pressure.store(pressure as u8, Ordering::Relaxed);
    }

    /// Returns the pressure at the last reading.
    pub(crate) fn pressure(&self) -> Pressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::Buffer,
            2 => Pressure::Accept,
            _ => Pressure::Admit,
        }
    }
}

fn pressure(used: u64, bound: u64) -> Pressure {
    let percent = u128::from(used) * 100 / u128::from(bound.max(1));
    match percent {
        0..80 => Pressure::None,
        80..90 => Pressure::Buffer,
        90..95 => Pressure::Accept,
        _ => Pressure::Admit,
    }
}

/// Returns the memory of the process that the kernel cannot take back, in bytes, from Linux's procfs, or `None` if
/// there is no procfs.
fn used() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Reads `/proc/self/status`. Some kernels, such as that of gVisor, tell only the whole resident memory.
fn parse(status: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let kept = kib("RssAnon:").zip(kib("RssShmem:")).map(|(anonymous, shared)| anonymous + shared);
    Some(kept.or_else(|| kib("VmRSS:"))? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory: MemoryLimit) -> Limits {
        Limits { memory, ..crate::tests::site_trusting(&[]).limits }
    }

    #[test]
    fn measures_begin_at_80_and_90_and_95_percent() {
        let at = |used| pressure(used, 1000);
        assert_eq!(
            [at(0), at(799), at(800), at(899)],
            [Pressure::None, Pressure::None, Pressure::Buffer, Pressure::Buffer]
        );
        assert_eq!([at(900), at(949)], [Pressure::Accept; 2]);
        assert_eq!([at(950), at(5000)], [Pressure::Admit; 2]);
    }

    #[test]
    fn files_count_only_where_the_kernel_does_not_tell_them_apart() {
        let parts = "VmRSS:\t  900 kB\nRssAnon:\t  500 kB\nRssFile:\t  300 kB\nRssShmem:\t  100 kB\n";
        assert_eq!(parse(parts), Some(600 * 1024));
        assert_eq!(parse("VmRSS:\t  900 kB\n"), Some(900 * 1024));
        assert_eq!(parse("Name:\tx\n"), None);
    }

    #[test]
    fn the_process_knows_its_size() {
        let used = used().expect("procfs is there");
        assert!(used > 100 * 1024, "{used} bytes");
        let memory = Memory::new(&limits(MemoryLimit::Bytes(used / 2)));
        assert_eq!((memory.pressure(), memory.buffer()), (Pressure::Admit, 0));
        memory.set(&limits(MemoryLimit::Bytes(used * 100)));
        assert_eq!(memory.pressure(), Pressure::None);
        memory.set(&limits(MemoryLimit::Off));
        assert_eq!((memory.pressure(), memory.bound()), (Pressure::None, None));
    }

    #[test]
    fn the_limit_bounds_the_buffer() {
        let total = limits(MemoryLimit::Off).buffer_total as u64;
        assert_eq!(Memory::new(&limits(MemoryLimit::Off)).buffer(), total);
        assert_eq!(Memory::new(&limits(MemoryLimit::Bytes(1 << 40))).buffer(), total);
        let memory = Memory::new(&limits(MemoryLimit::Bytes(total)));
        assert_eq!(memory.buffer.load(Ordering::Relaxed), total / 4);
    }
}
