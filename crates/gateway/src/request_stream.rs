//! What the stages of a request need from its client, in any protocol: the body in, the response out.
//!
//! Responses are written as HTTP/1.1 writes them: the lines of a head, and then the bytes of the body. Another protocol
//! reads the lines and sends them in its own form. A body that it sends has no chunks (see `Frame`), so it is told
//! where the head and the body end.

use std::task::{Context, Poll};

use crate::connection::End;
use crate::received_body::ReceivedBody;
use crate::refusal::Refusal;
use crate::request::Request;

/// The client does not complete its request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lost {
    /// It has left.
    Gone,
    /// Its body is refused.
    Refused(Refusal),
}

/// The client of one request.
pub(crate) trait RequestStream {
    /// The body of the request, as far as it is kept.
    fn body(&mut self) -> &mut ReceivedBody;

    /// Begins to receive the body of the request, right after its head. [`RequestStream::watch`] reports a body that is
    /// refused.
    ///
    /// # Errors
    /// The declared length exceeds the limit.
    fn begin_body(&mut self) -> Result<(), Refusal>;

    /// Reads on while a request is being served, up to a limit. A client that has sent all of its request may be read
    /// later.
    ///
    /// # Errors
    /// The client has left, its body breaks a rule, or it sends the body too slowly.
    fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), Lost>;

    /// Waits until the request can be admitted: a small body has arrived, or the first byte of a larger one. So a
    /// request holds no slot while there is nothing to send.
    ///
    /// # Errors
    /// As [`RequestStream::watch`].
    fn poll_sendable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        if !self.body().is_sendable() {
            self.await_body(cx)?;
        }
        if self.body().is_sendable() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Waits until the first `bytes` of the body have been received, or all of it.
    ///
    /// # Errors
    /// As [`RequestStream::watch`].
    fn poll_prefix(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<Result<(), Lost>> {
        self.await_body(cx)?;
        let body = self.body();
        if body.is_complete() || body.len() >= bytes { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Reads on, and sends what is unsent of an invitation.
    ///
    /// # Errors
    /// As [`RequestStream::watch`].
    fn await_body(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        if let Poll::Ready(Err(lost)) = self.poll_flush(cx) {
            return Err(lost);
        }
        self.watch(cx)
    }

    /// Tells a client that waits for it to send the body (RFC 9110 Sec. 10.1.1).
    fn invite_body(&mut self);

    /// The body, to be sent to a node, and its trailer section.
    fn upload(&mut self) -> (&mut ReceivedBody, &[u8]);

    /// Notes that the next bytes to be sent begin with a head of this many bytes.
    fn begin_message(&mut self, head: usize);

    /// Notes that the response ends with the next bytes to be sent, and with these trailers. `kept` tells whether its
    /// head keeps the connection.
    fn end_message(&mut self, trailers: &[u8], kept: bool);

    /// Sends two pieces after everything that is unsent. Keeps the bytes that the client does not take at once.
    fn send(&mut self, cx: &mut Context<'_>, first: &[u8], second: &[u8]);

    /// Sends the bytes that are unsent. Ready when there are none.
    ///
    /// # Errors
    /// The client has left or does not read.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>>;

    /// Number of bytes that the client has not taken.
    fn unsent(&self) -> usize;

    /// Whether the client has sent all of the request.
    fn has_sent_all(&self) -> bool;

    /// Ends the request after its response. `kept` tells whether its head keeps the connection.
    fn finish(&mut self, request: Request, kept: bool) -> End;
}
