//! Addresses of servers, and connections to them.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`, where the host is a name or an IP address.
    Tcp(String),
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
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address.as_str()).await?;
                // A request is one small write that must be sent at once.
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
