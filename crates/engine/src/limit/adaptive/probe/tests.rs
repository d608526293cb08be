//! The search for the knee, and what a cycle proves.

use super::*;

const AT: fn(u64) -> Time = Time::from_millis;

fn probe(base: f64) -> Probe {
    let mut probe = Probe::new(AT(0), Adaptive::default());
    probe.needs(AT(0), 5.0, 1, 1.0);
    probe.base = base;
    probe
}

/// A cycle whose halves last a second, with these numbers in flight. The slots are given back once in a turnover.
fn swung(in_flight: [f64; 2], turnover: f64) -> Cycle {
    Cycle { in_flight, all: None, seconds: [1.0, 1.0], turnover }
}

/// Runs a cycle between the base and the window above it, with these completions of equal work in each half.
fn cycle(probe: &mut Probe, work: [f64; 2]) {
    let in_flight = [probe.base, probe.bound()];
    let lesson = probe.learn(work, swung(in_flight, in_flight[0] / work[0]));
    probe.step(lesson);
}

#[test]
fn the_knee_is_found_from_either_side_within_a_few_cycles() {
    for first in [5.0, 80.0, 400.0] {
        let mut probe = probe(first);
        // Twenty requests run at a time. Each of them completes 500 times in each half.
        let done = |in_flight: f64| 500.0 * in_flight.min(20.0);
        let mut cycles = 0;
        while probe.search != Search::Over {
            let halves = [done(probe.base), done(probe.bound())];
            cycle(&mut probe, halves);
            cycles += 1;
        }
        assert!(cycles <= 14 && (13.0..30.0).contains(&probe.base), "from {first}: {} after {cycles}", probe.base);
    }
}

#[test]
fn a_few_long_answers_at_once_prove_no_more_than_was_in_flight() {
    let mut probe = probe(8.0);
    let mut halves = Halves::default();
    probe.note(AT(0), 0, false);
    // Seven polls of 12.6 s end within a fifth of a second in which 14 requests are in flight.
    (0..7).for_each(|n| probe.completed(AT(100 + n), ClassId(0), &mut halves, 12.6));
    probe.note(AT(0), 14, false);
    probe.note(AT(200), 14, false);
    probe.proven(AT(200), HalfCycle::Free);
    assert!(probe.base <= 14.0, "{}", probe.base);
}

#[test]
fn what_the_window_held_back_proves_nothing() {
    let mut probe = probe(10.0);
    let mut halves = Halves::default();
    (0..130).for_each(|n| probe.completed(AT(1 + n), ClassId(0), &mut halves, 0.1));
    probe.note(AT(1000), 13, true);
    probe.proven(AT(1000), HalfCycle::High);
    assert_eq!(probe.base, 10.0, "13 in flight are the window itself");
}

/// Allowances keep forty requests in flight, whatever a window of ten says. The window bounds nothing, so it would
/// learn nothing. From forty on it swings.
#[test]
fn a_window_below_what_is_in_flight_anyway_rises_to_it() {
    let risen = |in_flight: [f64; 2], search| {
        let mut probe = probe(10.0);
        probe.search = search;
        assert_eq!(probe.sizes(), [10.0, 13.0]);
        for _ in 0..2 {
            assert_eq!(probe.base, 10.0, "a burst is gone after three seconds");
            probe.rises(Cycle { seconds: [0.6, 1.2], ..swung(in_flight, 1.0) });
        }
        probe.base
    };
    assert_eq!(risen([40.0, 41.0], Search::Begun), 40.0);
    assert_eq!(risen([40.0, 12.0], Search::Begun), 10.0, "the high half bounded it");
    assert_eq!(risen([10.0, 13.0], Search::Begun), 10.0, "it has followed the window");
    assert_eq!(risen([40.0, 41.0], Search::Down), 10.0, "requests are known to wait for one another");
    assert_eq!(risen([40.0, 41.0], Search::Over), 10.0);
}

#[test]
fn a_trial_that_fails_leaves_the_base_as_it_was() {
    let mut probe = probe(10.0);
    probe.tries();
    probe.base = 35.0;
    probe.reverts();
    assert_eq!(probe.base, 10.0);
}

#[test]
fn the_base_is_no_smaller_than_what_is_answered_within_a_moment() {
    let least = |answers: u64, tightest: Option<Duration>| {
        let mut probe = probe(10.0);
        let mut halves = Halves::default();
        (0..answers).for_each(|_| probe.completed(AT(50), ClassId(0), &mut halves, 0.0001));
        probe.passes(AT(100), tightest);
        probe.at_least(5.0, 1);
        probe.back_off(1);
        probe.base
    };
    assert_eq!(least(4_000, None), 40.0);
    assert_eq!(least(4_000, Some(Duration::from_millis(100))), 40.0);
    assert_eq!(least(4_000, Some(Duration::from_millis(10))), 20.0, "a twentieth of the limit");
    assert_eq!(least(100, None), 5.0, "the need of the guarantees");
}

/// In a pause nothing is answered, and the base may shrink to the need. When answers come again, it is raised at the
/// end of the first half, whether this half counts for a step or not.
#[test]
fn a_base_that_has_shrunk_in_a_pause_rises_with_the_answers() {
    let mut probe = probe(10.0);
    probe.passes(AT(100), None);
    probe.at_least(3.0, 1);
    probe.back_off(1);
    assert_eq!(probe.base, 3.0);
    probe.turn(AT(100), HalfCycle::Free);
    let mut halves = Halves::default();
    (0..2_000).for_each(|_| probe.completed(AT(150), ClassId(0), &mut halves, 0.0001));
    probe.passes(AT(200), None);
    assert!((19.0..21.0).contains(&probe.base), "{}", probe.base);
}

#[test]
fn answers_that_other_engines_lose_are_no_gain() {
    // Above the knee all engines together answer as many, and one with a larger window takes more of them.
    let mut alone = probe(10.0);
    let mut beside = probe(10.0);
    for _ in 0..4 {
        cycle(&mut alone, [100.0, 130.0]);
        let all = [40.0, 43.0].map(|area| All { area, work: 400.0, answers: 400.0 });
        let cycle = Cycle { all: Some(all), ..swung([beside.base, beside.bound()], 1.0) };
        let lesson = beside.learn([100.0, 130.0], cycle);
        beside.step(lesson);
    }
    let ((alone, _), (beside, _)) = (alone.elasticity(), beside.elasticity());
    assert!(alone < 0.1 && beside > 0.9, "{alone} {beside}");
}

/// Half of the slots are held by requests of a second, and none of them ends in halves of a tenth of a second. All
/// others are short. A larger window lets in more of the short ones, and it seems to gain work.
#[test]
fn halves_in_which_no_long_request_ended_tell_little() {
    let base = |turnover: f64| {
        let mut probe = probe(20.0);
        probe.search = Search::Over;
        let short = |in_flight: f64| 100.0 * (in_flight - 10.0) / in_flight;
        for _ in 0..50 {
            let in_flight = [probe.base, probe.bound()];
            let cycle = Cycle { seconds: [0.1, 0.1], ..swung(in_flight, turnover) };
            let lesson = probe.learn(in_flight.map(short), cycle);
            probe.step(lesson);
        }
        probe.base
    };
    let (by_answers, by_slots) = (base(0.01), base(0.5));
    assert!(by_answers > 40.0 && by_slots < 22.0, "{by_answers} {by_slots}");
}

#[test]
fn a_half_lasts_until_its_slots_have_been_given_back_often_enough() {
    let ended = |turnover: Option<f64>, answers: u64, seconds: u64| {
        let mut probe = probe(10.0);
        let mut halves = Halves::default();
        probe.note(AT(0), 10, true);
        (0..answers).for_each(|n| probe.completed(AT(1 + n), ClassId(0), &mut halves, 0.01));
        probe.half(AT(1000 * seconds), 10, turnover) != HalfCycle::Unfinished
    };
    assert!(ended(Some(0.5), 100, 1), "ten slots, twice");
    assert!(!ended(Some(0.6), 100, 1), "a hundred answers of the short requests among them");
    assert!(ended(Some(0.6), 100, 2));
    assert!(!ended(Some(0.5), 0, 1), "nothing has ended");
    assert!(ended(None, 100, 1), "all have left");
}
