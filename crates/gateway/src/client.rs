//! Client address of a request: the rightmost hop that is not a listed proxy.
//!
//! Sources: RFC 7239 (`Forwarded`) and the older `X-Forwarded-For`. These headers are ignored if the peer is
//! not a listed proxy. If both are present and agree, `X-Forwarded-For` is used. If they disagree, neither is
//! used: a listed proxy that writes only one of them passes on the other as the client sent it.

use std::hash::BuildHasher;
use std::net::IpAddr;

use weirgate_config::{Key, NetworkSize, Site, UNIX_CLIENT};
use weirgate_engine::{mixed, position};
use weirgate_http1::Name;

use crate::active_config::fnv1a;
use crate::forwarded::{address, of_element};
use crate::request::Request;

/// Maximum number of hops followed. Real chains of proxies are shorter, and a long header takes time to
/// parse.
const MAX_HOPS: usize = 32;

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The client's address: the rightmost hop that is not a listed proxy.
    pub client: IpAddr,
    /// Whether the peer is a listed proxy, which is trusted to state the origin of requests.
    pub listed: bool,
}

impl Origin {
    /// Returns the origin of a request from `peer`.
    pub fn new(peer: IpAddr, site: &Site, request: &Request) -> Origin {
        let peer = peer.to_canonical();
        let listed = site.trusts(peer);
        Origin { client: if listed { client(peer, site, request) } else { peer }, listed }
    }
}

/// Returns the client address of a request from a listed proxy.
fn client(peer: IpAddr, site: &Site, request: &Request) -> IpAddr {
    let (head, bytes) = request.head();
    let old = request.has(Name::XForwardedFor).then(|| {
        let hops = head.list(bytes, Name::XForwardedFor).rev();
        walk(peer, site, hops.map(address))
    });
    let new = request.has(Name::Forwarded).then(|| {
        let hops = head.list(bytes, Name::Forwarded).rev();
        walk(peer, site, hops.map(|element| of_element(element, b"for").and_then(address)))
    });
    match (old, new) {
        (Some(old), Some(new)) if old != new => peer,
        (Some(client), _) | (None, Some(client)) => client,
        (None, None) => peer,
    }
}

/// Number of the clients on Unix sockets in tables. As an address of IPv6 it would be one of multicast, which no client
/// has.
const UNIX_KEY: u64 = u64::MAX;

/// Returns the number that identifies the network of a client in tables.
pub(crate) fn key(client: IpAddr, size: NetworkSize) -> u64 {
    match client {
        UNIX_CLIENT => UNIX_KEY,
        IpAddr::V4(v4) => u64::from(u32::from(v4) & u32::MAX.unbounded_shl(32 - u32::from(size.ipv4.min(32)))),
        IpAddr::V6(v6) => {
            let high = u64::try_from(u128::from(v6) >> 64).unwrap_or(u64::MAX);
            high & u64::MAX.unbounded_shl(64 - u32::from(size.ipv6.min(64)))
        }
    }
}

/// Returns the number that identifies a peer in tables.
pub(crate) fn peer_key(peer: IpAddr) -> u64 {
    key(peer.to_canonical(), NetworkSize::ADDRESS)
}

/// The source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// A hash with the key of this process, so that clients cannot choose sources with equal hashes.
    pub(crate) flow: u64,
    /// Position in the order of all sources, which is the same in every process. 0 unless it was asked for.
    pub(crate) position: u16,
}

/// Returns the position of a source in the order of all sources. FNV-1a never changes, and [`mixed`] spreads it evenly.
fn position_of(source: &[u8]) -> u16 {
    position(mixed(fnv1a(source)))
}

/// Returns the source of a request. `by` names the value that identifies it, and `field` finds a header or cookie. A
/// request without that value is identified by its client's address. `ordered` asks for its position.
pub(crate) fn source<'a>(
    hasher: &impl BuildHasher,
    by: &Key,
    client: IpAddr,
    ordered: bool,
    field: impl FnOnce(&Key) -> Option<&'a [u8]>,
) -> Source {
    let of = |flow, bytes: &[u8]| Source { flow, position: if ordered { position_of(bytes) } else { 0 } };
    let network = |size| {
        let key = key(client, size);
        of(hasher.hash_one(key), &key.to_le_bytes())
    };
    match by {
        Key::Network(size) => network(*size),
        Key::Header(_) | Key::Cookie(_) | Key::Visitor => match field(by) {
            Some(value) => of(hasher.hash_one(value), value),
            None => network(NetworkSize::ADDRESS),
        },
    }
}

/// Follows hops from the nearest to the farthest while they are listed proxies.
fn walk(peer: IpAddr, site: &Site, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
    let mut nearest = peer;
    for hop in hops.take(MAX_HOPS) {
        // An element that is not an address (`unknown`, an obfuscated name) ends the chain at the hop that
        // wrote it.
        let Some(hop) = hop else { break };
        nearest = hop;
        if !site.trusts(hop) {
            break;
        }
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::site_trusting;

    const X_FORWARDED_FOR: &str = "X-Forwarded-For";
    const FORWARDED: &str = "Forwarded";

    fn of(peer: &str, fields: &[(&str, &str)]) -> String {
        let site = site_trusting(&["10.0.0.0/8", "fd00::/8"]);
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = Request::parse(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
        let request = request.expect("it is sound");
        Origin::new(peer.parse().expect("an address"), &site, &request).client.to_string()
    }

    #[test]
    fn strangers_are_not_believed() {
        assert_eq!(of("192.0.2.1", &[(X_FORWARDED_FOR, "10.1.1.1"), (FORWARDED, "for=10.1.1.1")]), "192.0.2.1");
        assert_eq!(of("::ffff:192.0.2.1", &[]), "192.0.2.1");
    }

    #[test]
    fn the_rightmost_hop_that_is_not_ours_is_the_client() {
        assert_eq!(of("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(of("10.0.0.1", &[(X_FORWARDED_FOR, "1.1.1.1, 192.0.2.7,10.0.0.2")]), "192.0.2.7");
        assert_eq!(of("10.0.0.1", &[(X_FORWARDED_FOR, "1.1.1.1"), (X_FORWARDED_FOR, "192.0.2.7:5000")]), "192.0.2.7");
        assert_eq!(of("10.0.0.1", &[(X_FORWARDED_FOR, "10.0.0.3, 10.0.0.2")]), "10.0.0.3");
        assert_eq!(of("10.0.0.1", &[(X_FORWARDED_FOR, "1.1.1.1, unknown, 10.0.0.2")]), "10.0.0.2");
        assert_eq!(of("fd00::1", &[(FORWARDED, "for=1.1.1.1, For=\"[2001:db8::7]:80\";proto=https")]), "2001:db8::7");
    }

    #[test]
    fn two_stories_are_none() {
        let both = |old, new| of("10.0.0.1", &[(X_FORWARDED_FOR, old), (FORWARDED, new)]);
        assert_eq!(both("192.0.2.7", "for=192.0.2.7"), "192.0.2.7");
        assert_eq!(both("192.0.2.7", "for=192.0.2.8"), "10.0.0.1");
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let key_of = |t: &str| key(t.parse().expect("an address"), NetworkSize::ADDRESS);
        assert_eq!(key_of("2001:db8::1"), key_of("2001:db8::ffff:1"));
        assert_ne!(key_of("2001:db8::1"), key_of("2001:db8:0:1::1"));
        assert_ne!(key_of("192.0.2.1"), key_of("192.0.2.2"));
        let wide = |t: &str| key(t.parse().expect("an address"), NetworkSize { ipv4: 24, ipv6: 56 });
        assert!(wide("192.0.2.1") == wide("192.0.2.2") && wide("192.0.2.1") != wide("192.0.3.1"));
        assert!(wide("2001:db8:0:1::1") == wide("2001:db8::1") && wide("2001:db8:0:100::1") != wide("2001:db8::1"));
    }

    #[test]
    fn a_client_without_an_address_shares_its_key_with_no_address() {
        for ipv6 in [64, 56, 1] {
            let size = NetworkSize { ipv4: 1, ipv6 };
            for other in ["::1", "0.0.0.0", "0.0.0.1", "2001:db8::1", "ffff::1"] {
                assert_ne!(key(UNIX_CLIENT, size), key(other.parse().expect("an address"), size), "{other} {ipv6}");
            }
        }
    }

    #[test]
    fn a_request_without_the_field_counts_for_its_address() {
        let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
        let cookie = Key::Cookie("sid".to_owned());
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().expect("an address"));
        let of = |by: &Key, client, value| source(&hasher, by, client, true, |_| value);
        let address = Key::Network(NetworkSize::ADDRESS);
        assert_eq!(of(&cookie, one, Some(b"a".as_slice())), of(&cookie, two, Some(b"a".as_slice())));
        assert_ne!(of(&cookie, one, Some(b"a".as_slice())), of(&cookie, one, Some(b"b".as_slice())));
        assert_eq!(of(&cookie, one, None), of(&address, one, None));
        assert_ne!(of(&cookie, one, None), of(&cookie, two, None));
    }

    #[test]
    fn one_visitor_is_one_source_from_any_number_of_addresses() {
        let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
        let of = |number: u32, id: Option<&'static [u8]>| {
            source(&hasher, &Key::Visitor, IpAddr::from(number.to_be_bytes()), true, |_| id)
        };
        let known = of(0, Some(&[7; 16]));
        assert!((1..10_000).all(|number| of(number, Some(&[7; 16])) == known));
        assert_ne!(of(0, Some(&[8; 16])), known);
        // Without a valid cookie each address counts.
        let flows: std::collections::HashSet<u64> = (0..10_000).map(|number| of(number, None).flow).collect();
        assert_eq!(flows.len(), 10_000);
    }

    #[test]
    fn positions_are_spread_evenly_and_never_change() {
        let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
        let of = |number: u32, ordered| {
            let client = IpAddr::from(number.to_be_bytes());
            source(&hasher, &Key::Network(NetworkSize::ADDRESS), client, ordered, |_| None).position
        };
        let positions: Vec<u16> = (0x0a00_0000..0x0a00_4000).map(|number| of(number, true)).collect();
        for tenth in 0..10 {
            let count = positions.iter().filter(|at| **at / 1_000 == tenth).count();
            // Four standard deviations of 16,384 draws are 154.
            assert!(count.abs_diff(1_638) < 160, "{tenth}: {count}");
        }
        // Written down, so that another version does not move clients to the other side.
        assert_eq!((of(0x0a00_0001, true), of(0xc000_0207, true), of(0xc000_0207, false)), (7578, 1107, 0));
    }
}
