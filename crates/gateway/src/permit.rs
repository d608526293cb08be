//! A released request's slot, given back exactly once.
//!
//! It knows since when the request is inside which node, and tells the page table when it has left. A node that failed
//! the request, or whose client has left, is taken to have done a part, for as long as it was there: of one that
//! refused a connection that is nothing, of one that timed out all.

use std::rc::Rc;
use std::sync::Arc;

use weirgate_engine::{Outcome, Ticket, Time};

use crate::edition::Target;
use crate::pages::Stay;
use crate::worker::Worker;

/// The right to be inside a node. Dropping it, on whatever way (client gone, task aborted, panic), tells
/// the engine that the exchange was cut off.
#[derive(Debug)]
pub(crate) struct Permit {
    worker: Rc<Worker>,
    ticket: Option<Ticket>,
    stay: Stay,
}

impl Permit {
    pub(crate) fn new(worker: &Rc<Worker>, ticket: Ticket, stay: Stay) -> Permit {
        Permit { worker: Rc::clone(worker), ticket: Some(ticket), stay }
    }

    /// Moves the right on; what stays behind is none.
    pub(crate) fn take(&mut self) -> Permit {
        Permit { worker: Rc::clone(&self.worker), ticket: self.ticket.take(), stay: self.stay }
    }

    /// The exchange has ended; returns when the engine was told.
    pub(crate) fn finish(&mut self, outcome: Outcome) -> Time {
        match self.ticket.take() {
            Some(ticket) => {
                let (at, _) = self.worker.observe(ticket, outcome);
                let whole = matches!(outcome, Outcome::LastByte { .. });
                if outcome != Outcome::Upgraded {
                    self.worker.shared.pages.left(self.stay, at, whole);
                }
                at
            }
            None => self.worker.timers.now(),
        }
    }

    /// The node failed before anything went downstream. A node in the answer is where to try again.
    pub(crate) fn fail(&mut self, retryable: bool) -> (Time, Option<Arc<Target>>) {
        let Some(ticket) = self.ticket.take() else { return (self.worker.timers.now(), None) };
        let (now, target) = self.worker.observe(ticket, Outcome::Failed { retryable });
        self.worker.shared.pages.left(self.stay, now, false);
        if let Some(target) = &target {
            self.ticket = Some(ticket);
            self.stay = self.stay.moved(target.id, now);
        }
        (now, target)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.finish(Outcome::Reset);
        }
    }
}
