//! Listening sockets: one per thread and address. The kernel distributes connections (`SO_REUSEPORT`).
//!
//! Sockets that another process has opened are used as they are, however many there are. If there are fewer than
//! threads, one thread accepts from each and deals the connections out. Threads that all wait for the same socket
//! would all wake up for each connection, because tokio does not offer `EPOLLEXCLUSIVE`.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpStream;
use weirgate_config::{Interception, Listener};

/// Maximum number of connections waiting in the kernel, larger than any burst that a core can accept in a
/// second. The kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Number of file descriptors reserved for uses other than connections: listeners, health checks, admin,
/// logs.
const RESERVED: u64 = 32;

/// Number of file descriptors of a thread that serves: four of its runtime and two timers.
const PER_THREAD: u64 = 6;

/// Returns the number of client connections for which the process has file descriptors, if each also needs a
/// connection to a node (HAProxy computes it like this) and there are `threads` threads. Returns `None` if the limit is
/// not known.
pub(crate) fn connections_that_fit(threads: usize) -> Option<u64> {
    // The soft limit in "Max open files    1024    524288    files" applies.
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    let reserved = RESERVED + PER_THREAD * threads as u64;
    soft.parse::<u64>().ok().map(|files| (files.saturating_sub(reserved) / 2).max(1))
}

/// An address with its sockets.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Address as the policy names it.
    pub(crate) named: SocketAddr,
    /// Address that clients connect to. It has the actual port where the policy names port 0.
    pub(crate) bound: SocketAddr,
    /// The sockets, to be passed on to another process.
    pub(crate) sockets: Vec<TcpListener>,
    /// Duplicates of them, from which the threads accept. Taken by the threads.
    pub(crate) accepting: Vec<TcpListener>,
}

impl Opened {
    fn new(named: SocketAddr, bound: SocketAddr, sockets: Vec<TcpListener>) -> io::Result<Opened> {
        let accepting = sockets.iter().map(TcpListener::try_clone).collect::<io::Result<_>>()?;
        Ok(Opened { named, bound, sockets, accepting })
    }
}

/// Opens `count` sockets of one listener. For port 0 the kernel chooses one port for all of them.
///
/// # Errors
/// The address is in use or cannot be bound.
pub(crate) fn open(listener: &Listener, count: usize) -> io::Result<Opened> {
    let address = listener.address;
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    if in_use(address).map_err(failed)? {
        return Err(failed(io::ErrorKind::AddrInUse.into()));
    }
    let opened = bind(address, count).map_err(failed)?;
    intercept(&opened, listener)?;
    Ok(opened)
}

/// Adopts sockets that another process has opened for `listener`.
///
/// # Errors
/// Something else than a socket was passed.
pub(crate) fn adopt(listener: &Listener, sockets: Vec<TcpListener>) -> io::Result<Opened> {
    let (named, mut bound) = (listener.address, listener.address);
    for socket in &sockets {
        socket.set_nonblocking(true)?;
        bound = socket.local_addr()?;
    }
    let opened = Opened::new(named, bound, sockets)?;
    intercept(&opened, listener)?;
    Ok(opened)
}

/// Lets sockets receive connections for other addresses, if the listener is to have them by `TPROXY`.
///
/// # Errors
/// The process lacks `CAP_NET_ADMIN`.
pub(crate) fn intercept(opened: &Opened, listener: &Listener) -> io::Result<()> {
    let transparent = listener.transparent == Some(Interception::Tproxy);
    for socket in &opened.sockets {
        let socket = SockRef::from(socket);
        let set = match opened.named {
            SocketAddr::V4(_) if socket.ip_transparent_v4()? != transparent => {
                socket.set_ip_transparent_v4(transparent)
            }
            SocketAddr::V6(_) if socket.ip_transparent_v6()? != transparent => {
                socket.set_ip_transparent_v6(transparent)
            }
            _ => Ok(()),
        };
        set.map_err(|error| {
            io::Error::other(format!("`transparent: tproxy` of {} needs CAP_NET_ADMIN: {error}", opened.named))
        })?;
    }
    Ok(())
}

/// Returns the address that the client of an intercepted connection wanted.
pub(crate) fn wanted(stream: &TcpStream, how: Interception) -> io::Result<SocketAddr> {
    let own = stream.local_addr()?;
    match how {
        Interception::Tproxy => Ok(own),
        Interception::Redirect => {
            let socket = SockRef::from(stream);
            let translated = if own.is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() };
            // The kernel knows no translation of a connection to the listener itself.
            Ok(translated.ok().and_then(|address| address.as_socket()).unwrap_or(own))
        }
    }
}

fn bind(named: SocketAddr, count: usize) -> io::Result<Opened> {
    let mut bound = named;
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = Socket::new(Domain::for_address(named), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        if named.is_ipv6() {
            // The policy file lists an IPv4 listener on the same port separately.
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&bound.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        bound = listener.local_addr()?;
        sockets.push(listener);
    }
    Opened::new(named, bound, sockets)
}

/// Returns whether another process or another gateway serves `address`. Binding would not show it because of
/// `SO_REUSEPORT`, and connections would be distributed to both.
fn in_use(address: SocketAddr) -> io::Result<bool> {
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
