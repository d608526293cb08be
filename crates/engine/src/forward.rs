//! Stage *forward*, the engine's part: what becomes of a request that is inside.
//!
//! Bytes are the driver's business. Here the slot is kept and given back, exactly once, at the node's
//! last byte, a failure, a reset or an upgrade; and a failed attempt may be repeated on another node
//! within the class's retry budget, keeping its slot. The budget is a token bucket as Linkerd's: each
//! first attempt adds `ratio`, time adds `min_per_second`, a retry takes one.

use core::time::Duration;

use crate::dispatch::Wanted;
use crate::engine::Engine;
use crate::index::GroupId;
use crate::policy::RetryBudget;
use crate::request::{NodeId, Outcome, Ticket};
use crate::ticket::State;
use crate::time::Time;

/// Seconds for which unused budget is remembered: Linkerd's ten.
const TTL: f64 = 10.0;
/// Most tokens that first attempts may save up: a burst of a hundred failures is retried at once, a
/// thousand is an outage in which retries only add load.
const MOST_SAVED: f64 = 100.0;

/// Tokens of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryTokens {
    saved: f64,
    timed: f64,
    at: Time,
}

impl RetryTokens {
    pub(crate) fn new(now: Time) -> RetryTokens {
        // Full at first: the next look cuts it down to what time may save up.
        RetryTokens { saved: 0.0, timed: f64::INFINITY, at: now }
    }

    /// A first attempt.
    pub(crate) fn deposit(&mut self, budget: &RetryBudget) {
        self.saved = (self.saved + budget.ratio).min(MOST_SAVED);
    }

    /// May one more attempt be made? Takes its token.
    fn take(&mut self, now: Time, budget: &RetryBudget) -> bool {
        let passed = now.since(self.at).as_secs_f64();
        self.at = now;
        self.timed = (self.timed + passed * budget.min_per_second).min(TTL * budget.min_per_second);
        let tokens = if self.timed >= 1.0 { &mut self.timed } else { &mut self.saved };
        // A hair of slack: five additions of 0.2 are a whole token.
        let enough = *tokens >= 1.0 - 1e-9;
        if enough {
            *tokens = (*tokens - 1.0).max(0.0);
        }
        enough
    }
}

impl Engine {
    /// Something happened to a *released* request. Returns a node if a retryable failure is to be tried
    /// again there; the request keeps its slot then. A stale ticket is ignored.
    pub fn observe(&mut self, now: Time, ticket: Ticket, outcome: Outcome) -> Option<NodeId> {
        let now = self.advance(now);
        let index = self.tickets.find(ticket, State::Inside)?;
        match outcome {
            Outcome::FirstByte => self.tickets[index].first_byte = true,
            Outcome::LastByte { status } => self.answered(now, index, status),
            Outcome::Upgraded => self.answered(now, index, 101),
            Outcome::Reset => {
                let class = self.tickets[index].class;
                self.classes[class].observed.counts.cancelled += 1;
                self.leave(now, index);
            }
            Outcome::Failed { retryable } => return self.failed(now, index, retryable),
        }
        None
    }

    fn answered(&mut self, now: Time, index: u32, status: u16) {
        let entry = &self.tickets[index];
        let (class, node, adopted, demand) = (entry.class, entry.node, entry.adopted, entry.demand);
        let (compute, response): (Duration, Duration) = (now.since(entry.released), now.since(entry.arrived));
        if status >= 500 {
            self.classes[class].observed.counts.failed += 1;
            self.node_failed(now, node);
        } else {
            self.nodes.succeeded(node);
            let guarantee = self.classes.spec(class).guarantee;
            let state = &mut self.classes[class];
            let admit = &self.policy.discipline.admit;
            state.expected.roll(now, state.in_flight > 0, admit, guarantee.response_time);
            if !self.policy.resources.is_empty() {
                let used = &mut state.observed.counts.used;
                used.iter_mut().zip(demand.0).for_each(|(used, demand)| *used += u64::from(demand));
            }
            if adopted {
                state.observed.counts.served += 1;
            } else {
                state.observed.served(now, response, &guarantee);
                state.expected.add(compute.as_secs_f64(), admit, guarantee.response_time);
                self.steering.see(now, class, &mut state.seen, guarantee.response_time);
                if self.classes.learn(class, compute.as_secs_f64()) {
                    self.reweigh(class);
                }
                self.measured(now, index, compute.as_secs_f64());
            }
        }
        self.leave(now, index);
    }

    /// A compute time for the window that the request was in.
    fn measured(&mut self, now: Time, index: u32, compute: f64) {
        let entry = &self.tickets[index];
        if entry.node == NodeId::NONE || entry.retries > 0 {
            return;
        }
        let Some(swing) = &mut self.windows[entry.window as usize].swing else { return };
        if let Some(mean) = self.classes[entry.class].expected.seconds().filter(|mean| *mean > 0.0) {
            self.nodes.computed(entry.node, compute / mean, swing.figures());
        }
        let lane = self.nodes.lanes[self.nodes.nodes[entry.node].lane].place as usize;
        let place = lane * self.sub_queues + usize::from(entry.sub_queue);
        let halves = &mut self.classes[entry.class].halves;
        if halves.len() <= place {
            halves.resize_with(place + 1, Default::default);
        }
        swing.completed(now, entry.class, &mut halves[place], compute);
    }

    fn failed(&mut self, now: Time, index: u32, retryable: bool) -> Option<NodeId> {
        let entry = &self.tickets[index];
        let (class, node, window, released) = (entry.class, entry.node, entry.window, entry.released);
        let (sub_queue, demand) = (usize::from(entry.sub_queue), self.policy.managed(entry.demand));
        let again = retryable && !entry.first_byte;
        let priced = self.policy.is_priced();
        let budget = self.classes.spec(class).retry;
        let left = entry.retries < budget.max_retries;
        let state = &mut self.classes[class];
        state.observed.counts.failed += 1;
        let pool = state.pool;
        self.node_failed(now, node);
        if !again || !left {
            self.leave(now, index);
            return None;
        }
        let first = self.first_window(sub_queue);
        let kept = Some(GroupId(window - first as u32));
        let content = self.classes.spec(class).content;
        // What the first attempt had inside the second may have.
        self.nodes.release(node, content, demand);
        self.tickets[index].node = NodeId::NONE;
        let room = self.nodes.has_room(pool, self.windows_of(sub_queue), kept)
            && (!self.nodes.available || self.nodes.fits(pool, demand));
        if room && self.classes[class].retry.take(now, &budget) {
            let target = self.tickets[index].target;
            let wanted = Wanted { pool, class, content, target, demand, avoid: node, kept };
            let windows = &self.windows[first..][..self.nodes.groups.len()];
            let next = self.nodes.dispatch(&wanted, windows, &mut self.random).unwrap_or(NodeId::NONE);
            let window_now = first as u32 + self.nodes.group_of(next).0;
            if window_now != window {
                self.windows[window as usize].count(now, false);
                self.windows[window_now as usize].count(now, true);
            }
            self.classes[class].observed.counts.retried += 1;
            let entry = &self.tickets[index];
            let used = if priced { entry.charged } else { now.since(released).as_secs_f64() };
            // The first attempt used its slot; the charge now stands for the second.
            if entry.fair {
                self.scheduler.settled(&self.classes, class, 0.0, used);
            }
            let entry = &mut self.tickets[index];
            entry.node = next;
            entry.window = window_now;
            entry.released = now;
            entry.retries += 1;
            self.rank(class);
            return Some(next);
        }
        self.leave(now, index);
        None
    }

    fn node_failed(&mut self, now: Time, node: NodeId) {
        if self.nodes.failed(now, node) {
            self.nodes_changed(now);
        }
    }

    /// Gives the slot back and forgets the request.
    fn leave(&mut self, now: Time, index: u32) {
        let entry = &self.tickets[index];
        let (class, node, window, charged, fair) = (entry.class, entry.node, entry.window, entry.charged, entry.fair);
        let demand = self.policy.managed(entry.demand);
        // What the page table says it takes it has taken, however long it was inside.
        let priced = self.policy.is_priced();
        let used = if priced { charged } else { now.since(entry.released).as_secs_f64() };
        self.tickets.remove(index);
        self.nodes.release(node, self.classes.spec(class).content, demand);
        self.windows[window as usize].count(now, false);
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
