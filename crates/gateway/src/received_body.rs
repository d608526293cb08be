//! The body of the current request, as far as it has been received and not yet sent to a node.

use bytes::BytesMut;
use weirgate_engine::Time;
use weirgate_http1::Length;

use crate::body_pace::BodyPace;
use crate::refusal::Refusal;
use crate::stream_state::StreamState;

/// Maximum number of bytes that are kept of a body. A body up to this size is received before the request is admitted.
/// A slow sender then holds no slot, and an idempotent request can be retried.
pub(crate) const AHEAD: usize = 64 * 1024;

/// The body of the current request.
pub(crate) struct ReceivedBody {
    /// Data without framing.
    data: BytesMut,
    /// Number of bytes at the front of `data` that have been sent and are kept for a retry.
    sent: usize,
    /// Whether the last byte has been received.
    complete: bool,
    length: Length,
    /// Number of bytes that may still arrive.
    left: u64,
    pace: BodyPace,
    /// Time of the last byte.
    last: Time,
}

impl ReceivedBody {
    pub(crate) fn none() -> ReceivedBody {
        ReceivedBody {
            data: BytesMut::new(),
            sent: 0,
            complete: true,
            length: Length::Known(0),
            left: u64::MAX,
            pace: BodyPace::default(),
            last: Time::ZERO,
        }
    }

    /// Begins the body of a request. `limit` is the maximum size in bytes.
    ///
    /// # Errors
    /// The declared length exceeds the limit.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        length: Length,
        limit: Option<u64>,
        pace: BodyPace,
    ) -> Result<(), Refusal> {
        *self = ReceivedBody {
            data: std::mem::take(&mut self.data),
            complete: false,
            length,
            left: limit.unwrap_or(u64::MAX),
            pace,
            last: now,
            ..ReceivedBody::none()
        };
        match length {
            Length::Known(bytes) if bytes > self.left => Err(Refusal::LargeBody),
            _ => Ok(()),
        }
    }

    /// Adds received bytes.
    ///
    /// # Errors
    /// The body is larger than the limit.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(Refusal::LargeBody)?;
        self.data.extend_from_slice(bytes);
        Ok(())
    }

    /// Notes that the last byte has been received.
    pub(crate) fn complete(&mut self) {
        self.complete = true;
    }

    /// Whether the last byte has been received.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the whole body is still here, so that it can be sent again.
    pub(crate) fn is_whole(&self) -> bool {
        self.complete && self.is_small()
    }

    /// Whether the body is small enough to be received before the request is admitted.
    pub(crate) fn is_small(&self) -> bool {
        matches!(self.length, Length::Known(bytes) if bytes <= AHEAD as u64)
    }

    /// Whether there is something to send: all of a small body, or the first byte of a larger one.
    pub(crate) fn is_sendable(&self) -> bool {
        self.complete || (!self.is_small() && !self.unsent().is_empty())
    }

    /// Whether the body is sent in chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        self.length == Length::Chunked
    }

    /// Number of bytes that are kept.
    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    /// Returns the bytes that have not been sent to the node.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.data.get(self.sent..).unwrap_or_default()
    }

    /// Notes that `bytes` more have been sent. Those of a small body are kept for a retry.
    pub(crate) fn advance(&mut self, bytes: usize) {
        if self.is_small() {
            self.sent += bytes;
        } else {
            bytes::Buf::advance(&mut self.data, bytes);
        }
    }

    /// Begins to send from the front again.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Notes that bytes have arrived.
    pub(crate) fn arrived(&mut self, now: Time) {
        self.pace.arrived(now);
        self.last = now;
    }

    /// Returns the time at which the client has been too slow, if nothing arrives until then. `room` tells whether the
    /// gateway reads.
    pub(crate) fn due(&mut self, conn: &StreamState, room: bool) -> Time {
        let now = conn.now();
        if self.complete {
            return Time::NEVER;
        }
        if !room {
            self.arrived(now);
            return Time::NEVER;
        }
        self.pace.awaits(now, conn.bytes_in.get()).min(self.last + conn.progress.get())
    }

    /// Drops the body and its memory.
    pub(crate) fn clear(&mut self) {
        *self = ReceivedBody::none();
    }
}
