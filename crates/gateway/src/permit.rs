//! Permit of a released request: its slot, given back exactly once.
//!
//! A permit records the node and the time since which the request has been in flight there. When the request
//! leaves, the permit reports it to the page table. If a node failed the request, or the client left, the
//! node is assumed to have done a part of the work, in proportion to the time spent there. That is nothing
//! for a refused connection and everything for a timeout.

use std::rc::Rc;
use std::sync::Arc;

use weirgate_engine::{Outcome, Ticket, Time, Would};

use crate::active_config::Endpoint;
use crate::control::Observed;
use crate::pages::ServiceInterval;
use crate::worker::Worker;

/// The right to be in flight at a node. Dropping it in any way (client gone, task aborted, panic) tells the
/// engine that the exchange was cut off.
pub(crate) struct Permit {
    worker: Rc<Worker>,
    ticket: Option<Ticket>,
    interval: ServiceInterval,
}

impl Permit {
    pub(crate) fn new(worker: &Rc<Worker>, ticket: Ticket, interval: ServiceInterval) -> Permit {
        Permit { worker: Rc::clone(worker), ticket: Some(ticket), interval }
    }

    /// Ends the exchange. Returns the time at which the engine was told, and what would have happened to a request
    /// that was only observed.
    pub(crate) fn finish(&mut self, outcome: Outcome) -> (Time, Option<Would>) {
        match self.ticket.take() {
            Some(ticket) => {
                let Observed { at, would, .. } = self.worker.observe(ticket, outcome);
                let whole = matches!(outcome, Outcome::LastByte { .. });
                if outcome != Outcome::Upgraded {
                    self.worker.shared.pages.left(self.interval, at, whole);
                }
                (at, would)
            }
            None => (self.worker.timers.now(), None),
        }
    }

    /// Reports a node failure before anything was sent downstream. Returns the same as [`Permit::finish`], and the
    /// endpoint to retry on, if there is one.
    pub(crate) fn fail(&mut self, retryable: bool) -> ((Time, Option<Would>), Option<Arc<Endpoint>>) {
        let Some(ticket) = self.ticket.take() else { return ((self.worker.timers.now(), None), None) };
        let Observed { at: now, endpoint, would } = self.worker.observe(ticket, Outcome::Failed { retryable });
        self.worker.shared.pages.left(self.interval, now, false);
        if let Some(endpoint) = &endpoint {
            self.ticket = Some(ticket);
            self.interval = self.interval.moved(endpoint.id, now);
        }
        ((now, would), endpoint)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.finish(Outcome::Reset);
        }
    }
}
