//! Connections to nodes, also to the address that a client wanted, and from the client's own address.
//!
//! The last needs `IP_TRANSPARENT` (Linux, `ip(7)`): a socket with an address that this machine does not have.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use socket2::SockRef;
use tokio::net::lookup_host;
use weirgate_config::{ORIGINAL, socket_path};
use weirgate_listening::unix_address;

use crate::active_config::Endpoint;
use crate::client_conn::ClientConn;
use crate::socket::Socket;

/// Connects to `endpoint` for a client, or for this gateway itself.
///
/// # Errors
/// The address cannot be resolved or reached, or the client's connection was not intercepted.
pub(super) async fn dial(endpoint: &Endpoint, client: Option<&ClientConn>) -> io::Result<Socket> {
    if let Some(path) = socket_path(&endpoint.address) {
        return complete(open(AddressFamily::UNIX)?, &unix_address(path)?).await;
    }
    let from = client.filter(|_| endpoint.settings.from_client).and_then(ClientConn::address);
    if endpoint.address == ORIGINAL {
        let wanted = client.and_then(wanted).ok_or(io::ErrorKind::AddrNotAvailable)?;
        return connect_from(from, wanted).await;
    }
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    // An address is parsed at once. A name is resolved on another thread.
    let addresses = lookup_host(endpoint.address.as_str()).await?;
    for address in addresses.filter(|to| from.is_none_or(|from| to.is_ipv4() == from.is_ipv4())) {
        match connect_from(from, address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the address that an intercepted client wanted. A client that has connected to the listener itself wanted no
/// other one, and a connection there would come back without end.
fn wanted(client: &ClientConn) -> Option<SocketAddr> {
    let wanted = client.destination;
    (wanted.port() != client.port || !is_own(wanted.ip())).then_some(wanted)
}

/// Whether this machine has the address.
fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Connects to an address, from that of a client if it is to be used.
async fn connect_from(from: Option<IpAddr>, to: SocketAddr) -> io::Result<Socket> {
    let socket = open(if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    let options = SockRef::from(&socket);
    options.set_tcp_nodelay(true)?;
    if let Some(from) = from {
        match to {
            SocketAddr::V4(_) => options.set_ip_transparent_v4(true)?,
            SocketAddr::V6(_) => options.set_ip_transparent_v6(true)?,
        }
        options.set_reuse_address(true)?;
        options.bind(&SocketAddr::new(from, 0).into())?;
    }
    complete(socket, &to).await
}

fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?)
}

/// Waits until a socket is connected.
async fn complete(socket: OwnedFd, to: &impl SocketAddrArg) -> io::Result<Socket> {
    let begun = connect(&socket, to);
    let mut socket = Socket::Unwatched(socket);
    match begun {
        Err(Errno::INPROGRESS) => {}
        done => return Ok(done.map(|()| socket)?),
    }
    poll_fn(|cx| socket.poll_writable(cx)).await?;
    match SockRef::from(&socket.fd()?).take_error()? {
        Some(error) => Err(error),
        None => Ok(socket),
    }
}
