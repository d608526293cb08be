//! Questions to the agents of the nodes.

use std::time::Duration;

use crate::file::socket_path;

/// How a node's agent is queried for its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Path requested with GET. The reply is a [`weirgate_wire::Report`].
    pub path: String,
    /// The agent's port on the node's host. `None` means the node's own port.
    pub port: Option<u16>,
    /// Time between two queries.
    pub every: Duration,
    /// Timeout of a report, after which it is missed.
    pub timeout: Duration,
}

impl Collector {
    /// Returns the address of the agent of the node at `node`: `host:port`. A node with a Unix socket is on this
    /// machine.
    pub fn at(&self, node: &str) -> String {
        match (self.port, node.rsplit_once(':')) {
            (Some(port), _) if socket_path(node).is_some() => format!("127.0.0.1:{port}"),
            (Some(port), Some((host, _))) => format!("{host}:{port}"),
            _ => node.to_owned(),
        }
    }
}

/// Returns the name that the certificate of a node's agent must have: the name of the node, or the host of the agent's
/// address `agent` (`host:port`) if the node is only known by its `address`.
pub fn agent_name<'a>(name: &'a str, address: &str, agent: &'a str) -> &'a str {
    match name == address {
        true => agent.rsplit_once(':').map_or(agent, |(host, _)| host),
        false => name,
    }
}
