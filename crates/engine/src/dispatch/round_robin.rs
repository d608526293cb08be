//! Round robin that looks at the load: who was chosen last, and who is next.
//!
//! Source: Aron, Druschel and Zwaenepoel, *Cluster Reserves* (SIGMETRICS 2000), App. A.1, where it is called WRR: begin
//! with the node after the one chosen last, go round once, and take the least loaded; of equals the first on the way.
//! As printed, the loop closes before it moves on to the next node and so compares one node again and again; that
//! brace is taken for a misprint. Load is what the engine's dispatch knows of a node everywhere: requests inside its
//! machine, with the one to be sent, relative to weight.
//!
//! `never_twice` is the paper's note 3 (Sec. 5.4): a class's request does not go to the node that its last one went to,
//! if another can take it.
//!
//! Plain weighted round robin, which knows no load, is [`crate::Dispatch::WeightedTurns`]: the web switch (Andreolini
//! et al.) means that one, and its experiments show what becomes of it under load.

use crate::index::{Id, Table};
use crate::request::{ClassId, NodeId};

/// Who was chosen last in a pool.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    pub(super) last: NodeId,
    /// Per class the node of its last request, under `never_twice`. As long as the table of live classes at most.
    of_class: Table<ClassId, NodeId>,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation { last: NodeId::NONE, of_class: Table::new() }
    }
}

impl Rotation {
    /// The node that the class's last request went to, or [`NodeId::NONE`].
    pub(super) fn last_of(&self, class: ClassId) -> NodeId {
        self.of_class.get(class).copied().unwrap_or(NodeId::NONE)
    }

    /// A request of the class goes to `node`.
    pub(super) fn chose(&mut self, class: ClassId, node: NodeId, never_twice: bool) {
        self.last = node;
        if !never_twice {
            return;
        }
        self.of_class.grow(class.row() + 1, NodeId::NONE);
        self.of_class[class] = node;
    }
}

/// Ranks nodes by their turn after `last` (or [`NodeId::NONE`]): those behind it in order, then from the first on.
pub(super) fn after(node: NodeId, last: NodeId) -> (bool, NodeId) {
    (node <= last, node)
}
