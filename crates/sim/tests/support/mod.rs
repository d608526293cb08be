//! Experiments built by hand, small enough to compute on paper.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use weirgate_experiment::{
    Arrivals, DemandFrom, Distribution, Experiment, Fault, FaultKind, Machine, Phase, Profile, Source, Traffic,
    TrafficClass,
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
    Experiment {
        name: "test".into(),
        title: "a test".into(),
        machine_of: (0..names.len()).collect(),
        machines: names.iter().map(machine).collect(),
        site,
        network_delay: Duration::ZERO,
        traffic: Vec::new(),
        phases: vec![Phase { name: "all".into(), until: s(seconds), judged: true, x: None }],
        axis: None,
        settle: s(5),
        faults: Vec::new(),
        reloads: Vec::new(),
        grid: Vec::new(),
        published: Vec::new(),
        reserves: None,
    }
}

/// Traffic of a class: Poisson arrivals at `rate`, with this CPU demand.
pub fn open(class: usize, rate: f64, cpu: Distribution) -> Traffic {
    Traffic {
        class: TrafficClass::Class(class),
        name: None,
        source: Source::Open { arrivals: Arrivals::Poisson, rate: Profile::constant(rate) },
        demand: demand(cpu),
        traced: Vec::new(),
        senders: Vec::new(),
        sources: None,
        session: None,
        documents: None,
        patience: None,
        retries: 0,
        retry_after: Distribution::Fixed(ms(100)),
        request: weirgate_experiment::RequestShape::default(),
    }
}

/// Users of a closed loop.
pub fn users(class: usize, users: Profile, think: Distribution, cpu: Distribution) -> Traffic {
    Traffic { source: Source::Users { users, think }, ..open(class, 0.0, cpu) }
}

/// The same demand all the time.
pub fn demand(cpu: Distribution) -> Vec<DemandFrom> {
    let io = Distribution::Fixed(Duration::ZERO);
    let [disk, link, stream] = [io; 3];
    vec![DemandFrom { at: Duration::ZERO, over: Duration::ZERO, cpu, io, disk, link, stream }]
}

/// A fault of these machines.
pub fn fault(kind: FaultKind, from: u64, until: u64, machines: &[usize]) -> Fault {
    Fault { at: s(from), until: Some(s(until)), kind, machines: machines.to_vec(), classes: Vec::new() }
}
