//! One connection to an emulated node: bytes in, bytes out, one request at a time.
//!
//! The poll is edge-triggered, so a connection remembers that it may be readable or writable until a
//! call says `WouldBlock`.

use std::io::{self, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;

use crate::body::Body;
use crate::clock;
use crate::request::{self, Content, Request};

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
    /// What the request inside is to be answered with, or was last.
    pub(crate) answer: Answer,
    input: Vec<u8>,
    stage: Stage,
    keep_alive: bool,
    readable: bool,
    /// The client sends nothing any more: what is left can be read to the end.
    ended: bool,
}

/// What a request is answered with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// Bytes of the body.
    pub(crate) bytes: usize,
    /// The request was `HEAD`: the reply has no body.
    pub(crate) is_head: bool,
    /// The request's id, sent back.
    pub(crate) id: Option<Arc<str>>,
    /// What the request asked for.
    pub(crate) content: Content,
    /// On the clock, when it was here whole.
    pub(crate) since: u64,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// 200.
    #[default]
    Done,
    /// 500.
    Failed,
    /// 503.
    Full,
    /// With something that is not HTTP.
    Garbage,
}

#[derive(Debug)]
enum Stage {
    /// A request head is awaited.
    Head,
    /// A request body is awaited.
    Body(Box<Request>, Body),
    /// The request is inside the node.
    Inside,
    /// A reply has begun and streams: so many bytes of its body are left.
    Streaming { left: usize },
    /// A reply goes out: its head from the position, then so many bytes of filler. If so many bytes are `kept` for
    /// later, it streams on then.
    Reply { head: Vec<u8>, sent: usize, filler: usize, counts: bool, kept: usize },
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
        let (answer, input, stage) = (Answer::default(), Vec::new(), Stage::Head);
        Connection { stream, node, generation, answer, input, stage, keep_alive: true, readable: true, ended: false }
    }

    /// More may have come in; `ended`: and nothing will come after it.
    pub(crate) fn readable(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// A request is inside the node.
    pub(crate) fn is_inside(&self) -> bool {
        matches!(self.stage, Stage::Inside | Stage::Streaming { .. })
    }

    /// What is asked for by the request that the node is working on: at work, waiting or being sent.
    pub(crate) fn active(&self) -> Option<Content> {
        matches!(self.stage, Stage::Inside | Stage::Streaming { .. } | Stage::Reply { counts: true, .. })
            .then_some(self.answer.content)
    }

    /// Begins to answer with a report of so many requests for static and dynamic content, and of the node's `usage`,
    /// which is JSON.
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

    /// Begins the reply that [`Connection::answer`] says. `X-Inside` is how long the request was in the node, in
    /// microseconds: so a client can tell that from the time that it waited elsewhere.
    pub(crate) fn reply(&mut self, node: &str) {
        match &mut self.stage {
            // It has begun: the rest goes out.
            Stage::Streaming { left } => {
                let filler = *left;
                self.stage = Stage::Reply { head: Vec::new(), sent: 0, filler, counts: true, kept: 0 };
            }
            Stage::Reply { filler, kept, .. } if *kept > 0 => *filler += std::mem::take(kept),
            _ => self.answer_whole(node),
        }
    }

    /// Begins the reply with its head and a byte of its body, or sends one more of one that has begun; the last waits
    /// for [`Connection::reply`]. A reply without a body has nothing to begin with.
    pub(crate) fn begin(&mut self, node: &str) {
        match &mut self.stage {
            Stage::Streaming { left } if *left > 1 => {
                let kept = *left - 1;
                self.stage = Stage::Reply { head: Vec::new(), sent: 0, filler: 1, counts: true, kept };
            }
            Stage::Inside if !self.answer.is_head && self.answer.status == Status::Done => {
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
        let inside = clock::now().saturating_sub(since) / 1000;
        let head = format!(
            "HTTP/1.1 {line}\r\nContent-Type: text/plain\r\nContent-Length: {bytes}\r\nX-Node: {node}\r\n\
             X-Inside: {inside}\r\n{echo}{id}{end}{connection}\r\n"
        );
        self.stage = Stage::Reply {
            head: head.into_bytes(),
            sent: 0,
            filler: if is_head { 0 } else { bytes },
            counts: true,
            kept: 0,
        };
    }

    /// Begins to answer with something that is not HTTP, and closes then.
    fn garbage(&mut self) {
        self.keep_alive = false;
        // Neither a status line nor an end of lines for as long as a parser may look for one.
        let head = (0..512u16).map(|i| (i.wrapping_mul(151) % 251) as u8 | 0x80).collect();
        self.stage = Stage::Reply { head, sent: 0, filler: 0, counts: true, kept: 0 };
    }

    /// From now on a close resets the connection: what the client has not read yet is lost.
    ///
    /// # Errors
    /// The connection is gone already.
    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_socket_linger(&self.stream, Some(std::time::Duration::ZERO))?)
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
                Stage::Inside | Stage::Streaming { .. } => return Ok(Step::Wait),
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
                // Less than asked for is all there is: more rings anew (epoll(7)), but an end that came
                // with it has rung already.
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
            // The reply is complete; closing comes with the next step.
            self.stage = Stage::Reply { head: Vec::new(), sent: 0, filler: 0, counts: false, kept: 0 };
            return Ok(Step::Replied);
        }
        self.input.clear();
        Ok(Step::Closed { amid: false })
    }

    fn refuse(&mut self, what: &str) -> Step {
        self.keep_alive = false;
        // No id that was read before is answered by this.
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
