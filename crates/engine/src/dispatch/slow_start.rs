//! Slow start: a node that appears while others serve begins with a tenth of its weight.
//!
//! Source: Envoy's `slow_start_config`, HAProxy's `slowstart` and nginx's `slow_start`. A new server has cold caches
//! and no compiled code, and its full share would slow down all of its first requests. The weight is the larger of a
//! tenth and the elapsed share of the time, as with Envoy's aggression 1. The bound on its requests in flight grows
//! with it, as HAProxy does. Windows follow the weights of the machines, so they grow as well.
//!
//! The weight moves in ten steps, because each change begins a new half of a cycle in which load control measures.
//! Envoy computes it for every request.
//!
//! - A node starts slowly when a change of the policy adds it, and when health checks find it well again. An ejected
//!   node does not: its caches outlast a second, and the first failure ejects it again.
//! - Some other node of its pool must serve with its full weight. If all nodes of a pool are new, nothing is gained by
//!   weights that are all small, and their windows and bounds would refuse requests that they could serve.
//! - Load control by resources ([`crate::LoadControl::ResourceAvailability`]) keeps the full size of the machine,
//!   because a request must fit. Only the bound on requests in flight grows there.

use core::time::Duration;

use super::speed::Settled;
use super::{Nodes, Settings};
use crate::policy::Policy;
use crate::request::NodeId;
use crate::time::{Time, nanos};

/// Number of steps from nothing to the full weight. A node begins with one of them. A tenth is the smallest weight that
/// Envoy uses by default.
const STEPS: u128 = 10;

/// A slow start that has begun.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SlowStart {
    since: Time,
    span: Duration,
}

impl SlowStart {
    /// Number of steps made by `now`. At [`STEPS`] the start has ended.
    fn steps(self, now: Time) -> u128 {
        let steps = now.since(self.since).as_nanos() * STEPS / self.span.as_nanos().max(1);
        steps.clamp(1, STEPS)
    }

    /// Time of the next step after `now`.
    fn next(self, now: Time) -> Time {
        let elapsed = (self.span.as_nanos() * (self.steps(now) + 1)).div_ceil(STEPS);
        self.since + Duration::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

impl Nodes {
    /// The slow start of each pool of a policy.
    pub(super) fn slow_starts(policy: &Policy) -> Vec<Duration> {
        policy.pools.iter().map(|pool| pool.slow_start).collect()
    }

    /// Starts a node slowly if its pool does so and another of its nodes serves with its full weight.
    /// [`Nodes::refresh`] must follow.
    pub(super) fn start_slowly(&mut self, now: Time, index: NodeId) {
        let pool = self.nodes[index].pool;
        let span = self.slow_start[pool];
        let others = self.nodes.pairs().filter(|(other, node)| *other != index && node.pool == pool);
        let full = others.filter(|(_, node)| node.usable() && node.slow_start.is_none()).count();
        if nanos(span) > 0 && full > 0 {
            self.nodes[index].slow_start = Some(SlowStart { since: now, span });
            self.apply_slow_starts(now);
        }
    }

    /// Starts the nodes slowly that the policy has added, after [`Nodes::inherit`] of all others.
    pub(super) fn begin_slow_starts(&mut self, now: Time, kept: &[NodeId]) {
        let mut added = vec![true; self.nodes.len()];
        for node in kept {
            added[node.0 as usize] = false;
            let span = self.slow_start[self.nodes[*node].pool];
            let slow_start = &mut self.nodes[*node].slow_start;
            // A policy may change the time, or turn it off.
            *slow_start = slow_start.filter(|_| nanos(span) > 0).map(|start| SlowStart { span, ..start });
        }
        // Nodes that were added do not serve with their full weight for one another.
        let usable: Vec<bool> = (0..self.slow_start.len())
            .map(|pool| kept.iter().map(|n| &self.nodes[*n]).any(|n| n.pool == pool && n.usable()))
            .collect();
        for index in self.nodes.ids().filter(|index| added[index.0 as usize]) {
            let pool = self.nodes[index].pool;
            let span = self.slow_start[pool];
            if usable[pool] && nanos(span) > 0 {
                self.nodes[index].slow_start = Some(SlowStart { since: now, span });
            }
        }
        self.apply_slow_starts(now);
    }

    /// Makes the steps that are due. Returns true if there were any.
    pub(crate) fn grow(&mut self, now: Time) -> bool {
        if self.next_step > now {
            return false;
        }
        self.apply_slow_starts(now);
        self.refresh();
        true
    }

    /// Sets the weights and bounds of all nodes for the time `now`. [`Nodes::refresh`] must follow.
    fn apply_slow_starts(&mut self, now: Time) {
        self.next_step = Time::NEVER;
        for machine in &mut self.machines {
            machine.weight = 0.0;
        }
        for node in &mut self.nodes {
            node.slow_start = node.slow_start.filter(|start| start.steps(now) < STEPS);
            let Settings { weight, max_outstanding } = node.settings;
            (node.weight, node.max_outstanding) = (weight, max_outstanding);
            if let Some(start) = node.slow_start {
                let share = start.steps(now) as f64 / STEPS as f64;
                node.weight = weight * share;
                if max_outstanding < u32::MAX {
                    node.max_outstanding = (f64::from(max_outstanding) * share).ceil() as u32;
                }
                self.next_step = self.next_step.min(start.next(now));
            }
            let machine = &mut self.machines[node.machine];
            machine.weight = machine.weight.max(node.weight);
        }
        let first = self.nodes.iter().next().map(|node| node.weight);
        self.even = first.filter(|weight| self.nodes.iter().all(|node| node.weight == *weight));
        for group in &mut self.groups {
            group.settled = Settled::NEVER;
        }
    }

    /// Share of its weight that a node has, 1 without a slow start.
    pub(crate) fn share_of_weight(&self, index: NodeId) -> f64 {
        let node = &self.nodes[index];
        node.weight / node.settings.weight
    }

    /// Time of the next step of a slow start, or [`Time::NEVER`].
    pub(crate) fn next_step(&self) -> Time {
        self.next_step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: SlowStart = SlowStart { since: Time::from_millis(500), span: Duration::from_millis(1_000) };

    #[test]
    fn steps_are_a_tenth_of_the_time_apart() {
        let steps = |ms| START.steps(Time::from_millis(ms));
        assert_eq!([0, 500, 600, 699, 700, 1_499, 1_500, 9_000].map(steps), [1, 1, 1, 1, 2, 9, 10, 10]);
        assert_eq!(START.next(Time::from_millis(500)), Time::from_millis(700));
        assert_eq!(START.next(Time::from_millis(1_450)), Time::from_millis(1_500));
    }

    #[test]
    fn each_next_step_is_a_step_for_any_span() {
        for span in [1, 3, 7, 10, 999, 1_000_000_007] {
            let start = SlowStart { since: Time::from_nanos(5), span: Duration::from_nanos(span) };
            let (mut now, mut steps) = (start.since, start.steps(start.since));
            while steps < STEPS {
                now = start.next(now);
                assert!(start.steps(now) > steps, "span {span}: no step at {now:?}");
                steps = start.steps(now);
            }
            assert!(now.since(start.since) >= start.span.min(Duration::from_nanos(span)));
        }
    }
}
