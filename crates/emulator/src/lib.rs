//! Emulated nodes and open-loop clients over real sockets.
//!
//! A [`Cluster`] is a set of small HTTP/1.1 servers on loopback. The requests of a node share its virtual
//! CPUs by processor sharing, the usual model of a loaded web server: with n requests in flight and k CPUs,
//! each request runs at min(1, k/n) of a CPU. Disk, memory and network link are emulated in the same way.
//! All of them are timers, so a laptop can emulate a whole cluster. [`client`] loads any HTTP/1.1 server
//! with several classes of requests. Their rates do not drop when the server is slow. It then judges the
//! replies against the guarantee of each class.
//!
//! The modules that decide ([`processor`], [`station`], [`computer`], [`machine`]) are state machines that
//! receive the time as an argument.
//!
//! Sources: Blanquer et al., *Quorum* (NSDI 2005), Sec. 4, for the model of a node. Schroeder, Wierman and
//! Harchol-Balter, *Open Versus Closed* (NSDI 2006), for the reason that clients must not wait for one another.

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
