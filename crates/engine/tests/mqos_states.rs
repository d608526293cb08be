//! mQoS: every state that a small site can reach.
//!
//! Two classes, two resources, three kinds of requests, one waiting of each class (or two). Under `mdrr` credits are whole
//! multiples of a fifth of a node, so that there are finitely many states, and all of them are visited. Virtual times under
//! `drfq` never come back: there every sequence of operations up to a length is played.

#[path = "support/resources.rs"]
mod resources;

use std::collections::{BTreeSet, VecDeque};

use resources::{Books, Site};
use weirgate_engine::*;

/// What requests take: much of one resource, much of the other, all of one.
const KINDS: [[f64; 2]; 3] = [[0.6, 0.2], [0.2, 0.6], [1.0, 0.0]];
const NODES: [f64; 1] = [1.0];

#[derive(Clone, Copy, Debug)]
enum Operation {
    Arrive { class: u32, kind: usize },
    Leave { at: usize },
    End { at: usize, outcome: Outcome },
}

fn site() -> Site {
    // Quanta of 60 and 40 %.
    Site { weights: vec![3.0, 2.0], resources: 2, nodes: NODES.to_vec(), ..Site::default() }
}

/// What may happen next.
fn operations(books: &Books, most_waiting: [usize; 2]) -> Vec<Operation> {
    let mut all = Vec::new();
    for class in 0..2 {
        let waiting = books.waiting.iter().filter(|(tag, _)| books.requests[*tag as usize].0 == class).count();
        if waiting < most_waiting[class as usize] {
            all.extend((0..KINDS.len()).map(|kind| Operation::Arrive { class, kind }));
        }
    }
    all.extend((0..books.waiting.len()).map(|at| Operation::Leave { at }));
    for at in 0..books.inside.len() {
        // What was aborted leaves nothing else behind than what was answered.
        let outcome = if at % 2 == 0 { Outcome::LastByte { status: 200 } } else { Outcome::Reset };
        all.push(Operation::End { at, outcome });
    }
    all
}

fn play(books: &Books, operation: Operation) -> Books {
    let mut books = books.clone();
    match operation {
        Operation::Arrive { class, kind } => assert!(books.arrive(class, Demand::of_shares(&KINDS[kind]))),
        Operation::Leave { at } => books.leave(at),
        Operation::End { at, outcome } => books.end(at, outcome),
    }
    books.drain();
    books
}

/// What is the same in two states that behave alike.
fn key(books: &Books) -> Vec<u64> {
    let kind = |tag: u64| {
        books.requests[tag as usize].1.0[..2].iter().map(|d| u64::from(*d / 200_000_000)).collect::<Vec<_>>()
    };
    let snapshot = books.engine.snapshot(books.now);
    let mut key: Vec<u64> =
        snapshot.rounds.iter().flat_map(|r| r.turns.iter().map(|class| u64::from(class.0))).collect();
    for class in 0..2 {
        let credit = books.engine.classes(books.now, ClassId(class), 1)[0].credit.expect("it has credit");
        key.extend(credit[..2].iter().map(|credit| (credit * 5.0).round() as u64));
        key.push(99);
        for (tag, _) in books.waiting.iter().filter(|(tag, _)| books.requests[*tag as usize].0 == class) {
            key.extend(kind(*tag));
        }
    }
    key.push(99);
    let mut inside: Vec<Vec<u64>> = books.inside.iter().map(|(tag, ..)| kind(*tag)).collect();
    inside.sort();
    key.extend(inside.into_iter().flatten());
    key
}

/// Nobody waits while the node is idle, nothing is overdrawn, and once nobody comes any more all are served.
fn judge(books: &Books) {
    books.check(&NODES);
    assert!(books.waiting.is_empty() || !books.inside.is_empty(), "everybody waits for nothing: {books:#?}");
    let mut rest = books.clone();
    while !rest.inside.is_empty() {
        rest.end(0, Outcome::LastByte { status: 200 });
        rest.drain();
    }
    assert!(rest.waiting.is_empty(), "these are never served: {:?}", rest.waiting);
}

/// Visits every state that is reachable with so many waiting; says how many there are.
fn visit(most_waiting: [usize; 2]) -> usize {
    let first = Books::new(site().engine(Discipline::mqos()));
    let mut known = BTreeSet::from([key(&first)]);
    let mut open = VecDeque::from([first]);
    while let Some(books) = open.pop_front() {
        judge(&books);
        for operation in operations(&books, most_waiting) {
            let mut next = play(&books, operation);
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
    assert!(visit([1, 1]) > 3_000);
}

#[test]
#[ignore = "takes minutes: a million states"]
fn no_state_with_two_waiting_of_each_class_is_a_dead_end() {
    assert!(visit([2, 2]) > 500_000);
}

/// Requests that are over need not be remembered.
fn forget(books: &mut Books) {
    books.released.clear();
}

#[test]
fn no_short_history_of_drfq_is_a_dead_end() {
    fn explore(books: &Books, depth: usize, visited: &mut u64) {
        judge(books);
        *visited += 1;
        if depth > 0 {
            operations(books, [2, 1]).into_iter().for_each(|next| explore(&play(books, next), depth - 1, visited));
        }
    }
    let discipline = Discipline { precedence: Precedence::Drfq, ..Discipline::mqos() };
    let mut visited = 0;
    explore(&Books::new(site().engine(discipline)), 6, &mut visited);
    assert!(visited > 30_000, "{visited} histories are not many");
    println!("{visited} histories");
}
