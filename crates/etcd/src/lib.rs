//! etcd for a site of gateways: keys, leases, guarded transactions, and the election of a coordinator.
//!
//! Source: etcd's API, version 3, over its gRPC gateway: JSON with keys and values in base64, as of etcd 3.4. It needs
//! no compiler for protocol buffers and no gRPC, and is spoken by the same HTTP client, with the same TLS, as
//! everything else that Weirgate asks for. Etcd's own clients may hang for as long as a member of etcd does, so every
//! call here has one deadline, which includes all attempts.
//!
//! Answers of etcd are not trusted: they and their values are bounded, and one that is not understood is an error that
//! changes nothing. An election is no mutual exclusion (Jepsen's report on etcd 3.4.3). So everything that an elected
//! process writes is guarded by the revision of its election, in the same transaction ([`Election::write`]), and every
//! other use of an election must tolerate two processes that believe to be elected, as `weirgate-site` does.
//!
//! # Modules
//! `client` (calls, and the log-in before them), `answer` (the answers of etcd), `election`.
#![forbid(unsafe_code)]

mod answer;
mod client;
mod election;

pub use answer::Entry;
pub use client::{Client, Error, Guard, MAX_VALUE};
pub use election::{Election, Turn};
