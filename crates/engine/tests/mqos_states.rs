//! mQoS: every state that a small site can reach.
//!
//! The site has two classes, two resources, three kinds of requests, and one waiting request of each class
//! (or two). Under `mdrr` credits are whole multiples of a fifth of a node, so there are finitely many
//! states, and the test visits all of them. Virtual times under `drfq` never repeat, so there the test plays
//! every sequence of operations up to a length.

#[path = "support/resources.rs"]
mod resources;

use std::collections::{BTreeSet, VecDeque};

use resources::{Driver, Site};
use weirgate_engine::*;

/// Costs of requests: much of one resource, much of the other, all of one.
const KINDS: [[f64; 2]; 3] = [[0.6, 0.2], [0.2, 0.6], [1.0, 0.0]];
const NODES: [f64; 1] = [1.0];

#[derive(Clone, Copy, Debug)]
enum Operation {
    Arrive {
        class: u32,
        kind: usize,
    },
    Leave {
        at: usize,
    },
    End {
        at: usize,
        outcome: Outcome,
    },
    /// The second upstream's node is drained, or resumes.
    Turn {
        draining: bool,
    },
}

fn site() -> Site {
    // Quanta of 60 % and 40 %.
    Site { weights: vec![3.0, 2.0], resources: 2, nodes: NODES.to_vec(), ..Site::default() }
}

/// The same site with an upstream for each class. Both upstreams use the same machine.
fn two_upstreams(discipline: Discipline) -> Engine {
    Engine::new(Time::ZERO, site().two_upstreams(discipline, 1), 1).expect("a valid policy")
}

/// Returns whether the second upstream's node is draining.
fn is_drained(driver: &Driver) -> bool {
    let nodes = driver.engine.snapshot(driver.now).nodes;
    nodes.get(1).is_some_and(|node| node.state == NodeState::Draining)
}

/// Returns the possible next operations.
fn operations(driver: &Driver, max_waiting: [usize; 2]) -> Vec<Operation> {
    let mut all = Vec::new();
    let drained = is_drained(driver);
    if driver.engine.policy().pools.len() > 1 {
        all.push(Operation::Turn { draining: !drained });
    }
    for class in 0..2 {
        let waiting = driver.waiting.iter().filter(|(token, _)| driver.requests[*token as usize].0 == class).count();
        // A request that arrives while there is no node is refused.
        if waiting < max_waiting[class as usize] && !(drained && class == 1) {
            all.extend((0..KINDS.len()).map(|kind| Operation::Arrive { class, kind }));
        }
    }
    all.extend((0..driver.waiting.len()).map(|at| Operation::Leave { at }));
    for at in 0..driver.in_flight.len() {
        // An aborted request leaves the same state as an answered one.
        let outcome = if at % 2 == 0 { Outcome::LastByte { status: 200 } } else { Outcome::Reset };
        all.push(Operation::End { at, outcome });
    }
    all
}

fn play(driver: &Driver, operation: Operation) -> Driver {
    let mut driver = driver.clone();
    match operation {
        Operation::Arrive { class, kind } => assert!(driver.arrive(class, Demand::of_shares(&KINDS[kind]))),
        Operation::Leave { at } => driver.leave(at),
        Operation::End { at, outcome } => driver.end(at, outcome),
        Operation::Turn { draining: true } => driver.engine.node(driver.now, NodeEvent::Draining(NodeId(1))),
        Operation::Turn { draining: false } => driver.engine.node(driver.now, NodeEvent::Resumed(NodeId(1))),
    }
    driver.drain();
    driver
}

/// Returns a key that is equal for states that behave alike.
fn key(driver: &Driver) -> Vec<u64> {
    let kind = |token: u64| {
        driver.requests[token as usize].1.0[..2].iter().map(|d| u64::from(*d / 200_000_000)).collect::<Vec<_>>()
    };
    let snapshot = driver.engine.snapshot(driver.now);
    let mut key: Vec<u64> =
        snapshot.rounds.iter().flat_map(|r| r.turns.iter().map(|class| u64::from(class.0))).collect();
    for class in 0..2 {
        let credit = driver.engine.classes(driver.now, ClassId(class), 1)[0].credit.expect("it has credit");
        key.extend(credit[..2].iter().map(|credit| (credit * 5.0).round() as u64));
        key.push(99);
        for (token, _) in driver.waiting.iter().filter(|(token, _)| driver.requests[*token as usize].0 == class) {
            key.extend(kind(*token));
        }
    }
    key.push(99);
    key.push(u64::from(is_drained(driver)));
    let mut in_flight: Vec<Vec<u64>> = driver.in_flight.iter().map(|(token, ..)| kind(*token)).collect();
    in_flight.sort();
    key.extend(in_flight.into_iter().flatten());
    key
}

/// Checks that no request waits while the node is idle, that nothing is overdrawn, and that all requests are
/// served once arrivals stop. A request without a node is served as soon as there is one again, and the
/// others are served before that.
fn judge(driver: &Driver) {
    if driver.engine.policy().pools.len() == 1 {
        driver.check(&NODES);
    }
    let mut rest = driver.clone();
    let drained = is_drained(driver);
    let served = |driver: &Driver| {
        let mut waiting = driver.waiting.iter().map(|(token, _)| driver.requests[*token as usize].0);
        waiting.all(|class| drained && class == 1)
    };
    assert!(served(driver) || !driver.in_flight.is_empty(), "everybody waits for nothing: {driver:#?}");
    while !rest.in_flight.is_empty() {
        rest.end(0, Outcome::LastByte { status: 200 });
        rest.drain();
    }
    assert!(served(&rest), "these are never served: {:?}", rest.waiting);
    if drained {
        rest = play(&rest, Operation::Turn { draining: false });
    }
    while !rest.in_flight.is_empty() {
        rest.end(0, Outcome::LastByte { status: 200 });
        rest.drain();
    }
    assert!(rest.waiting.is_empty(), "these are never served: {:?}", rest.waiting);
}

/// Visits every reachable state with up to `max_waiting` requests. Returns the number of states.
fn visit(engine: Engine, max_waiting: [usize; 2]) -> usize {
    let first = Driver::new(engine);
    let mut known = BTreeSet::from([key(&first)]);
    let mut open = VecDeque::from([first]);
    while let Some(driver) = open.pop_front() {
        judge(&driver);
        for operation in operations(&driver, max_waiting) {
            let mut next = play(&driver, operation);
            if known.insert(key(&next)) {
                forget(&mut next);
                open.push_back(next);
            }
        }
    }
    println!("{} states", known.len());
    known.len()
}

#[test]
fn no_state_of_mdrr_is_a_dead_end() {
    assert!(visit(site().engine(Discipline::mqos()), [1, 1]) > 3_000);
}

#[test]
fn no_state_of_two_upstreams_on_one_machine_is_a_dead_end() {
    assert!(visit(two_upstreams(Discipline::mqos()), [1, 1]) > 3_000);
}

#[test]
#[ignore = "takes minutes: a million states"]
fn no_state_with_two_waiting_of_each_class_is_a_dead_end() {
    assert!(visit(site().engine(Discipline::mqos()), [2, 2]) > 500_000);
}

/// Forgets requests that have ended.
fn forget(driver: &mut Driver) {
    driver.released.clear();
}

#[test]
fn no_short_history_of_drfq_is_a_dead_end() {
    fn explore(driver: &Driver, depth: usize, visited: &mut u64) {
        judge(driver);
        *visited += 1;
        if depth > 0 {
            operations(driver, [2, 1]).into_iter().for_each(|next| explore(&play(driver, next), depth - 1, visited));
        }
    }
    let discipline = Discipline { precedence: Precedence::Drfq, ..Discipline::mqos() };
    let engines = [(site().engine(discipline.clone()), 6, 30_000), (two_upstreams(discipline), 5, 10_000)];
    for (engine, depth, min) in engines {
        let mut visited = 0;
        explore(&Driver::new(engine), depth, &mut visited);
        println!("{visited} histories");
        assert!(visited > min, "{visited} histories are not many");
    }
}
