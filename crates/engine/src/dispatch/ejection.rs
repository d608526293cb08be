//! Which nodes may be chosen at all: health, draining, and the ejection of nodes that fail.
//!
//! Passive ejection answers a known trap: least in_flight sends everything to the node that fails fastest.
//! After `consecutive_failures` in a row a node is left out for `base`, twice as long each further
//! time, up to 16 times; never more than `max_share` of a pool at once, but always one of two or more.

use core::time::Duration;

use super::Nodes;
use crate::request::NodeEvent;
use crate::request::NodeId;
use crate::time::Time;

/// Longest ejection: base × 2⁴. A node that is back for good is missed for at most that long.
const MAX_DOUBLINGS: u32 = 4;

/// Good answers in a row after which earlier ejections are forgotten: enough to tell a healthy node
/// from one that fails every few requests, few enough to come within a second or two.
const FORGIVEN_AFTER: u32 = 20;

impl Nodes {
    /// The node answered well.
    pub(crate) fn succeeded(&mut self, index: NodeId) {
        if index == NodeId::NONE {
            return;
        }
        let node = &mut self.nodes[index];
        node.served += 1;
        node.failures = 0;
        node.successes += 1;
        if node.successes >= FORGIVEN_AFTER {
            node.successes = 0;
            node.ejections = 0;
        }
    }

    /// The node failed; it may be ejected. True if the set of usable nodes changed.
    pub(crate) fn failed(&mut self, now: Time, index: NodeId) -> bool {
        if index == NodeId::NONE {
            return false;
        }
        let node = &mut self.nodes[index];
        node.failed += 1;
        node.failures += 1;
        node.successes = 0;
        let (pool, section) = (node.home, node.pool);
        let rule = self.ejection[pool];
        if rule.consecutive_failures == 0 || node.failures < rule.consecutive_failures || !node.usable() {
            return false;
        }
        let members = self.nodes.iter().filter(|n| n.home == pool).count();
        let ejected = self.nodes.iter().filter(|n| n.home == pool && n.ejected_until.is_some()).count();
        let allowed = ((members as f64 * rule.max_share) as usize).max(usize::from(members >= 2));
        // What is divided anew gets another node for the one that is ejected.
        let usable: u32 = match self.resizes(pool) {
            true => self.sections.of_pool(pool).map(|section| self.usable[section]).sum(),
            false => self.usable[section],
        };
        if ejected >= allowed || usable <= 1 {
            return false;
        }
        let node = &mut self.nodes[index];
        let span: Duration = rule.base.saturating_mul(1 << node.ejections.min(MAX_DOUBLINGS));
        node.ejections = (node.ejections + 1).min(MAX_DOUBLINGS);
        node.failures = 0;
        node.ejected_until = Some(now + span);
        self.refresh();
        true
    }

    /// What the driver learned. True if the set of usable nodes changed.
    pub(crate) fn event(&mut self, event: NodeEvent) -> bool {
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
        if changed {
            self.refresh();
        } else {
            self.weigh_sections();
        }
        changed
    }

    /// Lets ejected nodes back whose time is over. True if there were any.
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

    /// When the next ejected node returns, or [`Time::NEVER`].
    pub(crate) fn next_return(&self) -> Time {
        self.next_return
    }
}
