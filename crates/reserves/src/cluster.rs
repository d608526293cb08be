//! The nodes and classes of Cluster Reserves as an operator declares them.

use std::path::{Path, PathBuf};

/// The declared cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Where agents find the coordinator: `host:port`, resolved when they connect.
    pub coordinator: String,
    /// The nodes, 1 to 1000 with different names.
    pub nodes: Vec<ClusterNode>,
    /// The classes, 1 to 100 with different names. Their shares sum to 100 at most.
    pub classes: Vec<ClusterClass>,
    /// File with the token of the nodes that have none of their own. `None` is no token, allowed on loopback only.
    pub token: Option<PathBuf>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// File with the token of this node alone.
    pub token: Option<PathBuf>,
}

/// A class of work on the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterClass {
    /// Its name.
    pub name: String,
    /// Its guaranteed share, in percent of the cluster.
    pub share: f64,
    /// Its cgroup on each node, as a path from the root of the hierarchy. `*` stands for any characters
    /// within a name.
    pub cgroup: String,
    /// Whether the agent creates the cgroup if it does not exist. Then the path has no `*`.
    pub create: bool,
    /// Indices of the nodes that have it, ascending. `None` means all of them.
    pub nodes: Option<Vec<usize>>,
}

impl Cluster {
    /// Returns the file with the token of node `node`: its own, else the common one. `None` means no token.
    #[must_use]
    pub fn token_of(&self, node: usize) -> Option<&Path> {
        self.nodes.get(node).and_then(|node| node.token.as_deref()).or(self.token.as_deref())
    }

    /// Returns the index of the node called `name`.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }
}

impl ClusterClass {
    /// Whether node `node` has it.
    #[must_use]
    pub fn is_on(&self, node: usize) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node))
    }
}
