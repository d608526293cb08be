//! A small HTTP/1.1 server for requests to Weirgate itself: the admin APIs of gateway and coordinator, agents' reports,
//! and the reports of agents to the coordinator.
//!
//! hyper implements the protocol (RFC 9112), and a router of axum answers. This crate adds the needs of all these
//! listeners: an address that is never open by accident, mutual TLS ([`weirgate_tls::trust`]), the check of each
//! request ([`Access`]), and bounds. A plain listener is on loopback or on a Unix socket. On any other address one
//! starts only with TLS, and admits the parties that its [`Access`] names.
//!
//! # Modules
//! `listen` opens sockets, `serve` accepts connections, `places` bounds them, `handshake` does TLS, `strict` checks the
//! bytes of requests, `guard` checks permissions, `token` is a secret that clients may show, `attempts` limits wrong
//! tries, `rate` limits reports and lines, `source` tells senders apart, `answer` makes answers, `families` writes
//! metrics, `exposition` answers with them, and `page` has the common parts of pages for people.
#![forbid(unsafe_code)]

pub mod answer;
mod attempts;
pub mod exposition;
pub mod families;
mod guard;
mod handshake;
mod listen;
pub mod page;
mod places;
mod rate;
mod serve;
mod source;
mod strict;
mod token;

pub use guard::{Access, Peer};
pub use handshake::without_tls;
pub use rate::{Lines, Rate};
pub use serve::{Listener, follow};
pub use token::Token;
