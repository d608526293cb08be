//! The files that hold a group's shares, and their text for a given percentage of the node.
//!
//! Shares are proportional to the percentage R. 100 % maps to the largest number that the kernel accepts, so
//! the steps are as fine as possible: 0.01 % of the node in `cpu.weight` (1 to 10000) and 0.0004 % in
//! `cpu.shares` (2 to 262144). The smallest share, 1 %, is therefore exact to a hundredth of itself, even if
//! a class has many groups. The scale also fixes the weight of sibling groups that belong to no class. With
//! the kernel's default they count as much as a class of 1 % (weight 100) or 0.4 % (1024 shares).
//!
//! Besides CPU time (Cluster Reserves, Sec. 4), the same percentage of disk time and of memory is set where
//! the kernel supports it. The paper names this as an extension (Sec. 7).

/// A resource of a node that is divided into shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// CPU time. Dividing it is the agent's purpose.
    Cpu,
    /// Disk time. Its share is set where the kernel supports it.
    Disk,
    /// Memory protected from reclaim. It is set where the kernel supports it and no other value has been set.
    Memory,
}

/// A file of a group that holds its share of a resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Knob {
    /// The file's name.
    pub file: &'static str,
    /// The resource that this file divides.
    pub resource: Resource,
    scale: Scale,
}

#[derive(Debug, PartialEq, Eq)]
enum Scale {
    /// A number relative to those of the siblings. `before` is the text written in front of the number.
    Weight { min: u32, max: u32, before: &'static str },
    /// Bytes, as a part of the node's memory.
    Bytes,
}

/// Memory is assigned in multiples of this many bytes. Smaller amounts do not matter, and the kernel rounds
/// to pages.
const MEMORY_UNIT: u64 = 1 << 20;

/// cgroup v2 and v1 each have one file for CPU time.
pub(super) const CPU_WEIGHT: Knob = weight("cpu.weight", Resource::Cpu, 1, 10_000, "");
pub(super) const CPU_SHARES: Knob = weight("cpu.shares", Resource::Cpu, 2, 262_144, "");
/// `io.weight` needs the kernel's iocost controller, and `io.bfq.weight` needs its BFQ scheduler.
pub(super) const IO_WEIGHT: Knob = weight("io.weight", Resource::Disk, 1, 10_000, "default ");
pub(super) const IO_BFQ_WEIGHT: Knob = weight("io.bfq.weight", Resource::Disk, 1, 1_000, "default ");
/// The disk weights of v1. Kernels before 5.0 have `blkio.weight`.
pub(super) const BLKIO_BFQ_WEIGHT: Knob = weight("blkio.bfq.weight", Resource::Disk, 1, 1_000, "");
pub(super) const BLKIO_WEIGHT: Knob = weight("blkio.weight", Resource::Disk, 10, 1_000, "");
/// v1 can limit memory but cannot protect it, so only v2 has this knob.
pub(super) const MEMORY_LOW: Knob = Knob { file: "memory.low", resource: Resource::Memory, scale: Scale::Bytes };

const fn weight(file: &'static str, resource: Resource, min: u32, max: u32, before: &'static str) -> Knob {
    Knob { file, resource, scale: Scale::Weight { min, max, before } }
}

impl Knob {
    /// Returns the file's text for `percent` of a node with `memory` bytes of memory.
    pub fn text(&self, percent: f64, memory: u64) -> String {
        match self.scale {
            Scale::Weight { min, max, before } => {
                let number = (percent / 100.0 * f64::from(max)).round();
                format!("{before}{}", number.clamp(f64::from(min), f64::from(max)))
            }
            Scale::Bytes => {
                let bytes = (percent.clamp(0.0, 100.0) / 100.0 * memory as f64) as u64;
                (bytes / MEMORY_UNIT * MEMORY_UNIT).to_string()
            }
        }
    }

    /// Returns the percentage that `text` stands for, or `None` if it is not a weight.
    pub fn percent(&self, text: &str) -> Option<f64> {
        let Scale::Weight { max, .. } = self.scale else { return None };
        let number: u32 = text.split_ascii_whitespace().last()?.parse().ok()?;
        Some(f64::from(number) / f64::from(max) * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_proportional_up_to_the_largest_number() {
        for (knob, percent, text) in [
            (&CPU_WEIGHT, 100.0, "10000"),
            (&CPU_WEIGHT, 1.0, "100"),
            (&CPU_WEIGHT, 33.333, "3333"),
            (&CPU_WEIGHT, 0.0, "1"),
            (&CPU_SHARES, 100.0, "262144"),
            (&CPU_SHARES, 1.0, "2621"),
            (&CPU_SHARES, 0.0, "2"),
            (&CPU_SHARES, 200.0, "262144"),
            (&IO_WEIGHT, 25.0, "default 2500"),
            (&BLKIO_WEIGHT, 0.5, "10"),
            (&BLKIO_BFQ_WEIGHT, 50.0, "500"),
            (&MEMORY_LOW, 50.0, "1073741824"),
            (&MEMORY_LOW, 0.01, "0"),
        ] {
            assert_eq!(knob.text(percent, 2 << 30), text, "{knob:?} {percent}");
        }
    }

    #[test]
    fn every_share_is_kept_to_half_a_step() {
        for hundredths in 100..=10_000 {
            let percent = f64::from(hundredths) / 100.0;
            for (knob, step) in [(&CPU_WEIGHT, 0.01), (&CPU_SHARES, 100.0 / 262_144.0)] {
                let back = knob.percent(&knob.text(percent, 0)).expect("a weight");
                assert!((back - percent).abs() <= step / 2.0 + 1e-9, "{percent} {back}");
            }
        }
        assert_eq!(IO_WEIGHT.percent("default 2500"), Some(25.0));
        assert_eq!((CPU_WEIGHT.percent("max"), CPU_WEIGHT.percent(""), MEMORY_LOW.percent("1")), (None, None, None));
    }
}
