//! Tests of the data plane over real sockets, against nodes that follow the instructions of a test exactly.

mod as_sent;
mod bodies;
mod clients;
mod collectors;
mod discovery;
mod discovery_dns;
mod fallback;
mod forwarding;
mod framing;
mod hand_over;
mod headers;
mod http2;
mod lifecycle;
mod locality;
mod node_tls;
mod pages;
mod pki;
mod queueing;
mod retries;
mod sources;
mod stage;
mod threats;
mod timeouts;
mod tls;
mod upgrades;
