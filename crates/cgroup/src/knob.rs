//! The files that hold a group's shares, and what stands in them for a percentage of the node.
//!
//! Shares are set in proportion to the percentage (R), on the scale on which 100 % is the largest number that the
//! kernel takes: this makes the steps as fine as they can be. One step is 0.01 % of the node in `cpu.weight` (1 to
//! 10000) and 0.0004 % in `cpu.shares` (2 to 262144), so that the smallest share, 1 %, is kept to a hundredth of itself
//! even where a class has many groups. It also says what groups count that are no class but have the same parent: with
//! the kernel's default, as much as a class of 1 % (weight 100) or 0.4 % (1024 shares).
//!
//! Besides CPU time (Cluster Reserves, Sec. 4), the same percentage of disk time and of memory is set where the kernel
//! offers it, which the paper names as an extension (Sec. 7).

/// What is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// CPU time. Its share is what the agent is for.
    Cpu,
    /// Time of disks. Set where it can be.
    Disk,
    /// Memory that is not taken away. Set where it can be, and where nobody else has said how much.
    Memory,
}

/// A file of a group that holds its share of a resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Knob {
    /// The file's name.
    pub file: &'static str,
    /// What is shared by it.
    pub resource: Resource,
    scale: Scale,
}

#[derive(Debug, PartialEq, Eq)]
enum Scale {
    /// A number among those of the siblings, and what is written before it.
    Weight { least: u32, most: u32, before: &'static str },
    /// Bytes of the node's memory.
    Bytes,
}

/// Memory is given in units of this: less does not matter, and the kernel rounds to pages.
const MEMORY_UNIT: u64 = 1 << 20;

/// cgroup v2 and v1 have one file for CPU time each.
pub(super) const CPU_WEIGHT: Knob = weight("cpu.weight", Resource::Cpu, 1, 10_000, "");
pub(super) const CPU_SHARES: Knob = weight("cpu.shares", Resource::Cpu, 2, 262_144, "");
/// `io.weight` exists with the kernel's iocost, `io.bfq.weight` with its BFQ scheduler.
pub(super) const IO_WEIGHT: Knob = weight("io.weight", Resource::Disk, 1, 10_000, "default ");
pub(super) const IO_BFQ_WEIGHT: Knob = weight("io.bfq.weight", Resource::Disk, 1, 1_000, "default ");
/// The same for v1; `blkio.weight` is that of kernels before 5.0.
pub(super) const BLKIO_BFQ_WEIGHT: Knob = weight("blkio.bfq.weight", Resource::Disk, 1, 1_000, "");
pub(super) const BLKIO_WEIGHT: Knob = weight("blkio.weight", Resource::Disk, 10, 1_000, "");
/// v1 has limits of memory only, no protection.
pub(super) const MEMORY_LOW: Knob = Knob { file: "memory.low", resource: Resource::Memory, scale: Scale::Bytes };

const fn weight(file: &'static str, resource: Resource, least: u32, most: u32, before: &'static str) -> Knob {
    Knob { file, resource, scale: Scale::Weight { least, most, before } }
}

impl Knob {
    /// What stands in the file for `percent` of a node with so many bytes of memory.
    #[must_use]
    pub fn text(&self, percent: f64, memory: u64) -> String {
        match self.scale {
            Scale::Weight { least, most, before } => {
                let number = (percent / 100.0 * f64::from(most)).round();
                format!("{before}{}", number.clamp(f64::from(least), f64::from(most)))
            }
            Scale::Bytes => {
                let bytes = (percent.clamp(0.0, 100.0) / 100.0 * memory as f64) as u64;
                (bytes / MEMORY_UNIT * MEMORY_UNIT).to_string()
            }
        }
    }

    /// The percentage that `text` stands for; `None` if it is no weight.
    #[must_use]
    pub fn percent(&self, text: &str) -> Option<f64> {
        let Scale::Weight { most, .. } = self.scale else { return None };
        let number: u32 = text.split_ascii_whitespace().last()?.parse().ok()?;
        Some(f64::from(number) / f64::from(most) * 100.0)
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
