//! Stage *admit*, the engine's part: requests are turned away, each with its cause and a time to try again.
//!
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
        let Entry { class, tag, arrived, .. } = self.tickets[index];
        let (waited, ticket) = (now.since(arrived), self.tickets.ticket(index));
        let shed = self.refuse(now, class, reason);
        self.forget(index);
        Action::Shed { ticket, tag, shed, waited }
    }

    /// A request is turned away.
    pub(crate) fn refuse(&mut self, now: Time, class: ClassId, reason: ShedReason) -> Shed {
        self.classes[class].observed.shed(now, reason);
        let fallback = self.classes.spec(class).fallback.map(|index| ClassId(index as u32));
        Shed { reason, retry_after: self.retry_after(class, reason), fallback }
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
            _ => drained,
        }
    }

    /// By which figures the throughput of a class is judged.
    pub(crate) fn terms(&self, class: ClassId) -> Terms {
        Terms::of(&self.classes.spec(class).guarantee, self.classes.service_time(class))
    }
}
