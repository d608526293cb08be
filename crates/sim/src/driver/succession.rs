//! The end of the gateway's process, and the process that takes its clients at once.
//!
//! All requests at the gateway are lost: their clients' connections break, and so do those to the machines. The other
//! process knows which nodes are down and which are taken out, as a standby does by its own health checks and policy.
//! It has learned nothing, or what the first one knew at the last whole second before ([`super::Driver::follow`]).

use std::time::Duration;

use weirgate_engine::{Engine, NodeEvent, Outcome};
use weirgate_experiment::random::{Purpose, seed_for};
use weirgate_experiment::{Fate, FaultKind};

use super::Driver;
use crate::requests::Place;

/// Interval in nanoseconds at which a standby follows: that of the gateway.
const FOLLOWS_EVERY: u64 = 1_000_000_000;

impl Driver<'_> {
    /// Remembers what the gateway has learned, if another process will take over with it. Called at every sample.
    pub(super) fn follow(&mut self) {
        let wanted = |kind: &FaultKind| *kind == FaultKind::Restart { follows: true };
        if self.now.is_multiple_of(FOLLOWS_EVERY) && self.experiment.faults.iter().any(|fault| wanted(&fault.kind)) {
            self.followed = Some((self.now, self.engine.learned(self.time())));
        }
    }

    /// Replaces the gateway's process.
    pub(super) fn succeed(&mut self, follows: bool) {
        let lost: Vec<u32> = self
            .requests
            .iter()
            .filter(|(_, request)| request.place == Place::Waiting || request.place.is_in_flight())
            .map(|(slot, _)| slot)
            .collect();
        for slot in lost {
            let request = &self.requests[slot];
            let (waits, spec) = (request.place == Place::Waiting, request.spec as usize);
            let Some(ticket) = request.ticket else { continue };
            if waits {
                self.engine.cancel(self.time(), ticket);
                self.checks.waits_no_more(spec);
            } else {
                self.cut(slot);
                self.give_back(slot, Outcome::Reset);
            }
            self.checks.tallies[spec].cancelled += 1;
            self.end(slot, Fate::Failed);
        }
        let (now, policy) = (self.time(), self.engine.policy().clone());
        self.successions += 1;
        match Engine::new(now, policy, seed_for(self.seed, Purpose::Engine, self.successions)) {
            Ok(engine) => self.engine = engine,
            Err(invalid) => return self.checks.note("policy", invalid.to_string()),
        }
        for event in self.checks.replaced() {
            self.engine.node(now, event);
        }
        if let Some((at, learned)) = self.followed.as_ref().filter(|_| follows) {
            self.engine.adopt(now, learned, Duration::from_nanos(self.now - at));
        }
        self.settle();
        self.checks.look(&self.engine.snapshot(now));
    }
}

impl crate::checks::Checks {
    /// Begins the account of another engine, which has no requests. Returns the events that tell it about the nodes.
    pub(crate) fn replaced(&mut self) -> Vec<NodeEvent> {
        for (earlier, tally) in self.earlier.iter_mut().zip(&mut self.tallies) {
            *earlier += std::mem::take(tally).offered;
        }
        self.states()
    }
}
