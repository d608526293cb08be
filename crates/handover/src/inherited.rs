//! Listening sockets that another process opened, and their match with the addresses of a policy.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// A listening socket.
#[derive(Debug)]
pub enum Socket {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix stream socket.
    Unix(UnixListener),
}

/// Source of inherited sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// systemd, or a program that passes sockets like it. A socket's name is its address.
    ServiceManager,
    /// The process that this one replaces. A socket's name is its role and its address as the policy writes it.
    Predecessor,
}

/// Listening sockets from another process. Those that nothing takes are closed when the value is dropped.
#[derive(Debug)]
pub struct Inherited {
    origin: Origin,
    sockets: Vec<(String, Socket)>,
}

impl Inherited {
    /// Returns sockets with their names.
    #[must_use]
    pub fn new(origin: Origin, sockets: Vec<(String, Socket)>) -> Inherited {
        Inherited { origin, sockets }
    }

    /// Returns no sockets.
    #[must_use]
    pub fn none() -> Inherited {
        Inherited::new(Origin::ServiceManager, Vec::new())
    }

    /// Returns the source of the sockets.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the name under which a socket with this role and address is passed to a successor.
    #[must_use]
    pub fn name(role: &str, address: impl std::fmt::Display) -> String {
        format!("{role} {address}")
    }

    /// Takes the TCP sockets for `address` in this role. There may be several, if each thread has its own.
    pub fn take_tcp(&mut self, role: &str, address: SocketAddr) -> Vec<TcpListener> {
        let name = self.sought(role, address);
        let is_it = |(other, socket): &mut (String, Socket)| *other == name && matches!(socket, Socket::Tcp(_));
        let taken = self.sockets.extract_if(.., is_it);
        taken.filter_map(|(_, socket)| if let Socket::Tcp(listener) = socket { Some(listener) } else { None }).collect()
    }

    /// Takes the Unix socket at `path` in this role.
    pub fn take_unix(&mut self, role: &str, path: &Path) -> Option<UnixListener> {
        let name = self.sought(role, unix_name(path));
        let is_it = |(other, socket): &mut (String, Socket)| *other == name && matches!(socket, Socket::Unix(_));
        let taken = self.sockets.extract_if(.., is_it);
        taken.filter_map(|(_, s)| if let Socket::Unix(listener) = s { Some(listener) } else { None }).next()
    }

    /// Returns the names of the sockets that nothing has taken, each once.
    #[must_use]
    pub fn left(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.sockets.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        names
    }

    fn sought(&self, role: &str, address: impl std::fmt::Display) -> String {
        match self.origin {
            Origin::ServiceManager => address.to_string(),
            Origin::Predecessor => Inherited::name(role, address),
        }
    }
}

/// Returns the name of a Unix socket, as a policy writes it.
pub(crate) fn unix_name(path: &Path) -> String {
    format!("unix:{}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> (SocketAddr, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (listener.local_addr().unwrap(), Socket::Tcp(listener))
    }

    #[test]
    fn sockets_of_a_service_manager_are_found_by_their_address() {
        let ((first, a), (second, b)) = (tcp(), tcp());
        let named = vec![(first.to_string(), a), (second.to_string(), b)];
        let mut inherited = Inherited::new(Origin::ServiceManager, named);
        assert_eq!(inherited.take_tcp("listen", second).len(), 1);
        assert_eq!(inherited.take_tcp("admin", second).len(), 0);
        assert_eq!(inherited.left(), [first.to_string()]);
    }

    #[test]
    fn sockets_of_a_predecessor_are_found_by_role_and_address() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let named = [("listen", tcp().1), ("listen", tcp().1), ("admin", tcp().1)];
        let named = named.into_iter().map(|(role, socket)| (Inherited::name(role, any), socket)).collect();
        let mut inherited = Inherited::new(Origin::Predecessor, named);
        assert_eq!(inherited.left(), ["listen 127.0.0.1:0", "admin 127.0.0.1:0"]);
        assert_eq!(inherited.take_tcp("listen", any).len(), 2);
        assert_eq!(inherited.take_tcp("admin", any).len(), 1);
        assert_eq!(inherited.left(), Vec::<&str>::new());
    }

    #[test]
    fn a_unix_socket_is_found_by_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = Socket::Unix(UnixListener::bind(&path).unwrap());
        let mut inherited = Inherited::new(Origin::ServiceManager, vec![(unix_name(&path), socket)]);
        assert!(inherited.take_unix("admin", Path::new("/other")).is_none());
        assert!(inherited.take_unix("admin", &path).is_some());
    }
}
