//! A small HTTP/1.1 client for requests that Weirgate itself makes: to agents, nodes and admin pages.
//!
//! hyper implements the protocol (RFC 9112). This crate adds sockets, limits and plain errors. [`exchange`] makes one
//! request on its own connection, [`status`] reads no body, [`exchange_in_pieces`] reads a body as it arrives, and a
//! [`Connection`] is kept for further requests. [`blocking`] is for callers without a tokio runtime. Each request has a
//! time limit and a limit on the size of its answer ([`Limits`]). Callers name an [`Address`] and never see a socket.
//! An address may be that of a party of the site, which is reached over mutual TLS.

mod address;
pub mod blocking;
mod connection;
mod message;

pub use address::Address;
pub use connection::{Connection, exchange, exchange_in_pieces, status};
pub use message::{Answer, Error, Limits, MAX_HEAD, Request};

#[cfg(test)]
mod tests;
