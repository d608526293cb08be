//! Listening sockets: one per thread and address. The kernel distributes connections (`SO_REUSEPORT`).

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections waiting in the kernel, larger than any burst that a core can accept in a
/// second. The kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Number of file descriptors reserved for uses other than connections: listeners, health checks, admin,
/// logs.
const RESERVED: u64 = 32;

/// Returns the number of client connections for which the process has file descriptors, if each also needs a
/// connection to a node (HAProxy computes it like this). Returns `None` if the limit is not known.
pub(crate) fn connections_that_fit() -> Option<u64> {
    // The soft limit in "Max open files    1024    524288    files" applies.
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    soft.parse::<u64>().ok().map(|files| (files.saturating_sub(RESERVED) / 2).max(1))
}

/// Opens `count` sockets on one address. For port 0 the kernel chooses one port for all of them.
///
/// # Errors
/// The address cannot be bound.
pub(crate) fn open(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let mut bound = address;
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        if address.is_ipv6() {
            // The policy file lists an IPv4 listener on the same port separately.
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&bound.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        bound = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok((bound, listeners))
}

/// Returns whether another process or another gateway serves `address`. Binding would not show it because of
/// `SO_REUSEPORT`, and connections would be distributed to both.
pub(crate) fn in_use(address: SocketAddr) -> io::Result<bool> {
    if address.port() == 0 {
        return Ok(false);
    }
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    match socket.bind(&address.into()) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(true),
        Err(error) => Err(error),
    }
}
