//! Slow start: nodes that appear get a growing part of the requests, and the windows follow.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use support::{arrival, class, policy};
use weirgate_engine::*;

/// Time of the slow start in these tests.
const SPAN: Duration = Duration::from_secs(10);

/// Returns a policy with slow start for `nodes` nodes of weight 1 and one class.
fn slow(discipline: Discipline, dispatch: Dispatch, nodes: usize) -> Policy {
    let mut policy = policy(discipline, nodes, vec![class("A", None, None, None)]);
    policy.pools[0].slow_start = SPAN;
    policy.pools[0].dispatch = dispatch;
    policy
}

fn fixed() -> Discipline {
    Discipline { load_control: LoadControl::Fixed { window: None }, ..support::partitioned(1) }
}

fn at(seconds: f64) -> Time {
    Time::from_nanos((seconds * 1e9) as u64)
}

fn arrive(engine: &mut Engine, now: Time, token: u64) -> Option<(Ticket, NodeId)> {
    match engine.arrive(now, arrival(0, token, token)) {
        Decision::Release { ticket, node } => Some((ticket, node)),
        Decision::Wait { .. } | Decision::Shed(_) => None,
    }
}

/// Sends `count` requests, 200 of them in flight at a time, and returns how many each node got.
fn spread(engine: &mut Engine, now: Time, count: usize) -> Vec<usize> {
    while engine.poll(now).is_some() {}
    let mut got = vec![0; engine.policy().nodes.len()];
    let mut running = std::collections::VecDeque::new();
    for token in 0..count as u64 {
        let (ticket, node) = arrive(engine, now, token).expect("no limit");
        got[node.0 as usize] += 1;
        running.push_back(ticket);
        if running.len() > 200 {
            let first = running.pop_front().expect("one is there");
            engine.observe(now, first, Outcome::LastByte { status: 200 });
        }
    }
    for ticket in running {
        engine.observe(now, ticket, Outcome::LastByte { status: 200 });
    }
    got
}

fn shares(engine: &Engine, now: Time) -> Vec<f64> {
    engine.snapshot(now).nodes.iter().map(|node| node.share).collect()
}

#[test]
fn a_new_node_gets_a_growing_part_of_the_requests_with_every_method() {
    for dispatch in [
        Dispatch::LeastOutstanding,
        Dispatch::WeightedRoundRobin,
        Dispatch::PowerOfTwo,
        Dispatch::LeastLoaded { avoid_last: false },
    ] {
        let mut engine = Engine::new(Time::ZERO, slow(fixed(), dispatch, 2), 1).expect("valid");
        assert_eq!(shares(&engine, Time::ZERO), [1.0, 1.0], "nodes of the start begin with their full weight");
        engine.reconfigure(at(1.0), slow(fixed(), dispatch, 3)).expect("valid");
        assert_eq!(shares(&engine, at(1.0)), [1.0, 1.0, 0.1]);
        let mut before = 0;
        for (now, least, most) in [(1.0, 20, 90), (4.0, 100, 190), (6.0, 160, 260), (11.0, 270, 400)] {
            let got = spread(&mut engine, at(now), 1_000)[2];
            assert!((least..=most).contains(&got) && got > before, "{dispatch:?} at {now} s: {got}");
            before = got;
        }
        assert_eq!(shares(&engine, at(11.0)), [1.0; 3]);
    }
}

#[test]
fn the_window_grows_with_the_weight_of_a_new_node() {
    // Large enough that the least number per machine does not decide: 10,000 requests a second of 100 ms.
    let policy = |nodes| Policy {
        classes: vec![class("A", Some(10_000.0), Some((Statistic::Average, 500)), Some(100))],
        ..slow(Discipline::weirgate(), Dispatch::LeastOutstanding, nodes)
    };
    let mut engine = Engine::new(Time::ZERO, policy(20), 1).expect("valid");
    let window = |engine: &Engine, now| f64::from(engine.snapshot(now).window.expect("there is one"));
    let before = window(&engine, Time::ZERO);
    engine.reconfigure(at(1.0), policy(40)).expect("valid");
    let mut last = window(&engine, at(1.0));
    assert!(last < 2.0 * before, "{last} of {before}");
    let mut weights = Vec::new();
    for second in 1..=11 {
        let now = at(f64::from(second));
        while engine.poll(now).is_some() {}
        let size = window(&engine, now);
        // A half of the cycle in which the window is smaller may begin.
        assert!(size >= 0.7 * last, "the window shrinks from {last} to {size} while nodes start");
        last = size.max(last);
        weights.push(shares(&engine, now).iter().sum::<f64>());
    }
    assert!(weights.windows(2).all(|pair| pair[0] <= pair[1]), "{weights:?}");
    assert_eq!(weights.last(), Some(&40.0));
}

#[test]
fn the_bound_on_requests_in_flight_grows_with_the_weight() {
    let policy = |nodes| {
        let mut policy = slow(fixed(), Dispatch::LeastOutstanding, nodes);
        policy.nodes.iter_mut().for_each(|node| node.max_outstanding = Some(20));
        policy
    };
    let mut engine = Engine::new(Time::ZERO, policy(1), 1).expect("valid");
    engine.reconfigure(at(1.0), policy(2)).expect("valid");
    let mut token = 0;
    let mut fill = |engine: &mut Engine, now| {
        token += 100;
        for number in 0..100 {
            arrive(engine, now, token + number);
        }
        while engine.poll(now).is_some() {}
        engine.snapshot(now).nodes[1].outstanding
    };
    assert_eq!(fill(&mut engine, at(1.0)), 2);
    assert_eq!(engine.next_timeout().map(Time::as_nanos), Some(at(3.0).as_nanos()));
    assert_eq!(fill(&mut engine, at(6.0)), 10, "waiting requests go out when the bound grows");
    assert_eq!(fill(&mut engine, at(11.0)), 20);
}

#[test]
fn nodes_start_with_their_full_weight_if_no_other_serves_with_its_own() {
    let mut engine = Engine::new(Time::ZERO, slow(fixed(), Dispatch::LeastOutstanding, 0), 1).expect("valid");
    engine.reconfigure(at(1.0), slow(fixed(), Dispatch::LeastOutstanding, 2)).expect("valid");
    assert_eq!(shares(&engine, at(1.0)), [1.0, 1.0]);
    // All nodes are replaced.
    let mut other = slow(fixed(), Dispatch::LeastOutstanding, 0);
    other.nodes = vec![Node::new("x", 0), Node::new("y", 0)];
    engine.reconfigure(at(2.0), other).expect("valid");
    assert_eq!(shares(&engine, at(2.0)), [1.0, 1.0]);
}

#[test]
fn a_node_that_health_checks_find_well_again_starts_slowly() {
    let mut engine = Engine::new(Time::ZERO, slow(fixed(), Dispatch::LeastOutstanding, 2), 1).expect("valid");
    engine.node(at(1.0), NodeEvent::Down(NodeId(0)));
    engine.node(at(2.0), NodeEvent::Up(NodeId(0)));
    assert_eq!(shares(&engine, at(2.0)), [0.1, 1.0]);
    engine.node(at(3.0), NodeEvent::Down(NodeId(1)));
    engine.node(at(4.0), NodeEvent::Up(NodeId(1)));
    assert_eq!(shares(&engine, at(4.0))[1], 1.0, "the other one does not serve with its full weight");
}

#[test]
fn another_policy_keeps_a_start_that_has_begun_and_may_end_it() {
    let mut engine = Engine::new(Time::ZERO, slow(fixed(), Dispatch::LeastOutstanding, 1), 1).expect("valid");
    engine.reconfigure(at(1.0), slow(fixed(), Dispatch::LeastOutstanding, 2)).expect("valid");
    engine.reconfigure(at(6.0), slow(fixed(), Dispatch::LeastOutstanding, 2)).expect("valid");
    assert_eq!(shares(&engine, at(6.0)), [1.0, 0.5]);
    let mut off = slow(fixed(), Dispatch::LeastOutstanding, 2);
    off.pools[0].slow_start = Duration::ZERO;
    engine.reconfigure(at(7.0), off).expect("valid");
    assert_eq!(shares(&engine, at(7.0)), [1.0, 1.0]);
}

#[test]
fn a_request_in_flight_on_a_node_that_leaves_finishes_and_frees_its_slot() {
    let fixed = Discipline { load_control: LoadControl::Fixed { window: Some(2) }, ..fixed() };
    let policy = |nodes| slow(fixed.clone(), Dispatch::LeastOutstanding, nodes);
    let mut engine = Engine::new(Time::ZERO, policy(2), 1).expect("valid");
    let running = [1, 2].map(|token| arrive(&mut engine, at(1.0), token).expect("room"));
    let (ticket, _) = running[usize::from(running[1].1 == NodeId(1))];
    engine.reconfigure(at(2.0), policy(1)).expect("valid");
    engine.observe(at(3.0), ticket, Outcome::LastByte { status: 200 });
    while engine.poll(at(3.0)).is_some() {}
    assert_eq!(engine.snapshot(at(3.0)).outstanding, 1);
    assert!(arrive(&mut engine, at(3.0), 3).is_some(), "its slot is free");
}

proptest! {
    /// Whatever nodes appear, leave, fail and return: shares only grow while a node stays well, they are full one span
    /// after the last event, and the timer never asks for a poll in vain.
    #[test]
    fn shares_grow_to_the_full_weight(
        events in prop::collection::vec((0u8..4, 0u32..6, 0.0f64..4.0), 1..60),
    ) {
        let mut policy = slow(fixed(), Dispatch::WeightedRoundRobin, 3);
        let mut engine = Engine::new(Time::ZERO, policy.clone(), 1).expect("valid");
        let mut now = 0.0;
        for (what, number, wait) in events {
            let before = engine.snapshot(at(now));
            let id = NodeId(number);
            match what {
                0 => {
                    let name = format!("n{number}");
                    match policy.nodes.iter().position(|node| node.name == name) {
                        Some(known) => drop(policy.nodes.remove(known)),
                        None => policy.nodes.push(Node::new(&name, 0)),
                    }
                    engine.reconfigure(at(now), policy.clone()).expect("valid");
                }
                1 => engine.node(at(now), NodeEvent::Down(id)),
                2 => engine.node(at(now), NodeEvent::Up(id)),
                _ => {
                    now += wait;
                    while engine.poll(at(now)).is_some() {}
                    let after = engine.snapshot(at(now));
                    for (was, is) in before.nodes.iter().zip(&after.nodes) {
                        prop_assert!(is.share >= was.share, "{} shrinks from {} to {}", is.name, was.share, is.share);
                    }
                    prop_assert!(engine.next_timeout().is_none_or(|next| next > at(now)));
                }
            }
            prop_assert!(engine.snapshot(at(now)).nodes.iter().all(|node| (0.1..=1.0).contains(&node.share)));
        }
        now += SPAN.as_secs_f64() + 1e-6;
        while engine.poll(at(now)).is_some() {}
        prop_assert!(shares(&engine, at(now)).iter().all(|share| *share == 1.0));
        prop_assert_eq!(engine.next_timeout(), None);
    }
}
