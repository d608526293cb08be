//! The PROXY protocol: a header before the first byte of a connection, which names the client behind a balancer.
//!
//! Source: *The PROXY protocol, versions 1 and 2* (haproxy.org/download/2.9/doc/proxy-protocol.txt). Version 1 is a
//! line of text, version 2 is binary and may carry further facts. Departures: the header of a datagram is refused,
//! because connections are streams. Of the further facts, those about the client's TLS are used, the checksum is
//! verified, and the others are skipped.

mod parse;
mod receive;
mod write;

use std::net::SocketAddr;

pub(crate) use receive::receive;
pub use receive::{HeaderFailure, HeaderFailures};
pub(crate) use write::{write, write_local};

use crate::handshake::ClientTls;

/// The first bytes of a header of version 2. No other protocol begins with them.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Kinds of addresses in version 2, over a stream.
const UNKNOWN: u8 = 0x00;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const UNIX: u8 = 0x31;

/// The two ends of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Address of the client.
    pub(crate) client: SocketAddr,
    /// The address that it connected to.
    pub(crate) destination: SocketAddr,
}

/// A header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The ends of the connection that it names. `None` for a connection of the balancer itself, such as a health
    /// check, and for a client without an IP address.
    pub(crate) ends: Option<Ends>,
    /// The TLS between client and balancer.
    pub(crate) tls: Option<ClientTls>,
}
