//! [`crate::Precedence::Tokens`]: every class its guaranteed *rate* first, the rest in proportion to the weights.
//!
//! Source: our own; rates first and slots second is the order in which Quorum's Sec. 2 states the promise. Classes with
//! a claim (a whole token, see `bucket`) go before those without, in the order of `in flight/φ`: the class that is
//! furthest behind its part of the slots. With `in flight` and not `in flight + 1` a class with nothing in flight is
//! always next, so that a class whose part is a tenth of a slot does not wait until the others hold ten times theirs;
//! its tokens bound what it gets that way. A claim of a class without a guarantee (best effort has a small rate) goes
//! behind classes that lack what their guarantees need, φ slots. If more is claimed than there is, equal `in flight/φ`
//! means that every class gets the same part of its guarantee, without anyone having to find out that the policy is
//! infeasible; a rank before it makes the order strict instead. What the claims leave is shared by start-time fair
//! queueing (see `fair`), in slot-seconds of the surplus alone.

use super::bucket::Bucket;
use super::fair::{Fair, slots};
use super::waiting::Waiting;
use super::{Claim, Release, SchedulerView, Standing};
use crate::classify::Classes;
use crate::discipline::{Infeasible, Tokens};
use crate::dispatch::Nodes;
use crate::engine::ASSUMED_COMPUTE;
use crate::heap::Heaps;
use crate::index::Table;
use crate::limit::Limit;
use crate::request::ClassId;
use crate::time::Time;

/// Claims and surplus.
#[derive(Clone, Debug)]
pub(crate) struct TokenBuckets {
    figures: Tokens,
    /// What each class has left of its guaranteed rate: a release takes a token.
    buckets: Table<ClassId, Bucket>,
    /// Waiting classes with a claim, by rank and in flight/φ.
    owed: Waiting<(f64, f64, u64)>,
    /// Waiting classes without one, by virtual start.
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

    /// A class keeps what it had left under the old policy.
    pub(super) fn carry(&mut self, old: &TokenBuckets, from: ClassId, to: ClassId) {
        self.buckets[to] = old.buckets[from];
    }

    /// φ for fair queueing: a class without a throughput has a small part of everybody's.
    #[inline]
    pub(super) fn weight(&self, classes: &Classes, class: ClassId) -> u64 {
        match classes[class].weight {
            0 => ((self.figures.best_effort_share * classes.total_weight as f64) as u64).max(1),
            weight => weight,
        }
    }

    /// Tokens a second.
    #[inline]
    fn rate(&self, classes: &Classes, class: ClassId) -> f64 {
        classes.spec(class).guarantee.throughput.unwrap_or(self.figures.best_effort_rate)
    }

    /// What the class has left of its rate.
    pub(super) fn tokens(&self, now: Time, classes: &Classes, class: ClassId) -> f64 {
        // A copy: a look must not change what later looks find, to the last bit.
        let mut bucket = self.buckets[class];
        bucket.level(now, self.rate(classes, class))
    }

    /// Has the class a whole token?
    pub(super) fn standing(&self, now: Time, classes: &Classes, class: ClassId) -> Standing {
        if self.tokens(now, classes, class) >= 1.0 { Standing::Owed } else { Standing::Surplus }
    }

    /// Cost of the class's requests relative to the declared one, corrected for what all suffer in flight: a class that
    /// is more expensive than declared is owed its capacity, not its rate. Smaller ratios than `dear` cannot be told
    /// from noise and contention and count as one.
    pub(super) fn cost_ratio(&self, classes: &Classes, nodes: &Nodes, limit: &Limit, class: ClassId) -> f64 {
        let least = self.figures.dear;
        let state = &classes[class];
        let (Some(mean), Some(declared)) = (state.expected.seconds(), classes.service_time(class)) else {
            return 1.0;
        };
        let ratio = mean / declared;
        // A slowdown only makes it less.
        let ratio = if ratio >= least { ratio / limit.slowdown(nodes, state.pool) } else { 1.0 };
        if ratio >= least { ratio } else { 1.0 }
    }

    pub(super) fn waits(&mut self, view: &SchedulerView<'_>, claim: Claim) {
        let Claim { class, pool, sub_queue, head } = claim;
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
            self.surplus.remove(pool, class, sub_queue);
            self.promotions.remove(0, item);
            // First those that lack what their guarantees need: a class without one has no need.
            let behind = if classes[class].weight == 0 { 1.0 } else { 0.0 };
            let part = behind + f64::from(classes[class].in_flight) / slots(self.weight(classes, class));
            self.owed.set(pool, class, sub_queue, (rank, part, tie));
        } else {
            self.owed.remove(pool, class, sub_queue);
            self.promotions.set(0, item, Bucket::whole_at(view.now, level, rate));
            self.surplus.set(pool, class, sub_queue, (self.fair.start_of(class), tie));
        }
    }

    pub(super) fn gone(&mut self, class: ClassId, pool: usize, sub_queue: usize) {
        self.owed.remove(pool, class, sub_queue);
        self.surplus.remove(pool, class, sub_queue);
        self.promotions.remove(0, class.0 * self.sub_queues + sub_queue as u32);
    }

    #[inline]
    pub(super) fn any(&self, pool: usize, sub_queue: usize) -> bool {
        self.owed.any(pool, sub_queue) || self.surplus.any(pool, sub_queue)
    }

    /// A class whose token has become whole by `now`.
    #[inline]
    pub(super) fn promoted(&self, now: Time) -> Option<ClassId> {
        self.promotions.peek(0).filter(|(at, _)| *at <= now).map(|(_, item)| ClassId(item / self.sub_queues))
    }

    pub(super) fn next(&self, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let owed = self.owed.first(view, Standing::Owed).map(|(_, found)| found);
        owed.or_else(|| self.surplus.first(view, Standing::Surplus).map(|(_, found)| found))
    }

    /// Is the next release of a class's sub-queue one of the surplus?
    #[inline]
    pub(super) fn charges(&self, class: ClassId, sub_queue: usize) -> bool {
        self.surplus.contains(class, sub_queue)
    }

    /// A release takes its tokens, down to a bounded debt.
    pub(super) fn take(&mut self, view: &SchedulerView<'_>, release: &Release) {
        let class = release.class;
        let ranked = self.figures.infeasible != Infeasible::Proportional;
        let tokens = if ranked { self.cost_ratio(view.classes, view.nodes, view.limit, class) } else { 1.0 };
        // Without a limit a second is the only measure of time that a class has.
        let limit = view.classes.spec(class).guarantee.response_time.map_or(1.0, |rt| rt.limit.as_secs_f64());
        let (rate, debt) = (self.rate(view.classes, class), self.figures.debt * limit);
        self.buckets[class].take(view.now, rate, tokens, debt);
    }
}
