//! A node and clients over blocking sockets, for experiments that count and do not time.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::steps::becomes_true;

/// Port of the node, which the configurations name.
const NODE: u16 = 18_110;

/// Fields of a browser besides `Host`, 16 in all.
pub(crate) const BROWSER: &str = "Connection: keep-alive\r\nCache-Control: max-age=0\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) \
    AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\nAccept: text/html,application/xhtml+xml,\
    application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\nReferer: https://www.shop.test/shop/items\r\nAccept-Encoding: gzip, \
    deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\r\nCookie: session=0123456789abcdef0123456789abcdef; \
    basket=4711,4712; theme=dark\r\n";

/// A process that is ended, even if its count fails.
pub(crate) struct Stopped(pub(crate) Child);

impl Stopped {
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Ends it in an orderly way, so that callgrind writes its counts.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        let _ = Command::new("kill").arg(self.0.id().to_string()).stderr(Stdio::null()).status();
        if becomes_true(|| self.has_ended()) { Ok(()) } else { Err("a proxy does not end".to_owned()) }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node with one page of 1,024 bytes. It never answers a request for `/hold`, and counts them.
pub(crate) struct Node {
    state: Arc<NodeState>,
    port: u16,
}

#[derive(Default)]
struct NodeState {
    ended: AtomicBool,
    held: AtomicU32,
}

impl Node {
    pub(crate) fn start() -> Result<Node, String> {
        Node::at(NODE)
    }

    pub(crate) fn at(port: u16) -> Result<Node, String> {
        let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|e| format!("port {port} of 127.0.0.1: {e}"))?;
        let node = Node { state: Arc::default(), port };
        let state = Arc::clone(&node.state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if state.ended.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&state);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Ok(node)
    }

    pub(crate) fn held(&self) -> u32 {
        self.state.held.load(Ordering::Relaxed)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Serves one connection. Requests come one after another and have no body.
fn serve(mut stream: TcpStream, state: &NodeState) {
    let page = format!(
        "HTTP/1.1 200 OK\r\nServer: node\r\nDate: Mon, 23 Nov 2026 16:00:00 GMT\r\nContent-Type: text/html\r\n\
         Content-Length: 1024\r\n\r\n{}",
        "w".repeat(1024)
    );
    let _ = stream.set_nodelay(true);
    let mut head = Vec::new();
    let mut buffer = [0; 8192];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        head.extend_from_slice(&buffer[..bytes]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        if head.starts_with(b"GET /hold ") {
            state.held.fetch_add(1, Ordering::Relaxed);
        } else if stream.write_all(page.as_bytes()).is_err() {
            return;
        }
        head.clear();
    }
}

/// A client with one connection, which asks one request after another.
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Result<Client, String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("port {port}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Client { stream, received: Vec::new() })
    }

    pub(crate) fn send(&mut self, path: &str, fields: &str) -> Result<(), String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: www.shop.test\r\n{fields}\r\n");
        self.stream.write_all(request.as_bytes()).map_err(|e| format!("the proxy takes no request: {e}"))
    }

    /// Whether a byte of a response has arrived.
    pub(crate) fn has_answer(&self) -> bool {
        let _ = self.stream.set_nonblocking(true);
        let answer = self.stream.peek(&mut [0]);
        let _ = self.stream.set_nonblocking(false);
        answer.is_ok()
    }

    /// Asks for `path` and returns the status of the response.
    pub(crate) fn ask(&mut self, path: &str, fields: &str) -> Result<String, String> {
        self.send(path, fields)?;
        self.answer()
    }

    /// Returns the status of the next response.
    pub(crate) fn answer(&mut self) -> Result<String, String> {
        self.received.clear();
        let mut buffer = [0; 8192];
        loop {
            let bytes = self.stream.read(&mut buffer).map_err(|e| format!("no response: {e}"))?;
            self.received.extend_from_slice(&buffer[..bytes]);
            let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") else {
                if bytes == 0 {
                    return Err("the proxy closed the connection".to_owned());
                }
                continue;
            };
            let head = String::from_utf8_lossy(&self.received[..end]).to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if self.received.len() < end + 4 + length.unwrap_or(0) {
                continue;
            }
            let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
            if head.lines().any(|line| line.starts_with("connection: close")) {
                let port = self.stream.peer_addr().map_err(|e| e.to_string())?.port();
                *self = Client::connect(port)?;
            }
            return Ok(status);
        }
    }
}

/// Occupies the slot and the queue of `shed.yaml`. Returns the connections that hold them, and one that is shed.
pub(crate) fn occupy(port: u16, node: &Node, path: &str, fields: &str) -> Result<(Vec<Client>, Client), String> {
    let mut first = Client::connect(port)?;
    let before = node.held();
    first.send("/hold", "")?;
    // HAProxy and nginx refuse without a request in flight, and forward this one like any other.
    if !becomes_true(|| node.held() > before) {
        return Err("the node gets no request".to_owned());
    }
    // One of two further requests waits, and the other one is shed.
    let (mut one, mut other) = (Client::connect(port)?, Client::connect(port)?);
    one.send(path, fields)?;
    other.send(path, fields)?;
    if !becomes_true(|| one.has_answer() || other.has_answer()) {
        return Err("no request is shed".to_owned());
    }
    let (mut shed, waiting) = if one.has_answer() { (one, other) } else { (other, one) };
    shed.answer()?;
    Ok((vec![first, waiting], shed))
}
