//! Emulated nodes and open-loop clients over real sockets.
//!
//! A [`Cluster`] is a set of small HTTP/1.1 servers on loopback whose requests share virtual CPUs by
//! processor sharing, the model of a loaded web server: with n requests inside and k CPUs each runs at
//! min(1, k/n). Disk, memory and network link are emulated in the same way. All of these are timers, so a laptop
//! emulates a cluster. [`client`] loads any HTTP/1.1 server
//! with several classes of requests at rates that do not yield to a slow server, and judges what came
//! back against each class's guarantee.
//!
//! Everything that decides ([`processor`], [`station`], [`computer`], [`machine`]) is a state machine with the
//! time passed in.
//! Sources: Blanquer et al., *Quorum* (NSDI 2005), Sec. 4, for what a node is; Schroeder, Wierman and
//! Harchol-Balter, *Open Versus Closed* (NSDI 2006), for why clients must not wait for one another.

mod body;
mod cluster;
mod connection;
mod node;
mod port;
mod request;
mod server;

pub mod cache;
pub mod client;
pub mod clock;
pub mod computer;
mod cpus;
pub mod machine;
pub mod processor;
pub mod random;
pub mod station;

pub use cluster::{Cluster, MOST_NODES};
pub use computer::Disk;
pub use node::{Health, IdLog, NodeSpec, NodeStats};
pub use processor::Thrashing;
pub use random::Distribution;
