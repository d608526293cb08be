//! A node that answers every request with 103 (RFC 8297) without end.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use weirgate_emulator::clock;

/// Responses in one write, and the pause after it: 20,000 a second on each connection. Without the pause the threads
/// would take the processor from the other nodes, which on a real site have their own.
const BATCH: usize = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// Starts the node and returns its address. Its threads end with their connections, and the last one with the process.
///
/// # Errors
/// No port is free.
pub(crate) fn start() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("node of 103s: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("node of 103s: {error}"))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream) {
    let interim = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n".repeat(BATCH);
    // The content of the request does not matter, nor how the gateway ends the connection.
    if stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
        while stream.write_all(&interim).is_ok() {
            clock::pause(PAUSE);
        }
    }
}
