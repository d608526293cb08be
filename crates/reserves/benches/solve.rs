//! Time of one run of the optimiser, from the paper's sizes (Table 2: 160 ms at 4 nodes x 5 classes, 510 ms
//! at 32 x 8, on a Pentium II) to a thousand nodes. For comparison, the paper's formulation runs in a general
//! solver where that takes less than minutes. `cargo bench -p weirgate-reserves`.

#[path = "../tests/literal/mod.rs"]
mod literal;

use criterion::{BenchmarkId, Criterion};
use weirgate_reserves::{Problem, solve};

/// A cluster with every third class below its promise and some classes idle. A fixed sequence makes the loads
/// uneven.
fn cluster(nodes: usize, classes: usize) -> Problem {
    // Park and Miller's multiplicative sequence is enough: it only has to be uneven and always the same.
    let mut state = 20_000_617_u64;
    let mut draw = || {
        state = state * 48_271 % 2_147_483_647;
        state as f64 / 2_147_483_647.0
    };
    let mut usage = Vec::new();
    let mut sink = Vec::new();
    for _ in 0..nodes {
        let row: Vec<f64> = (0..classes).map(|_| if draw() < 0.2 { 0.0 } else { draw() }).collect();
        let sum: f64 = row.iter().sum::<f64>().max(1e-9);
        usage.push(row.iter().map(|used| used / sum * 100.0).collect());
        sink.push(row.iter().map(|used| *used > 0.0 && draw() < 0.6).collect());
    }
    Problem { desired: vec![100.0 / classes as f64; classes], usage, sink }
}

/// Runs the benchmark.
fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("reserves");
    group.sample_size(20);
    for (nodes, classes) in [(4, 5), (32, 8), (100, 20), (1000, 50)] {
        let problem = cluster(nodes, classes);
        let size = format!("{nodes}x{classes}");
        group.bench_function(BenchmarkId::new("solve", &size), |bencher| bencher.iter(|| solve(&problem)));
        if nodes <= 100 {
            let id = BenchmarkId::new("general solver", &size);
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    let found = literal::solve(&problem);
                    (found.deviation, found.closest)
                })
            });
        }
    }
    group.finish();
    criterion.final_summary();
}
