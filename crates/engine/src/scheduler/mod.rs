//! Stage *release*, precedence: the choice of the class with the next head to release.
//!
//! Every method is one file and owns its state of classes and sub-queues. A method orders the *sub-queues*
//! of classes (see `queue`). [`Scheduler::next`] is the only path to a release: a method finds its
//! candidates, and asks the view whether load control and nodes have room for each ([`SchedulerView::room`],
//! and [`SchedulerView::admits`] per class).

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

use drfq::Drfq;
use fifo::Fifo;
use mdrr::Mdrr;
use priority::Priority;
use share::Shares;
use tokens::TokenBuckets;
use waiting::Waiting;
use weighted_fair::WeightedFair;

use crate::classify::Classes;
use crate::demand::{Demand, RESOURCES};
use crate::discipline::Precedence;
use crate::dispatch::Nodes;
use crate::index::{Id, PartitionId};
use crate::limit::Limit;
use crate::policy::Policy;
use crate::random::Random;
use crate::request::ClassId;
use crate::time::Time;

/// A waiting sub-queue of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) class: ClassId,
    pub(crate) partition: PartitionId,
    pub(crate) sub_queue: usize,
    /// Its first request.
    pub(crate) head: u32,
}

/// A request that is released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    pub(crate) class: ClassId,
    pub(crate) sub_queue: usize,
    /// Its cost on the managed resources.
    pub(crate) demand: Demand,
}

/// The order of releases, with the state of the method.
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
    /// For the nodes and classes of a policy. No class waits yet.
    pub(crate) fn new(now: Time, policy: &Policy, classes: &Classes, nodes: &Nodes, limit: &Limit) -> Scheduler {
        let (partitions, count, subs) = (nodes.partitions.len(), classes.all.len(), policy.sub_queues());
        let waiting = || Waiting::new(partitions, count, subs);
        let mut scheduler = match policy.discipline.precedence {
            Precedence::Fifo => Scheduler::Fifo(Fifo::new(waiting())),
            Precedence::Priority => Scheduler::Priority(Priority::new(waiting())),
            Precedence::Reenqueue => Scheduler::Reenqueue(Fifo::new(waiting())),
            Precedence::WeightedFair => Scheduler::WeightedFair(WeightedFair::new(count, waiting())),
            Precedence::Tokens(figures) => {
                let owed = Waiting::new(partitions, count, subs);
                Scheduler::Tokens(Box::new(TokenBuckets::new(now, figures, count, owed, waiting(), subs)))
            }
            Precedence::Mdrr => Scheduler::Mdrr(Mdrr::new(partitions, subs)),
            Precedence::Drfq => Scheduler::Drfq(Drfq::new(partitions, subs)),
        };
        scheduler.open(now, classes, nodes, limit, classes.all.ids());
        scheduler
    }

    /// Adds new classes.
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

    /// Takes over the state of the classes that a new policy keeps.
    pub(crate) fn carry(&mut self, old: &Scheduler, kept: &[(ClassId, ClassId)]) {
        if let (Scheduler::Tokens(method), Scheduler::Tokens(old)) = (self, old) {
            for (from, to) in kept {
                method.carry(old, *from, *to);
            }
        }
    }

    /// Updates the shares after the size of the nodes has changed.
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

    /// A class gets its first request and claims its share from now on.
    #[inline]
    pub(crate) fn active(&mut self, classes: &Classes, class: ClassId) {
        self.claims(classes, class);
        self.begins(classes, class);
    }

    /// Counts the weight of a class that has requests.
    #[inline]
    pub(crate) fn claims(&mut self, classes: &Classes, class: ClassId) {
        if let Scheduler::WeightedFair(method) = self {
            method.claimed += classes[class].weight;
        }
    }

    /// Stops counting the weight of a class that has no request waiting or in flight.
    #[inline]
    pub(crate) fn idle(&mut self, classes: &Classes, class: ClassId) {
        if let Scheduler::WeightedFair(method) = self {
            method.claimed -= classes[class].weight;
        }
    }

    /// Changes the counted weight of a class that has requests.
    #[inline]
    pub(crate) fn reweighed(&mut self, old: u64, new: u64) {
        if let Scheduler::WeightedFair(method) = self {
            method.claimed = method.claimed - old + new;
        }
    }

    /// The guaranteed rate of a class changes from the first to the second one.
    pub(crate) fn rate_changes(&mut self, now: Time, class: ClassId, rates: (f64, f64)) {
        if let Scheduler::Tokens(method) = self {
            method.rate_changes(now, class, rates);
        }
    }

    /// A sub-queue of the class is no longer empty.
    #[inline]
    pub(crate) fn begins(&mut self, classes: &Classes, class: ClassId) {
        match self {
            Scheduler::WeightedFair(method) => method.fair.begin(class, classes[class].weight),
            Scheduler::Tokens(method) => method.fair.begin(class, method.weight(classes, class)),
            _ => {}
        }
    }

    /// Adds a waiting sub-queue, or updates it after a change of its order.
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

    /// Removes a sub-queue that no longer waits.
    #[inline]
    pub(crate) fn gone(&mut self, class: ClassId, partition: PartitionId, sub_queue: usize) {
        match self {
            Scheduler::Fifo(Fifo { waiting })
            | Scheduler::Reenqueue(Fifo { waiting })
            | Scheduler::Priority(Priority { waiting }) => waiting.remove(partition, class, sub_queue),
            Scheduler::WeightedFair(method) => method.gone(class, partition, sub_queue),
            Scheduler::Tokens(method) => method.gone(class, partition, sub_queue),
            Scheduler::Mdrr(method) => method.gone(class, sub_queue),
            Scheduler::Drfq(method) => method.gone(class, sub_queue),
        }
    }

    /// Whether a class of the partition waits in this sub-queue. Always false for methods by resources, because
    /// no window could hold it back.
    #[inline]
    pub(crate) fn any(&self, partition: PartitionId, sub_queue: usize) -> bool {
        match self {
            Scheduler::Fifo(Fifo { waiting })
            | Scheduler::Reenqueue(Fifo { waiting })
            | Scheduler::Priority(Priority { waiting }) => waiting.any(partition, sub_queue),
            Scheduler::WeightedFair(method) => method.any(partition, sub_queue),
            Scheduler::Tokens(method) => method.any(partition, sub_queue),
            Scheduler::Mdrr(_) | Scheduler::Drfq(_) => false,
        }
    }

    /// A waiting class with a standing that has changed by `now`. The caller must pass it to
    /// [`Scheduler::waits`] again.
    #[inline]
    pub(crate) fn promoted(&self, now: Time) -> Option<ClassId> {
        match self {
            Scheduler::Tokens(method) => method.promoted(now),
            _ => None,
        }
    }

    /// The class and sub-queue with the next head to release, if a release is possible.
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

    /// The new SEDA priority of a request that is put back instead of released. `None` if it is released.
    pub(crate) fn puts_back(&self, view: &SchedulerView<'_>, head: u32, random: &mut Random) -> Option<u32> {
        match self {
            Scheduler::Reenqueue(_) => reenqueue::puts_back(view, head, random),
            _ => None,
        }
    }

    /// Whether the next release of a class's sub-queue will be charged to its virtual start.
    #[inline]
    pub(crate) fn charges(&self, class: ClassId, sub_queue: usize) -> bool {
        match self {
            Scheduler::Tokens(method) => method.charges(class, sub_queue),
            _ => true,
        }
    }

    /// Records a release. `charged` is the number of slot-seconds charged to its class in advance.
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

    /// Corrects an advance charge of `charged` slot-seconds to the use of `used` slot-seconds.
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

    /// Whether the next request of the class is within its guarantee.
    pub(crate) fn standing(&self, now: Time, classes: &Classes, class: ClassId) -> Standing {
        match self {
            Scheduler::Tokens(method) => method.standing(now, classes, class),
            _ => Standing::Owed,
        }
    }

    /// Tokens left of the class's guaranteed rate, in requests, if the method counts them.
    pub(crate) fn tokens(&self, now: Time, classes: &Classes, class: ClassId) -> Option<f64> {
        match self {
            Scheduler::Tokens(method) => Some(method.tokens(now, classes, class)),
            _ => None,
        }
    }

    /// For methods with rounds: the number of rounds begun, and the class that has the turn in each
    /// sub-queue. `partition` is the first of the partitions with the same machines.
    pub(crate) fn rounds(&self, partition: PartitionId) -> Option<(u64, Vec<ClassId>)> {
        match self {
            Scheduler::Mdrr(method) => Some(method.state(partition)),
            _ => None,
        }
    }

    /// Remaining credit of the class for each resource in this round, in billionths of a node-second.
    pub(crate) fn credit(&self, class: ClassId) -> Option<[i64; RESOURCES]> {
        match self {
            Scheduler::Mdrr(method) => Some(method.credit(class)),
            _ => None,
        }
    }
}

/// Visits groups of partitions with the same machines, given by the first partition of each, starting after the last
/// one that released. Releases in one group do not depend on another, unless they share some of their
/// machines.
fn in_turn<T>(turn: &mut usize, partitions: usize, mut next: impl FnMut(PartitionId) -> Option<T>) -> Option<T> {
    for step in 0..partitions {
        let row = (*turn + step) % partitions;
        if let Some(found) = next(PartitionId::of(row)) {
            *turn = row + 1;
            return Some(found);
        }
    }
    None
}
