//! Addresses of servers, and connections to them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use weirgate_tls::trust::why;
use weirgate_tls::{LiveTrust, Wanted, server_name};

/// Address of a server.
#[derive(Clone, Debug)]
pub enum Address {
    /// `host:port`, where the host is a name or an IP address.
    Tcp(String),
    /// The same over TLS, to a server whose certificate covers the host.
    Https(String, Arc<ClientConfig>),
    /// The same over mutual TLS with the site's trust, to a server that is this party.
    Trusted(String, Arc<LiveTrust>, Wanted),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

/// A byte stream of any kind.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

impl Address {
    /// Connects to the server. All connections of this crate are made here.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Socket>> {
        match self {
            Address::Tcp(address) => Ok(Box::new(tcp(address).await?)),
            Address::Https(address, config) => Ok(Box::new(tls(address, Arc::clone(config)).await?)),
            Address::Trusted(address, trust, wanted) => {
                let trust = trust.now();
                let stream = tls(address, trust.client()).await?;
                trust.reached(wanted, stream.get_ref().1.peer_certificates()).map_err(io::Error::other)?;
                Ok(Box::new(stream))
            }
            Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}

async fn tls(address: &str, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let name = server_name(address).ok_or_else(|| io::Error::other("the host is no host name"))?;
    let connecting = TlsConnector::from(config).connect(name, tcp(address).await?);
    connecting.await.map_err(|error| io::Error::new(error.kind(), why(&error)))
}

async fn tcp(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // A request is one small write that must be sent at once.
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) | Address::Https(address, _) | Address::Trusted(address, ..) => f.write_str(address),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
