//! The web switch (Andreolini et al.) over simulated machines: the classes that are served under overload,
//! and the cost of reports that are ten seconds old.

mod support;

use support::{experiment, exponential, fault, ms, open, policy, sound};
use weirgate_experiment::{Experiment, Fate, FaultKind, Run};

const CLASSES: &str = "classes:
  - { name: top_static, match: { path: /a }, content: static, service_time: 5ms, guarantee: { throughput: 100/s, response_time: { p95: 600ms } } }
  - { name: top_dynamic, match: { path: /b }, service_time: 50ms, guarantee: { throughput: 40/s, response_time: { p95: 1s } } }
  - { name: normal_static, match: { path: /c }, content: static, service_time: 5ms }
  - { name: normal_dynamic, service_time: 50ms }";

/// Six two-processor machines, as in the paper, with a load of nearly twice their capacity, largely from
/// normal users.
fn overloaded(discipline: &str, seconds: u64) -> Experiment {
    let mut experiment = experiment(&policy(6, discipline, "", CLASSES), 2, seconds);
    for node in &mut experiment.site.policy.nodes {
        node.capacity = Some(2.0);
    }
    let rates = [(100.0, 5), (40.0, 50), (200.0, 5), (350.0, 50)];
    experiment.traffic =
        rates.iter().enumerate().map(|(c, (rate, cpu))| open(c, *rate, exponential(ms(*cpu)))).collect();
    experiment
}

/// Returns the response times of a class's served requests in seconds, sorted.
fn served(run: &Run, class: u32) -> Vec<f64> {
    let mine = run.records.iter().filter(|r| r.traffic == class && r.fate == Fate::Served);
    let mut times: Vec<f64> = mine.map(|r| (r.ended - r.arrived) as f64 / 1e9).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn p95(times: &[f64]) -> f64 {
    times[times.len() * 95 / 100]
}

#[test]
fn top_users_keep_their_limits_under_every_policy_and_not_without() {
    let plain = sound(&overloaded("none", 60), 1);
    assert!(p95(&served(&plain, 1)) > 1.0);
    for discipline in ["switch_adm", "static_part", "dynamic_part"] {
        let run = sound(&overloaded(discipline, 60), 1);
        let (cheap, expensive) = (p95(&served(&run, 0)), p95(&served(&run, 1)));
        assert!(cheap < 0.6 && expensive < 1.0, "{discipline}: {cheap} {expensive}");
        let shed = |class| run.records.iter().filter(|r| r.traffic == class && r.fate == Fate::Shed).count();
        assert_eq!((shed(0), shed(1)), (0, 0), "{discipline}");
        assert!(shed(3) > 5_000, "{discipline}: {}", shed(3));
    }
}

/// At 50 ms a request, ten seconds are long: normal users are admitted all at once or not at all.
#[test]
fn stale_reports_are_worse_than_live_counts() {
    let live = sound(&overloaded("switch_adm", 200), 1);
    let stale = sound(&overloaded("{ switch_adm: { load: reports } }", 200), 1);
    let (now, then) = (p95(&served(&live, 1)), p95(&served(&stale, 1)));
    assert!(now < 1.0 && then > 2.0 * now, "95 % of top pages within {now} s live, {then} s with reports");
    // A report every second is closer to live counts.
    let fresher = sound(&overloaded("{ switch_adm: { load: reports, every: 1s } }", 200), 1);
    assert!(p95(&served(&fresher, 1)) < p95(&served(&stale, 1)));
}

#[test]
fn partitions_survive_nodes_that_come_and_go_and_lost_reports() {
    for discipline in ["static_part", "{ dynamic_part: { load: reports, every: 2s } }"] {
        let mut experiment = overloaded(discipline, 60);
        experiment.faults = vec![
            fault(FaultKind::Removed, 10, 20, &[0, 1]),
            fault(FaultKind::Crash, 15, 30, &[2]),
            fault(FaultKind::LostReports, 25, 40, &[]),
            fault(FaultKind::Reload, 35, 36, &[]),
        ];
        let run = sound(&experiment, 1);
        assert!(served(&run, 1).len() > 1_000, "{discipline}");
    }
}
