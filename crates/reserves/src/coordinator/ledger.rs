//! The coordinator's record of its runs, for operators and metrics.

use std::collections::VecDeque;
use std::time::Duration;

use super::Cause;
use crate::problem::Error;

/// Maximum number of runs kept: half a minute at four runs a second, ten minutes at one run every 5 s.
pub const MAX_FINISHED: usize = 120;

/// The record of past runs.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Counts of runs.
    pub runs: Runs,
    /// The latest runs, newest last.
    pub finished: VecDeque<Finished>,
    /// Error of the latest failed run, if no run has succeeded since.
    pub failure: Option<Error>,
}

/// Counts of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Runs {
    /// Periodic runs.
    pub periodic: u64,
    /// Runs because a class began to use all of its share.
    pub sink_began: u64,
    /// Runs because a class stopped using all of its share.
    pub sink_ended: u64,
    /// Runs because a class used less than before.
    pub fell: u64,
    /// Runs because a node came up.
    pub joined: u64,
    /// Runs because a node went down.
    pub left: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Questions from nodes. Many questions may lead to one run.
    pub asked: u64,
    /// Total time spent solving in all runs, in seconds.
    pub solve_seconds: f64,
}

/// A run that produced shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Number of the run.
    pub number: u64,
    /// When it started, as time since the coordinator's time base.
    pub began: Duration,
    /// Reason for the run.
    pub cause: Cause,
    /// Number of nodes that were up.
    pub nodes: usize,
    /// Distance between the promises and the nearest usable shares (V), in percent of a node.
    pub deviation: f64,
    /// Increase of shares compared with the previous ones, summed over classes and nodes, in percent of a
    /// node.
    pub moved: f64,
    /// Time spent solving.
    pub took: Duration,
}

impl Runs {
    /// Returns the number of runs that produced shares.
    pub fn done(&self) -> u64 {
        self.periodic + self.sink_began + self.sink_ended + self.fell + self.joined + self.left
    }

    /// Returns each cause as a word, with its count.
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
    /// Returns the cause as a word, as in [`Runs::by_cause`].
    pub fn word(self) -> &'static str {
        match self {
            Cause::Periodic => "periodic",
            Cause::Asked { trigger, .. } => trigger.word(),
            Cause::Joined { .. } => "joined",
            Cause::Left { .. } => "left",
        }
    }
}

impl Ledger {
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
        if self.finished.len() == MAX_FINISHED {
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
