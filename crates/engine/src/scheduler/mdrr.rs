//! [`crate::Precedence::Mdrr`]: deficit round robin over several resources at once.
//!
//! Source: Feng and Lin, *Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway* (2005),
//! Secs. 3.3 and 3.4. Every class has a credit (deficit counter) in every resource, and a queue for each resource,
//! which holds the requests that take most of that resource. The main scheduler turns to the resource that is most
//! available; that resource's sub-scheduler goes round the classes and releases the head of a queue if the nodes have
//! enough of *every* resource for it and the class has credit in *every* resource. A release is charged to all of them,
//! so that each class gets its weight's part of each resource, whatever mix it asks for.
//!
//! The pseudo-code that the paper prints stops for good, in two ways: it turns to the most available resource even if
//! nobody waits for it, and a new round needs flags that may never all be set. Rules that do not:
//! - resources are tried in the order of their availability, as far as anybody waits for them;
//! - a sub-scheduler's pointer stays at a class that released, and moves on from one that cannot;
//! - a new round begins only if nothing can be released, no head has credit for all it needs, and a node has enough
//!   for some head. As long as a head has its credit and only waits for nodes, everybody waits: credit that was dealt
//!   out then would be dealt to those who have most of it already;
//! - at a new round a class that waits keeps at most what its largest head needs of each resource, one that does not
//!   keeps nothing; then everybody gets a quantum of each;
//! - classes whose pool can take nothing now (its nodes are down, or full by a bound of their own) do not keep others
//!   from their round; it is dealt to them too;
//! - so many rounds as it takes until a head has its credit are dealt at once: a class with a thousandth of the
//!   weight costs no thousand rounds of work.
//!
//! Why it cannot stop: while nodes are idle every request that is let in fits (larger ones are refused at arrival), so
//! either a head has credit and is released, or a new round gives some head its credit.
//!
//! With one resource this is deficit round robin as it is known (Shreedhar and Varghese 1996), but for the quanta,
//! which are dealt to all at once (Sec. 3.4).
//!
//! Departures: ties go to the lowest number where the paper draws lots; each pool has rounds of its own, since the
//! classes of one must not wait for the nodes of another; pools that have the same machines are one *ring*. A choice
//! costs O(waiting classes × resources × nodes) at worst: for thousands of tenants there is `drfq`.

use super::share::Share;
use super::{SchedulerView, in_turn};
use crate::demand::{Demand, RESOURCES};
use crate::index::Table;
use crate::request::ClassId;

/// What a class has left of each resource in this round, in billionths of a node-second.
pub(crate) type Credit = [i64; RESOURCES];

/// The rounds of every ring.
#[derive(Clone, Debug)]
pub(crate) struct Mdrr {
    sub_queues: usize,
    rings: Vec<Ring>,
    /// Per class.
    accounts: Table<ClassId, Account>,
    /// The ring after the one that released last.
    turn: usize,
}

/// Pools that have the same machines, by the number of the first of them.
#[derive(Clone, Debug)]
struct Ring {
    /// Per sub_queue the class that its pointer is at.
    pointers: [ClassId; RESOURCES],
    /// Per sub_queue the classes that wait, in the order of their numbers.
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
    ring: usize,
    pool: usize,
    quantum: i64,
    credit: Credit,
    /// The round in which the credit was dealt.
    round: u64,
}

impl Mdrr {
    /// For so many pools and `sub_queues` resources. Classes come with [`Mdrr::open`].
    pub(super) fn new(pools: usize, sub_queues: usize) -> Mdrr {
        Mdrr { sub_queues, rings: vec![Ring::new(); pools], accounts: Table::new(), turn: 0 }
    }

    /// Opens the account of a class, which has its first quantum.
    pub(super) fn open(&mut self, class: ClassId, share: Share) {
        let Share { first, pool, .. } = share;
        let (quantum, round) = (share.quantum(), self.rings[first].rounds);
        let fresh = Account { ring: first, pool, quantum, credit: [quantum; RESOURCES], round };
        self.accounts.put(class, fresh);
    }

    /// Rounds are longer or shorter from now on: the nodes have another size.
    pub(super) fn resize(&mut self, class: ClassId, share: Share) {
        self.accounts[class].quantum = share.quantum();
    }

    /// A class has a head for a resource, or another one.
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

    /// It has none any more.
    pub(super) fn gone(&mut self, class: ClassId, sub_queue: usize) {
        let waiting = &mut self.rings[self.accounts[class].ring].waiting[sub_queue];
        if let Ok(at) = waiting.binary_search(&class) {
            waiting.remove(at);
        }
    }

    /// What a class has left. One that did not wait when a round began has its quantum and nothing besides.
    pub(super) fn credit(&self, class: ClassId) -> Credit {
        let Account { ring, quantum, credit, round, .. } = self.accounts[class];
        let own = &self.rings[ring];
        let waits = || own.waiting[..self.sub_queues].iter().any(|waiting| waiting.binary_search(&class).is_ok());
        if round < own.rounds && !waits() { [quantum; RESOURCES] } else { credit }
    }

    /// A release is charged to its class.
    pub(super) fn charge(&mut self, class: ClassId, demand: Demand) {
        for (credit, demand) in self.accounts[class].credit.iter_mut().zip(demand.0) {
            *credit -= i64::from(demand);
        }
    }

    /// Rounds begun in a ring, and where its pointers are.
    pub(super) fn state(&self, ring: usize) -> (u64, Vec<ClassId>) {
        (self.rings[ring].rounds, self.rings[ring].pointers[..self.sub_queues].to_vec())
    }

    /// The class and the resource whose head is released next.
    pub(super) fn next(&mut self, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let mut turn = self.turn;
        let found = in_turn(&mut turn, self.rings.len(), |ring| self.next_in(ring, view));
        self.turn = turn;
        found
    }

    fn next_in(&mut self, ring: usize, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        if self.rings[ring].waiting.iter().all(Vec::is_empty) {
            return None;
        }
        let found = self.scan(ring, view);
        if found.is_some() || !self.deal(ring, view) {
            return found;
        }
        self.scan(ring, view)
    }

    /// Goes round the sub-schedulers, the most available resource first.
    fn scan(&mut self, ring: usize, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let mut order: [usize; RESOURCES] = core::array::from_fn(|sub_queue| sub_queue);
        let left = view.left(ring);
        // A stable sort: ties go to the lowest number.
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

    /// Has the class credit in every resource for it?
    fn covers(&self, class: ClassId, demand: Demand) -> bool {
        self.accounts[class].credit.iter().zip(demand.0).all(|(credit, demand)| *credit >= i64::from(demand))
    }

    /// Rounds until the class has credit in every resource for it.
    fn rounds_until(&self, class: ClassId, demand: Demand) -> i64 {
        let Account { quantum, credit, .. } = self.accounts[class];
        let lacks = credit.iter().zip(demand.0).map(|(credit, demand)| i64::from(demand) - credit);
        let rounds = lacks.map(|lacks| if lacks <= 0 { 0 } else { (lacks + quantum - 1) / quantum });
        rounds.max().unwrap_or(0)
    }

    /// Every head of a ring that waits for nodes which can take something, with its class.
    fn heads<'a>(&'a self, ring: usize, view: &'a SchedulerView<'a>) -> impl Iterator<Item = (ClassId, Demand)> + 'a {
        let sub_queues = self.rings[ring].waiting[..self.sub_queues].iter().enumerate();
        sub_queues.flat_map(move |(sub_queue, waiting)| {
            let ready = waiting.iter().filter(|class| view.ready(self.accounts[**class].pool));
            ready.filter_map(move |class| Some((*class, view.head(*class, sub_queue)?)))
        })
    }

    /// Begins new rounds if that is due, as many as some head needs for its credit. False if it is not.
    fn deal(&mut self, ring: usize, view: &SchedulerView<'_>) -> bool {
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
                // A class that waits in several sub_queues is dealt to once.
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
