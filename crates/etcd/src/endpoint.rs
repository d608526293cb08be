//! Addresses of etcd's members.

use std::net::IpAddr;
use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;
use weirgate_http_client::Address;

/// The address that `url` names: `https://host:port`, or `http://host:port` on this machine or if `insecure` is set.
/// `tls` has the authorities of etcd and the gateway's own certificate.
///
/// # Errors
/// Why it is not accepted, with a hint.
pub fn endpoint(url: &str, tls: &Arc<ClientConfig>, insecure: bool) -> Result<Address, String> {
    let (scheme, rest) = url.split_once("://").ok_or("write https://HOST:PORT")?;
    let (host, port) = rest.rsplit_once(':').ok_or("the port is missing; etcd's is 2379")?;
    if port.parse::<u16>().is_err() || host.is_empty() || rest.contains(['/', '?', '#', '@', ' ']) {
        return Err("write https://HOST:PORT and nothing else".into());
    }
    match scheme {
        "https" => Ok(Address::Https(rest.into(), tls.clone())),
        "http" if insecure || is_loopback(host) => Ok(Address::Tcp(rest.into())),
        "http" => {
            Err("everyone on the way could change floors; use https, or say `insecure: true` if nobody is there".into())
        }
        _ => Err("the scheme is not known; write https://HOST:PORT".into()),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use weirgate_tls::{Client, ClientSettings};

    use super::*;

    #[test]
    fn plain_http_stays_on_this_machine_unless_it_is_spelled_out() {
        let settings = ClientSettings { ca: None, server_name: None, own: None, verify: false };
        let tls = Client::load(&settings).unwrap().config;
        let accepted = |url: &str, insecure| endpoint(url, &tls, insecure).map(|address| address.to_string());
        assert!(matches!(endpoint("https://etcd1:2379", &tls, false), Ok(Address::Https(..))));
        for local in ["http://127.0.0.1:2379", "http://localhost:2379", "http://[::1]:2379"] {
            assert!(accepted(local, false).is_ok(), "{local}");
        }
        for remote in ["http://etcd1:2379", "http://10.0.0.1:2379", "http://127.0.0.1.example:2379"] {
            assert!(accepted(remote, false).unwrap_err().contains("insecure: true"), "{remote}");
            assert!(accepted(remote, true).is_ok(), "{remote}");
        }
        for wrong in
            ["etcd1:2379", "https://etcd1", "https://:2379", "https://a:2379/v3", "https://u@a:2379", "ftp://a:1"]
        {
            assert!(accepted(wrong, true).is_err(), "{wrong}");
        }
    }
}
