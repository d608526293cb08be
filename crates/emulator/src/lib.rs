//! Emulated nodes over real sockets.
//!
//! A [`Cluster`] is a set of small HTTP/1.1 servers on loopback. The requests of a node share its virtual
//! CPUs by processor sharing, the usual model of a loaded web server: with n requests in flight and k CPUs,
//! each request runs at min(1, k/n) of a CPU. Disk, memory and network link are emulated in the same way.
//! All of them are timers, so a laptop can emulate a whole cluster.
//!
//! The modules that decide ([`processor`], [`station`], [`computer`], [`machine`]) are state machines that
//! receive the time as an argument.
//!
//! A [`machine`] has one or more computers. A [`computer`] has memory ([`cache`]), a disk, a [`station`] (CPUs and
//! delays) and a network link. The CPUs are shared by [`processor`] (all requests alike) or `cpus` (classes with
//! shares).
//!
//! Around these models, `server` is the event loop of a [`Cluster`], `port` an address, `connection` a client's
//! connection, `request` and [`body`] the parsing of HTTP, `node` the parameters, faults and counters of a node, and
//! [`clock`] the only source of time. [`random`] has seeded random numbers.
//!
//! Source: Blanquer et al., *Quorum* (NSDI 2005), Sec. 4, for the model of a node.

pub mod body;
mod cluster;
mod connection;
mod node;
mod port;
mod request;
mod server;

pub mod cache;
pub mod clock;
pub mod computer;
mod cpus;
pub mod machine;
pub mod processor;
pub mod random;
pub mod station;

pub use cluster::{Cluster, MAX_NODES};
pub use computer::Disk;
pub use node::{Health, IdLog, NodeSpec, NodeStats};
pub use port::free_address;
pub use processor::Thrashing;
