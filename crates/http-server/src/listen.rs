//! Listening sockets. An address other than loopback or a Unix socket requires TLS.

use std::fmt;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket, which only its owner can use.
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(address) => address.fmt(f),
            Place::Unix(path) => path.display().fmt(f),
        }
    }
}

/// An open listening socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, RemovedAtEnd),
}

/// A listening socket that another process has opened, or that another process is to have.
#[derive(Debug)]
pub enum ListeningSocket {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListeningSocket::Tcp(listener) => listener.as_fd(),
            ListeningSocket::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Socket {
    /// Returns a duplicate for another process.
    pub(crate) fn duplicate(&self) -> io::Result<ListeningSocket> {
        Ok(match self {
            Socket::Tcp(listener) => ListeningSocket::Tcp(listener.try_clone()?),
            Socket::Unix(listener, _) => ListeningSocket::Unix(listener.try_clone()?),
        })
    }
}

/// Path of a Unix socket, removed when the socket is dropped.
#[derive(Debug)]
pub(crate) struct RemovedAtEnd(Option<PathBuf>);

impl RemovedAtEnd {
    /// Leaves the path, because another process listens there.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // A failure does no harm: the next start replaces a socket on which nothing listens.
            let _ = fs::remove_file(path);
        }
    }
}

/// Adopts a socket that another process has opened for `place`. The path of a Unix socket stays at the end, because
/// it belongs to that process.
///
/// # Errors
/// The address would be open to other machines without TLS.
pub(crate) fn adopt(place: &Place, name: &str, has_trust: bool, socket: ListeningSocket) -> io::Result<Socket> {
    if let Place::Tcp(address) = place {
        guarded(*address, name, has_trust)?;
    }
    Ok(match socket {
        ListeningSocket::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            Socket::Tcp(listener)
        }
        ListeningSocket::Unix(listener) => {
            listener.set_nonblocking(true)?;
            Socket::Unix(listener, RemovedAtEnd(None))
        }
    })
}

/// Refuses an address that other machines could use without TLS.
pub(crate) fn guarded(address: SocketAddr, name: &str, has_trust: bool) -> io::Result<()> {
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

/// Opens the listening socket.
///
/// # Errors
/// The address would be open to other machines without TLS, is in use, or cannot be opened.
pub(crate) fn open(place: &Place, name: &str, has_trust: bool) -> io::Result<Socket> {
    match place {
        Place::Tcp(address) => {
            guarded(*address, name, has_trust)?;
            let listener = TcpListener::bind(address)
                .map_err(|e| io::Error::new(e.kind(), format!("{name}: {address}: {}", reason(&e))))?;
            listener.set_nonblocking(true)?;
            Ok(Socket::Tcp(listener))
        }
        Place::Unix(path) => {
            let listener = open_unix(path)
                .map_err(|e| io::Error::new(e.kind(), format!("{name}: {}: {}", path.display(), reason(&e))))?;
            listener.set_nonblocking(true)?;
            Ok(Socket::Unix(listener, RemovedAtEnd(Some(path.clone()))))
        }
    }
}

/// Describes the error and its remedy.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "already in use; stop the other process or choose another address".into(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".into(),
        io::ErrorKind::PermissionDenied => {
            "permission denied; ports below 1024 and system directories need the right to use them".into()
        }
        _ => error.to_string(),
    }
}

/// Opens a Unix socket that only its owner can connect to at any time. The socket is created in a directory
/// that only the owner can enter, and moved to its final path after its mode is set.
fn open_unix(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file of that name"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(io::ErrorKind::AddrInUse.into()),
        Ok(_) | Err(_) => {}
    }
    let mut shelter = path.as_os_str().to_owned();
    shelter.push(format!(".{}", std::process::id()));
    let shelter = PathBuf::from(shelter);
    DirBuilder::new().mode(0o700).create(&shelter)?;
    let sheltered = shelter.join("s");
    let opened = UnixListener::bind(&sheltered).and_then(|listener| {
        fs::set_permissions(&sheltered, Permissions::from_mode(0o600))?;
        fs::rename(&sheltered, path)?;
        Ok(listener)
    });
    if opened.is_err() {
        let _ = fs::remove_file(&sheltered);
    }
    let _ = fs::remove_dir(&shelter);
    opened
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    #[test]
    fn a1_an_address_open_to_others_needs_tls() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9901"] {
            let address = Place::Tcp(address.parse().unwrap());
            let error = open(&address, "page", false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("`weirgate pki`"), "{error}");
        }
        for address in ["127.0.0.1:0", "127.8.8.8:0"] {
            assert!(open(&Place::Tcp(address.parse().unwrap()), "page", false).is_ok());
        }
        assert!(open(&Place::Tcp("0.0.0.0:0".parse().unwrap()), "page", true).is_ok());
    }

    #[test]
    fn a1_a_unix_socket_is_its_owners_alone_and_goes_with_the_listener() {
        let path = std::env::temp_dir().join(format!("weirgate-http-server-{}.sock", std::process::id()));
        let address = Place::Unix(path.clone());
        let socket = open(&address, "page", false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = open(&address, "page", false).unwrap_err();
        assert!(second.to_string().contains("already in use"), "{second}");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let path = std::env::temp_dir().join(format!("weirgate-http-server-dead-{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a socket outlives its process");
        drop(open(&Place::Unix(path.clone()), "page", false).unwrap());
        fs::write(&path, "precious").unwrap();
        assert!(open(&Place::Unix(path.clone()), "page", false).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }
}
