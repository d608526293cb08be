//! The body of a request on its way to a node.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::body_pace::BodyPace;
use crate::client_conn::ClientConn;
use crate::refusal::Refusal;

/// The body of a request on its way to a node.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// No body.
    Empty,
    /// A body that has been received completely.
    Whole(Option<Bytes>),
    /// A body that is passed on as the client sends it.
    Stream(Upload),
}

/// A body that is passed on as it arrives.
pub(crate) struct Upload {
    incoming: Incoming,
    conn: Rc<ClientConn>,
    /// Number of bytes that may still arrive (413 beyond it).
    left: Option<u64>,
    /// Maximum time to the first byte of the node's response after the whole body was sent.
    first_byte: std::time::Duration,
    pace: BodyPace,
    progress: Rc<Progress>,
}

/// Progress of a body that is passed on.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether the client has to send.
    pub(crate) awaits_client: std::cell::Cell<bool>,
    /// Whether the whole body has been handed over.
    pub(crate) complete: std::cell::Cell<bool>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Upload {
    pub(crate) fn new(
        incoming: Incoming,
        conn: &Rc<ClientConn>,
        limit: Option<u64>,
        first_byte: std::time::Duration,
        pace: BodyPace,
    ) -> (Upload, Rc<Progress>) {
        let progress = Rc::new(Progress::default());
        let upload =
            Upload { incoming, conn: Rc::clone(conn), left: limit, first_byte, pace, progress: Rc::clone(&progress) };
        (upload, progress)
    }

    fn done(&self) {
        if !self.progress.complete.replace(true) {
            self.progress.awaits_client.set(false);
            self.conn.begin_phase(self.first_byte);
        }
    }
}

/// Counts a chunk. Returns a refusal if it exceeds the limit.
pub(crate) fn account(conn: &ClientConn, left: &mut Option<u64>, bytes: usize) -> Result<(), Refusal> {
    conn.bytes_in.set(conn.bytes_in.get() + bytes as u64);
    if let Some(left) = left {
        *left = left.checked_sub(bytes as u64).ok_or(TOO_LARGE)?;
    }
    Ok(())
}

/// Refusal with status 408.
pub(crate) const TOO_SLOW: Refusal = Refusal::with(StatusCode::REQUEST_TIMEOUT, "the request body came too slowly");

/// Refusal with status 413.
pub(crate) const TOO_LARGE: Refusal = Refusal::with(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large");

/// A body that stopped. The connection's state has the reason.
#[derive(Debug)]
pub(crate) struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request body stopped")
    }
}

impl std::error::Error for Stopped {}

impl From<Infallible> for Stopped {
    fn from(never: Infallible) -> Stopped {
        match never {}
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        match &mut *self {
            RequestBody::Empty => Poll::Ready(None),
            RequestBody::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            RequestBody::Stream(upload) => {
                upload.progress.awaits_client.set(true);
                let Poll::Ready(frame) = Pin::new(&mut upload.incoming).poll_frame(cx) else {
                    let late = upload.pace.awaits(upload.conn.now(), upload.conn.bytes_in.get());
                    upload.conn.phase.set(upload.conn.phase.get().min(late));
                    return Poll::Pending;
                };
                upload.pace.arrived(upload.conn.now());
                upload.progress.awaits_client.set(false);
                upload.conn.begin_phase(upload.conn.progress.get());
                match frame {
                    None => {
                        upload.done();
                        Poll::Ready(None)
                    }
                    Some(Ok(frame)) => {
                        if let Some(data) = frame.data_ref()
                            && let Err(refusal) = account(&upload.conn, &mut upload.left, data.len())
                        {
                            upload.conn.refuse_body(upload.conn.calls.get(), refusal);
                            return Poll::Ready(Some(Err(Stopped)));
                        }
                        if upload.incoming.is_end_stream() {
                            upload.done();
                        }
                        Poll::Ready(Some(Ok(frame)))
                    }
                    Some(Err(_)) => Poll::Ready(Some(Err(Stopped))),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty | RequestBody::Whole(None) => true,
            RequestBody::Whole(Some(_)) => false,
            RequestBody::Stream(upload) => upload.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty | RequestBody::Whole(None) => SizeHint::with_exact(0),
            RequestBody::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            RequestBody::Stream(upload) => upload.incoming.size_hint(),
        }
    }
}
