//! One client connection: it sends a request and reads the reply.

use std::io::{self, Read, Write};

use mio::event::Event;
use mio::net::TcpStream;

use weirgate_emulator::body::Body;

/// Maximum size of a reply head in bytes.
const HEAD: usize = 80 * 1024;

/// Maximum number of header fields of a reply.
const HEADERS: usize = 128;

/// Size in bytes of the read buffer that all connections share.
pub(super) const READ: usize = 64 * 1024;

/// A connection, and the state of its request and reply.
pub(super) struct Exchange {
    stream: TcpStream,
    stage: Stage,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    readable: bool,
    writable: bool,
    closed: bool,
    is_head: bool,
    keep_alive: bool,
    reply: Reply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Connecting,
    /// Waits for the head of the reply.
    Head,
    /// Waits for the rest of the body.
    Body(Body),
}

/// A complete reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Size of the body in bytes.
    pub bytes: u64,
    /// Whether it has a field `X-Node`. Emulated nodes send the field. A gateway's own replies do not have it.
    pub from_node: bool,
    /// Time in microseconds that the request spent in an emulated node, from the field `X-InFlight`.
    pub in_flight: Option<u64>,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A complete reply arrived.
    Reply(Reply),
    /// No connection could be opened.
    NoConnection,
    /// The connection ended before the reply was complete.
    Reset,
    /// The reply is not valid HTTP.
    Garbled,
}

/// State of a connection after [`Exchange::go_on`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The connection waits for the network or for a request.
    Wait,
    /// The request is over. If the connection had no request, the connection itself is over. `reusable` says whether it
    /// can carry another request.
    Over { ending: Ending, reusable: bool },
}

impl Progress {
    /// Both the request and the connection are over.
    fn last(ending: Ending) -> Progress {
        Progress::Over { ending, reusable: false }
    }
}

impl Exchange {
    /// Wraps a stream that is still connecting.
    pub(super) fn new(stream: TcpStream) -> Exchange {
        Exchange {
            stream,
            stage: Stage::Connecting,
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            readable: false,
            writable: false,
            closed: false,
            is_head: false,
            keep_alive: true,
            reply: Reply::default(),
        }
    }

    /// Puts a request on the connection. The next [`Exchange::go_on`] sends it.
    pub(super) fn send(&mut self, is_head: bool, write: impl FnOnce(&mut Vec<u8>)) {
        self.output.clear();
        write(&mut self.output);
        self.sent = 0;
        self.is_head = is_head;
        self.reply = Reply::default();
        if self.stage == Stage::Idle {
            self.stage = Stage::Head;
        }
    }

    /// Notes the readiness that an event reports.
    pub(super) fn ready(&mut self, event: &Event) {
        self.closed |= event.is_read_closed() || event.is_error();
        self.readable |= event.is_readable() || self.closed;
        self.writable |= event.is_writable();
    }

    /// Connects, writes and reads as far as possible without blocking.
    pub(super) fn go_on(&mut self, buffer: &mut [u8]) -> Progress {
        if self.stage == Stage::Connecting {
            if !self.writable && !self.readable {
                return Progress::Wait;
            }
            if !matches!(self.stream.take_error(), Ok(None)) || self.stream.peer_addr().is_err() {
                return Progress::last(Ending::NoConnection);
            }
            self.stage = Stage::Head;
        }
        while self.writable && self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The server may have answered before it closed. That answer counts, so reading goes on.
                Err(_) => break,
            }
        }
        while self.readable {
            match self.stream.read(buffer) {
                Ok(0) if self.stage == Stage::Body(Body::UntilClose) => {
                    return Progress::last(Ending::Reply(self.reply));
                }
                Ok(0) => return Progress::last(Ending::Reset),
                Ok(n) => {
                    // Events are edge-triggered. A read that does not fill the buffer has emptied the socket. Only the
                    // end of the connection may remain, and no further event may report it.
                    self.readable = n == buffer.len() || self.closed;
                    match self.take(&buffer[..n]) {
                        Ok(true) => {
                            let clean = self.input.is_empty() && self.sent == self.output.len();
                            let reusable = self.keep_alive && clean && !self.closed;
                            self.stage = Stage::Idle;
                            return Progress::Over { ending: Ending::Reply(self.reply), reusable };
                        }
                        Ok(false) => {}
                        Err(()) => return Progress::last(Ending::Garbled),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Progress::last(Ending::Reset),
            }
        }
        Progress::Wait
    }

    /// Adds `bytes` to the reply. Returns whether the reply is complete, or an error if it is not valid HTTP.
    fn take(&mut self, bytes: &[u8]) -> Result<bool, ()> {
        if self.stage == Stage::Idle {
            return Err(());
        }
        self.input.extend_from_slice(bytes);
        loop {
            match &mut self.stage {
                Stage::Body(body) => {
                    let (used, payload) = body.take(&self.input).map_err(|_| ())?;
                    self.reply.bytes += payload;
                    let done = *body == Body::Done;
                    self.input.drain(..used);
                    return Ok(done);
                }
                _ => {
                    let Some(head) = head(&self.input, self.is_head)? else {
                        return if self.input.len() > HEAD { Err(()) } else { Ok(false) };
                    };
                    self.input.drain(..head.length);
                    if head.status >= 200 {
                        self.reply.status = head.status;
                        self.reply.from_node = head.from_node;
                        self.reply.in_flight = head.in_flight;
                        self.keep_alive = head.keep_alive && head.body != Body::UntilClose;
                        self.stage = Stage::Body(head.body);
                    }
                }
            }
        }
    }
}

#[derive(Debug, PartialEq)]
struct Head {
    length: usize,
    status: u16,
    keep_alive: bool,
    from_node: bool,
    in_flight: Option<u64>,
    body: Body,
}

/// Parses the reply head at the start of `bytes`. Returns `None` if the head is not complete yet.
fn head(bytes: &[u8], is_head: bool) -> Result<Option<Head>, ()> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(n)) => n,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(()),
    };
    let status = parsed.code.ok_or(())?;
    let mut keep_alive = parsed.version == Some(1);
    let mut body = Body::UntilClose;
    let (mut from_node, mut in_flight) = (false, None);
    for header in parsed.headers.iter() {
        let value = header.value.trim_ascii();
        if header.name.eq_ignore_ascii_case("content-length") {
            let n = str::from_utf8(value).ok().and_then(|v| v.parse().ok()).ok_or(())?;
            if body == Body::UntilClose {
                body = Body::Length(n);
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            body = Body::Size;
        } else if header.name.eq_ignore_ascii_case("connection") {
            for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    keep_alive = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    keep_alive = true;
                }
            }
        } else if header.name.eq_ignore_ascii_case("x-node") {
            from_node = true;
        } else if header.name.eq_ignore_ascii_case("x-inside") {
            in_flight = str::from_utf8(value).ok().and_then(|v| v.parse().ok());
        }
    }
    if is_head || status < 200 || status == 204 || status == 304 {
        body = Body::Length(0);
    }
    Ok(Some(Head { length, status, keep_alive, from_node, in_flight, body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_framed_as_the_standard_says() {
        let of = |text: &str, is_head| head(text.as_bytes(), is_head).unwrap().unwrap();
        assert_eq!(of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false).body, Body::Length(5));
        assert_eq!(of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true).body, Body::Length(0));
        assert_eq!(of("HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n", false).body, Body::Length(0));
        assert_eq!(
            of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", false).body,
            Body::Size
        );
        assert_eq!(of("HTTP/1.1 200 OK\r\n\r\n", false).body, Body::UntilClose);
        assert!(of("HTTP/1.1 200 OK\r\n\r\n", false).keep_alive);
        assert!(!of("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", false).keep_alive);
        assert!(!of("HTTP/1.0 200 OK\r\n\r\n", false).keep_alive);
        assert!(of("HTTP/1.1 200 OK\r\nx-node: n1\r\n\r\n", false).from_node);
        let in_flight = |value: &str| of(&format!("HTTP/1.1 200 OK\r\nX-Inside: {value}\r\n\r\n"), false).in_flight;
        assert_eq!((in_flight("1250"), in_flight("-1"), in_flight("1ms")), (Some(1250), None, None));
        assert!(!of("HTTP/1.1 200 OK\r\nx-nodes: n1\r\n\r\n", false).from_node);
        assert_eq!(head(b"HTTP/1.1 20", false), Ok(None));
        assert_eq!(head(b"\x80\x81\x82", false), Err(()));
        assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", false), Err(()));
    }
}
