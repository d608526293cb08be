//! The state that an engine has learned, in another engine: the guarantees hold from the first second, and no record
//! does harm.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use support::*;
use weirgate_engine::*;

fn at(seconds: f64) -> Time {
    Time::from_nanos((seconds * 1e9) as u64)
}

/// Two nodes of two CPUs, which serve 370/s of 10.8 ms. No class declares its service time.
fn site() -> Policy {
    with(Discipline::weirgate())
}

fn with(discipline: Discipline) -> Policy {
    let classes = vec![
        class("gold", Some(100.0), p95(100), None),
        class("silver", Some(80.0), p95(400), None),
        class("rest", None, None, None),
    ];
    policy(discipline, 2, classes)
}

/// 150 % of the capacity. Silver sends almost three times its guarantee.
const RATES: [f64; 3] = [100.0, 220.0, 230.0];

fn overloaded(policy: Policy, seed: u64) -> Bench {
    Bench::new(policy, 2.0, RATES.map(|rate| load(rate, 0.0108)).to_vec(), seed)
}

/// One second after a process failed under overload and another one took its clients, by class: requests served and
/// offered, and the 95th percentile of response times in seconds. `speed` is that of the nodes afterwards.
fn first_second(seed: u64, speed: f64, with_state: bool) -> Vec<(usize, u64, f64)> {
    let mut bench = overloaded(site(), seed);
    bench.run(39.0);
    let learned = bench.engine.learned(at(39.0));
    bench.run(40.0);
    bench.slow_down(&[0, 1], speed);
    let mut next = Engine::new(at(40.0), site(), seed + 100).expect("a valid policy");
    if with_state {
        let adopted = next.adopt(at(40.0), &learned, ms(1000));
        assert_eq!(adopted, Adopted { classes: 3, windows: 1, nodes: 2 });
    }
    bench.replace(next);
    bench.reset();
    bench.run(41.0);
    bench.tallies.iter().map(|tally| (tally.served.len(), tally.offered, percentile(&tally.served, 0.95))).collect()
}

#[test]
fn guarantees_hold_from_the_first_second_after_a_crash_under_overload() {
    let [mut with_state, mut cold] = [0.0, 0.0];
    for seed in 1..=4 {
        let seconds = first_second(seed, 1.0, true);
        let (served, offered, p95) = seconds[0];
        // The last ones are in flight when the second ends.
        assert!(served as u64 + 8 >= offered && p95 < 0.100, "seed {seed}: gold {seconds:?}");
        assert!(seconds[1].0 >= 80 && seconds[1].2 < 0.400, "seed {seed}: silver {seconds:?}");
        with_state += p95;
        cold += first_second(seed, 1.0, false)[0].2;
    }
    assert!(with_state < 0.75 * cold, "with state {with_state}, cold {cold}");
}

/// A window for nodes that were three times as fast, or as slow, does no more harm than a cold start.
#[test]
fn the_state_of_other_nodes_is_no_worse_than_none() {
    for speed in [1.0 / 3.0, 3.0] {
        let [with_state, cold] = [true, false].map(|with_state| {
            let seeds = (1..=3).map(|seed| first_second(seed, speed, with_state));
            seeds.fold([(0, 0.0); 2], |sum, row| {
                [0, 1].map(|class| (sum[class].0 + row[class].0, sum[class].1 + row[class].2))
            })
        });
        for (class, (with_state, cold)) in with_state.iter().zip(&cold).enumerate() {
            assert!(with_state.1 < 1.1 * cold.1, "speed {speed}, class {class}: p95 {with_state:?}, cold {cold:?}");
            assert!(10 * with_state.0 >= 8 * cold.0, "speed {speed}, class {class}: {with_state:?}, cold {cold:?}");
        }
    }
}

/// Prints the figures of `docs/adr/0024-learned-state-outlives-the-process.md`.
#[test]
#[ignore = "prints figures"]
fn figures() {
    for speed in [1.0, 1.0 / 3.0, 3.0] {
        for with_state in [false, true] {
            let of =
                |class: usize| (1..=8).map(move |seed| first_second(seed, speed, with_state)[class].2).sum::<f64>();
            let [gold, silver] = [0, 1].map(|class| 1e3 * of(class) / 8.0);
            println!("speed {speed:.2}, with state {with_state}: gold p95 {gold:.0} ms, silver p95 {silver:.0} ms");
        }
    }
}

/// Two gateways that follow each other: the one with traffic keeps its state, and the other one has the same.
#[test]
fn of_two_that_follow_each_other_the_one_with_traffic_decides() {
    let mut bench = overloaded(site(), 1);
    let mut idle = Engine::new(Time::ZERO, site(), 2).expect("a valid policy");
    for second in 1..=20 {
        let now = f64::from(second);
        bench.run(now);
        let (ours, theirs) = (bench.engine.learned(at(now)), idle.learned(at(now)));
        assert!(bench.engine.adopt(at(now), &theirs, ms(3)).is_nothing(), "second {second}");
        let adopted = idle.adopt(at(now), &ours, ms(3));
        assert_eq!((adopted.classes, adopted.windows), (3, 1), "second {second}");
    }
    let now = at(20.0);
    // Not their sizes, which differ while one is in the low half of its cycle and the other in the high one.
    let [ours, theirs] = [&bench.engine, &idle].map(|engine| engine.learned(now).windows[0].size);
    assert_eq!(ours, theirs);
    // With traffic at neither, nothing moves to and fro, and nothing grows younger.
    let mut rounds = Vec::new();
    for second in 30..60 {
        let now = at(f64::from(second));
        let (ours, theirs) = (bench.engine.learned(now), idle.learned(now));
        let moved = [bench.engine.adopt(now, &theirs, ms(3)), idle.adopt(now, &ours, ms(3))];
        rounds.push((ours.classes[0].age, theirs.classes[0].age));
        assert!(moved.iter().all(Adopted::is_nothing) || second == 30, "second {second}: {moved:?}");
    }
    assert!(rounds.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "{rounds:?}");
}

#[test]
fn every_method_of_load_control_passes_its_window_on() {
    let first = |limit: LoadControl| Discipline { load_control: limit, ..Discipline::weirgate() };
    let controls = [
        LoadControl::WindowLinear { delta: 2, first: 8, min: 1, max: 1000, grow: Grow::WhileFull },
        LoadControl::Aimd(Aimd::default()),
        LoadControl::Gradient(Gradient::default()),
        Discipline::weirgate().load_control,
    ];
    for control in controls {
        let mut bench = overloaded(with(first(control)), 3);
        bench.run(20.0);
        let learned = bench.engine.learned(at(20.0));
        let mut next = Engine::new(Time::ZERO, with(first(control)), 4).expect("a valid policy");
        assert_eq!(next.adopt(Time::ZERO, &learned, ms(10)).windows, 1, "{control:?}");
        let [before, after] = [&bench.engine, &next].map(|e| e.snapshot(at(20.0)).window.expect("a window"));
        // An adaptive window swings by a tenth.
        assert!(before.abs_diff(after) <= 1 + before / 10, "{control:?}: {before} and {after}");
        assert_eq!(next.snapshot(at(20.0)).moved.why, Why::Adopted);
    }
    let mut fixed = Engine::new(Time::ZERO, with(partitioned(7)), 4).expect("a valid policy");
    let mut bench = overloaded(site(), 3);
    bench.run(20.0);
    let adopted = fixed.adopt(Time::ZERO, &bench.engine.learned(at(20.0)), ms(10));
    assert_eq!((adopted.windows, fixed.snapshot(Time::ZERO).window), (0, Some(7)), "another method's window");
}

#[test]
fn other_names_and_pools_are_ignored() {
    let mut bench = overloaded(site(), 5);
    bench.run(10.0);
    let learned = bench.engine.learned(at(10.0));
    let mut other = site();
    other.classes[0].name = "platinum".into();
    other.nodes[1].name = "new".into();
    let mut next = Engine::new(Time::ZERO, other.clone(), 6).expect("a valid policy");
    assert_eq!(next.adopt(Time::ZERO, &learned, ms(10)), Adopted { classes: 2, windows: 1, nodes: 1 });
    other.pools[0].name = "elsewhere".into();
    let mut next = Engine::new(Time::ZERO, other, 6).expect("a valid policy");
    assert!(next.adopt(Time::ZERO, &learned, ms(10)).is_nothing());
}

#[test]
fn classes_of_templates_keep_their_estimates() {
    let mut site = site();
    site.templates = vec![Template { class: class("tenant", Some(10.0), p95(300), None), max_live: 2 }];
    let mut first = Engine::new(Time::ZERO, site.clone(), 1).expect("a valid policy");
    for (start, key) in [(1.0, b"a"), (2.0, b"b")] {
        let class = first.class(at(start), TemplateId(0), key);
        let Decision::Release { ticket, .. } = first.arrive(at(start), arrival(class.0, 1, 0)) else {
            panic!("nothing is in flight")
        };
        first.observe(at(start + 0.5), ticket, Outcome::LastByte { status: 200 });
    }
    let learned = first.learned(at(2.5));
    assert_eq!(learned.classes.iter().filter(|class| class.key.is_some()).count(), 2);
    let (page, next) = first.learned_classes(at(2.5), ClassId(0), 5);
    assert_eq!((page.len(), next.is_some()), (1, true), "pages");
    site.templates[0].max_live = 1;
    let mut second = Engine::new(Time::ZERO, site, 1).expect("a valid policy");
    assert_eq!(second.adopt(at(0.1), &learned, ms(100)).classes, 2, "the second evicts the first, which is idle");
    let tenant = second.class(at(0.1), TemplateId(0), b"b");
    let shown = second.classes(at(0.1), tenant, 1).remove(0);
    assert_eq!(shown.service_time, Some(ms(500)));
}

#[test]
fn an_ejected_node_stays_out_for_the_rest_of_its_time() {
    let mut first = Engine::new(Time::ZERO, site(), 1).expect("a valid policy");
    let mut failed = 0;
    for second in 1..12 {
        let now = at(f64::from(second) / 10.0);
        if let Decision::Release { ticket, node } = first.arrive(now, arrival(0, 1, 0)) {
            failed += u32::from(node == NodeId(0));
            let outcome = if node == NodeId(0) {
                Outcome::Failed { retryable: false }
            } else {
                Outcome::LastByte { status: 200 }
            };
            first.observe(now, ticket, outcome);
        }
    }
    let learned = first.learned(at(1.2));
    let left = learned.nodes[0].ejected_for.expect("it has failed");
    let mut next = Engine::new(Time::ZERO, site(), 1).expect("a valid policy");
    next.adopt(Time::ZERO, &learned, ms(100));
    let until = |engine: &Engine, now| match engine.snapshot(now).nodes[0].state {
        NodeState::Ejected { until } => Some(until),
        _ => None,
    };
    assert_eq!(until(&next, Time::ZERO).map(|until| until.since(Time::ZERO)), Some(left.saturating_sub(ms(100))));
    while next.poll(Time::ZERO + left).is_some() {}
    assert_eq!(until(&next, Time::ZERO + left), None, "{failed} failures");
    // Two ejected nodes of two would leave none.
    let mut all = learned.clone();
    all.nodes[1].ejected_for = Some(Duration::MAX);
    let mut next = Engine::new(Time::ZERO, site(), 1).expect("a valid policy");
    next.adopt(Time::ZERO, &all, ms(0));
    assert!(next.snapshot(Time::ZERO).nodes.iter().any(|node| node.state == NodeState::Up));
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::INFINITY), Just(0.0), Just(-1.0), 0.0..1000.0]
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::MAX), Just(Duration::ZERO), (0u64..100_000).prop_map(Duration::from_millis)]
}

fn garbage() -> impl Strategy<Value = Learned> {
    let name = || prop_oneof![Just("gold"), Just("silver"), Just("rest"), Just("none"), Just("")];
    let times = (number(), number(), number(), number());
    let times = times.prop_map(|(arrivals_per_s, mean, square, completions)| LearnedTimes {
        arrivals_per_s,
        mean,
        square,
        completions,
    });
    let option = proptest::option::of::<BoxedStrategy<Duration>>;
    let class = (name(), span(), option(span().boxed()), option(span().boxed()), number(), span(), times);
    let class = class.prop_map(|(name, age, service_time, expected, cost, rate_full_in, times)| LearnedClass {
        name: name.into(),
        key: None,
        pool: "web".into(),
        age,
        service_time,
        expected: expected.map(|mean| (mean, service_time)),
        cost: Some(cost),
        rate_full_in,
        times: Some(times),
    });
    let knee = (number(), number(), number(), any::<bool>(), number());
    let knee = knee.prop_map(|(base, weight, slowdown, contended, reach)| {
        LearnedSize::Knee(LearnedKnee { base, weight, slowdown, contended, reach })
    });
    let size = prop_oneof![
        4 => knee,
        1 => number().prop_map(|limit| LearnedSize::Aimd { limit }),
        1 => (number(), number()).prop_map(|(limit, long)| LearnedSize::Gradient { limit, long }),
    ];
    let window =
        (span(), size).prop_map(|(age, size)| LearnedWindow { pools: vec!["web".into()], resource: None, age, size });
    let node = (0..4u32, number(), number(), option(span().boxed()), any::<u32>());
    let node = node.prop_map(|(index, slowness, errors, ejected_for, ejections)| LearnedNode {
        pool: "web".into(),
        name: format!("n{index}"),
        slowness,
        errors,
        ejected_for,
        ejections,
    });
    let all = |strategy| proptest::collection::vec(strategy, 0..5);
    (all(class.boxed()), proptest::collection::vec(window, 0..3), proptest::collection::vec(node, 0..5))
        .prop_map(|(classes, windows, nodes)| Learned { classes, windows, nodes })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever a record says, nothing panics, a node stays in service, and no window is larger than a bounded multiple
    /// of the need of the guarantees or of the machines.
    #[test]
    fn garbage_is_ignored_or_bounded(learned in garbage(), age in span(), control in 0..3usize) {
        let load_control = [
            Discipline::weirgate().load_control,
            LoadControl::Aimd(Aimd::default()),
            LoadControl::Gradient(Gradient::default()),
        ][control];
        let site = with(Discipline { load_control, ..Discipline::weirgate() });
        let mut bench = overloaded(site, 7);
        let cold = bench.engine.snapshot(at(0.0)).window.expect("a window");
        bench.engine.adopt(at(0.0), &learned, age);
        let snapshot = bench.engine.snapshot(at(0.0));
        // Service times of an hour each make the guarantees need 648,000 slots.
        let known = snapshot.demanded_capacity.unwrap_or(0.0).max(f64::from(cold));
        let window = f64::from(snapshot.window.expect("a window"));
        // A base of at most 16 times the need, and its larger half-cycle.
        let most = 16.0 * (1.0 + Adaptive::default().swing) * known + 64.0;
        prop_assert!(window.is_finite() && window <= most, "{window} for {known}");
        prop_assert!(snapshot.nodes.iter().any(|node| node.state == NodeState::Up));
        bench.run(0.5);
        let again = bench.engine.learned(at(0.5));
        prop_assert!(again.classes.iter().all(|class| class.times.is_none_or(|times| times.mean.is_finite())));
        bench.run(1.0);
        prop_assert!(bench.tallies.iter().any(|tally| !tally.served.is_empty()), "nothing was served");
    }

    /// What one engine learned and another one took over is the same again when that one passes it on.
    #[test]
    fn a_record_survives_the_passage(seed in 0u64..1000, seconds in 2.0f64..8.0) {
        let mut bench = overloaded(site(), seed);
        bench.run(seconds);
        let learned = bench.engine.learned(at(seconds));
        let mut next = Engine::new(at(seconds), site(), seed).expect("a valid policy");
        next.adopt(at(seconds), &learned, Duration::ZERO);
        let again = next.learned(at(seconds));
        prop_assert_eq!(&again.classes, &learned.classes);
        let base = |learned: &Learned| match learned.windows[0].size {
            LearnedSize::Knee(knee) => knee,
            other => panic!("{other:?}"),
        };
        let (before, after) = (base(&learned), base(&again));
        prop_assert!((before.base - after.base).abs() < 1e-9 && before.contended == after.contended, "{before:?} {after:?}");
    }
}
