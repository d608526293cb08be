//! A node that works on one request at a time, and whose paths have the faults of real ones.

use std::collections::HashMap;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weirgate_clock::pause;

use crate::head::head;

/// Bytes of the response at `/large`.
const LARGE: usize = 8 << 20;

/// A part of it.
static PIECE: [u8; 64 << 10] = [b'w'; 64 << 10];

/// Time that a request for `/work` takes.
const WORK: Duration = Duration::from_millis(5);

/// Interim responses in one write, and the pause after it: 20,000 a second, without taking the processor from others.
const BATCH: usize = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// A running node.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Requests so far, by path.
    asked: Mutex<HashMap<String, u32>>,
    /// Held during the work on a request.
    processor: Mutex<()>,
}

impl Node {
    pub(crate) fn start() -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let node = Node { address: listener.local_addr().expect("an address"), state: Arc::default() };
        let state = Arc::clone(&node.state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        node
    }

    /// Returns the number of requests for `path`.
    pub(crate) fn asked(&self, path: &str) -> u32 {
        self.state.asked.lock().expect("no panic").get(path).copied().unwrap_or(0)
    }
}

/// Serves a connection until it ends. The body of a POST is read until then, and not answered.
fn serve(mut stream: TcpStream, state: &State) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    loop {
        let head = head(&mut lines).ok()?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        *state.asked.lock().ok()?.entry(path.to_owned()).or_default() += 1;
        match path {
            _ if head.starts_with("POST ") => {
                std::io::copy(&mut lines, &mut std::io::sink()).ok()?;
                return None;
            }
            "/large" => {
                stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n").as_bytes()).ok()?;
                for _ in 0..LARGE / PIECE.len() {
                    stream.write_all(&PIECE).ok()?;
                }
                continue;
            }
            "/interim" => loop {
                stream.write_all(&b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n".repeat(BATCH)).ok()?;
                pause(PAUSE);
            },
            "/hang" => {
                // Until the gateway gives up.
                lines.read_exact(&mut [0]).ok()?;
                return None;
            }
            "/work" => {
                let _busy = state.processor.lock().ok()?;
                pause(WORK);
            }
            _ => {}
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok()?;
    }
}
