//! The manager of Cluster Reserves as a process: it hears the agents, has shares found, and hands them out.
//!
//! Source: Aron, Druschel and Zwaenepoel, "Cluster Reserves", Sec. 4: a process that keeps a TCP connection with the
//! tracker of each node, collects what classes used, runs the optimiser and sends the shares. What it decides is in
//! `weirgate_reserves` ([`weirgate_reserves::Coordinator`]); here are sockets, time and a thread for the optimiser.
//! Departures: agents prove who they are and lines are sealed (`weirgate_config::Link`), because whoever can speak
//! for a node decides what others get; and there is a page and metrics.
//!
//! [`Manager`] listens ([`Manager::open`]) and works ([`Manager::serve`]); [`routes`] is what its page, JSON and
//! metrics answer, for an admin listener that whoever composes it provides. When it ends, however it ends, agents keep
//! the shares that are in force.
#![forbid(unsafe_code)]

mod agents;
mod clock;
mod connection;
mod desk;
mod metrics;
mod page;
mod routes;
mod serve;

pub use desk::Desk;
pub use routes::routes;
pub use serve::Manager;
