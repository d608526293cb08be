//! The nodes and classes of Cluster Reserves as an operator declares them.

/// The declared cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Where agents find the coordinator: `host:port`, resolved when they connect.
    pub coordinator: String,
    /// The names of the nodes, 1 to 1000 different ones.
    pub nodes: Vec<String>,
    /// The classes, 1 to 100 with different names. Their shares sum to 100 at most.
    pub classes: Vec<ClusterClass>,
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
    /// Returns the index of the node called `name`.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node == name)
    }
}

impl ClusterClass {
    /// Whether node `node` has it.
    pub fn is_on(&self, node: usize) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node))
    }
}
