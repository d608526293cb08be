//! An address on which a node listens.
//!
//! The port of a crashed node must refuse connections and must still be available when the node comes back.
//! An unbound port may be taken meanwhile, most likely by an outgoing connection of the load itself. A
//! closed port is therefore held by a socket that is bound but does not listen.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use mio::net::TcpListener;
use mio::{Interest, Poll, Token};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

/// Connections that the kernel queues until they are accepted. This is the maximum that Linux allows by default.
const BACKLOG: i32 = 4096;

/// An address, open or closed.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    token: Token,
    listener: Option<TcpListener>,
    /// Socket that holds the address while it is closed.
    held: Option<OwnedFd>,
}

impl Port {
    /// Opens the address. New connections raise events with `token`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn open(poll: &Poll, token: Token, address: SocketAddr) -> io::Result<Port> {
        let mut port = Port { address, token, listener: None, held: Some(hold(address)?) };
        port.reopen(poll)?;
        Ok(port)
    }

    /// Opens the address again.
    ///
    /// # Errors
    /// The system is out of memory or descriptors, or the address is taken because it could not be held
    /// when it was closed.
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

    /// Closes the address. Connections that were not yet accepted are reset, and new ones are refused.
    ///
    /// # Errors
    /// The address was taken in the microseconds between the two sockets, or the system has no descriptor left.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.listener.take().is_some() {
            self.held = Some(hold(self.address)?);
        }
        Ok(())
    }

    /// The listener, if the address is open.
    pub(crate) fn listener(&self) -> Option<&TcpListener> {
        self.listener.as_ref()
    }
}

/// A socket that is bound to `address` but does not listen.
fn hold(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let held = socket(family, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::CLOEXEC)?;
    // Connections of an earlier listener may still wait for their last packets.
    sockopt::set_socket_reuseaddr(&held, true)?;
    bind(&held, &address)?;
    Ok(held)
}
