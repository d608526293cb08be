//! A stream of HTTP/2 as a transport of bytes: a side of a tunnel that an extended CONNECT has opened.
//!
//! Source: RFC 8441 Sec. 4: DATA is the bytes, END_STREAM is the FIN of TCP, and RST_STREAM with CANCEL is its RST. The
//! window opens by the bytes that the other side of the tunnel has been given, so a slow side holds back the fast one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::PIECE;
use crate::upstream::OpenStream;

/// A stream as a transport.
#[derive(Debug)]
pub(crate) struct TunnelStream {
    incoming: RecvStream,
    outgoing: SendStream<Bytes>,
    /// Bytes that have arrived and have not been read.
    received: Bytes,
    /// Whether the end has been sent.
    ended: bool,
    /// Counts a stream to a node.
    _open: Option<OpenStream>,
}

impl TunnelStream {
    /// Wraps a stream after the exchange of heads. `open` counts it at a node.
    pub(crate) fn new(incoming: RecvStream, outgoing: SendStream<Bytes>, open: Option<OpenStream>) -> TunnelStream {
        TunnelStream { incoming, outgoing, received: Bytes::new(), ended: false, _open: open }
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        if !self.ended {
            self.outgoing.send_reset(Reason::CANCEL);
        }
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.received.is_empty() {
            match ready!(self.incoming.poll_data(cx)) {
                Some(Ok(bytes)) => self.received = bytes,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let bytes = self.received.len().min(buffer.remaining());
        buffer.put_slice(self.received.get(..bytes).unwrap_or_default());
        self.received.advance(bytes);
        // Fails only if more is released than was received.
        let _ = self.incoming.flow_control().release_capacity(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.outgoing.reserve_capacity(bytes.len().min(PIECE));
        while self.outgoing.capacity() == 0 {
            match ready!(self.outgoing.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let piece = bytes.get(..bytes.len().min(self.outgoing.capacity())).unwrap_or_default();
        let sent = self.outgoing.send_data(Bytes::copy_from_slice(piece), false);
        Poll::Ready(sent.map(|()| piece.len()).map_err(io::Error::other))
    }

    /// Notices a reset of the stream. The task of the connection sends what has been written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.outgoing.poll_reset(cx) {
            Poll::Ready(_) if !self.ended => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Poll::Ready(_) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.ended, true) {
            self.outgoing.send_data(Bytes::new(), true).map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}
