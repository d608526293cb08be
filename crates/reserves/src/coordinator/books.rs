//! What the manager keeps of its runs, for people and metrics.

use std::collections::VecDeque;
use std::time::Duration;

use super::Cause;
use crate::problem::Error;

/// Most runs that are kept: at four a second half a minute, with one every 5 s ten minutes.
pub const MOST_FINISHED: usize = 120;

/// What happened so far.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Counts.
    pub runs: Runs,
    /// The last runs, the newest last.
    pub finished: VecDeque<Finished>,
    /// Why the last run that came to nothing did so, if none has succeeded since.
    pub failure: Option<Error>,
}

/// Counts of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Runs {
    /// Because it was time.
    pub periodic: u64,
    /// Because a class began to use all that it was given.
    pub sink_began: u64,
    /// Because a class no longer used all of it.
    pub sink_ended: u64,
    /// Because a class used less.
    pub fell: u64,
    /// Because a node came up.
    pub joined: u64,
    /// Because a node went down.
    pub left: u64,
    /// That came to nothing.
    pub failed: u64,
    /// Times that nodes asked: many may lead to one run.
    pub asked: u64,
    /// Time that finding shares took in all runs, in seconds.
    pub solve_seconds: f64,
}

/// A run that led to shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Its number.
    pub number: u64,
    /// When it began.
    pub began: Duration,
    /// Why.
    pub cause: Cause,
    /// Nodes that were up.
    pub nodes: usize,
    /// By how much the promises cannot be met by what the classes can use (V), in percent of a node.
    pub deviation: f64,
    /// What classes were given more than before, summed over classes and nodes, in percent of a node.
    pub moved: f64,
    /// How long finding the shares took.
    pub took: Duration,
}

impl Runs {
    /// All that led to shares.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.periodic + self.sink_began + self.sink_ended + self.fell + self.joined + self.left
    }

    /// Each cause in a word, with its count.
    #[must_use]
    pub fn by_cause(&self) -> [(&'static str, u64); 6] {
        [
            ("periodic", self.periodic),
            ("sink_began", self.sink_began),
            ("sink_ended", self.sink_ended),
            ("fell", self.fell),
            ("joined", self.joined),
            ("left", self.left),
        ]
    }
}

impl Cause {
    /// In a word, as [`Runs::by_cause`] has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        use crate::tracker::Trigger;
        match self {
            Cause::Periodic => "periodic",
            Cause::Asked { trigger: Trigger::SinkBegan { .. }, .. } => "sink_began",
            Cause::Asked { trigger: Trigger::SinkEnded { .. }, .. } => "sink_ended",
            Cause::Asked { trigger: Trigger::Fell { .. }, .. } => "fell",
            Cause::Joined { .. } => "joined",
            Cause::Left { .. } => "left",
        }
    }
}

impl Books {
    pub(super) fn finished(&mut self, run: Finished) {
        let count = match run.cause.word() {
            "sink_began" => &mut self.runs.sink_began,
            "sink_ended" => &mut self.runs.sink_ended,
            "fell" => &mut self.runs.fell,
            "joined" => &mut self.runs.joined,
            "left" => &mut self.runs.left,
            _ => &mut self.runs.periodic,
        };
        *count += 1;
        self.runs.solve_seconds += run.took.as_secs_f64();
        self.failure = None;
        if self.finished.len() == MOST_FINISHED {
            self.finished.pop_front();
        }
        self.finished.push_back(run);
    }

    pub(super) fn failed(&mut self, error: Error, took: Duration) {
        self.runs.failed += 1;
        self.runs.solve_seconds += took.as_secs_f64();
        self.failure = Some(error);
    }
}
