//! What a decision costs at 10, 1,000 and 100,000 classes with up to 100,000 requests waiting.
//! `cargo bench -p weirgate-engine`.

#[path = "../tests/support/decision.rs"]
mod decision;

use criterion::{BenchmarkId, Criterion};
use decision::Steady;
use weirgate_engine::Discipline;

/// Runs the benchmark.
fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for discipline in [Discipline::quorum(), Discipline::weirgate()] {
        let mut group = criterion.benchmark_group(format!("{}: end, release and arrive", discipline.name));
        for (classes, waiting) in [(10, 100), (10, 100_000), (1_000, 100_000), (100_000, 100_000)] {
            let mut steady = Steady::new(discipline.clone(), classes, waiting);
            // Past the first round of every class, so that first completions are behind it.
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
