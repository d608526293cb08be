//! The gateways under comparison: Weirgate and the proxies in common use.
//!
//! Each is a real process in front of the same nodes, configured with as much of the experiment's policy as
//! it can express. `terms.rs` translates the policy into proxy terms, and `docs/guide/peers.md` describes
//! each peer's configuration. Requests carry `x-class: NAME`, which every gateway can read. A request of an
//! unknown class belongs to the policy's last class, as in Weirgate.

mod approach;
mod envoy;
#[cfg(test)]
mod golden;
mod haproxy;
mod knob;
mod launch;
mod nginx;
mod terms;
mod weirgate;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weirgate_experiment::Experiment;
use weirgate_spanned_yaml::overrides::Override;
use weirgate_wire::admin;

pub use approach::{Approach, Kind};
pub use knob::{Knob, Share, Slots, Span};

use launch::Peer;

/// The setting in which a gateway starts.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The experiment with the policy: pools, classes, guarantees, and nodes with weights and capacities.
    pub experiment: &'a Experiment,
    /// Source of Weirgate's own policy file. Peers do not use it.
    pub source: Option<&'a Source>,
    /// Address of each node of the policy.
    pub addresses: &'a [SocketAddr],
    /// An empty directory for its logs and its configuration, which are kept with the results.
    pub directory: &'a Path,
    /// The CPU to which it is pinned.
    pub cpu: Option<usize>,
}

/// Source of Weirgate's policy.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path of the `weirgate` program.
    pub program: PathBuf,
    /// The experiment file.
    pub file: PathBuf,
    /// Changes to the experiment file.
    pub overrides: Vec<Override>,
    /// Whether Weirgate's process is in a process group of its own, so that Ctrl-C at the terminal reaches only
    /// this process. The caller then handles the signal.
    pub detached: bool,
}

/// The state of a gateway, as far as it reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Maximum number of requests in flight at the nodes.
    pub window: Option<u32>,
    /// Number of requests in flight at the nodes.
    pub outstanding: u32,
    /// The same per class of the policy. Empty if the gateway does not distinguish classes.
    pub outstanding_of: Vec<u32>,
    /// The same per node of the policy. Empty if the gateway does not report it.
    pub outstanding_at: Vec<u32>,
    /// Reason of the window's last move, in words. Empty if the gateway has no window.
    pub moved: String,
    /// Waiting requests per class of the policy. Empty if the gateway does not distinguish classes.
    pub waiting: Vec<u32>,
    /// Requests per class of the policy that passed and would have been refused. Empty if all classes are enforced.
    pub would_shed: Vec<u64>,
    /// Routes of its page table, if it learns their costs, or empty.
    pub learned: Vec<admin::Route>,
}

/// A running gateway. Dropping it kills its processes.
#[derive(Debug)]
pub struct Gateway {
    peer: Peer,
    version: String,
    control: Box<dyn Control>,
}

/// How a kind of gateway takes orders and tells its state, as the methods of [`Gateway`] say.
trait Control: std::fmt::Debug {
    fn set_out(&mut self, peer: &mut Peer, node: usize, out: bool) -> Result<(), String>;

    fn reload(&mut self, peer: &mut Peer) -> Result<(), String>;

    fn load(&mut self, number: usize) -> Result<(), String> {
        Err(format!("it cannot load another policy (number {number})"))
    }

    fn admin(&self) -> Option<String> {
        None
    }

    fn state(&mut self) -> Option<State> {
        None
    }
}

impl Gateway {
    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.peer.address
    }

    /// Returns its name and version, such as `HAProxy 2.6.12`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Takes node `node` of the policy out of service, or puts it back, in the way that the gateway's
    /// manual describes for planned maintenance. Requests in flight finish. Returns when the gateway has
    /// applied the change.
    ///
    /// # Errors
    /// The gateway refuses. The error quotes its message.
    pub fn set_out(&mut self, node: usize, out: bool) -> Result<(), String> {
        self.control.set_out(&mut self.peer, node, out)
    }

    /// Loads its unchanged configuration again, as its manual describes. Returns when that is done.
    ///
    /// # Errors
    /// The gateway refuses, and the error quotes its message, or it cannot reload in one process.
    pub fn reload(&mut self) -> Result<(), String> {
        self.control.reload(&mut self.peer)
    }

    /// Loads policy number `number` of [`weirgate_experiment::Experiment::reloads`]. Returns when it is in force.
    ///
    /// # Errors
    /// The gateway refuses, and the error quotes its message, or it cannot load a policy. In the latter
    /// case [`Approach::start`] fails before anything is played.
    pub fn load(&mut self, number: usize) -> Result<(), String> {
        self.control.load(number)
    }

    /// Returns where its admin API listens, in the words of a user, if it has one.
    pub fn admin(&self) -> Option<String> {
        self.control.admin()
    }

    /// Returns its present state, or `None` if it does not report one.
    pub fn state(&mut self) -> Option<State> {
        self.control.state()
    }

    /// Returns the id of its process, or of the first one if it has several.
    pub fn process(&self) -> u32 {
        self.peer.id()
    }

    /// Returns the CPU time that all its processes have used.
    pub fn cpu_time(&self) -> Duration {
        self.peer.cpu_time()
    }

    /// Returns why it has exited by itself, if it has.
    pub fn ended(&mut self) -> Option<String> {
        self.peer.ended()
    }
}
