//! Addresses: listeners, nodes, networks.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ipnet::IpNet;
use weirgate_listening::{Address, UNIX, abstract_name};
use weirgate_spanned_yaml::decode::FromText;
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::text_schema;

/// TCP address of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) SocketAddr);

/// Address of a listener: TCP, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) Address);

/// Address of a node: `host:port`, `unix:/path`, or `original`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeAddress(pub(crate) String);

/// A network, a single address, or the clients on Unix sockets.
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

impl FromText for ListenAddress {
    const EXPECTED: &'static str = "an address such as `127.0.0.1:8080`, or `unix:/path`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let address = match text.strip_prefix(UNIX) {
            Some(path) => Address::Unix(checked_path(path)?.to_owned()),
            None if text.starts_with('/') => {
                return Err(Complaint::about(text, "is a path", format!("write `{UNIX}{text}`")));
            }
            None => Address::Tcp(Listen::from_text(text)?.0),
        };
        Ok(ListenAddress(address))
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
            Complaint::about(text, "has no port", format!("write `{host}:80`"))
        };
        if text.parse::<IpAddr>().is_ok() {
            return Err(no_port());
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
        if !port.bytes().all(|b| b.is_ascii_digit()) || port.parse::<u16>().unwrap_or(0) == 0 {
            return Err(Complaint::about(port, "is not a port", "write a number from 1 to 65535"));
        }
        let literal = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let sound = match literal {
            Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_host_name(host),
        };
        if !sound {
            let hint = "write `name:port`, `10.0.0.1:80` or `[::1]:80`";
            return Err(Complaint::about(host, "is not a host name or address", hint));
        }
        Ok(NodeAddress(text.to_ascii_lowercase()))
    }
}

impl FromText for Net {
    const EXPECTED: &'static str = "a network such as `10.0.0.0/8`, an address, or `unix`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if text == UNIX_WORD {
            return Ok(Net(IpNet::from(UNIX_CLIENT)));
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Net(IpNet::from(ip)));
        }
        let Ok(net) = text.parse::<IpNet>() else {
            let hint = "write one such as `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.7`";
            return Err(Complaint::about(text, "is not a network", hint));
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

/// The address of every client that connects over a Unix socket: none. No TCP connection comes from it.
pub const UNIX_CLIENT: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The clients on Unix sockets among networks.
const UNIX_WORD: &str = "unix";

/// Returns the text of a network, as a policy writes it.
pub fn network_text(network: &IpNet) -> String {
    match network.addr() {
        UNIX_CLIENT if network.prefix_len() == network.max_prefix_len() => UNIX_WORD.to_owned(),
        _ => network.to_string(),
    }
}

/// Returns the text of a client's address: `unix` for one without.
pub fn client_text(client: IpAddr) -> String {
    if client == UNIX_CLIENT { UNIX_WORD.to_owned() } else { client.to_string() }
}

/// Returns the client's address of its text.
///
/// # Errors
/// It is neither an IP address nor `unix`.
pub fn client_address(text: &str) -> Result<IpAddr, String> {
    if text == UNIX_WORD {
        return Ok(UNIX_CLIENT);
    }
    let address = text.parse().ok().filter(|address| *address != UNIX_CLIENT);
    address.ok_or_else(|| format!("{} is neither the IP address of a client nor `{UNIX_WORD}`", quoted(text)))
}

/// Returns the path of a Unix socket, or `@` with the name of one that is not in the file system.
pub(super) fn checked_path(path: &str) -> Result<&Path, Complaint> {
    let is_abstract = abstract_name(Path::new(path)).is_some_and(|name| !name.is_empty());
    if !path.starts_with('/') && !is_abstract {
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
pub fn socket_path(address: &str) -> Option<&Path> {
    address.strip_prefix(UNIX).map(Path::new)
}

/// Returns the address of a discovered node as the gateway writes it: `host:port` in lower case, or `unix:/path`.
///
/// # Errors
/// The fault of `text`, and a hint.
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
    ListenAddress: { "type": "string", "examples": ["127.0.0.1:8080", "[::]:8080", "unix:/run/weirgate/http.sock"] };
    NodeAddress: { "type": "string", "examples": ["10.0.0.1:80", "web1.internal:80", "[::1]:80", "unix:/run/app.sock"] };
    Net: { "type": "string", "examples": ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "unix"] };
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
    fn unix_sockets() {
        for text in ["unix:/run/App.sock", "unix:@weirgate", "[::1]:80"] {
            assert_eq!(ListenAddress::from_text(text).unwrap().0.to_string(), text);
        }
        assert_eq!(hint::<ListenAddress>("/run/a.sock"), "write `unix:/run/a.sock`");
        for text in ["unix:", "unix:a.sock", "unix:@", "unix:/a/", "unix:@a\n"] {
            hint::<ListenAddress>(text);
        }
        let net = Net::from_text("unix").unwrap().0;
        assert!(net.contains(&UNIX_CLIENT) && network_text(&net) == "unix");
        assert_eq!(network_text(&"::/64".parse().unwrap()), "::/64", "::1 is in it");
        assert!(!Net::from_text("0.0.0.0/0").unwrap().0.contains(&UNIX_CLIENT));
        assert_eq!((client_address("unix"), client_text(UNIX_CLIENT).as_str()), (Ok(UNIX_CLIENT), "unix"));
        assert!(client_address("unix:").is_err() && client_address("::").is_err());
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
