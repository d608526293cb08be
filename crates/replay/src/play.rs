//! A policy that plays the requests of a log: its guarantees, its figures, and the machines that it needs.

use std::time::Duration;

use weirgate_experiment::{Experiment, Run};
use weirgate_sim::plan::{Broken, Question, Smallest, smallest};
use weirgate_verdict::judge;

use crate::outcome::{Outcome, of_run};

/// A policy's result.
#[derive(Clone, Debug)]
pub struct Result {
    /// The run, for pictures.
    pub run: Run,
    /// Figures per class.
    pub outcome: Outcome,
    /// Guarantees that were missed, the largest miss of each class first.
    pub missed: Vec<Broken>,
}

/// Plays `experiment`. `progress` receives the simulated time.
///
/// # Errors
/// Returns a violation of an invariant. The simulation cannot be trusted then.
pub fn play(experiment: &Experiment, seed: u64, progress: impl FnMut(Duration)) -> std::result::Result<Result, String> {
    let run = weirgate_sim::run(experiment, seed, progress);
    if let Some(violation) = run.violations.first() {
        return Err(format!("invariant {}: {}", violation.invariant, violation.what));
    }
    let verdict = judge(experiment, &run);
    // A cluster that cannot carry the owed load is a result here, so it does not excuse a missed guarantee.
    let missed = verdict.all_misses(true).map(|miss| Broken::new(&miss, seed)).collect();
    Ok(Result { outcome: of_run(experiment, &run), missed, run })
}

/// Finds the smallest number of machines with which the policy keeps all guarantees for the log's requests. `None` if
/// it has no guarantee. Calls `watch` before each further simulation.
///
/// # Errors
/// As [`play`].
pub fn machines_needed(
    experiment: &Experiment,
    seed: u64,
    mut watch: impl FnMut(),
) -> std::result::Result<Option<Smallest>, String> {
    let policy = &experiment.site.policy;
    let mut guarantees = policy.all_classes().map(|class| class.guarantee);
    if guarantees.all(|guarantee| guarantee.throughput.is_none() && guarantee.response_time.is_none()) {
        return Ok(None);
    }
    let question = Question { experiment, seeds: vec![seed], machine: None };
    smallest(&question, |_| watch()).map(Some)
}
