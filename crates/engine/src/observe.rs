//! Stage *observe*, the engine's part: passes outcomes on to the stages that learn from them.

use core::time::Duration;

use crate::demand::Costs;
use crate::engine::Engine;
use crate::limit::Completion;
use crate::request::{NodeId, Outcome, Ticket};
use crate::ticket::{RequestState, State};
use crate::time::Time;

impl Engine {
    /// Reports the outcome of a *released* request. Returns a node if you must retry a failed request there.
    /// The request keeps its slot then. A stale ticket is ignored.
    pub fn observe(&mut self, now: Time, ticket: Ticket, outcome: Outcome) -> Option<NodeId> {
        let now = self.advance(now);
        let index = self.tickets.find(ticket, State::InFlight)?;
        if self.shadow.is_some() {
            self.observe_beside(now, ticket, outcome)
        } else {
            self.carry_out(now, index, outcome)
        }
    }

    /// Learns from the outcome of a request in flight.
    #[inline]
    pub(crate) fn carry_out(&mut self, now: Time, index: u32, outcome: Outcome) -> Option<NodeId> {
        match outcome {
            Outcome::FirstByte => self.tickets[index].first_byte = true,
            Outcome::LastByte { status } => self.answered(now, index, status),
            Outcome::Upgraded => self.answered(now, index, 101),
            Outcome::Reset => {
                self.left(now, index);
                self.leave(now, index);
            }
            Outcome::Failed { retryable } => return self.failed(now, index, retryable),
        }
        None
    }

    /// Counts a request that its client left.
    pub(crate) fn left(&mut self, now: Time, index: u32) {
        let RequestState { class, arrived, owed, adopted, .. } = self.tickets[index];
        let terms = self.terms(class);
        let observed = &mut self.classes[class].observed;
        observed.counts.cancelled += 1;
        if owed && !adopted {
            observed.left(now, arrived, terms);
        }
    }

    fn answered(&mut self, now: Time, index: u32, status: u16) {
        let entry = &self.tickets[index];
        let (class, node, adopted, demand) = (entry.class, entry.node, entry.adopted, entry.demand);
        let (compute, response): (Duration, Duration) = (now.since(entry.released), now.since(entry.arrived));
        if status >= 500 {
            self.classes[class].observed.counts.failed += 1;
            self.node_failed(now, index);
        } else {
            self.nodes.succeeded(node);
            let guarantee = self.classes.spec(class).guarantee;
            self.classes.roll(now, class);
            let estimation = self.classes.estimation;
            let state = &mut self.classes[class];
            if self.policy.costs() != Costs::Unknown {
                let used = &mut state.observed.counts.used;
                used.iter_mut().zip(demand.0).for_each(|(used, demand)| *used += u64::from(demand));
            }
            if adopted {
                state.observed.counts.served += 1;
            } else {
                state.observed.served(now, response, &guarantee);
                self.admission.answered(class, response, &guarantee);
                state.expected.add(compute.as_secs_f64(), estimation, guarantee.response_time);
                if self.classes.learn(class, compute.as_secs_f64()) {
                    self.reweigh(class);
                }
                let late = guarantee.response_time.map(|rt| response > rt.limit);
                if !self.tickets[index].has_passed() {
                    self.measured(index, compute.as_secs_f64(), late);
                }
            }
        }
        self.leave(now, index);
    }

    /// Passes a good answer on to load control.
    fn measured(&mut self, index: u32, holding: f64, late: Option<bool>) {
        let entry = &self.tickets[index];
        let completion = Completion {
            class: entry.class,
            sub_queue: usize::from(entry.sub_queue),
            window: entry.window,
            node: entry.node,
            retried: entry.retries > 0,
            among: entry.among,
            holding,
            late,
        };
        let (limit, mut view) = self.limiting();
        limit.completed(&mut view, &completion);
        self.nodes.answered(self.now, completion.node, index, completion.class);
    }
}
