//! Listening sockets that another process opened, and their match with the addresses of a policy.

use crate::socket::Socket;

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
    pub fn new(origin: Origin, sockets: Vec<(String, Socket)>) -> Inherited {
        Inherited { origin, sockets }
    }

    /// Returns no sockets.
    pub fn none() -> Inherited {
        Inherited::new(Origin::ServiceManager, Vec::new())
    }

    /// Returns the source of the sockets.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the name under which a socket with this role and address is passed to a successor.
    pub fn name(role: &str, address: impl std::fmt::Display) -> String {
        format!("{role} {address}")
    }

    /// Takes the sockets for `address` in this role. There may be several, if each thread has its own.
    pub fn take(&mut self, role: &str, address: &impl std::fmt::Display) -> Vec<Socket> {
        let name = match self.origin {
            Origin::ServiceManager => address.to_string(),
            Origin::Predecessor => Inherited::name(role, address),
        };
        self.sockets.extract_if(.., |(other, _)| *other == name).map(|(_, socket)| socket).collect()
    }

    /// Returns the names of the sockets that nothing has taken, each once.
    pub fn left(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.sockets.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::address::Address;

    fn tcp() -> (Address, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (Address::Tcp(listener.local_addr().unwrap()), Socket::Tcp(listener))
    }

    #[test]
    fn sockets_of_a_service_manager_are_found_by_their_address() {
        let ((first, a), (second, b)) = (tcp(), tcp());
        let named = vec![(first.to_string(), a), (second.to_string(), b)];
        let mut inherited = Inherited::new(Origin::ServiceManager, named);
        assert_eq!(inherited.take("listen", &second).len(), 1);
        assert_eq!(inherited.take("admin", &second).len(), 0);
        assert_eq!(inherited.left(), [first.to_string()]);
    }

    #[test]
    fn sockets_of_a_predecessor_are_found_by_role_and_address() {
        let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let named = [("listen", tcp().1), ("listen", tcp().1), ("admin", tcp().1)];
        let named = named.into_iter().map(|(role, socket)| (Inherited::name(role, &any), socket)).collect();
        let mut inherited = Inherited::new(Origin::Predecessor, named);
        assert_eq!(inherited.left(), ["listen 127.0.0.1:0", "admin 127.0.0.1:0"]);
        assert_eq!(inherited.take("listen", &any).len(), 2);
        assert_eq!(inherited.take("admin", &any).len(), 1);
        assert_eq!(inherited.left(), Vec::<&str>::new());
    }

    #[test]
    fn a_unix_socket_is_found_by_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let (here, elsewhere) = (Address::Unix(path.clone()), Address::Unix("/other".into()));
        let socket = Socket::Unix(UnixListener::bind(&path).unwrap(), None);
        let mut inherited = Inherited::new(Origin::ServiceManager, vec![(here.to_string(), socket)]);
        assert!(inherited.take("admin", &elsewhere).is_empty());
        assert_eq!(inherited.take("admin", &here).len(), 1);
    }
}
