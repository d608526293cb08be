//! Tests of the ledger: known sequences, and an oracle that counts all events.

use super::*;
use crate::policy::ResponseTime;
use proptest::prelude::*;

const AT: fn(u64) -> Time = Time::from_millis;

fn p95(rate: f64, limit: u64) -> Guarantee {
    let limit = Duration::from_millis(limit);
    Guarantee {
        throughput: Some(rate),
        response_time: Some(ResponseTime { statistic: Statistic::Percentile(95.0), limit }),
    }
}

fn mean(rate: f64, limit: u64) -> Guarantee {
    let limit = Duration::from_millis(limit);
    Guarantee { throughput: Some(rate), response_time: Some(ResponseTime { statistic: Statistic::Average, limit }) }
}

fn unlimited(rate: f64) -> Guarantee {
    Guarantee { throughput: Some(rate), response_time: None }
}

/// Outcome of an arrival, with its time in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered(u64),
    Left(u64),
    Refused,
}

/// Plays requests until `end` and returns every 10 ms whether the guarantee is held.
fn held(guarantee: Guarantee, service: Option<f64>, requests: &[(u64, Fate)], end: u64) -> Vec<(u64, bool)> {
    let terms = Terms::of(&guarantee, service);
    let mut ledger = Ledger::new(AT(requests.first().map_or(0, |r| r.0)), terms);
    let mut ends: Vec<(u64, usize)> = Vec::new();
    let mut owed = vec![false; requests.len()];
    for (index, (arrived, fate)) in requests.iter().enumerate() {
        if let Fate::Answered(took) | Fate::Left(took) = fate {
            ends.push((arrived + took, index));
        }
    }
    ends.sort_unstable();
    let (mut ends, mut next, mut said) = (ends.into_iter().peekable(), 0, Vec::new());
    for now in 0..=end {
        while next < requests.len() && requests[next].0 <= now {
            owed[next] = ledger.offered(AT(now), guarantee.throughput.unwrap());
            next += 1;
        }
        while let Some((_, index)) = ends.next_if(|(at, _)| *at <= now) {
            let (arrived, fate) = requests[index];
            match fate {
                Fate::Answered(_) => ledger.answered(AT(now), AT(arrived)),
                Fate::Left(took) if owed[index] && u128::from(took) <= terms.limit.as_millis() => {
                    ledger.left(AT(now), AT(arrived));
                }
                Fate::Left(_) | Fate::Refused => {}
            }
        }
        if now % 10 == 0 {
            said.push((now, ledger.is_held(AT(now), terms)));
        }
    }
    said
}

fn first(said: &[(u64, bool)], what: bool) -> Option<u64> {
    said.iter().find(|(_, held)| *held == what).map(|(at, _)| *at)
}

/// Requests at random times, answered after exponential times.
fn calm(rate: f64, took: f64, end: u64, seed: u64) -> Vec<(u64, Fate)> {
    let mut random = crate::random::Random::new(seed);
    let mut exponential = |mean: f64| -mean * (1.0 - random.unit()).ln();
    let (mut at, mut requests) = (0.0, Vec::new());
    loop {
        at += exponential(1000.0 / rate);
        if at >= end as f64 {
            return requests;
        }
        requests.push((at as u64, Fate::Answered(exponential(took) as u64)));
    }
}

#[test]
fn a_class_that_is_served_is_never_said_to_lack_anything() {
    for seed in 0..5 {
        for (guarantee, rate, took) in [
            (p95(100.0, 200), 90.0, 40.0),
            // It sends twice its rate, and all of it is served.
            (p95(100.0, 200), 200.0, 40.0),
            (p95(0.1, 200), 0.1, 50.0),
            (p95(0.1, 200), 1.0, 50.0),
            // It stays at its limits.
            (p95(50.0, 300), 45.0, 100.0),
            (mean(50.0, 100), 45.0, 100.0),
            (mean(50.0, 1000), 45.0, 1000.0),
        ] {
            let said = held(guarantee, None, &calm(rate, took, 60_000, seed), 70_000);
            assert_eq!(first(&said, false), None, "{guarantee:?} {rate} {took} {seed}");
        }
        // Long pages without a limit and with a known service time.
        let said = held(unlimited(5.0), Some(3.0), &calm(5.0, 3000.0, 120_000, seed), 150_000);
        assert_eq!(first(&said, false), None, "{seed}");
    }
}

#[test]
fn a_burst_leaves_no_trace_when_it_was_served() {
    let burst = |n: u64, gap: u64| (0..n).map(move |i| (1_990, Fate::Answered(i * gap))).collect::<Vec<_>>();
    // Requests beyond the bucket of a hundred may be answered late or never.
    let requests: Vec<_> = burst(100, 1).into_iter().chain((0..400).map(|_| (1_990, Fate::Refused))).collect();
    assert_eq!(first(&held(p95(100.0, 200), None, &requests, 40_000), false), None);
    assert_eq!(first(&held(p95(100.0, 200), None, &burst(500, 1), 40_000), false), None);
    let too_slow = held(p95(100.0, 200), None, &burst(500, 100), 40_000);
    assert!(first(&too_slow, false).is_some_and(|at| (2_390..2_900).contains(&at)), "{:?}", first(&too_slow, false));
}

#[test]
fn what_waits_or_is_in_flight_for_too_long_is_not_served() {
    // Every request is accepted, and a tenth of them is served.
    let requests: Vec<_> = (0..3000).map(|i| (i * 10, Fate::Answered(9 * i * 10))).collect();
    for guarantee in [p95(100.0, 200), mean(100.0, 200), unlimited(100.0)] {
        let said = held(guarantee, None, &requests, 30_000);
        let from = first(&said, false).unwrap();
        assert!(from < 3_000, "{guarantee:?}: {from}");
        assert!(said.iter().all(|(at, held)| *at < from || !held), "{guarantee:?}: it stays so");
    }
    // No request is answered from here on, and then the class sends none.
    let hang: Vec<_> =
        (0..600).map(|i| (i * 10, if i < 500 { Fate::Answered(20) } else { Fate::Answered(1_000_000) })).collect();
    let said = held(p95(100.0, 200), None, &hang, 20_000);
    assert!(first(&said, false).is_some_and(|at| (5_400..5_700).contains(&at)), "{:?}", first(&said, false));
    assert_eq!(said.iter().rev().find(|(_, held)| !held).map(|(at, _)| *at / 1000), Some(15), "ten seconds later");
}

#[test]
fn a_share_that_is_lost_is_seen_whatever_the_limit() {
    for (limit, lost) in [(50, 50), (200, 50), (1000, 30), (3000, 20)] {
        let requests: Vec<_> =
            (0..9000).map(|i| (i * 10, if i % lost == 3 { Fate::Refused } else { Fate::Answered(20) })).collect();
        let said = held(p95(100.0, limit), None, &requests, 90_000);
        let late = said.iter().filter(|(at, _)| *at > 30_000);
        assert!(late.clone().all(|(_, held)| !held), "1 in {lost}, {limit} ms");
    }
    let requests: Vec<_> =
        (0..9000).map(|i| (i * 10, if i % 300 == 3 { Fate::Refused } else { Fate::Answered(20) })).collect();
    let said = held(p95(100.0, 200), None, &requests, 90_000);
    assert!(said.iter().all(|(at, held)| *at < 10_000 || *held), "1 in 300 is allowed");
}

#[test]
fn throughput_is_held_even_if_every_answer_is_late() {
    let requests: Vec<_> = (0..9000).map(|i| (i * 10, Fate::Answered(5_000))).collect();
    let said = held(p95(100.0, 200), None, &requests, 90_000);
    assert!(said.iter().filter(|(at, _)| *at > 20_000).all(|(_, held)| *held));
}

#[test]
fn a_client_that_leaves_in_time_is_owed_nothing() {
    let left = |took: u64| (0..2000).map(|i| (i * 10, Fate::Left(took))).collect::<Vec<_>>();
    assert_eq!(first(&held(p95(100.0, 200), None, &left(150), 30_000), false), None);
    assert!(first(&held(p95(100.0, 200), None, &left(900), 30_000), false).is_some());
}

#[test]
fn it_knows_a_class_that_asks_for_more_than_its_guarantee() {
    let play = |rate: f64, gap: u64| {
        let mut ledger = Ledger::new(AT(0), Terms::of(&unlimited(rate), None));
        (0..20_000).step_by(gap as usize).for_each(|at| {
            ledger.offered(AT(at), rate);
        });
        ledger
    };
    assert!(play(100.0, 10).asks_within(AT(20_000)) && play(0.5, 3000).asks_within(AT(20_000)));
    assert!(!play(100.0, 8).asks_within(AT(20_000)) && !play(1.0, 100).asks_within(AT(20_000)));
    // It has stopped sending.
    assert!(play(100.0, 5).asks_within(AT(23_000)));
}

/// The same count, computed from the events over the same slot boundaries.
fn brute(guarantee: Guarantee, requests: &[(u64, Fate)], now: u64) -> bool {
    let terms = Terms::of(&guarantee, None);
    let (rate, patience) = (guarantee.throughput.unwrap(), terms.patience.as_millis() as u64);
    let limit = terms.limit.as_millis() as u64;
    let length = terms.length / 1_000_000;
    let begin = (now / length).saturating_sub(39) * length;
    // A bucket in exact thousandths of a token.
    let (depth, rate) = ((rate * 1e3).max(1e3) as u64, rate as u64);
    let (mut level, mut at) = (depth, 0);
    let (mut all, mut ended) = (0, 0);
    // Owed and answered requests among those that arrived before one patience ago, and before two.
    let mut old = [1, 2].map(|times| (now.saturating_sub(times * patience) / length * length, 0, 0));
    for (arrived, fate) in requests.iter().filter(|(arrived, _)| *arrived <= now) {
        level = (level + (arrived - at) * rate).min(depth);
        at = *arrived;
        let mut due = level >= 1000;
        if due {
            level -= 1000;
        }
        let mut served = false;
        match fate {
            Fate::Answered(took) => {
                served = arrived + took <= now;
                ended += u64::from(served && arrived + took >= begin);
            }
            Fate::Left(took) => due &= arrived + took > now || *took > limit,
            Fate::Refused => {}
        }
        all += u64::from(due && *arrived >= begin);
        for (end, owed, answered) in &mut old {
            let counts = (begin..*end).contains(arrived);
            *owed += u64::from(counts && due);
            *answered += u64::from(counts && served);
        }
    }
    let enough = |served: u64, owed: u64| served * 100 >= owed * 99;
    let [(_, owed, answered), (_, older, of_older)] = old;
    enough(ended, all) || (enough(answered, owed) || answered + 2 >= owed) && enough(of_older, older)
}

proptest! {
    #[test]
    fn it_says_what_a_count_over_all_events_says(
        rate in 1u32..60,
        limit in 50u64..4000,
        is_mean: bool,
        lengths in prop::collection::vec((0u64..400, 0u64..5000, 0u8..20), 1..250),
    ) {
        let guarantee = if is_mean { mean(f64::from(rate), limit) } else { p95(f64::from(rate), limit) };
        let mut arrived = 0;
        let requests: Vec<_> = lengths
            .iter()
            .map(|(gap, took, fate)| {
                arrived += gap;
                (arrived, match fate {
                    0 => Fate::Refused,
                    1 => Fate::Left(*took),
                    // Many are quick, so that both results are frequent.
                    n => Fate::Answered(took / u64::from(*n).pow(2)),
                })
            })
            .collect();
        for (now, held) in held(guarantee, None, &requests, arrived + 15_000).into_iter().step_by(13) {
            prop_assert_eq!(held, brute(guarantee, &requests, now), "at {} ms", now);
        }
    }
}
