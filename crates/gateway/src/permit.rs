//! A released request's slot, given back exactly once.

use std::rc::Rc;
use std::sync::Arc;

use weirgate_engine::{Outcome, Ticket, Time};

use crate::edition::Target;
use crate::worker::Worker;

/// The right to be inside a node. Dropping it, on whatever way (client gone, task aborted, panic), tells
/// the engine that the exchange was cut off.
#[derive(Debug)]
pub(crate) struct Permit {
    worker: Rc<Worker>,
    ticket: Option<Ticket>,
}

impl Permit {
    pub(crate) fn new(worker: &Rc<Worker>, ticket: Ticket) -> Permit {
        Permit { worker: Rc::clone(worker), ticket: Some(ticket) }
    }

    /// Moves the right on; what stays behind is none.
    pub(crate) fn take(&mut self) -> Permit {
        Permit { worker: Rc::clone(&self.worker), ticket: self.ticket.take() }
    }

    /// The exchange has ended; returns when the engine was told.
    pub(crate) fn finish(&mut self, outcome: Outcome) -> Time {
        match self.ticket.take() {
            Some(ticket) => self.worker.observe(ticket, outcome).0,
            None => self.worker.timers.now(),
        }
    }

    /// The node failed before anything went downstream. A node in the answer is where to try again.
    pub(crate) fn fail(&mut self, retryable: bool) -> (Time, Option<Arc<Target>>) {
        let Some(ticket) = self.ticket.take() else { return (self.worker.timers.now(), None) };
        let (now, target) = self.worker.observe(ticket, Outcome::Failed { retryable });
        if target.is_some() {
            self.ticket = Some(ticket);
        }
        (now, target)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.worker.observe(ticket, Outcome::Reset);
        }
    }
}
