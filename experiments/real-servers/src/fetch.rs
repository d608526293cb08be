//! A client that waits for its reply: one request, one connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weirgate_emulator::clock;

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fetches `path` and returns how long it took.
///
/// # Errors
/// No reply, or another status than 200.
pub(crate) fn fetch(address: SocketAddr, path: &str) -> Result<Duration, String> {
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
    if reply.starts_with(b"HTTP/1.1 200 ") {
        Ok(took)
    } else {
        let status = String::from_utf8_lossy(reply.split(|&b| b == b'\r').next().unwrap_or_default()).into_owned();
        Err(format!("http://{address}{path}: {status}"))
    }
}
