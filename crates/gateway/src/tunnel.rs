//! Tunnel after a change of protocol: copies bytes in both directions, without interpreting them. A side is a
//! connection, or a stream of HTTP/2 (RFC 8441).
//!
//! The slot was freed when the protocol changed. A tunnel ends when both sides have ended, when either side
//! fails, or when no bytes have moved for the idle timeout.

use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::exchange::Exchange;
use crate::record::Ending;
use crate::stream_state::StreamState;

/// Buffer size for one direction, in bytes. A whole socket buffer's worth would only add delay.
const BUFFER: usize = 16 * 1024;

/// A side of a tunnel.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Debug {}

impl<T: AsyncRead + AsyncWrite + Unpin + Debug> Duplex for T {}

/// A side of any kind. The calls cost little next to the bytes that they move.
pub(crate) type Side = Box<dyn Duplex>;

/// The node's side of a tunnel, stored until the response before it has been sent.
#[derive(Debug)]
pub(crate) struct Tunnel {
    stream: Side,
    received: Bytes,
    idle: Duration,
    exchange: Exchange,
}

impl Tunnel {
    pub(crate) fn new(stream: Side, received: Bytes, idle: Duration, exchange: Exchange) -> Tunnel {
        Tunnel { stream, received, idle, exchange }
    }

    /// Copies bytes until the end. `first` has the bytes that the client sent after its request.
    pub(crate) async fn run(mut self, mut client: Side, first: Bytes, conn: &Rc<StreamState>) {
        let mut up = Way::new(first);
        let mut down = Way::new(std::mem::take(&mut self.received));
        let mut since = conn.now();
        let mut moved = 0;
        let _ = poll_fn(|cx| {
            let upward = up.pass(&mut client, &mut self.stream, cx);
            let downward = down.pass(&mut self.stream, &mut client, cx);
            if up.moved + down.moved > moved {
                moved = up.moved + down.moved;
                since = conn.now();
            }
            let due = since + self.idle;
            let late = conn.now() >= due;
            if !late {
                conn.wake_at(due, cx.waker());
            }
            match (upward, downward) {
                (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
                _ if late => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                _ => Poll::Pending,
            }
        })
        .await;
        conn.bytes_in.set(up.moved);
        self.exchange.bytes_out = down.moved;
        self.exchange.ending = Ending::Tunnelled;
    }
}

/// One direction of a tunnel.
struct Way {
    pending: Bytes,
    buffer: Box<[u8; BUFFER]>,
    moved: u64,
    /// Whether the source has ended.
    read_all: bool,
    /// Whether the sink has been closed.
    closed: bool,
}

impl Way {
    fn new(pending: Bytes) -> Way {
        Way { pending, buffer: Box::new([0; BUFFER]), moved: 0, read_all: false, closed: false }
    }

    /// Copies bytes. Ready when this direction has ended.
    fn pass<R, W>(&mut self, from: &mut R, to: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        // Bounded, so that two fast sides leave turns for other tasks.
        for _ in 0..16 {
            while self.pending.has_remaining() {
                let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.pending))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.pending.advance(written);
                self.moved += written as u64;
            }
            ready!(Pin::new(&mut *to).poll_flush(cx))?;
            if self.read_all {
                if !self.closed {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.closed = true;
                }
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut self.buffer[..]);
            ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer))?;
            self.read_all = buffer.filled().is_empty();
            self.pending = Bytes::copy_from_slice(buffer.filled());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
