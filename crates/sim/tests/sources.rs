//! A greedy client next to polite ones in the same class: the polite ones are served.

use std::path::Path;

use weirgate_experiment::{Experiment, Fate, Record};

/// A node of one CPU serves 50 requests of 20 ms a second. Once every three seconds a page asks for 150 objects at
/// once, so one client alone asks for all that the class may have. Other clients send 10 requests a second of the
/// same class.
fn experiment(discipline: &str, more: &str) -> Experiment {
    let text = format!(
        "policy:\n  discipline: {discipline}\n  upstreams: {{ web: {{ nodes: [n:80] }} }}\n  classes:\n    \
         - {{ name: shop, guarantee: {{ throughput: 50/s, response_time: {{ p95: 500ms }} }}{more} }}\n\
         machines: {{ cpus: 1 }}\ntraffic:\n  \
         - {{ class: shop, rate: 0.3333/s, arrivals: even, demand: 20ms, \
         objects: {{ class: shop, count: 150, connections: 150, demand: 20ms }} }}\n  \
         - {{ class: shop, rate: 10/s, demand: 20ms }}\n\
         phases: [{{ name: all, until: 60s }}]\n"
    );
    let loaded = weirgate_experiment::load_experiment("test.yaml", &text, Path::new(""), &[]);
    loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment
}

/// Polite requests that were served and that were not, and the share of served ones that took longer than the limit.
fn polite(experiment: &Experiment, seed: u64) -> (usize, usize, f64) {
    let run = weirgate_sim::run(experiment, seed, |_| {});
    assert_eq!(run.violations, []);
    let polite: Vec<&Record> = run.records.iter().filter(|r| r.traffic == 1).collect();
    let (served, lost): (Vec<&Record>, Vec<&Record>) = polite.iter().partition(|r| r.fate == Fate::Served);
    let late = served.iter().filter(|r| r.ended - r.arrived > 500_000_000).count();
    (served.len(), lost.iter().filter(|r| r.fate != Fate::Cut).count(), late as f64 / served.len() as f64)
}

#[test]
fn the_default_discipline_serves_polite_clients() {
    for seed in 1..=3 {
        let (served, lost, late) = polite(&experiment("weirgate", ""), seed);
        assert!(served > 500 && lost == 0 && late < 1e-9, "seed {seed}: {served} served, {lost} lost, {late} late");
    }
}

/// The queue is full of one client's requests when a request of another arrives.
#[test]
fn a_full_queue_makes_room_for_polite_clients() {
    let (served, lost, late) = polite(&experiment("weirgate", ", queue: { max_waiting: 40 }"), 1);
    assert!(served > 500 && lost == 0 && late < 1e-9, "{served} served, {lost} lost, {late} late");
}

/// Disciplines that bound the requests in flight. Without a bound nothing waits in Weirgate.
#[test]
fn other_disciplines_serve_polite_clients() {
    for discipline in ["quorum", "seda"] {
        let (served, lost, late) = polite(&experiment(discipline, ""), 1);
        assert!(served > 500 && lost == 0 && late < 0.03, "{discipline}: {served} served, {lost} lost, {late} late");
    }
}

/// Twenty readers click about every two seconds, within the guarantee of their class. One more asks for three times all
/// of it, and the pages of others fill the nodes. Returns how many of the readers' requests were served and lost, and
/// the number of the greedy one that were served.
fn readers(seed: u64) -> [usize; 3] {
    let text = "policy:\n  upstreams: { web: { nodes: [a:80, b:80] } }\n  classes:\n    \
         - { name: people, guarantee: { throughput: 20/s, response_time: { p95: 300ms } } }\n    \
         - { name: crawlers, queue: { max_wait: 2s } }\nmachines: { cpus: 1 }\ntraffic:\n  \
         - { class: people, rate: 10/s, demand: 40ms, sources: 20 }\n  \
         - { class: people, rate: 60/s, demand: 40ms, sources: 1 }\n  \
         - { class: crawlers, rate: 40/s, demand: { exponential: 100ms } }\n\
         phases: [{ name: all, until: 60s }]\n";
    let loaded = weirgate_experiment::load_experiment("test.yaml", text, Path::new(""), &[]);
    let experiment = loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment;
    let run = weirgate_sim::run(&experiment, seed, |_| {});
    assert_eq!(run.violations, []);
    let count = |stream, fate: fn(Fate) -> bool| {
        run.records.iter().filter(|record| record.traffic == stream && fate(record.fate)).count()
    };
    let served: fn(Fate) -> bool = |fate| fate == Fate::Served;
    [count(0, served), count(0, |fate| !matches!(fate, Fate::Served | Fate::Cut)), count(1, served)]
}

#[test]
fn one_source_cannot_use_up_the_guarantee_of_its_class() {
    for seed in 1..=5 {
        let [served, lost, greedy] = readers(seed);
        assert!(served > 500 && 20 * lost < served, "seed {seed}: {served} served, {lost} lost");
        assert!(greedy > 1_500, "seed {seed}: {greedy}, the rest is for the greedy one");
    }
}
