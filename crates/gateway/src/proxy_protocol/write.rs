//! Writing of a header.

use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use weirgate_config::{ProxyVersion, UNIX_CLIENT};

use super::{Ends, SIGNATURE, TCP4, TCP6, UNKNOWN};

/// Version 2 with the command of a connection of this gateway itself, and of a connection for a client.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// Version 1 without a client.
const UNKNOWN_LINE: &[u8] = b"PROXY UNKNOWN\r\n";

/// Appends the header of a connection for a client. One on a Unix socket has no address.
pub(crate) fn write(out: &mut Vec<u8>, version: ProxyVersion, ends: Ends) {
    if ends.client.ip() == UNIX_CLIENT {
        match version {
            ProxyVersion::V1 => out.extend_from_slice(UNKNOWN_LINE),
            ProxyVersion::V2 => {
                out.extend_from_slice(&SIGNATURE);
                out.extend_from_slice(&[PROXY, UNKNOWN, 0, 0]);
            }
        }
        return;
    }
    let ports = [ends.client.port(), ends.destination.port()];
    let ips = [ends.client.ip().to_canonical(), ends.destination.ip().to_canonical()];
    if let [IpAddr::V4(client), IpAddr::V4(destination)] = ips {
        match version {
            ProxyVersion::V1 => line(out, "TCP4", (client, destination), ports),
            ProxyVersion::V2 => binary(out, TCP4, [client.octets(), destination.octets()].as_flattened(), ports),
        }
        return;
    }
    // One address of each kind is written as two of IPv6 (RFC 4291 Sec. 2.5.5.2).
    let [client, destination] = ips.map(as_ipv6);
    match version {
        ProxyVersion::V1 => line(out, "TCP6", (client, destination), ports),
        ProxyVersion::V2 => binary(out, TCP6, [client.octets(), destination.octets()].as_flattened(), ports),
    }
}

/// Appends the header of a connection of this gateway itself.
pub(crate) fn write_local(out: &mut Vec<u8>, version: ProxyVersion) {
    match version {
        ProxyVersion::V1 => out.extend_from_slice(UNKNOWN_LINE),
        ProxyVersion::V2 => {
            out.extend_from_slice(&SIGNATURE);
            out.extend_from_slice(&[LOCAL, 0, 0, 0]);
        }
    }
}

fn as_ipv6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

fn line(
    out: &mut Vec<u8>,
    kind: &str,
    (client, destination): (impl std::fmt::Display, impl std::fmt::Display),
    [from, to]: [u16; 2],
) {
    // Writing to a vector does not fail.
    let _ = write!(out, "PROXY {kind} {client} {destination} {from} {to}\r\n");
}

fn binary(out: &mut Vec<u8>, kind: u8, ips: &[u8], ports: [u16; 2]) {
    out.extend_from_slice(&SIGNATURE);
    out.extend_from_slice(&[PROXY, kind, 0]);
    // Two addresses and two ports have at most 36 bytes.
    out.push(u8::try_from(ips.len() + 4).unwrap_or(u8::MAX));
    out.extend_from_slice(ips);
    out.extend_from_slice(ports.map(u16::to_be_bytes).as_flattened());
}
