//! Stage *release*, precedence: which class's head is released next.
//!
//! Every method is one file and owns what it keeps of classes and sub-queues. What is ordered is a class's *sub-queue*
//! (see `queue`). [`Scheduler::next`] is the one release path: a method finds its candidates, and asks the view whether
//! load control and nodes have room for each ([`SchedulerView::room`], and [`SchedulerView::admits`] per class).

mod bucket;
mod drfq;
mod fair;
mod fifo;
mod mdrr;
mod priority;
mod reenqueue;
mod share;
mod tokens;
mod view;
mod waiting;
mod weighted_fair;

pub(crate) use bucket::Bucket;
pub(crate) use view::{SchedulerView, Standing};

use crate::classify::Classes;
use crate::demand::{Demand, RESOURCES};
use crate::discipline::Precedence;
use crate::dispatch::Nodes;
use crate::limit::Limit;
use crate::policy::Policy;
use crate::random::Random;
use crate::request::ClassId;
use crate::time::Time;

use drfq::Drfq;
use fifo::Fifo;
use mdrr::Mdrr;
use priority::Priority;
use share::Shares;
use tokens::TokenBuckets;
use waiting::Waiting;
use weighted_fair::WeightedFair;

/// A class's sub-queue that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) class: ClassId,
    pub(crate) pool: usize,
    pub(crate) sub_queue: usize,
    /// Its first request.
    pub(crate) head: u32,
}

/// A request that is released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    pub(crate) class: ClassId,
    pub(crate) sub_queue: usize,
    /// Its cost, as far as it is managed.
    pub(crate) demand: Demand,
}

/// The order of release, and what the method keeps for it.
#[derive(Clone, Debug)]
pub(crate) enum Scheduler {
    Fifo(Fifo),
    Priority(Priority),
    Reenqueue(Fifo),
    WeightedFair(WeightedFair),
    Tokens(Box<TokenBuckets>),
    Mdrr(Mdrr),
    Drfq(Drfq),
}

impl Scheduler {
    /// For the nodes and classes of a policy; none of the classes waits yet.
    pub(crate) fn new(now: Time, policy: &Policy, classes: &Classes, nodes: &Nodes, limit: &Limit) -> Scheduler {
        let (pools, count, subs) = (nodes.sections.len(), classes.all.len(), policy.sub_queues());
        let waiting = || Waiting::new(pools, count, subs);
        let mut scheduler = match policy.discipline.precedence {
            Precedence::Fifo => Scheduler::Fifo(Fifo::new(waiting())),
            Precedence::Priority => Scheduler::Priority(Priority::new(waiting())),
            Precedence::Reenqueue => Scheduler::Reenqueue(Fifo::new(waiting())),
            Precedence::WeightedFair => Scheduler::WeightedFair(WeightedFair::new(count, waiting())),
            Precedence::Tokens(figures) => {
                let owed = Waiting::new(pools, count, subs);
                Scheduler::Tokens(Box::new(TokenBuckets::new(now, figures, count, owed, waiting(), subs)))
            }
            Precedence::Mdrr => Scheduler::Mdrr(Mdrr::new(pools, subs)),
            Precedence::Drfq => Scheduler::Drfq(Drfq::new(pools, subs)),
        };
        scheduler.open(now, classes, nodes, limit, classes.all.ids());
        scheduler
    }

    /// Classes that nothing is known of yet.
    pub(crate) fn open(
        &mut self,
        now: Time,
        classes: &Classes,
        nodes: &Nodes,
        limit: &Limit,
        opened: impl Iterator<Item = ClassId>,
    ) {
        let count = classes.all.len();
        match self {
            Scheduler::Fifo(Fifo { waiting })
            | Scheduler::Reenqueue(Fifo { waiting })
            | Scheduler::Priority(Priority { waiting }) => waiting.grow(count),
            Scheduler::WeightedFair(method) => {
                method.grow(count);
                opened.for_each(|class| method.fair.open(class));
            }
            Scheduler::Tokens(method) => {
                method.grow(count);
                opened.for_each(|class| method.open(now, class));
            }
            Scheduler::Mdrr(method) => {
                let Some(resources) = limit.resources() else { return };
                let shares = Shares::new(resources, nodes, classes);
                opened.for_each(|class| method.open(class, shares.of(classes, class)));
            }
            Scheduler::Drfq(method) => {
                let Some(resources) = limit.resources() else { return };
                let shares = Shares::new(resources, nodes, classes);
                opened.for_each(|class| method.open(class, shares.of(classes, class)));
            }
        }
    }

    /// Takes over what `old` knows of the classes that a new policy keeps.
    pub(crate) fn carry(&mut self, old: &Scheduler, kept: &[(ClassId, ClassId)]) {
        if let (Scheduler::Tokens(method), Scheduler::Tokens(old)) = (self, old) {
            for (from, to) in kept {
                method.carry(old, *from, *to);
            }
        }
    }

    /// The nodes have another size.
    pub(crate) fn nodes_changed(&mut self, classes: &Classes, nodes: &Nodes, limit: &Limit) {
        let all = classes.all.ids();
        match self {
            Scheduler::Mdrr(method) => {
                let Some(resources) = limit.resources() else { return };
                let shares = Shares::new(resources, nodes, classes);
                all.for_each(|class| method.resize(class, shares.of(classes, class)));
            }
            Scheduler::Drfq(method) => {
                let Some(resources) = limit.resources() else { return };
                let shares = Shares::new(resources, nodes, classes);
                all.for_each(|class| method.resize(shares.of(classes, class)));
            }
            _ => {}
        }
    }

    /// A class has its first request: it claims its part from now on.
    #[inline]
    pub(crate) fn active(&mut self, classes: &Classes, class: ClassId) {
        self.claims(classes, class);
        self.begins(classes, class);
    }

    /// A class has requests.
    #[inline]
    pub(crate) fn claims(&mut self, classes: &Classes, class: ClassId) {
        if let Scheduler::WeightedFair(method) = self {
            method.claimed += classes[class].weight;
        }
    }

    /// A class has nothing waiting or in flight any more.
    #[inline]
    pub(crate) fn idle(&mut self, classes: &Classes, class: ClassId) {
        if let Scheduler::WeightedFair(method) = self {
            method.claimed -= classes[class].weight;
        }
    }

    /// The weight of a class that has requests is another.
    #[inline]
    pub(crate) fn reweighed(&mut self, old: u64, new: u64) {
        if let Scheduler::WeightedFair(method) = self {
            method.claimed = method.claimed - old + new;
        }
    }

    /// A sub-queue of the class was empty and is not any more.
    #[inline]
    pub(crate) fn begins(&mut self, classes: &Classes, class: ClassId) {
        match self {
            Scheduler::WeightedFair(method) => method.fair.begin(class, classes[class].weight),
            Scheduler::Tokens(method) => method.fair.begin(class, method.weight(classes, class)),
            _ => {}
        }
    }

    /// A sub-queue waits, or something that it is ordered by changed while it waits.
    #[inline]
    pub(crate) fn waits(&mut self, view: &SchedulerView<'_>, claim: Claim) {
        match self {
            Scheduler::Fifo(method) | Scheduler::Reenqueue(method) => method.waits(view, claim),
            Scheduler::Priority(method) => method.waits(view, claim),
            Scheduler::WeightedFair(method) => method.waits(view, claim),
            Scheduler::Tokens(method) => method.waits(view, claim),
            Scheduler::Mdrr(method) => method.waits(claim.class, claim.sub_queue),
            Scheduler::Drfq(method) => method.waits(claim.class, claim.sub_queue, view.tickets[claim.head].sequence),
        }
    }

    /// A sub-queue waits no longer.
    #[inline]
    pub(crate) fn gone(&mut self, class: ClassId, pool: usize, sub_queue: usize) {
        match self {
            Scheduler::Fifo(Fifo { waiting })
            | Scheduler::Reenqueue(Fifo { waiting })
            | Scheduler::Priority(Priority { waiting }) => waiting.remove(pool, class, sub_queue),
            Scheduler::WeightedFair(method) => method.gone(class, pool, sub_queue),
            Scheduler::Tokens(method) => method.gone(class, pool, sub_queue),
            Scheduler::Mdrr(method) => method.gone(class, sub_queue),
            Scheduler::Drfq(method) => method.gone(class, sub_queue),
        }
    }

    /// Does a class of the pool wait in this sub-queue? Methods by resources know no window that could hold it back.
    #[inline]
    pub(crate) fn any(&self, pool: usize, sub_queue: usize) -> bool {
        match self {
            Scheduler::Fifo(Fifo { waiting })
            | Scheduler::Reenqueue(Fifo { waiting })
            | Scheduler::Priority(Priority { waiting }) => waiting.any(pool, sub_queue),
            Scheduler::WeightedFair(method) => method.any(pool, sub_queue),
            Scheduler::Tokens(method) => method.any(pool, sub_queue),
            Scheduler::Mdrr(_) | Scheduler::Drfq(_) => false,
        }
    }

    /// A waiting class whose standing is another since some instant up to `now`: to be told again that it waits.
    #[inline]
    pub(crate) fn promoted(&self, now: Time) -> Option<ClassId> {
        match self {
            Scheduler::Tokens(method) => method.promoted(now),
            _ => None,
        }
    }

    /// The class and sub-queue whose head is released next, if one may be.
    #[inline]
    pub(crate) fn next(&mut self, view: &mut SchedulerView<'_>) -> Option<(ClassId, usize)> {
        match self {
            Scheduler::Fifo(method) | Scheduler::Reenqueue(method) => method.next(view),
            Scheduler::Priority(method) => method.next(view),
            Scheduler::WeightedFair(method) => method.next(view),
            Scheduler::Tokens(method) => method.next(view),
            Scheduler::Mdrr(method) => method.next(view),
            Scheduler::Drfq(method) => method.next(view),
        }
    }

    /// The code that a request has when it is put back instead of released, if it is.
    pub(crate) fn puts_back(&self, view: &SchedulerView<'_>, head: u32, random: &mut Random) -> Option<u32> {
        match self {
            Scheduler::Reenqueue(_) => reenqueue::puts_back(view, head, random),
            _ => None,
        }
    }

    /// Will the next release of a class's sub-queue be charged to its virtual start?
    #[inline]
    pub(crate) fn charges(&self, class: ClassId, sub_queue: usize) -> bool {
        match self {
            Scheduler::Tokens(method) => method.charges(class, sub_queue),
            _ => true,
        }
    }

    /// A request is released. `charged` are the slot-seconds that its class is charged in advance.
    #[inline]
    pub(crate) fn released(&mut self, view: &SchedulerView<'_>, release: &Release, charged: Option<f64>) {
        match self {
            Scheduler::WeightedFair(method) => {
                let weight = view.classes[release.class].weight;
                charged.into_iter().for_each(|seconds| method.fair.charge(release.class, weight, seconds));
            }
            Scheduler::Tokens(method) => {
                let weight = method.weight(view.classes, release.class);
                method.take(view, release);
                charged.into_iter().for_each(|seconds| method.fair.charge(release.class, weight, seconds));
            }
            Scheduler::Mdrr(method) => method.charge(release.class, release.demand),
            Scheduler::Drfq(method) => method.charge(release.class, release.sub_queue, release.demand),
            Scheduler::Fifo(_) | Scheduler::Priority(_) | Scheduler::Reenqueue(_) => {}
        }
    }

    /// A request of which `charged` slot-seconds were charged in advance has used `used`.
    #[inline]
    pub(crate) fn settled(&mut self, classes: &Classes, class: ClassId, charged: f64, used: f64) {
        match self {
            Scheduler::WeightedFair(method) => method.fair.settle(class, classes[class].weight, charged, used),
            Scheduler::Tokens(method) => {
                let weight = method.weight(classes, class);
                method.fair.settle(class, weight, charged, used);
            }
            _ => {}
        }
    }

    /// Is what the class asks for next within its guarantee?
    #[allow(dead_code, reason = "for load control that refuses a class's surplus")]
    pub(crate) fn standing(&self, now: Time, classes: &Classes, class: ClassId) -> Standing {
        match self {
            Scheduler::Tokens(method) => method.standing(now, classes, class),
            _ => Standing::Owed,
        }
    }

    /// What a class has left of its guaranteed rate, in requests, where the method counts that.
    #[allow(dead_code, reason = "for load control that limits a class's surplus")]
    pub(crate) fn tokens(&self, now: Time, classes: &Classes, class: ClassId) -> Option<f64> {
        match self {
            Scheduler::Tokens(method) => Some(method.tokens(now, classes, class)),
            _ => None,
        }
    }

    /// Rounds begun by the pools of which `pool` is the first with the same machines, and whose turn it is in each
    /// sub-queue; for methods that have rounds.
    pub(crate) fn rounds(&self, pool: usize) -> Option<(u64, Vec<ClassId>)> {
        match self {
            Scheduler::Mdrr(method) => Some(method.state(pool)),
            _ => None,
        }
    }

    /// What the class may still take of each resource in this round, in billionths of a node-second.
    pub(crate) fn credit(&self, class: ClassId) -> Option<[i64; RESOURCES]> {
        match self {
            Scheduler::Mdrr(method) => Some(method.credit(class)),
            _ => None,
        }
    }
}

/// Goes round `first` pools with the same machines, from the one after the last that released something on: what one
/// releases does not depend on another, unless they share some of their machines.
fn in_turn<T>(turn: &mut usize, pools: usize, mut next: impl FnMut(usize) -> Option<T>) -> Option<T> {
    for step in 0..pools {
        let pool = (*turn + step) % pools;
        if let Some(found) = next(pool) {
            *turn = pool + 1;
            return Some(found);
        }
    }
    None
}
