//! Discovery: the nodes of an upstream, from a place outside the policy.
//!
//! `targets` reads the format of Prometheus' `file_sd` and `http_sd`, so that programs that write such lists for it
//! can write them for Weirgate. `found` has the list, its comparison with the last one, and its place in a
//! policy. `dns` has the rules for records. All of this is pure but for the queries. `lookup` asks the source.

#![forbid(unsafe_code)]

mod dns;
mod found;
mod lookup;
mod targets;

pub use found::{Change, Found, keep_nodes, set_nodes};
pub use lookup::{Looked, Lookup};
pub use targets::{MAX_BYTES, parse};
