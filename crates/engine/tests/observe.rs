//! Classes that are observed: their requests pass, and the engine counts what would have happened to them.
//!
//! Counts are compared with those of an engine that enforces the same policy: exactly where nodes do not matter, and
//! within bounds on nodes that share their processors. Random operations check that nothing is lost and nothing waits.

mod support;

use std::collections::BTreeMap;

use support::*;
use weirgate_engine::*;

fn observed(policy: Policy, mode: Mode) -> Policy {
    let class = |class: Class| Class { mode, ..class };
    Policy { classes: policy.classes.into_iter().map(class).collect(), ..policy }
}

fn arrival(class: u32, flow: u64, position: u16) -> Arrival {
    Arrival { class: ClassId(class), flow, demand: None, locality_key: None, position, token: flow }
}

fn would_shed(engine: &Engine, class: u32) -> [u64; ShedReason::ALL.len()] {
    engine.classes(Time::from_nanos(u64::MAX / 2), ClassId(class), 1)[0].would_shed
}

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Rates of classes and sources do not depend on nodes, so the counts are equal.
#[test]
fn rates_are_counted_as_they_are_enforced() {
    for seed in 0..50 {
        let mut state = seed;
        let mut a = class("A", None, None, None);
        a.queue.max_rate = Some(20.0 + seed as f64 / 5.0);
        a.queue.max_rate_per_flow = Some(7.0);
        let policy = policy(Discipline::none(), 2, vec![a]);
        let mut enforce = Engine::new(Time::ZERO, policy.clone(), 1).expect("a valid policy");
        let mut observe = Engine::new(Time::ZERO, observed(policy, Mode::Observe), 1).expect("a valid policy");
        let mut now = 0;
        for _ in 0..3_000 {
            now += random(&mut state) % 30;
            let arrival = arrival(0, random(&mut state) % 9, 0);
            if let Decision::Release { ticket, .. } = enforce.arrive(ms(now), arrival) {
                enforce.observe(ms(now), ticket, Outcome::LastByte { status: 200 });
            }
            let Decision::Release { ticket, .. } = observe.arrive(ms(now), arrival) else { panic!("it passes") };
            observe.observe(ms(now), ticket, Outcome::LastByte { status: 200 });
        }
        let shed = enforce.classes(ms(now), ClassId(0), 1)[0].shed;
        assert_eq!(would_shed(&observe, 0), shed, "seed {seed}");
        assert!(shed[ShedReason::SourceRate.index()] > 0 && shed[ShedReason::ClassRate.index()] > 0, "{shed:?}");
    }
}

/// A node serves one request at a time, and two may wait. The fourth request would be refused.
#[test]
fn a_request_tells_what_would_have_happened_to_it() {
    let mut a = class("A", None, None, Some(10));
    a.queue.max_waiting = 2;
    let discipline = Discipline { load_control: LoadControl::Fixed { window: Some(1) }, ..Discipline::none() };
    let mut policy = observed(policy(discipline, 1, vec![a]), Mode::Observe);
    policy.nodes[0].capacity = Some(1.0);
    let mut engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
    let mut tickets = Vec::new();
    for flow in 0..5 {
        let Decision::Release { ticket, .. } = engine.arrive(Time::ZERO, arrival(0, flow, 0)) else { panic!("passes") };
        tickets.push(ticket);
    }
    let told = |engine: &Engine| tickets.iter().map(|ticket| engine.would(*ticket)).collect::<Vec<_>>();
    let full = Some(Would::Shed(ShedReason::QueueFull));
    let (waits, released) = (Some(Would::Wait), Some(Would::Release));
    assert_eq!(told(&engine), [released, waits, waits, full, full]);
    assert!(engine.poll(ms(15)).is_none());
    assert_eq!(told(&engine), [released, released, waits, full, full]);
    // The real node answers them all at once. Nothing can be said of a request that has ended.
    for ticket in &tickets {
        engine.observe(ms(50), *ticket, Outcome::LastByte { status: 200 });
    }
    assert_eq!(told(&engine), [None; 5]);
    assert_eq!(would_shed(&engine, 0)[ShedReason::QueueFull.index()], 2);
    let class = engine.classes(ms(50), ClassId(0), 1).remove(0);
    assert_eq!((class.served, class.shed.iter().sum::<u64>(), class.outstanding), (5, 0, 0));
    assert!(class.achieved.would_shed_per_s > 0.0 && class.achieved.shed_per_s <= 0.0);
}

#[test]
fn a_share_of_the_sources_is_enforced() {
    let mut a = class("A", None, None, None);
    a.queue.max_waiting = 1;
    let discipline = Discipline { load_control: LoadControl::Fixed { window: Some(1) }, ..Discipline::none() };
    let policy = observed(policy(discipline, 1, vec![a]), Mode::Share(1_000));
    let mut engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
    let mut arrive = |position| engine.arrive(Time::ZERO, arrival(0, 1, position));
    assert!(matches!(arrive(999), Decision::Release { .. }));
    assert!(matches!(arrive(0), Decision::Wait { .. }));
    assert!(matches!(arrive(500), Decision::Shed(_)));
    // Observed requests take no place of enforced ones.
    let passed: Vec<Decision> = (1_000..1_010).map(&mut arrive).collect();
    assert!(passed.iter().all(|decision| matches!(decision, Decision::Release { .. })), "{passed:?}");
    assert!(matches!(arrive(1), Decision::Shed(_)));
    assert_eq!(would_shed(&engine, 0).iter().sum::<u64>(), 10);
    let snapshot = engine.snapshot(Time::ZERO);
    assert_eq!((snapshot.outstanding, snapshot.waiting, snapshot.groups[0].outstanding), (11, 1, 1));
    assert_eq!(snapshot.nodes[0].outstanding, 11);
}

/// A reload that stops enforcing lets all go that wait, in order of arrival. One that enforces holds new ones back.
#[test]
fn reloads_switch_at_once() {
    let discipline = Discipline { load_control: LoadControl::Fixed { window: Some(2) }, ..Discipline::none() };
    let enforced = policy(discipline, 2, vec![class("A", None, None, None), class("B", None, None, None)]);
    let with = |mode| Policy {
        classes: vec![Class { mode, ..enforced.classes[0].clone() }, enforced.classes[1].clone()],
        ..enforced.clone()
    };
    for mode in [Mode::Observe, Mode::Share(100)] {
        let mut engine = Engine::new(Time::ZERO, enforced.clone(), 1).expect("a valid policy");
        let mut first = Vec::new();
        for flow in 0..8 {
            let class = u32::from(flow == 5);
            if let Decision::Release { ticket, .. } = engine.arrive(ms(flow), arrival(class, flow, 0)) {
                first.push(ticket);
            }
        }
        assert!(engine.poll(ms(9)).is_none());
        engine.reconfigure(ms(10), with(mode)).expect("a valid policy");
        let mut passed = Vec::new();
        while let Some(action) = engine.poll(ms(10)) {
            let Action::Release { token, ticket, .. } = action else { panic!("{action:?}") };
            assert_eq!(engine.would(ticket), Some(Would::Wait), "it still waits in the shadow");
            passed.push((token, ticket));
        }
        assert_eq!(passed.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [2, 3, 4, 6, 7]);
        assert_eq!(engine.snapshot(ms(10)).waiting, 1, "B is enforced");
        // Back again: those that passed go on, and the next one waits.
        engine.reconfigure(ms(11), enforced.clone()).expect("a valid policy");
        assert!(engine.poll(ms(11)).is_none());
        assert!(matches!(engine.arrive(ms(12), arrival(0, 9, 0)), Decision::Wait { .. }));
        for (_, ticket) in &passed {
            engine.observe(ms(13), *ticket, Outcome::LastByte { status: 200 });
        }
        assert!(engine.poll(ms(13)).is_none(), "they held no slots");
        engine.observe(ms(14), first[0], Outcome::LastByte { status: 200 });
        assert!(matches!(engine.poll(ms(14)), Some(Action::Release { token: 5, .. })));
    }
}

/// The nodes carry 140 % of their capacity. Gold is within its guarantee, silver and the others share the rest.
#[test]
fn counts_are_close_to_those_of_an_enforced_cluster() {
    for (name, discipline) in [("weirgate", Discipline::weirgate()), ("quorum", Discipline::quorum())] {
        for exponential in [true, false] {
            let classes =
                vec![class("gold", Some(300.0), p95(300), Some(10)), class("silver", Some(300.0), p95(500), Some(10))];
            let mut policy = policy(discipline.clone(), 4, classes);
            policy.nodes.iter_mut().for_each(|node| node.capacity = Some(2.0));
            let load = |rate| Load { rate, demand: 0.010, exponential };
            let run = |policy: Policy, seed| {
                let mut bench = Bench::new(policy, 2.0, vec![load(240.0), load(300.0)], seed);
                bench.run(10.0);
                bench.set_rate(1, 880.0);
                bench.run(40.0);
                bench
            };
            let (mut shed, mut would) = ([0, 0], [0, 0]);
            for seed in 1..=3 {
                let enforce = run(policy.clone(), seed);
                let observe = run(observed(policy.clone(), Mode::Observe), seed);
                for class in 0..2 {
                    shed[class] += enforce.tallies[class].shed;
                    would[class] += would_shed(&observe.engine, class as u32).iter().sum::<u64>();
                    assert_eq!(observe.tallies[class].shed, 0);
                }
            }
            let ratio = would[1] as f64 / shed[1] as f64;
            assert!((0.9..1.1).contains(&ratio), "{name}, {exponential}: {would:?} of {shed:?}");
            assert!(would[0] <= 100 && shed[0] <= 100, "{name}, {exponential}: {would:?} of {shed:?}");
        }
    }
}

/// On quiet nodes nothing would be refused, whatever the service times and capacities that were declared.
#[test]
fn quiet_nodes_refuse_nothing() {
    for (service, capacity) in [(None, None), (Some(2), None), (Some(50), Some(2.0)), (Some(10), Some(2.0))] {
        let classes = vec![class("gold", Some(300.0), p95(300), service), class("other", None, None, service)];
        let mut policy = observed(policy(Discipline::weirgate(), 4, classes), Mode::Observe);
        policy.nodes.iter_mut().for_each(|node| node.capacity = capacity);
        let load = |rate| load(rate, 0.010);
        let mut bench = Bench::new(policy, 2.0, vec![load(240.0), load(100.0)], 5);
        bench.run(30.0);
        let offered = bench.tallies[1].offered;
        let would: Vec<u64> = (0..2).map(|class| would_shed(&bench.engine, class).iter().sum()).collect();
        assert!(would[0] == 0 && would[1] * 100 < offered, "{service:?} {capacity:?}: {would:?} of {offered}");
    }
}

/// What a driver knows of a request.
#[derive(Clone, Copy, Debug)]
struct Known {
    waits: bool,
    observed: bool,
    token: u64,
}

/// Random operations under random modes. Observed requests never wait and are refused only without a node, counts
/// agree, and the engine comes to rest.
#[test]
fn nothing_is_lost_or_held_back_under_any_mode() {
    for seed in 0..400 {
        let mut state = seed * 977 + 5;
        let mut next = move |n: u64| random(&mut state) % n;
        let policies: Vec<Policy> = (0..4).map(|_| random_policy(&mut next)).collect();
        let mut engine = Engine::new(Time::ZERO, policies[0].clone(), seed).expect("a valid policy");
        let mut requests: BTreeMap<Ticket, Known> = BTreeMap::new();
        let (mut now, mut token, mut down, mut passed) = (0, 0, [false; 3], 0u64);
        for step in 0..600 {
            let at = ms(now);
            let pick = |requests: &BTreeMap<Ticket, Known>, nth: u64, waits: bool| {
                let all: Vec<Ticket> = requests.iter().filter(|(_, r)| r.waits == waits).map(|(t, _)| *t).collect();
                (!all.is_empty()).then(|| all[nth as usize % all.len()])
            };
            match next(20) {
                0..8 => {
                    token += 1;
                    let classes = engine.policy().classes.len() as u64;
                    let class = match next(4) {
                        0 => engine.class(at, TemplateId(0), &[next(6) as u8]),
                        _ => ClassId(next(classes) as u32),
                    };
                    let mode = match class.0 as usize {
                        index if index < classes as usize => engine.policy().classes[index].mode,
                        _ => engine.policy().templates[0].class.mode,
                    };
                    let position = next(10_000) as u16;
                    let observed = !mode.enforces(position);
                    let decision = engine.arrive(at, Arrival { class, token, ..arrival(0, next(5), position) });
                    passed += u64::from(observed);
                    match decision {
                        Decision::Release { ticket, node } => {
                            assert!(!down[node.0 as usize], "seed {seed}, {step}");
                            assert_eq!(engine.would(ticket).is_some(), observed, "seed {seed}, {step}");
                            requests.insert(ticket, Known { waits: false, observed, token });
                        }
                        Decision::Wait { ticket } => {
                            assert!(!observed, "seed {seed}, {step}: an observed request waits");
                            requests.insert(ticket, Known { waits: true, observed, token });
                        }
                        Decision::Shed(shed) => assert!(
                            !observed || shed.reason == ShedReason::NoNode,
                            "seed {seed}, {step}: an observed request is refused: {shed:?}"
                        ),
                    }
                }
                8..14 => {
                    if let Some(ticket) = pick(&requests, next(100), false) {
                        let outcome = match next(8) {
                            0 => Outcome::Failed { retryable: true },
                            1 => Outcome::Failed { retryable: false },
                            2 => Outcome::Reset,
                            3 => Outcome::LastByte { status: 500 },
                            4 => Outcome::Upgraded,
                            _ => Outcome::LastByte { status: 200 },
                        };
                        if let Some(node) = engine.observe(at, ticket, outcome) {
                            assert!(!down[node.0 as usize], "seed {seed}, {step}");
                        } else {
                            requests.remove(&ticket);
                        }
                    }
                }
                14 => {
                    if let Some(ticket) = pick(&requests, next(100), true) {
                        assert!(engine.cancel(at, ticket), "seed {seed}, {step}");
                        requests.remove(&ticket);
                    }
                }
                15 => {
                    let node = next(3) as usize;
                    down[node] = !down[node];
                    let id = NodeId(node as u32);
                    engine.node(at, if down[node] { NodeEvent::Down(id) } else { NodeEvent::Up(id) });
                }
                16 if next(4) == 0 => {
                    let policy = policies[next(4) as usize].clone();
                    engine.reconfigure(at, policy).expect("a valid policy");
                    passed = passed.max(requests.len() as u64);
                }
                _ => now += next(120),
            }
            while let Some(action) = engine.poll(ms(now)) {
                match action {
                    Action::Release { ticket, token, .. } => {
                        let known = requests.get_mut(&ticket).expect("it waits");
                        assert!(known.waits && known.token == token, "seed {seed}, {step}");
                        *known = Known { waits: false, observed: engine.would(ticket).is_some(), token };
                    }
                    Action::Shed { ticket, .. } => {
                        let known = requests.remove(&ticket).expect("it waits");
                        assert!(known.waits && !known.observed, "seed {seed}, {step}");
                    }
                }
            }
            assert!(engine.next_timeout().is_none_or(|next| next > ms(now)), "seed {seed}, {step}: it does not rest");
            let snapshot = engine.snapshot(ms(now));
            let waiting = requests.values().filter(|r| r.waits).count() as u32;
            assert_eq!((snapshot.waiting, snapshot.outstanding), (waiting, requests.len() as u32 - waiting));
            let classes = engine.classes(ms(now), ClassId(0), usize::MAX);
            assert_eq!(classes.iter().map(|class| class.outstanding).sum::<u32>(), snapshot.outstanding);
        }
        // All ends, and nothing is left in flight anywhere.
        let tickets: Vec<Ticket> = requests.iter().filter(|(_, r)| !r.waits).map(|(t, _)| *t).collect();
        for ticket in tickets {
            engine.observe(ms(now), ticket, Outcome::Reset);
        }
        let nodes = engine.snapshot(ms(now)).nodes;
        assert!(nodes.iter().all(|node| node.outstanding == 0 && node.load <= 0.0), "seed {seed}: {nodes:?}");
    }
}

fn random_policy(next: &mut impl FnMut(u64) -> u64) -> Policy {
    let discipline = match next(5) {
        0 => Discipline::weirgate(),
        1 => Discipline::quorum(),
        2 => Discipline { load_control: LoadControl::Fixed { window: Some(3) }, ..Discipline::none() },
        3 => Discipline { load_control: LoadControl::Slots { per_cpu: 2.0 }, ..Discipline::weirgate() },
        _ => Discipline { load_control: LoadControl::Aimd(Aimd::default()), ..Discipline::weirgate() },
    };
    let mut mode = |class: Class| {
        let mode = [Mode::Enforce, Mode::Observe, Mode::Share(1_000), Mode::Share(9_000)][next(4) as usize];
        let queue = QueueBounds { max_waiting: 4, max_wait: std::time::Duration::from_millis(700), ..class.queue };
        Class { mode, queue, ..class }
    };
    let mut classes = vec![
        mode(class("A", Some(20.0), p95(300), Some(30))),
        mode(class("B", Some(5.0), None, None)),
        mode(class("C", None, None, Some(50))),
    ];
    classes[0].fallback = Some(2);
    let template = Template { class: mode(class("tenant", Some(1.0), p95(400), None)), max_live: 3 };
    let mut policy = policy(discipline, 3, classes);
    policy.nodes[0].max_outstanding = Some(2);
    policy.nodes[1].capacity = Some(2.0);
    Policy { templates: vec![template], ..policy }
}
