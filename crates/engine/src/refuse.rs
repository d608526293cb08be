//! Stage *admit*, the engine's part: requests are turned away, each with its cause and a time to try again.
//!
//! A method says which of its rules a request broke. Two of these reasons are a judgement on the class or its queue:
//! `overload` and `deadline`. They mislead an operator where the nodes are the cause, as when they hang or all but
//! one are ejected. So both become `nodes_slow` if nothing of the class is answered, or if the class sends no more than
//! it is guaranteed and the discipline serves what is owed first. Whether the nodes became slow or the class's requests
//! expensive cannot be told from outside. All other reasons name a fact (a queue is full, no node is usable) and stay.

use core::time::Duration;

use crate::engine::Engine;
use crate::ledger::Terms;
use crate::request::{Action, ClassId, Shed, ShedReason};
use crate::ticket::Entry;
use crate::time::Time;

/// When trying again makes sense if the nodes are the cause: a health check may have found one until then, and a short
/// stall is over.
const NODES: Duration = Duration::from_secs(5);

impl Engine {
    /// A waiting request is turned away.
    pub(crate) fn turn_away(&mut self, now: Time, index: u32, reason: ShedReason) -> Action {
        let Entry { class, tag, arrived, owed, adopted, .. } = self.tickets[index];
        let (waited, ticket) = (now.since(arrived), self.tickets.ticket(index));
        let shed = self.refuse(now, class, reason, owed && !adopted);
        self.forget(index);
        Action::Shed { ticket, tag, shed, waited }
    }

    /// A request is turned away. `owed` says that it arrived within its class's guarantee.
    pub(crate) fn refuse(&mut self, now: Time, class: ClassId, reason: ShedReason, owed: bool) -> Shed {
        let reason = self.cause(now, class, reason, owed);
        self.classes[class].observed.shed(now, reason);
        let fallback = self.classes.spec(class).fallback.map(|index| ClassId(index as u32));
        Shed { reason, retry_after: self.retry_after(class, reason), fallback }
    }

    /// The reason that is told.
    fn cause(&self, now: Time, class: ClassId, reason: ShedReason, owed: bool) -> ShedReason {
        if !matches!(reason, ShedReason::Deadline | ShedReason::Overload) {
            return reason;
        }
        let terms = self.terms(class);
        let state = &self.classes[class];
        let silent = state.in_flight > 0 && state.observed.is_silent(now, terms);
        let within = owed && state.observed.asks_within(now);
        if silent || within && self.admission.serves_owed_first() { ShedReason::NodesSlow } else { reason }
    }

    /// When trying again makes sense: when the queue will have drained, between 1 and 60 s; if the nodes are the
    /// cause, when that may have changed.
    fn retry_after(&self, class: ClassId, reason: ShedReason) -> Duration {
        let state = &self.classes[class];
        let each = state.expected.seconds().unwrap_or(0.0) / f64::from(state.in_flight.max(1));
        let seconds = (f64::from(state.queue.len) * each).ceil().clamp(1.0, 60.0);
        let drained = Duration::from_secs(seconds as u64);
        match reason {
            ShedReason::NoNode => NODES,
            ShedReason::NodesSlow => drained.max(NODES),
            _ => drained,
        }
    }

    /// By which figures the throughput of a class is judged.
    pub(crate) fn terms(&self, class: ClassId) -> Terms {
        Terms::of(&self.classes.spec(class).guarantee, self.classes.service_time(class))
    }
}
