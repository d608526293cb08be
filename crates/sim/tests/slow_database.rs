//! An API whose database becomes slow: nearly all workers of its servers wait for it, and all of their requests are
//! owed.

use std::path::Path;

use weirgate_experiment::load_experiment_file;
use weirgate_verdict::judge;

#[test]
fn workers_that_wait_for_a_database_do_not_close_the_window() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/api-gunicorn.yaml");
    let experiment = load_experiment_file(&file, &[]).unwrap_or_else(|errors| panic!("{errors}")).experiment;
    for seed in 1..=8 {
        let run = weirgate_sim::run(&experiment, seed, |_| ());
        assert!(run.violations.is_empty(), "seed {seed}: {:?}", run.violations);
        let verdict = judge(&experiment, &run);
        let missed: Vec<_> = verdict.misses().collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?}");
    }
}
