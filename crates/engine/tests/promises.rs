//! The engine's reports are true: whether a throughput guarantee is held, and why a request was refused.

mod support;

use support::*;
use weirgate_engine::*;

const GOLD: ClassId = ClassId(0);

/// Two nodes of two CPUs, which serve 400/s.
fn bench(discipline: Discipline, gold: f64, others: f64) -> Bench {
    let classes = vec![class("gold", Some(150.0), p95(400), Some(10)), class("rest", None, None, None)];
    Bench::new(policy(discipline, 2, classes), 2.0, vec![load(gold, 0.010), load(others, 0.010)], 7)
}

fn held(bench: &Bench) -> bool {
    let classes = bench.engine.classes(Time::ZERO, GOLD, 1);
    classes[0].achieved.throughput_held.expect("a throughput is guaranteed")
}

fn shed(bench: &Bench, reason: ShedReason) -> u64 {
    bench.engine.classes(Time::ZERO, GOLD, 1)[0].shed[reason.index()]
}

/// Without a limit on requests in flight, all of them are on the nodes and a tenth is served.
#[test]
fn what_is_in_flight_does_not_count_as_served() {
    let mut bench = bench(Discipline::none(), 150.0, 100.0);
    for second in 1..20 {
        bench.run(f64::from(second));
        assert!(held(&bench), "all of it is served: {second}");
    }
    bench.slow_down(&[0, 1], 0.05);
    let before = bench.tallies[0].served.len();
    for second in 23..60 {
        bench.run(f64::from(second));
        assert!(!held(&bench), "{second}");
    }
    assert!((bench.tallies[0].served.len() - before) < 600, "of six thousand");
}

/// A discipline that keeps the guarantee is reported to keep it, under any load and from the first moment on.
#[test]
fn a_promise_that_is_kept_is_said_to_be_kept() {
    let mut bench = bench(Discipline::weirgate(), 140.0, 100.0);
    for tenth in 1..300 {
        bench.run(f64::from(tenth) / 10.0);
        if tenth == 100 {
            bench.set_rate(1, 2000.0);
        }
        assert!(held(&bench), "{tenth}");
    }
    assert_eq!(bench.tallies[0].shed, 0);
}

/// If nodes hang, they are reported as the cause, and not the class that waits for them.
#[test]
fn nodes_that_hang_are_told_as_the_cause() {
    let mut bench = bench(Discipline::weirgate(), 140.0, 50.0);
    bench.run(10.0);
    bench.stall(true);
    bench.run(20.0);
    let snapshot = bench.engine.classes(Time::ZERO, GOLD, 2);
    let told: Vec<u64> = snapshot.iter().map(|class| class.shed[ShedReason::NodesSlow.index()]).collect();
    let all: Vec<u64> = snapshot.iter().map(|class| class.shed.iter().sum()).collect();
    assert!(told[0] > 500 && told[0] * 100 >= all[0] * 95, "{told:?} of {all:?}");
    assert_eq!(shed(&bench, ShedReason::Overload), 0);
    assert!(!held(&bench));
}

/// The cause is the nodes if they are too slow for a guarantee, and the class if it asks for more than that.
#[test]
fn the_cause_is_the_nodes_or_the_class() {
    let mut bench = bench(Discipline::weirgate(), 140.0, 50.0);
    bench.run(10.0);
    bench.slow_down(&[0, 1], 0.15);
    bench.run(30.0);
    let (nodes, class) = (shed(&bench, ShedReason::NodesSlow), shed(&bench, ShedReason::Overload));
    assert!(nodes > 500 && class * 20 < nodes, "{nodes} and {class}");
    bench.slow_down(&[0, 1], 1.0);
    bench.run(45.0);
    let nodes = shed(&bench, ShedReason::NodesSlow);
    bench.set_rate(0, 1200.0);
    bench.run(65.0);
    let class = shed(&bench, ShedReason::Overload);
    let blamed = shed(&bench, ShedReason::NodesSlow) - nodes;
    assert!(class > 5_000 && blamed * 50 < class, "{class} and {blamed}");
}

/// A limit below the service time is impossible to keep, which is reported once that time is learned. A limit
/// above it is possible, however slow the nodes become.
#[test]
fn a_limit_below_the_service_time_is_impossible_by_itself() {
    let classes = vec![class("a", Some(50.0), p95(100), None), class("b", Some(50.0), p95(400), None)];
    let loads = vec![Load { demand: 0.150, ..load(5.0, 0.010) }, load(20.0, 0.010)];
    let mut bench = Bench::new(policy(Discipline::weirgate(), 2, classes), 2.0, loads, 8);
    let impossible =
        |bench: &Bench| bench.engine.classes(Time::ZERO, GOLD, 2).iter().map(|c| c.impossible).collect::<Vec<_>>();
    assert_eq!(impossible(&bench), [false, false]);
    bench.run(30.0);
    assert_eq!(impossible(&bench), [true, false]);
    let learned = bench.engine.classes(Time::ZERO, GOLD, 1)[0].service_time.expect("it is learned");
    assert!((0.9..1.6).contains(&(learned.as_secs_f64() / 0.150)), "{learned:?}");
    bench.slow_down(&[0, 1], 0.02);
    bench.run(60.0);
    assert_eq!(impossible(&bench), [true, false]);
}
