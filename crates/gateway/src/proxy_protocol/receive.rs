//! Receives the header that precedes everything else on a connection.
//!
//! No byte after the header is taken from the socket, so that TLS or HTTP begin as they do without a header. The
//! header is bounded, and due within `timeouts.header` from the acceptance of the connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use tokio::io::{AsyncRead, ReadBuf};

use super::Header;
use super::parse::{MAX_HEADER, NoHeader, parse};
use crate::socket::Socket;
use crate::stream_state::{StreamState, Untimely};

weirgate_engine::named! {
    /// Why a connection that must begin with a header was closed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HeaderFailure {
        /// It took too long.
        Timeout = "timeout",
        /// The peer left, or was silent while capacity was short. Balancers that only check for an open port leave.
        Closed = "closed",
        /// The connection began with something else.
        Missing = "missing",
        /// The header breaks a rule of the protocol.
        Malformed = "malformed",
    }
}

impl From<NoHeader> for HeaderFailure {
    fn from(why: NoHeader) -> HeaderFailure {
        match why {
            NoHeader::Missing => HeaderFailure::Missing,
            NoHeader::Malformed => HeaderFailure::Malformed,
        }
    }
}

impl From<Untimely> for HeaderFailure {
    fn from(why: Untimely) -> HeaderFailure {
        match why {
            Untimely::Late => HeaderFailure::Timeout,
            Untimely::Closing => HeaderFailure::Closed,
        }
    }
}

/// Counts of connections that were closed for want of a header.
#[derive(Debug, Default)]
pub struct HeaderFailures([AtomicU64; HeaderFailure::ALL.len()]);

impl HeaderFailures {
    pub(crate) fn count(&self, failure: HeaderFailure) {
        if let Some(count) = self.0.get(failure as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of connections, by reason.
    pub fn all(&self) -> impl Iterator<Item = (HeaderFailure, u64)> {
        HeaderFailure::ALL.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

/// Receives the header of a connection.
pub(crate) async fn receive(conn: &Rc<StreamState>, io: &mut Socket) -> Result<Header, HeaderFailure> {
    let mut bytes = Vec::new();
    let received = poll_fn(|cx| {
        loop {
            let mut scratch = conn.worker.scratch.borrow_mut();
            let room = (MAX_HEADER + 1).saturating_sub(bytes.len()).min(scratch.len());
            let room = scratch.get_mut(..room).unwrap_or_default();
            let seen = match io.poll_peek(cx, room) {
                Poll::Ready(Ok(seen)) if seen > 0 => seen,
                Poll::Ready(_) => return Poll::Ready(Err(HeaderFailure::Closed)),
                Poll::Pending => return Poll::Pending,
            };
            let before = bytes.len();
            bytes.extend_from_slice(room.get(..seen).unwrap_or_default());
            let found = match parse(&bytes) {
                Ok(found) => found,
                Err(why) => return Poll::Ready(Err(why.into())),
            };
            let own = found.as_ref().map_or(seen, |(_, size)| size.saturating_sub(before));
            let mut taken = ReadBuf::new(room.get_mut(..own).unwrap_or_default());
            match Pin::new(&mut *io).poll_read(cx, &mut taken) {
                // They are there, because they have been seen.
                Poll::Ready(Ok(())) if taken.filled().len() == own => {}
                _ => return Poll::Ready(Err(HeaderFailure::Closed)),
            }
            if let Some((header, _)) = found {
                return Poll::Ready(Ok(header));
            }
        }
    });
    conn.in_time(received).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_under_their_own_words() {
        let counts = HeaderFailures::default();
        HeaderFailure::ALL.into_iter().for_each(|failure| counts.count(failure));
        assert!(counts.all().all(|(_, count)| count == 1));
        let words: std::collections::BTreeSet<_> = counts.all().map(|(failure, _)| failure.as_str()).collect();
        assert_eq!(words.len(), HeaderFailure::ALL.len());
    }
}
