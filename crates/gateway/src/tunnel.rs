//! Tunnel after a change of protocol: copies bytes in both directions, without interpreting them. A side is a
//! connection, or a stream of HTTP/2 (RFC 8441).
//!
//! The slot was freed when the protocol changed. A tunnel ends when both sides have ended, when either side fails, when
//! no bytes have moved for its idle time, or at the end of its total time. A reload does not touch it. It keeps no
//! buffer while nothing waits in it, because thousands may be open.

use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weirgate_config::Tunnels;
use weirgate_engine::Time;

use crate::exchange::{Exchange, Stop};
use crate::places::ClassPlace;
use crate::record::Ending;
use crate::stream_state::StreamState;

/// Maximum number of bytes that are read of one direction at once, and that wait in it. A whole socket buffer's worth
/// would only add delay.
const PIECE: usize = 16 * 1024;

/// Maximum number of pieces in one turn, so that two fast sides leave turns for other tasks.
const PIECES: usize = 16;

/// Time after which a silent tunnel lets go of a configuration that has been replaced.
const LOOK: Duration = Duration::from_secs(60);

/// A side of a tunnel.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Debug {}

impl<T: AsyncRead + AsyncWrite + Unpin + Debug> Duplex for T {}

/// A side of any kind. The calls cost little next to the bytes that they move.
pub(crate) type Side = Box<dyn Duplex>;

impl Exchange {
    /// Returns the limits of the tunnel that the request becomes.
    pub(crate) fn tunnel_limits(&self) -> Tunnels {
        // As for timeouts.
        const UNKNOWN: Tunnels = Tunnels { max: None, idle: Duration::from_secs(60), total: None };
        self.class_site().map_or(UNKNOWN, |class| class.tunnels)
    }

    /// Takes a place for a tunnel, if the request asks for one.
    pub(crate) fn tunnel_place(&self) -> Result<Option<Box<ClassPlace>>, Stop> {
        if self.request.upgrade().is_none() {
            return Ok(None);
        }
        let shared = &self.conn.worker.shared;
        let (name, all) = (self.class_name().unwrap_or("-"), Some(self.active_config.site.limits.tunnels));
        let place = shared.tunnels.enter(all, name, self.tunnel_limits().max);
        if place.is_none() {
            shared.counters.tunnels_refused.fetch_add(1, Ordering::Relaxed);
        }
        place.map(Some).ok_or(Stop::Exhausted)
    }
}

/// The node's side of a tunnel, stored until the response before it has been sent.
pub(crate) struct Tunnel {
    node: Side,
    received: Bytes,
    exchange: Exchange,
}

impl Tunnel {
    pub(crate) fn new(node: Side, received: Bytes, exchange: Exchange) -> Tunnel {
        Tunnel { node, received, exchange }
    }

    /// Copies bytes until the end. `first` has the bytes that the client sent after its request.
    pub(crate) async fn run(mut self, mut client: Side, first: Bytes, conn: &Rc<StreamState>) {
        let counters = &conn.worker.shared.counters;
        counters.tunnels.fetch_add(1, Ordering::Relaxed);
        let limits = self.exchange.tunnel_limits();
        let mut up = Way::new(&first);
        let mut down = Way::new(&std::mem::take(&mut self.received));
        drop(first);
        let mut since = conn.now();
        let end = limits.total.map_or(Time::NEVER, |total| since + total);
        let mut moved = 0;
        let ended: io::Result<()> = poll_fn(|cx| {
            self.exchange.let_go();
            let mut scratch = conn.worker.scratch.borrow_mut();
            let scratch = scratch.get_mut(..PIECE).unwrap_or_default();
            let upward = up.pass(&mut client, &mut self.node, scratch, cx);
            let downward = down.pass(&mut self.node, &mut client, scratch, cx);
            let now = conn.now();
            if up.moved + down.moved > moved {
                moved = up.moved + down.moved;
                since = now;
            }
            let due = end.min(since + limits.idle);
            conn.wake_at(due.min(now + LOOK), cx.waker());
            match (upward, downward) {
                (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
                _ if now >= due => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                _ => Poll::Pending,
            }
        })
        .await;
        if ended.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            counters.tunnels_timed_out.fetch_add(1, Ordering::Relaxed);
        }
        conn.bytes_in.set(up.moved);
        self.exchange.bytes_out = down.moved;
        self.exchange.ending = Ending::Tunnelled;
    }
}

/// One direction of a tunnel.
struct Way {
    /// Bytes that the sink has not taken.
    pending: BytesMut,
    moved: u64,
    /// Whether the source has ended.
    read_all: bool,
    /// Whether the sink has been closed.
    closed: bool,
}

impl Way {
    fn new(pending: &[u8]) -> Way {
        Way { pending: pending.into(), moved: 0, read_all: false, closed: false }
    }

    /// Copies bytes by way of `scratch`. Ready when this direction has ended.
    fn pass(
        &mut self,
        from: &mut Side,
        to: &mut Side,
        scratch: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        for _ in 0..PIECES {
            while !self.pending.is_empty() {
                let written = ready!(self.write(to, None, cx))?;
                self.pending.advance(written);
            }
            self.pending = BytesMut::new();
            ready!(Pin::new(&mut *to).poll_flush(cx))?;
            if self.read_all {
                if !self.closed {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.closed = true;
                }
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer))?;
            let mut bytes = buffer.filled();
            self.read_all = bytes.is_empty();
            while !bytes.is_empty() {
                match self.write(to, Some(bytes), cx)? {
                    Poll::Ready(written) => bytes.advance(written),
                    Poll::Pending => {
                        self.pending.extend_from_slice(bytes);
                        return Poll::Pending;
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes bytes, or those that wait. Returns their number.
    fn write(&mut self, to: &mut Side, bytes: Option<&[u8]>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(to).poll_write(cx, bytes.unwrap_or(&self.pending)))?;
        self.moved += written as u64;
        Poll::Ready(if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) })
    }
}
