//! Stage *forward*, the engine's part: returns slots and retries failures.
//!
//! The driver handles the bytes. The engine keeps the slot and returns it exactly once: at the node's last
//! byte, a failure, a reset or an upgrade. A failed attempt may be repeated on another node within the
//! class's retry budget, and it keeps its slot. It is never repeated on the node that failed: after a timeout
//! that node may still be working on the first copy. The budget is a token bucket as in Linkerd: each first
//! attempt adds `ratio`, time adds `min_per_second`, and a retry takes one token.

use crate::dispatch::Wanted;
use crate::engine::Engine;
use crate::limit::Slot;
use crate::policy::RetryBudget;
use crate::request::NodeId;
use crate::ticket::RequestState;
use crate::time::Time;

/// Seconds for which unused budget is kept: ten, as in Linkerd.
const TTL: f64 = 10.0;
/// Maximum number of tokens saved by first attempts. A burst of a hundred failures is retried at once. A
/// thousand failures are an outage, in which retries only add load.
const MAX_SAVED: f64 = 100.0;

/// Retry tokens of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryTokens {
    saved: f64,
    timed: f64,
    at: Time,
}

impl RetryTokens {
    pub(crate) fn new(now: Time) -> RetryTokens {
        // Infinite at first: the next call of `take` reduces it to the maximum that time may save up.
        RetryTokens { saved: 0.0, timed: f64::INFINITY, at: now }
    }

    /// Adds the tokens of a first attempt.
    pub(crate) fn deposit(&mut self, budget: &RetryBudget) {
        self.saved = (self.saved + budget.ratio).min(MAX_SAVED);
    }

    /// Takes a token for one more attempt and returns whether there was one.
    pub(crate) fn take(&mut self, now: Time, budget: &RetryBudget) -> bool {
        let passed = now.since(self.at).as_secs_f64();
        self.at = now;
        self.timed = (self.timed + passed * budget.min_per_second).min(TTL * budget.min_per_second);
        let tokens = if self.timed >= 1.0 { &mut self.timed } else { &mut self.saved };
        // The tolerance makes five additions of 0.2 a whole token.
        let enough = *tokens >= 1.0 - 1e-9;
        if enough {
            *tokens = (*tokens - 1.0).max(0.0);
        }
        enough
    }

    /// Returns a token that was not used.
    pub(crate) fn put_back(&mut self) {
        self.saved = (self.saved + 1.0).min(MAX_SAVED);
    }
}

impl Engine {
    pub(crate) fn failed(&mut self, now: Time, index: u32, retryable: bool) -> Option<NodeId> {
        let entry = &self.tickets[index];
        let (class, node, window, released) = (entry.class, entry.node, entry.window, entry.released);
        let (sub_queue, demand) = (usize::from(entry.sub_queue), self.policy.managed(entry.demand));
        let again = retryable && !entry.first_byte;
        let priced = self.policy.is_priced();
        let budget = self.classes.spec(class).retry;
        let left = entry.retries < budget.max_retries;
        let state = &mut self.classes[class];
        state.observed.counts.failed += 1;
        let partition = state.partition;
        self.node_failed(now, index);
        if !again || !left {
            self.leave(now, index);
            return None;
        }
        if self.tickets[index].has_passed() {
            return self.retry_passing(now, index);
        }
        let kept = Some(self.limit.group_of(window));
        let content = self.classes.spec(class).content;
        // The retry may use the capacity that the first attempt had in flight.
        self.nodes.leaves(node, content);
        self.nodes.ended(now, node, index);
        self.limit.lets_go(&self.nodes, node, demand);
        self.tickets[index].node = NodeId::NONE;
        let fits = self.limit.resources().is_none_or(|resources| resources.fits(&self.nodes, partition, demand));
        let room = fits && self.limit.room(&self.nodes, (partition, sub_queue), self.tickets[index].standing, kept);
        if room && self.classes[class].retry.take(now, &budget) {
            let locality_key = self.tickets[index].locality_key;
            let standing = self.tickets[index].standing;
            let wanted =
                Wanted { partition, class, sub_queue, content, locality_key, demand, avoid: node, standing, kept };
            let Some(next) = self.nodes.dispatch(&wanted, &self.limit, &mut self.random) else {
                self.classes[class].retry.put_back();
                self.leave(now, index);
                return None;
            };
            let window_now = self.limit.window_of(sub_queue, self.nodes.group_of(next));
            let slot = Slot { node: next, window: window_now, ..self.tickets[index].slot(demand) };
            self.limit.moves(now, window, &slot, &self.nodes);
            self.classes[class].observed.counts.retried += 1;
            let entry = &self.tickets[index];
            let used = if priced { entry.charged } else { now.since(released).as_secs_f64() };
            // The first attempt used its slot. From here on the charge is for the second attempt.
            if entry.fair {
                self.scheduler.settled(&self.classes, class, 0.0, used);
            }
            let entry = &mut self.tickets[index];
            entry.node = next;
            entry.window = window_now;
            entry.released = now;
            entry.retries += 1;
            self.nodes.began(now, next, index);
            self.rank(class);
            return Some(next);
        }
        self.leave(now, index);
        None
    }

    /// Learns from the failure of a request in flight.
    pub(crate) fn node_failed(&mut self, now: Time, index: u32) {
        let RequestState { window, node, .. } = self.tickets[index];
        if !self.tickets[index].has_passed() {
            self.limit.failed(now, window, &mut self.nodes, node);
        }
        if self.nodes.failed(now, node) {
            self.nodes_changed();
        }
    }

    /// Returns the slot and forgets the request.
    pub(crate) fn leave(&mut self, now: Time, index: u32) {
        let entry = &self.tickets[index];
        if entry.has_passed() {
            return self.leave_passing(index);
        }
        let (class, node, charged, fair) = (entry.class, entry.node, entry.charged, entry.fair);
        let demand = self.policy.managed(entry.demand);
        // With known costs, the request is charged its cost from the page table, however long it was in
        // flight.
        let priced = self.policy.is_priced();
        let used = if priced { charged } else { now.since(entry.released).as_secs_f64() };
        let slot = entry.slot(demand);
        self.tickets.remove(index);
        self.nodes.leaves(node, self.classes.spec(class).content);
        self.nodes.ended(now, node, index);
        self.limit.leaves(now, &slot, &self.nodes);
        self.classes[class].in_flight -= 1;
        if fair {
            self.scheduler.settled(&self.classes, class, charged, used);
        }
        if self.classes[class].active() {
            self.rank(class);
        } else {
            self.retire(class);
        }
    }
}
