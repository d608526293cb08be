//! An address on which a node listens, and free addresses for programs that open theirs themselves.
//!
//! The port of a crashed node must refuse connections and must still be available when the node comes back.
//! An unbound port may be taken meanwhile, most likely by an outgoing connection of the load itself. A
//! closed port is therefore held by a socket that is bound but does not listen.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use mio::net::TcpListener;
use mio::{Interest, Poll, Token};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket, sockopt};

/// Connections that the kernel queues until they are accepted. This is the maximum that Linux allows by default.
const BACKLOG: i32 = 4096;

/// An address, open or closed.
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

/// Returns an address on loopback on which no process listens. A process gets another one each time.
///
/// The socket that finds it never listens. A process that is started at this moment inherits the socket until it runs
/// its program. If the socket listened, it would take connections that are meant for the server to come.
///
/// # Errors
/// No port is free, or the system has no descriptor left.
pub fn free_address() -> io::Result<SocketAddr> {
    static GIVEN: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
    loop {
        let held = hold((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = SocketAddr::try_from(getsockname(&held)?)?;
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(address) {
            return Ok(address);
        }
    }
}
