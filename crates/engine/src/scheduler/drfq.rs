//! [`crate::Precedence::Drfq`]: dominant-resource fair queueing over the nodes' resources.
//!
//! Source: the idea of Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011), and of its queueing form,
//! "Multi-Resource Fair Queueing for Packet Processing" (SIGCOMM 2012). A class has a virtual time per
//! resource, which advances by its use of that resource divided by its weight. The resource with the largest
//! virtual time is the class's *dominant* one. The class with the smallest dominant virtual time goes first.
//! Two things differ here. Requests hold all their resources at once until they are answered, while packets
//! use them one after the other. And mQoS (Feng and Lin) gives every class a queue per resource. Hence:
//! - Of its own heads a class releases the one for the resource that it has used least. It thus gets equal
//!   shares of all resources, and its dominant share grows no faster than it must.
//! - A head that does not fit is passed over, so that no usable resource stays idle. *Overtaking is
//!   bounded*, in two ways. First, no dominant virtual time runs further than [`AHEAD`] beyond the smallest
//!   one, unless the request needs none of the resources that the class with the smallest one waits for.
//!   Second, a head gets resources *reserved* if it has been passed over for [`PATIENCE`], or if all other
//!   classes would have to wait for it. Resources are reserved as they become free, on the node that lacks
//!   least for it. Until it fits, no request that needs the same resources goes to that node. The other
//!   nodes continue, at most [`PATIENCE`] ahead. So a request that needs most of a node does not wait for
//!   ever behind many small ones, even of its own class. A class that is too far ahead waits longer,
//!   according to its share of the weights, but not for ever either.
//! - *Using a resource that no other class waits for does not count against a class.* Otherwise the class
//!   would lose its share of all other resources and do better not to use that one. Dominant-resource
//!   fairness promises the opposite (its sharing incentive). So each resource has a *lead* that is
//!   subtracted from its virtual times. Take, of all classes that want the resource, the one with the
//!   smallest virtual time. If this resource alone puts it ahead of the class with the smallest virtual time
//!   overall, the lead grows until the class is where its other resources put it.
//! - A class that begins to wait gets the smallest dominant virtual time of all classes, in every resource.
//!   It does not catch up on unused shares (start-time fair queueing, Goyal, Vin and Cheng 1996). Nor does
//!   it gain from changing its mix: a resource may lag behind its dominant one by at most [`MEMORY`] (their
//!   Δ-DRFQ).
//!
//! A class is not a candidate while its pool can take no request (its nodes are down, or full by a bound of
//! their own). It resumes at the virtual time of the others. Otherwise it would hold back classes of other
//! pools on the same machines.
//!
//! Unlike in `mdrr`, no class waits for a round to end: a turn is one request. A choice costs O(resources² ×
//! [`LOOK`] + log classes), whatever the number of classes, and as many checks of the nodes.

use super::share::Share;
use super::{SchedulerView, in_turn};
use crate::demand::{Demand, RESOURCES};
use crate::heap::Heaps;
use crate::index::{Id, PartitionId, Table};
use crate::request::ClassId;

/// Maximum distance of one class ahead of another, in units of the work that all nodes of the partition do in one
/// horizon. This much is released while a class waits for one resource, and no resource is idle meanwhile.
const AHEAD: f64 = 0.25;

/// Maximum work released before a head that does not fit, in the same unit. Under saturation every head
/// waits for some of its turn. Reserving after a quarter of a horizon left 10 % of the resources unused,
/// after one 6.5 %, after two 6 %, and after four 5.5 %, which is the cost of the requests' granularity. At
/// two horizons the wait is still short.
const PATIENCE: f64 = 2.0;

/// Maximum distance of a class's virtual time of one resource behind its largest one, in the same unit. A
/// class that alternates between two resources has used half of each, but older use no longer counts. With
/// one horizon, three requests of another kind in a row by chance cost a class with a tenth of the weights 1
/// % of its share.
const MEMORY: f64 = 5.0;

/// Number of candidate classes in each sub-queue. The first has used least. If the nodes have no room for
/// the heads of so many classes, the ones behind them seldom fit. Each sub-queue is searched separately:
/// behind a thousand classes that wait for one resource there may be one that waits for another.
const LOOK: usize = 8;

/// A request wants a resource if its cost there is at least this share of its largest cost. A computed page
/// also sends an answer, but that does not make it a competitor of downloads.
const BY_PRODUCT: f64 = 0.1;

/// Use of each resource by a class divided by its weight, in node-seconds.
type Times = [f64; RESOURCES];

/// The virtual times of every class.
#[derive(Clone, Debug)]
pub(crate) struct Drfq {
    sub_queues: usize,
    clocks: Table<PartitionId, Clock>,
    /// Accounts per class.
    accounts: Table<ClassId, Account>,
    /// Classes with a waiting head, per partition and sub-queue, by their dominant virtual time. The stored time
    /// may be too large, because leads grow. It is updated for every candidate.
    waiting: Heaps<f64>,
    /// The candidates of a choice, by dominant virtual time. Empty between choices.
    candidates: Vec<Candidate>,
    /// The clock after the one that released last.
    turn: usize,
    /// Whether resources that were kept for a head have become free in this choice.
    freed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Its current dominant virtual time.
    time: f64,
    class: ClassId,
    /// The time under which it is stored in its heap.
    stored: f64,
}

/// A partition served by a clock.
#[derive(Clone, Copy, Debug)]
struct Served {
    partition: PartitionId,
    /// Whether it could take requests at the latest choice.
    ready: bool,
    /// Virtual time of the others when it last became ready. Its classes are at least there.
    floor: f64,
}

/// The virtual time of partitions with the same machines, indexed by the first of these partitions.
#[derive(Clone, Debug, Default)]
struct Clock {
    served: Vec<Served>,
    /// The smallest dominant virtual time at the latest choice.
    now: f64,
    /// Lead per resource: the distance by which all classes that want it are ahead.
    lead: Times,
    /// Maximum distance ahead of the smallest virtual time, divided by the sum of the weights.
    ahead: f64,
    /// The same while resources are reserved for the class with the smallest virtual time.
    far: f64,
    /// Maximum distance between the virtual times of a class.
    memory: f64,
    /// Maximum work released before a head that does not fit, in node-seconds.
    patience: f64,
    /// Work released so far, in node-seconds of each request's dominant resource.
    released: f64,
    /// The class and sub-queue with the head for which resources are reserved.
    reserved: Option<(ClassId, usize)>,
    /// Whether resources are kept on the machines for that head.
    keeps: bool,
}

impl Clock {
    fn resize(&mut self, share: Share) {
        self.patience = PATIENCE * share.whole;
        self.ahead = AHEAD * share.whole / share.weights;
        self.far = PATIENCE * share.whole / share.weights;
        self.memory = MEMORY * share.whole / share.weights;
    }

    /// Virtual times of a class that is at `time` in every resource.
    fn at(&self, time: f64) -> Times {
        self.lead.map(|lead| time + lead)
    }

    /// The largest of a class's virtual times.
    fn dominant(&self, account: &Account) -> f64 {
        self.largest(account, |_| true)
    }

    /// The largest virtual time over the resources accepted by `count`.
    fn largest(&self, account: &Account, count: impl Fn(usize) -> bool) -> f64 {
        let times = account.times.iter().zip(self.lead).map(|(time, lead)| time - lead).enumerate();
        times.filter(|(resource, _)| count(*resource)).map(|(_, time)| time).fold(f64::NEG_INFINITY, f64::max)
    }
}

#[derive(Clone, Debug)]
struct Account {
    clock: PartitionId,
    partition: PartitionId,
    weight: f64,
    /// Its share of the weights of its clock's classes.
    part: f64,
    times: Times,
    /// Sequence number of the head, per sub-queue.
    heads: [Option<u64>; RESOURCES],
    /// Value of [`Clock::released`] when the head was first passed over, per sub-queue.
    passed: [Option<f64>; RESOURCES],
}

impl Account {
    /// Raises every virtual time to at least `min`.
    fn raise(&mut self, min: Times) {
        self.times.iter_mut().zip(min).for_each(|(time, min)| *time = time.max(min));
    }

    fn waits(&self) -> bool {
        self.heads.iter().any(Option::is_some)
    }

    /// Its sub-queues, starting with the resource that it has used least.
    fn sub_queues(&self, sub_queues: usize, lead: Times) -> impl Iterator<Item = usize> + use<> {
        let mut order: [usize; RESOURCES] = core::array::from_fn(|sub_queue| sub_queue);
        let time = |sub_queue: usize| self.times[sub_queue] - lead[sub_queue];
        order[..sub_queues].sort_by(|a, b| time(*a).total_cmp(&time(*b)));
        order.into_iter().take(sub_queues)
    }
}

/// Whether the request needs none of the marked resources.
fn spares(marked: &[bool; RESOURCES], demand: Demand) -> bool {
    marked.iter().zip(demand.0).all(|(marked, demand)| !marked || demand == 0)
}

impl Drfq {
    /// For `partitions` partitions and `sub_queues` resources. Classes are added by [`Drfq::open`].
    pub(super) fn new(partitions: usize, sub_queues: usize) -> Drfq {
        Drfq {
            sub_queues,
            clocks: Table::filled(partitions, Clock::default()),
            accounts: Table::new(),
            waiting: Heaps::new(partitions * sub_queues, 0),
            candidates: Vec::new(),
            turn: 0,
            freed: false,
        }
    }

    /// Adds a class with its share of its clock.
    pub(super) fn open(&mut self, class: ClassId, share: Share) {
        let Share { first: clock, partition, weight, weights, .. } = share;
        let own = &mut self.clocks[clock];
        if own.served.iter().all(|known| known.partition != partition) {
            own.served.push(Served { partition, ready: true, floor: 0.0 });
        }
        own.resize(share);
        let (heads, passed) = ([None; RESOURCES], [None; RESOURCES]);
        let fresh = Account { clock, partition, weight, part: weight / weights, times: own.at(own.now), heads, passed };
        self.accounts.put(class, fresh);
        self.waiting.grow(self.accounts.len() * self.sub_queues);
    }

    /// Updates a clock after the size of its nodes has changed.
    pub(super) fn resize(&mut self, share: Share) {
        self.clocks[share.first].resize(share);
    }

    /// The heap of a sub-queue, and the item of a class in it.
    fn place(&self, class: ClassId, sub_queue: usize) -> (usize, u32) {
        (
            self.accounts[class].partition.row() * self.sub_queues + sub_queue,
            class.0 * self.sub_queues as u32 + sub_queue as u32,
        )
    }

    /// Sets the head of a class for a resource, given by the sequence number of the request. Called again
    /// after every charge.
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

    /// Records that a class has no head for a resource any more.
    pub(super) fn gone(&mut self, class: ClassId, sub_queue: usize) {
        self.settled(class, sub_queue);
        self.accounts[class].heads[sub_queue] = None;
        let (heap, item) = self.place(class, sub_queue);
        self.waiting.remove(heap, item);
    }

    /// Charges the release of the head of `sub_queue` to its class. Calls of [`Drfq::waits`] follow for the
    /// sub-queues that have heads.
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

    /// Forgets the head of a sub-queue and its reservation.
    fn settled(&mut self, class: ClassId, sub_queue: usize) {
        let account = &mut self.accounts[class];
        account.passed[sub_queue] = None;
        let reserved = &mut self.clocks[account.clock].reserved;
        if *reserved == Some((class, sub_queue)) {
            *reserved = None;
        }
    }

    /// Passes over the head of a sub-queue, because it does not fit or its class is far ahead. Reserves
    /// resources for it if it has been passed over for long.
    fn pass(&mut self, class: ClassId, sub_queue: usize, near: bool) {
        let account = &mut self.accounts[class];
        let own = &mut self.clocks[account.clock];
        let since = *account.passed[sub_queue].get_or_insert(own.released);
        let patience = if near { own.patience } else { own.patience / account.part };
        if own.reserved.is_none() && own.released - since >= patience {
            own.reserved = Some((class, sub_queue));
        }
    }

    /// The class and the resource with the next head to release.
    pub(super) fn next(&mut self, view: &mut SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let mut turn = self.turn;
        let mut round = |drfq: &mut Drfq| in_turn(&mut turn, drfq.clocks.len(), |clock| drfq.next_in(clock, view));
        self.freed = false;
        let mut found = round(self);
        // A clock may have no more use for resources that an earlier one of the round lacked, on machines of both.
        if found.is_none() && self.freed {
            found = round(self);
        }
        self.turn = turn;
        found
    }

    fn next_in(&mut self, clock: PartitionId, view: &mut SchedulerView<'_>) -> Option<(ClassId, usize)> {
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

    /// Updates the reservation. Returns its class and sub-queue if the head fits now.
    fn reserve(&mut self, clock: PartitionId, view: &mut SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let reserved = self.clocks[clock].reserved;
        let head = reserved.and_then(|(class, sub_queue)| {
            let ready = view.ready(self.accounts[class].partition);
            ready.then(|| view.head(class, sub_queue)).flatten().map(|head| (class, head))
        });
        if head.is_none() {
            self.clocks[clock].reserved = None;
        }
        let fits = view.keep(clock, head);
        let keeps = head.is_some() && !fits;
        self.freed |= core::mem::replace(&mut self.clocks[clock].keeps, keeps) && !keeps;
        reserved.filter(|_| fits)
    }

    /// Finds the classes with the smallest virtual times, in order, and updates the leads.
    fn look(&mut self, clock: PartitionId, view: &SchedulerView<'_>, candidates: &mut Vec<Candidate>) {
        let sub_queues = self.sub_queues;
        let Clock { served, now, .. } = &mut self.clocks[clock];
        for Served { partition, ready, floor } in served {
            let was = core::mem::replace(ready, view.ready(*partition));
            if *ready && !was {
                *floor = *now;
            }
            if *ready {
                let first = (0..sub_queues)
                    .flat_map(|sub_queue| self.waiting.first::<LOOK>(partition.row() * sub_queues + sub_queue));
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

    /// Finds for every resource the class with the smallest virtual time that wants it. The lead grows if
    /// the class is ahead because of that resource. Returns true if a lead has grown.
    fn find_leads(&mut self, clock: PartitionId, view: &SchedulerView<'_>, candidates: &[Candidate]) -> bool {
        let Some(first) = candidates.first() else { return false };
        let own = &mut self.clocks[clock];
        let mut wanted = [false; RESOURCES];
        let mut grown = false;
        for one in candidates {
            let account = &self.accounts[one.class];
            for head in (0..self.sub_queues).filter_map(|sub_queue| view.head(one.class, sub_queue)) {
                let min = BY_PRODUCT * f64::from(head.dominant());
                for (resource, wanted) in wanted[..self.sub_queues].iter_mut().enumerate() {
                    let wants = head.0[resource] > 0 && f64::from(head.0[resource]) >= min;
                    if !wants || core::mem::replace(wanted, true) {
                        continue;
                    }
                    let others = own.largest(account, |other| other != resource);
                    let lead = account.times[resource] - others.max(own.now);
                    // The class is ahead of all others, and only because of this resource.
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

    /// Orders classes by their dominant virtual times under the current leads.
    fn order(&mut self, clock: PartitionId, candidates: &mut [Candidate]) {
        let own = &self.clocks[clock];
        for one in candidates.iter_mut() {
            let account = &mut self.accounts[one.class];
            one.time = own.dominant(account);
            let floor =
                own.served.iter().find(|known| known.partition == account.partition).map_or(0.0, |known| known.floor);
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

    /// The first candidate with a head that may be released. If there is none and nothing is reserved yet,
    /// returns the head that holds the others up, if there is one.
    fn choose(
        &mut self,
        clock: PartitionId,
        view: &SchedulerView<'_>,
        candidates: &[Candidate],
    ) -> Result<(ClassId, usize), Option<(ClassId, usize)>> {
        let last = candidates.first().ok_or(None)?;
        let Clock { ahead, far, lead, reserved, .. } = self.clocks[clock];
        let ahead = if reserved.is_some_and(|(class, _)| class == last.class) { far } else { ahead };
        // The resources that the class with the smallest virtual time waits for, the head that waits for
        // them, and whether others wait because of it.
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
