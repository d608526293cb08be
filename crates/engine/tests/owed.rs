//! Owed requests are held back only after contention has been seen, and surplus is bounded by time. Each rule
//! is tested alone, on small clusters in virtual time.

mod support;

use support::*;
use weirgate_engine::*;

/// More CPUs than classes can fill. Requests wait for something else, each for as long as its demand.
const NO_CPU: f64 = 1e9;

fn surplus(engine: &Engine) -> SurplusSnapshot {
    engine.snapshot(Time::ZERO).groups[0].surplus.expect("the discipline tells surplus apart")
}

fn arrive(engine: &mut Engine, class: u32, token: u64) -> Decision {
    engine.arrive(Time::ZERO, arrival(class, token, token))
}

/// Nothing is known at first, whatever was declared. Owed requests are released up to the reach at once.
#[test]
fn what_is_owed_enters_beyond_the_window_until_contention_is_seen() {
    let classes = vec![class("A", Some(1000.0), p95(400), Some(1)), class("B", None, None, None)];
    let mut engine = Engine::new(Time::ZERO, policy(Discipline::weirgate(), 1, classes), 1).expect("a valid policy");
    let window = engine.snapshot(Time::ZERO).window.expect("a window");
    let reach = surplus(&engine).reach.expect("nothing was seen yet");
    assert!(window < 10 && reach == 8, "{window} {reach}");
    let released = |engine: &mut Engine, class: u32| {
        (0..100).take_while(|token| matches!(arrive(engine, class, *token), Decision::Release { .. })).count() as u32
    };
    assert_eq!(released(&mut engine, 0), reach);
    assert_eq!(released(&mut engine, 1), 0, "best effort has nothing beyond the window");
    assert!(engine.poll(Time::ZERO).is_none());
    assert_eq!(surplus(&engine).outstanding, 0);
}

/// Four CPUs get owed requests for six. Contention is seen, and the class then has at most its allowance in
/// flight: the requests answered within a fifth of the limit.
#[test]
fn contention_that_is_seen_closes_the_reach() {
    let classes = vec![class("A", Some(600.0), p95(400), Some(10))];
    let mut bench = Bench::new(policy(Discipline::weirgate(), 2, classes), 2.0, vec![load(600.0, 0.010)], 1);
    bench.run(20.0);
    assert_eq!(surplus(&bench.engine).reach, None);
    let group = bench.engine.snapshot(Time::ZERO).groups.remove(0);
    let allowance = bench.engine.classes(Time::ZERO, ClassId(0), 1)[0].allowance.expect("its time alone is known");
    // 400 a second are answered, and a fifth of the limit is 80 ms.
    assert!((24.0..40.0).contains(&allowance), "{allowance}");
    assert!(f64::from(group.outstanding) <= allowance.max(group.window.expect("a window").into()) + 1.0, "{group:?}");
    assert!(group.window.is_some_and(|window| window < 40), "{group:?}");
}

/// Surplus of 10 ms uses all capacity that a class within its guarantee leaves, and that class is not
/// affected.
#[test]
fn short_surplus_uses_all_that_is_left() {
    // Four CPUs, and A uses one of them.
    let classes = vec![class("A", Some(120.0), p95(200), Some(10)), class("B", None, None, None)];
    let loads = vec![load(100.0, 0.010), load(600.0, 0.010)];
    let mut bench = Bench::new(policy(Discipline::weirgate(), 2, classes), 2.0, loads, 3);
    bench.measure(60.0, 180.0);
    let work: f64 = bench.tallies.iter().map(|tally| tally.served.len() as f64 * 0.010 / 120.0).sum();
    assert!(work > 0.93 * 4.0, "{work} of four CPUs work");
    let a = &bench.tallies[0];
    assert!(a.shed * 1000 <= a.offered, "{} of {} shed", a.shed, a.offered);
    assert!(percentile(&a.served, 0.95) < 0.100, "{}", percentile(&a.served, 0.95));
}

/// Surplus of 5 s that causes no contention takes no slot from owed requests.
#[test]
fn long_surplus_keeps_nothing_owed_out() {
    let classes = vec![class("A", Some(120.0), p95(200), Some(40)), class("B", None, None, None)];
    let loads = vec![load(100.0, 0.040), load(20.0, 5.0)];
    let mut bench = Bench::new(policy(Discipline::weirgate(), 2, classes), NO_CPU, loads, 3);
    bench.run(180.0);
    let a = &bench.tallies[0];
    assert!(a.shed * 1000 <= a.offered, "{} of {} shed", a.shed, a.offered);
    assert!(percentile(&a.served, 0.95) < 0.200, "{}", percentile(&a.served, 0.95));
}

/// If classes are owed more than the capacity, best effort still gets its twentieth, and no more.
#[test]
fn best_effort_gets_its_twentieth() {
    let classes = vec![class("A", Some(600.0), p95(200), Some(10)), class("B", None, None, None)];
    let loads = vec![load(600.0, 0.010), load(5.0, 1.0)];
    let mut bench = Bench::new(policy(Discipline::weirgate(), 2, classes), 2.0, loads, 4);
    bench.measure(60.0, 360.0);
    let window = f64::from(bench.engine.snapshot(Time::ZERO).window.expect("a window"));
    let slots = bench.mean_slots(1, 300.0);
    assert!((0.02 * window..0.12 * window).contains(&slots), "{slots} of {window} slots");
    assert!(!bench.tallies[1].served.is_empty());
}

/// Sends requests of one class to four nodes in turn, each of which fails a share of them. Returns the nodes
/// that are ejected after `count` requests.
fn failing(shares: [f64; 4], count: u64) -> Vec<u32> {
    let mut class = class("A", Some(1000.0), None, Some(10));
    class.retry = RetryBudget { max_retries: 0, ..RetryBudget::default() };
    let mut policy = policy(Discipline::weirgate(), 4, vec![class]);
    // Five failures in a row would happen by chance.
    policy.pools[0].ejection = Ejection { base: ms(3_600_000), consecutive_failures: 1000, ..Ejection::default() };
    let mut engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
    let mut random = Random(5);
    for token in 0..count {
        let now = Time::from_millis(10 * token);
        let Decision::Release { ticket, node } = engine.arrive(now, arrival(0, token, token)) else {
            panic!("it is idle")
        };
        let outcome = match random.unit() < shares[node.0 as usize] {
            true => Outcome::Failed { retryable: false },
            false => Outcome::LastByte { status: 200 },
        };
        engine.observe(now + ms(5), ticket, outcome);
        while engine.poll(now + ms(5)).is_some() {}
    }
    let nodes = engine.snapshot(Time::ZERO).nodes;
    let ejected = nodes.iter().filter(|node| matches!(node.state, NodeState::Ejected { .. }));
    ejected.map(|node| node.node.0).collect()
}

#[test]
fn a_node_that_fails_a_third_is_ejected_and_failures_that_all_share_eject_none() {
    assert_eq!(failing([0.0, 0.3, 0.0, 0.0], 1000), [1]);
    assert_eq!(failing([0.3, 0.3, 0.0, 0.0], 1000), [0, 1]);
    assert_eq!(failing([0.2, 0.2, 0.2, 0.0], 10_000), [0, 1, 2], "the healthy node can serve");
    assert_eq!(failing([0.02, 0.03, 0.01, 0.02], 10_000), [], "a few failures are ordinary");
    assert_eq!(failing([0.3; 4], 10_000), [], "their requests are to blame");
    assert_eq!(failing([0.5; 4], 10_000), [], "their requests are to blame");
}

/// A few failures that all nodes share, as of a page that is broken, do not hide a node that fails by itself.
#[test]
fn a_failing_node_is_ejected_also_where_some_requests_fail_everywhere() {
    for background in [0.02, 0.05, 0.1] {
        let shares = [background, 0.6, background, background];
        assert_eq!(failing(shares, 400), [1], "{background}");
    }
    assert_eq!(failing([0.4, 0.4, 0.4, 0.05], 1000), [0, 1, 2], "one good node can serve");
}

/// All nodes pause for longer than a limit. The owed requests that have waited too long are answered late, after those
/// that can be in time, because a p95 allows it.
#[test]
fn what_a_pause_makes_late_is_answered_if_the_statistic_allows_it() {
    for limit in [p95(400), Some((Statistic::Average, 400))] {
        let classes = vec![class("A", Some(150.0), limit, Some(10))];
        let mut bench = Bench::new(policy(Discipline::weirgate(), 2, classes), 2.0, vec![load(140.0, 0.010)], 5);
        bench.run(20.0);
        bench.stall(true);
        bench.run(20.6);
        bench.stall(false);
        bench.run(30.0);
        let a = &bench.tallies[0];
        assert_eq!(a.shed, 0, "{limit:?}");
        let late = a.served.iter().filter(|seconds| **seconds > 0.4).count();
        assert!((10..45).contains(&late), "{limit:?}: {late} of the 84 that arrived in the pause");
        assert!(a.served.iter().all(|seconds| *seconds < 1.0), "{limit:?}");
    }
}

/// Without an account earned by answers in time, late requests are refused: after a cold start, and in many pauses
/// after one another.
#[test]
fn no_more_is_late_than_the_statistic_allows() {
    let classes = vec![class("A", Some(150.0), p95(400), Some(10))];
    let mut bench = Bench::new(policy(Discipline::weirgate(), 2, classes), 2.0, vec![load(140.0, 0.010)], 5);
    let pause = |bench: &mut Bench, at: f64| {
        bench.run(at);
        bench.stall(true);
        bench.run(at + 0.7);
        bench.stall(false);
        bench.run(at + 1.5);
        bench.tallies[0].shed
    };
    assert!(pause(&mut bench, 0.3) > 20, "nothing has been earned");
    let first = bench.tallies[0].shed;
    assert_eq!(pause(&mut bench, 30.0), first);
    let shed = (16..30).map(|n| pause(&mut bench, 2.0 * f64::from(n))).last();
    assert!(shed > Some(first + 100), "{shed:?}");
    let served = &bench.tallies[0].served;
    let late = served.iter().filter(|seconds| **seconds > 0.4).count();
    assert!(late * 20 < served.len(), "{late} of {}", served.len());
}
