//! The published rules on small clusters in virtual time.

mod support;

use support::*;
use weirgate_engine::*;

/// Sec. 5.1 in small: 2 nodes × 2 CPUs (467/s at 8.57 ms). A surges to four times its rate.
#[test]
fn a_surging_class_does_not_touch_the_other() {
    for seed in 1..=4 {
        let classes = vec![class("A", Some(225.0), p95(400), Some(8)), class("B", Some(225.0), p95(400), Some(8))];
        let load = |rate| even(rate, 0.00857);
        let mut bench = Bench::new(policy(Discipline::quorum(), 2, classes), 2.0, vec![load(150.0), load(125.0)], seed);
        bench.run(20.0);
        bench.set_rate(0, 600.0);
        bench.measure(26.0, 56.0);
        let (a, b) = (&bench.tallies[0], &bench.tallies[1]);
        assert_eq!(b.shed, 0, "seed {seed}: B is within its guarantee");
        let served = a.served.len() as f64 / 30.0;
        assert!(served >= 0.99 * 225.0, "seed {seed}: A keeps its floor, got {served}/s");
        let total = served + b.served.len() as f64 / 30.0;
        assert!(total > 0.97 * 4.0 / 0.00857, "seed {seed}: surplus is used, got {total}/s");
        for (name, tally) in [("A", a), ("B", b)] {
            let p = percentile(&tally.served, 0.95);
            assert!(p <= 0.405, "seed {seed}: {name} takes {p} s");
        }
    }
}

/// Sec. 5.3: if the floors exceed the capacity, both classes get the same part of theirs.
#[test]
fn an_infeasible_policy_degrades_in_proportion() {
    let classes = vec![class("A", Some(900.0), p95(400), Some(8)), class("B", Some(450.0), p95(400), Some(8))];
    let load = |rate| even(rate, 0.00857);
    // 6 CPUs serve 700/s, and 1350/s are guaranteed.
    let mut bench = Bench::new(policy(Discipline::quorum(), 3, classes), 2.0, vec![load(1300.0), load(1300.0)], 1);
    bench.measure(20.0, 50.0);
    let rates: Vec<f64> = bench.tallies.iter().map(|t| t.served.len() as f64 / 30.0).collect();
    assert!((rates[0] / rates[1] - 2.0).abs() < 0.06, "served {rates:?}");
    assert!(rates[0] + rates[1] > 0.97 * 700.0, "served {rates:?}");
}

/// Sec. 3.2: a class with requests that become five times as expensive keeps its part of the cluster and not
/// its rate.
#[test]
fn a_class_that_becomes_dearer_pays_itself() {
    let classes = vec![class("A", Some(225.0), p95(400), Some(8)), class("B", Some(225.0), p95(400), Some(8))];
    // A keeps the cluster busy from the start, so that the window is at the size that the rule seeks.
    let loads = vec![even(400.0, 0.008), even(125.0, 0.008)];
    let mut bench = Bench::new(policy(Discipline::quorum(), 2, classes), 2.0, loads, 3);
    bench.run(20.0);
    bench.classes[0].demand = 0.040;
    // The linear window needs 20 s from 100 slots to the 20 that expensive requests leave room for.
    bench.measure(45.0, 75.0);
    let (a, b) = (&bench.tallies[0], &bench.tallies[1]);
    assert_eq!(b.shed, 0);
    assert!(percentile(&b.served, 0.95) <= 0.405);
    let served = a.served.len() as f64 / 30.0;
    assert!(served >= 0.99 * 225.0 * 8.0 / 40.0, "A is owed 45/s and gets {served}/s");
    assert!(a.shed > 0, "A asks for more than there is");
}

/// Requests that for a while cost more than the limit raise the estimate above it. With the literal rule the
/// class never comes back, although its requests are cheap again. With an estimate that decays it does.
#[test]
fn a_stale_estimate_starves_a_class_unless_it_decays() {
    let served_after = |stale: StaleEstimate| {
        let mut discipline = Discipline::quorum();
        discipline.admit = Admit::Deadline { stale };
        let classes = vec![class("A", Some(100.0), p95(200), Some(8)), class("other", None, None, None)];
        let load = |rate| even(rate, 0.008);
        let mut bench = Bench::new(policy(discipline, 2, classes), 2.0, vec![load(100.0), load(0.0)], 5);
        bench.run(5.0);
        bench.classes[0].demand = 0.300;
        bench.run(8.0);
        bench.classes[0].demand = 0.008;
        bench.measure(18.0, 28.0);
        bench.tallies[0].served.len() as f64 / bench.tallies[0].offered as f64
    };
    assert_eq!(served_after(StaleEstimate::Hold), 0.0);
    assert!(served_after(StaleEstimate::Decay) > 0.99);
}

/// Quorum with windows that also grow while they are not full.
fn grows_always() -> Discipline {
    let mut discipline = Discipline::quorum();
    if let LoadControl::WindowLinear { grow, .. } = &mut discipline.load_control {
        *grow = Grow::Always;
    }
    discipline
}

#[test]
fn an_idle_window_stays_unless_it_may_always_grow() {
    let window_after = |discipline: Discipline| {
        let classes = vec![class("A", Some(100.0), p95(400), Some(8))];
        let loads = vec![even(50.0, 0.008)];
        let mut bench = Bench::new(policy(discipline, 2, classes), 2.0, loads, 5);
        bench.run(60.2);
        bench.engine.snapshot(Time::ZERO).window.unwrap()
    };
    assert_eq!(window_after(grows_always()), 10 + 4 * 60);
    assert_eq!(window_after(Discipline::quorum()), 10);
}

/// Sec. 5.2 in small: after two quiet minutes A's requests become five times as expensive. A quarter of the
/// cluster belongs to B. The rest serves 73/s of A at once, without a wave of requests that come too late. A
/// window that grew during the quiet minutes admits such a wave.
#[test]
fn a_class_that_becomes_dearer_after_a_calm_is_served_at_once() {
    let after_the_calm = |discipline: Discipline, seed: u64| {
        let classes = vec![class("A", Some(225.0), p95(400), Some(8)), class("B", Some(225.0), p95(400), Some(8))];
        let load = |rate| even(rate, 0.00857);
        let mut bench = Bench::new(policy(discipline, 2, classes), 2.0, vec![load(150.0), load(125.0)], seed);
        bench.run(120.0);
        bench.classes[0].demand = 0.040;
        bench.measure(125.0, 180.0);
        let a = &bench.tallies[0].served;
        (a.len() as f64 / 55.0, percentile(a, 0.95))
    };
    for seed in 1..=4 {
        let (served, p95) = after_the_calm(Discipline::quorum(), seed);
        assert!(served > 70.0 && p95 < 0.41, "seed {seed}: {served}/s, {p95} s");
    }
    let (served, p95) = after_the_calm(grows_always(), 1);
    assert!(served < 60.0 && p95 > 0.6, "{served}/s, {p95} s");
}

/// Compute times are compared with the limit by the guaranteed statistic. Exponential requests of an
/// overloaded class reach the limit with their mean if the mean is guaranteed, and with their 95th percentile
/// if that is guaranteed.
#[test]
fn the_guaranteed_statistic_rides_at_the_limit() {
    for seed in 1..=4 {
        let served = |statistic: Statistic| {
            let classes = vec![class("A", Some(300.0), Some((statistic, 600)), Some(11))];
            let loads = vec![load(600.0, 0.0108)];
            let mut bench = Bench::new(policy(Discipline::quorum(), 2, classes), 2.0, loads, seed);
            bench.measure(60.0, 160.0);
            bench.tallies[0].served.clone()
        };
        let by_mean = served(Statistic::Average);
        let mean = by_mean.iter().sum::<f64>() / by_mean.len() as f64;
        assert!((0.58..0.61).contains(&mean), "seed {seed}: {mean} s");
        let p95 = percentile(&served(Statistic::Percentile(95.0)), 0.95);
        assert!((0.56..0.62).contains(&p95), "seed {seed}: {p95} s");
    }
}
