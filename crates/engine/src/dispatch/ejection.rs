//! The set of nodes that may be chosen: health, draining, and the ejection of failing nodes.
//!
//! Passive ejection solves a known problem: least outstanding sends every request to the node that fails
//! fastest. A node is ejected after `consecutive_failures` in a row, or if it fails a fifth of its requests
//! and four times as many as the others (Envoy's outlier detection has both tests). It gets no requests for
//! `base`, twice as long each further time, up to 16 times. After its return the first failure ejects it
//! again.
//!
//! The others must be able to serve. So at most `max_share` of a pool is ejected at once, three quarters by
//! default, but one node of two or more may always be: this is the panic threshold. A smaller share (a third
//! is usual) keeps crashed nodes in service after most have crashed, and they fail every request that they
//! get. If more than the share fail, the fault is probably elsewhere, and all remaining nodes share the
//! load.

use core::time::Duration;

use super::Nodes;
use crate::request::{NodeEvent, NodeId};
use crate::time::Time;

/// Longest ejection: base × 2⁴. A recovered node is missed for at most that long.
const MAX_DOUBLINGS: u32 = 4;

/// Weight of the latest answer in a node's error average. Five failures in a row, Envoy's default, move it
/// to 0.23.
const ERROR_WEIGHT: f64 = 0.05;

/// Error average above which a node is an outlier, and its minimum ratio to the median of the others. If all
/// nodes fail alike, their requests are the cause.
const OUTLIER: f64 = 0.2;
const TIMES_OTHERS: f64 = 4.0;

/// Good answers in a row after which earlier ejections are forgotten: enough to tell a healthy node from one
/// that fails every few requests, and few enough to be reached within a second or two.
const FORGIVEN_AFTER: u32 = 20;

impl Nodes {
    /// Counts a good answer of the node.
    pub(crate) fn succeeded(&mut self, index: NodeId) {
        if index == NodeId::NONE {
            return;
        }
        let node = &mut self.nodes[index];
        node.served += 1;
        node.failures = 0;
        node.errors -= ERROR_WEIGHT * node.errors;
        node.successes += 1;
        if node.successes >= FORGIVEN_AFTER {
            node.successes = 0;
            node.ejections = 0;
        }
    }

    /// Counts a failure of the node, which may eject it. Returns true if the set of usable nodes changed.
    pub(crate) fn failed(&mut self, now: Time, index: NodeId) -> bool {
        if index == NodeId::NONE {
            return false;
        }
        let node = &mut self.nodes[index];
        node.failed += 1;
        node.failures += 1;
        node.errors += ERROR_WEIGHT * (1.0 - node.errors);
        node.successes = 0;
        let (pool, partition) = (node.pool, node.partition);
        let rule = self.ejection[pool];
        let (errors, failures, usable) = (node.errors, node.failures, node.usable());
        if rule.consecutive_failures == 0 || !usable {
            return false;
        }
        if failures < rule.consecutive_failures && !self.is_outlier(index, pool, errors) {
            return false;
        }
        let members = self.nodes.iter().filter(|n| n.pool == pool).count();
        let ejected = self.nodes.iter().filter(|n| n.pool == pool && n.ejected_until.is_some()).count();
        let allowed = ((members as f64 * rule.max_share) as usize).max(usize::from(members >= 2));
        // A pool with dynamic partitions replaces an ejected node.
        let usable: u32 = match self.resizes(pool) {
            true => self.partitions.of_pool(pool).map(|partition| self.usable[partition]).sum(),
            false => self.usable[partition],
        };
        if ejected >= allowed || usable <= 1 {
            return false;
        }
        let node = &mut self.nodes[index];
        let span: Duration = rule.base.saturating_mul(1 << node.ejections.min(MAX_DOUBLINGS));
        node.ejections = (node.ejections + 1).min(MAX_DOUBLINGS);
        // It returns on probation.
        node.failures = rule.consecutive_failures - 1;
        node.errors = 0.0;
        node.ejected_until = Some(now + span);
        self.refresh();
        true
    }

    /// Whether the node fails much more often than the others of its pool.
    fn is_outlier(&self, index: NodeId, pool: usize, errors: f64) -> bool {
        if errors <= OUTLIER {
            return false;
        }
        let others = self.nodes.pairs().filter(|(other, node)| *other != index && node.pool == pool && node.usable());
        // The median of the others is below a quarter of its errors if most of them are.
        let below = others.map(|(_, node)| if TIMES_OTHERS * node.errors < errors { 1 } else { -1 });
        below.sum::<i64>() > 0
    }

    /// Applies an event from the driver. Returns true if the set of usable nodes changed.
    pub(crate) fn event(&mut self, now: Time, event: NodeEvent) -> bool {
        let id = match event {
            NodeEvent::Up(id)
            | NodeEvent::Down(id)
            | NodeEvent::Draining(id)
            | NodeEvent::Resumed(id)
            | NodeEvent::Capacity(id, _)
            | NodeEvent::Load { node: id, .. } => id,
        };
        let Some(node) = self.nodes.get_mut(id) else { return false };
        let before = node.usable();
        match event {
            NodeEvent::Up(_) => node.up = true,
            NodeEvent::Down(_) => node.up = false,
            NodeEvent::Draining(_) => node.draining = true,
            NodeEvent::Resumed(_) => node.draining = false,
            NodeEvent::Capacity(_, capacity) => {
                if capacity.is_finite() && capacity > 0.0 {
                    node.capacity = Some(capacity);
                }
            }
            NodeEvent::Load { static_content, dynamic_content, .. } => {
                node.reported = Some([static_content, dynamic_content]);
            }
        }
        let changed = before != node.usable();
        if changed && matches!(event, NodeEvent::Up(_)) {
            self.start_slowly(now, id);
        }
        match event {
            _ if changed => self.refresh(),
            NodeEvent::Capacity(..) | NodeEvent::Load { .. } => self.weigh_partitions(),
            _ => {}
        }
        changed
    }

    /// Returns ejected nodes to service after their time. Returns true if there were any.
    pub(crate) fn readmit(&mut self, now: Time) -> bool {
        if self.next_return > now {
            return false;
        }
        for node in &mut self.nodes {
            if node.ejected_until.is_some_and(|until| until <= now) {
                node.ejected_until = None;
            }
        }
        self.refresh();
        true
    }

    /// Time at which the next ejected node returns, or [`Time::NEVER`].
    pub(crate) fn next_return(&self) -> Time {
        self.next_return
    }
}
