//! [`crate::Precedence::Drfq`]: dominant-resource fair queueing over the nodes' resources.
//!
//! Source: the idea is that of Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011), and of its queueing form,
//! "Multi-Resource Fair Queueing for Packet Processing" (SIGCOMM 2012): a class has a virtual time per resource, which
//! advances by what it took of that resource over its weight; the largest of them is that of its *dominant* resource,
//! and the class where that is smallest goes first. What is released here are requests that hold all their resources at
//! once until they are answered, not packets that use them one after the other; and mQoS (Feng and Lin) gives every
//! class a queue per resource. Hence:
//! - of its own heads a class releases that for the resource of which it has had least: so it comes to have the same
//!   part of every resource, and its dominant share grows no faster than it must;
//! - who does not fit is passed over, so that nothing is idle that somebody can use. *Overtaking is bounded*, twice.
//!   Nobody's dominant virtual time runs further than [`AHEAD`] of the one that is furthest behind, unless what it
//!   takes is nothing of the resources that the other one waits for. And a head that has been passed over for
//!   [`PATIENCE`], or that all others would have to wait for, gets the resources of the node that lacks least for it
//!   *reserved* as they become free: until it fits, nothing goes there that takes of what it needs, and at the other
//!   nodes work goes on, [`PATIENCE`] ahead at most. So a request that needs most of a node does not wait for ever
//!   among many that need little of it, be they its own class's. A class that is too far ahead has to wait longer, by
//!   its part of the weights, and not for ever either;
//! - *a resource that only those want who are ahead is no reason to be ahead*. Whoever uses what nobody else asks for
//!   would lose his part of everything else by it, and do better not to ask: that is not what dominant-resource
//!   fairness promises (its sharing incentive). So each resource has a *lead*, by which virtual times count less. If
//!   the one of all who want it who is furthest behind is ahead by it of the one who is furthest behind at all, the
//!   lead grows until he is where his other resources put him;
//! - a class that begins to wait has the virtual time of the one that is furthest behind, in every resource: it does
//!   not catch up on what it did not use (start-time fair queueing, Goyal, Vin and Cheng 1996). Nor does it by another
//!   mix: what it has had less of one resource than of its dominant one counts up to [`MEMORY`] (their Δ-DRFQ).
//!
//! Classes whose pool can take nothing now (its nodes are down, or full by a bound of their own) are not candidates at,
//! and begin again where the others are: they would hold back those of other pools on the same machines.
//!
//! Beside `mdrr` no class waits for a round to end: turns are as short as the requests. A choice costs O(resources² ×
//! [`LOOK`] + log classes), whatever the number of classes, and as many looks at the nodes.

use super::share::Share;
use super::{SchedulerView, in_turn};
use crate::demand::{Demand, RESOURCES};
use crate::heap::Heaps;
use crate::index::Table;
use crate::request::ClassId;

/// How far one class may run ahead of another, in what all nodes of the pool do in a horizon: so much is released while
/// a class waits for one resource, and nothing is idle meanwhile.
const AHEAD: f64 = 0.25;

/// How much may be released before a head that does not fit. Under saturation every head waits for some of its turn: at
/// a quarter of a horizon reserving for them left 10 % of the resources unused, at one 6.5 %, at two 6 %, at four 5.5
/// %, which is what the grain of the requests costs; and what is waited for is soon over at two.
const PATIENCE: f64 = 2.0;

/// How far a class's virtual time of one resource may be behind its largest, in what all nodes of the pool do in a
/// horizon: a class that asks for one thing now and for another the next moment has used half of each, and after that
/// it is past. At one horizon the chance that a class of a tenth gets three requests of another kind in a row cost it 1
/// % of its part.
const MEMORY: f64 = 5.0;

/// Classes that are candidates at in each sub_queue. The first has had least; if the nodes have no room for the heads
/// of so many, those behind them seldom fit. Every sub_queue has its own: behind a thousand classes that wait for one
/// resource there may be one that waits for another.
const LOOK: usize = 8;

/// What a request takes of a resource, as a part of what it takes most of, from which on it is said to want it. A page
/// that computes sends an answer too; that makes it no competitor of downloads.
const BY_PRODUCT: f64 = 0.1;

/// Per resource what a class has had by its weight, in node-seconds.
type Times = [f64; RESOURCES];

/// The virtual times of every class.
#[derive(Clone, Debug)]
pub(crate) struct Drfq {
    sub_queues: usize,
    clocks: Vec<Clock>,
    /// Per class.
    accounts: Table<ClassId, Account>,
    /// Per pool and sub_queue the classes that have a head there, by their dominant virtual time. It may have become
    /// less since, as leads grow; whoever is candidates at is brought up to date.
    waiting: Heaps<f64>,
    /// Whom a choice looks at, by dominant virtual time; empty in between.
    candidates: Vec<Candidate>,
    /// The clock after the one that released last.
    turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Its dominant virtual time …
    time: f64,
    class: ClassId,
    /// … and that by which it is in its heap.
    stored: f64,
}

#[derive(Clone, Copy, Debug)]
struct Pool {
    pool: usize,
    /// Could it take requests at the latest choice?
    ready: bool,
    /// How far the others were when it could again: its classes are no further behind.
    floor: f64,
}

/// The virtual time of pools that have the same machines, by the number of the first of them.
#[derive(Clone, Debug, Default)]
struct Clock {
    pools: Vec<Pool>,
    /// The dominant virtual time of who was furthest behind, at the latest choice.
    now: f64,
    /// Per resource how far ahead all are who want it.
    lead: Times,
    /// How far ahead is too far, by weight as virtual times are.
    ahead: f64,
    /// The same while resources are reserved for who is furthest behind.
    far: f64,
    /// How far a class's times may lie apart.
    memory: f64,
    /// How much may be released before a head that does not fit, in node-seconds.
    patience: f64,
    /// What was released so far, in node-seconds of each request's dominant resource.
    released: f64,
    /// The class and sub_queue for whose head resources are reserved.
    reserved: Option<(ClassId, usize)>,
}

impl Clock {
    fn resize(&mut self, share: Share) {
        self.patience = PATIENCE * share.whole;
        self.ahead = AHEAD * share.whole / share.weights;
        self.far = PATIENCE * share.whole / share.weights;
        self.memory = MEMORY * share.whole / share.weights;
    }

    /// Virtual times of who is at `time` in every resource.
    fn at(&self, time: f64) -> Times {
        self.lead.map(|lead| time + lead)
    }

    /// The largest of a class's virtual times.
    fn dominant(&self, account: &Account) -> f64 {
        self.largest(account, |_| true)
    }

    /// The largest of those that `count`.
    fn largest(&self, account: &Account, count: impl Fn(usize) -> bool) -> f64 {
        let times = account.times.iter().zip(self.lead).map(|(time, lead)| time - lead).enumerate();
        times.filter(|(resource, _)| count(*resource)).map(|(_, time)| time).fold(f64::NEG_INFINITY, f64::max)
    }
}

#[derive(Clone, Debug)]
struct Account {
    clock: usize,
    pool: usize,
    weight: f64,
    /// Its part of the weights of its clock's classes.
    part: f64,
    times: Times,
    /// Per sub_queue the arrival number of its head.
    heads: [Option<u64>; RESOURCES],
    /// What had been released when the head was passed over first.
    passed: [Option<f64>; RESOURCES],
}

impl Account {
    /// No virtual time is less than this.
    fn raise(&mut self, least: Times) {
        self.times.iter_mut().zip(least).for_each(|(time, least)| *time = time.max(least));
    }

    fn waits(&self) -> bool {
        self.heads.iter().any(Option::is_some)
    }

    /// Its sub_queues, that of the resource first of which it has had least.
    fn sub_queues(&self, sub_queues: usize, lead: Times) -> impl Iterator<Item = usize> + use<> {
        let mut order: [usize; RESOURCES] = core::array::from_fn(|sub_queue| sub_queue);
        let time = |sub_queue: usize| self.times[sub_queue] - lead[sub_queue];
        order[..sub_queues].sort_by(|a, b| time(*a).total_cmp(&time(*b)));
        order.into_iter().take(sub_queues)
    }
}

/// Takes it nothing of what is marked?
fn spares(marked: &[bool; RESOURCES], demand: Demand) -> bool {
    marked.iter().zip(demand.0).all(|(marked, demand)| !marked || demand == 0)
}

impl Drfq {
    /// For so many pools and `sub_queues` resources. Classes come with [`Drfq::open`].
    pub(super) fn new(pools: usize, sub_queues: usize) -> Drfq {
        Drfq {
            sub_queues,
            clocks: vec![Clock::default(); pools],
            accounts: Table::new(),
            waiting: Heaps::new(pools * sub_queues, 0),
            candidates: Vec::new(),
            turn: 0,
        }
    }

    /// A class with its part of its clock.
    pub(super) fn open(&mut self, class: ClassId, share: Share) {
        let Share { first: clock, pool, weight, weights, .. } = share;
        let own = &mut self.clocks[clock];
        if own.pools.iter().all(|known| known.pool != pool) {
            own.pools.push(Pool { pool, ready: true, floor: 0.0 });
        }
        own.resize(share);
        let (heads, passed) = ([None; RESOURCES], [None; RESOURCES]);
        let fresh = Account { clock, pool, weight, part: weight / weights, times: own.at(own.now), heads, passed };
        self.accounts.put(class, fresh);
        self.waiting.grow(self.accounts.len() * self.sub_queues);
    }

    /// The nodes of a clock have another size.
    pub(super) fn resize(&mut self, share: Share) {
        self.clocks[share.first].resize(share);
    }

    /// A class's place in a sub_queue's heap, and the heap.
    fn place(&self, class: ClassId, sub_queue: usize) -> (usize, u32) {
        (self.accounts[class].pool * self.sub_queues + sub_queue, class.0 * self.sub_queues as u32 + sub_queue as u32)
    }

    /// A class has a head for a resource, the request that arrived as number `head`. After every charge it is told
    /// again.
    pub(super) fn waits(&mut self, class: ClassId, sub_queue: usize, head: u64) {
        let account = &mut self.accounts[class];
        let own = &self.clocks[account.clock];
        if !account.waits() {
            account.raise(own.at(own.now));
        }
        let another = account.heads[sub_queue].replace(head) != Some(head);
        let time = own.dominant(account);
        if another {
            self.settled(class, sub_queue);
        }
        let (heap, item) = self.place(class, sub_queue);
        self.waiting.set(heap, item, time);
    }

    /// It has none any more.
    pub(super) fn gone(&mut self, class: ClassId, sub_queue: usize) {
        self.settled(class, sub_queue);
        self.accounts[class].heads[sub_queue] = None;
        let (heap, item) = self.place(class, sub_queue);
        self.waiting.remove(heap, item);
    }

    /// A release of the head for `sub_queue` is charged to its class. [`Drfq::waits`] follows for the sub_queues that
    /// have heads.
    pub(super) fn charge(&mut self, class: ClassId, sub_queue: usize, demand: Demand) {
        let account = &mut self.accounts[class];
        let own = &mut self.clocks[account.clock];
        own.released += f64::from(demand.dominant()) / 1e9;
        for (time, demand) in account.times.iter_mut().zip(demand.0) {
            *time += f64::from(demand) / 1e9 / account.weight;
        }
        account.raise(own.at(own.dominant(account) - own.memory));
        self.settled(class, sub_queue);
    }

    /// The head of a sub_queue is gone.
    fn settled(&mut self, class: ClassId, sub_queue: usize) {
        let account = &mut self.accounts[class];
        account.passed[sub_queue] = None;
        let reserved = &mut self.clocks[account.clock].reserved;
        if *reserved == Some((class, sub_queue)) {
            *reserved = None;
        }
    }

    /// The head of a sub_queue does not fit, or its class is far ahead. Resources are reserved for it if that has been
    /// so for long.
    fn pass(&mut self, class: ClassId, sub_queue: usize, near: bool) {
        let account = &mut self.accounts[class];
        let own = &mut self.clocks[account.clock];
        let since = *account.passed[sub_queue].get_or_insert(own.released);
        let patience = if near { own.patience } else { own.patience / account.part };
        if own.reserved.is_none() && own.released - since >= patience {
            own.reserved = Some((class, sub_queue));
        }
    }

    /// The class and the resource whose head is released next.
    pub(super) fn next(&mut self, view: &mut SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let mut turn = self.turn;
        let found = in_turn(&mut turn, self.clocks.len(), |clock| self.next_in(clock, view));
        self.turn = turn;
        found
    }

    fn next_in(&mut self, clock: usize, view: &mut SchedulerView<'_>) -> Option<(ClassId, usize)> {
        if let Some(first) = self.reserve(clock, view) {
            return Some(first);
        }
        let mut candidates = core::mem::take(&mut self.candidates);
        self.look(clock, view, &mut candidates);
        let mut found = self.choose(clock, view, &candidates);
        if let Err(Some(held_up)) = found {
            self.clocks[clock].reserved = Some(held_up);
            found = match self.reserve(clock, view) {
                Some(first) => Ok(first),
                None => self.choose(clock, view, &candidates),
            };
        }
        candidates.clear();
        self.candidates = candidates;
        found.ok()
    }

    /// Keeps what is reserved. The head for which it is, if that fits now.
    fn reserve(&mut self, clock: usize, view: &mut SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let reserved = self.clocks[clock].reserved;
        let head = reserved.and_then(|(class, sub_queue)| {
            let ready = view.ready(self.accounts[class].pool);
            ready.then(|| view.head(class, sub_queue)).flatten().map(|head| (class, head))
        });
        if head.is_none() {
            self.clocks[clock].reserved = None;
        }
        let fits = view.keep(clock, head);
        reserved.filter(|_| fits)
    }

    /// Finds the classes that have had least, in their order, and brings leads up to date.
    fn look(&mut self, clock: usize, view: &SchedulerView<'_>, candidates: &mut Vec<Candidate>) {
        let sub_queues = self.sub_queues;
        let Clock { pools, now, .. } = &mut self.clocks[clock];
        for Pool { pool, ready, floor } in pools {
            let was = core::mem::replace(ready, view.ready(*pool));
            if *ready && !was {
                *floor = *now;
            }
            if *ready {
                let first =
                    (0..sub_queues).flat_map(|sub_queue| self.waiting.first::<LOOK>(*pool * sub_queues + sub_queue));
                candidates.extend(first.map(|(stored, item)| Candidate {
                    time: stored,
                    class: ClassId(item / sub_queues as u32),
                    stored,
                }));
            }
        }
        candidates.sort_unstable_by_key(|one| one.class);
        candidates.dedup_by_key(|one| one.class);
        self.order(clock, candidates);
        if self.find_leads(clock, view, candidates) {
            self.order(clock, candidates);
        }
        if let Some(first) = candidates.first() {
            let now = &mut self.clocks[clock].now;
            *now = now.max(first.time);
        }
    }

    /// Finds for every resource who of those that want it is furthest behind, and lets its lead grow if he is ahead
    /// because of it. True if one has grown.
    fn find_leads(&mut self, clock: usize, view: &SchedulerView<'_>, candidates: &[Candidate]) -> bool {
        let Some(first) = candidates.first() else { return false };
        let own = &mut self.clocks[clock];
        let mut wanted = [false; RESOURCES];
        let mut grown = false;
        for one in candidates {
            let account = &self.accounts[one.class];
            for head in (0..self.sub_queues).filter_map(|sub_queue| view.head(one.class, sub_queue)) {
                let least = BY_PRODUCT * f64::from(head.dominant());
                for (resource, wanted) in wanted[..self.sub_queues].iter_mut().enumerate() {
                    let wants = head.0[resource] > 0 && f64::from(head.0[resource]) >= least;
                    if !wants || core::mem::replace(wanted, true) {
                        continue;
                    }
                    let others = own.largest(account, |other| other != resource);
                    let lead = account.times[resource] - others.max(own.now);
                    // He is ahead of everybody, and because of nothing else.
                    if account.times[resource] - own.lead[resource] > first.time.max(own.now)
                        && lead > own.lead[resource]
                    {
                        own.lead[resource] = lead;
                        grown = true;
                    }
                }
            }
            if wanted[..self.sub_queues].iter().all(|wanted| *wanted) {
                break;
            }
        }
        grown
    }

    /// Orders classes by their dominant virtual times as they are with the leads of now.
    fn order(&mut self, clock: usize, candidates: &mut [Candidate]) {
        let own = &self.clocks[clock];
        for one in candidates.iter_mut() {
            let account = &mut self.accounts[one.class];
            one.time = own.dominant(account);
            let floor = own.pools.iter().find(|pool| pool.pool == account.pool).map_or(0.0, |pool| pool.floor);
            if one.time < floor {
                account.raise(own.at(floor));
                one.time = floor;
            }
        }
        for one in candidates.iter_mut().filter(|one| one.time != one.stored) {
            one.stored = one.time;
            for sub_queue in 0..self.sub_queues {
                if self.accounts[one.class].heads[sub_queue].is_some() {
                    let (heap, item) = self.place(one.class, sub_queue);
                    self.waiting.set(heap, item, one.time);
                }
            }
        }
        candidates.sort_unstable_by(|a, b| a.time.total_cmp(&b.time).then(a.class.cmp(&b.class)));
    }

    /// The first of them that has a head that may go. If there is none, the head that others are held up by, if one is
    /// and nothing is reserved yet.
    fn choose(
        &mut self,
        clock: usize,
        view: &SchedulerView<'_>,
        candidates: &[Candidate],
    ) -> Result<(ClassId, usize), Option<(ClassId, usize)>> {
        let last = candidates.first().ok_or(None)?;
        let Clock { ahead, far, lead, reserved, .. } = self.clocks[clock];
        let ahead = if reserved.is_some_and(|(class, _)| class == last.class) { far } else { ahead };
        // What the class that is furthest behind waits for, with which head, and whether others do because of it.
        let mut lacking = [false; RESOURCES];
        let (mut waits, mut held_up) = (None, false);
        for one in candidates {
            let near = one.time <= last.time + ahead;
            for sub_queue in self.accounts[one.class].sub_queues(self.sub_queues, lead) {
                let Some(head) = view.head(one.class, sub_queue) else { continue };
                let fits = view.fits(one.class, head);
                if fits && (near || spares(&lacking, head)) {
                    return Ok((one.class, sub_queue));
                }
                held_up |= fits;
                self.pass(one.class, sub_queue, near);
                if one.class == last.class && !fits {
                    waits = waits.or(Some((one.class, sub_queue)));
                    let more = view.lacking(one.class, head);
                    lacking.iter_mut().zip(more).for_each(|(all, more)| *all |= more);
                }
            }
        }
        Err(waits.filter(|_| held_up && reserved.is_none()))
    }
}
