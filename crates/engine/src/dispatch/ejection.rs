//! The set of nodes that may be chosen: health, draining, and the ejection of failing nodes.
//!
//! Passive ejection solves a known problem: least outstanding sends every request to the node that fails
//! fastest. A node is ejected after `consecutive_failures` in a row, or if it fails far more of its requests than
//! enough other nodes of its pool (Envoy's outlier detection has a test of either kind). Enough is the share that
//! must stay in service. Compared with the median of the others, no node would be an outlier where most of them
//! fail a part of their requests. Compared with nodes that do not fail at all, none would be one where a few
//! requests fail everywhere. An ejected node gets no requests for `base`, twice as long each further time, up to
//! 16 times. After its return a failure ejects it at once if it is the first answer, and usually if it is one of
//! the first.
//!
//! The others must be able to serve. So at most `max_share` of a pool is ejected at once, three quarters by
//! default, but one node of two or more may always be: this is the panic threshold. A smaller share (a third
//! is usual) keeps crashed nodes in service after most have crashed, and they fail every request that they
//! get. If more than the share fail, the fault is probably elsewhere, and all remaining nodes share the
//! load.
//!
//! Engines that send requests to the same nodes may tell each other which ones they have ejected (`crate::others`).
//! There the first failure is enough. A hint alone ejects nothing, because the fault may be that of another engine's
//! network. A node that was ejected on a hint is not told of, or engines would keep a node ejected that fails one
//! request in a hundred, by telling each other.

use core::time::Duration;

use super::speed::FARTHEST;
use super::{NodeInfo, Nodes};
use crate::learned::{LearnedNode, within};
use crate::request::{NodeEvent, NodeId};
use crate::time::Time;

/// Longest ejection: base × 2⁴. A recovered node is missed for at most that long.
const MAX_DOUBLINGS: u32 = 4;

/// Weight of the latest answer in a node's error average, which so spans about 39 answers. Five failures in a row,
/// Envoy's default, move it to 0.23.
const ERROR_WEIGHT: f64 = 0.05;

/// Added to the error average of a node that others are compared with. A node that has not failed lately still fails
/// up to one request in 25, with a confidence of four fifths for the 39 answers that its average spans.
const UNSEEN: f64 = 0.04;

/// Standard deviations by which an outlier's error average exceeds what is ordinary. Where all nodes fail the same
/// share of their requests, any from 2 to 50 %, chance exceeds three of them at up to 16 of 1,000 answers, and five at
/// less than one. A node that fails three fifths of its requests is found as soon with five.
const DEVIATIONS: f64 = 5.0;

/// Answers after which the error average tells how a node works: it then has seven eighths of its final value.
/// As many good ones in a row forgive earlier ejections.
const EVIDENCE: u32 = 40;

/// Highest error average that is ordinary for a node if another one has the average `errors`. It is 0.2 if the other
/// does not fail, about as after five failures in a row.
fn ordinary(errors: f64) -> f64 {
    let share = (errors + UNSEEN).min(1.0);
    share + DEVIATIONS * (share * (1.0 - share) * ERROR_WEIGHT / (2.0 - ERROR_WEIGHT)).sqrt()
}

impl NodeInfo {
    /// Whether it is known to fail so few requests that a node with the error average `errors` is an outlier.
    fn is_far_better(&self, errors: f64) -> bool {
        self.served + self.failed >= u64::from(EVIDENCE) && errors > ordinary(self.errors)
    }
}

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
        node.successes = node.successes.saturating_add(1);
        if node.successes >= EVIDENCE {
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
        let rule = self.ejection[node.pool];
        let (errors, failures, usable) = (node.errors, node.failures, node.usable());
        if rule.consecutive_failures == 0 || !usable {
            return false;
        }
        let by_itself = failures >= rule.consecutive_failures || self.is_outlier(index, errors);
        if !by_itself && !self.nodes[index].ejected_elsewhere {
            return false;
        }
        if !self.may_eject(index) {
            return false;
        }
        let node = &mut self.nodes[index];
        let span: Duration = rule.base.saturating_mul(1 << node.ejections.min(MAX_DOUBLINGS));
        node.ejections = (node.ejections + 1).min(MAX_DOUBLINGS);
        // It returns on probation. A node that fails only a part of its requests may begin with good answers, so
        // its error average stays.
        node.failures = if by_itself { rule.consecutive_failures - 1 } else { 0 };
        node.is_ejected_on_hint = !by_itself;
        node.ejected_until = Some(now + span);
        self.refresh();
        true
    }

    /// The nodes that are ejected, and not on a hint.
    pub(crate) fn ejected(&self) -> impl Iterator<Item = NodeId> {
        let is_told = |node: &NodeInfo| node.ejected_until.is_some() && !node.is_ejected_on_hint;
        self.nodes.pairs().filter(move |(_, node)| is_told(node)).map(|(index, _)| index)
    }

    /// Notes whether another engine has ejected the node.
    pub(crate) fn ejected_elsewhere(&mut self, index: NodeId, is_ejected: bool) {
        self.nodes[index].ejected_elsewhere = is_ejected;
    }

    /// Whether enough other nodes of its pool are far better: the share that ejection leaves in service, and at
    /// least one.
    fn is_outlier(&self, index: NodeId, errors: f64) -> bool {
        if errors <= ordinary(0.0) {
            return false;
        }
        let pool = self.nodes[index].pool;
        let others = self.nodes.pairs().filter(|(other, node)| *other != index && node.pool == pool && node.usable());
        let (mut all, mut better) = (0u32, 0u32);
        for (_, other) in others {
            all += 1;
            better += u32::from(other.is_far_better(errors));
        }
        better > 0 && f64::from(better) >= (1.0 - self.ejection[pool].max_share) * f64::from(all)
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

    /// The learned state of a node.
    pub(crate) fn learned(&self, now: Time, node: &NodeInfo) -> LearnedNode {
        LearnedNode {
            slowness: self.slowness(node),
            errors: node.errors,
            ejected_for: node.ejected_until.map(|until| until.since(now)),
            ejections: node.ejections,
            ..LearnedNode::default()
        }
    }

    /// Takes over what another engine has learned about a node, `age` ago. It is ejected for the rest of its time, if
    /// so many nodes may be. [`Nodes::adopted`] must follow.
    pub(crate) fn adopt(&mut self, now: Time, id: NodeId, known: &LearnedNode, age: Duration) {
        if let Some(slowness) = within(known.slowness, 1.0 / FARTHEST, FARTHEST) {
            self.adopt_speed(id, slowness);
        }
        let rule = self.ejection[self.nodes[id].pool];
        let Some(errors) = within(known.errors, 0.0, 1.0).filter(|_| rule.consecutive_failures > 0) else { return };
        let ejections = known.ejections.min(MAX_DOUBLINGS);
        let longest = rule.base.saturating_mul(1 << ejections.saturating_sub(1));
        let left = known.ejected_for.map(|left| left.saturating_sub(age).min(longest)).filter(|left| !left.is_zero());
        let node = &mut self.nodes[id];
        (node.errors, node.ejections) = (errors, ejections);
        let Some(left) = left.filter(|_| node.usable()) else { return };
        if self.may_eject(id) {
            let node = &mut self.nodes[id];
            node.failures = rule.consecutive_failures - 1;
            node.is_ejected_on_hint = false;
            node.ejected_until = Some(now + left);
            self.refresh();
        }
    }

    /// Updates all state that follows from the nodes' states.
    pub(crate) fn adopted(&mut self) {
        self.refresh();
    }

    /// Whether one more node of the pool of this one may be ejected.
    fn may_eject(&self, index: NodeId) -> bool {
        let NodeInfo { pool, partition, .. } = self.nodes[index];
        let members = self.nodes.iter().filter(|n| n.pool == pool).count();
        let ejected = self.nodes.iter().filter(|n| n.pool == pool && n.ejected_until.is_some()).count();
        let allowed = ((members as f64 * self.ejection[pool].max_share) as usize).max(usize::from(members >= 2));
        // A pool with dynamic partitions replaces an ejected node.
        let usable: u32 = match self.resizes(pool) {
            true => self.partitions.of_pool(pool).map(|partition| self.usable[partition]).sum(),
            false => self.usable[partition],
        };
        ejected < allowed && usable > 1
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
