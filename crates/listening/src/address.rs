//! Address of a listening socket: TCP, or a Unix socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::{Path, PathBuf};

use rustix::net::SocketAddrUnix;

/// Begins the text of a Unix socket's address.
pub const UNIX: &str = "unix:";

/// Address of a listening socket, as a policy writes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket: a path, or `@` with the name of a socket that is not in the file system (`unix(7)`, *abstract*).
    Unix(PathBuf),
}

impl Address {
    /// Returns the TCP address. `None` for a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }

    /// Returns the address of a Unix socket that the kernel knows.
    pub(crate) fn of_unix(address: &UnixAddr) -> Option<Address> {
        let name = || address.as_abstract_name().and_then(|name| str::from_utf8(name).ok());
        let path = address.as_pathname().map(Path::to_owned);
        path.or_else(|| Some(PathBuf::from(format!("@{}", name()?)))).map(Address::Unix)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// Returns the name of a socket that is not in the file system, if `path` stands for one.
pub fn abstract_name(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix('@')
}

/// Returns the address of a Unix socket for the kernel.
///
/// # Errors
/// The path is too long, or has a zero byte.
pub fn unix_address(path: &Path) -> io::Result<SocketAddrUnix> {
    Ok(match abstract_name(path) {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(path)?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn an_address_is_written_as_in_a_policy() {
        for text in ["unix:/run/a.sock", "unix:@a"] {
            let address = Address::Unix(PathBuf::from(text.strip_prefix(UNIX).unwrap()));
            assert_eq!(address.to_string(), text);
            let Address::Unix(path) = &address else { panic!("it is one") };
            let known = match abstract_name(path) {
                Some(name) => UnixAddr::from_abstract_name(name).unwrap(),
                None => UnixAddr::from_pathname(path).unwrap(),
            };
            assert_eq!(Address::of_unix(&known), Some(address.clone()));
            let to = unix_address(path).unwrap();
            assert_eq!(to.path_bytes(), known.as_pathname().map(|path| path.as_os_str().as_bytes()));
            assert_eq!(to.abstract_name(), known.as_abstract_name());
        }
        assert_eq!(Address::Tcp("[::1]:80".parse().unwrap()).to_string(), "[::1]:80");
    }
}
