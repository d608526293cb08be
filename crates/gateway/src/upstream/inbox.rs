//! Receive buffer of a thread. During one turn of a task it belongs to that task's connection to a node.
//!
//! Most responses are read, examined and sent on in one turn, so that a connection needs no buffer of its own.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Maximum number of bytes read at once.
const READ: usize = 64 * 1024;

/// Received bytes, and those of them that have not been examined.
pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Inbox {
    /// `kept` is the maximum number of unexamined bytes that a connection keeps between two turns.
    pub(crate) fn new(kept: usize) -> Inbox {
        Inbox { bytes: vec![0; kept + READ].into_boxed_slice(), from: 0, to: 0 }
    }

    /// Starts a turn with the bytes that a connection has kept.
    pub(super) fn load(&mut self, kept: &mut Vec<u8>) {
        self.from = 0;
        self.to = kept.len().min(self.bytes.len());
        if self.to > 0 {
            if let Some(front) = self.bytes.get_mut(..self.to) {
                front.copy_from_slice(kept.get(..self.to).unwrap_or_default());
            }
            *kept = Vec::new();
        }
    }

    /// Ends a turn: gives the unexamined bytes back.
    pub(super) fn save(&mut self, kept: &mut Vec<u8>) {
        kept.extend_from_slice(self.rest());
        self.from = self.to;
    }

    /// The bytes that have not been examined.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.from..self.to).unwrap_or_default()
    }

    /// Takes bytes from the front. The range is valid until the next event is polled.
    pub(crate) fn take(&mut self, bytes: usize) -> Range<usize> {
        let from = self.from;
        self.from = (from + bytes).min(self.to);
        from..self.from
    }

    /// Returns the bytes of a range that was taken.
    pub(crate) fn get(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Reads the bytes that have arrived. Returns 0 if the other side has closed, or if there is no room, which does
    /// not happen if the kept bytes are bounded as [`Inbox::new`] demands.
    pub(super) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.from > 0 {
            self.bytes.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        let end = (self.to + READ).min(self.bytes.len());
        let mut buffer = ReadBuf::new(self.bytes.get_mut(self.to..end).unwrap_or_default());
        ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
        let read = buffer.filled().len();
        self.to += read;
        Poll::Ready(Ok(read))
    }
}
