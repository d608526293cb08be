//! Hand-made runs with known verdicts.

use weirgate_experiment::{Distribution, Fate, Fault, FaultKind, Record, Violation, load_experiment};

use super::*;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Two machines of two CPUs each and a declared service time of 10 ms: 400 requests per second.
/// Phases `before`, `surge`, `after` of 20 seconds each. Classes A, B, C with a source each.
pub(crate) fn experiment() -> Experiment {
    let text = include_str!("../../../experiment/tests/hand-made.yaml");
    let loaded = load_experiment("hand-made.yaml", text, std::path::Path::new(""), &[]);
    loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment
}

/// Requests of class `class` at `rate` per second over whole seconds. `what` returns the end and the fate of each.
pub(crate) fn requests(class: u32, rate: u64, seconds: Range<u64>, what: impl Fn(u64) -> (u64, Fate)) -> Vec<Record> {
    let count = (seconds.end - seconds.start) * rate;
    let record = |i: u64| {
        let arrived = seconds.start * SECOND + i * SECOND / rate;
        let (after, fate) = what(i);
        Record {
            traffic: class,
            fate,
            arrived,
            released: arrived,
            ended: arrived + after,
            cpu: 0.01,
            ..Record::default()
        }
    };
    (0..count).map(record).collect()
}

pub(crate) fn run(parts: Vec<Vec<Record>>) -> Run {
    let mut records = parts.concat();
    records.sort_by_key(|record| record.arrived);
    Run { seed: 1, discipline: "quorum".into(), records, ..Run::default() }
}

pub(crate) fn served(ms: u64) -> impl Fn(u64) -> (u64, Fate) {
    move |_| (ms * MS, Fate::Served)
}

/// Of every ten requests the first `n` are served in 20 ms, and the others are shed after 3 ms.
pub(crate) fn of_ten(n: u64) -> impl Fn(u64) -> (u64, Fate) {
    move |i| if i % 10 < n { (20 * MS, Fate::Served) } else { (3 * MS, Fate::Shed) }
}

fn part<'a>(verdict: &'a Verdict, phase: &str, class: &str) -> &'a ClassVerdict {
    let phase = verdict.phases.iter().find(|p| p.name == phase).expect("the phase");
    phase.classes.iter().find(|c| c.class == class).expect("the class")
}

fn missed(verdict: &Verdict) -> Vec<(&str, &str, Kind)> {
    verdict.misses().map(|miss| (miss.phase.name.as_str(), miss.class.class.as_str(), miss.kind)).collect()
}

#[test]
fn what_is_served_in_time_is_held() {
    let verdict =
        judge(&experiment(), &run(vec![requests(0, 90, 0..60, served(30)), requests(1, 50, 0..60, served(9))]));
    assert!(verdict.sound() && missed(&verdict).is_empty());
    let a = part(&verdict, "surge", "A");
    assert_eq!((a.part.offered_per_s, a.part.served_per_s, a.reaction_s), (90.0, 90.0, Some(0.0)));
    let floor = a.part.floor.expect("a floor");
    assert_eq!((floor.guaranteed_per_s, floor.owed_per_s, floor.ok), (100.0, 90.0, true));
    assert_eq!(a.part.ceiling.as_ref().and_then(|c| c.value_ms), Some(30.0));
    // C has no traffic, so there is nothing to judge.
    let c = part(&verdict, "surge", "C");
    assert_eq!((c.part.offered_per_s, c.part.floor, c.part.response_ms), (0.0, None, None));
    let ceiling = c.part.ceiling.as_ref().expect("a ceiling");
    assert_eq!((ceiling.value_ms, ceiling.ok, c.reaction_s), (None, true, Some(0.0)));
}

#[test]
fn a_floor_is_owed_up_to_the_rate_and_its_burst() {
    // 250/s with a guarantee of 200/s. 80 % of it is just the owed rate, 70 % is not.
    let held = judge(&experiment(), &run(vec![requests(1, 250, 0..60, of_ten(8))]));
    assert!(held.sound(), "{:?}", missed(&held));
    let floor = part(&held, "surge", "B").part.floor.expect("a floor");
    assert!((199.9..=200.1).contains(&floor.owed_per_s) && floor.counted_per_s == 200.0, "{floor:?}");
    let broken = judge(&experiment(), &run(vec![requests(1, 250, 0..60, of_ten(7))]));
    let floors = [("before", "B", Kind::Floor), ("surge", "B", Kind::Floor), ("after", "B", Kind::Floor)];
    assert_eq!((missed(&broken), broken.verdict), (floors.to_vec(), Word::Broken));
    assert_eq!(part(&broken, "surge", "B").reaction_s, None);
}

#[test]
fn a_class_that_is_more_expensive_than_declared_is_owed_its_capacity() {
    // At twice the declared CPU time. Waiting in service costs nothing.
    let expensive = |rate, share| {
        let mut records = requests(1, rate, 0..60, of_ten(share));
        records.iter_mut().for_each(|r| (r.cpu, r.io) = (0.02, 0.5));
        judge(&experiment(), &run(vec![records]))
    };
    let held = expensive(250, 4);
    let b = part(&held, "surge", "B");
    let floor = b.part.floor.expect("a floor");
    assert!(held.sound() && (99.9..=100.1).contains(&floor.owed_per_s), "{floor:?}");
    // 100/s at twice the cost is all that the rate pays for, so no shed is wrong.
    assert!(b.part.shed.count == 15 * 150 && b.part.shed.wrong <= 2, "{:?}", b.part.shed);
    assert!(!expensive(250, 3).sound());
    // A class that sends less than its rate is owed the same capacity, and not half of its requests.
    let floor = part(&expensive(125, 8), "surge", "B").part.floor.expect("a floor");
    assert!(floor.ok && (99.9..=100.1).contains(&floor.owed_per_s), "{floor:?}");
    // The same demand on machines twice as fast.
    let mut fast = experiment();
    fast.machines.iter_mut().for_each(|m| m.speed = 2.0);
    let mut records = requests(1, 250, 0..60, of_ten(8));
    records.iter_mut().for_each(|r| r.cpu = 0.03);
    let floor = part(&judge(&fast, &run(vec![records])), "surge", "B").part.floor.expect("a floor");
    assert!((133.2..=133.5).contains(&floor.owed_per_s), "{floor:?}");
}

#[test]
fn a_class_that_waits_longer_for_a_database_is_owed_as_much_as_before() {
    let owed = |concurrency, (cpu, io)| {
        let mut experiment = experiment();
        // 10 ms are declared: 4 of CPU time and 6 of waiting.
        let demand = &mut experiment.traffic[1].demand[0];
        (demand.cpu, demand.io) = [4, 6].map(|ms| Distribution::Fixed(Duration::from_millis(ms))).into();
        experiment.machines.iter_mut().for_each(|machine| machine.concurrency = concurrency);
        let mut records = requests(1, 100, 0..60, served(5));
        records.iter_mut().for_each(|r| (r.cpu, r.io) = (cpu, io));
        let verdict = judge(&experiment, &run(vec![records]));
        (part(&verdict, "surge", "B").part.floor.expect("a floor").owed_per_s, verdict.phases[1].feasible)
    };
    assert_eq!(owed(None, (0.004, 0.150)), (100.0, true));
    assert_eq!(owed(Some(150), (0.004, 0.150)), (100.0, true));
    // Ten times the CPU time, of which 4 ms are declared: 20/s.
    let (expensive, feasible) = owed(None, (0.040, 0.006));
    assert!((19.9..=20.1).contains(&expensive) && feasible, "{expensive}");
    // Eight workers, each held for 154 ms. Now workers are scarce, and 200/s × 10/154 is their declared capacity.
    let (short, feasible) = owed(Some(4), (0.004, 0.150));
    assert!((12.9..=13.1).contains(&short) && feasible, "{short}");
}

#[test]
fn a_mean_lets_single_requests_be_late_and_a_percentile_its_rest() {
    // C is guaranteed a mean of 50 ms. One in four takes 110 ms.
    let slow =
        |ms: u64, one_in: u64| move |i: u64| (if i.is_multiple_of(one_in) { ms * MS } else { 10 * MS }, Fate::Served);
    let in_time = |class: u32, what: &dyn Fn(u64) -> (u64, Fate)| {
        let verdict = judge(&experiment(), &run(vec![requests(class, 80, 0..60, what)]));
        part(&verdict, "surge", ["A", "B", "C"][class as usize]).part.in_time_per_s
    };
    assert_eq!(in_time(2, &slow(110, 4)), 80.0);
    // If a quarter takes 210 ms, as many are in time as keep the mean at 50 ms.
    assert_eq!(in_time(2, &slow(210, 4)), 75.0);
    // A is guaranteed a p95 of 400 ms.
    assert_eq!(in_time(0, &slow(500, 20)), 80.0);
    assert_eq!(in_time(0, &slow(500, 10)), (72.0_f64 * 15.0 / 0.95).floor() / 15.0);
}

#[test]
fn a_limit_below_the_requests_own_time_is_impossible_and_all_else_is_judged() {
    let play = |seconds: f32, share| {
        let mut records = requests(0, 80, 0..60, of_ten(share));
        records.iter_mut().for_each(|r| (r.io, r.ended) = (seconds, r.arrived + 600 * MS));
        judge(&experiment(), &run(vec![records]))
    };
    let verdict = play(0.4, 10);
    let ceiling = part(&verdict, "surge", "A").part.ceiling.clone().expect("a ceiling");
    assert!(
        !ceiling.ok && ceiling.is_impossible() && ceiling.impossible_ms.is_some_and(|ms| (ms - 410.0).abs() < 0.01)
    );
    assert!(verdict.sound(), "{:?}", missed(&verdict));
    assert_eq!((part(&verdict, "surge", "A").reaction_s, verdict.judged()), (Some(0.0), 3));
    // The floor still counts. If the requests take 390 ms alone, the limit counts as well.
    assert_eq!(missed(&play(0.4, 9))[0], ("before", "A", Kind::Floor));
    let verdict = play(0.38, 10);
    assert_eq!(missed(&verdict)[0], ("before", "A", Kind::Ceiling));
}

#[test]
fn failures_are_not_served_and_departures_neither() {
    let fate = |i| (20 * MS, [Fate::Served, Fate::Failed, Fate::Served, Fate::Left][i as usize % 4]);
    let verdict = judge(&experiment(), &run(vec![requests(0, 80, 0..60, fate)]));
    let a = &part(&verdict, "after", "A").part;
    assert_eq!((a.failed, a.left, a.shed.count, a.served_per_s), (15 * 20, 15 * 20, 0, 40.0));
    assert!(!a.floor.expect("a floor").ok && !verdict.sound());
}

#[test]
fn a_ceiling_is_exact_and_about_served_requests() {
    // A p95 allows 5 % over the limit, and not one more.
    let slow = |bad: u64| move |i: u64| (if i % 100 < bad { 401 * MS } else { 10 * MS }, Fate::Served);
    assert!(judge(&experiment(), &run(vec![requests(0, 80, 0..60, slow(5))])).sound());
    let verdict = judge(&experiment(), &run(vec![requests(0, 80, 0..60, slow(6))]));
    assert_eq!(missed(&verdict)[0], ("before", "A", Kind::Ceiling));
    let ceiling = part(&verdict, "before", "A").part.ceiling.clone().expect("a ceiling");
    assert_eq!((ceiling.statistic.as_str(), ceiling.limit_ms, ceiling.value_ms), ("p95", 400.0, Some(401.0)));
    // A time equal to the limit is within it. Late sheds do not count.
    let even = |i: u64| if i.is_multiple_of(2) { (50 * MS, Fate::Served) } else { (900 * MS, Fate::Shed) };
    let verdict = judge(&experiment(), &run(vec![requests(2, 80, 0..60, even)]));
    assert!(verdict.sound(), "{:?}", missed(&verdict));
    let shed = part(&verdict, "before", "C").part.shed;
    assert_eq!((shed.count, shed.wrong, shed.latency_ms.p50, shed.latency_ms.p95), (600, 0, 900.0, 900.0));
}

#[test]
fn the_first_part_of_a_phase_is_reported_apart() {
    // The first four seconds of the surge are lost.
    let fate = |i: u64| if (20 * 90..24 * 90).contains(&i) { (MS, Fate::Shed) } else { (10 * MS, Fate::Served) };
    let verdict = judge(&experiment(), &run(vec![requests(0, 90, 0..60, fate)]));
    assert!(verdict.sound());
    let a = part(&verdict, "surge", "A");
    assert_eq!((a.part.shed.count, a.settling.shed.count, a.settling.shed.wrong), (0, 360, 360));
    assert!(!a.settling.floor.expect("a floor").ok);
    assert_eq!(a.reaction_s, Some(4.0));
}

#[test]
fn a_phase_that_is_too_short_or_a_warm_up_does_not_count() {
    let mut experiment = experiment();
    experiment.phases[0].judged = false;
    experiment.phases[1].until = Duration::from_secs(24);
    let shed = |i: u64| if i < 24 * 90 { (MS, Fate::Shed) } else { (10 * MS, Fate::Served) };
    let verdict = judge(&experiment, &run(vec![requests(0, 90, 0..60, shed)]));
    assert!(verdict.sound());
    assert_eq!(verdict.phases.iter().map(|p| p.judged).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(part(&verdict, "surge", "A").part, Part { floor: part(&verdict, "surge", "A").part.floor, ..empty() });
}

/// A class with A's ceiling over an empty interval.
fn empty() -> Part {
    let ceiling =
        CeilingVerdict { statistic: "p95".into(), limit_ms: 400.0, value_ms: None, ok: true, impossible_ms: None };
    Part { ceiling: Some(ceiling), ..Part::default() }
}

#[test]
fn requests_in_flight_at_a_border_cost_no_class_its_floor() {
    // Everything takes 4 s: requests that arrive late in a phase end in the next one, and in the last phase never.
    let verdict = judge(
        &experiment(),
        &run(vec![requests(1, 100, 0..60, |i| {
            if i < 56 * 100 { (4 * SECOND, Fate::Served) } else { ((60 * 100 - i) * 10 * MS, Fate::Cut) }
        })]),
    );
    assert!(verdict.sound(), "{:?}", missed(&verdict));
    let b = part(&verdict, "after", "B");
    assert_eq!((b.part.unfinished, b.part.floor.expect("a floor").counted_per_s), (400, 100.0));
}

#[test]
fn what_the_end_cuts_off_after_a_long_wait_was_owed() {
    let cut = |i: u64| if i < 45 * 90 { (10 * MS, Fate::Served) } else { (60 * SECOND, Fate::Cut) };
    let verdict = judge(&experiment(), &run(vec![requests(0, 90, 0..60, cut)]));
    assert_eq!(missed(&verdict), [("after", "A", Kind::Floor)]);
    let floor = part(&verdict, "after", "A").part.floor.expect("a floor");
    assert_eq!((floor.owed_per_s, floor.counted_per_s), (60.0, 0.0));
}

#[test]
fn a_backlog_that_is_served_at_the_promised_rate_is_throughput() {
    // B always has ten seconds of requests waiting. Ended requests count, though nothing is served soon.
    let late = |i: u64| if i < 50 * 200 { (10 * SECOND, Fate::Served) } else { (10 * SECOND, Fate::Cut) };
    let verdict = judge(&experiment(), &run(vec![requests(1, 200, 0..60, late)]));
    assert!(part(&verdict, "surge", "B").part.floor.expect("a floor").ok);
    // In the first phase, five seconds of requests are missing.
    assert_eq!(missed(&verdict), [("before", "B", Kind::Floor)]);
}

#[test]
fn sheds_of_an_overloaded_class_are_wrong_only_below_its_rate() {
    let wrong =
        |share| part(&judge(&experiment(), &run(vec![requests(1, 400, 0..60, of_ten(share))])), "surge", "B").part.shed;
    // 240/s, 200/s, 160/s of the guaranteed 200/s.
    let [above, at, below] = [6, 5, 4].map(wrong);
    assert_eq!((above.count, above.wrong), (15 * 160, 0));
    assert!(at.wrong <= 15 * 2, "{at:?}");
    assert!((15 * 39..=15 * 41).contains(&below.wrong), "{below:?}");
    // C has no guaranteed rate.
    let c = judge(&experiment(), &run(vec![requests(2, 100, 0..60, of_ten(1))]));
    assert_eq!((part(&c, "surge", "C").part.shed.count, part(&c, "surge", "C").part.shed.wrong), (15 * 90, 0));
}

#[test]
fn floors_that_do_not_fit_do_not_count_and_ceilings_do() {
    let mut experiment = experiment();
    // 3 CPUs of work are owed. One machine has 2 CPUs, and is alone for half of the time.
    let (from, until) = (Duration::from_secs(20), Duration::from_secs(40));
    experiment.faults.push(Fault::plain(FaultKind::Removed, from, Some(until), &[1]));
    let half = || vec![requests(0, 100, 0..60, of_ten(5)), requests(1, 200, 0..60, of_ten(5))];
    let verdict = judge(&experiment, &run(half()));
    let feasible: Vec<bool> = verdict.phases.iter().map(|p| p.feasible).collect();
    assert_eq!(feasible, [true, false, true]);
    let phases: Vec<&str> = verdict.misses().map(|miss| miss.phase.name.as_str()).collect();
    assert_eq!(phases, ["before", "before", "after", "after"]);
    assert!(!part(&verdict, "surge", "A").part.floor.expect("a floor").ok);

    let slow = |i: u64| if (20 * 100..40 * 100).contains(&i) { (SECOND, Fate::Served) } else { (MS, Fate::Served) };
    let verdict = judge(&experiment, &run(vec![requests(0, 100, 0..60, slow), requests(1, 200, 0..60, served(5))]));
    assert_eq!(missed(&verdict), [("surge", "A", Kind::Ceiling)]);
}

#[test]
// A slow machine has slow CPUs. Its disks and links are unchanged.
fn work_is_compared_with_the_oracle_and_the_machines() {
    // 500/s are offered and 400/s fit. 360/s are served, in 18 s of each 20.
    let fate = |i: u64| if i % 50 < 36 { (5 * MS, Fate::Served) } else { (MS, Fate::Shed) };
    let mut run = run(vec![requests(1, 500, 0..60, fate)]);
    let sample = |at: u64| Sample {
        at: at * SECOND,
        waiting: vec![0; 3],
        busy: vec![at as f64 * 1.9, at as f64 * 1.7],
        disk: vec![0.0; 2],
        link: vec![0.0; 2],
        ..Sample::default()
    };
    run.samples = (0..=60).step_by(4).map(sample).collect();
    let verdict = judge_against_oracle(&experiment(), &run);
    let surge = &verdict.phases[1];
    assert!((surge.served_over_oracle.expect("traffic") - 0.9).abs() < 1e-3, "{surge:?}");
    assert!((surge.utilisation - 0.9).abs() < 1e-9);
    let rates: Vec<f64> = surge.classes.iter().filter_map(|c| c.oracle_served_per_s).collect();
    assert!((rates[1] - 400.0).abs() < 0.1 && rates[0] == 0.0 && rates.len() == 3, "{rates:?}");
    assert!(judge(&experiment(), &run).phases[1].classes.iter().all(|c| c.oracle_served_per_s.is_none()));
}

#[test]
fn a_violation_breaks_a_run_that_held() {
    let mut run = run(vec![requests(0, 90, 0..60, served(30))]);
    run.violations.push(Violation { at: SECOND / 2, invariant: "window", what: "12 in flight of 10".into() });
    let verdict = judge(&experiment(), &run);
    assert!(verdict.verdict == Word::Held && !verdict.sound());
    assert_eq!((verdict.violations[0].at_s, verdict.violations[0].invariant.as_str()), (0.5, "window"));
}

#[test]
fn the_json_has_the_agreed_names() {
    let verdict = judge(&experiment(), &run(vec![requests(0, 90, 0..60, of_ten(8))]));
    let json = serde_json::to_value(&verdict).expect("plain data");
    assert_eq!(
        (&json["experiment"], &json["discipline"], &json["seed"]),
        (&"hand-made".into(), &"quorum".into(), &1.into())
    );
    assert_eq!(json["verdict"], "broken");
    let phase = &json["phases"][1];
    assert_eq!((&phase["name"], &phase["from_s"], &phase["to_s"]), (&"surge".into(), &20.0.into(), &40.0.into()));
    assert!(phase["utilisation"].is_number() && phase["served_over_oracle"].is_number());
    let a = &phase["classes"][0];
    assert_eq!((&a["class"], &a["offered_per_s"], &a["served_per_s"]), (&"A".into(), &90.0.into(), &72.0.into()));
    assert_eq!(a["floor"]["guaranteed_per_s"], 100.0);
    assert_eq!((&a["floor"]["owed_per_s"], &a["floor"]["ok"]), (&90.0.into(), &false.into()));
    assert_eq!((&a["ceiling"]["statistic"], &a["ceiling"]["limit_ms"]), (&"p95".into(), &400.0.into()));
    assert_eq!((&a["ceiling"]["value_ms"], &a["ceiling"]["ok"]), (&20.0.into(), &true.into()));
    assert_eq!((&a["shed"]["count"], &a["shed"]["wrong"]), (&270.into(), &270.into()));
    assert_eq!((&a["shed"]["latency_ms"]["p50"], &a["shed"]["latency_ms"]["p95"]), (&3.0.into(), &3.0.into()));
    assert!(a["reaction_s"].is_null() && a["settling"]["offered_per_s"].is_number());
    assert!(phase["classes"][2]["floor"].is_null());
    let back: Verdict = serde_json::from_value(json).expect("it reads back");
    assert_eq!(back.misses().count(), 3);
}

/// However the requests of a class arrive: if all are served in time, nothing is missed and the reaction is
/// immediate.
mod served_in_full {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_never_a_miss(
            gaps in prop::collection::vec(1..40_u64, 100..4_000),
            times in prop::collection::vec(1..400_u64, 97),
            class in 0..2_u32,
        ) {
            let mut arrived = 0;
            let records = gaps.iter().enumerate().map(|(i, gap)| {
                arrived += gap * MS;
                let ended = arrived + times[i % times.len()] * MS;
                let fate = if ended < 60 * SECOND { Fate::Served } else { Fate::Cut };
                Record { traffic: class, fate, arrived, released: arrived, ended, cpu: 0.02, io: 0.0, disk: 0.0, link: 0.0, shed: None, node: None, page: None }
            });
            let run = run(vec![records.take_while(|r| r.arrived < 60 * SECOND).collect()]);
            let verdict = judge(&experiment(), &run);
            prop_assert!(verdict.sound(), "{:?}", missed(&verdict));
            prop_assert!(verdict.phases.iter().flat_map(|p| &p.classes).all(|c| c.reaction_s == Some(0.0)));
        }
    }
}
