//! Reading of a header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weirgate_config::UNIX_CLIENT;
use weirgate_tls::Identity;

use super::{Ends, Header, SIGNATURE, TCP4, TCP6, UNIX, UNKNOWN};
use crate::handshake::ClientTls;

/// Maximum size of a header of version 1 with its line end (Sec. 2.1).
const MAX_LINE: usize = 107;

/// Maximum size of a header of version 2. Further facts have some hundred bytes, and a client's certificate a few
/// thousand. HAProxy has the same limit, because a header has to fit into its buffer.
pub(super) const MAX_HEADER: usize = 16 * 1024;

/// Size of version 2's signature, version, kind and length.
const PREFIX: usize = 16;

/// Types of further facts (Sec. 2.2).
const AUTHORITY: u8 = 0x02;
const CRC32C: u8 = 0x03;
const SSL: u8 = 0x20;
const SSL_VERSION: u8 = 0x21;
const SSL_COMMON_NAME: u8 = 0x22;

/// Bits of the fact about TLS: the client used it, and showed a certificate on this connection or in this session.
const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERTIFICATE: u8 = 0x02 | 0x04;

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHeader {
    /// They begin differently.
    Missing,
    /// They break a rule of the protocol.
    Malformed,
}

/// Parses a header at the start of `bytes`. Returns it with its size, or `None` if more bytes are needed.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, NoHeader> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(a, b)| a == b);
    let found = if begins(&SIGNATURE) {
        second_version(bytes)?
    } else if begins(b"PROXY ") {
        first_version(bytes)?
    } else {
        return Err(NoHeader::Missing);
    };
    // Only clients on Unix sockets have this address, and no header names those.
    let poses = |(header, _): &(Header, usize)| header.ends.is_some_and(|ends| ends.client.ip() == UNIX_CLIENT);
    if found.as_ref().is_some_and(poses) { Err(NoHeader::Malformed) } else { Ok(found) }
}

fn first_version(bytes: &[u8]) -> Result<Option<(Header, usize)>, NoHeader> {
    let line = bytes.get(..MAX_LINE).unwrap_or(bytes);
    let Some(end) = line.iter().position(|&b| b == b'\n') else {
        return if bytes.len() < MAX_LINE { Ok(None) } else { Err(NoHeader::Malformed) };
    };
    let line = line.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(NoHeader::Malformed)?;
    let line = str::from_utf8(line).map_err(|_| NoHeader::Malformed)?;
    let mut words = line.split(' ').skip(1);
    let is_ipv4 = match words.next() {
        // Anything may follow, and nothing of it counts.
        Some("UNKNOWN") => return Ok(Some((Header::default(), end + 1))),
        Some("TCP4") => true,
        Some("TCP6") => false,
        _ => return Err(NoHeader::Malformed),
    };
    let mut fields = || {
        let [client, destination] = [words.next()?, words.next()?].map(|text| address(text, is_ipv4));
        let [client_port, destination_port] = [words.next()?, words.next()?].map(port);
        let ends = Ends {
            client: SocketAddr::new(client?, client_port?),
            destination: SocketAddr::new(destination?, destination_port?),
        };
        words.next().is_none().then_some(ends)
    };
    let ends = fields().ok_or(NoHeader::Malformed)?;
    Ok(Some((Header { ends: Some(ends), tls: None }, end + 1)))
}

fn address(text: &str, is_ipv4: bool) -> Option<IpAddr> {
    match is_ipv4 {
        true => text.parse().ok().map(IpAddr::V4),
        false => text.parse().ok().map(IpAddr::V6),
    }
}

fn port(text: &str) -> Option<u16> {
    let plain = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| plain)
}

fn second_version(bytes: &[u8]) -> Result<Option<(Header, usize)>, NoHeader> {
    let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return Ok(None) };
    let [.., command, kind, high, low] = *prefix;
    let size = PREFIX + usize::from(u16::from_be_bytes([high, low]));
    if command >> 4 != 2 || size > MAX_HEADER {
        return Err(NoHeader::Malformed);
    }
    let Some(header) = bytes.get(..size) else { return Ok(None) };
    let mut rest = header.get(PREFIX..).unwrap_or_default();
    let header = match command & 0xf {
        // A connection of the balancer itself.
        0 => Some(Header::default()),
        // A client without a known address. The rest has no known form.
        1 if kind == UNKNOWN => Some(Header::default()),
        1 => ends(kind, &mut rest).and_then(|ends| facts(rest, header).map(|tls| Header { ends, tls })),
        _ => None,
    };
    header.map(|header| Some((header, size))).ok_or(NoHeader::Malformed)
}

/// Takes the addresses of this kind from the front of `rest`. Returns `None` if they are broken.
fn ends(kind: u8, rest: &mut &[u8]) -> Option<Option<Ends>> {
    let length = match kind {
        TCP4 => 12,
        TCP6 => 36,
        UNIX => 216,
        _ => return None,
    };
    let (addresses, further) = rest.split_at_checked(length)?;
    *rest = further;
    let (ips, ports) = addresses.split_at_checked(length.saturating_sub(4))?;
    let both = match kind {
        TCP4 => ips.split_at_checked(4).map(|both| <[&[u8]; 2]>::from(both).map(ip4)),
        TCP6 => ips.split_at_checked(16).map(|both| <[&[u8]; 2]>::from(both).map(ip6)),
        _ => return Some(None),
    };
    let ([client, destination], &[a, b, c, d]) = (both?, ports) else { return None };
    Some(Some(Ends {
        client: SocketAddr::new(client?, u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(destination?, u16::from_be_bytes([c, d])),
    }))
}

fn ip4(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes).ok().map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)))
}

fn ip6(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))
}

/// Reads the further facts in `rest`, the end of `header`. Returns `None` if they are broken.
fn facts(mut rest: &[u8], header: &[u8]) -> Option<Option<ClientTls>> {
    let (mut authority, mut tls) = (None, None);
    while !rest.is_empty() {
        let before = rest.len();
        let (kind, value) = fact(&mut rest)?;
        match kind {
            AUTHORITY => authority = Some(str::from_utf8(value).ok()?.to_ascii_lowercase()),
            CRC32C => {
                let sum = u32::from_be_bytes(value.try_into().ok()?);
                // The sum counts as zero while it is computed.
                let at = header.len() - before + 3;
                let (front, back) = (header.get(..at)?, header.get(at + 4..)?);
                if crc32c(front.iter().chain(&[0; 4]).chain(back)) != sum {
                    return None;
                }
            }
            SSL => tls = ssl(value)?,
            _ => {}
        }
    }
    Some(tls.map(|tls: ClientTls| ClientTls { sni: authority, ..tls }))
}

/// Takes one fact from the front of `rest`.
fn fact<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[kind, high, low], further) = rest.split_first_chunk::<3>()?;
    let (value, further) = further.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
    *rest = further;
    Some((kind, value))
}

/// Reads the fact about TLS. Its result is `None` for a client without TLS. Returns `None` if it is broken.
fn ssl(value: &[u8]) -> Option<Option<ClientTls>> {
    let (&[client, verified @ ..], mut rest) = value.split_first_chunk::<5>()?;
    let mut tls = ClientTls::default();
    // Zero means that the balancer has verified the certificate.
    let has_certificate = client & CLIENT_CERTIFICATE != 0 && verified == [0; 4];
    while !rest.is_empty() {
        match fact(&mut rest)? {
            (SSL_VERSION, b"TLSv1.2") => tls.version = "1.2",
            (SSL_VERSION, b"TLSv1.3") => tls.version = "1.3",
            (SSL_COMMON_NAME, name) if has_certificate => {
                let common_name = Some(str::from_utf8(name).ok()?.to_owned());
                tls.identity = Some(Identity { common_name, ..Identity::default() });
            }
            _ => {}
        }
    }
    Some((client & CLIENT_SSL != 0).then_some(tls))
}

/// Returns the checksum of RFC 3720 (Castagnoli). It is computed once a connection, so it needs no table.
fn crc32c<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_protocol::{write, write_local};
    use proptest::prelude::*;
    use weirgate_config::ProxyVersion;

    fn whole(bytes: &[u8]) -> Result<Header, NoHeader> {
        let (header, size) = parse(bytes)?.expect("it is whole");
        assert_eq!(size, bytes.len());
        Ok(header)
    }

    fn text(ends: &Ends) -> String {
        format!("{} {}", ends.client, ends.destination)
    }

    /// Returns a header of version 2 for a client at 192.0.2.1.
    fn binary(command: u8, kind: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend_from_slice(&[command, kind]);
        bytes.extend_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(rest);
        bytes
    }

    const ADDRESSES: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0x1f, 0x90, 0, 80];

    fn with_facts(facts: &[u8]) -> Vec<u8> {
        binary(0x21, TCP4, &[&ADDRESSES, facts].concat())
    }

    #[test]
    fn lines_of_version_1() {
        let of = |line: &str| whole(line.as_bytes()).map(|header| header.ends.as_ref().map(text));
        assert_eq!(
            of("PROXY TCP4 192.0.2.1 10.0.0.1 56324 80\r\n"),
            Ok(Some("192.0.2.1:56324 10.0.0.1:80".to_owned()))
        );
        assert_eq!(of("PROXY TCP6 2001:db8::1 ::1 0 65535\r\n"), Ok(Some("[2001:db8::1]:0 [::1]:65535".to_owned())));
        for line in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff::1 ::2 1 2\r\n"] {
            assert_eq!(of(line), Ok(None));
        }
    }

    #[test]
    fn broken_lines() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP5 192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1 2 3\r\n",
            "PROXY TCP4  192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1 65536\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 01 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1 2\n",
            "PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1 \u{fc}\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(NoHeader::Malformed), "{line:?}");
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(MAX_LINE));
        assert_eq!(parse(long.as_bytes()), Err(NoHeader::Malformed));
        assert_eq!(parse(b"GET / HTTP/1.1\r\n"), Err(NoHeader::Missing));
        assert_eq!(parse(b"PROX "), Err(NoHeader::Missing));
    }

    #[test]
    fn headers_of_version_2() {
        let header = whole(&binary(0x21, TCP4, &ADDRESSES)).unwrap();
        assert_eq!(header.ends.as_ref().map(text).unwrap(), "192.0.2.1:8080 10.0.0.1:80");
        let mut six = [0; 36];
        (six[15], six[31], six[33]) = (1, 2, 7);
        let header = whole(&binary(0x21, TCP6, &six)).unwrap();
        assert_eq!(header.ends.as_ref().map(text).unwrap(), "[::1]:7 [::2]:0");
        // A client over a Unix socket, one that is not known, and the balancer itself.
        let nobody = [binary(0x21, UNIX, &[0; 216]), binary(0x21, UNKNOWN, &[1]), binary(0x20, TCP4, &ADDRESSES)];
        for bytes in nobody {
            assert_eq!(whole(&bytes), Ok(Header::default()));
        }
    }

    #[test]
    fn broken_headers() {
        let mut other_version = binary(0x11, TCP4, &ADDRESSES);
        for bytes in [
            std::mem::take(&mut other_version),
            binary(0x22, TCP4, &ADDRESSES),
            binary(0x21, 0x12, &ADDRESSES),
            binary(0x21, 0x41, &ADDRESSES),
            binary(0x21, TCP4, &ADDRESSES[..11]),
            binary(0x21, UNIX, &ADDRESSES),
            binary(0x21, TCP4, &[0; MAX_HEADER]),
            with_facts(&[4]),
            with_facts(&[4, 0, 1]),
            with_facts(&[SSL, 0, 4, 1, 0, 0, 0]),
            with_facts(&[SSL, 0, 6, 1, 0, 0, 0, 0, SSL_VERSION]),
            with_facts(&[AUTHORITY, 0, 1, 0xff]),
            with_facts(&[CRC32C, 0, 4, 1, 2, 3, 4]),
            with_facts(&[CRC32C, 0, 2, 1, 2]),
        ] {
            assert_eq!(parse(&bytes), Err(NoHeader::Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn facts_about_tls() {
        let tls = |facts: &[u8]| whole(&with_facts(facts)).unwrap().tls;
        assert_eq!(tls(&[4, 0, 1, 0, 0xee, 0, 0]), None, "padding and unknown facts are skipped");
        assert_eq!(tls(&[AUTHORITY, 0, 1, b'a']), None, "a name without TLS is none of TLS");
        assert_eq!(tls(&[SSL, 0, 5, 0, 0, 0, 0, 0]), None);
        let version = [SSL_VERSION, 0, 7, b'T', b'L', b'S', b'v', b'1', b'.', b'3'];
        let name = [SSL_COMMON_NAME, 0, 2, b'm', b'e'];
        let ssl = |client, verified: u8| {
            let value = [&[client, 0, 0, 0, verified], &version[..], &name].concat();
            tls(&[&[AUTHORITY, 0, 1, b'A', SSL, 0, u8::try_from(value.len()).unwrap()], &value[..]].concat()).unwrap()
        };
        let plain = ClientTls { version: "1.3", sni: Some("a".to_owned()), identity: None };
        assert_eq!(ssl(0x01, 0), plain, "a name without a certificate does not count");
        assert_eq!(ssl(0x07, 1), plain, "a certificate that was not verified does not count");
        let identity = Identity { common_name: Some("me".to_owned()), ..Identity::default() };
        assert_eq!(ssl(0x03, 0), ClientTls { identity: Some(identity), ..plain });
    }

    #[test]
    fn the_checksum_is_verified() {
        // RFC 3720 Appendix B.4.
        assert_eq!(crc32c([0; 32].iter()), 0x8a91_36aa);
        assert_eq!(crc32c([0xff; 32].iter()), 0x62a8_ab43);
        let mut bytes = with_facts(&[CRC32C, 0, 4, 0, 0, 0, 0]);
        let (at, sum) = (bytes.len() - 4, crc32c(bytes.iter()));
        bytes[at..].copy_from_slice(&sum.to_be_bytes());
        assert!(whole(&bytes).unwrap().ends.is_some());
        bytes[20] ^= 1;
        assert_eq!(parse(&bytes), Err(NoHeader::Malformed));
    }

    #[test]
    fn the_balancers_own_connections_are_read_as_such() {
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let mut bytes = Vec::new();
            write_local(&mut bytes, version);
            assert_eq!(whole(&bytes), Ok(Header::default()));
        }
    }

    /// Addresses of clients, with those that are near the one of clients on Unix sockets.
    fn client() -> impl Strategy<Value = SocketAddr> {
        let near = ["::", "::1", "0.0.0.0", "::ffff:0.0.0.0"].map(|text| text.parse::<IpAddr>().unwrap());
        let ip = prop_oneof![any::<IpAddr>(), proptest::sample::select(near.to_vec())];
        (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
    }

    proptest! {
        #[test]
        fn headers_that_are_written_are_read(client: SocketAddr, destination: SocketAddr, binary: bool, cut: usize) {
            let version = if binary { ProxyVersion::V2 } else { ProxyVersion::V1 };
            let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            let mut bytes = Vec::new();
            write(&mut bytes, version, Ends { client, destination });
            let ends = whole(&bytes).unwrap().ends.unwrap();
            prop_assert_eq!(canonical(ends.client), canonical(client));
            prop_assert_eq!(canonical(ends.destination), canonical(destination));
            // Each of its beginnings asks for more, and what follows is not touched.
            let cut = cut % bytes.len();
            prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            let size = bytes.len();
            bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
            prop_assert_eq!(parse(&bytes).unwrap().unwrap().1, size);
        }

        #[test]
        fn no_header_names_a_client_without_an_address(client in client(), destination: SocketAddr) {
            let ips = [client, destination].map(|address| match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            });
            let ports = [client, destination].map(|address| address.port());
            let line = format!("PROXY TCP6 {} {} {} {}\r\n", ips[0], ips[1], ports[0], ports[1]);
            let rest = [ips.map(|ip| ip.octets()).as_flattened(), ports.map(u16::to_be_bytes).as_flattened()].concat();
            for bytes in [line.into_bytes(), binary(0x21, TCP6, &rest)] {
                let found = parse(&bytes).map(|found| found.unwrap().0.ends.unwrap().client.ip().to_canonical());
                let named = client.ip().to_canonical();
                prop_assert_eq!(found, if named == UNIX_CLIENT { Err(NoHeader::Malformed) } else { Ok(named) });
            }
        }

        #[test]
        fn no_input_panics_and_none_is_read_without_end(mut bytes: Vec<u8>, command: u8, kind: u8) {
            let _ = parse(&bytes);
            bytes.truncate(usize::from(u16::MAX));
            let _ = parse(&binary(command, kind, &bytes));
            bytes.resize(MAX_HEADER + 1, 0);
            for begin in [&b"PROXY "[..], &SIGNATURE] {
                bytes[..begin.len()].copy_from_slice(begin);
                prop_assert!(parse(&bytes) != Ok(None));
            }
        }
    }
}
