//! The least that a node and a relay have to do, for `cargo xtask bench proxy-cpu`.
//!
//! ```text
//! bare node LISTEN...        answers each request with a page
//! bare relay LISTEN NODE...  passes bytes between clients and nodes, each request to the next one
//! ```

mod node;
mod relay;

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::{AddrParseError, SocketAddr};

use mio::net::{TcpListener, TcpStream};

/// Size of a read. A message that is shorter has been read whole, and no second read has to find that out.
const READ: usize = 64 * 1024;

/// Maximum number of events of one wait, and of connections that wait to be accepted.
const EVENTS: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let never = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["node", ref listen @ ..] if !listen.is_empty() => node::run(&addresses(listen)?)?,
        ["relay", listen, ref nodes @ ..] if !nodes.is_empty() => relay::run(listen.parse()?, addresses(nodes)?)?,
        _ => {
            return Err(
                "write `bare node LISTEN...` or `bare relay LISTEN NODE...`, each with addresses as 127.0.0.1:8080"
                    .into(),
            );
        }
    };
    match never {}
}

/// Reads addresses as 127.0.0.1:8080.
fn addresses(words: &[&str]) -> Result<Vec<SocketAddr>, AddrParseError> {
    words.iter().map(|word| word.parse()).collect()
}

/// Accepts the next connection, if one waits.
fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((stream, _)) => stream.set_nodelay(true).map(|()| Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Receives what has arrived, if anything has, and returns its size: zero at the end of the connection.
fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match stream.read(buffer) {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// Sends as much as the connection takes, and returns how much that was. A connection that has ended takes everything.
fn send(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Ok(sent) => Ok(sent),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => Ok(0),
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            Ok(bytes.len())
        }
        Err(error) => Err(error),
    }
}
