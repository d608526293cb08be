//! The key that tells one client from another: a network, or the value of a header or cookie.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::file::UNIX_CLIENT;

/// The value of a request that keys a template, or that tells its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// The value of a header.
    Header(http::HeaderName),
    /// The value of a cookie.
    Cookie(String),
    /// The visitor that the gateway's own cookie names. Not for templates.
    Visitor,
    /// The network of the client's address.
    Network(NetworkSize),
}

/// The size of the networks that count as one client: lengths of the prefix of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkSize {
    /// For an IPv4 address, at most 32.
    pub ipv4: u8,
    /// For an IPv6 address, at most 64.
    pub ipv6: u8,
}

impl NetworkSize {
    /// An IPv4 address, or an IPv6 /64: a client with one IPv6 address has the whole /64.
    pub const ADDRESS: NetworkSize = NetworkSize { ipv4: 32, ipv6: 64 };

    /// The network of an address. Clients on Unix sockets share one with no address.
    #[must_use]
    pub fn network_of(self, address: IpAddr) -> IpNet {
        if address == UNIX_CLIENT {
            return IpNet::from(address);
        }
        let prefix = if address.is_ipv4() { self.ipv4.min(32) } else { self.ipv6.min(64) };
        IpNet::new(address, prefix).map_or(IpNet::from(address), |net| net.trunc())
    }
}

impl std::fmt::Display for NetworkSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == NetworkSize::ADDRESS {
            return f.write_str("address");
        }
        write!(f, "/{} /{}", self.ipv4, self.ipv6)
    }
}
