//! Client side of a connection, in front of hyper: strict framing and detection of clients that leave.
//!
//! hyper reads from here and sees only bytes that passed [`Requests`]. A refused head is replaced by a
//! stand-in, a fixed request, so that hyper keeps the order of responses. The request with that sequence
//! number is answered with the refusal. hyper sees a refused body as an I/O error.
//!
//! While a request is being served, its connection's task reads ahead, up to a limit. So a client that leaves
//! is noticed at once, even if hyper does not yet read the body.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weirgate_engine::Time;
use weirgate_http1::{Event, Limits, Requests};

use crate::client_conn::ClientConn;
use crate::refusal::Refusal;

/// Maximum number of bytes read ahead of hyper. If a client has sent more unread body than this, its
/// departure is noticed only after some of the body has been read.
const AHEAD: usize = 64 * 1024;

/// Maximum capacity of an empty buffer that is kept for the next request: enough for most heads. Larger
/// buffers are freed, because thousands of connections may be idle.
const KEPT: usize = 2 * 1024;

/// Maximum size of a response that is sent in one piece: a head and a body of usual size.
const SMALL: usize = 4 * 1024;

/// The request that hyper reads in place of a refused head.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// A transport with its framing check.
#[derive(Debug)]
pub(crate) struct CheckedStream<T> {
    io: T,
    conn: Rc<ClientConn>,
    requests: Requests,
    /// Number of heads that have passed.
    heads: u64,
    /// Bytes received and not yet handed over.
    raw: BytesMut,
    /// Number of bytes at the front of `raw` that have passed the check.
    passed: usize,
    /// Remaining bytes of the stand-in, once one is needed.
    stand_in: Option<&'static [u8]>,
    /// Reason why the current body was refused. Nothing after it is read.
    bad_body: Option<Refusal>,
    /// Whether the client has closed its side or the connection is broken.
    ended: bool,
    /// Time since which the client has accepted no bytes.
    blocked_since: Option<Time>,
    /// Whether hyper has asked for bytes and received none.
    starved: bool,
    /// Whether hyper has asked for bytes in this turn of the connection's task.
    asked: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> CheckedStream<T> {
    pub(crate) fn new(io: T, conn: &Rc<ClientConn>, limits: Limits) -> CheckedStream<T> {
        CheckedStream {
            io,
            conn: Rc::clone(conn),
            requests: Requests::new(limits),
            heads: 0,
            raw: BytesMut::new(),
            passed: 0,
            stand_in: None,
            bad_body: None,
            ended: false,
            blocked_since: None,
            starved: false,
            asked: false,
        }
    }

    /// Whether the client has left.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the client may be in the middle of sending something.
    pub(crate) fn expects_more(&self) -> bool {
        self.stand_in.is_some() || !self.raw.is_empty() || !self.requests.is_between()
    }

    /// Returns the time since which the client has accepted no bytes.
    pub(crate) fn blocked_since(&self) -> Option<Time> {
        self.blocked_since
    }

    /// Refuses the head that is being received.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.stand_in = Some(STAND_IN);
        self.conn.head_since.set(None);
        self.conn.refused.set(Some((self.heads + 1, refusal)));
    }

    /// Reads from the client while its request is being served. Returns whether there is now data that hyper
    /// has asked for.
    pub(crate) fn read_ahead(&mut self, cx: &mut Context<'_>) -> bool {
        // hyper has just found the socket empty. It still is, and the task is woken when data arrives.
        if std::mem::take(&mut self.asked) && self.starved && self.raw.is_empty() {
            return false;
        }
        let before = self.raw.len();
        while !self.ended && self.raw.len() < AHEAD {
            if self.fill(cx).is_pending() {
                break;
            }
        }
        self.starved && self.raw.len() > before
    }

    /// Returns the transport and the bytes received after the last request, for a tunnel.
    pub(crate) fn tunnel(&mut self) -> (&mut T, BytesMut) {
        self.passed = 0;
        (&mut self.io, std::mem::take(&mut self.raw))
    }

    /// Returns the bare transport.
    pub(crate) fn io(&mut self) -> &mut T {
        &mut self.io
    }

    /// Reads available bytes into `raw`. Ready when bytes have arrived or the client has ended.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = Rc::clone(&self.conn.worker);
        let mut scratch = worker.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        match ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)) {
            Ok(()) if !buffer.filled().is_empty() => self.raw.extend_from_slice(buffer.filled()),
            // A reset is treated as an end, because the client is gone.
            Ok(()) | Err(_) => self.ended = true,
        }
        Poll::Ready(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let before = out.remaining();
        loop {
            if out.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if let Some(rest) = self.stand_in {
                let take = rest.len().min(out.remaining());
                let (now, later) = rest.split_at(take);
                out.put_slice(now);
                self.stand_in = Some(later);
                // Nothing follows a stand-in, because its response closes the connection.
                return if out.remaining() < before { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if self.passed > 0 {
                let take = self.passed.min(out.remaining());
                out.put_slice(self.raw.get(..take).unwrap_or_default());
                self.raw.advance(take);
                self.passed -= take;
                if self.raw.is_empty() && self.raw.capacity() > KEPT {
                    self.raw = BytesMut::new();
                }
                continue;
            }
            if let Some(refusal) = self.bad_body {
                // Earlier bytes are passed first, in a read of their own, because an error would discard
                // them.
                if out.remaining() < before {
                    return Poll::Ready(Ok(()));
                }
                self.conn.refuse_body(self.heads, refusal);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal.what)));
            }
            if self.conn.declined.replace(false) {
                self.requests.resume();
            }
            let between = self.requests.is_between();
            match self.requests.receive(&self.raw) {
                Ok(Event::Head(bytes)) => {
                    self.heads += 1;
                    self.conn.head_since.set(None);
                    self.conn.head.borrow_mut().keep(self.heads, self.raw.get(..bytes).unwrap_or_default());
                    self.passed = bytes;
                    continue;
                }
                Ok(Event::Skip(bytes)) if between => {
                    self.raw.advance(bytes);
                    continue;
                }
                Ok(Event::Skip(bytes) | Event::End(bytes)) => {
                    self.passed = bytes;
                    continue;
                }
                Ok(Event::Data { skip, data }) => {
                    self.passed = skip + data;
                    continue;
                }
                Err(fault) if between => {
                    self.refuse(fault.into());
                    continue;
                }
                Err(fault) => {
                    self.bad_body = Some(fault.into());
                    continue;
                }
                Ok(Event::Hold) if !self.raw.is_empty() => {
                    return if out.remaining() < before { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
                Ok(Event::Hold | Event::More) => {}
            }
            if self.requests.is_between() && !self.raw.is_empty() && self.conn.head_since.get().is_none() {
                self.conn.head_since.set(Some(self.conn.now()));
            }
            if out.remaining() < before || self.ended {
                return Poll::Ready(Ok(()));
            }
            self.asked = true;
            ready!(self.fill(cx));
        }
    }

    fn wrote(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.blocked_since = match &result {
            Poll::Pending => self.blocked_since.or(Some(self.conn.now())),
            Poll::Ready(_) => None,
        };
        result
    }
}

/// hyper's side of an inlet. The connection's task holds the other side.
#[derive(Debug)]
pub(crate) struct Handle<T>(pub(crate) Rc<RefCell<CheckedStream<T>>>);

impl<T: AsyncRead + AsyncWrite + Unpin> hyper::rt::Read for Handle<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<Result<(), io::Error>> {
        let checked_stream = &mut *self.0.borrow_mut();
        let result = checked_stream.poll_read(cx, &mut out);
        checked_stream.starved = result.is_pending();
        result
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> hyper::rt::Write for Handle<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, io::Error>> {
        let checked_stream = &mut *self.0.borrow_mut();
        let result = Pin::new(&mut checked_stream.io).poll_write(cx, bytes);
        checked_stream.wrote(result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<Result<usize, io::Error>> {
        let checked_stream = &mut *self.0.borrow_mut();
        let total = slices.iter().map(|s| s.len()).sum::<usize>();
        if total > SMALL {
            let result = Pin::new(&mut checked_stream.io).poll_write_vectored(cx, slices);
            return checked_stream.wrote(result);
        }
        // Copying a few bytes costs less than describing them to the kernel.
        let conn = Rc::clone(&checked_stream.conn);
        let mut joined = conn.worker.scratch.borrow_mut();
        let mut at = 0;
        for slice in slices {
            if let Some(place) = joined.get_mut(at..at + slice.len()) {
                place.copy_from_slice(slice);
            }
            at += slice.len();
        }
        let result = Pin::new(&mut checked_stream.io).poll_write(cx, joined.get(..total).unwrap_or_default());
        checked_stream.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_flush(cx)
    }

    /// Closing is left to the connection's task, which knows whether a tunnel follows or bytes are still to
    /// be sent.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }
}
