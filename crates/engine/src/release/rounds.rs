//! [`crate::Precedence::Mdrr`]: deficit round robin over several resources at once.
//!
//! Source: Feng and Lin, *Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway* (2005),
//! Secs. 3.3 and 3.4. Every class has a credit (deficit counter) in every resource, and a queue for each resource, which
//! holds the requests that take most of that resource. The main scheduler turns to the resource that is most available;
//! that resource's sub-scheduler goes round the classes and releases the head of a queue if the nodes have enough of
//! *every* resource for it and the class has credit in *every* resource. A release is charged to all of them, so that
//! each class gets its weight's part of each resource, whatever mix it asks for.
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
//! - classes whose pool can take nothing now (its nodes are down, or full by a bound of their own) do not keep others from their
//!   round; it is dealt to them too;
//! - so many rounds as it takes until a head has its credit are dealt at once: a class with a thousandth of the
//!   weight costs no thousand rounds of work.
//!
//! Why it cannot stop: while nodes are idle every request that is let in fits (larger ones are refused at arrival), so
//! either a head has credit and is released, or a new round gives some head its credit.
//!
//! With one resource this is deficit round robin as it is known (Shreedhar and Varghese 1996), but for the quanta, which
//! are dealt to all at once (Sec. 3.4).
//!
//! Departures: ties go to the lowest number where the paper draws lots; each pool has rounds of its own, since the
//! classes of one must not wait for the nodes of another; pools that have the same machines are one *domain*
//! (`dispatch/availability.rs`). A choice costs O(waiting classes × resources × nodes) at worst: for thousands of tenants there
//! is `drfq`.

use super::precedence::Share;
use crate::demand::{Demand, RESOURCES};
use crate::index::Table;
use crate::request::ClassId;

/// What a class has left of each resource in this round, in billionths of a node-second.
pub(crate) type Credit = [i64; RESOURCES];

/// What the sub-schedulers see of queues and nodes.
pub(crate) trait Sight {
    /// What the head takes that a class has for a resource, if there is one.
    fn head(&self, class: ClassId, line: usize) -> Option<Demand>;
    /// Has the pool a node that can take requests now, be they small enough?
    fn ready(&self, pool: usize) -> bool;
    /// Has a node that may serve the class enough for it, and nothing kept for others?
    fn fits(&self, class: ClassId, demand: Demand) -> bool;
    /// What is left of each resource in the domain, as a share.
    fn left(&self, domain: usize) -> [f64; RESOURCES];
    /// Which resources keep the nodes that may serve the class from taking it.
    fn lacking(&self, class: ClassId, demand: Demand) -> [bool; RESOURCES];
    /// Keeps resources of the domain for what a class asks for, or for nobody. True if it fits now; then nothing is kept any more.
    fn keep(&mut self, domain: usize, head: Option<(ClassId, Demand)>) -> bool;
}

/// The rounds of every domain: pools that have the same machines.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    lines: usize,
    domains: Vec<Domain>,
    /// Per class.
    accounts: Table<ClassId, Account>,
}

#[derive(Clone, Debug)]
struct Domain {
    /// Per line the class that its pointer is at.
    pointers: [ClassId; RESOURCES],
    /// Per line the classes that wait, in the order of their numbers.
    waiting: [Vec<ClassId>; RESOURCES],
    /// Rounds begun after the first.
    rounds: u64,
}

impl Domain {
    fn new() -> Domain {
        let waiting = core::array::from_fn(|_| Vec::new());
        Domain { pointers: [ClassId(0); RESOURCES], waiting, rounds: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Account {
    domain: usize,
    pool: usize,
    quantum: i64,
    credit: Credit,
    /// The round in which the credit was dealt.
    round: u64,
}

impl Rounds {
    /// For so many pools and `lines` resources. Classes come with [`Rounds::open`].
    pub(crate) fn new(pools: usize, lines: usize) -> Rounds {
        Rounds { lines, domains: vec![Domain::new(); pools], accounts: Table::new() }
    }

    /// Opens the account of a class, which has its first quantum.
    pub(crate) fn open(&mut self, class: ClassId, share: Share) {
        let Share { domain, pool, .. } = share;
        let (quantum, round) = (share.quantum(), self.domains[domain].rounds);
        let fresh = Account { domain, pool, quantum, credit: [quantum; RESOURCES], round };
        self.accounts.put(class, fresh);
    }

    /// Rounds are longer or shorter from now on: the nodes have another size.
    pub(crate) fn resize(&mut self, class: ClassId, share: Share) {
        self.accounts[class].quantum = share.quantum();
    }

    /// A class has a head for a resource, or another one.
    pub(crate) fn waits(&mut self, class: ClassId, line: usize) {
        let credit = self.credit(class);
        let account = &mut self.accounts[class];
        let own = &mut self.domains[account.domain];
        (account.credit, account.round) = (credit, own.rounds);
        let waiting = &mut own.waiting[line];
        if let Err(at) = waiting.binary_search(&class) {
            waiting.insert(at, class);
        }
    }

    /// It has none any more.
    pub(crate) fn waits_no_more(&mut self, class: ClassId, line: usize) {
        let waiting = &mut self.domains[self.accounts[class].domain].waiting[line];
        if let Ok(at) = waiting.binary_search(&class) {
            waiting.remove(at);
        }
    }

    /// What a class has left. One that did not wait when a round began has its quantum and nothing besides.
    pub(crate) fn credit(&self, class: ClassId) -> Credit {
        let Account { domain, quantum, credit, round, .. } = self.accounts[class];
        let own = &self.domains[domain];
        let waits = || own.waiting[..self.lines].iter().any(|waiting| waiting.binary_search(&class).is_ok());
        if round < own.rounds && !waits() { [quantum; RESOURCES] } else { credit }
    }

    /// A release is charged to its class.
    pub(crate) fn charge(&mut self, class: ClassId, demand: Demand) {
        for (credit, demand) in self.accounts[class].credit.iter_mut().zip(demand.0) {
            *credit -= i64::from(demand);
        }
    }

    /// Rounds begun in a domain, and where its pointers are.
    pub(crate) fn state(&self, domain: usize) -> (u64, &[ClassId]) {
        (self.domains[domain].rounds, &self.domains[domain].pointers[..self.lines])
    }

    /// The class and the resource whose head is released next.
    pub(crate) fn next(&mut self, domain: usize, sight: &impl Sight) -> Option<(ClassId, usize)> {
        if self.domains[domain].waiting.iter().all(Vec::is_empty) {
            return None;
        }
        let found = self.scan(domain, sight);
        if found.is_some() || !self.deal(domain, sight) {
            return found;
        }
        self.scan(domain, sight)
    }

    /// Goes round the sub-schedulers, the most available resource first.
    fn scan(&mut self, domain: usize, sight: &impl Sight) -> Option<(ClassId, usize)> {
        let mut order: [usize; RESOURCES] = core::array::from_fn(|line| line);
        let left = sight.left(domain);
        // A stable sort: ties go to the lowest number.
        order[..self.lines].sort_by(|a, b| left[*b].total_cmp(&left[*a]));
        for line in order[..self.lines].iter().copied() {
            let Domain { pointers, waiting, .. } = &self.domains[domain];
            let waiting = &waiting[line];
            let first = waiting.partition_point(|class| *class < pointers[line]);
            let ring = waiting[first..].iter().chain(&waiting[..first]).copied();
            let found = ring.into_iter().find(|class| {
                sight.head(*class, line).is_some_and(|head| self.covers(*class, head) && sight.fits(*class, head))
            });
            if let Some(class) = found {
                self.domains[domain].pointers[line] = class;
                return Some((class, line));
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

    /// Every head of a domain that waits for nodes which can take something, with its class.
    fn heads<'a>(&'a self, domain: usize, sight: &'a impl Sight) -> impl Iterator<Item = (ClassId, Demand)> + 'a {
        let lines = self.domains[domain].waiting[..self.lines].iter().enumerate();
        lines.flat_map(move |(line, waiting)| {
            let ready = waiting.iter().filter(|class| sight.ready(self.accounts[**class].pool));
            ready.filter_map(move |class| Some((*class, sight.head(*class, line)?)))
        })
    }

    /// Begins new rounds if that is due, as many as some head needs for its credit. False if it is not.
    fn deal(&mut self, domain: usize, sight: &impl Sight) -> bool {
        let (mut rounds, mut fits) = (i64::MAX, false);
        for (class, head) in self.heads(domain, sight) {
            rounds = rounds.min(self.rounds_until(class, head));
            fits = fits || sight.fits(class, head);
        }
        if rounds == 0 || !fits {
            return false;
        }
        let own = &mut self.domains[domain];
        own.rounds += rounds as u64;
        let round = own.rounds;
        for line in 0..self.lines {
            for class in own.waiting[line].iter().copied() {
                // A class that waits in several lines is dealt to once.
                if self.accounts[class].round == round {
                    continue;
                }
                let mut largest = [0; RESOURCES];
                for head in (0..self.lines).filter_map(|line| sight.head(class, line)) {
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
