//! Rounds through the active classes. Most take one update. With more than two thousand active classes a round takes
//! several, so that no update takes long.

use crate::request::ClassId;
use crate::time::Time;

/// Maximum number of visits to classes in an update. A round visits each class three times. Two thousand classes are
/// done in one update, a hundred thousand take a second. No update takes longer than a few hundred microseconds.
pub(super) const VISITS: usize = 6000;

/// The two tightest slacks, because a class does not count its own, and the tightest limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tightest {
    slacks: [(f64, ClassId); 2],
    pub(super) limit: f64,
}

impl Tightest {
    const NONE: Tightest = Tightest { slacks: [(f64::INFINITY, ClassId::NONE); 2], limit: f64::INFINITY };

    pub(super) fn add(&mut self, slack: f64, limit: f64, class: ClassId) {
        self.limit = self.limit.min(limit);
        if slack < self.slacks[0].0 {
            self.slacks = [(slack, class), self.slacks[0]];
        } else if slack < self.slacks[1].0 {
            self.slacks[1] = (slack, class);
        }
    }

    pub(super) fn of_others(&self, class: ClassId) -> f64 {
        if self.slacks[0].1 == class { self.slacks[1].0 } else { self.slacks[0].0 }
    }
}

/// The two largest slowdowns among some classes, because a class does not count its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slowest([(f64, ClassId); 2]);

impl Slowest {
    const NONE: Slowest = Slowest([(0.0, ClassId::NONE); 2]);

    pub(super) fn add(&mut self, slowdown: f64, class: ClassId) {
        let [first, second] = &mut self.0;
        if slowdown > first.0 {
            (*second, *first) = (*first, (slowdown, class));
        } else if slowdown > second.0 {
            *second = (slowdown, class);
        }
    }

    /// Returns the largest slowdown of the other classes, if there is another class.
    pub(super) fn of_others(&self, class: ClassId) -> Option<f64> {
        let [first, second] = self.0;
        let (slowdown, other) = if first.1 == class { second } else { first };
        (other != ClassId::NONE).then_some(slowdown)
    }
}

/// A pass of a round through the active classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Finds the class that is slowed down least.
    Slowdown,
    /// Adds up what the claimants need.
    Need,
    /// Sets what each class may have.
    Room,
    Over,
}

/// A round through the active classes. Rounds with many classes take several updates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) pass: Pass,
    /// Position in the active classes, and the number of classes before it that stay active.
    pub(super) at: usize,
    pub(super) kept: usize,
    /// Number of classes in the sums of needs.
    pub(super) counted: usize,
    began: Time,
    /// Seconds between the beginnings of the round before and of this one.
    pub(super) seconds: f64,
    /// The smallest slowdown so far.
    pub(super) slowdown: f64,
    /// The largest slowdowns so far, of all classes, and of those with a guarantee that do not surge.
    pub(super) slowest: Slowest,
    pub(super) suffering: Slowest,
    pub(super) tightest: Tightest,
}

impl Round {
    /// Returns a round that is over.
    pub(super) fn none(now: Time) -> Round {
        Round {
            number: 0,
            pass: Pass::Over,
            at: 0,
            kept: 0,
            counted: 0,
            began: now,
            seconds: 0.0,
            slowdown: f64::INFINITY,
            slowest: Slowest::NONE,
            suffering: Slowest::NONE,
            tightest: Tightest::NONE,
        }
    }

    /// Returns whether a round through so many classes takes one update.
    pub(super) fn is_short(classes: usize) -> bool {
        3 * classes <= VISITS
    }

    /// Returns the next round, which begins now.
    pub(super) fn next(&self, now: Time) -> Round {
        let seconds = now.since(self.began).as_secs_f64();
        Round { number: self.number + 1, pass: Pass::Slowdown, seconds, ..Round::none(now) }
    }
}
