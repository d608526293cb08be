//! A hostile client's connections to the gateway.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use weirgate_clock::within;

use super::{Kind, Seen};

/// Largest head of a response that is read. The gateway's own are far smaller.
const MAX_HEAD: usize = 64 * 1024;

/// Time limit of a connection and of a response. It exceeds the gateway's time-outs for heads and bodies.
const PATIENCE: Duration = Duration::from_secs(90);

/// Receive buffer of a slow reader in bytes, so that the kernel does not read for it.
const SMALL_BUFFER: u32 = 4096;

/// Where a client connects, and from which address.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    target: SocketAddr,
    source: Ipv4Addr,
    receive_buffer: Option<u32>,
    seen: Arc<Seen>,
}

impl Wire {
    /// The wire of client `number`. Each kind has 16 addresses of loopback, except a crowd, which has one. The
    /// load generator's 127.0.0.1 is not among them.
    pub(crate) fn new(target: SocketAddr, kind: Kind, number: u64, seen: Arc<Seen>) -> Wire {
        let host = if kind == Kind::Crowd { 0 } else { (number % 16) as u8 };
        let source = Ipv4Addr::new(127, 1, kind as u8, 1 + host);
        let receive_buffer = (kind == Kind::SlowReader).then_some(SMALL_BUFFER);
        Wire { target, source, receive_buffer, seen }
    }

    /// Connects.
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        // Loopback has one range of ports for each pair of addresses.
        socket.bind((self.source, 0).into())?;
        let connected = within(PATIENCE, socket.connect(self.target)).await;
        let stream = connected.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        let count = if stream.is_ok() { &self.seen.connections } else { &self.seen.refused };
        count.fetch_add(1, Ordering::Relaxed);
        let stream = stream?;
        // Nagle's algorithm would collect the bytes that a slow client sends one at a time.
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Reads a final response and its body, and returns its status. `bytes` keeps the beginning of the next one.
    pub(crate) async fn response(&self, stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<u16> {
        let read = within(PATIENCE, self.read_response(stream, bytes)).await;
        read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn read_response(&self, stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<u16> {
        loop {
            let end = loop {
                if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                    break end + 4;
                }
                if bytes.len() > MAX_HEAD {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                more(stream, bytes).await?;
            };
            let Some(status) = status_of(bytes) else { return Err(io::ErrorKind::InvalidData.into()) };
            let length = length_of(&bytes[..end]);
            bytes.drain(..end);
            if status < 200 {
                continue;
            }
            while bytes.len() < length {
                more(stream, bytes).await?;
            }
            bytes.drain(..length);
            self.seen.response(status);
            return Ok(status);
        }
    }

    /// Sends `bytes`.
    pub(crate) async fn send(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }

    /// Counts a response by its status, which was read elsewhere.
    pub(crate) fn count(&self, status: u16) {
        self.seen.response(status);
    }
}

/// Reads the bytes that are there, or waits for some. The end of the stream is an error.
async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(bytes).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Returns the status of a response that begins with `bytes`.
pub(crate) fn status_of(bytes: &[u8]) -> Option<u16> {
    std::str::from_utf8(bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?).ok()?.parse().ok()
}

/// Returns the `Content-Length` of a head, or 0. The gateway's refusals and emulated nodes always state one.
fn length_of(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_responses_are_read() {
        assert_eq!(status_of(b"HTTP/1.1 503 Service Unavailable\r\n"), Some(503));
        assert_eq!(status_of(b"HTTP/1.1 5"), None);
        assert_eq!(length_of(b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n"), 17);
        assert_eq!(length_of(b"HTTP/1.1 204 No Content\r\n\r\n"), 0);
    }
}
