//! Listening sockets: one per thread and address, spread by the kernel (`SO_REUSEPORT`).

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait in the kernel; more than any burst that a core can take in a second. The
/// kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// File descriptors for everything but connections: listeners, health checks, admin, logs.
const RESERVED: u64 = 32;

/// How many client connections the process has file descriptors for, if each needs one to a node as well
/// (as HAProxy reckons). `None` if that is not known.
pub(crate) fn connections_that_fit() -> Option<u64> {
    // "Max open files    1024    524288    files": the soft limit counts.
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    soft.parse::<u64>().ok().map(|files| (files.saturating_sub(RESERVED) / 2).max(1))
}

/// Opens `count` sockets on one address. With port 0 the kernel chooses one port for all of them.
///
/// # Errors
/// The address cannot be had.
pub(crate) fn open(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let mut bound = address;
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        if address.is_ipv6() {
            // An IPv4 listener of the same port is another line of the policy file.
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

/// Whether another process (or another gateway) serves `address`: with `SO_REUSEPORT` binding would not
/// tell, and connections would go to either.
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
