//! What holds for a class, phase by phase: a reload may put another policy in force, with other promises.

use std::ops::Range;

use weirgate_engine::{Class, ResponseTime};
use weirgate_experiment::Work;

use super::bucket::Bucket;
use super::owed::Declared;
use super::rules::Rules;

/// What holds for a class in a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) class: &'a Class,
    /// Guaranteed requests per second. A template's keys are not told apart, so it has none.
    pub(crate) floor: Option<f64>,
    /// What its service time declares.
    pub(crate) declared: Option<Declared>,
    /// What its pool has of each resource.
    pub(crate) has: Work,
    /// Seconds that a second of nominal CPU time takes on the idle machines of the pool.
    pub(crate) pace: f64,
    /// The same on the quickest of them.
    pub(crate) best_pace: f64,
    /// The way to a machine and back, in nanoseconds.
    pub(crate) way: u64,
    /// How long after a stretch its requests may still be served, in nanoseconds.
    pub(crate) grace: u64,
    /// The end of the run.
    pub(crate) end: u64,
    /// By which figures it is judged.
    pub(crate) rules: Rules,
}

impl Terms<'_> {
    /// The limit.
    pub(crate) fn promised(&self) -> Option<ResponseTime> {
        self.class.guarantee.response_time
    }

    /// The bucket of its guaranteed rate. `largest`: tokens that its most expensive request takes.
    pub(crate) fn bucket(&self, largest: f64) -> Bucket {
        self.floor.map_or_else(Bucket::nothing, |rate| Bucket::new(rate, self.rules.burst, largest))
    }
}

/// Phases that follow one another with the same guaranteed rate as phase number `phase`, itself among them.
pub(crate) fn same_floor(terms: &[Terms<'_>], phase: usize) -> Range<usize> {
    let differs = |other: &usize| terms[*other].floor != terms[phase].floor;
    let from = (0..phase).rev().find(differs).map_or(0, |before| before + 1);
    from..(phase..terms.len()).find(differs).unwrap_or(terms.len())
}
