//! Stage *admit*: may a request wait here at all, and until when.
//!
//! Every method is one file and owns what it knows of classes. What stage *observe* measures of every class (its
//! expected compute time, say) is there for all of them. Whatever the method, a queue has a longest wait.

mod codel;
mod deadline;
mod predict;
mod server_load;
mod thresholds;

use crate::classify::Classes;
use crate::discipline::Admit;
use crate::dispatch::Nodes;
use crate::limit::Limit;
use crate::policy::Policy;
use crate::queue::Queues;
use crate::random::Random;
use crate::request::{ClassId, ShedReason};
use crate::scheduler::Standing;
use crate::ticket::Tickets;
use crate::time::Time;

use codel::Codel;
use predict::Predict;
use thresholds::Thresholds;

pub use server_load::{LoadSource, ServerLoad};

/// What admission sees.
pub(crate) struct AdmissionView<'a> {
    pub(crate) now: Time,
    pub(crate) policy: &'a Policy,
    pub(crate) classes: &'a Classes,
    pub(crate) tickets: &'a Tickets,
    pub(crate) queues: &'a Queues,
    pub(crate) nodes: &'a Nodes,
    pub(crate) limit: &'a Limit,
}

/// A request at the door.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) class: ClassId,
    pub(crate) sub_queue: usize,
    /// The code of its tag.
    pub(crate) code: u32,
    /// Its ticket, if it waits already and asks again.
    pub(crate) itself: Option<u32>,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It has arrived.
    Door,
    /// It would be released at once.
    Release,
    /// It would wait, and its queue has a place for it.
    Queue,
}

/// The method, and what it knows.
#[derive(Clone, Debug)]
pub(crate) enum Admission {
    /// Everything may wait, up to the bounds of its queue.
    Open,
    Deadline,
    Predict(Box<Predict>),
    Thresholds(Thresholds),
    ServerLoad(ServerLoad),
    Codel(Codel),
}

impl Admission {
    /// For so many classes.
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

    /// A class that nothing is known of yet.
    pub(crate) fn open(&mut self, now: Time, class: ClassId) {
        match self {
            Admission::Predict(method) => method.open(now, class),
            Admission::Codel(method) => method.open(class),
            _ => {}
        }
    }

    /// Takes over what `old` knows of the classes that a new policy keeps.
    pub(crate) fn carry(&mut self, old: &Admission, kept: &[(ClassId, ClassId)]) {
        if let (Admission::Predict(method), Admission::Predict(old)) = (self, old) {
            for (from, to) in kept {
                method.carry(old, *from, *to);
            }
        }
    }

    /// A request has arrived that some node can take. Is it within what its class is guaranteed?
    #[inline]
    pub(crate) fn offered(&mut self, view: &AdmissionView<'_>, offer: &Offer) -> Standing {
        match self {
            Admission::Predict(method) => method.offered(view, offer),
            _ => Standing::Owed,
        }
    }

    /// Does the method let in what is owed before all surplus? Then only the nodes can be too slow for it.
    pub(crate) fn serves_owed_first(&self) -> bool {
        matches!(self, Admission::Predict(_))
    }

    /// Is it refused at this step, and why?
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
            (Admission::ServerLoad(figures), Step::Door) => figures.decide(view, offer.class),
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

    /// A request that waits is put back at the end of the queue. Is it refused there?
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

    /// Requests have waited in a sub-queue since then.
    #[inline]
    pub(crate) fn waits(&mut self, class: ClassId, sub_queue: usize, since: Time) {
        if let Admission::Predict(method) = self {
            method.waits(class, sub_queue, since);
        }
    }

    /// A request is released.
    #[inline]
    pub(crate) fn released(&mut self, now: Time, class: ClassId, sub_queue: usize) {
        if let Admission::Predict(method) = self {
            method.released(now, class, sub_queue);
        }
    }

    /// It is the turn of a class's head. Is it dropped instead, for the time that it has waited?
    #[inline]
    pub(crate) fn dequeues(&mut self, view: &AdmissionView<'_>, head: u32) -> Option<ShedReason> {
        let Admission::Codel(method) = self else { return None };
        let entry = &view.tickets[head];
        let sub_queue = usize::from(entry.sub_queue);
        let len = view.classes[entry.class].queue.sub_queues[sub_queue].len;
        let waited = view.now.since(entry.arrived);
        method.drops(view.now, entry.class, sub_queue, (waited, len)).then_some(ShedReason::QueueTimeout)
    }

    /// The last instant at which a request of the class that arrived then may be released, and the reason of its drop
    /// afterwards.
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
            Admission::Predict(method) => method.expected(limit, expected, state.in_flight == 0),
            _ => return deadline::patience(arrived, max_wait),
        };
        deadline::last_release(arrived, limit, expected, max_wait)
    }
}
