//! Listening socket of the admin API. An address other than loopback or a Unix socket requires a token.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use weirgate_config::AdminAddress;

use super::token::TOKEN_VARIABLE;

/// An open listening socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, RemovedAtEnd),
}

/// A listening socket of the admin API that another process has opened, or that another process is to have.
#[derive(Debug)]
pub enum AdminSocket {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl AsFd for AdminSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            AdminSocket::Tcp(listener) => listener.as_fd(),
            AdminSocket::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Socket {
    /// Returns a duplicate for another process.
    pub(super) fn duplicate(&self) -> io::Result<AdminSocket> {
        Ok(match self {
            Socket::Tcp(listener) => AdminSocket::Tcp(listener.try_clone()?),
            Socket::Unix(listener, _) => AdminSocket::Unix(listener.try_clone()?),
        })
    }
}

/// Path of a Unix socket, removed when the socket is dropped.
#[derive(Debug)]
pub(super) struct RemovedAtEnd(Option<PathBuf>);

impl RemovedAtEnd {
    /// Leaves the path, because another process listens there.
    pub(super) fn keep(mut self) {
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

/// Adopts a socket that another process has opened for `address`. The path of a Unix socket stays at the end, because
/// it belongs to that process.
///
/// # Errors
/// The address would be open to other machines without a token.
pub(super) fn adopt(address: &AdminAddress, has_token: bool, socket: AdminSocket) -> io::Result<Socket> {
    if let AdminAddress::Tcp(address) = address {
        guarded(*address, has_token)?;
    }
    Ok(match socket {
        AdminSocket::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            Socket::Tcp(listener)
        }
        AdminSocket::Unix(listener) => {
            listener.set_nonblocking(true)?;
            Socket::Unix(listener, RemovedAtEnd(None))
        }
    })
}

/// Refuses an address that other machines could use without a token.
fn guarded(address: SocketAddr, has_token: bool) -> io::Result<()> {
    match address.ip().to_canonical().is_loopback() || has_token {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, open_to_all(address))),
    }
}

/// Opens the listening socket.
///
/// # Errors
/// The address would be open to other machines without a token, is in use, or cannot be opened.
pub(super) fn open(address: &AdminAddress, has_token: bool) -> io::Result<Socket> {
    match address {
        AdminAddress::Tcp(address) => {
            guarded(*address, has_token)?;
            let listener = TcpListener::bind(address)
                .map_err(|e| io::Error::new(e.kind(), format!("admin address {address}: {}", reason(&e))))?;
            listener.set_nonblocking(true)?;
            Ok(Socket::Tcp(listener))
        }
        AdminAddress::Unix(path) => {
            let listener = open_unix(path)
                .map_err(|e| io::Error::new(e.kind(), format!("admin socket {}: {}", path.display(), reason(&e))))?;
            listener.set_nonblocking(true)?;
            Ok(Socket::Unix(listener, RemovedAtEnd(Some(path.clone()))))
        }
    }
}

fn open_to_all(address: SocketAddr) -> String {
    let loopback =
        if address.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1]) };
    format!(
        "anyone who reaches {address} could use the admin API: set admin.token_file or the variable {TOKEN_VARIABLE}, \
         or listen on {} or a Unix socket",
        SocketAddr::new(loopback, address.port())
    )
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
mod tests {
    use super::*;

    #[test]
    fn a1_an_address_open_to_others_needs_a_token() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9901"] {
            let address = AdminAddress::Tcp(address.parse().unwrap());
            let error = open(&address, false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("token_file"), "{error}");
        }
        for address in ["127.0.0.1:0", "127.8.8.8:0"] {
            assert!(open(&AdminAddress::Tcp(address.parse().unwrap()), false).is_ok());
        }
        assert!(open(&AdminAddress::Tcp("0.0.0.0:0".parse().unwrap()), true).is_ok());
    }

    #[test]
    fn a1_a_unix_socket_is_its_owners_alone_and_goes_with_the_listener() {
        let path = std::env::temp_dir().join(format!("weirgate-admin-{}.sock", std::process::id()));
        let address = AdminAddress::Unix(path.clone());
        let socket = open(&address, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = open(&address, false).unwrap_err();
        assert!(second.to_string().contains("already in use"), "{second}");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let path = std::env::temp_dir().join(format!("weirgate-admin-dead-{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a socket outlives its process");
        drop(open(&AdminAddress::Unix(path.clone()), false).unwrap());
        fs::write(&path, "precious").unwrap();
        assert!(open(&AdminAddress::Unix(path.clone()), false).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }
}
