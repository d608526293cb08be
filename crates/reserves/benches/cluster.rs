//! One second of a whole cluster in virtual time. Every node reports four windows of all its classes, and the
//! coordinator runs as often as it may. The CPU time of this benchmark is the CPU time that a coordinator needs,
//! apart from reading lines from sockets. `cargo bench -p weirgate-reserves --bench cluster`.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use weirgate_reserves::{Coordinator, Settings, Tracker, WINDOW, solve};

struct Cluster {
    now: Duration,
    coordinator: Coordinator,
    trackers: Vec<Tracker>,
    counters: Vec<Vec<u64>>,
    shares: Vec<Vec<f64>>,
    state: u64,
}

impl Cluster {
    fn new(nodes: usize, classes: usize) -> Cluster {
        let desired = vec![100.0 / classes as f64; classes];
        let settings = Settings {
            desired: desired.clone(),
            placed: vec![vec![true; classes]; nodes],
            every: Some(Duration::from_secs(5)),
            on_demand: true,
        };
        let mut coordinator = Coordinator::new(Duration::ZERO, settings);
        (0..nodes).for_each(|node| coordinator.connected(node));
        let counters = vec![vec![0; classes]; nodes];
        let tracker = |counters: &Vec<u64>| Tracker::new(Duration::ZERO, 1.0, &desired, counters);
        let trackers = counters.iter().map(tracker).collect();
        let shares = vec![desired.clone(); nodes];
        Cluster { now: Duration::ZERO, coordinator, trackers, counters, shares, state: 20_000_617 }
    }

    /// Returns uneven but always the same numbers (Park and Miller's sequence).
    fn draw(&mut self) -> f64 {
        self.state = self.state * 48_271 % 2_147_483_647;
        self.state as f64 / 2_147_483_647.0
    }

    /// Plays one window on all nodes. One class in three is idle, so that some node always asks.
    fn window(&mut self) {
        self.now += WINDOW;
        for node in 0..self.trackers.len() {
            for class in 0..self.counters[node].len() {
                let wants = if self.draw() < 0.33 { 0.0 } else { 2.0 * self.draw() };
                let used = self.shares[node][class] / 100.0 * wants.min(1.0) * WINDOW.as_nanos() as f64;
                self.counters[node][class] += used as u64;
            }
            if let Some(measured) = self.trackers[node].measure(self.now, &self.counters[node]) {
                self.coordinator.reported(self.now, node, measured);
            }
        }
        if let Some(problem) = self.coordinator.poll_run(self.now) {
            self.coordinator.solved(self.now, solve(&problem), Duration::ZERO);
        }
        while let Some(given) = self.coordinator.poll_shares() {
            self.trackers[given.node].apply(self.now, given.run, &given.shares, &self.counters[given.node]);
            self.shares[given.node] = given.shares;
        }
    }
}

/// Runs the benchmark.
fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("a second of a cluster");
    group.sample_size(10);
    for (nodes, classes) in [(32, 8), (1000, 50)] {
        let mut cluster = Cluster::new(nodes, classes);
        (0..8).for_each(|_| cluster.window());
        group.bench_function(BenchmarkId::from_parameter(format!("{nodes}x{classes}")), |bencher| {
            bencher.iter(|| (0..4).for_each(|_| cluster.window()));
        });
        assert!(cluster.coordinator.ledger().runs.done() > 0, "nobody ran");
    }
    group.finish();
    criterion.final_summary();
}
