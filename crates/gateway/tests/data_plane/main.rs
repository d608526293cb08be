//! The data plane over real sockets, against nodes that do exactly what a test tells them.

mod bodies;
mod clients;
mod collectors;
mod fallback;
mod forwarding;
mod framing;
mod lifecycle;
mod pages;
mod queueing;
mod retries;
mod stage;
mod targets;
mod threats;
mod timeouts;
mod upgrades;
