//! [`crate::Precedence::Tokens`]: the guaranteed *rate* of every class first, the rest in proportion to the
//! weights.
//!
//! Source: our own design. Quorum's Sec. 2 states its promise in the same order, rates first and slots
//! second. Classes with a claim (a whole token, see `bucket`) go before those without, in the order of `in
//! flight/φ`: the class that is furthest below its share of the slots goes first. With `in flight` instead
//! of `in flight + 1`, a class with nothing in flight is always next. So a class with a share of a tenth of
//! a slot does not wait until the others hold ten times theirs, and its tokens bound the slots it gets this
//! way. A claim of a class without a guarantee (best effort has a small rate) goes behind classes that have
//! less than the φ slots their guarantees need. If the claims exceed the capacity, equal `in flight/φ` gives
//! every class the same share of its guarantee. The scheduler does not need to detect that the policy is
//! infeasible. A rank before `in flight/φ` makes the order strict instead. The surplus is shared by
//! start-time fair queueing (see `fair`), which only counts the slot-seconds of the surplus.

use super::bucket::Bucket;
use super::fair::{Fair, slots};
use super::waiting::Waiting;
use super::{Claim, Release, SchedulerView, Standing};
use crate::classify::Classes;
use crate::discipline::{Infeasible, Tokens};
use crate::dispatch::Nodes;
use crate::engine::ASSUMED_COMPUTE;
use crate::heap::Heaps;
use crate::index::{PartitionId, Table};
use crate::limit::Limit;
use crate::request::ClassId;
use crate::time::Time;

/// Claims and surplus.
#[derive(Clone, Debug)]
pub(crate) struct TokenBuckets {
    figures: Tokens,
    /// Bucket of each class, filled at its guaranteed rate. A release takes a token.
    buckets: Table<ClassId, Bucket>,
    /// Waiting classes with a claim, by rank and in flight/φ.
    owed: Waiting<(f64, f64, u64)>,
    /// Waiting classes without a claim, by virtual start.
    surplus: Waiting<(f64, u64)>,
    /// The same classes by the instant at which they will have a claim.
    promotions: Heaps<Time>,
    sub_queues: u32,
    pub(super) fair: Fair,
}

impl TokenBuckets {
    pub(super) fn new(
        now: Time,
        figures: Tokens,
        classes: usize,
        owed: Waiting<(f64, f64, u64)>,
        surplus: Waiting<(f64, u64)>,
        sub_queues: usize,
    ) -> TokenBuckets {
        TokenBuckets {
            figures,
            buckets: Table::filled(classes, Bucket::new(now)),
            owed,
            surplus,
            promotions: Heaps::new(1, classes * sub_queues),
            sub_queues: sub_queues as u32,
            fair: Fair::new(classes),
        }
    }

    pub(super) fn grow(&mut self, classes: usize) {
        self.owed.grow(classes);
        self.surplus.grow(classes);
        self.promotions.grow(classes * self.sub_queues as usize);
    }

    pub(super) fn open(&mut self, now: Time, class: ClassId) {
        self.buckets.put(class, Bucket::new(now));
        self.fair.open(class);
    }

    /// Copies the bucket of a class from the old policy.
    pub(super) fn carry(&mut self, old: &TokenBuckets, from: ClassId, to: ClassId) {
        self.buckets[to] = old.buckets[from];
    }

    /// The guaranteed rate of a class changes from the first to the second one.
    pub(super) fn rate_changes(&mut self, now: Time, class: ClassId, rates: (f64, f64)) {
        self.buckets[class].rate_changes(now, rates);
    }

    /// φ for fair queueing. A class without a guaranteed throughput gets a small share of the sum of all
    /// weights.
    #[inline]
    pub(super) fn weight(&self, classes: &Classes, class: ClassId) -> u64 {
        match classes[class].weight {
            0 => ((self.figures.best_effort_share * classes.total_weight as f64) as u64).max(1),
            weight => weight,
        }
    }

    /// Tokens per second.
    #[inline]
    fn rate(&self, classes: &Classes, class: ClassId) -> f64 {
        classes.spec(class).guarantee.throughput.unwrap_or(self.figures.best_effort_rate)
    }

    /// Tokens left of the class's rate.
    pub(super) fn tokens(&self, now: Time, classes: &Classes, class: ClassId) -> f64 {
        // A copy, because a query must not change later results, not even in the last bit.
        let mut bucket = self.buckets[class];
        bucket.level(now, self.rate(classes, class))
    }

    /// Whether the class has a whole token.
    pub(super) fn standing(&self, now: Time, classes: &Classes, class: ClassId) -> Standing {
        if self.tokens(now, classes, class) >= 1.0 { Standing::Owed } else { Standing::Surplus }
    }

    /// Cost of the class's requests relative to the declared one, corrected for contention in flight. A
    /// class that is more expensive than declared is owed its capacity, not its rate. Ratios below `expensive`
    /// cannot be told from noise and contention and count as one.
    pub(super) fn cost_ratio(&self, classes: &Classes, nodes: &Nodes, limit: &Limit, class: ClassId) -> f64 {
        let min = self.figures.max_cost_ratio;
        let state = &classes[class];
        let (Some(mean), Some(declared)) = (state.expected.seconds(), classes.service_time(class)) else {
            return 1.0;
        };
        let ratio = mean / declared;
        // The correction can only reduce the ratio.
        let ratio = if ratio >= min { ratio / limit.slowdown(nodes, state.partition) } else { 1.0 };
        if ratio >= min { ratio } else { 1.0 }
    }

    pub(super) fn waits(&mut self, view: &SchedulerView<'_>, claim: Claim) {
        let Claim { class, partition, sub_queue, head } = claim;
        let (classes, tie) = (view.classes, view.tickets[head].sequence);
        let item = class.0 * self.sub_queues + sub_queue as u32;
        let rate = self.rate(classes, class);
        let level = self.buckets[class].level(view.now, rate);
        if level >= 1.0 {
            let utility = classes.spec(class).utility;
            let rank = match self.figures.infeasible {
                Infeasible::Proportional => 0.0,
                Infeasible::Strict => -utility,
                Infeasible::Utility => -utility / classes.service_time(class).unwrap_or(ASSUMED_COMPUTE),
            };
            self.surplus.remove(partition, class, sub_queue);
            self.promotions.remove(0, item);
            // Classes that lack slots for their guarantees go first. A class without a guarantee needs none.
            let behind = if classes[class].weight == 0 { 1.0 } else { 0.0 };
            let part = behind + f64::from(classes[class].in_flight) / slots(self.weight(classes, class));
            self.owed.set(partition, class, sub_queue, (rank, part, tie));
        } else {
            self.owed.remove(partition, class, sub_queue);
            self.promotions.set(0, item, Bucket::whole_at(view.now, level, rate));
            self.surplus.set(partition, class, sub_queue, (self.fair.start_of(class), tie));
        }
    }

    pub(super) fn gone(&mut self, class: ClassId, partition: PartitionId, sub_queue: usize) {
        self.owed.remove(partition, class, sub_queue);
        self.surplus.remove(partition, class, sub_queue);
        self.promotions.remove(0, class.0 * self.sub_queues + sub_queue as u32);
    }

    #[inline]
    pub(super) fn any(&self, partition: PartitionId, sub_queue: usize) -> bool {
        self.owed.any(partition, sub_queue) || self.surplus.any(partition, sub_queue)
    }

    /// A class with a token that has become whole by `now`.
    #[inline]
    pub(super) fn promoted(&self, now: Time) -> Option<ClassId> {
        self.promotions.peek(0).filter(|(at, _)| *at <= now).map(|(_, item)| ClassId(item / self.sub_queues))
    }

    pub(super) fn next(&self, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let owed = self.owed.first(view, Standing::Owed).map(|(_, found)| found);
        owed.or_else(|| self.surplus.first(view, Standing::Surplus).map(|(_, found)| found))
    }

    /// Whether the next release of a class's sub-queue is surplus.
    #[inline]
    pub(super) fn charges(&self, class: ClassId, sub_queue: usize) -> bool {
        self.surplus.contains(class, sub_queue)
    }

    /// Takes the tokens of a release, down to a bounded debt.
    pub(super) fn take(&mut self, view: &SchedulerView<'_>, release: &Release) {
        let class = release.class;
        let ranked = self.figures.infeasible != Infeasible::Proportional;
        let tokens = if ranked { self.cost_ratio(view.classes, view.nodes, view.limit, class) } else { 1.0 };
        // Without a response-time limit, one second serves as the time scale of the class.
        let limit = view.classes.spec(class).guarantee.response_time.map_or(1.0, |rt| rt.limit.as_secs_f64());
        let (rate, debt) = (self.rate(view.classes, class), self.figures.debt * limit);
        self.buckets[class].take(view.now, rate, tokens, debt);
    }
}
