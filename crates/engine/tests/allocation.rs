//! Steady state does not allocate, and the cost of a decision hardly grows with the number of classes.

#[path = "support/decision.rs"]
mod decision;

use std::hint::black_box;

use decision::Steady;
use weirgate_engine::{Discipline, Precedence, ServerLoad};

#[test]
fn steady_state_does_not_allocate() {
    let drfq = Discipline { name: "drfq".into(), precedence: Precedence::Drfq, ..Discipline::mqos() };
    for (discipline, classes, priced) in [
        (Discipline::quorum(), 10, false),
        (Discipline::quorum(), 1_000, false),
        (Discipline::weirgate(), 10, false),
        (Discipline::weirgate(), 1_000, false),
        (Discipline::weirgate(), 1_000, true),
        (Discipline::web_switch("switch_adm", ServerLoad::derived(&[])), 1_000, false),
        (Discipline::mqos(), 10, true),
        (Discipline::mqos(), 100, true),
        (drfq.clone(), 10, true),
        (drfq, 1_000, true),
    ] {
        let name = discipline.name.clone();
        let make = if priced { Steady::priced } else { Steady::new };
        let mut steady = make(discipline, classes, 20_000);
        // Every class completes a request once, which allocates its histogram.
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
