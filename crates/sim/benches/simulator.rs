//! Measures the cost of a simulated request: `quorum-fig9` under three disciplines. Run it with
//! `cargo bench -p weirgate-sim`. The target is a million requests a second on one core.

use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput};
use weirgate_experiment::{load_experiment_file, under_discipline};
use weirgate_sim::run;

/// Runs the benchmark.
fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("quorum-fig9");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/quorum-fig9.yaml");
    for discipline in ["none", "quorum", "weirgate"] {
        let loaded = load_experiment_file(&file, &[under_discipline(discipline)]);
        let experiment = loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment;
        let requests = run(&experiment, 1, |_| ()).records.len();
        group.throughput(Throughput::Elements(requests as u64));
        group.bench_function(BenchmarkId::from_parameter(discipline), |bencher| {
            bencher.iter(|| run(&experiment, 1, |_| ()).records.len());
        });
    }
    group.finish();
    criterion.final_summary();
}
