//! No allocation in steady state, and a decision's cost that hardly grows with the number of classes.

#[path = "support/decision.rs"]
mod decision;

use std::hint::black_box;

use decision::Steady;

#[test]
fn steady_state_does_not_allocate() {
    for classes in [10, 1_000] {
        let mut steady = Steady::new(classes, 20_000);
        // Every class completes something once: that makes its histogram.
        for _ in 0..200_000 {
            steady.step();
        }
        let info = allocation_counter::measure(|| {
            for _ in 0..50_000 {
                black_box(&mut steady).step();
            }
        });
        assert_eq!(info.count_total, 0, "{classes} classes: {info:?}");
    }
}
