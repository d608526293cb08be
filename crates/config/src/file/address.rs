//! Addresses: listeners, nodes, networks.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use ipnet::IpNet;
use weirgate_spanned_yaml::decode::FromText;
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::text_schema;

/// Address of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) SocketAddr);

/// Address of a node: `host:port`, `unix:/path`, or `original`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeAddress(pub(crate) String);

/// A network, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Net(pub(crate) IpNet);

/// Longest host name (RFC 1035 Sec. 3.1).
const MAX_HOST: usize = 253;

/// Longest path of a Unix socket that every system accepts.
const MAX_SOCKET_PATH: usize = 100;

impl FromText for Listen {
    const EXPECTED: &'static str = "an address such as `127.0.0.1:8080` or `[::]:8080`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if let Ok(address) = text.parse() {
            return Ok(Listen(address));
        }
        let what = format!("{} is not an IP address with a port", quoted(text));
        let port = text.strip_prefix(':').or_else(|| text.strip_prefix("*:")).unwrap_or(text);
        let hint = if port.parse::<u16>().is_ok() {
            format!("write `0.0.0.0:{port}` for every interface or `127.0.0.1:{port}` for this machine alone")
        } else if let Ok(ip) = text.parse::<IpAddr>() {
            format!("write `{}`", SocketAddr::new(ip, 8080))
        } else if let Some((_, port)) = text.strip_prefix("localhost").and_then(|_| text.rsplit_once(':')) {
            format!("write `127.0.0.1:{port}`")
        } else {
            "write one such as `0.0.0.0:8080`; a listener takes no names".to_owned()
        };
        Err(Complaint::new(what, hint))
    }
}

impl FromText for NodeAddress {
    const EXPECTED: &'static str = "an address such as `10.0.0.1:80`, `web1.internal:80` or `unix:/run/app.sock`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if text == ORIGINAL {
            return Ok(NodeAddress(text.to_owned()));
        }
        if let Some(path) = text.strip_prefix(UNIX) {
            return checked_path(path).map(|_| NodeAddress(text.to_owned()));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let rest = rest.split('/').next().unwrap_or_default();
            let what = format!("{} has a scheme", quoted(text));
            return Err(match scheme {
                "http" if rest.contains(':') => Complaint::new(what, format!("write `{rest}`")),
                "http" => Complaint::new(what, format!("write `{rest}:80`")),
                "https" => {
                    let address = if rest.contains(':') { rest.to_owned() } else { format!("{rest}:443") };
                    Complaint::new(what, format!("write `{address}`, and `tls: {{}}` in the upstream"))
                }
                _ => Complaint::new(what, "write `host:port`; nodes are reached with HTTP/1.1"),
            });
        }
        let no_port = || {
            let host = if text.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{text}]") } else { text.to_owned() };
            Complaint::new(format!("{} has no port", quoted(text)), format!("write `{host}:80`"))
        };
        if text.parse::<IpAddr>().is_ok() {
            return Err(no_port());
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
        if !port.bytes().all(|b| b.is_ascii_digit()) || port.parse::<u16>().unwrap_or(0) == 0 {
            let what = format!("{} is not a port", quoted(port));
            return Err(Complaint::new(what, "write a number from 1 to 65535"));
        }
        let literal = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let sound = match literal {
            Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_host_name(host),
        };
        if !sound {
            let what = format!("{} is not a host name or address", quoted(host));
            return Err(Complaint::new(what, "write `name:port`, `10.0.0.1:80` or `[::1]:80`"));
        }
        Ok(NodeAddress(text.to_ascii_lowercase()))
    }
}

impl FromText for Net {
    const EXPECTED: &'static str = "a network such as `10.0.0.0/8`, or an address";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Net(IpNet::from(ip)));
        }
        let Ok(net) = text.parse::<IpNet>() else {
            let what = format!("{} is not a network", quoted(text));
            return Err(Complaint::new(what, "write one such as `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.7`"));
        };
        if net.trunc() != net {
            let what = format!("{} has bits set after its prefix", quoted(text));
            let (network, address) = (net.trunc(), net.addr());
            return Err(Complaint::new(
                what,
                format!("write `{network}` for the network or `{address}` for the address"),
            ));
        }
        Ok(Net(net))
    }
}

/// The address of a node that stands for the address which the client of an intercepted connection wanted.
pub const ORIGINAL: &str = "original";

/// Begins the address of a Unix socket.
const UNIX: &str = "unix:";

/// Returns the path of a Unix socket.
pub(super) fn checked_path(path: &str) -> Result<&Path, Complaint> {
    if !path.starts_with('/') {
        let hint = "write it from the root, such as `unix:/run/weirgate.sock`";
        return Err(Complaint::new("the path of the socket is not absolute", hint));
    }
    if path.len() > MAX_SOCKET_PATH {
        let what = format!("the path of the socket has {} bytes", path.len());
        return Err(Complaint::new(what, format!("systems take at most {MAX_SOCKET_PATH}")));
    }
    if path.ends_with('/') || path.contains(char::is_control) {
        return Err(Complaint::new("this is no path of a socket", "write one such as `unix:/run/weirgate.sock`"));
    }
    Ok(Path::new(path))
}

/// Returns the path of a node's Unix socket, if its address is one.
#[must_use]
pub fn socket_path(address: &str) -> Option<&Path> {
    address.strip_prefix(UNIX).map(Path::new)
}

/// Returns the address of a discovered node as the gateway writes it: `host:port` in lower case, or `unix:/path`.
///
/// # Errors
/// What is wrong with `text`, and a hint.
pub fn node_address(text: &str) -> Result<String, String> {
    let wrong = |complaint: Complaint| format!("{}; {}", complaint.what, complaint.hint);
    match NodeAddress::from_text(text) {
        Ok(address) if address.0 == ORIGINAL => Err(format!("`{ORIGINAL}` is not the address of a node")),
        Ok(address) => Ok(address.0),
        Err(complaint) => Err(wrong(complaint)),
    }
}

/// Whether `name` is a host name: letters, digits, `-`, `_` and `.`, without an empty label (RFC 1123 Sec.
/// 2.1, plus underscores, which many internal names have).
pub(super) fn is_host_name(name: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty() && l.len() <= 63 && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    !name.is_empty() && name.len() <= MAX_HOST && name.split('.').all(label)
}

/// Whether `text` is a host with or without a port.
pub(crate) fn is_authority(text: &str) -> bool {
    let is_address = |text: &str| NodeAddress::from_text(text).is_ok();
    !text.starts_with(UNIX) && (is_address(text) || is_address(&format!("{text}:80")))
}

text_schema! {
    Listen: { "type": "string", "examples": ["127.0.0.1:8080", "[::]:8080"] };
    NodeAddress: { "type": "string", "examples": ["10.0.0.1:80", "web1.internal:80", "[::1]:80", "unix:/run/app.sock"] };
    Net: { "type": "string", "examples": ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"] };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint<T: FromText>(text: &str) -> String {
        match T::from_text(text) {
            Ok(_) => panic!("{text} was accepted"),
            Err(complaint) => complaint.hint,
        }
    }

    #[test]
    fn listeners() {
        assert!(Listen::from_text("127.0.0.1:8080").is_ok() && Listen::from_text("[::1]:0").is_ok());
        assert!(hint::<Listen>("8080").contains("`0.0.0.0:8080`"));
        assert!(hint::<Listen>(":8080").contains("`127.0.0.1:8080`"));
        assert_eq!(hint::<Listen>("localhost:80"), "write `127.0.0.1:80`");
        assert_eq!(hint::<Listen>("10.0.0.1"), "write `10.0.0.1:8080`");
        hint::<Listen>("example.com:80");
    }

    #[test]
    fn nodes() {
        for text in ["10.0.0.1:80", "Web_1.internal:8080", "[::1]:80"] {
            assert_eq!(NodeAddress::from_text(text).unwrap().0, text.to_lowercase());
        }
        assert_eq!(NodeAddress::from_text("unix:/run/App.sock").unwrap().0, "unix:/run/App.sock");
        for text in ["unix:", "unix:app.sock", "unix:/run/", "unix:/a\nb", &format!("unix:/{}", "a".repeat(100))] {
            hint::<NodeAddress>(text);
        }
        assert_eq!(hint::<NodeAddress>("http://a.test/x"), "write `a.test:80`");
        assert_eq!(hint::<NodeAddress>("http://a.test:81/"), "write `a.test:81`");
        assert_eq!(hint::<NodeAddress>("a.test"), "write `a.test:80`");
        assert_eq!(hint::<NodeAddress>("::1"), "write `[::1]:80`");
        for text in ["", ":80", "a..b:80", "a:0", "a:65536", "a:+5", "[a]:80", "a b:80", "https://a", "a/b:80"] {
            hint::<NodeAddress>(text);
        }
    }

    #[test]
    fn networks() {
        assert_eq!(Net::from_text("10.0.0.1").unwrap().0.to_string(), "10.0.0.1/32");
        assert_eq!(Net::from_text("2001:db8::/32").unwrap().0.to_string(), "2001:db8::/32");
        assert_eq!(hint::<Net>("10.1.2.3/8"), "write `10.0.0.0/8` for the network or `10.1.2.3` for the address");
        for text in ["10.0.0.0/33", "10.0.0", "all", ""] {
            hint::<Net>(text);
        }
    }
}
