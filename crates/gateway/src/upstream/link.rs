//! One connection to a node: the task that uses it reads and writes it. Messages are read by `weirgate-http1`.
//!
//! Source: RFC 9112 Sec. 9 (connection management). Departure: interim responses are read and dropped.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use weirgate_http1::{Event, Head, Length, Limits, Name, Responses, write};

use super::RequestBody;
use crate::field_lines;
use crate::worker::Worker;

/// Limits for the head of a response and for its trailers. Nodes are the operator's own, so they may send more than a
/// client: HAProxy's default buffer is 16 KiB, nginx takes 8 KiB of head from a node.
const LIMITS: Limits = Limits { head_bytes: 64 * 1024, fields: 1000 };

/// Maximum number of reads in one turn of the connection's task. A node that sends one interim response after the other
/// then leaves turns for other connections, and its deadline is checked.
const READS: u32 = 16;

/// A connection to a node. It is boxed while it is open, because it moves with every request: from the pool to the
/// request, to the response and back.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    responses: Responses,
    /// Bytes received and not yet examined.
    input: BytesMut,
    /// The part of the body after the present one, if it has been found already.
    ahead: Option<Event>,
    /// Head, chunk sizes and chunk ends to send, then `data`, then `after`.
    head: Vec<u8>,
    /// Number of bytes of `head` that have been sent.
    sent: usize,
    data: Bytes,
    after: &'static [u8],
    /// The rest of the request's body.
    body: RequestBody,
    chunked: bool,
    /// Length of the response's body, as its head declares it.
    length: Length,
    /// Whether a byte of the request has been sent.
    begun: bool,
    /// Whether the response has ended.
    ended: bool,
    /// Whether this side or the node closes the connection after the response.
    closing: bool,
    received: u64,
    /// Whether it has already served a request.
    used: bool,
}

/// Result of sending a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Head of a response.
    Head(Response<()>),
    /// Nothing was sent. The request is unchanged.
    Unsent(Box<Request<RequestBody>>),
    /// The connection failed.
    Broken,
    /// The node's response breaks a rule.
    Malformed,
    /// The time limit was exceeded.
    Late,
}

/// A response that broke off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truncated;

impl Link {
    pub(crate) fn new(stream: TcpStream) -> Box<Link> {
        Box::new(Link {
            stream,
            responses: Responses::new(LIMITS),
            input: BytesMut::new(),
            ahead: None,
            head: Vec::new(),
            sent: 0,
            data: Bytes::new(),
            after: b"",
            body: RequestBody::Empty,
            chunked: false,
            length: Length::Known(0),
            begun: false,
            ended: true,
            closing: false,
            received: 0,
            used: false,
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

    /// Whether it can take another request, as far as is known without a look at the socket.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && !self.closing && self.input.is_empty()
    }

    /// Whether it can take a request now. Checks whether the node has closed it meanwhile or sent something unasked.
    /// Also drops the waker of the last task that used it.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let silent = Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer);
        self.is_done() && silent.is_pending()
    }

    /// Sends `request` and waits for the head of its response, until `is_late`.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        worker: &Worker,
        is_late: impl Fn() -> bool,
    ) -> Answer {
        let (parts, body) = request.into_parts();
        self.begin(&parts, body);
        let mut parts = Some(parts);
        poll_fn(|cx| {
            let sent = self.poll_send(cx);
            if let Poll::Ready(Err(unsent)) = sent {
                return Poll::Ready(match parts.take() {
                    Some(parts) if unsent == Unsent::Whole => {
                        Answer::Unsent(Box::new(Request::from_parts(parts, self.take_body())))
                    }
                    _ => Answer::Broken,
                });
            }
            match self.poll_head(worker, cx) {
                Poll::Pending if is_late() => Poll::Ready(Answer::Late),
                answer => answer,
            }
        })
        .await
    }

    /// Prepares the head of a request, and its body if that is complete.
    fn begin(&mut self, request: &Parts, body: RequestBody) {
        self.begun = false;
        self.ended = false;
        self.used = true;
        self.responses.expect(request.method.as_str());
        let target = request.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        write::request_line(&mut self.head, request.method.as_str(), target);
        for (name, value) in &request.headers {
            write::field(&mut self.head, name.as_str().as_bytes(), value.as_bytes());
        }
        write::end(&mut self.head);
        self.chunked = request.headers.contains_key(TRANSFER_ENCODING);
        (self.data, self.body) = match body {
            RequestBody::Whole(bytes) => (bytes.unwrap_or_default(), RequestBody::Empty),
            body => (Bytes::new(), body),
        };
    }

    /// Takes back the body of a request of which nothing was sent.
    fn take_body(&mut self) -> RequestBody {
        match std::mem::take(&mut self.data) {
            data if data.is_empty() => std::mem::replace(&mut self.body, RequestBody::Empty),
            data => RequestBody::Whole(Some(data)),
        }
    }

    /// Sends the request as far as possible. A node that no longer reads may still have answered, so a failure after
    /// the first byte only ends the sending.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        loop {
            while self.sent < self.head.len() || !self.data.is_empty() || !self.after.is_empty() {
                match ready!(self.poll_write(cx)) {
                    Ok(bytes) if bytes > 0 => self.begun = true,
                    Ok(_) | Err(_) if !self.begun => return Poll::Ready(Err(Unsent::Whole)),
                    Ok(_) | Err(_) => {
                        self.closing = true;
                        self.forget();
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            self.head.clear();
            self.sent = 0;
            let RequestBody::Stream(_) = self.body else { return Poll::Ready(Ok(())) };
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => self.encode(frame),
                Some(Err(_)) => {
                    self.closing = true;
                    return Poll::Ready(Err(Unsent::Rest));
                }
                None => {
                    if self.chunked {
                        write::last_chunk(&mut self.head, b"");
                    }
                    self.body = RequestBody::Empty;
                }
            }
        }
    }

    /// Writes the prepared bytes with one call.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let head = self.head.get(self.sent..).unwrap_or_default();
        let stream = Pin::new(&mut self.stream);
        let written = if self.data.is_empty() && self.after.is_empty() {
            // A plain write costs less than describing one slice to the kernel.
            ready!(stream.poll_write(cx, head))?
        } else {
            let slices = [IoSlice::new(head), IoSlice::new(&self.data), IoSlice::new(self.after)];
            ready!(stream.poll_write_vectored(cx, &slices))?
        };
        let of_head = written.min(head.len());
        self.sent += of_head;
        let of_data = (written - of_head).min(self.data.len());
        self.data.advance(of_data);
        self.after = self.after.get(written - of_head - of_data..).unwrap_or_default();
        Poll::Ready(Ok(written))
    }

    fn encode(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                if self.chunked {
                    write::chunk(&mut self.head, data.len());
                    self.after = write::CHUNK_END;
                }
                self.data = data;
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let mut section = Vec::new();
                for (name, value) in &trailers {
                    write::field(&mut section, name.as_str().as_bytes(), value.as_bytes());
                }
                write::last_chunk(&mut self.head, &section);
                self.body = RequestBody::Empty;
            }
        }
    }

    /// Gives up the unsent rest of the request.
    fn forget(&mut self) {
        self.head.clear();
        (self.sent, self.after) = (0, b"");
        self.data = Bytes::new();
        self.body = RequestBody::Empty;
    }

    fn has_sent_all(&self) -> bool {
        self.sent == self.head.len() && self.data.is_empty() && matches!(self.body, RequestBody::Empty)
    }

    fn poll_head(&mut self, worker: &Worker, cx: &mut Context<'_>) -> Poll<Answer> {
        for _ in 0..READS {
            loop {
                match self.responses.receive(&self.input) {
                    Ok(Event::More) => break,
                    Ok(Event::Skip(bytes)) => self.input.advance(bytes),
                    Ok(Event::Head(bytes)) => {
                        let head = self.responses.head();
                        if matches!(head.status(), 100..=199) && head.status() != 101 {
                            self.input.advance(bytes);
                            continue;
                        }
                        self.closing |=
                            !head.is_persistent(&self.input) || self.responses.length() == Length::UntilClose;
                        let response = response(head, &self.input);
                        self.length = self.responses.length();
                        self.input.advance(bytes);
                        self.look_ahead();
                        return Poll::Ready(response.map_or(Answer::Broken, Answer::Head));
                    }
                    // Neither comes before a head.
                    Ok(Event::Data { .. } | Event::End(_) | Event::Hold) => return Poll::Ready(Answer::Broken),
                    Err(_) => return Poll::Ready(Answer::Malformed),
                }
            }
            match ready!(self.poll_read(worker, cx)) {
                Ok(bytes) if bytes > 0 => {}
                Ok(_) | Err(_) => return Poll::Ready(Answer::Broken),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads the bytes that have arrived. Returns 0 if the node has closed its side.
    fn poll_read(&mut self, worker: &Worker, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut scratch = worker.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let bytes = buffer.filled();
        self.received += bytes.len() as u64;
        self.input.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Whether the response has ended, so that no frame follows.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Length of the body that follows the head, if the head declares it.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.length {
            Length::Known(bytes) => Some(bytes),
            Length::Chunked | Length::UntilClose => None,
        }
    }

    /// Returns the next piece of a response's body.
    pub(crate) fn poll_frame(
        &mut self,
        worker: &Worker,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Truncated>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if !self.has_sent_all()
            && let Poll::Ready(Err(_)) = self.poll_send(cx)
        {
            return Poll::Ready(Some(Err(Truncated)));
        }
        for _ in 0..READS {
            loop {
                let event = self.ahead.take().map_or_else(|| self.responses.receive(&self.input), Ok);
                match event {
                    Ok(Event::More) => break,
                    Ok(Event::Skip(bytes)) => self.input.advance(bytes),
                    Ok(Event::Data { skip, data }) => {
                        self.input.advance(skip);
                        let data = self.input.split_to(data).freeze();
                        self.look_ahead();
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Ok(Event::End(bytes)) => {
                        let trailers = field_lines::parse(self.responses.trailers());
                        self.end(bytes);
                        let trailers = trailers.filter(|t| !t.is_empty());
                        return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
                    }
                    Ok(Event::Head(_) | Event::Hold) | Err(_) => return Poll::Ready(Some(Err(Truncated))),
                }
            }
            match ready!(self.poll_read(worker, cx)) {
                Ok(bytes) if bytes > 0 => {}
                Ok(_) if self.responses.close() => {
                    self.closing = true;
                    self.ended = true;
                    return Poll::Ready(None);
                }
                Ok(_) | Err(_) => return Poll::Ready(Some(Err(Truncated))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Finds out whether the body has ended with the bytes received, so that the slot is free at once.
    fn look_ahead(&mut self) {
        loop {
            match self.responses.receive(&self.input) {
                Ok(Event::Skip(bytes)) => self.input.advance(bytes),
                Ok(Event::End(bytes)) if self.responses.trailers().is_empty() => return self.end(bytes),
                Ok(event @ (Event::Data { .. } | Event::End(_))) => return self.ahead = Some(event),
                // A fault is found again.
                Ok(Event::More | Event::Head(_) | Event::Hold) | Err(_) => return,
            }
        }
    }

    fn end(&mut self, bytes: usize) {
        self.input.advance(bytes);
        self.ended = true;
        self.closing |= !self.has_sent_all();
        if self.input.is_empty() {
            // An idle connection needs no buffer.
            self.input = BytesMut::new();
        }
    }

    /// Takes the transport back after a change of protocol, with the bytes received after the head.
    pub(crate) fn into_transport(self: Box<Self>) -> (TcpStream, Bytes) {
        (self.stream, self.input.freeze())
    }
}

/// The part of a request that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsent {
    /// All of it.
    Whole,
    /// The rest of its body, because the client's side stopped.
    Rest,
}

/// Returns the head of a response, or `None` if it has a part that the `http` crate does not know.
fn response(head: &Head, bytes: &[u8]) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status()).ok()?;
    *response.version_mut() = match head.version() {
        weirgate_http1::Version::Http10 => Version::HTTP_10,
        weirgate_http1::Version::Http11 => Version::HTTP_11,
    };
    let headers = response.headers_mut();
    headers.reserve(head.fields().len());
    for field in head.fields() {
        if field.name() == Name::ContentLength {
            // Once, even if the node repeats it.
            headers.insert(CONTENT_LENGTH, HeaderValue::from(head.content_length()?));
            continue;
        }
        let name = HeaderName::from_bytes(field.spelling(bytes)).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value(bytes)).ok()?);
    }
    Some(response)
}
