//! One connection to an emulated node: bytes in, bytes out, one request at a time.
//!
//! The poll is edge-triggered, so a connection remembers that it may be readable or writable until a
//! call says `WouldBlock`.

use std::io::{self, Read, Write};

use mio::net::TcpStream;

use crate::body::Body;
use crate::request::{self, Request};

/// Largest request head; the gateway lets 64 KiB through and may add to it.
const HEAD: usize = 80 * 1024;

/// Bytes read at a time, into one buffer for all connections.
pub(crate) const READ: usize = 16 * 1024;

/// What reply bodies are made of.
static FILLER: [u8; 16 * 1024] = [b'w'; 16 * 1024];

/// A connection that a node accepted.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// The node that accepted it.
    pub(crate) node: usize,
    /// Tells this connection from earlier ones at the same place.
    pub(crate) generation: u32,
    input: Vec<u8>,
    stage: Stage,
    keep_alive: bool,
    readable: bool,
}

#[derive(Debug)]
enum Stage {
    /// A request head is awaited.
    Head,
    /// A request body is awaited.
    Body(Box<Request>, Body),
    /// The request is inside the node.
    Inside,
    /// A reply goes out: its head from the position, then so many bytes of filler.
    Reply { head: Vec<u8>, sent: usize, filler: usize, counts: bool },
}

/// What came of going on with a connection.
#[derive(Debug)]
pub(crate) enum Step {
    /// It waits for the network or for the node.
    Wait,
    /// A request is here, whole.
    Arrived(Box<Request>),
    /// A reply was written to the end; go on.
    Replied,
    /// It cannot be understood; a reply that says so is on its way; go on.
    Bad,
    /// It is over. `amid` a request or reply?
    Closed { amid: bool },
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, node: usize, generation: u32) -> Connection {
        Connection { stream, node, generation, input: Vec::new(), stage: Stage::Head, keep_alive: true, readable: true }
    }

    /// More may have come in.
    pub(crate) fn readable(&mut self) {
        self.readable = true;
    }

    /// A request is inside the node.
    pub(crate) fn is_inside(&self) -> bool {
        matches!(self.stage, Stage::Inside)
    }

    /// Begins a reply. `body` is how many bytes it has; a `HEAD` request gets the head alone.
    pub(crate) fn reply(&mut self, status: &str, node: &str, body: usize, is_head: bool) {
        let connection = if self.keep_alive { "" } else { "Connection: close\r\n" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {body}\r\nX-Node: {node}\r\n{connection}\r\n"
        );
        self.stage =
            Stage::Reply { head: head.into_bytes(), sent: 0, filler: if is_head { 0 } else { body }, counts: true };
    }

    /// Begins to answer with something that is not HTTP, and closes then.
    pub(crate) fn garbage(&mut self) {
        self.keep_alive = false;
        // Neither a status line nor an end of lines for as long as a parser may look for one.
        let head = (0..512u16).map(|i| (i.wrapping_mul(151) % 251) as u8 | 0x80).collect();
        self.stage = Stage::Reply { head, sent: 0, filler: 0, counts: true };
    }

    /// Goes on as far as possible without waiting. Call it again unless it says to wait or is closed.
    pub(crate) fn go_on(&mut self, buffer: &mut [u8]) -> Step {
        match self.drive(buffer) {
            Ok(step) => step,
            Err(_) => Step::Closed { amid: !matches!(self.stage, Stage::Head) || !self.input.is_empty() },
        }
    }

    fn drive(&mut self, buffer: &mut [u8]) -> io::Result<Step> {
        loop {
            match &mut self.stage {
                Stage::Inside => return Ok(Step::Wait),
                Stage::Reply { .. } => return self.write(),
                Stage::Head => match request::parse(&self.input) {
                    Ok(Some(request)) => {
                        self.input.drain(..request.head);
                        self.keep_alive = request.keep_alive;
                        if request.expects {
                            // 25 bytes into an empty send buffer; a connection that cannot take them is of no use.
                            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                        }
                        let body = request.body;
                        self.stage = Stage::Body(Box::new(request), body);
                    }
                    Ok(None) if self.input.len() > HEAD => return Ok(self.refuse("the head is too large")),
                    Ok(None) => {
                        if !self.read(buffer)? {
                            return Ok(Step::Wait);
                        }
                    }
                    Err(what) => return Ok(self.refuse(&what)),
                },
                Stage::Body(_, body) => {
                    let Ok((used, _)) = body.take(&self.input) else {
                        return Ok(self.refuse("bad chunk"));
                    };
                    self.input.drain(..used);
                    if *body != Body::Done {
                        if !self.read(buffer)? {
                            return Ok(Step::Wait);
                        }
                    } else if let Stage::Body(request, _) = std::mem::replace(&mut self.stage, Stage::Inside) {
                        return Ok(Step::Arrived(request));
                    }
                }
            }
        }
    }

    /// Reads what is there; `false`: nothing for now.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        if !self.readable {
            return Ok(false);
        }
        match self.stream.read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.input.extend_from_slice(&buffer[..n]);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(false)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn write(&mut self) -> io::Result<Step> {
        let Stage::Reply { head, sent, filler, counts } = &mut self.stage else {
            return Ok(Step::Wait);
        };
        if *sent == 0 && *filler > 0 {
            // A small body goes out with its head in one call.
            let first = (*filler).min(FILLER.len());
            head.extend_from_slice(&FILLER[..first]);
            *filler -= first;
        }
        loop {
            let bytes = if *sent < head.len() { &head[*sent..] } else { &FILLER[..(*filler).min(FILLER.len())] };
            if bytes.is_empty() {
                break;
            }
            match self.stream.write(bytes) {
                Ok(n) if *sent < head.len() => *sent += n,
                Ok(n) => *filler -= n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Step::Wait),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let counts = *counts;
        self.stage = Stage::Head;
        if counts && self.keep_alive {
            return Ok(Step::Replied);
        }
        if counts {
            // The reply is complete; closing comes with the next step.
            self.stage = Stage::Reply { head: Vec::new(), sent: 0, filler: 0, counts: false };
            return Ok(Step::Replied);
        }
        self.input.clear();
        Ok(Step::Closed { amid: false })
    }

    fn refuse(&mut self, what: &str) -> Step {
        self.keep_alive = false;
        self.input.clear();
        let body = format!("{what}\n");
        let head = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        self.stage = Stage::Reply { head: head.into_bytes(), sent: 0, filler: 0, counts: true };
        Step::Bad
    }
}
