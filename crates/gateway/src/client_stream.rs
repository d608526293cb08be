//! The client's side of an HTTP/1.1 connection: requests in, responses out.
//!
//! Messages are read by `weirgate-http1`. While a request is being served, the connection's task reads on, up to a
//! limit. So a body arrives while its request waits, and a client that leaves is noticed: at once, or after one tick of
//! the timer if its request was complete and the runtime does not watch its socket yet. Bytes of a response that the
//! client does not take at once are kept here. An idle connection keeps only the memory of a small head.

use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use weirgate_engine::Time;
use weirgate_http1::{Event, Fault, Limits, Requests};

use crate::connection::End;
use crate::io::Io;
use crate::received_body::{AHEAD, ReceivedBody};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::request_stream::{Lost, RequestStream};
use crate::stream_state::StreamState;
use crate::timer::{TICK, Timers};

/// Maximum capacity of an empty buffer that is kept for the next request: enough for most heads. Larger
/// buffers are freed, because thousands of connections may be idle.
const KEPT: usize = 2 * 1024;

/// Maximum time and number of bytes for which input is read and discarded after the last response. A client
/// that is still sending can then read the response and does not receive a reset (RFC 9112 Sec. 9.6).
const LINGER: (Duration, usize) = (Duration::from_secs(1), 512 * 1024);

/// Maximum number of reads in one turn, so that a fast client leaves turns for other connections.
const READS: usize = 4;

/// A client and its messages.
pub(crate) struct ClientStream {
    io: Io,
    conn: Rc<StreamState>,
    requests: Requests,
    /// Bytes received and not yet examined.
    input: BytesMut,
    /// Head of the request before. The next one gets its memory. Its index is in `requests`.
    before: BytesMut,
    body: ReceivedBody,
    /// Bytes of the response that the client has not taken.
    unsent: BytesMut,
    /// Reason for refusing the rest of the current body. Nothing after it is read.
    refused: Option<Refusal>,
    /// Whether the connection ends after the bytes that are sent next.
    is_last: bool,
    /// Whether the client has closed its side or the connection is broken.
    ended: bool,
}

/// The next thing that a client does.
pub(crate) enum Next {
    /// It has sent the head of a request, of this many bytes. Take it with [`ClientStream::begin`].
    Head(usize),
    /// It sends input that is no request. Nothing after it is read.
    Refused(Refusal),
    /// It speaks HTTP/2. Take what it has sent with [`ClientStream::into_tunnel`].
    Http2,
    /// It may send nothing more: it has been idle for too long, or the connection is to be closed.
    Idle,
    /// It has left.
    Gone,
}

impl ClientStream {
    /// Creates the stream of a client that has already sent `input`.
    pub(crate) fn new(io: Io, conn: &Rc<StreamState>, limits: Limits, input: BytesMut) -> ClientStream {
        ClientStream {
            io,
            conn: Rc::clone(conn),
            requests: Requests::new(limits),
            input,
            before: BytesMut::new(),
            body: ReceivedBody::none(),
            unsent: BytesMut::new(),
            refused: None,
            is_last: false,
            ended: false,
        }
    }

    /// Waits for the next request.
    pub(crate) fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            match self.requests.receive_after(&self.before, &self.input) {
                Ok(Event::Head(bytes)) => return Poll::Ready(Next::Head(bytes)),
                Ok(Event::Skip(bytes)) => {
                    self.input.advance(bytes);
                    continue;
                }
                Ok(Event::More) => {}
                // Neither comes before a head.
                Ok(Event::Data { .. } | Event::End(_) | Event::Hold) => return Poll::Ready(Next::Gone),
                Err(Fault::Version) if self.begins_http2() => return Poll::Ready(Next::Http2),
                Err(fault) => return Poll::Ready(Next::Refused(fault.into())),
            }
            if self.ended {
                return Poll::Ready(Next::Gone);
            }
            if self.poll_fill(cx).is_ready() {
                continue;
            }
            let (due, next) = self.due();
            if self.conn.now() >= due {
                return Poll::Ready(next);
            }
            self.conn.phase.set(due);
            return Poll::Pending;
        }
    }

    /// Whether the connection begins with the first line of HTTP/2, and may speak it. A first line without a slash has
    /// neither path nor protocol. It counts as a broken one, which gets no response of HTTP/1.1 (RFC 9113 Sec. 3.4).
    fn begins_http2(&self) -> bool {
        let config = self.conn.worker.active_config();
        let may_speak = || config.site.listener(&self.conn.listener).is_some_and(|listener| listener.http2);
        let line = || self.input.as_ref().split_inclusive(|&b| b == b'\n').next().unwrap_or_default();
        // A header of the PROXY protocol from a peer that is not listed gets a response that says so.
        let names_none = || {
            let is_other = line().starts_with(b"PROXY ") || line().contains(&b'/');
            line().ends_with(b"\n") && !is_other
        };
        let is_preface = || self.input.starts_with(b"PRI * HTTP/2.0\r\n") || names_none();
        self.conn.requests.get() == 0 && may_speak() && is_preface()
    }

    /// Returns the time until which the client may wait with its next bytes, and the consequence if it waits longer.
    fn due(&self) -> (Time, Next) {
        let timeouts = || self.conn.worker.active_config().site.timeouts;
        if !self.input.is_empty() {
            let since = self.conn.head_begins();
            return (since + timeouts().header, Next::Refused(Refusal::SlowHead));
        }
        let due = match self.conn.requests.get() {
            _ if self.conn.closing.get() => Time::ZERO,
            0 => self.conn.first_due(),
            _ => self.conn.idle_since.get() + timeouts().idle,
        };
        // A client whose next request has arrived is not idle. The runtime tells of it in its next turn.
        let is_coming = self.conn.now() >= due && self.io.has_more();
        (if is_coming { Time::NEVER } else { due }, Next::Idle)
    }

    /// Begins a request: takes its head of `bytes` from the front of the input.
    pub(crate) fn begin(&mut self, bytes: usize) -> Request {
        let mut memory = std::mem::take(&mut self.before);
        memory.clear();
        if bytes == self.input.len() {
            std::mem::swap(&mut memory, &mut self.input);
        } else {
            memory.extend_from_slice(self.input.get(..bytes).unwrap_or_default());
            self.input.advance(bytes);
        }
        let head = self.requests.take_head();
        self.conn.begin();
        Request::new(memory, head)
    }

    fn has_room(&self) -> bool {
        self.input.len() + self.body.len() < AHEAD
    }

    /// Reads available bytes. Ready when bytes have arrived or the client has ended.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = Rc::clone(&self.conn.worker);
        let mut scratch = worker.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        match ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)) {
            Ok(()) if !buffer.filled().is_empty() => self.arrived(buffer.filled()),
            // A reset is treated as an end, because the client is gone.
            Ok(()) | Err(_) => self.ended = true,
        }
        Poll::Ready(())
    }

    fn arrived(&mut self, bytes: &[u8]) {
        if !self.conn.busy.get() || self.body.is_complete() {
            self.input.extend_from_slice(bytes);
            return;
        }
        self.body.arrived(self.conn.now());
        if self.input.is_empty() {
            let used = self.decode(bytes);
            self.input.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(bytes);
            let used = self.decode(&input);
            input.advance(used);
            self.input = input;
        }
    }

    /// Takes the body from the front of `input`. Returns the number of bytes examined, none after the end of the body.
    fn decode(&mut self, input: &[u8]) -> usize {
        let mut used = 0;
        while !self.body.is_complete() && self.refused.is_none() {
            match self.requests.receive(input.get(used..).unwrap_or_default()) {
                Ok(Event::Skip(bytes)) => used += bytes,
                Ok(Event::Data { skip, data }) => {
                    used += skip;
                    let pushed = self.body.push(input.get(used..used + data).unwrap_or_default());
                    self.refused = pushed.err();
                    self.conn.bytes_in.set(self.conn.bytes_in.get() + data as u64);
                    used += data;
                }
                Ok(Event::End(bytes)) => {
                    used += bytes;
                    self.body.complete();
                }
                Ok(Event::More) => break,
                Ok(Event::Head(_) | Event::Hold) => self.refused = Some(Fault::NotHttp.into()),
                Err(fault) => self.refused = Some(fault.into()),
            }
        }
        used
    }

    /// Whether the client has sent nothing after the current request.
    fn is_quiet(&self) -> bool {
        self.has_sent_all() && self.input.is_empty()
    }

    /// Returns the time until which it is not worth while to find out whether the client has left. There is none once
    /// the runtime watches it, or if it has yet to send the rest of its request.
    fn trusted_until(&self) -> Option<Time> {
        let until = self.conn.idle_since.get() + TICK;
        (!self.io.is_watched() && self.has_sent_all() && self.conn.now() < until).then_some(until)
    }

    /// Ends the current request after its whole body, and takes back its memory.
    fn recycle(&mut self, request: Request) {
        self.requests.resume();
        self.body.clear();
        let (bytes, head) = request.into_memory();
        if bytes.capacity() <= KEPT {
            self.before = bytes;
            self.requests.keep_head(head);
        }
        if self.input.is_empty() && self.input.capacity() > KEPT {
            self.input = BytesMut::new();
        }
    }

    /// Returns the transport and the bytes received after the last request, for another protocol.
    pub(crate) fn into_tunnel(self) -> (Io, Bytes) {
        (self.io, self.input.freeze())
    }

    /// Sends `last`, without regard to the current request. Returns whether the client took it.
    pub(crate) async fn send_last(&mut self, last: &[u8]) -> bool {
        let sent = async {
            self.io.write_all(last).await?;
            self.io.flush().await
        };
        self.conn.worker.timers.within(LINGER.0, sent).await.is_some_and(|sent| sent.is_ok())
    }

    /// Closes the connection in such a way that the last response arrives, although the client may still be sending.
    pub(crate) async fn linger(self) {
        linger(&self.conn.worker.timers, self.io).await;
    }

    /// Whether dropping it closes the connection in an orderly way. Without TLS, closing the socket says all that there
    /// is to say, unless the client has sent more than was read. The kernel would then send a reset in place of the
    /// last bytes.
    pub(crate) fn closes_when_dropped(&self) -> bool {
        matches!(&self.io, Io::Plain(io) if !io.has_more())
    }

    /// Closes the connection in an orderly way, if [dropping it](Self::closes_when_dropped) does not.
    pub(crate) async fn close(mut self) {
        match self.io {
            Io::Plain(_) => self.linger().await,
            Io::Tls(_) => drop(self.conn.worker.timers.within(LINGER.0, self.io.shutdown()).await),
        }
    }
}

impl RequestStream for ClientStream {
    fn body(&mut self) -> &mut ReceivedBody {
        &mut self.body
    }

    fn begin_body(&mut self) -> Result<(), Refusal> {
        let active_config = self.conn.worker.active_config();
        let site = &active_config.site;
        let pace = crate::body_pace::BodyPace::new(&site.timeouts);
        let length = self.requests.length();
        self.body.begin(self.conn.now(), length, site.limits.body_bytes, pace)?;
        let input = std::mem::take(&mut self.input);
        let used = self.decode(&input);
        self.input = input;
        self.input.advance(used);
        Ok(())
    }

    fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        if self.ended {
            return Err(Lost::Gone);
        }
        if let Some(until) = self.trusted_until() {
            self.conn.body_due.set(until);
            return Ok(());
        }
        for turn in 0.. {
            if !self.has_room() || self.refused.is_some() {
                break;
            }
            if turn == READS {
                cx.waker().wake_by_ref();
                break;
            }
            if self.poll_fill(cx).is_pending() {
                break;
            }
            if self.ended {
                return Err(Lost::Gone);
            }
        }
        let room = self.has_room();
        let due = self.body.due(&self.conn, room);
        self.conn.body_due.set(due);
        match self.refused {
            Some(refusal) => Err(Lost::Refused(refusal)),
            None if self.conn.now() >= due => Err(Lost::Refused(Refusal::SlowBody)),
            None => Ok(()),
        }
    }

    fn invite_body(&mut self) {
        self.unsent.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        self.conn.stuck.set(self.conn.now() + self.conn.progress.get());
    }

    fn upload(&mut self) -> (&mut ReceivedBody, &[u8]) {
        (&mut self.body, self.requests.trailers())
    }

    fn begin_message(&mut self, _: usize) {}

    fn end_message(&mut self, _: &[u8], kept: bool) {
        self.is_last = !kept;
    }

    fn send(&mut self, cx: &mut Context<'_>, first: &[u8], second: &[u8]) {
        self.conn.answered.set(true);
        let mut taken = 0;
        if self.unsent.is_empty() {
            let io = Pin::new(&mut self.io);
            // A plain write costs less than describing one slice to the kernel.
            let written = match (first, second) {
                (bytes, []) | ([], bytes) if self.is_last => io.poll_write_last(cx, bytes),
                (bytes, []) | ([], bytes) => io.poll_write(cx, bytes),
                _ => io.poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)]),
            };
            match written {
                Poll::Ready(Ok(bytes)) if bytes > 0 => taken = bytes,
                Poll::Ready(_) => self.ended = true,
                Poll::Pending => {}
            }
            if taken < first.len() + second.len() {
                self.conn.stuck.set(self.conn.now() + self.conn.progress.get());
            }
        }
        self.unsent.extend_from_slice(first.get(taken.min(first.len())..).unwrap_or_default());
        self.unsent.extend_from_slice(second.get(taken.saturating_sub(first.len())..).unwrap_or_default());
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        while !self.unsent.is_empty() && !self.ended {
            match Pin::new(&mut self.io).poll_write(cx, &self.unsent) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => {
                    self.unsent.advance(bytes);
                    self.conn.stuck.set(self.conn.now() + self.conn.progress.get());
                }
                Poll::Ready(_) => self.ended = true,
                Poll::Pending if self.conn.now() >= self.conn.stuck.get() => self.ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
        if !self.ended {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => self.ended = true,
                Poll::Pending if self.conn.now() >= self.conn.stuck.get() => self.ended = true,
                Poll::Pending => {
                    // The time runs from the last byte that the transport has taken.
                    self.conn.stuck.set(self.conn.stuck.get().min(self.conn.now() + self.conn.progress.get()));
                    return Poll::Pending;
                }
            }
        }
        if self.ended {
            return Poll::Ready(Err(Lost::Gone));
        }
        self.conn.stuck.set(Time::NEVER);
        if self.unsent.capacity() > 0 {
            self.unsent = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    fn unsent(&self) -> usize {
        self.unsent.len()
    }

    fn has_sent_all(&self) -> bool {
        self.body.is_complete() && self.refused.is_none()
    }

    fn finish(&mut self, request: Request, kept: bool) -> End {
        if kept && self.has_sent_all() {
            self.recycle(request);
            return End::Kept;
        }
        if self.is_quiet() { End::Done } else { End::Linger }
    }
}

/// Closes a connection in such a way that the last response arrives, although the client may still be sending.
pub(crate) async fn linger<T: AsyncRead + AsyncWrite + Unpin>(timers: &Timers, mut io: T) {
    let drain = async {
        if io.shutdown().await.is_err() {
            return;
        }
        // On the heap, because on the stack it would dominate the size of every connection's task.
        let mut scratch = vec![0; 4096];
        let mut read = 0;
        while read < LINGER.1 {
            match io.read(&mut scratch).await {
                Ok(bytes) if bytes > 0 => read += bytes,
                _ => return,
            }
        }
    };
    let _ = timers.within(LINGER.0, drain).await;
}
