//! Experiments of this repository with changes, and ones built by hand, small enough to compute on paper.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::time::Duration;

use weirgate_experiment::{
    Arrivals, Distribution, Experiment, Fault, FaultKind, Machine, Phase, Profile, Run, Source, Traffic, TrafficClass,
};

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn exponential(mean: Duration) -> Distribution {
    Distribution::Exponential { mean }
}

/// An experiment of this repository with some changes.
pub fn example(name: &str, changes: &[&str]) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/{name}.yaml"));
    let changes: Vec<_> = changes.iter().map(|text| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))).collect();
    weirgate_experiment::load_experiment_file(&path, &changes).unwrap_or_else(|errors| panic!("{errors}")).experiment
}

/// Plays an experiment, and checks that the run is without violations.
pub fn sound(experiment: &Experiment, seed: u64) -> Run {
    let run = weirgate_sim::run(experiment, seed, |_| ());
    assert_eq!(run.violations, [], "seed {seed}");
    run
}

/// A policy of one pool `web` with nodes at 127.0.0.1, ports 9000, 9001, …, and the rest of the file in
/// `more` (at least classes).
pub fn policy(nodes: usize, discipline: &str, upstream: &str, more: &str) -> String {
    let names: Vec<String> = (0..nodes).map(|n| format!("127.0.0.1:{}", 9000 + n)).collect();
    format!(
        "listen: 127.0.0.1:8080\ndiscipline: {discipline}\nupstreams:\n  web: {{ nodes: [{}]{upstream} }}\n{more}\n",
        names.join(", ")
    )
}

/// An experiment with this policy, one machine of `cpus` CPUs per node, and no traffic yet.
pub fn experiment(policy: &str, cpus: u32, seconds: u64) -> Experiment {
    let site = weirgate_config::load("test", policy).unwrap_or_else(|e| panic!("{e}")).site;
    let machine = |name: &String| Machine::nominal(name, cpus);
    let names: Vec<String> = site.policy.nodes.iter().map(|node| node.machine.clone()).collect();
    let phases = vec![Phase { name: "all".into(), until: s(seconds), judged: true, x: None }];
    let (machines, machine_of) = (names.iter().map(machine).collect(), (0..names.len()).collect());
    Experiment { settle: s(5), ..Experiment::plain(site, machines, machine_of, phases) }
}

/// Traffic of a class: Poisson arrivals at `rate`, with this CPU demand.
pub fn open(class: usize, rate: f64, cpu: Distribution) -> Traffic {
    let source = Source::Open { arrivals: Arrivals::Poisson, rate: Profile::constant(rate) };
    let retry_after = Distribution::Fixed(ms(100));
    Traffic { retry_after, ..Traffic::plain(TrafficClass::Class(class), source, cpu) }
}

/// Users of a closed loop.
pub fn users(class: usize, users: Profile, think: Distribution, cpu: Distribution) -> Traffic {
    Traffic { source: Source::Users { users, think }, ..open(class, 0.0, cpu) }
}

/// A fault of these machines.
pub fn fault(kind: FaultKind, from: u64, until: u64, machines: &[usize]) -> Fault {
    Fault::plain(kind, s(from), Some(s(until)), machines)
}
