//! Machines of the shadow against results that are known, and against processor sharing by small steps.

use super::*;
use crate::random::Random;

const M: MachineId = MachineId(0);
const MS: f64 = 1e6;

fn at(ms: f64) -> Time {
    Time::from_nanos((ms * MS).round() as u64)
}

fn machine(capacity: Option<f64>) -> Servers {
    Servers::new(Time::ZERO, [capacity].into_iter())
}

/// Requests that end by `until`, in order, each with its time in milliseconds.
fn ends(servers: &mut Servers, until: f64) -> Vec<(u32, f64)> {
    let mut ended = Vec::new();
    while let Some((now, machine)) = servers.next().filter(|(now, _)| *now <= at(until)) {
        let request = servers.finish(now, machine).expect("one is due");
        ended.push((request, (now.as_nanos() as f64 / MS * 10.0).round() / 10.0));
    }
    ended
}

#[test]
fn a_declared_capacity_is_shared_equally() {
    let mut servers = machine(Some(2.0));
    servers.carries(Time::ZERO, M, 100);
    (0..4).for_each(|request| servers.enter(Time::ZERO, M, request, 10.0 * MS));
    servers.enter(at(10.0), M, 4, 10.0 * MS);
    // Four at half speed have 5 ms left at 10 ms. Then five share two CPUs: 12.5 ms more. The last one is alone.
    assert_eq!(ends(&mut servers, 100.0), [(0, 22.5), (1, 22.5), (2, 22.5), (3, 22.5), (4, 27.5)]);
}

#[test]
fn a_real_machine_that_has_less_to_do_earns_less() {
    let mut servers = machine(Some(4.0));
    servers.carries(Time::ZERO, M, 1);
    (0..2).for_each(|request| servers.enter(Time::ZERO, M, request, 10.0 * MS));
    assert_eq!(ends(&mut servers, 10.0), []);
    // Nothing is in flight any more: the rest takes its service time.
    servers.carries(at(10.0), M, 0);
    assert_eq!(ends(&mut servers, 100.0), [(0, 15.0), (1, 15.0)]);
}

#[test]
fn without_a_capacity_each_answer_is_worth_its_service_time() {
    let mut servers = machine(None);
    servers.carries(Time::ZERO, M, 100);
    (0..3).for_each(|request| servers.enter(Time::ZERO, M, request, 10.0 * MS));
    assert_eq!(ends(&mut servers, 50.0), []);
    servers.answered(at(50.0), M, 30.0 * MS, true);
    assert_eq!(ends(&mut servers, 59.9), [], "none takes less than its service time");
    assert_eq!(ends(&mut servers, 60.0).len(), 3);
    // Nothing is left.
    servers.enter(at(60.0), M, 3, 10.0 * MS);
    assert_eq!(ends(&mut servers, 1_000.0), []);
    // Savings are bounded: of a thousand answers 32 count.
    (0..1_000).for_each(|_| servers.answered(at(1_000.0), M, 10.0 * MS, true));
    (4..100).for_each(|request| servers.enter(at(1_000.0), M, request, 10.0 * MS));
    assert_eq!(ends(&mut servers, 9_000.0), []);
    (4..100).for_each(|request| servers.remove(at(9_000.0), M, request, false));
    assert_eq!(ends(&mut servers, 9_500.0), [], "97 have shared 320 ms");
    servers.answered(at(9_500.0), M, 10.0 * MS, true);
    assert_eq!(ends(&mut servers, 9_600.0), [(3, 9_506.7)]);
}

/// Twenty answers a second are seen for a while. Then clients leave, and what they leave behind is worth no more.
#[test]
fn requests_that_ended_early_earn_what_the_machine_can_have_done() {
    let mut servers = machine(None);
    servers.carries(Time::ZERO, M, 100);
    for number in 0..200 {
        servers.answered(at(f64::from(number) * 50.0), M, 10.0 * MS, true);
    }
    servers.enter(at(10_000.0), M, 0, 1e6 * MS);
    for number in 0..1_000 {
        servers.answered(at(10_000.0 + f64::from(number) * 10.0), M, 10.0 * MS, false);
    }
    let had = 1e6 - servers.left(at(20_000.0), M, 0) / MS;
    // Ten seconds of 200 ms each, the savings of 320 ms, and the room of two seconds.
    assert!((2_000.0..=2_750.0).contains(&had), "{had}");
}

#[test]
fn an_early_end_uses_its_whole_work() {
    let mut servers = machine(Some(1.0));
    servers.carries(Time::ZERO, M, 100);
    servers.enter(Time::ZERO, M, 0, 10.0 * MS);
    servers.remove(at(4.0), M, 0, true);
    servers.enter(at(4.0), M, 1, 10.0 * MS);
    assert_eq!(ends(&mut servers, 100.0), [(1, 20.0)], "6 ms are owed for the first");
    servers.enter(at(20.0), M, 2, 10.0 * MS);
    servers.remove(at(24.0), M, 2, false);
    servers.enter(at(24.0), M, 3, 10.0 * MS);
    assert_eq!(ends(&mut servers, 100.0), [(3, 34.0)], "one that was not served owes nothing");
}

/// Processor sharing by steps of 10 µs, without any of the formulas.
#[test]
fn ends_agree_with_small_steps() {
    const STEP: f64 = 0.01;
    let mut compared = 0;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let capacity = 0.5 + random.unit() * 4.0;
        let mut servers = machine(Some(capacity));
        servers.carries(Time::ZERO, M, 1_000);
        let mut left: Vec<(u32, f64)> = Vec::new();
        let (mut now, mut next, mut got, mut expected) = (0.0, 0, Vec::new(), Vec::new());
        for _ in 0..60 {
            let work = 1.0 + random.unit() * 20.0;
            servers.enter(at(now), M, next, work * MS);
            left.push((next, work));
            next += 1;
            let until = now + (random.unit() * 800.0).floor() * STEP;
            got.extend(ends(&mut servers, until));
            while now < until - STEP / 2.0 {
                now += STEP;
                let each = STEP * (capacity / left.len().max(1) as f64).min(1.0);
                left.iter_mut().for_each(|(_, work)| *work -= each);
                expected.extend(left.iter().filter(|(_, work)| *work <= 0.0).map(|(request, _)| (*request, now)));
                left.retain(|(_, work)| *work > 0.0);
            }
            now = until;
        }
        // Requests that end within a few steps of one another may change places, and the last ones may be missing.
        let sorted = |mut ends: Vec<(u32, f64)>| {
            ends.sort_by_key(|(request, _)| *request);
            ends
        };
        let (got, expected) = (sorted(got), sorted(expected));
        assert!(got.len().abs_diff(expected.len()) <= 2, "seed {seed}");
        compared += got.len();
        for (request, end) in &got {
            let Some((_, other)) = expected.iter().find(|(same, _)| same == request) else { continue };
            assert!((end - other).abs() < 0.5, "seed {seed}: {request} ends at {end}, not {other}");
        }
    }
    assert!(compared > 800, "{compared}");
}
