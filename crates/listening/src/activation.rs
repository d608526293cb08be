//! Sockets from systemd (`sd_listen_fds(3)`): file descriptors 3 and up, announced in the environment.
//!
//! The crate `listenfd` turns descriptor numbers into owned sockets and keeps them from being inherited further, which
//! needs `unsafe`. The names of `LISTEN_FDNAMES` only serve for messages, because an address cannot be mistaken for
//! another one and a name can.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use crate::address::Address;
use crate::inherited::{Inherited, Origin};
use crate::socket::Socket;

/// Takes the sockets that systemd has passed to this process, and removes their announcement from the environment. The
/// caller must have no other thread yet, because that changes the environment.
///
/// # Errors
/// Something that was passed is not a listening TCP or Unix stream socket.
pub fn from_service_manager() -> Result<Inherited, String> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::with_capacity(passed.len());
    for index in 0..passed.len() {
        let name = names.next().filter(|name| !name.is_empty() && *name != "unknown");
        let label = name.map_or_else(|| format!("socket {index}"), |name| format!("socket {index} ({name})"));
        let socket = match (passed.take_tcp_listener(index), passed.take_unix_listener(index)) {
            (Ok(Some(listener)), _) => tcp(listener),
            (_, Ok(Some(listener))) => unix(listener),
            _ => None,
        };
        sockets.push(socket.ok_or_else(|| {
            format!(
                "{label} of the service manager is not a listening TCP or Unix stream socket: use `ListenStream=` with \
                 `Accept=no`"
            )
        })?);
    }
    Ok(Inherited::new(Origin::ServiceManager, sockets))
}

fn tcp(listener: TcpListener) -> Option<(String, Socket)> {
    let address = listener.local_addr().ok()?;
    listens(&listener).then(|| (address.to_string(), Socket::Tcp(listener)))
}

fn unix(listener: UnixListener) -> Option<(String, Socket)> {
    let address = Address::of_unix(&listener.local_addr().ok()?)?;
    // The file is the service manager's.
    listens(&listener).then(|| (address.to_string(), Socket::Unix(listener, None)))
}

/// Whether the socket listens. A unit with `Accept=yes` passes connections instead.
fn listens(socket: impl AsFd) -> bool {
    socket_acceptconn(socket).unwrap_or(false)
}
