//! No allocation in steady state, and a decision's cost that hardly grows with the number of classes.

#[path = "support/decision.rs"]
mod decision;

use std::hint::black_box;

use decision::Steady;
use weirgate_engine::{Discipline, ServerLoad};

#[test]
fn steady_state_does_not_allocate() {
    for (discipline, classes) in [
        (Discipline::quorum(), 10),
        (Discipline::quorum(), 1_000),
        (Discipline::weirgate(), 10),
        (Discipline::weirgate(), 1_000),
        (Discipline::web_switch("switch_adm", ServerLoad::derived(&[])), 1_000),
    ] {
        let name = discipline.name.clone();
        let mut steady = Steady::new(discipline, classes, 20_000);
        // Every class completes something once: that makes its histogram.
        for _ in 0..200_000 {
            steady.step();
        }
        let info = allocation_counter::measure(|| {
            for _ in 0..50_000 {
                black_box(&mut steady).step();
            }
        });
        assert_eq!(info.count_total, 0, "{name}, {classes} classes: {info:?}");
    }
}
