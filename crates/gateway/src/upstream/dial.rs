//! TCP connections to nodes, also to the address that a client wanted, and from the client's own address.
//!
//! The second needs `IP_TRANSPARENT` (Linux, `ip(7)`): a socket with an address that this machine does not have.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Type};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use weirgate_config::ORIGINAL;

use crate::active_config::Endpoint;
use crate::client_conn::ClientConn;

/// Connects to `endpoint` for a client, or for this gateway itself.
///
/// # Errors
/// The address cannot be resolved or reached, or the client's connection was not intercepted.
pub(super) async fn connect(endpoint: &Endpoint, client: Option<&ClientConn>) -> io::Result<TcpStream> {
    let from = client.filter(|_| endpoint.settings.from_client).and_then(ClientConn::address);
    if endpoint.address == ORIGINAL {
        let wanted = client.and_then(wanted).ok_or(io::ErrorKind::AddrNotAvailable)?;
        return match from {
            Some(from) => connect_from(from, wanted).await,
            None => TcpStream::connect(wanted).await,
        };
    }
    // An address is parsed at once. A name is resolved on another thread.
    let Some(from) = from else { return TcpStream::connect(endpoint.address.as_str()).await };
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in lookup_host(endpoint.address.as_str()).await?.filter(|a| a.is_ipv4() == from.is_ipv4()) {
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

async fn connect_from(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let from = SocketAddr::new(from, 0);
    let socket = socket2::Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    match to {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&from.into())?;
    TcpSocket::from_std_stream(socket.into()).connect(to).await
}
