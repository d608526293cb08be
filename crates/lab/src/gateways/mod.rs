//! The gateways that are compared: Weirgate, and what people use today.
//!
//! Each is a real process of its own in front of the same nodes, told as much of the experiment's policy as
//! it can be told. Requests carry `x-class: NAME`, which every one of them can read.

pub mod weirgate;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use weirgate_config::Experiment;

/// What a gateway is started for.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Its policy: pools, classes, guarantees, nodes with weights and capacities.
    pub experiment: &'a Experiment,
    /// Per node of the policy where it listens.
    pub addresses: &'a [SocketAddr],
    /// An empty directory for its configuration, which is kept beside the results, and its logs.
    pub directory: &'a Path,
    /// The CPU that it must stay on.
    pub cpu: Option<usize>,
}

/// The state of a gateway, as far as it tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Requests that may be inside the nodes.
    pub window: Option<u32>,
    /// Requests inside the nodes.
    pub outstanding: u32,
    /// Waiting requests per class of the policy.
    pub waiting: Vec<u32>,
}

/// A gateway under way. Dropped, its processes are killed.
pub trait Gateway {
    /// Where clients connect.
    fn address(&self) -> SocketAddr;

    /// What it is, with its version, as in `HAProxy 2.6.12`.
    fn version(&self) -> &str;

    /// The operator takes node `node` of the policy out, or puts it back; what is inside finishes. As its
    /// manual says for planned maintenance; back when the gateway has taken it in.
    ///
    /// # Errors
    /// It refused, with its words.
    fn set_out(&mut self, node: usize, out: bool) -> Result<(), String>;

    /// Its state now; `None` if it does not tell.
    fn state(&mut self) -> Option<State>;

    /// CPU time that all its processes have used.
    fn cpu_time(&self) -> Duration;

    /// Has it ended by itself? Then why.
    fn ended(&mut self) -> Option<String>;
}
