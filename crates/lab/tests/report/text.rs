//! The text form of a run.

use weirgate_lab::report::{self, RunFile};

use crate::golden;
use crate::hand_made::run;

#[test]
fn a_run_in_a_terminal() {
    golden("run.txt", &report::text(&run()));
}

#[test]
fn the_last_line_says_what_it_comes_to() {
    let last = |run: &RunFile| report::text(run).lines().last().map(str::to_owned).expect("a line");
    let mut run = run();
    run.trials.truncate(2);
    assert_eq!(last(&run), "Weirgate held all 12 guarantees.");
    run.trials[0].verdict.phases[1].classes[0].part.ceiling.as_mut().expect("it has one").ok = false;
    assert_eq!(last(&run), "Weirgate missed 1 of 12 guarantees.");
    run.trials.clear();
    assert_eq!(last(&run), "Nothing was run.");
}
