//! The gateways that are compared: Weirgate, and what people use today.
//!
//! Each is a real process of its own in front of the same nodes, told as much of the experiment's policy as
//! it can be told: `terms.rs` is the policy in the peers' words, `docs/guide/peers.md` says what each of them
//! makes of it. Requests carry `x-class: NAME`, which every one of them can read; a request of any other
//! class is treated as one of the policy's last, as in the policy itself.

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

use weirgate_config::admin;
use weirgate_experiment::Experiment;
use weirgate_spanned_yaml::overrides::Override;

pub use approach::{Approach, Kind};
pub use knob::{Knob, Share, Slots, Span};

/// What a gateway is started for.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Its policy: pools, classes, guarantees, nodes with weights and capacities.
    pub experiment: &'a Experiment,
    /// Where Weirgate's own policy comes from; peers do not ask.
    pub source: Option<&'a Source>,
    /// Per node of the policy where it listens.
    pub addresses: &'a [SocketAddr],
    /// An empty directory for its configuration, which is kept beside the results, and its logs.
    pub directory: &'a Path,
    /// The CPU that it must stay on.
    pub cpu: Option<usize>,
}

/// Where the policy of Weirgate comes from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The command `weirgate`.
    pub program: PathBuf,
    /// The experiment file.
    pub file: PathBuf,
    /// Changes to it.
    pub overrides: Vec<Override>,
}

/// The state of a gateway, as far as it tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Requests that may be inside the nodes.
    pub window: Option<u32>,
    /// Requests inside the nodes.
    pub outstanding: u32,
    /// Waiting requests per class of the policy; empty if the gateway does not tell its classes apart.
    pub waiting: Vec<u32>,
    /// Routes of its page table, if it learns what they cost; else empty.
    pub learned: Vec<admin::Route>,
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

    /// Its configuration is loaded again, unchanged, as its manual says; back when that is done.
    ///
    /// # Errors
    /// It refused, with its words, or it cannot do it in one process.
    fn reload(&mut self) -> Result<(), String>;

    /// The policy of number `number` of [`weirgate_experiment::Experiment::reloads`] is put in force; back when that is
    /// done.
    ///
    /// # Errors
    /// It refused, with its words, or it cannot do it: [`Approach::start`] says so before anything is played.
    fn load(&mut self, number: usize) -> Result<(), String> {
        Err(format!("it cannot load another policy (number {number})"))
    }

    /// Its state now; `None` if it does not tell.
    fn state(&mut self) -> Option<State> {
        None
    }

    /// CPU time that all its processes have used.
    fn cpu_time(&self) -> Duration;

    /// Has it ended by itself? Then why.
    fn ended(&mut self) -> Option<String>;
}
