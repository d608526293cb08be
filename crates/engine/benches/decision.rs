//! Cost of a decision with 10, 1,000 and 100,000 classes and up to 100,000 waiting requests. `cargo bench -p
//! weirgate-engine`.

#[path = "../tests/support/decision.rs"]
mod decision;

use criterion::{BenchmarkId, Criterion};
use decision::Steady;
use weirgate_engine::{Discipline, Precedence};

/// Runs the benchmark.
fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let drfq = Discipline { name: "drfq".into(), precedence: Precedence::Drfq, ..Discipline::mqos() };
    for (discipline, priced) in [
        (Discipline::quorum(), false),
        (Discipline::weirgate(), false),
        (Discipline { name: "weirgate with a page table".into(), ..Discipline::weirgate() }, true),
        (drfq, true),
        (Discipline::mqos(), true),
    ] {
        let mut group = criterion.benchmark_group(format!("{}: end, release and arrive", discipline.name));
        for (classes, waiting) in [(10, 100), (10, 100_000), (1_000, 100_000), (100_000, 100_000)] {
            // A decision of `mdrr` looks at every class that waits.
            if discipline.precedence == Precedence::Mdrr && classes > 1_000 {
                continue;
            }
            let make = if priced { Steady::priced } else { Steady::new };
            let mut steady = make(discipline.clone(), classes, waiting);
            // Runs beyond the first round of every class, so that first completions are over.
            for _ in 0..3 * classes.max(1_000) {
                steady.step();
            }
            let id = BenchmarkId::from_parameter(format!("{classes} classes, {waiting} waiting"));
            group.bench_function(id, |bencher| bencher.iter(|| steady.step()));
        }
        group.finish();
    }
    criterion.final_summary();
}
