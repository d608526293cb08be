//! A client that waits for its reply: one request, one connection.
//!
//! The page answers with the CPU time of its loop; see `loop.php`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weirgate_emulator::clock;

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// A reply.
pub(crate) struct Reply {
    /// From the attempt to connect to the reply's last byte.
    pub(crate) took: Duration,
    /// CPU time of the page's loop.
    pub(crate) used: Duration,
}

/// Fetches `path`.
///
/// # Errors
/// No reply, or one that is not the page's.
pub(crate) fn fetch(address: SocketAddr, path: &str) -> Result<Reply, String> {
    let start = clock::now();
    let mut reply = Vec::new();
    let mut exchange = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: server.test\r\nConnection: close\r\n\r\n").as_bytes())?;
        stream.read_to_end(&mut reply).map(drop)
    };
    exchange().map_err(|e| format!("http://{address}{path}: {e}"))?;
    let took = Duration::from_nanos(clock::now() - start);
    let text = String::from_utf8_lossy(&reply);
    let micros = text.strip_prefix("HTTP/1.1 200 ").and_then(|rest| rest.split_once("\r\n\r\n")?.1.trim().parse().ok());
    match micros {
        Some(micros) => Ok(Reply { took, used: Duration::from_micros(micros) }),
        None => Err(format!("http://{address}{path} answers: {}", text.lines().next().unwrap_or_default())),
    }
}
