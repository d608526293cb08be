//! One connection to a node: hyper's client, driven by the task that uses it.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::RequestBody;

/// Maximum buffer size of a connection to a node, in bytes. It limits a response head, and the part of a body
/// read between two checks of the client's pace.
const BUFFER: usize = 64 * 1024;

/// A connection to a node. It is boxed while it is open, because it is large and moves with every request:
/// from the pool to the request, to the response and back.
pub(crate) struct Link {
    sender: http1::SendRequest<RequestBody>,
    connection: http1::Connection<TokioIo<Counted>, RequestBody>,
    /// Whether the connection has ended or changed its protocol.
    ended: bool,
    received: Rc<Cell<u64>>,
    /// Whether it has already served a request.
    used: bool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("used", &self.used).field("received", &self.received).finish_non_exhaustive()
    }
}

/// Result of sending a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Head of a response.
    Head(Response<Incoming>),
    /// Nothing was sent. The request is unchanged.
    Unsent(Request<RequestBody>),
    /// The connection failed.
    Broken(hyper::Error),
    /// The time limit was exceeded.
    Late,
}

impl Link {
    pub(crate) async fn open(stream: TcpStream) -> io::Result<Box<Link>> {
        let received = Rc::new(Cell::new(0));
        let io = TokioIo::new(Counted { stream, received: Rc::clone(&received) });
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER);
        let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        Ok(Box::new(Link { sender, connection, ended: false, received, used: false }))
    }

    /// Whether it has already served a request.
    pub(crate) fn is_used(&self) -> bool {
        self.used
    }

    /// Returns the number of bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Whether it is ready for another request after its last exchange.
    pub(crate) fn is_done(&mut self) -> bool {
        self.used = true;
        (!self.ended && self.sender.is_ready()) || self.is_reusable()
    }

    /// Whether it can take a request now. Checks whether it has been closed meanwhile. Also drops the waker
    /// of the last task that used it, so that this task is not woken for events that no longer concern it.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.used = true;
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }

    /// Moves bytes in both directions.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.ended {
            self.ended = Pin::new(&mut self.connection).poll(cx).is_ready();
        }
    }

    /// Sends `request` and waits for the head of its response, until `is_late`.
    pub(crate) async fn exchange(&mut self, request: Request<RequestBody>, is_late: impl Fn() -> bool) -> Answer {
        let mut answer = pin!(self.sender.try_send_request(request));
        let mut sent = false;
        poll_fn(|cx| {
            // First take the available data without registering a waker. Otherwise hyper would wake this task
            // for each piece that the task takes from hyper. A waker is registered only if nothing is
            // available.
            let mut idle = Context::from_waker(Waker::noop());
            let mut answered = Poll::Pending;
            if std::mem::replace(&mut sent, true) {
                self.drive(&mut idle);
                answered = answer.as_mut().poll(&mut idle);
            }
            if answered.is_pending() {
                self.drive(cx);
                answered = answer.as_mut().poll(&mut idle);
            }
            match answered {
                Poll::Ready(Ok(response)) => Poll::Ready(Answer::Head(response)),
                Poll::Ready(Err(mut error)) => Poll::Ready(match error.take_message() {
                    Some(request) => Answer::Unsent(request),
                    None => Answer::Broken(error.into_error()),
                }),
                Poll::Pending if is_late() => Poll::Ready(Answer::Late),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Returns the next piece of a response body.
    pub(crate) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // As above: first take data already parsed, then data that can be read at once, and register a waker
        // only if there is none.
        let mut idle = Context::from_waker(Waker::noop());
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut idle) {
            return Poll::Ready(frame);
        }
        self.drive(&mut idle);
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut idle) {
            return Poll::Ready(frame);
        }
        self.drive(cx);
        Pin::new(body).poll_frame(&mut idle)
    }

    /// Takes the transport back after a change of protocol, with the bytes received after the head.
    pub(crate) fn into_transport(self: Box<Self>) -> (TcpStream, Bytes) {
        let parts = self.connection.into_parts();
        (parts.io.into_inner().stream, parts.read_buf)
    }
}

/// A stream that counts received bytes. On a connection that returned no bytes, the node did not answer.
#[derive(Debug)]
pub(super) struct Counted {
    stream: TcpStream,
    received: Rc<Cell<u64>>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.received.set(self.received.get() + (buffer.filled().len() - before) as u64);
        result
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            // A request without a body: a plain write costs less than describing one slice to the kernel.
            [only] => Pin::new(&mut self.stream).poll_write(cx, only),
            _ => Pin::new(&mut self.stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
