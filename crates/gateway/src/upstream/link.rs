//! One connection to a node: the task that uses it reads and writes it. Messages are read by `weirgate-http1`.
//!
//! Source: RFC 9112 Sec. 9 (connection management).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weirgate_engine::Time;
use weirgate_http1::{Event, Head, Length, Limits, Responses, write};

use super::http2::NodeStream;
use super::inbox::Inbox;
use crate::hops::PROTECTED;
use crate::io::Io;
use crate::received_body::ReceivedBody;
use crate::tunnel::Side;

/// Limits for the head of a response and for its trailers. Nodes are the operator's own, so they may send more than a
/// client: HAProxy's default buffer is 16 KiB, nginx takes 8 KiB of head from a node.
const LIMITS: Limits = Limits { head_bytes: KEPT, fields: 1000 };

/// Maximum number of unexamined bytes between two turns: less than a head.
pub(super) const KEPT: usize = 64 * 1024;

/// Maximum number of bytes of a body that are sent at once.
const PIECE: usize = 64 * 1024;

/// Maximum number of reads in one turn of the connection's task. A node that sends one interim response after the other
/// then leaves turns for other connections, and its deadline is checked.
const READS: u32 = 16;

/// A connection to a node. It is boxed while it is open, because it moves with every request: from the pool to the
/// request and back.
#[derive(Debug)]
pub(crate) struct Link {
    stream: Transport,
    responses: Responses,
    /// Bytes received and not yet examined.
    kept: Vec<u8>,
    /// Bytes of the request that the node has not taken.
    unsent: BytesMut,
    /// Whether a byte of the request has been sent.
    begun: bool,
    /// Whether no byte of the request follows those in `unsent`.
    staged: bool,
    /// Event of the response that [`Link::look_ahead`] has found. The parser names each byte once.
    ahead: Option<Event>,
    /// Whether the response has ended.
    ended: bool,
    /// Whether this side or the node closes the connection after the response.
    closing: bool,
    /// Number of reads in this turn.
    reads: u32,
    received: u64,
    /// Whether it has already served a request.
    used: bool,
    /// When its latest request was sent, and how long the node took to answer it.
    sent: Time,
    answer_time: Duration,
}

/// What carries the bytes of a connection.
#[derive(Debug)]
enum Transport {
    Socket(Io),
    /// A stream of a connection that speaks HTTP/2, which carries one request.
    Http2(Box<NodeStream>),
}

impl AsyncRead for Transport {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Socket(socket) => Pin::new(socket).poll_read(cx, buffer),
            Transport::Http2(stream) => stream.poll_read(cx, buffer),
        }
    }
}

impl Transport {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Socket(socket) => Pin::new(socket).poll_write(cx, bytes),
            Transport::Http2(stream) => stream.poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Socket(socket) => Pin::new(socket).poll_flush(cx),
            Transport::Http2(_) => Poll::Ready(Ok(())),
        }
    }

    fn is_tls(&self) -> bool {
        matches!(self, Transport::Socket(socket) if socket.is_tls())
    }
}

/// State of sending a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// All of it has been sent.
    Done,
    /// The node has to read.
    Node,
    /// The client has to send.
    Client,
    /// The connection failed before anything was sent.
    Unsent,
}

/// Reason why a response has no further event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The connection ended too early.
    Closed,
    /// The node has certainly not processed the request.
    Refused,
    /// The response breaks a rule.
    Malformed,
}

impl Link {
    pub(crate) fn new(socket: Io) -> Box<Link> {
        Link::over(Transport::Socket(socket), false)
    }

    /// Wraps a stream. `used` tells whether its connection has served another request.
    pub(super) fn over_http2(stream: Box<NodeStream>, used: bool) -> Box<Link> {
        Link::over(Transport::Http2(stream), used)
    }

    fn over(stream: Transport, used: bool) -> Box<Link> {
        // A stream carries one request.
        let closing = matches!(stream, Transport::Http2(_));
        Box::new(Link {
            stream,
            responses: Responses::new(LIMITS),
            kept: Vec::new(),
            unsent: BytesMut::new(),
            begun: false,
            staged: true,
            ahead: None,
            ended: true,
            closing,
            reads: 0,
            received: 0,
            used,
            sent: Time::ZERO,
            answer_time: Duration::ZERO,
        })
    }

    /// Whether it has already served a request.
    pub(crate) fn is_used(&self) -> bool {
        self.used
    }

    /// Returns the number of bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Records the answer's head. A failed request counts as one that took for ever.
    pub(crate) fn answered(&mut self, now: Time, status: u16) {
        self.answer_time = if status < 500 { now.since(self.sent) } else { Duration::MAX };
    }

    /// Returns the time from the latest request to the head of its answer.
    pub(super) fn answer_time(&self) -> Duration {
        self.answer_time
    }

    /// Whether it can take another request, as far as is known without a look at the socket.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && !self.closing && self.kept.is_empty()
    }

    /// Whether it can take a request now. Checks whether the node has closed it meanwhile or sent something unasked.
    /// Also drops the waker of the last task that used it.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let silent = Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer);
        self.is_done() && silent.is_pending()
    }

    /// Begins a request with this method at `now`. [`Link::send`] sends it.
    pub(crate) fn begin(&mut self, method: &str, now: Time) {
        self.sent = now;
        self.responses.expect(method);
        (self.begun, self.staged, self.ended, self.used) = (false, false, false, true);
    }

    /// Sends the request as far as possible. `out` has its head at the first call, and is empty afterwards. A node that
    /// no longer reads may still have answered, so a failure after the first byte only ends the sending.
    pub(crate) fn send(
        &mut self,
        out: &mut Vec<u8>,
        (body, trailers): (&mut ReceivedBody, &[u8]),
        cx: &mut Context<'_>,
    ) -> Sending {
        loop {
            // A larger body is sent after the head, so that nothing of it is lost if the connection turns out to be
            // closed.
            if self.unsent.is_empty() && !self.staged && (self.begun || body.is_small()) {
                self.stage(out, body, trailers);
            }
            let bytes = if self.unsent.is_empty() { &out[..] } else { &self.unsent[..] };
            if bytes.is_empty() {
                return match self.stream.poll_flush(cx) {
                    Poll::Pending => Sending::Node,
                    Poll::Ready(Ok(())) if !self.staged => Sending::Client,
                    Poll::Ready(Ok(())) => Sending::Done,
                    Poll::Ready(Err(_)) => self.give_up(),
                };
            }
            let written = match self.stream.poll_write(cx, bytes) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => bytes,
                // A part of what TLS has taken may have been sent before it failed.
                Poll::Ready(_) if !self.begun && !self.stream.is_tls() => {
                    out.clear();
                    return Sending::Unsent;
                }
                Poll::Ready(_) => {
                    out.clear();
                    return self.give_up();
                }
                Poll::Pending => 0,
            };
            self.begun |= written > 0;
            if self.unsent.is_empty() {
                self.unsent.extend_from_slice(out.get(written..).unwrap_or_default());
                out.clear();
            } else {
                self.unsent.advance(written);
            }
            if written == 0 {
                return Sending::Node;
            }
            if self.unsent.is_empty() {
                self.unsent = BytesMut::new();
            }
        }
    }

    /// Sends no more. The node may still have answered.
    fn give_up(&mut self) -> Sending {
        self.unsent = BytesMut::new();
        (self.closing, self.staged) = (true, true);
        Sending::Done
    }

    /// Appends the next piece of the body to `out`.
    fn stage(&mut self, out: &mut Vec<u8>, body: &mut ReceivedBody, trailers: &[u8]) {
        let piece = body.unsent();
        let piece = piece.get(..piece.len().min(PIECE)).unwrap_or_default();
        let bytes = piece.len();
        if bytes > 0 && body.is_chunked() {
            write::chunk(out, bytes);
            out.extend_from_slice(piece);
            out.extend_from_slice(write::CHUNK_END);
        } else {
            out.extend_from_slice(piece);
        }
        body.advance(bytes);
        if body.is_complete() && body.unsent().is_empty() {
            if body.is_chunked() {
                write::last_chunk(out, trailers);
            }
            self.staged = true;
        }
    }

    /// Whether all of the request has been sent.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.staged && self.unsent.is_empty()
    }

    /// Starts a turn with the thread's receive buffer. [`Link::end_turn`] must follow.
    pub(crate) fn begin_turn(&mut self, inbox: &mut Inbox) {
        self.reads = 0;
        inbox.load(&mut self.kept);
    }

    /// Ends a turn.
    pub(crate) fn end_turn(&mut self, inbox: &mut Inbox) {
        inbox.save(&mut self.kept);
    }

    /// Returns the next event of the response, which refers to the front of the inbox. Take its bytes from there.
    pub(crate) fn poll_event(&mut self, inbox: &mut Inbox, cx: &mut Context<'_>) -> Poll<Result<Event, Broken>> {
        if let Some(event) = self.ahead.take() {
            return Poll::Ready(Ok(event));
        }
        loop {
            match self.responses.receive(inbox.rest()) {
                Ok(Event::More) => {}
                Ok(Event::Skip(bytes)) => {
                    inbox.take(bytes);
                    continue;
                }
                Ok(event @ Event::Head(_)) => {
                    self.responses.drop_named(inbox.rest(), PROTECTED);
                    let last = !matches!(self.head().status(), 100..=199);
                    self.closing |= last && !self.head().is_persistent();
                    return Poll::Ready(Ok(event));
                }
                Ok(event @ Event::End(_)) => {
                    self.end();
                    return Poll::Ready(Ok(event));
                }
                Ok(event @ Event::Data { .. }) => return Poll::Ready(Ok(event)),
                Ok(Event::Hold) => return Poll::Ready(Err(Broken::Closed)),
                Err(_) => return Poll::Ready(Err(Broken::Malformed)),
            }
            if self.reads == READS {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.reads += 1;
            match ready!(inbox.poll_read(&mut self.stream, cx)) {
                Ok(bytes) if bytes > 0 => self.received += bytes as u64,
                Ok(_) if self.responses.length() == Length::UntilClose && self.responses.close() => {
                    self.closing = true;
                    self.end();
                    return Poll::Ready(Ok(Event::End(0)));
                }
                Ok(_) | Err(_) => return Poll::Ready(Err(self.broken())),
            }
        }
    }

    fn broken(&self) -> Broken {
        match &self.stream {
            Transport::Http2(stream) if stream.is_refused() => Broken::Refused,
            Transport::Http2(_) | Transport::Socket(_) => Broken::Closed,
        }
    }

    /// Whether the response has ended with the bytes received, so that the slot is free at once. An event before the
    /// end is kept for [`Link::poll_event`]. Call it when the bytes of the last event have been taken.
    pub(crate) fn look_ahead(&mut self, inbox: &mut Inbox) -> bool {
        loop {
            match self.responses.receive(inbox.rest()) {
                Ok(Event::Skip(bytes)) => drop(inbox.take(bytes)),
                Ok(Event::End(bytes)) => {
                    inbox.take(bytes);
                    self.end();
                    return true;
                }
                Ok(event @ (Event::Data { .. } | Event::Head(_) | Event::Hold)) => {
                    self.ahead = Some(event);
                    return false;
                }
                // A fault is found again.
                Ok(Event::More) | Err(_) => return false,
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.closing |= !self.has_sent_all();
    }

    /// Index of the head of the last [`Event::Head`].
    pub(crate) fn head(&self) -> &Head {
        self.responses.head()
    }

    /// Length of the body that follows the head.
    pub(crate) fn length(&self) -> Length {
        self.responses.length()
    }

    /// Trailer section of the response that has ended.
    pub(crate) fn trailers(&self) -> &[u8] {
        self.responses.trailers()
    }

    /// Waits until it is known whether the node takes requests for another protocol.
    pub(crate) fn settled(&self) -> impl Future<Output = ()> + use<> {
        let settled = match &self.stream {
            Transport::Socket(_) => None,
            Transport::Http2(stream) => Some(stream.settled()),
        };
        async move {
            if let Some(settled) = settled {
                settled.await;
            }
        }
    }

    /// Takes the transport back after a change of protocol, with the bytes received after the head. `None` if the node
    /// has closed it.
    pub(crate) fn into_transport(self: Box<Self>) -> Option<(Side, Bytes)> {
        let side: Side = match self.stream {
            Transport::Socket(socket) => Box::new(socket),
            Transport::Http2(stream) => Box::new(stream.into_tunnel()?),
        };
        Some((side, Bytes::from(self.kept)))
    }
}
