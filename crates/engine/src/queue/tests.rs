//! Tests of the queues: random operations against a naive model.
//!
//! The model keeps a plain list for each source and a plain list of turns, and finds everything by search.

use super::*;
use crate::random::Random;
use crate::ticket::RequestState;

const BOUNDS: Bounds = Bounds {
    partition: PartitionId(0),
    queue: QueueBounds {
        max_waiting: 40,
        max_waiting_per_flow: 25,
        max_rate: None,
        max_rate_per_flow: None,
        max_wait: Duration::from_secs(30),
    },
};
const CLASSES: u32 = 2;

fn queues() -> Queues {
    Queues {
        waiting: 0,
        max_waiting: 60,
        sources: Sources::new(CLASSES as usize),
        displaced: None,
        sub_queues: 2,
        expiry: Heaps::new(1, CLASSES as usize),
        behind: Heaps::new(1, 0),
        by_priority: vec![0],
        priorities: 1,
    }
}

/// A waiting request: class, sub-queue, source and ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Waits {
    class: u32,
    sub: usize,
    flow: u64,
    index: u32,
}

/// Waiting requests in order of arrival, and the sources of each sub-queue of each class in order of turn.
#[derive(Default)]
struct Naive {
    waiting: Vec<Waits>,
    turns: [[Vec<u64>; 2]; CLASSES as usize],
}

impl Naive {
    fn of(&self, class: u32, flow: u64) -> Vec<Waits> {
        self.waiting.iter().filter(|w| w.class == class && w.flow == flow).copied().collect()
    }

    fn len(&self, class: u32) -> u32 {
        self.waiting.iter().filter(|w| w.class == class).count() as u32
    }

    fn head(&self, class: u32, sub: usize) -> Option<u32> {
        let flow = *self.turns[class as usize][sub].first()?;
        self.of(class, flow).iter().find(|w| w.sub == sub).map(|w| w.index)
    }

    fn push(&mut self, new: Waits) {
        let turns = &mut self.turns[new.class as usize][new.sub];
        if !turns.contains(&new.flow) {
            turns.push(new.flow);
        }
        self.waiting.push(new);
    }

    fn remove(&mut self, gone: Waits, turn: Turn) {
        self.waiting.retain(|w| *w != gone);
        let more = self.waiting.iter().any(|w| (w.class, w.sub, w.flow) == (gone.class, gone.sub, gone.flow));
        let turns = &mut self.turns[gone.class as usize][gone.sub];
        if !more || turn == Turn::Used {
            turns.retain(|flow| *flow != gone.flow);
        }
        if more && turn == Turn::Used {
            turns.push(gone.flow);
        }
    }

    /// The sources of a class that have most requests, and how many.
    fn longest(&self, class: u32) -> (usize, Vec<u64>) {
        let mut flows: Vec<u64> = self.waiting.iter().filter(|w| w.class == class).map(|w| w.flow).collect();
        flows.sort_unstable();
        flows.dedup();
        let most = flows.iter().map(|flow| self.of(class, *flow).len()).max().unwrap_or(0);
        (most, flows.into_iter().filter(|flow| self.of(class, *flow).len() == most).collect())
    }

    /// Number of releases of a sub-queue until a new request of `flow` has its turn, by trying it.
    fn ahead(&self, new: Waits) -> u32 {
        let mut trial = Naive { waiting: self.waiting.clone(), turns: self.turns.clone() };
        trial.push(new);
        let mut releases = 0;
        while let Some(head) = trial.head(new.class, new.sub).filter(|head| *head != new.index) {
            let gone = *trial.waiting.iter().find(|w| w.index == head).expect("the head waits");
            trial.remove(gone, Turn::Used);
            releases += 1;
        }
        releases
    }
}

/// Everything about turns, order of arrival, bounds and displacement agrees with the model.
#[test]
fn agrees_with_plain_lists() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (mut queues, mut tickets, mut naive) = (queues(), Tickets::new(), Naive::default());
        let mut all = [Queue::EMPTY; CLASSES as usize];
        let (mut displaced, mut full) = (0, 0);
        // Some runs have many sources, some have few.
        let flows = [3, 9, 200][seed as usize % 3];
        for step in 0..4000u64 {
            // Long queues and short ones in turn.
            let arrives = if step / 500 % 2 == 0 { 7 } else { 3 };
            let (class, sub) = (random.below(u64::from(CLASSES)) as u32, random.below(2) as usize);
            if random.below(10) < arrives {
                // One source sends half of all requests.
                let flow = if random.below(2) == 0 { 0 } else { random.below(flows) };
                let source = queues.source(ClassId(class), flow);
                let own = naive.of(class, flow).len();
                let room = queues.room(&all[class as usize], source, BOUNDS.queue);
                let due = match () {
                    () if own >= 25 => Err(ShedReason::FlowFull),
                    () if naive.len(class) >= 40 => Err(ShedReason::QueueFull),
                    () if naive.waiting.len() >= 60 => Err(ShedReason::TotalFull),
                    () => Ok(()),
                };
                assert_eq!(room, due);
                let (most, longest) = naive.longest(class);
                if let Err(reason) = room {
                    let displaces = queues.displaces(&tickets, ClassId(class), source, (reason, 0));
                    assert_eq!(displaces, reason != ShedReason::FlowFull && most > own + 1);
                    full += 1;
                    if !displaces {
                        continue;
                    }
                    queues.displace(ClassId(class));
                }
                let index = tickets.insert(ClassId(class), flow, step, Time::from_millis(step));
                tickets[index].sub_queue = sub as u8;
                let new = Waits { class, sub, flow, index };
                let (bound, due) = (queues.ahead(&all[class as usize], sub, source), naive.ahead(new));
                let others = naive.turns[class as usize][sub].len() as u32;
                let mine = naive.of(class, flow).iter().filter(|w| w.sub == sub).count() as u32;
                assert!(bound >= due && (mine > 0 || bound == due), "{bound} instead of {due}");
                assert!(bound >= others.max(mine) && bound <= all[class as usize].sub_queues[sub].len);
                naive.push(new);
                queues.push(&mut tickets, &mut all[class as usize], (index, source), BOUNDS);
                if let Some(victim) = queues.displaced(&tickets) {
                    let RequestState { class, flow, .. } = tickets[victim];
                    let gone = *naive.of(class.0, flow).last().expect("it waits");
                    assert!(longest.contains(&flow) && gone.index == victim);
                    queues.left(class);
                    queues.unlink(&mut tickets, &mut all[class.row()], (victim, Turn::Kept), BOUNDS);
                    tickets.remove(victim);
                    naive.remove(gone, Turn::Kept);
                    displaced += 1;
                }
            } else {
                let at_head = random.below(3) > 0;
                let some = random.below(naive.waiting.len().max(1) as u64) as usize;
                let index = if at_head { naive.head(class, sub) } else { naive.waiting.get(some).map(|w| w.index) };
                let Some(gone) = naive.waiting.iter().find(|w| Some(w.index) == index).copied() else { continue };
                let turn = if at_head { Turn::Used } else { Turn::Kept };
                queues.unlink(&mut tickets, &mut all[gone.class as usize], (gone.index, turn), BOUNDS);
                tickets.remove(gone.index);
                naive.remove(gone, turn);
            }
            assert_eq!(queues.waiting as usize, naive.waiting.len());
            for (class, queue) in (0..CLASSES).zip(&all) {
                assert_eq!(queue.len, naive.len(class));
                for (sub, lists) in queue.sub_queues.iter().enumerate().take(2) {
                    let of = || naive.waiting.iter().filter(|w| w.class == class && w.sub == sub);
                    assert_eq!(lists.len as usize, of().count());
                    assert_eq!(lists.head, naive.head(class, sub).unwrap_or(NONE));
                    assert_eq!(lists.oldest, of().next().map_or(NONE, |w| w.index));
                    assert_eq!(lists.newest, of().next_back().map_or(NONE, |w| w.index));
                    assert_eq!(lists.sources as usize, naive.turns[class as usize][sub].len());
                }
            }
        }
        assert!(displaced > 50 && full > displaced, "seed {seed}: {displaced} of {full}");
    }
}

/// While two sources wait, neither has two turns more than the other. Requests of sources that wait with one
/// request leave in order of arrival.
#[test]
fn turns_go_round_and_single_requests_keep_their_order() {
    let (mut queues, mut tickets, mut queue) = (queues(), Tickets::new(), Queue::EMPTY);
    let arrives = |queues: &mut Queues, tickets: &mut Tickets, queue: &mut Queue, flow| {
        let index = tickets.insert(ClassId(0), flow, 0, Time::ZERO);
        let source = queues.source(ClassId(0), flow);
        queues.push(tickets, queue, (index, source), BOUNDS);
    };
    for flow in [1, 1, 1, 1, 2, 3, 2, 4] {
        arrives(&mut queues, &mut tickets, &mut queue, flow);
    }
    let mut order = Vec::new();
    while queue.len > 0 {
        let head = queue.sub_queues[0].head;
        order.push(tickets[head].flow);
        queues.unlink(&mut tickets, &mut queue, (head, Turn::Used), BOUNDS);
        tickets.remove(head);
        if order.len() == 2 {
            arrives(&mut queues, &mut tickets, &mut queue, 5);
        }
    }
    assert_eq!(order, [1, 2, 3, 4, 1, 2, 5, 1, 1]);
}
