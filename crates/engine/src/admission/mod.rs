//! Stage *admit*: whether a request may wait, and until when.
//!
//! Every method is one file and owns its state of classes. All methods can use the measurements of stage
//! *observe* (the expected compute time, for example). With every method a queue has a maximum wait.
//!
//! A polite source is not refused because of the backlog of a greedy one in its class. Under every method a full
//! queue makes room for it, and its turn comes soon ([`crate::queue`]). Each method says whether more holds. The
//! exception is `server_load`, which looks at nodes and not at queues.

mod codel;
mod deadline;
mod holders;
mod late;
mod predict;
mod server_load;
mod thresholds;

use core::time::Duration;

use crate::classify::Classes;
use crate::discipline::Admit;
use crate::dispatch::Nodes;
use crate::policy::{Guarantee, Policy};
use crate::queue::{Queues, SourceId};
use crate::random::Random;
use crate::request::{ClassId, ShedReason};
use crate::scheduler::Standing;
use crate::ticket::Tickets;
use crate::time::Time;

pub(crate) use late::PATIENCE;

use codel::Codel;
use predict::Predict;
use thresholds::Thresholds;

pub use server_load::{LoadSource, ServerLoad};

/// The view of admission.
pub(crate) struct AdmissionView<'a> {
    pub(crate) now: Time,
    pub(crate) policy: &'a Policy,
    pub(crate) classes: &'a Classes,
    pub(crate) tickets: &'a Tickets,
    pub(crate) queues: &'a Queues,
    pub(crate) nodes: &'a Nodes,
}

/// A request that asks for admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) class: ClassId,
    pub(crate) sub_queue: usize,
    /// The code of its SEDA priority.
    pub(crate) code: u32,
    /// Its ticket, if it is already waiting and asks again.
    pub(crate) itself: Option<u32>,
    /// Its source, if it would wait and requests of its source wait already.
    pub(crate) source: Option<SourceId>,
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It arrives.
    Arrival,
    /// It would be released at once.
    Release,
    /// It would wait, and its queue has room for it.
    Queue,
}

/// The method and its state.
#[derive(Clone, Debug)]
pub(crate) enum Admission {
    /// Every request may wait, up to the bounds of its queue.
    Open,
    Deadline,
    Predict(Box<Predict>),
    Thresholds(Thresholds),
    ServerLoad(ServerLoad),
    Codel(Codel),
}

impl Admission {
    /// Creates the method for `classes` classes.
    pub(crate) fn new(now: Time, policy: &Policy, classes: usize) -> Admission {
        match policy.discipline.admit {
            Admit::None => Admission::Open,
            Admit::Deadline { .. } => Admission::Deadline,
            Admit::Predict(figures) => Admission::Predict(Box::new(Predict::new(now, figures, classes))),
            Admit::Thresholds { queue } => Admission::Thresholds(Thresholds { queue }),
            Admit::ServerLoad(figures) => Admission::ServerLoad(figures),
            Admit::Codel(figures) => Admission::Codel(Codel::new(figures, classes)),
        }
    }

    /// Adds a new class.
    pub(crate) fn open(&mut self, now: Time, class: ClassId) {
        match self {
            Admission::Predict(method) => method.open(now, class),
            Admission::Codel(method) => method.open(class),
            _ => {}
        }
    }

    /// Takes over the state of the classes that a new policy keeps.
    pub(crate) fn carry(&mut self, old: &Admission, kept: &[(ClassId, ClassId)]) {
        if let (Admission::Predict(method), Admission::Predict(old)) = (self, old) {
            for (from, to) in kept {
                method.carry(old, *from, *to);
            }
        }
    }

    /// Records the arrival of a request that some node can take, with the hash of its source, and returns whether it
    /// is within the guarantee of its class.
    #[inline]
    pub(crate) fn offered(&mut self, view: &AdmissionView<'_>, offer: &Offer, flow: u64) -> Standing {
        match self {
            Admission::Predict(method) => method.offered(view, offer, flow),
            _ => Standing::Owed,
        }
    }

    /// Whether the method admits owed requests before all surplus. If so, it refuses owed requests only when
    /// the nodes are too slow.
    pub(crate) fn serves_owed_first(&self) -> bool {
        matches!(self, Admission::Predict(_))
    }

    /// Returns the reason if the request is refused at this step.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        view: &AdmissionView<'_>,
        offer: &Offer,
        standing: Standing,
        step: Step,
        random: &mut Random,
    ) -> Option<ShedReason> {
        match (self, step) {
            (Admission::ServerLoad(figures), Step::Arrival) => figures.decide(view, offer.class),
            (Admission::Deadline, Step::Release) => {
                let expected = view.classes[offer.class].expected.guaranteed().unwrap_or(0.0);
                let limit = view.classes.spec(offer.class).guarantee.response_time.map(|rt| rt.limit);
                deadline::hopeless(limit, expected).then_some(ShedReason::Deadline)
            }
            (Admission::Predict(method), Step::Queue) => method.predicted(view, offer, standing),
            (Admission::Thresholds(method), Step::Queue) => method.decide(view, offer, random),
            _ => None,
        }
    }

    /// Returns the reason if a waiting request that is put back at the end of the queue is refused there.
    pub(crate) fn decide_again(
        &mut self,
        view: &AdmissionView<'_>,
        offer: &Offer,
        random: &mut Random,
    ) -> Option<ShedReason> {
        match self {
            Admission::Thresholds(method) => method.decide(view, offer, random),
            _ => None,
        }
    }

    /// Records that requests have waited in a sub-queue since `since`.
    #[inline]
    pub(crate) fn waits(&mut self, class: ClassId, sub_queue: usize, since: Time) {
        if let Admission::Predict(method) = self {
            method.waits(class, sub_queue, since);
        }
    }

    /// Records a release.
    #[inline]
    pub(crate) fn released(&mut self, now: Time, class: ClassId, sub_queue: usize) {
        if let Admission::Predict(method) = self {
            method.released(now, class, sub_queue);
        }
    }

    /// Returns whether one more request of the class may be late, and takes it from the account of its class.
    pub(crate) fn takes_late(&mut self, class: ClassId) -> bool {
        match self {
            Admission::Predict(method) => method.takes_late(class),
            _ => false,
        }
    }

    /// Learns from an answer.
    #[inline]
    pub(crate) fn answered(&mut self, class: ClassId, response: Duration, guarantee: &Guarantee) {
        if let Admission::Predict(method) = self {
            method.answered(class, response, guarantee);
        }
    }

    /// Returns the oldest request of a sub-queue and the reason if it is dropped because of its wait, when it is
    /// the sub-queue's turn.
    #[inline]
    pub(crate) fn dequeues(
        &mut self,
        view: &AdmissionView<'_>,
        class: ClassId,
        sub_queue: usize,
    ) -> Option<(u32, ShedReason)> {
        let Admission::Codel(method) = self else { return None };
        let sub = &view.classes[class].queue.sub_queues[sub_queue];
        let waited = view.now.since(view.tickets[sub.oldest].arrived);
        let drops = method.drops(view.now, class, sub_queue, (waited, sub.len));
        drops.then_some((sub.oldest, ShedReason::QueueTimeout))
    }

    /// The last instant at which a request that arrived at `arrived` may be released, and the reason of its
    /// drop afterwards.
    #[inline]
    pub(crate) fn deadline(&self, classes: &Classes, class: ClassId, arrived: Time) -> (Time, ShedReason) {
        let (state, spec) = (&classes[class], classes.spec(class));
        let max_wait = spec.queue.max_wait;
        let Some(limit) = spec.guarantee.response_time.map(|rt| rt.limit) else {
            return deadline::patience(arrived, max_wait);
        };
        let expected = state.expected.guaranteed().unwrap_or(0.0);
        let expected = match self {
            Admission::Deadline => expected,
            Admission::Predict(method) => method.left(limit, expected, state.in_flight == 0),
            _ => return deadline::patience(arrived, max_wait),
        };
        deadline::last_release(arrived, limit, expected, max_wait)
    }
}
