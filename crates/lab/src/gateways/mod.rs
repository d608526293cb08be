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
pub trait Gateway {
    /// Returns the address for clients.
    fn address(&self) -> SocketAddr;

    /// Returns its name and version, such as `HAProxy 2.6.12`.
    fn version(&self) -> &str;

    /// Takes node `node` of the policy out of service, or puts it back, in the way that the gateway's
    /// manual describes for planned maintenance. Requests in flight finish. Returns when the gateway has
    /// applied the change.
    ///
    /// # Errors
    /// The gateway refuses. The error quotes its message.
    fn set_out(&mut self, node: usize, out: bool) -> Result<(), String>;

    /// Loads its unchanged configuration again, as its manual describes. Returns when that is done.
    ///
    /// # Errors
    /// The gateway refuses, and the error quotes its message, or it cannot reload in one process.
    fn reload(&mut self) -> Result<(), String>;

    /// Loads policy number `number` of [`weirgate_experiment::Experiment::reloads`]. Returns when it is in force.
    ///
    /// # Errors
    /// The gateway refuses, and the error quotes its message, or it cannot load a policy. In the latter
    /// case [`Approach::start`] fails before anything is played.
    fn load(&mut self, number: usize) -> Result<(), String> {
        Err(format!("it cannot load another policy (number {number})"))
    }

    /// Returns where its admin API listens, in the words of a user, if it has one.
    fn admin(&self) -> Option<String> {
        None
    }

    /// Returns its present state, or `None` if it does not report one.
    fn state(&mut self) -> Option<State> {
        None
    }

    /// Returns the id of its process, or of the first one if it has several.
    fn process(&self) -> u32;

    /// Returns the CPU time that all its processes have used.
    fn cpu_time(&self) -> Duration;

    /// Returns why it has exited by itself, if it has.
    fn ended(&mut self) -> Option<String>;
}
