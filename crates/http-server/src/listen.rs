//! Listening sockets. An address other than loopback or a Unix socket requires TLS.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use weirgate_listening::{Address, FileAccess, Socket};

/// Adopts a socket that another process has opened for `address`.
///
/// # Errors
/// The address would be open to other machines without TLS.
pub(crate) fn adopt(address: &Address, name: &str, has_trust: bool, socket: Socket) -> io::Result<Socket> {
    guarded(address, name, has_trust)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Refuses an address that other machines could use without TLS.
pub(crate) fn guarded(address: &Address, name: &str, has_trust: bool) -> io::Result<()> {
    let Some(address) = address.tcp() else { return Ok(()) };
    if address.ip().to_canonical().is_loopback() || has_trust {
        return Ok(());
    }
    let loopback =
        if address.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1]) };
    let why = format!(
        "anyone who reaches {address} could use the {name}: make certificates with `weirgate pki` and name their folder \
         with `trust`, or listen on {} or a Unix socket",
        SocketAddr::new(loopback, address.port())
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Opens the listening socket. `file` is for a Unix socket.
///
/// # Errors
/// The address would be open to other machines without TLS, is in use, or cannot be opened.
pub(crate) fn open(address: &Address, file: FileAccess, name: &str, has_trust: bool) -> io::Result<Socket> {
    guarded(address, name, has_trust)?;
    let opened = match address {
        Address::Tcp(address) => TcpListener::bind(address).map(Socket::Tcp),
        Address::Unix(path) => Socket::open_unix(path, file),
    };
    let socket = opened.map_err(|e| io::Error::new(e.kind(), format!("{name}: {address}: {}", reason(&e))))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Describes the error and its remedy.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "already in use; stop the other process or choose another address".into(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".into(),
        io::ErrorKind::PermissionDenied => {
            format!("{error}; ports below 1024 and system directories need the right to use them")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn open(address: &Address, has_trust: bool) -> io::Result<Socket> {
        super::open(address, FileAccess::OWNER, "page", has_trust)
    }

    #[test]
    fn a1_an_address_open_to_others_needs_tls() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9901"] {
            let address = Address::Tcp(address.parse().unwrap());
            let error = open(&address, false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("`weirgate pki`"), "{error}");
        }
        for address in ["127.0.0.1:0", "127.8.8.8:0"] {
            assert!(open(&Address::Tcp(address.parse().unwrap()), false).is_ok());
        }
        assert!(open(&Address::Tcp("0.0.0.0:0".parse().unwrap()), true).is_ok());
    }

    #[test]
    fn a1_a_unix_socket_is_its_owners_alone_and_goes_with_the_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let address = Address::Unix(path.clone());
        let socket = open(&address, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = open(&address, false).unwrap_err();
        assert!(second.to_string().contains("already in use"), "{second}");
        drop(socket);
        assert!(!path.exists());
    }
}
