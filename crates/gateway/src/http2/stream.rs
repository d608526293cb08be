//! One request over HTTP/2: the stages' view of a stream.
//!
//! Sources: RFC 9113 Sec. 5.2 (flow control), Sec. 8.1 (messages). The client may send a body as far as the stream's
//! window reaches, which is the number of bytes that are kept of a body. The window opens again by the bytes that have
//! been passed on. The bytes of a response that the client's window does not admit are kept here.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use weirgate_engine::Time;
use weirgate_http1::Requests;

use super::{TunnelStream, head};
use crate::connection::End;
use crate::grpc;
use crate::received_body::{AHEAD, ReceivedBody};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::request_stream::{Lost, RequestStream};
use crate::stream_state::StreamState;

/// Maximum number of bytes for which capacity is asked at once. The library keeps no more of a stream.
pub(super) const PIECE: usize = 16 * 1024;

/// Maximum number of pieces of a body that are taken in one turn, so that a fast client leaves turns for other streams.
const PIECES: usize = 16;

/// The client of one request.
pub(super) struct Http2Stream {
    state: Rc<StreamState>,
    /// Has read the head, and reads the trailers.
    requests: Requests,
    incoming: RecvStream,
    respond: SendResponse<Bytes>,
    /// `None` before the head of the response.
    outgoing: Option<SendStream<Bytes>>,
    body: ReceivedBody,
    /// Whether the request is a call of gRPC for nodes that take calls.
    call: bool,
    /// Whether the request asks for a tunnel. The bytes that follow it are left to the tunnel.
    tunnel: bool,
    /// Number of bytes received by which the window has not been opened again.
    held: usize,
    /// Size of the head at the front of the bytes that are sent next.
    head: usize,
    /// The trailers of the response, once its end is known.
    end: Option<Vec<u8>>,
    /// Bytes of the response's body that the client's window does not admit.
    unsent: BytesMut,
    /// Whether the end of the response has been sent.
    finished: bool,
    /// Reason for refusing the rest of the body.
    refused: Option<Refusal>,
    /// Whether the client has left or the stream is broken.
    gone: bool,
}

impl Http2Stream {
    pub(super) fn new(
        state: &Rc<StreamState>,
        requests: Requests,
        incoming: RecvStream,
        respond: SendResponse<Bytes>,
    ) -> Http2Stream {
        Http2Stream {
            state: Rc::clone(state),
            requests,
            incoming,
            respond,
            outgoing: None,
            body: ReceivedBody::none(),
            call: false,
            tunnel: false,
            held: 0,
            head: 0,
            end: None,
            unsent: BytesMut::new(),
            finished: false,
            refused: None,
            gone: false,
        }
    }

    /// Reads the head of the request.
    ///
    /// # Errors
    /// It breaks a rule, or exceeds a limit.
    pub(super) fn read_head(&mut self, parts: &http::request::Parts) -> Result<Request, Refusal> {
        let request = head::request(&mut self.requests, parts, self.incoming.is_end_stream())?;
        let takes_calls = || self.state.worker.active_config().site.pools.iter().any(|pool| pool.http2);
        self.call = grpc::is_call(&request) && takes_calls();
        self.tunnel = request.upgrade().is_some();
        Ok(request)
    }

    /// Returns the stream as the client's side of a tunnel. `None` if the client has left.
    pub(super) fn into_tunnel(self) -> Option<TunnelStream> {
        Some(TunnelStream::new(self.incoming, self.outgoing?, None))
    }

    /// Ends the stream without regard to its state. The client learns that a response is not complete.
    pub(super) fn abort(&mut self) {
        if !self.finished {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }

    /// Takes the pieces of the body that have arrived. The window bounds them.
    fn receive(&mut self, cx: &mut Context<'_>) {
        for _ in 0..PIECES {
            if self.body.is_complete() || self.refused.is_some() {
                return;
            }
            match self.incoming.poll_data(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(bytes))) => {
                    self.held += bytes.len();
                    self.state.bytes_in.set(self.state.bytes_in.get() + bytes.len() as u64);
                    self.body.arrived(self.state.now());
                    self.refused = self.body.push(&bytes).err();
                }
                Poll::Ready(Some(Err(_))) => return self.gone = true,
                Poll::Ready(None) => match self.incoming.poll_trailers(cx) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(trailers)) => {
                        if let Some(trailers) = trailers.filter(|_| self.body.is_chunked()) {
                            self.refused = head::trailers(&mut self.requests, &trailers).err();
                        }
                        self.body.complete();
                    }
                    Poll::Ready(Err(_)) => return self.gone = true,
                },
            }
        }
        cx.waker().wake_by_ref();
    }

    /// Opens the window by the bytes that have been passed on.
    fn release(&mut self) {
        let passed = self.held.saturating_sub(self.body.len());
        if passed > 0 {
            self.held -= passed;
            // Fails only if more is released than was received.
            let _ = self.incoming.flow_control().release_capacity(passed);
        }
    }

    /// Returns whether the client has reset the stream or left.
    fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        let reset = match &mut self.outgoing {
            Some(outgoing) => outgoing.poll_reset(cx),
            None => self.respond.poll_reset(cx),
        };
        reset.is_ready()
    }

    /// Sends the head of a response or of an interim response.
    fn send_head(&mut self, lines: &[u8], last: bool) {
        let response = head::response(lines);
        let sent = if response.status().is_informational() {
            self.respond.send_informational(response)
        } else {
            let ended = last && self.end.as_ref().is_some_and(Vec::is_empty);
            self.finished = ended;
            self.respond.send_response(response, ended).map(|outgoing| self.outgoing = Some(outgoing))
        };
        self.gone |= sent.is_err();
    }

    /// Sends as much as the client's window admits. Ready when all of it has been handed over.
    fn push(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Some(outgoing) = &mut self.outgoing else { return Poll::Ready(Ok(())) };
        while !self.unsent.is_empty() {
            outgoing.reserve_capacity(self.unsent.len().min(PIECE));
            let capacity = match outgoing.capacity() {
                0 => match outgoing.poll_capacity(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) => return Poll::Ready(Err(Reason::STREAM_CLOSED.into())),
                },
                capacity => capacity,
            };
            let piece = self.unsent.split_to(capacity.min(self.unsent.len())).freeze();
            self.finished = self.unsent.is_empty() && self.end.as_ref().is_some_and(Vec::is_empty);
            outgoing.send_data(piece, self.finished)?;
            self.state.stuck.set(self.state.now() + self.state.progress.get());
        }
        if let Some(trailers) = self.end.take_if(|_| !self.finished) {
            self.finished = true;
            match trailers.is_empty() {
                true => outgoing.send_data(Bytes::new(), true)?,
                false => outgoing.send_trailers(head::fields(&trailers))?,
            }
        }
        self.unsent = BytesMut::new();
        Poll::Ready(Ok(()))
    }
}

impl RequestStream for Http2Stream {
    fn body(&mut self) -> &mut ReceivedBody {
        &mut self.body
    }

    fn begin_body(&mut self) -> Result<(), Refusal> {
        let active_config = self.state.worker.active_config();
        let site = &active_config.site;
        let pace = crate::body_pace::BodyPace::new(&site.timeouts);
        self.body.begin(self.state.now(), self.requests.length(), site.limits.body_bytes, pace)?;
        if self.tunnel || self.incoming.is_end_stream() {
            self.body.complete();
        }
        Ok(())
    }

    fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        self.release();
        self.receive(cx);
        if self.gone || (!self.finished && self.is_reset(cx)) {
            self.gone = true;
            return Err(Lost::Gone);
        }
        let room = self.body.len() < AHEAD;
        let due = if self.call { Time::NEVER } else { self.body.due(&self.state, room) };
        self.state.body_due.set(due);
        match self.refused {
            Some(refusal) => Err(Lost::Refused(refusal)),
            None if self.state.now() >= due => Err(Lost::Refused(Refusal::SlowBody)),
            None => Ok(()),
        }
    }

    /// A call is sent on with its head: its client may wait for the server, and either may be silent for long.
    fn poll_sendable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        self.await_body(cx)?;
        if self.call || self.body.is_sendable() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn invite_body(&mut self) {
        self.send_head(b"HTTP/1.1 100 Continue\r\n\r\n", false);
    }

    fn upload(&mut self) -> (&mut ReceivedBody, &[u8]) {
        (&mut self.body, self.requests.trailers())
    }

    fn begin_message(&mut self, head: usize) {
        self.head = head;
    }

    fn end_message(&mut self, trailers: &[u8], _: bool) {
        self.end = Some(trailers.to_vec());
    }

    fn send(&mut self, cx: &mut Context<'_>, first: &[u8], second: &[u8]) {
        self.state.answered.set(true);
        let (head, first) = first.split_at(std::mem::take(&mut self.head).min(first.len()));
        if !head.is_empty() {
            self.send_head(head, first.is_empty() && second.is_empty());
        }
        self.unsent.extend_from_slice(first);
        self.unsent.extend_from_slice(second);
        match self.push(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => self.gone = true,
            Poll::Pending if self.state.stuck.get() == Time::NEVER => {
                self.state.stuck.set(self.state.now() + self.state.progress.get());
            }
            Poll::Pending => {}
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        if self.gone {
            return Poll::Ready(Err(Lost::Gone));
        }
        match self.push(cx) {
            Poll::Ready(Ok(())) => {
                self.state.stuck.set(Time::NEVER);
                Poll::Ready(Ok(()))
            }
            Poll::Pending if self.state.now() < self.state.stuck.get() => Poll::Pending,
            Poll::Pending => {
                // The client does not open its window.
                self.respond.send_reset(Reason::CANCEL);
                self.gone = true;
                Poll::Ready(Err(Lost::Gone))
            }
            Poll::Ready(Err(_)) => {
                self.gone = true;
                Poll::Ready(Err(Lost::Gone))
            }
        }
    }

    fn unsent(&self) -> usize {
        self.unsent.len()
    }

    fn has_sent_all(&self) -> bool {
        self.body.is_complete() && self.refused.is_none()
    }

    fn finish(&mut self, _: Request, _: bool) -> End {
        // If the client is still sending, the library resets the stream with NO_ERROR when it is dropped.
        End::Done
    }
}
