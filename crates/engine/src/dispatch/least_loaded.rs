//! Round robin that considers the load: the node chosen last, and the next one.
//!
//! Source: Aron, Druschel and Zwaenepoel, *Cluster Reserves* (SIGMETRICS 2000), App. A.1, where it is called
//! WRR: begin with the node after the one chosen last, go round once, and take the least loaded node, the
//! first one of equals. As printed, the loop closes before it moves on to the next node, and so compares one
//! node again and again. This implementation takes that brace for a misprint. Load is the same as elsewhere
//! in dispatch: requests in flight on the node's machine, including the one to be sent, relative to weight.
//!
//! `avoid_last` is the paper's note 3 (Sec. 5.4): a class avoids the node of its last request if another
//! node can take the request.
//!
//! Plain weighted round robin, which ignores load, is [`crate::Dispatch::WeightedRoundRobin`]. The web switch
//! (Andreolini et al.) uses that one, and its experiments show how it behaves under load.

use crate::index::{Id, Table};
use crate::request::{ClassId, NodeId};

/// The node chosen last in a pool, overall and per class.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    pub(super) last: NodeId,
    /// Node of the last request per class, under `avoid_last`. At most as long as the table of live
    /// classes.
    of_class: Table<ClassId, NodeId>,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation { last: NodeId::NONE, of_class: Table::new() }
    }
}

impl Rotation {
    /// The node of the class's last request, or [`NodeId::NONE`].
    pub(super) fn last_of(&self, class: ClassId) -> NodeId {
        self.of_class.get(class).copied().unwrap_or(NodeId::NONE)
    }

    /// Records that a request of the class goes to `node`.
    pub(super) fn chose(&mut self, class: ClassId, node: NodeId, avoid_last: bool) {
        self.last = node;
        if !avoid_last {
            return;
        }
        self.of_class.grow(class.row() + 1, NodeId::NONE);
        self.of_class[class] = node;
    }
}

/// Ranks nodes by their turn after `last` (or [`NodeId::NONE`]): the nodes after it in order, then from the
/// first on.
pub(super) fn after(node: NodeId, last: NodeId) -> (bool, NodeId) {
    (node <= last, node)
}
