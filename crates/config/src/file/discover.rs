//! Discovery: where an upstream finds its nodes.

use std::net::{IpAddr, SocketAddr};

use weirgate_spanned_yaml::decode::{Defaulted, FromText, OneOrMany, Optional};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::{Count, Span, Text};
use weirgate_spanned_yaml::{record, text_schema};

use super::address::{NodeAddress, is_host_name};

record! {
    /// Where an upstream finds its nodes: one of `dns`, `srv`, `file` and `http`. If the source fails or names no node,
    /// the last nodes stay.
    pub(crate) struct Discover {
        /// A name, as `name:port`. Its addresses (A and AAAA) are the nodes.
        dns: Optional<NodeAddress>,
        /// A name of service records (SRV, RFC 2782), such as `_http._tcp.web.internal`. Those of the lowest priority
        /// are the nodes.
        srv: Optional<DnsName>,
        /// A file with nodes in JSON, as Prometheus reads it (`file_sd`). The path counts from the folder of the
        /// policy.
        file: Optional<Text>,
        /// A page with nodes in JSON, as Prometheus reads it (`http_sd`): `http://host:port/path`.
        http: Optional<HttpUrl>,
        /// Time between two looks at the source. 1 s by default for a file, which is read only when it has changed,
        /// and 30 s for a page. Names are asked for again when their time to live has passed.
        every: Optional<Span>,
        /// Least time to live of names. 5 s by default, so that records with none do not make a query each moment.
        min_ttl: Defaulted<Span> = "5s",
        /// Longest time to live of names. 5 min by default, so that a node that has left is not missed for hours.
        max_ttl: Defaulted<Span> = "5min",
        /// Maximum number of nodes. A longer list is an error. 1,000 are more than one gateway can use well.
        max_nodes: Defaulted<Count> = 1000,
    }
}

record! {
    /// The name servers for discovery.
    pub(crate) struct Resolvers {
        /// Their addresses: `IP:PORT`. Those of `/etc/resolv.conf` by default.
        servers: Optional<OneOrMany<ServerAddress>>,
        /// Time for an answer of a server. A server that has to ask others needs about a tenth of 2 s.
        timeout: Defaulted<Span> = "2s",
        /// Number of queries for an answer. A single lost packet is common.
        attempts: Defaulted<Count> = 2,
    }
}

/// Address of a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress(pub(crate) SocketAddr);

impl FromText for ServerAddress {
    const EXPECTED: &'static str = "an address such as `10.0.0.2:53`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(ServerAddress(SocketAddr::new(ip, 53)));
        }
        let address = text.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
        let hint = "write one such as `10.0.0.2` or `10.0.0.2:53`; a name server has no name";
        address.map(ServerAddress).ok_or_else(|| Complaint::about(text, "is not an IP address", hint))
    }
}

/// A name in the DNS, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsName(pub(crate) String);

impl FromText for DnsName {
    const EXPECTED: &'static str = "a name such as `_http._tcp.web.internal`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if !is_host_name(text.strip_suffix('.').unwrap_or(text)) {
            let hint = "write one such as `_http._tcp.web.internal`, without a port";
            return Err(Complaint::about(text, "is not a name", hint));
        }
        Ok(DnsName(text.to_ascii_lowercase()))
    }
}

/// The parts of a URL with the scheme `http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpUrl {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) path: String,
}

impl HttpUrl {
    /// Returns the parts of a URL after its scheme, whose usual port is `port`.
    pub(super) fn after_scheme(rest: &str, port: u16) -> Result<HttpUrl, Complaint> {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        let NodeAddress(address) = NodeAddress::from_text(&address)?;
        let path = if path.is_empty() { "/" } else { path };
        if !path.bytes().all(|b| b.is_ascii_graphic()) || path.contains('#') {
            return Err(Complaint::about(path, "is not a path", "write one such as `/nodes`, percent-encoded"));
        }
        Ok(HttpUrl { address, path: path.to_owned() })
    }
}

impl FromText for HttpUrl {
    const EXPECTED: &'static str = "a URL such as `http://10.0.0.1:8500/nodes`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let Some(rest) = text.strip_prefix("http://") else {
            let hint = "write `http://host:port/path`; pages over TLS are not supported";
            return Err(Complaint::about(text, "does not begin with `http://`", hint));
        };
        HttpUrl::after_scheme(rest, 80)
    }
}

/// Address of a collector of telemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectorUrl {
    pub(crate) https: bool,
    pub(crate) url: HttpUrl,
}

impl FromText for CollectorUrl {
    const EXPECTED: &'static str = "a URL such as `http://127.0.0.1:4318`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let (https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => {
                let hint = "write one such as `http://127.0.0.1:4318`";
                return Err(Complaint::about(text, "does not begin with `http://` or `https://`", hint));
            }
        };
        let url = HttpUrl::after_scheme(rest, if https { 443 } else { 80 })?;
        if url.path.contains('?') {
            let hint = "write the address without it, such as `http://127.0.0.1:4318`";
            return Err(Complaint::new("the address of a collector has no query", hint));
        }
        Ok(CollectorUrl { https, url })
    }
}

text_schema! {
    ServerAddress: { "type": "string", "examples": ["10.0.0.2:53"] };
    DnsName: { "type": "string", "examples": ["_http._tcp.web.internal"] };
    HttpUrl: { "type": "string", "pattern": "^http://", "examples": ["http://10.0.0.1:8500/nodes"] };
    CollectorUrl: { "type": "string", "pattern": "^https?://", "examples": ["http://127.0.0.1:4318"] };
}
