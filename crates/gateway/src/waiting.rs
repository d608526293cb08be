//! Stage *queue*, on the side of the sockets: requests that wait for the engine's word.
//!
//! The engine knows places; here is who stands on them. Whatever happens to a waiting request (release,
//! shed, client gone, panic), its place is given back exactly once: [`Place`] does it when dropped.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use weirgate_engine::{Outcome, Ticket, Time};

use crate::control::{Decision, Delivery};
use crate::worker::Worker;

/// The waiting requests of one thread.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    slots: RefCell<Slab<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    decided: Option<(Time, Decision)>,
    waker: Option<Waker>,
}

impl Waiting {
    /// The slot that [`Waiting::enter`] will use next.
    pub(crate) fn next_slot(&self) -> usize {
        self.slots.borrow().vacant_key()
    }

    fn enter(&self, ticket: Ticket) -> usize {
        self.slots.borrow_mut().insert(Waiter { ticket, decided: None, waker: None })
    }

    /// Hands a decision to its waiter. False if the waiter is gone; its place was given back then.
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

/// A waiting request's place. Ready with the engine's decision.
#[derive(Debug)]
pub(crate) struct Place {
    worker: Rc<Worker>,
    slot: usize,
    ticket: Ticket,
    left: bool,
}

impl Place {
    /// Takes the place; before anything is delivered on this thread.
    pub(crate) fn enter(worker: &Rc<Worker>, ticket: Ticket) -> Place {
        let slot = worker.waiting.enter(ticket);
        Place { worker: Rc::clone(worker), slot, ticket, left: false }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Future for Place {
    type Output = (Time, Decision);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Time, Decision)> {
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

impl Drop for Place {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let waiter = self.worker.waiting.slots.borrow_mut().try_remove(self.slot);
        match waiter.and_then(|w| w.decided) {
            Some((_, Decision::Shed(_))) => {}
            // Released, but nobody is there any more.
            Some((_, Decision::Release(_))) => drop(self.worker.observe(self.ticket, Outcome::Reset)),
            // Still waiting, or the release is under way to this thread, where nobody will take it.
            None => {
                if !self.worker.cancel(self.ticket) {
                    self.worker.observe(self.ticket, Outcome::Reset);
                }
            }
        }
    }
}
