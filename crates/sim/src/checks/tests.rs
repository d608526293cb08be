//! Each checker finds a planted fault of its kind.

use weirgate_engine::{Arrival, Decision, Engine, Outcome};

use super::*;

/// A policy of two nodes, a window of three, and classes A and B. One node is bounded to two requests.
fn policy() -> Policy {
    let text = "
        listen: 127.0.0.1:8080
        discipline: { custom: { admit: none, load_control: { fixed: 3 }, precedence: fifo } }
        upstreams:
          web:
            nodes: [{ address: 'a:1', max_outstanding: 2 }, 'b:1']
            ejection: { consecutive_failures: 1, base: 10s, max_share: 1 }
        classes: [{ name: A, match: { path: /a }, retry: off }, { name: B, retry: off }]";
    weirgate_config::load("test", text).unwrap_or_else(|e| panic!("{e}")).site.policy
}

/// An engine with `count` requests of class A, and a correct account of its driver.
fn filled(count: u64) -> (Engine, Checks, Vec<(Ticket, NodeId)>) {
    let mut engine = Engine::new(Time::ZERO, policy(), 1).expect("a valid policy");
    let mut checks = Checks::new(engine.policy(), []);
    checks.look(&engine.snapshot(Time::ZERO));
    let mut in_flight = Vec::new();
    for token in 0..count {
        checks.arrived(0);
        let class = weirgate_engine::ClassId(0);
        match engine
            .arrive(Time::ZERO, Arrival { class, flow: token, demand: None, locality_key: None, position: 0, token })
        {
            Decision::Release { ticket, node } => {
                checks.released(0, node, None, true);
                in_flight.push((ticket, node));
            }
            Decision::Wait { .. } => checks.waits(0, None),
            Decision::Shed(shed) => panic!("{shed:?}"),
        }
    }
    (engine, checks, in_flight)
}

fn found(checks: &Checks) -> Vec<&'static str> {
    checks.violations.iter().map(|violation| violation.invariant).collect()
}

#[test]
fn good_books_are_good() {
    let (engine, mut checks, in_flight) = filled(5);
    assert_eq!((in_flight.len(), checks.waiting), (3, 2));
    let snapshot = engine.snapshot(Time::ZERO);
    checks.look_at_rest(&snapshot, Vec::new);
    checks.look_at_release(0, (in_flight[2].1, None), true, &snapshot, Vec::new);
    checks.guarantees(engine.policy(), &engine.classes(Time::ZERO, weirgate_engine::ClassId(0), 9));
    checks.conservation(&[record(Fate::Cut, 0, 0); 5]);
    assert_eq!(checks.violations, []);
}

fn record(fate: Fate, released: u64, ended: u64) -> Record {
    Record { fate, released, ended, ..Record::default() }
}

#[test]
fn time_that_falls_is_found() {
    let (_, mut checks, _) = filled(0);
    checks.time(5);
    checks.time(5);
    assert_eq!(checks.violations, []);
    checks.time(4);
    assert_eq!(found(&checks), ["time"]);
    assert!(checks.timer(Some(Time::from_nanos(6))) && checks.timer(None));
    assert!(!checks.timer(Some(Time::from_nanos(5))), "a timer that is due is no timer");
    assert_eq!(found(&checks), ["time", "time"]);
}

#[test]
fn a_lost_or_doubled_request_is_found() {
    let (_, mut checks, in_flight) = filled(1);
    let (ticket, node) = in_flight[0];
    let request = |place, ticket| Request {
        cost: None,
        document: None,
        traffic: 0,
        spec: 0,
        user: 0,
        visit: None,
        demand: Default::default(),
        key: 0,
        flow: 0,
        patience: 0,
        retries: 0,
        record: 0,
        place,
        begun: false,
        ticket,
        node: node.0,
        life: 0,
        attempt: 0,
    };
    assert!(checks.ticket(Some(&request(Place::Waiting, Some(ticket))), ticket));
    assert!(!checks.ticket(Some(&request(Place::Going, Some(ticket))), ticket), "released twice");
    assert!(!checks.ticket(Some(&request(Place::Waiting, None)), ticket), "another's");
    assert!(!checks.ticket(None, ticket), "long gone");
    assert_eq!(found(&checks), ["ticket"; 3]);
}

#[test]
fn a_release_into_a_full_window_is_found() {
    let (mut engine, mut checks, _) = filled(5);
    assert!(checks.released(0, NodeId(1), None, true), "one more than at the last look must be looked at");
    checks.waits_no_more(0);
    checks.look_at_release(0, (NodeId(1), None), true, &engine.snapshot(Time::ZERO), Vec::new);
    assert!(found(&checks).contains(&"window"), "{:?}", checks.violations);
    // A window that shrank meanwhile is no violation.
    let (shrunk, mut checks, in_flight) = filled(3);
    checks.violations.clear();
    engine = shrunk;
    engine.node(Time::ZERO, NodeEvent::Draining(NodeId(0)));
    checks.look(&engine.snapshot(Time::ZERO));
    assert_eq!((checks.groups[0].window, checks.groups[0].in_flight), (1, 3));
    let (ticket, node) = in_flight[0];
    engine.observe(Time::ZERO, ticket, Outcome::LastByte { status: 200 });
    checks.freed(0, node, None);
    checks.look_at_rest(&engine.snapshot(Time::ZERO), Vec::new);
    // A failed request that keeps its slot is no violation either.
    let node = in_flight[1].1;
    checks.look_at_release(0, (node, Some(node)), true, &engine.snapshot(Time::ZERO), Vec::new);
    assert_eq!(checks.violations, []);
    checks.look_at_release(0, (node, None), true, &engine.snapshot(Time::ZERO), Vec::new);
    assert_eq!(found(&checks), ["window"]);
}

#[test]
fn a_request_to_a_node_that_is_out_is_found() {
    for (out, back) in [
        (NodeEvent::Down(NodeId(0)), NodeEvent::Up(NodeId(0))),
        (NodeEvent::Draining(NodeId(0)), NodeEvent::Resumed(NodeId(0))),
    ] {
        let (_, mut checks, _) = filled(0);
        checks.told(out);
        checks.released(0, NodeId(0), None, true);
        assert_eq!(found(&checks), ["node"]);
        checks.told(back);
        checks.moved(0, NodeId(0), NodeId(0), None, true);
        assert_eq!(found(&checks), ["node"]);
    }
    let (_, mut checks, _) = filled(0);
    checks.released(0, NodeId(7), None, true);
    assert_eq!(found(&checks), ["node"], "there is none of that number");
}

#[test]
fn a_request_to_an_ejected_node_is_found() {
    let (mut engine, mut checks, in_flight) = filled(2);
    let (ticket, node) = in_flight[0];
    engine.observe(Time::ZERO, ticket, Outcome::Failed { retryable: false });
    checks.freed(0, node, None);
    let snapshot = engine.snapshot(Time::ZERO);
    checks.look(&snapshot);
    assert_eq!(checks.violations, []);
    assert!(checks.released(0, node, None, true), "a release to an ejected node must be looked at");
    checks.look_at_release(0, (node, None), true, &snapshot, Vec::new);
    assert!(found(&checks).contains(&"node"), "{:?}", checks.violations);
}

#[test]
fn a_node_beyond_its_bound_is_found() {
    let (_, mut checks, _) = filled(0);
    for _ in 0..3 {
        checks.released(0, NodeId(0), None, true);
    }
    assert_eq!(found(&checks), ["node"]);
}

#[test]
fn books_that_differ_are_found() {
    let (engine, mut checks, in_flight) = filled(3);
    checks.freed(0, in_flight[0].1, None);
    checks.look(&engine.snapshot(Time::ZERO));
    assert_eq!(found(&checks), ["counts"; 3], "in all, at the node and in its group");
    let (engine, mut checks, _) = filled(4);
    checks.waits_no_more(0);
    checks.look(&engine.snapshot(Time::ZERO));
    assert_eq!(found(&checks), ["counts"]);
}

#[test]
fn idleness_while_somebody_waits_is_found() {
    let (engine, mut checks, in_flight) = filled(4);
    let mut snapshot = engine.snapshot(Time::ZERO);
    checks.look_at_rest(&snapshot, Vec::new);
    assert_eq!(checks.violations, []);
    // As if the engine had not been asked for actions after a request ended.
    checks.freed(0, in_flight[0].1, None);
    snapshot.outstanding -= 1;
    snapshot.groups[0].outstanding -= 1;
    snapshot.nodes[in_flight[0].1.0 as usize].room = true;
    snapshot.nodes[in_flight[0].1.0 as usize].outstanding -= 1;
    checks.look_at_rest(&snapshot, Vec::new);
    assert_eq!(found(&checks), ["work"]);
}

/// Six requests in flight in a window of four. One of them is surplus and one hangs.
fn beyond(reach: Option<u32>) -> Group {
    let surplus = SurplusSnapshot { reach, outstanding: 1, stuck: 1, needed: 0.5, blocked: 0.0 };
    Group { window: 4, surplus: Some(surplus), in_flight: 6 }
}

#[test]
fn what_is_owed_is_bounded_by_itself_and_surplus_by_all() {
    // Four are owed, and five count.
    assert!(!beyond(None).is_over(true) && beyond(None).is_over(false));
    let one_more = |reach| Group { in_flight: 7, ..beyond(reach) };
    assert!(one_more(None).is_over(true), "five are owed, the window is four");
    assert!(!one_more(Some(5)).is_over(true) && one_more(Some(5)).is_over(false));
    let within = Group { in_flight: 5, ..beyond(None) };
    assert!(!within.is_over(true) && !within.is_over(false), "what hangs is not counted");
    assert!(Group { surplus: None, ..within }.is_over(true), "where nothing is told apart the window holds for all");
}

#[test]
fn what_may_be_kept_out_although_there_is_room() {
    let (engine, _, _) = filled(0);
    let class = engine.classes(Time::ZERO, weirgate_engine::ClassId(0), 1).remove(0);
    let guarantee = weirgate_engine::Guarantee { throughput: Some(10.0), response_time: None };
    let owed = ClassSnapshot { guarantee, tokens: Some(1.5), allowance: Some(2.0), outstanding: 2, ..class.clone() };
    let surplus = ClassSnapshot { tokens: Some(0.9), ..owed.clone() };
    let roomy = |reach| Group { in_flight: 3, ..beyond(reach) };
    assert!(!roomy(Some(5)).may_keep(&owed), "nothing was seen that could hold it back");
    let hardly = ClassSnapshot { tokens: Some(1.0), ..owed.clone() };
    assert!(roomy(Some(5)).may_keep(&hardly), "its token may have become whole since the engine looked");
    assert!(roomy(None).may_keep(&owed), "it has its allowance");
    assert!(!roomy(None).may_keep(&ClassSnapshot { outstanding: 1, ..owed.clone() }), "it has not");
    assert!(roomy(Some(5)).may_keep(&surplus) && roomy(Some(5)).may_keep(&class), "slots are needed");
    let calm = SurplusSnapshot { needed: 0.0, ..roomy(Some(5)).surplus.expect("surplus") };
    let calm = Group { surplus: Some(calm), ..roomy(Some(5)) };
    assert!(!calm.may_keep(&surplus) && !calm.may_keep(&class), "nothing is needed or blocked");
    assert!(!Group { surplus: None, ..calm }.may_keep(&class), "where nothing is told apart nothing waits");
    assert!(Group { in_flight: 9, ..roomy(Some(5)) }.may_keep(&owed), "there is no room");
}

#[test]
fn counts_that_differ_are_found() {
    let (mut engine, mut checks, in_flight) = filled(3);
    engine.observe(Time::ZERO, in_flight[0].0, Outcome::LastByte { status: 200 });
    checks.freed(0, in_flight[0].1, None);
    let counts = |engine: &Engine| engine.classes(Time::ZERO, weirgate_engine::ClassId(0), 9);
    checks.guarantees(engine.policy(), &counts(&engine));
    assert_eq!(found(&checks), ["guarantees"], "one that the engine took for served");
    checks.violations.clear();
    checks.tallies[0].served += 1;
    checks.guarantees(engine.policy(), &counts(&engine));
    assert_eq!(checks.violations, []);
    checks.tallies[1].shed += 1;
    checks.guarantees(engine.policy(), &counts(&engine));
    assert_eq!(found(&checks), ["guarantees"]);
}

#[test]
fn an_attempt_without_an_end_is_found() {
    let (_, mut checks, _) = filled(2);
    checks.conservation(&[record(Fate::Cut, 1, 1), record(Fate::Cut, 1, 1)]);
    assert_eq!(checks.violations, []);
    checks.conservation(&[record(Fate::Cut, 1, 1), record(Fate::Served, 1, 1)]);
    assert_eq!(found(&checks), ["conservation"], "in flight and ended");
    checks.violations.clear();
    checks.conservation(&[record(Fate::Cut, 1, 1), record(Fate::Cut, 1, 1), record(Fate::Served, 1, 1)]);
    assert_eq!(found(&checks), ["conservation"], "recorded and never come");
    checks.violations.clear();
    checks.conservation(&[record(Fate::Cut, 5, 4), record(Fate::Cut, 1, 1)]);
    assert_eq!(found(&checks), ["time"]);
}

#[test]
fn a_page_that_its_requests_do_not_make_is_found() {
    let own = Record { page: Some(0), ..record(Fate::Served, 1, 3) };
    let object = Record { arrived: 3, ..Record { page: Some(0), ..record(Fate::Served, 3, 5) } };
    let page = Page { traffic: 0, fate: Fate::Served, arrived: 0, ended: 5, objects: 1 };
    let holds = |page: Page, records: &[Record]| {
        let mut checks = filled(1).1;
        checks.pages(&[page], records);
        let found = found(&checks);
        assert!(found.is_empty() || found == ["pages"], "{found:?}");
        found.is_empty()
    };
    assert!(holds(page, &[own, object]));
    assert!(holds(Page { fate: Fate::Cut, ..page }, &[own]));
    assert!(!holds(page, &[own]), "complete without its object");
    assert!(!holds(Page { fate: Fate::Shed, ..page }, &[own, object]), "incomplete with it");
    assert!(!holds(Page { ended: 4, ..page }, &[own, object]), "over too soon");
    assert!(!holds(Page { arrived: 1, ..page }, &[own, object]), "begun too late");
    assert!(!holds(page, &[own, object, Record { page: Some(1), ..own }]), "no such page");
}

#[test]
fn violations_are_bounded() {
    let (_, mut checks, _) = filled(0);
    for _ in 0..1000 {
        checks.note("time", String::new());
    }
    assert_eq!(checks.violations.len(), MAX_KEPT);
}
