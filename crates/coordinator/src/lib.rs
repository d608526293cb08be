//! The coordinator of Cluster Reserves as a process: it receives the agents' reports, runs the optimiser, and
//! distributes the shares.
//!
//! Source: Aron, Druschel and Zwaenepoel, "Cluster Reserves", Sec. 4: a process that keeps a TCP connection
//! to the tracker of each node, collects the usage of the classes, runs the optimiser and sends the shares.
//! The decisions are made in `weirgate_reserves` ([`weirgate_reserves::Coordinator`]). This crate adds
//! sockets, time and a thread for the optimiser. Departures: agents speak HTTP, and prove by a certificate which node
//! they are the agent of, because a peer that can represent a node influences the shares of others. There is also a
//! page, and there are metrics.
//!
//! [`CoordinatorServer`] listens ([`CoordinatorServer::open`]) and works ([`CoordinatorServer::serve`]). [`routes`] has
//! the page, JSON and metrics for an admin listener, which the caller provides. When the coordinator ends in any way,
//! agents keep the shares in force.
//!
//! `serve` has the listener and the optimiser's thread, `agents` the routes of the agents, and `shared_state` their
//! sessions. `metrics` and the folder `page` are behind `routes`.
#![forbid(unsafe_code)]

mod agents;
mod metrics;
mod routes;
mod serve;
mod shared_state;

pub use routes::routes;
pub use serve::CoordinatorServer;
pub use shared_state::SharedState;
