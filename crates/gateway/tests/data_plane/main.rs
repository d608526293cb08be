//! Tests of the data plane over real sockets, against nodes that follow the instructions of a test exactly.

mod as_sent;
mod bodies;
mod clients;
mod collectors;
mod fallback;
mod forwarding;
mod framing;
mod hand_over;
mod lifecycle;
mod locality;
mod pages;
mod queueing;
mod retries;
mod sources;
mod stage;
mod threats;
mod timeouts;
mod upgrades;
