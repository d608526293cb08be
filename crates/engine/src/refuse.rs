//! Stage *admit*, the engine's part: refuses requests, each with its reason and a time for the next try.
//!
//! A method says which of its rules a request broke. Two of the reasons judge the class or its queue:
//! `overload` and `deadline`. They mislead an operator if the nodes are the cause, for example because they
//! hang or all but one are ejected. Therefore both become `nodes_slow` in two cases: no request of the class
//! is answered, or the class sends no more than its guarantee and the discipline serves owed requests first.
//! The engine cannot tell whether the nodes became slow or the requests expensive. All other reasons name a
//! fact (a queue is full, no node is usable) and stay unchanged.

use core::time::Duration;

use crate::engine::Engine;
use crate::ledger::Terms;
use crate::policy::Guarantee;
use crate::request::{Action, ClassId, Shed, ShedReason};
use crate::ticket::RequestState;
use crate::time::Time;

/// Time for the next try if the nodes are the cause. By then a health check may have found a usable node,
/// and a short stall is over.
const NODES: Duration = Duration::from_secs(5);

impl Engine {
    /// Refuses a waiting request.
    pub(crate) fn turn_away(&mut self, now: Time, index: u32, reason: ShedReason) -> Action {
        let RequestState { class, token, arrived, owed, adopted, .. } = self.tickets[index];
        let (waited, ticket) = (now.since(arrived), self.tickets.ticket(index));
        let shed = self.refuse(now, class, reason, owed && !adopted);
        self.forget(index);
        Action::Shed { ticket, token, shed, waited }
    }

    /// Refuses a request. `owed` says that it arrived within the guarantee of its class.
    pub(crate) fn refuse(&mut self, now: Time, class: ClassId, reason: ShedReason, owed: bool) -> Shed {
        let reason = self.cause(now, class, reason, owed);
        self.classes[class].observed.shed(now, reason);
        let fallback = self.classes.spec(class).fallback.map(|index| ClassId(index as u32));
        Shed { reason, retry_after: self.retry_after(class, reason), fallback }
    }

    /// Refuses a request because its source or class sends too much. It has no fallback and counts for no guarantee.
    #[cold]
    pub(crate) fn limited(&mut self, now: Time, class: ClassId, reason: ShedReason, wait: Duration) -> Shed {
        let observed = &mut self.classes[class].observed;
        observed.offered(now, &Guarantee::default(), None);
        observed.shed(now, reason);
        Shed { reason, retry_after: wait.max(Duration::from_secs(1)), fallback: None }
    }

    /// The reason that is reported.
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

    /// Time until a new try makes sense: the expected time to drain the queue, between 1 and 60 s. If the
    /// nodes are the cause, it is at least [`NODES`].
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

    /// The figures by which the throughput of a class is judged.
    pub(crate) fn terms(&self, class: ClassId) -> Terms {
        Terms::of(&self.classes.spec(class).guarantee, self.classes.service_time(class))
    }
}
