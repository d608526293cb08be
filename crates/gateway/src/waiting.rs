//! Stage *queue*, on the side of the sockets: requests that wait for the engine's decision.
//!
//! The engine knows tickets, and this module maps them to tasks. In every case (release, shed, client gone,
//! panic) a request's wait slot is given back exactly once, because [`WaitSlot`] does it when dropped.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use weirgate_engine::{Outcome, Shed, Ticket, Time};

use crate::active_config::Endpoint;
use crate::control::Delivery;
use crate::worker::Worker;

/// The waiting requests of one thread.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    slots: RefCell<Slab<Waiter>>,
}

/// Time and content of the engine's decision.
pub(crate) type Decided = (Time, Result<Arc<Endpoint>, Shed>);

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    decided: Option<Decided>,
    waker: Option<Waker>,
}

impl Waiting {
    /// Returns the slot that [`Waiting::enter`] will use next.
    pub(crate) fn next_slot(&self) -> usize {
        self.slots.borrow().vacant_key()
    }

    fn enter(&self, ticket: Ticket) -> usize {
        self.slots.borrow_mut().insert(Waiter { ticket, decided: None, waker: None })
    }

    /// Hands a decision to its waiter. Returns false if the waiter is gone and its slot was given back.
    pub(crate) fn deliver(&self, delivery: Delivery) -> bool {
        let waker = {
            let mut slots = self.slots.borrow_mut();
            let Some(waiter) = slots.get_mut(delivery.slot).filter(|w| w.ticket == delivery.ticket) else {
                return false;
            };
            waiter.decided = Some((delivery.at, delivery.decision));
            waiter.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

/// Wait slot of a request. It is a future that resolves to the engine's decision.
pub(crate) struct WaitSlot {
    worker: Rc<Worker>,
    slot: usize,
    ticket: Ticket,
    left: bool,
}

impl WaitSlot {
    /// Takes the wait slot. This must happen before anything is delivered on this thread.
    pub(crate) fn enter(worker: &Rc<Worker>, ticket: Ticket) -> WaitSlot {
        let slot = worker.waiting.enter(ticket);
        WaitSlot { worker: Rc::clone(worker), slot, ticket, left: false }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Future for WaitSlot {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let decided = {
            let mut slots = self.worker.waiting.slots.borrow_mut();
            match slots.get_mut(self.slot) {
                Some(waiter) if waiter.decided.is_some() => slots.remove(self.slot).decided,
                Some(waiter) => {
                    waiter.waker = Some(cx.waker().clone());
                    None
                }
                None => None,
            }
        };
        match decided {
            Some(decided) => {
                self.left = true;
                Poll::Ready(decided)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let waiter = self.worker.waiting.slots.borrow_mut().try_remove(self.slot);
        match waiter.and_then(|w| w.decided) {
            Some((_, Err(_))) => {}
            // Released, but the request has been dropped.
            Some((_, Ok(_))) => drop(self.worker.observe(self.ticket, Outcome::Reset)),
            // Still waiting, or released to this thread, where the request no longer exists.
            None => {
                if !self.worker.cancel(self.ticket) {
                    self.worker.observe(self.ticket, Outcome::Reset);
                }
            }
        }
    }
}
