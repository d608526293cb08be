//! The load over real sockets, against emulated nodes and in comparison with wrk and oha.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod beside;
mod clients;
mod honesty;
mod pages;
mod precision;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use weirgate_emulator::{Cluster, NodeSpec, clock};
use weirgate_experiment::{Experiment, Record};
use weirgate_lab::load::{self, Plan, Running, Sent, Template};
use weirgate_spanned_yaml::overrides::Override;

const MS: u64 = 1_000_000;

/// Returns an experiment of `millis` ms with two classes, `A` and `B`, and the given traffic.
fn experiment(traffic: &str, millis: u64) -> Experiment {
    experiment_of(traffic, millis, &[])
}

/// Returns the same experiment with changes.
fn experiment_of(traffic: &str, millis: u64, changes: &[Override]) -> Experiment {
    let text = format!(
        "policy:\n  upstreams: {{ web: {{ nodes: [n1:80] }} }}\n  classes: [{{ name: A }}, {{ name: B }}]\n\
         traffic:\n{traffic}\nphases:\n  - {{ name: all, until: {millis}ms }}\nsettle: 0ms\n"
    );
    let loaded = weirgate_experiment::load_experiment("test.yaml", &text, Path::new(""), changes);
    loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment
}

/// Starts one node of this kind that logs every id.
fn node(spec: NodeSpec) -> Cluster {
    Cluster::start(vec![NodeSpec { log: 1_000_000, ..spec }], 1).unwrap()
}

/// Starts the load. Time 0 is 20 ms ahead, more than a thread takes to start.
fn start(experiment: &Experiment, target: SocketAddr, change: impl FnOnce(&mut Plan)) -> Running {
    let templates: Vec<Template> = (0..experiment.traffic.len()).map(|i| Template::emulated(experiment, i)).collect();
    let mut plan = Plan {
        experiment,
        seed: 7,
        target,
        templates: &templates,
        start: clock::now() + 20 * MS,
        cpu: None,
        connections: 1000,
        max_requests: 1_000_000,
    };
    change(&mut plan);
    load::start(&plan).unwrap()
}

fn play(experiment: &Experiment, cluster: &Cluster) -> Sent {
    start(experiment, cluster.addresses()[0], |_| {}).join().unwrap()
}

/// Waits until a condition holds. A minute is more than any test takes.
fn until(mut is_so: impl FnMut() -> bool) {
    let begun = clock::now();
    while !is_so() {
        assert!(clock::now() - begun < 60 * clock::SECOND, "it never is");
        clock::pause(Duration::from_millis(1));
    }
}

/// Checks invariants of every run: records are in order, and none ends before it arrived.
fn check(sent: &Sent) {
    assert!(sent.records.is_sorted_by_key(|record| record.arrived));
    let sound = |r: &Record| r.ended >= r.arrived && (r.released == 0 || (r.arrived..=r.ended).contains(&r.released));
    assert!(sent.records.iter().all(sound));
    assert_eq!(sent.records.len(), sent.ids.len());
    assert_eq!(sent.lateness.len(), sent.records.len() as u64);
}
