//! Listening sockets: one per thread and address. The kernel distributes connections (`SO_REUSEPORT`).
//!
//! Sockets that another process has opened are used as they are, however many there are. If there are fewer than
//! threads, one thread accepts from each and deals the connections out. Threads that all wait for the same socket
//! would all wake up for each connection, because tokio does not offer `EPOLLEXCLUSIVE`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, Type};
use tokio::io::Interest;
use tokio::net::TcpStream;
use weirgate_config::{Interception, Listener, ListenerName, Site, UNIX_CLIENT};
use weirgate_listening::{Address, Socket};

use crate::socket;

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
fn connections_that_fit(threads: usize) -> Option<u64> {
    // The soft limit in "Max open files    1024    524288    files" applies.
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    let reserved = RESERVED + PER_THREAD * threads as u64;
    soft.parse::<u64>().ok().map(|files| (files.saturating_sub(reserved) / 2).max(1))
}

/// Returns the maximum number of open client connections of `threads` threads under `site`.
pub(crate) fn max_connections(site: &Site, threads: usize) -> u64 {
    let wanted = site.limits.connections as u64;
    connections_that_fit(threads).map_or(wanted, |fit| wanted.min(fit))
}

/// A listener with its sockets.
pub(crate) struct Opened {
    /// The listener, as the policy names it.
    pub(crate) named: Arc<ListenerName>,
    /// Address that clients connect to. It has the actual port where the policy names port 0.
    pub(crate) bound: Address,
    /// The sockets, to be passed on to another process.
    pub(crate) sockets: Vec<Socket>,
    /// Duplicates of them, from which the threads accept. Taken by the threads.
    pub(crate) accepting: Vec<Socket>,
}

impl Opened {
    fn new(listener: &Listener, bound: Address, sockets: Vec<Socket>) -> io::Result<Opened> {
        let accepting = sockets.iter().map(Socket::try_clone).collect::<io::Result<_>>()?;
        let opened = Opened { named: Arc::new(listener.name.clone()), bound, sockets, accepting };
        for socket in &opened.sockets {
            // A file is set by the process that owns it.
            if let Socket::Tcp(socket) = socket {
                intercept(socket, listener).map_err(|error| opened.failed(&error))?;
            }
        }
        Ok(opened)
    }

    /// Sets what the sockets themselves know of their listener under `site`.
    ///
    /// # Errors
    /// The process lacks a right, or ([`io::ErrorKind::NotFound`]) the file of a Unix socket is gone.
    pub(crate) fn set(&self, site: &Site) -> io::Result<()> {
        let Some(listener) = site.listener(&self.named) else { return Ok(()) };
        for socket in &self.sockets {
            match socket {
                Socket::Tcp(socket) => intercept(socket, listener),
                Socket::Unix(_, file) => file.as_ref().map_or(Ok(()), |file| file.set(listener.file)),
            }
            .map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.named))
    }

    /// Owns the files of the sockets, because the process that did has left them to this one.
    pub(crate) fn take_over(&mut self) {
        self.sockets.iter_mut().filter_map(Socket::file_mut).for_each(weirgate_listening::SocketFile::take_over);
    }

    /// Leaves the files of the sockets to another process.
    pub(crate) fn leave(&mut self) {
        self.sockets.iter_mut().filter_map(Socket::file_mut).for_each(weirgate_listening::SocketFile::leave);
    }
}

/// Takes over the sockets of `opened`. Returns lines for the operator about those that do not suit `site`.
pub(crate) fn take_over(opened: &mut [Opened], site: &Site) -> String {
    opened.iter_mut().for_each(Opened::take_over);
    opened.iter().filter_map(|one| one.set(site).err()).map(|error| format!("{error}\n")).collect()
}

/// Makes the sockets of `opened` suit `site`. Returns lines for the operator about files that are gone.
///
/// # Errors
/// The process lacks a right.
pub(crate) fn follow(opened: &[Opened], site: &Site) -> io::Result<String> {
    let mut lines = String::new();
    for one in opened {
        match one.set(site) {
            // No reload brings it back, so it does not prevent one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => lines += &format!("{error}\n"),
            set => set?,
        }
    }
    Ok(lines)
}

/// Opens the sockets of one listener: `count` for TCP, and one Unix socket, because the kernel does not distribute
/// connections over several. For port 0 the kernel chooses one port for all of them.
///
/// # Errors
/// The address is in use or cannot be bound.
pub(crate) fn open(listener: &Listener, count: usize) -> io::Result<Opened> {
    let address = &listener.name.address;
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    let (bound, sockets) = match address {
        Address::Tcp(address) if in_use(*address).map_err(failed)? => {
            return Err(failed(io::ErrorKind::AddrInUse.into()));
        }
        Address::Tcp(address) => bind(*address, count),
        Address::Unix(path) => Socket::open_unix(path, listener.file).map(|socket| (address.clone(), vec![socket])),
    }
    .map_err(failed)?;
    Opened::new(listener, bound, sockets)
}

/// Adopts sockets that another process has opened for `listener`.
///
/// # Errors
/// Something else than a socket was passed.
pub(crate) fn adopt(listener: &Listener, sockets: Vec<Socket>) -> io::Result<Opened> {
    let mut bound = listener.name.address.clone();
    for socket in &sockets {
        socket.set_nonblocking(true)?;
        if let Socket::Tcp(socket) = socket {
            bound = Address::Tcp(socket.local_addr()?);
        }
    }
    Opened::new(listener, bound, sockets)
}

/// A socket from which a thread accepts connections.
pub(crate) struct Acceptor {
    /// The runtime's type for a connection, which watches any socket. Its type for a listener would also watch each
    /// connection that it accepts.
    socket: TcpStream,
    bound: SocketAddr,
}

impl Acceptor {
    /// Watches a socket on this thread.
    pub(crate) fn new(socket: Socket) -> io::Result<Acceptor> {
        let (socket, bound): (OwnedFd, _) = match socket {
            Socket::Tcp(socket) => {
                // Responses are sent at once, because head and body are written together. Connections inherit it from
                // their listener, which costs no system call for each of them.
                SockRef::from(&socket).set_tcp_nodelay(true)?;
                // Without it connections come a little earlier than they have to.
                let _ = weirgate_listening::defer_accept(&socket);
                let bound = socket.local_addr()?;
                (socket.into(), bound)
            }
            Socket::Unix(socket, _) => (socket.into(), OF_UNIX),
        };
        Ok(Acceptor { socket: TcpStream::from_std(socket.into())?, bound })
    }

    /// Returns the address that the socket has. A Unix socket has no port, and no address of IP.
    pub(crate) fn bound(&self) -> SocketAddr {
        self.bound
    }

    /// Returns the next connection, and its peer. The runtime does not watch the connection.
    pub(crate) async fn accept(&self) -> io::Result<(socket::Socket, SocketAddr)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let next = || Ok(acceptfrom_with(&self.socket, flags)?);
        let (stream, peer) = self.socket.async_io(Interest::READABLE, next).await?;
        let peer = match self.bound == OF_UNIX {
            true => Some(OF_UNIX),
            false => peer.and_then(|peer| peer.try_into().ok()),
        };
        Ok((socket::Socket::Unwatched(stream), peer.ok_or(io::ErrorKind::ConnectionAborted)?))
    }
}

/// Either end of a connection to a Unix socket.
const OF_UNIX: SocketAddr = SocketAddr::new(UNIX_CLIENT, 0);

/// Returns the address that a client connected to. `how` says how its connection was intercepted, if it was.
pub(crate) fn destination(stream: &socket::Socket, bound: SocketAddr, how: Option<Interception>) -> SocketAddr {
    let Ok(stream) = stream.fd() else { return bound };
    let socket = SockRef::from(&stream);
    let own = || socket.local_addr().ok()?.as_socket();
    let found = match how {
        Some(how) => own().map(|own| wanted(&socket, own, how)),
        // A listener on all addresses does not know which of them a client used.
        None if bound.ip().is_unspecified() && bound != OF_UNIX => own(),
        None => None,
    };
    found.unwrap_or(bound)
}

/// Lets a socket receive connections for other addresses, if the listener is to have them by `TPROXY`.
fn intercept(socket: &TcpListener, listener: &Listener) -> io::Result<()> {
    let transparent = listener.transparent == Some(Interception::Tproxy);
    let is_ipv4 = socket.local_addr()?.is_ipv4();
    let socket = SockRef::from(socket);
    let set = match is_ipv4 {
        true if socket.ip_transparent_v4()? != transparent => socket.set_ip_transparent_v4(transparent),
        false if socket.ip_transparent_v6()? != transparent => socket.set_ip_transparent_v6(transparent),
        _ => Ok(()),
    };
    set.map_err(|error| io::Error::other(format!("`transparent: tproxy` needs CAP_NET_ADMIN: {error}")))
}

/// Returns the address that the client of an intercepted connection wanted. `own` is that of its socket.
fn wanted(socket: &SockRef<'_>, own: SocketAddr, how: Interception) -> SocketAddr {
    let translated = match how {
        Interception::Tproxy => None,
        Interception::Redirect if own.is_ipv4() => socket.original_dst_v4().ok(),
        Interception::Redirect => socket.original_dst_v6().ok(),
    };
    // The kernel knows no translation of a connection to the listener itself.
    translated.and_then(|address| address.as_socket()).unwrap_or(own)
}

fn bind(named: SocketAddr, count: usize) -> io::Result<(Address, Vec<Socket>)> {
    let mut bound = named;
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = RawSocket::new(Domain::for_address(named), Type::STREAM, Some(Protocol::TCP))?;
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
        sockets.push(Socket::Tcp(listener));
    }
    Ok((Address::Tcp(bound), sockets))
}

/// Returns whether another process or another gateway serves `address`. Binding would not show it because of
/// `SO_REUSEPORT`, and connections would be distributed to both.
fn in_use(address: SocketAddr) -> io::Result<bool> {
    if address.port() == 0 {
        return Ok(false);
    }
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn a_silent_connection_comes_as_well_and_sends_small_messages_at_once() {
        let (address, mut sockets) = bind("127.0.0.1:0".parse().expect("an address"), 1).expect("a listener");
        let acceptor = Acceptor::new(sockets.remove(0)).expect("a listener");
        let client = std::net::TcpStream::connect(address.tcp().expect("an address")).expect("a connection");
        let (socket, peer) = acceptor.accept().await.expect("a connection");
        assert!(SockRef::from(&socket.fd().expect("it is open")).tcp_nodelay().expect("a socket"));
        assert_eq!(peer, client.local_addr().expect("a socket"));
    }

    #[tokio::test]
    async fn a_connection_comes_with_its_first_bytes() {
        let (address, mut sockets) = bind("127.0.0.1:0".parse().expect("an address"), 1).expect("a listener");
        let acceptor = Acceptor::new(sockets.remove(0)).expect("a listener");
        let mut client = std::net::TcpStream::connect(address.tcp().expect("an address")).expect("a connection");
        client.write_all(b"GET").expect("it is sent");
        let (mut socket, _) = acceptor.accept().await.expect("a connection");
        std::future::poll_fn(|cx| socket.poll_readable(cx)).await.expect("it is open");
        assert!(!socket.is_watched(), "nobody has to wait for them");
    }
}
