//! Constant load from clients that accept no failure: new connections for every request, and kept ones. A kept
//! connection is replaced only after an answer with `Connection: close`.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::head::head;

/// Number of clients of each kind.
const CLIENTS: usize = 4;

/// Running clients.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    /// Answers over new connections, and over kept ones.
    served: Arc<[AtomicU64; 2]>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(address: SocketAddr) -> Load {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let clients = (0..2 * CLIENTS)
            .map(|nth| {
                let (stop, served, kept) = (Arc::clone(&stop), Arc::clone(&served), nth % 2);
                std::thread::spawn(move || {
                    let mut connection = None;
                    while !stop.load(Ordering::Relaxed) {
                        let mut stream: TcpStream = connection
                            .take()
                            .unwrap_or_else(|| TcpStream::connect(address).expect("a connection is accepted"));
                        let (stays, text) = answer_to(&mut stream, "/").expect("a request is answered");
                        assert_eq!(text, "ok");
                        connection = (kept == 1 && stays).then_some(stream);
                        served[kept].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Load { stop, served, clients }
    }

    /// Waits until `count` more requests of each kind are answered.
    pub(crate) fn wait_for(&self, count: u64) {
        for served in self.served.iter() {
            let aim = served.load(Ordering::Relaxed) + count;
            while served.load(Ordering::Relaxed) < aim {
                let failed = self.clients.iter().any(JoinHandle::is_finished);
                assert!(!failed, "a client has failed");
                std::thread::yield_now();
            }
        }
    }

    /// Stops the clients.
    ///
    /// # Panics
    /// Panics if one of them was refused, reset or not answered.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("every request got its answer");
        }
    }
}

/// Sends a request on a new connection.
pub(crate) fn ask(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    answer_to(&mut stream, "/").map(|(_, text)| text)
}

/// Sends a request. Returns whether the connection stays open, and the body.
pub(crate) fn answer_to(stream: &mut TcpStream, path: &str) -> io::Result<(bool, String)> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes())?;
    answer(stream)
}

/// Reads an answer. Returns whether the connection stays open, and the body.
pub(crate) fn answer(stream: &mut TcpStream) -> io::Result<(bool, String)> {
    let head = head(stream)?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    stream.read_exact(&mut body)?;
    if !head.starts_with("http/1.1 200 ") {
        return Err(io::Error::other(head));
    }
    Ok((!head.contains("connection: close"), String::from_utf8_lossy(&body).into_owned()))
}
