//! An API whose database becomes slow: nearly all workers of its servers wait for it, and all of their requests are
//! owed.

mod support;

use support::{example, sound};
use weirgate_verdict::judge;

#[test]
fn workers_that_wait_for_a_database_do_not_close_the_window() {
    let experiment = example("api-gunicorn", &[]);
    for seed in 1..=8 {
        let verdict = judge(&experiment, &sound(&experiment, seed));
        let missed: Vec<_> = verdict.misses().collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?}");
    }
}
