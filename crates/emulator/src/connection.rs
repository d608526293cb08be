//! One connection to an emulated node. It handles one request at a time.
//!
//! The poll is edge-triggered, so a connection remembers that it may be readable or writable until a call
//! returns `WouldBlock`.

use std::io::{self, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;

use crate::body::Body;
use crate::clock;
use crate::request::{self, Content, Request};

/// Largest request head, in bytes. The gateway accepts heads of up to 64 KiB and may add to them.
const HEAD: usize = 80 * 1024;

/// Maximum number of bytes per read, into one buffer for all connections.
pub(crate) const READ: usize = 16 * 1024;

/// Content of reply bodies.
static FILLER: [u8; 16 * 1024] = [b'w'; 16 * 1024];

/// A connection that a node accepted.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// Index of the node that accepted it.
    pub(crate) node: usize,
    /// Number that tells this connection from earlier ones in the same slot.
    pub(crate) generation: u32,
    /// Answer to the request in flight, or to the last one.
    pub(crate) answer: Answer,
    input: Vec<u8>,
    stage: Stage,
    keep_alive: bool,
    readable: bool,
    /// The client sends nothing more. Input that is left can be read to the end.
    ended: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// Size of the body in bytes.
    pub(crate) bytes: usize,
    /// The request was `HEAD`, so the reply has no body.
    pub(crate) is_head: bool,
    /// Id of the request, sent back in the reply.
    pub(crate) id: Option<Arc<str>>,
    /// Kind of content that the request asked for.
    pub(crate) content: Content,
    /// Instant at which the request was received completely, in nanoseconds of [`clock::now`].
    pub(crate) since: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// 200.
    #[default]
    Done,
    /// 500.
    Failed,
    /// 503.
    Full,
    /// Bytes that are not HTTP.
    Garbage,
}

enum Stage {
    /// The connection awaits a request head.
    Head,
    /// The connection awaits a request body.
    Body(Box<Request>, Body),
    /// The request is in flight in the node.
    InFlight,
    /// A reply has begun and streams. `left` bytes of its body are left.
    Streaming { left: usize },
    /// A reply goes out: its head from position `sent` on, then `filler` bytes of body. If `kept` is not
    /// zero, that many bytes are kept for later and the reply then streams on.
    Reply { head: Vec<u8>, sent: usize, filler: usize, counts: bool, kept: usize },
}

/// Result of driving a connection.
pub(crate) enum Step {
    /// The connection waits for the network or for the node.
    Wait,
    /// A request has been received completely.
    Arrived(Box<Request>),
    /// A reply was written completely. Continue.
    Replied,
    /// The input cannot be parsed, and a reply that says so is on its way. Continue.
    Bad,
    /// The connection is closed. `amid` tells whether that was during a request or reply.
    Closed { amid: bool },
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, node: usize, generation: u32) -> Connection {
        let (answer, input, stage) = (Answer::default(), Vec::new(), Stage::Head);
        Connection { stream, node, generation, answer, input, stage, keep_alive: true, readable: true, ended: false }
    }

    /// Notes that more input may have come in. If `ended`, no input will follow it.
    pub(crate) fn readable(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// Whether a request is in flight in the node.
    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.stage, Stage::InFlight | Stage::Streaming { .. })
    }

    /// Content asked for by the request that the node is working on, whether it is in service, waiting or being sent.
    pub(crate) fn active(&self) -> Option<Content> {
        matches!(self.stage, Stage::InFlight | Stage::Streaming { .. } | Stage::Reply { counts: true, .. })
            .then_some(self.answer.content)
    }

    /// Begins to answer with a report of the number of requests for static and dynamic content, and of the
    /// node's `usage`, which is JSON.
    pub(crate) fn report(&mut self, static_content: usize, dynamic_content: usize, usage: &str) {
        let active = format!("{{\"static\":{static_content},\"dynamic\":{dynamic_content}}}");
        let body = format!("{{\"version\":1,\"active\":{active},\"usage\":{usage}}}\n");
        let connection = if self.keep_alive { "" } else { "Connection: close\r\n" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{connection}\r\n{}",
            body.len(),
            if self.answer.is_head { "" } else { &body }
        );
        self.stage = Stage::Reply { head: head.into_bytes(), sent: 0, filler: 0, counts: true, kept: 0 };
    }

    /// Begins the reply described by [`Connection::answer`]. `X-InFlight` is the time that the request spent
    /// in the node, in microseconds. With it a client can tell this time from the time spent waiting elsewhere.
    pub(crate) fn reply(&mut self, node: &str) {
        match &mut self.stage {
            // The reply has begun. The rest goes out.
            Stage::Streaming { left } => {
                let filler = *left;
                self.stage = Stage::Reply { head: Vec::new(), sent: 0, filler, counts: true, kept: 0 };
            }
            Stage::Reply { filler, kept, .. } if *kept > 0 => *filler += std::mem::take(kept),
            _ => self.answer_whole(node),
        }
    }

    /// Begins the reply with its head and one byte of its body, or sends one more byte of a reply that has
    /// begun. The last byte waits for [`Connection::reply`]. A reply without a body sends nothing early.
    pub(crate) fn begin(&mut self, node: &str) {
        match &mut self.stage {
            Stage::Streaming { left } if *left > 1 => {
                let kept = *left - 1;
                self.stage = Stage::Reply { head: Vec::new(), sent: 0, filler: 1, counts: true, kept };
            }
            Stage::InFlight if !self.answer.is_head && self.answer.status == Status::Done => {
                self.answer_whole(node);
                if let Stage::Reply { filler, kept, .. } = &mut self.stage
                    && *filler > 1
                {
                    (*filler, *kept) = (1, *filler - 1);
                }
            }
            _ => {}
        }
    }

    fn answer_whole(&mut self, node: &str) {
        let Answer { status, bytes, is_head, ref id, content: _, since } = self.answer;
        let line = match status {
            Status::Done => "200 OK",
            Status::Failed => "500 Internal Server Error",
            Status::Full => "503 Service Unavailable",
            Status::Garbage => return self.garbage(),
        };
        let connection = if self.keep_alive { "" } else { "Connection: close\r\n" };
        let (echo, id, end) = id.as_deref().map_or(("", "", ""), |id| ("X-Request-Id: ", id, "\r\n"));
        let in_flight = clock::now().saturating_sub(since) / 1000;
        let head = format!(
            "HTTP/1.1 {line}\r\nContent-Type: text/plain\r\nContent-Length: {bytes}\r\nX-Node: {node}\r\n\
             X-Inside: {in_flight}\r\n{echo}{id}{end}{connection}\r\n"
        );
        self.stage = Stage::Reply {
            head: head.into_bytes(),
            sent: 0,
            filler: if is_head { 0 } else { bytes },
            counts: true,
            kept: 0,
        };
    }

    /// Begins to answer with bytes that are not HTTP, and then closes the connection.
    fn garbage(&mut self) {
        self.keep_alive = false;
        // Contains no status line and no line end for as long as a parser may look for one.
        let head = (0..512u16).map(|i| (i.wrapping_mul(151) % 251) as u8 | 0x80).collect();
        self.stage = Stage::Reply { head, sent: 0, filler: 0, counts: true, kept: 0 };
    }

    /// Makes a later close reset the connection. Data that the client has not read is then lost.
    ///
    /// # Errors
    /// The connection is gone already.
    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_socket_linger(&self.stream, Some(std::time::Duration::ZERO))?)
    }

    /// Drives the connection as far as possible without waiting. Call it again unless it returns
    /// [`Step::Wait`] or [`Step::Closed`].
    pub(crate) fn go_on(&mut self, buffer: &mut [u8]) -> Step {
        match self.drive(buffer) {
            Ok(step) => step,
            Err(_) => Step::Closed { amid: !matches!(self.stage, Stage::Head) || !self.input.is_empty() },
        }
    }

    fn drive(&mut self, buffer: &mut [u8]) -> io::Result<Step> {
        loop {
            match &mut self.stage {
                Stage::InFlight | Stage::Streaming { .. } => return Ok(Step::Wait),
                Stage::Reply { .. } => return self.write(),
                Stage::Head if self.input.is_empty() => {
                    if !self.read(buffer)? {
                        return Ok(Step::Wait);
                    }
                }
                Stage::Head => match request::parse(&self.input) {
                    Ok(Some(request)) => {
                        self.input.drain(..request.head);
                        self.keep_alive = request.keep_alive;
                        if request.expects {
                            // 25 bytes into an empty send buffer. A connection that cannot take them is of no use.
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
                    } else if let Stage::Body(request, _) = std::mem::replace(&mut self.stage, Stage::InFlight) {
                        return Ok(Step::Arrived(request));
                    }
                }
            }
        }
    }

    /// Reads the available input. Returns `false` if there is none for now.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        if !self.readable {
            return Ok(false);
        }
        match self.stream.read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.input.extend_from_slice(&buffer[..n]);
                // A short read has emptied the buffer, and more input raises a new event (epoll(7)). But an
                // end that came with the input has raised its event already.
                self.readable = n == buffer.len() || self.ended;
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
        let Stage::Reply { head, sent, filler, counts, kept } = &mut self.stage else {
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
        let (counts, kept) = (*counts, *kept);
        if kept > 0 {
            self.stage = Stage::Streaming { left: kept };
            return Ok(Step::Wait);
        }
        self.stage = Stage::Head;
        if counts && self.keep_alive {
            return Ok(Step::Replied);
        }
        if counts {
            // The reply is complete. The next step closes the connection.
            self.stage = Stage::Reply { head: Vec::new(), sent: 0, filler: 0, counts: false, kept: 0 };
            return Ok(Step::Replied);
        }
        self.input.clear();
        Ok(Step::Closed { amid: false })
    }

    fn refuse(&mut self, what: &str) -> Step {
        self.keep_alive = false;
        // This reply answers none of the ids read before.
        self.answer.id = None;
        self.input.clear();
        let body = format!("{what}\n");
        let head = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        self.stage = Stage::Reply { head: head.into_bytes(), sent: 0, filler: 0, counts: true, kept: 0 };
        Step::Bad
    }
}
