//! Tests of events.

use std::time::Duration;

use weirgate_engine::{
    Achieved, ClassSnapshot, Guarantee, Mode, NodeSnapshot, NodeState, ResponseTime, ShedReason, Snapshot, Statistic,
    Time,
};
use weirgate_wire::admin::EventKind::{self, *};

use super::classes::Looks;
use super::{AT_ONCE, Events, KEPT, connections};
use crate::examples;

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// A class with 100/s and a p95 of 300 ms that keeps both.
fn gold() -> ClassSnapshot {
    let limit = ResponseTime { statistic: Statistic::Percentile(95.0), limit: Duration::from_millis(300) };
    ClassSnapshot {
        name: "gold".into(),
        key: None,
        guarantee: Guarantee { throughput: Some(100.0), response_time: Some(limit) },
        part: None,
        offered: 0,
        shed: [0; ShedReason::ALL.len()],
        mode: Mode::Enforce,
        would_shed: [0; ShedReason::ALL.len()],
        impossible: false,
        achieved: Achieved {
            offered_per_s: 120.0,
            served_per_s: 90.0,
            limited: Some((limit.statistic, Duration::from_millis(412))),
            throughput_held: Some(true),
            response_time_held: Some(true),
            ..Achieved::default()
        },
        ..examples::class()
    }
}

fn node(name: &str, state: NodeState) -> NodeSnapshot {
    let one = examples::snapshot().nodes.remove(0);
    NodeSnapshot { name: name.into(), pool: "web".into(), state, ..one }
}

/// Takes a look at `classes` and `nodes` at second `now`, and returns the new events.
fn look(events: &Events, now: u64, classes: &[ClassSnapshot], nodes: Vec<NodeSnapshot>) -> Vec<(EventKind, String)> {
    look_at(events, now, 1, classes, nodes)
}

fn look_at(
    events: &Events,
    now: u64,
    version: u64,
    classes: &[ClassSnapshot],
    nodes: Vec<NodeSnapshot>,
) -> Vec<(EventKind, String)> {
    let before = events.since(0, at(now)).events.last().map_or(0, |event| event.number);
    let mut looks = Looks::default();
    classes.iter().for_each(|class| looks.add(class));
    let whole = Snapshot { now: at(now), nodes, ..examples::snapshot() };
    let looks = (connections::Look::default(), &looks);
    let messages = events.look((version, "abc"), &whole, looks, &[], Duration::from_secs(1_000 + now));
    let new = events.since(before, at(now)).events;
    let expected: Vec<&str> = new.iter().map(|event| event.text.as_str()).collect();
    let said: Vec<&str> = messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(said, expected, "standard error says the same");
    assert!(messages.iter().all(|message| message.event.as_ref().is_some_and(|name| !name.is_empty())));
    new.into_iter().map(|event| (event.kind, event.text)).collect()
}

#[test]
fn refusals_are_told_when_they_begin_and_after_a_quiet_while() {
    let events = Events::default();
    let refusing = |offered, overload: u64, queue_full: u64| {
        let mut class = ClassSnapshot { offered, ..gold() };
        class.shed[ShedReason::Overload.index()] = overload;
        class.shed[ShedReason::QueueFull.index()] = queue_full;
        class
    };
    // Counts of the time before the first look are not told.
    assert_eq!(look(&events, 1, &[refusing(500, 7, 0)], vec![]), []);
    let told = look(&events, 2, &[refusing(620, 20, 1)], vec![]);
    let why = "the class sends 120/s, more than its guarantee of 100/s, and the nodes have no capacity left";
    assert_eq!(told, [(SheddingBegan, format!("class gold: requests are refused (overload): {why}"))]);
    assert_eq!(look(&events, 3, &[refusing(740, 30, 1)], vec![]), []);
    let shown = &events.since(0, at(3)).refusals;
    assert_eq!((shown.len(), shown[0].count, shown[0].offered, shown[0].lasts), (1, 24, 240, true));
    assert_eq!((shown[0].reason.as_str(), shown[0].why.as_str()), ("overload", why));
    // Nothing is told while it may begin again.
    assert_eq!(look(&events, 12, &[refusing(1700, 30, 1)], vec![]), []);
    let told = look(&events, 13, &[refusing(1820, 30, 1)], vec![]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, SheddingEnded);
    assert!(told[0].1.contains("no request has been refused for 10 s. Before, 24 of 1200"), "{told:?}");
    let shown = &events.since(0, at(13)).refusals;
    assert_eq!((shown.len(), shown[0].lasts, shown[0].to_seconds), (1, false, 3.0));
}

#[test]
fn refusals_that_observing_prevents_are_told_apart_from_real_ones() {
    let events = Events::default();
    let class = |offered, would: u64, refused: u64| {
        let mut class = ClassSnapshot { offered, mode: Mode::Observe, ..gold() };
        class.achieved.would_shed_per_s = would as f64;
        class.would_shed[ShedReason::QueueTimeout.index()] = would;
        class.shed[ShedReason::TooLarge.index()] = refused;
        class
    };
    assert_eq!(look(&events, 1, &[class(500, 7, 0)], vec![]), []);
    let told = look(&events, 2, &[class(620, 20, 0)], vec![]);
    let text = "class gold is observed: requests pass that would be refused (queue_timeout): the queue of the class \
                allows no longer wait";
    assert_eq!(told, [(WouldShedBegan, text.to_owned())]);
    assert_eq!(look(&events, 3, &[class(740, 30, 0)], vec![]), []);
    assert_eq!(events.since(0, at(3)).refusals, [], "nothing was refused");
    let told = look(&events, 4, &[class(860, 30, 1)], vec![]);
    assert_eq!(told.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [SheddingBegan]);
    let told = look(&events, 13, &[class(1900, 30, 1)], vec![]);
    let text = "class gold is observed: no request would have been refused for 10 s. Before, 23 of 360 would have been \
                refused within 1 s, most of them with the reason queue_timeout";
    assert!(told.contains(&(WouldShedEnded, text.to_owned())), "{told:?}");
}

#[test]
fn a_missed_guarantee_is_told_once_until_it_has_been_held_for_a_while() {
    let events = Events::default();
    let missing = |throughput: bool, response_time: bool| {
        let mut class = gold();
        class.achieved.throughput_held = Some(!throughput);
        class.achieved.response_time_held = Some(!response_time);
        class
    };
    let told = look(&events, 1, &[missing(true, false)], vec![]);
    let text = "class gold: the guaranteed throughput is missed: 90/s served of 120/s sent, guaranteed 100/s";
    assert_eq!(told, [(GuaranteeMissed, text.to_owned())]);
    let told = look(&events, 2, &[missing(true, true)], vec![]);
    let text = "class gold: the guaranteed response time is missed: p95 is 412 ms, its limit 300 ms";
    assert_eq!(told, [(GuaranteeMissed, text.to_owned())]);
    for second in 3..11 {
        assert_eq!(look(&events, second, &[missing(false, second < 6)], vec![]), []);
    }
    assert_eq!(look(&events, 11, &[gold()], vec![]), []);
    let told = look(&events, 12, &[gold()], vec![]);
    assert_eq!(told, [(GuaranteeHeld, "class gold: the guaranteed throughput is held again".to_owned())]);
    assert_eq!(look(&events, 15, &[gold()], vec![]).len(), 1);
}

#[test]
fn an_impossible_limit_is_told_once_with_its_figures() {
    let events = Events::default();
    let impossible = |limit| {
        let mut class = ClassSnapshot { impossible: true, ..gold() };
        class.service_time = Some(Duration::from_micros(152_340));
        class.guarantee.response_time.as_mut().unwrap().limit = Duration::from_millis(limit);
        class
    };
    let text = "class gold: its limit p95 <= 100ms is impossible: its requests take 152.3ms on average without \
                contention. Raise the limit or make the requests cheaper";
    assert_eq!(look(&events, 1, &[impossible(100)], vec![]), [(LimitImpossible, text.to_owned())]);
    assert_eq!(look(&events, 2, &[impossible(100)], vec![]), []);
    assert!(look(&events, 3, &[impossible(120)], vec![])[0].1.contains("p95 <= 120ms"));
    let possible = "class gold: its limit is possible again".to_owned();
    assert_eq!(look(&events, 4, &[gold()], vec![]), [(LimitPossible, possible)]);
}

#[test]
fn the_classes_of_a_template_share_their_events() {
    let events = Events::default();
    let tenant = |key: &str| {
        let mut class = ClassSnapshot { name: "tenant".into(), key: Some(key.into()), ..gold() };
        class.achieved.throughput_held = Some(false);
        class
    };
    let told = look(&events, 1, &[tenant("acme"), tenant("b"), tenant("c")], vec![]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].1.starts_with("class tenant (key acme, and 2 more): the guaranteed throughput"), "{told:?}");
}

#[test]
fn nodes_that_change_are_told_with_what_is_left() {
    let events = Events::default();
    let nodes = |a, b| vec![node("a", a), node("b", b)];
    let ejected = NodeState::Ejected { until: at(60) };
    assert_eq!(look(&events, 1, &[], nodes(NodeState::Up, NodeState::Down)), [], "the first look is no change");
    let told = look(&events, 2, &[], nodes(ejected, NodeState::Down));
    let kinds: Vec<_> = told.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [NodeEjected, UpstreamUnusable]);
    assert_eq!(
        told[0].1,
        "node a of upstream web is ejected for a while: its requests failed. 0 of 2 nodes of upstream \
                           web are usable"
    );
    let told = look(&events, 3, &[], nodes(ejected, NodeState::Up));
    let kinds: Vec<_> = told.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [NodeUp, UpstreamUsable]);
    // A longer ejection is no change.
    assert_eq!(look(&events, 4, &[], nodes(NodeState::Ejected { until: at(90) }, NodeState::Up)), []);
    let told = look_at(&events, 5, 2, &[], vec![node("b", NodeState::Up), node("c", NodeState::Up)]);
    let kinds: Vec<_> = told.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [PolicyChanged, NodeAppeared, NodeLeft]);
}

#[test]
fn events_are_bounded_in_number_and_at_once() {
    let events = Events::default();
    let many = |state| (0..300).map(|n| node(&format!("n{n}"), state)).collect::<Vec<_>>();
    look(&events, 1, &[], many(NodeState::Up));
    let told = look(&events, 2, &[], many(NodeState::Down));
    assert_eq!(told.len(), AT_ONCE + 1);
    assert_eq!(told[AT_ONCE], (More, "261 more changes at the same time".to_owned()));
    for second in 3..30 {
        let state = if second % 2 == 0 { NodeState::Down } else { NodeState::Up };
        look(&events, second, &[], many(state));
    }
    assert_eq!(events.since(0, at(30)).events.len(), KEPT);
}

#[test]
fn readiness_knows_whether_any_node_is_usable() {
    let events = Events::default();
    assert_eq!(events.unusable(), (0, false), "before the first look");
    look(&events, 1, &[], vec![node("n1", NodeState::Up), node("n2", NodeState::Down)]);
    assert_eq!(events.unusable(), (0, false));
    let other = NodeSnapshot { pool: "other".into(), ..node("n1", NodeState::Up) };
    look(&events, 2, &[], vec![node("n1", NodeState::Down), other.clone()]);
    assert_eq!(events.unusable(), (1, false));
    look(&events, 3, &[], vec![node("n1", NodeState::Down), NodeSnapshot { state: NodeState::Draining, ..other }]);
    assert_eq!(events.unusable(), (2, true));
    look(&events, 4, &[], vec![]);
    assert_eq!(events.unusable(), (0, false), "sources that have named no nodes yet");
}
