//! Sources of connections and requests, as limits tell them apart.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, an IPv6 /64 network, or the Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Address(IpAddr),
    Local,
}

impl Source {
    /// Returns the source of a peer with this address (`None` on a Unix socket).
    pub(crate) fn of(address: Option<IpAddr>) -> Source {
        match address.map(|address| address.to_canonical()) {
            // An IPv6 subscriber has a whole /64 network.
            Some(IpAddr::V6(v6)) => Source::Address(Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into()),
            Some(v4) => Source::Address(v4),
            None => Source::Local,
        }
    }
}
