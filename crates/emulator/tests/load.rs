//! Open-loop clients against emulated nodes, over real sockets.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::HashSet;
use std::time::Duration;

use weirgate_emulator::client::{ClassPlan, Ended, Guarantee, Load, Phase, Plan, Report, Statistic, Tally};
use weirgate_emulator::{Cluster, Distribution, Health, NodeSpec};

const MS: Duration = Duration::from_millis(1);

fn cluster(spec: NodeSpec) -> Cluster {
    Cluster::start(vec![spec], 1).unwrap()
}

/// One class, one phase, no time to settle.
fn plan(cluster: &Cluster, length: Duration, load: Load) -> Plan {
    let class = ClassPlan::new("a", cluster.addresses()[0], "a.test");
    let mut plan = Plan::new(vec![class], vec![Phase::new("steady", length, vec![load])]);
    plan.settle = Duration::ZERO;
    plan
}

fn run(plan: Plan) -> Report {
    plan.start().unwrap().join().unwrap()
}

/// Checks that every request is accounted for once.
fn check_sum(tally: &Tally) {
    assert_eq!(tally.arrivals, tally.served + tally.shed + tally.failed.total() + tally.cut, "{tally:?}");
    assert_eq!(tally.served, tally.response.len());
}

#[test]
fn nothing_is_lost_or_doubled() {
    let cluster = cluster(NodeSpec { log: 10_000, ..NodeSpec::new("a", 4) });
    let report = run(plan(&cluster, 1000 * MS, Load::poisson(1000.0, Distribution::Fixed(MS), "/?demand={us}us")));
    let tally = report.classes[0].total();
    check_sum(&tally);
    assert_eq!(report.ended, Ended::Schedule);
    assert_eq!(tally.served, tally.arrivals, "{tally:?}");
    assert_eq!(tally.statuses.iter().collect::<Vec<_>>(), [(&200, &tally.served)]);
    assert_eq!(tally.bytes, 1024 * tally.served);
    assert!(tally.response_time(Statistic::Percentile(1.0)).unwrap() >= MS);
    let stats = &cluster.stats().unwrap()[0];
    let ids: HashSet<_> = stats.ids.answered.iter().collect();
    assert_eq!((ids.len() as u64, stats.requests), (tally.served, tally.served));
    assert_eq!(report.points.iter().map(|p| p.classes[0].served).sum::<u64>(), tally.served);
    assert_eq!(report.points.iter().map(|p| p.classes[0].arrivals).sum::<u64>(), tally.arrivals);
}

#[test]
fn a_slow_server_does_not_slow_the_load() {
    // Twice the capacity of the node: an open loop keeps its rate, and response times grow throughout.
    let cluster = cluster(NodeSpec::new("a", 1));
    let load = Load::even(200.0, Distribution::Fixed(10 * MS), "/?demand={us}us");
    let mut plan = plan(&cluster, 1000 * MS, load);
    plan.classes[0].guarantee = Guarantee {
        throughput: Some(150.0),
        response_time: Some((Statistic::Percentile(95.0), 100 * MS)),
        cost: Some(10 * MS),
    };
    plan.classes[0].timeout = 600 * MS;
    let report = run(plan);
    let tally = report.classes[0].total();
    check_sum(&tally);
    assert_eq!(tally.arrivals, 200);
    assert!(tally.failed.timeout > 0, "{tally:?}");
    let verdict = report.verdicts()[0];
    assert!(!verdict.floor.unwrap().held && !verdict.ceiling.unwrap().held && !report.all_held(), "{verdict:?}");
}

#[test]
fn a_pool_that_is_too_small_shows_in_counters_and_response_times() {
    let cluster = cluster(NodeSpec { io: Distribution::Fixed(20 * MS), ..NodeSpec::new("a", 1) });
    let mut plan = plan(&cluster, 500 * MS, Load::even(200.0, Distribution::ZERO, "/"));
    plan.classes[0].connections = 2;
    let report = run(plan);
    let tally = report.classes[0].total();
    check_sum(&tally);
    assert_eq!((tally.arrivals, tally.served), (100, 100));
    assert!(tally.delayed > 50, "{}", tally.delayed);
    assert_eq!(report.classes[0].connections, 2);
    // 100 requests through two connections at 20 ms each take a second. The last request waited for half of it.
    assert!(tally.response_time(Statistic::Percentile(100.0)).unwrap() > 300 * MS);
}

#[test]
fn failures_are_told_apart() {
    let outcome = |health, timeout| {
        let cluster = cluster(NodeSpec::new("a", 1));
        cluster.set_health(0, health).unwrap();
        let mut plan = plan(&cluster, 100 * MS, Load::even(100.0, Distribution::ZERO, "/"));
        plan.classes[0].timeout = timeout;
        let tally = run(plan).classes[0].total();
        check_sum(&tally);
        (tally.arrivals, tally.failed)
    };
    let patient = Duration::from_secs(20);
    let (n, failed) = outcome(Health { crashed: true, ..Health::WELL }, patient);
    assert_eq!((n, failed.connect), (10, 10), "{failed:?}");
    let (n, failed) = outcome(Health { stalled: true, ..Health::WELL }, 50 * MS);
    assert_eq!((n, failed.timeout), (10, 10), "{failed:?}");
    let (n, failed) = outcome(Health { fails: 1.0, ..Health::WELL }, patient);
    assert_eq!((n, failed.status), (10, 10), "{failed:?}");
    let (n, failed) = outcome(Health { garbles: true, ..Health::WELL }, patient);
    assert_eq!((n, failed.garbled), (10, 10), "{failed:?}");
}

#[test]
fn phases_and_classes_are_kept_apart() {
    let cluster = cluster(NodeSpec::new("a", 8));
    let class = |name| ClassPlan::new(name, cluster.addresses()[0], "x");
    let load = |rate| Load::even(rate, Distribution::Fixed(MS), "/?demand={us}us");
    let phase = |name, a, b| Phase::new(name, 400 * MS, vec![load(a), load(b)]);
    let mut plan = Plan::new(vec![class("a"), class("b")], vec![phase("calm", 50.0, 0.0), phase("surge", 100.0, 50.0)]);
    plan.settle = 100 * MS;
    plan.tick = 100 * MS;
    let report = run(plan);
    let arrivals = |c: usize, p: usize| {
        let of = &report.classes[c].phases[p];
        (of.settling.arrivals, of.settled.arrivals)
    };
    assert_eq!((arrivals(0, 0), arrivals(0, 1)), ((5, 15), (10, 30)));
    assert_eq!((arrivals(1, 0), arrivals(1, 1)), ((0, 0), (5, 15)));
    assert!(report.points.windows(2).all(|w| w[0].phase <= w[1].phase && w[0].at < w[1].at));
    assert!(report.verdicts().is_empty(), "nothing was promised");
}

#[test]
fn a_run_can_be_ended_early_by_hand_or_by_count() {
    let cluster = cluster(NodeSpec::new("a", 1));
    let mut long = plan(&cluster, Duration::from_secs(600), Load::even(100.0, Distribution::ZERO, "/?demand=10s"));
    long.tick = 20 * MS;
    let running = long.clone().start().unwrap();
    while running.points(0).iter().map(|p| p.classes[0].arrivals).sum::<u64>() < 5 {
        std::thread::yield_now();
    }
    running.stop();
    let report = running.join().unwrap();
    let tally = report.classes[0].total();
    check_sum(&tally);
    assert_eq!((report.ended, tally.cut), (Ended::Asked, tally.arrivals));
    assert!(tally.arrivals >= 5);

    long.most_requests = 3;
    long.classes[0].timeout = 50 * MS;
    let report = run(long);
    assert_eq!((report.ended, report.classes[0].total().arrivals), (Ended::Count, 3));
}
