//! Measurements of the two halves of a cycle of a window, for [`super::probe`].
//!
//! Source: our own. Completions are counted as work, each with its class's mean time over the whole cycle, so that a
//! change in the mix of classes between the halves does not matter.

/// Maximum log ratio of the number in flight to the window in a half cycle that counts. A larger ratio is due to
/// arrivals or to long requests, and not to the window.
pub(super) const SWUNG: f64 = 0.15;

/// Service times of one class in the two halves of a cycle in one group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Halves {
    /// Number of the cycle that the sums belong to.
    pub(super) cycle: u64,
    /// Sum of service times, in seconds.
    pub(super) sum: f64,
    pub(super) count: [u32; 2],
}

/// Result of a half cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HalfCycle {
    /// Too few completions so far.
    Unfinished,
    /// Nothing was held back, so there is nothing to learn.
    Free,
    /// A low half that counts.
    Low,
    /// A high half that counts, without a low one before it.
    High,
    /// A high half after a low one.
    Cycle(Cycle),
}

/// A whole cycle: low half, high half.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cycle {
    /// Mean number in flight of this engine.
    pub(super) in_flight: [f64; 2],
    /// Sums of all engines with these machines, if there are others.
    pub(super) all: Option<[All; 2]>,
    pub(super) seconds: [f64; 2],
}

impl Cycle {
    /// Returns whether the number in flight has followed a window of these sizes through the cycle. With other engines
    /// the number of all counts, which may move against the window of this one.
    pub(super) fn has_followed(self, sizes: [f64; 2]) -> bool {
        self.all.is_some() || self.log_ratios(sizes).iter().all(|ratio| ratio.abs() < SWUNG)
    }

    /// Returns the number in flight if it stayed beyond a window of these sizes: the window has bounded nothing.
    pub(super) fn beyond(self, sizes: [f64; 2]) -> Option<f64> {
        let beyond = self.all.is_none() && self.log_ratios(sizes).iter().all(|ratio| *ratio >= SWUNG);
        beyond.then(|| self.in_flight[0].min(self.in_flight[1]))
    }

    /// Returns the logarithms of the numbers in flight relative to a window of these sizes.
    fn log_ratios(self, sizes: [f64; 2]) -> [f64; 2] {
        [0, 1].map(|half| (self.in_flight[half] / sizes[half]).ln())
    }
}

/// What a cycle has shown.
#[derive(Clone, Copy, Debug)]
pub(in crate::limit) struct Lesson {
    pub(super) elasticity: f64,
    /// Change of the logarithm of the base, unless it searches.
    pub(super) pull: f64,
}

/// Completed work: the sum of service times, each the mean of its class, and the sum of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub(super) sum: f64,
    pub(super) squares: f64,
}

impl Work {
    /// Returns the number of equal completions with the same variance. A few expensive requests among many cheap ones
    /// count as few.
    pub(super) fn completions(self) -> f64 {
        if self.squares > 0.0 { self.sum * self.sum / self.squares } else { 0.0 }
    }
}

impl core::ops::Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work { sum: self.sum + other.sum, squares: self.squares + other.squares }
    }
}

/// Sums of all engines over a half cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct All {
    /// Integral of the number in flight, in request-seconds.
    pub(super) area: f64,
    /// Work answered, in seconds on unloaded machines.
    pub(super) work: f64,
    pub(super) answers: f64,
}

/// The other engines with the same machines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::limit) struct Others {
    pub(super) in_flight: f64,
    /// Work answered a second, in seconds on unloaded machines.
    pub(super) work_per_s: f64,
    pub(super) answers_per_s: f64,
}
