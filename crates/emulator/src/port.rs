//! An address on which a node listens.
//!
//! The port of a node that has crashed must refuse connections and still be there when the node comes back. A
//! port that nobody has bound may be taken meanwhile, most likely by an outgoing connection of the load
//! itself. So a closed port is held by a socket that is bound and does not listen.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use mio::net::TcpListener;
use mio::{Interest, Poll, Token};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

/// Connections that the kernel keeps until they are accepted: the most that Linux allows by itself.
const BACKLOG: i32 = 4096;

/// An address, open or closed.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    token: Token,
    listener: Option<TcpListener>,
    /// While it is closed.
    held: Option<OwnedFd>,
}

impl Port {
    /// Opens it; connections ring `token`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn open(poll: &Poll, token: Token, address: SocketAddr) -> io::Result<Port> {
        let mut port = Port { address, token, listener: None, held: Some(hold(address)?) };
        port.reopen(poll)?;
        Ok(port)
    }

    /// Opens it again.
    ///
    /// # Errors
    /// The system is out of memory or descriptors, or the address could not be held when it was closed and is
    /// taken.
    pub(crate) fn reopen(&mut self, poll: &Poll) -> io::Result<()> {
        if self.listener.is_some() {
            return Ok(());
        }
        let socket = self.held.take().map_or_else(|| hold(self.address), Ok)?;
        listen(&socket, BACKLOG)?;
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        self.address = listener.local_addr()?;
        let mut listener = TcpListener::from_std(listener);
        poll.registry().register(&mut listener, self.token, Interest::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Closes it: connections that nobody has accepted are reset, new ones refused.
    ///
    /// # Errors
    /// The address was taken in the microseconds between the two sockets, or the system has no descriptor left.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.listener.take().is_some() {
            self.held = Some(hold(self.address)?);
        }
        Ok(())
    }

    /// Accepts connections here, if it is open.
    pub(crate) fn listener(&self) -> Option<&TcpListener> {
        self.listener.as_ref()
    }
}

/// A socket bound to `address` that does not listen.
fn hold(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let held = socket(family, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::CLOEXEC)?;
    // Connections of an earlier listener may still wait for their last packets.
    sockopt::set_socket_reuseaddr(&held, true)?;
    bind(&held, &address)?;
    Ok(held)
}
