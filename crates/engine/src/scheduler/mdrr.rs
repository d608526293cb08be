//! [`crate::Precedence::Mdrr`]: deficit round robin over several resources at once.
//!
//! Source: Feng and Lin, *Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway*
//! (2005), Secs. 3.3 and 3.4. Every class has a credit (deficit counter) in every resource. It has a queue
//! for each resource, which holds the requests that need that resource most. The main scheduler turns to the
//! most available resource. The sub-scheduler of that resource goes round the classes. It releases the head
//! of a queue if the nodes have enough of *every* resource for it and the class has credit in *every*
//! resource. A release is charged to all of them, so that each class gets its weighted share of each
//! resource, whatever its mix.
//!
//! The pseudo-code in the paper can stop for good, in two ways: it turns to the most available resource even
//! if no request waits for it, and a new round needs flags that may never all be set. The rules here cannot
//! stop:
//! - Resources are tried in the order of their availability, but only if a request waits for them.
//! - A sub-scheduler's pointer stays at a class that released, and moves on from one that cannot release.
//! - A new round begins only if no head can be released, no head has credit for all its costs, and a node
//!   has enough for some head. While a head has its credit and only waits for nodes, all classes wait.
//!   Credit dealt at that time would go to classes that already have most of it.
//! - At a new round a waiting class keeps at most the cost of its largest head in each resource, and a class
//!   that does not wait keeps nothing. Then every class gets a quantum of each resource.
//! - A class does not delay the round of the others while its pool can take no request (its nodes are down,
//!   or full by a bound of their own). It also gets its quanta.
//! - The number of rounds until some head has its credit is dealt at once: a class with a thousandth of the
//!   weight does not cost a thousand rounds of work.
//!
//! Proof that it cannot stop: while nodes are idle every accepted request fits (larger ones are refused at
//! arrival), so either a head has credit and is released, or a new round gives some head its credit.
//!
//! With one resource this is the usual deficit round robin (Shreedhar and Varghese 1996), except that quanta
//! are dealt to all classes at once (Sec. 3.4).
//!
//! Departures: ties go to the lowest number, where the paper draws lots. Each pool has its own rounds,
//! because the classes of one must not wait for the nodes of another. Pools with the same machines form one
//! *ring*. A choice costs O(waiting classes × resources × nodes) in the worst case. For thousands of tenants
//! use `drfq`.

use super::share::Share;
use super::{SchedulerView, in_turn};
use crate::demand::{Demand, RESOURCES};
use crate::index::{PartitionId, Table};
use crate::request::ClassId;

/// Remaining credit of a class for each resource in this round, in billionths of a node-second.
pub(crate) type Credit = [i64; RESOURCES];

/// The rounds of every ring.
#[derive(Clone, Debug)]
pub(crate) struct Mdrr {
    sub_queues: usize,
    rings: Table<PartitionId, Ring>,
    /// Accounts per class.
    accounts: Table<ClassId, Account>,
    /// The ring after the one that released last.
    turn: usize,
}

/// Partitions with the same machines, indexed by the first of these partitions.
#[derive(Clone, Debug)]
struct Ring {
    /// The class at the pointer, per sub-queue.
    pointers: [ClassId; RESOURCES],
    /// The waiting classes in the order of their ids, per sub-queue.
    waiting: [Vec<ClassId>; RESOURCES],
    /// Rounds begun after the first.
    rounds: u64,
}

impl Ring {
    fn new() -> Ring {
        let waiting = core::array::from_fn(|_| Vec::new());
        Ring { pointers: [ClassId(0); RESOURCES], waiting, rounds: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Account {
    ring: PartitionId,
    partition: PartitionId,
    quantum: i64,
    credit: Credit,
    /// The round in which the credit was dealt.
    round: u64,
}

impl Mdrr {
    /// For `partitions` partitions and `sub_queues` resources. Classes are added by [`Mdrr::open`].
    pub(super) fn new(partitions: usize, sub_queues: usize) -> Mdrr {
        Mdrr { sub_queues, rings: Table::filled(partitions, Ring::new()), accounts: Table::new(), turn: 0 }
    }

    /// Opens the account of a class with its first quantum.
    pub(super) fn open(&mut self, class: ClassId, share: Share) {
        let Share { first, partition, .. } = share;
        let (quantum, round) = (share.quantum(), self.rings[first].rounds);
        let fresh = Account { ring: first, partition, quantum, credit: [quantum; RESOURCES], round };
        self.accounts.put(class, fresh);
    }

    /// Changes the quantum of a class after the size of the nodes has changed.
    pub(super) fn resize(&mut self, class: ClassId, share: Share) {
        self.accounts[class].quantum = share.quantum();
    }

    /// Records that a class has a new head for a resource.
    pub(super) fn waits(&mut self, class: ClassId, sub_queue: usize) {
        let credit = self.credit(class);
        let account = &mut self.accounts[class];
        let own = &mut self.rings[account.ring];
        (account.credit, account.round) = (credit, own.rounds);
        let waiting = &mut own.waiting[sub_queue];
        if let Err(at) = waiting.binary_search(&class) {
            waiting.insert(at, class);
        }
    }

    /// Records that a class has no head for a resource any more.
    pub(super) fn gone(&mut self, class: ClassId, sub_queue: usize) {
        let waiting = &mut self.rings[self.accounts[class].ring].waiting[sub_queue];
        if let Ok(at) = waiting.binary_search(&class) {
            waiting.remove(at);
        }
    }

    /// Remaining credit of a class. A class that did not wait when a round began has exactly its quantum.
    pub(super) fn credit(&self, class: ClassId) -> Credit {
        let Account { ring, quantum, credit, round, .. } = self.accounts[class];
        let own = &self.rings[ring];
        let waits = || own.waiting[..self.sub_queues].iter().any(|waiting| waiting.binary_search(&class).is_ok());
        if round < own.rounds && !waits() { [quantum; RESOURCES] } else { credit }
    }

    /// Charges a release to its class.
    pub(super) fn charge(&mut self, class: ClassId, demand: Demand) {
        for (credit, demand) in self.accounts[class].credit.iter_mut().zip(demand.0) {
            *credit -= i64::from(demand);
        }
    }

    /// Number of rounds begun in a ring, and the positions of its pointers.
    pub(super) fn state(&self, ring: PartitionId) -> (u64, Vec<ClassId>) {
        (self.rings[ring].rounds, self.rings[ring].pointers[..self.sub_queues].to_vec())
    }

    /// The class and the resource with the next head to release.
    pub(super) fn next(&mut self, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let mut turn = self.turn;
        let found = in_turn(&mut turn, self.rings.len(), |ring| self.next_in(ring, view));
        self.turn = turn;
        found
    }

    fn next_in(&mut self, ring: PartitionId, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        if self.rings[ring].waiting.iter().all(Vec::is_empty) {
            return None;
        }
        let found = self.scan(ring, view);
        if found.is_some() || !self.deal(ring, view) {
            return found;
        }
        self.scan(ring, view)
    }

    /// Visits the sub-schedulers, the most available resource first.
    fn scan(&mut self, ring: PartitionId, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let mut order: [usize; RESOURCES] = core::array::from_fn(|sub_queue| sub_queue);
        let left = view.left(ring);
        // The sort is stable: ties go to the lowest number.
        order[..self.sub_queues].sort_by(|a, b| left[*b].total_cmp(&left[*a]));
        for sub_queue in order[..self.sub_queues].iter().copied() {
            let Ring { pointers, waiting, .. } = &self.rings[ring];
            let waiting = &waiting[sub_queue];
            let first = waiting.partition_point(|class| *class < pointers[sub_queue]);
            let round = waiting[first..].iter().chain(&waiting[..first]).copied();
            let found = round.into_iter().find(|class| {
                view.head(*class, sub_queue).is_some_and(|head| self.covers(*class, head) && view.fits(*class, head))
            });
            if let Some(class) = found {
                self.rings[ring].pointers[sub_queue] = class;
                return Some((class, sub_queue));
            }
        }
        None
    }

    /// Whether the class has enough credit in every resource.
    fn covers(&self, class: ClassId, demand: Demand) -> bool {
        self.accounts[class].credit.iter().zip(demand.0).all(|(credit, demand)| *credit >= i64::from(demand))
    }

    /// Number of rounds until the class has enough credit in every resource.
    fn rounds_until(&self, class: ClassId, demand: Demand) -> i64 {
        let Account { quantum, credit, .. } = self.accounts[class];
        let lacks = credit.iter().zip(demand.0).map(|(credit, demand)| i64::from(demand) - credit);
        let rounds = lacks.map(|lacks| if lacks <= 0 { 0 } else { (lacks + quantum - 1) / quantum });
        rounds.max().unwrap_or(0)
    }

    /// Every head of a ring that waits for nodes which can take requests, with its class.
    fn heads<'a>(
        &'a self,
        ring: PartitionId,
        view: &'a SchedulerView<'a>,
    ) -> impl Iterator<Item = (ClassId, Demand)> + 'a {
        let sub_queues = self.rings[ring].waiting[..self.sub_queues].iter().enumerate();
        sub_queues.flat_map(move |(sub_queue, waiting)| {
            let ready = waiting.iter().filter(|class| view.ready(self.accounts[**class].partition));
            ready.filter_map(move |class| Some((*class, view.head(*class, sub_queue)?)))
        })
    }

    /// Begins new rounds if they are due, as many as some head needs for its credit. Returns false if none
    /// is due.
    fn deal(&mut self, ring: PartitionId, view: &SchedulerView<'_>) -> bool {
        let (mut rounds, mut fits) = (i64::MAX, false);
        for (class, head) in self.heads(ring, view) {
            rounds = rounds.min(self.rounds_until(class, head));
            fits = fits || view.fits(class, head);
        }
        if rounds == 0 || !fits {
            return false;
        }
        let own = &mut self.rings[ring];
        own.rounds += rounds as u64;
        let round = own.rounds;
        for sub_queue in 0..self.sub_queues {
            for class in own.waiting[sub_queue].iter().copied() {
                // A class that waits in several sub-queues gets its quanta once.
                if self.accounts[class].round == round {
                    continue;
                }
                let mut largest = [0; RESOURCES];
                for head in (0..self.sub_queues).filter_map(|sub_queue| view.head(class, sub_queue)) {
                    for (largest, demand) in largest.iter_mut().zip(head.0) {
                        *largest = i64::from(demand).max(*largest);
                    }
                }
                let account = &mut self.accounts[class];
                account.round = round;
                for (credit, largest) in account.credit.iter_mut().zip(largest) {
                    let dealt = account.quantum.saturating_mul(rounds);
                    *credit = credit.saturating_add(dealt).min(largest + account.quantum);
                }
            }
        }
        true
    }
}
