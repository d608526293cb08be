//! Terms of a class, phase by phase: a reload may put another policy in force, with other guarantees.

use std::ops::Range;

use weirgate_engine::{Class, ResponseTime};
use weirgate_experiment::Work;

use super::bucket::Bucket;
use super::owed::Declared;
use super::rules::Rules;

/// Terms of a class in a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) class: &'a Class,
    /// Guaranteed requests per second. A template has none, because its keys are not distinguished.
    pub(crate) floor: Option<f64>,
    /// Costs declared by its service time.
    pub(crate) declared: Option<Declared>,
    /// Capacity of its pool for each resource.
    pub(crate) has: Work,
    /// Seconds that a second of nominal CPU time takes on the idle machines of the pool.
    pub(crate) pace: f64,
    /// Seconds that a second of nominal CPU time takes on the fastest of them.
    pub(crate) best_pace: f64,
    /// Round-trip time to a machine, in nanoseconds.
    pub(crate) way: u64,
    /// Time after an interval during which its requests may still be served, in nanoseconds.
    pub(crate) grace: u64,
    /// End of the run, in nanoseconds.
    pub(crate) end: u64,
    /// Constants by which it is judged.
    pub(crate) rules: Rules,
}

impl Terms<'_> {
    /// Response-time guarantee.
    pub(crate) fn promised(&self) -> Option<ResponseTime> {
        self.class.guarantee.response_time
    }

    /// Bucket of its guaranteed rate. `largest` is the number of tokens of its most expensive request.
    pub(crate) fn bucket(&self, largest: f64) -> Bucket {
        self.floor.map_or_else(Bucket::nothing, |rate| Bucket::new(rate, self.rules.burst, largest))
    }
}

/// Consecutive phases with the same guaranteed rate as phase number `phase`, including it.
pub(crate) fn same_floor(terms: &[Terms<'_>], phase: usize) -> Range<usize> {
    let differs = |other: &usize| terms[*other].floor != terms[phase].floor;
    let from = (0..phase).rev().find(differs).map_or(0, |before| before + 1);
    from..(phase..terms.len()).find(differs).unwrap_or(terms.len())
}
