//! Measurements of the two halves of a cycle of a window, for [`super::probe`].
//!
//! Source: our own. Completions are counted as work, each with its class's mean time over the whole cycle, so that a
//! change in the mix of classes between the halves does not matter.
//!
//! How much a half tells depends on how often its slots were given back. That is expected from what was in flight, and
//! not counted from what has ended: a short half in which by chance no long request ended has many answers, but only
//! of short requests. A larger window lets in more of these at the expense of the long ones, so such halves seem to
//! show that it gains work. If they weighed more than the others, the window would grow without end.

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
    /// Time in seconds in which the slots are given back once.
    pub(super) turnover: f64,
}

impl Cycle {
    /// Returns the number of answers that tell as much as each half: the number that slots which are given back once in
    /// a turnover give, by Little's law. With other engines, the answers of all.
    pub(super) fn answers(self) -> [f64; 2] {
        match self.all {
            Some(all) => all.map(|half| half.answers),
            None => [0, 1].map(|half| self.in_flight[half] * self.seconds[half] / self.turnover),
        }
    }

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
