//! The transport of a connection: a socket, with or without TLS.
//!
//! An enum and not a type parameter, so that the code of a request exists once. A plain connection pays one branch a
//! call.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use crate::socket::Socket;

/// A transport.
///
/// Bytes that TLS has taken may still wait to be sent. [`AsyncWrite::poll_flush`] sends them. Without TLS it does
/// nothing.
#[derive(Debug)]
pub(crate) enum Io {
    /// A socket.
    Plain(Socket),
    /// TLS over a socket. Boxed, so that other connections do not have its size.
    Tls(Box<TlsStream<Socket>>),
}

impl Io {
    /// Whether it is TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Io::Tls(_))
    }

    /// Whether the runtime watches its socket.
    pub(crate) fn is_watched(&self) -> bool {
        match self {
            Io::Plain(io) => io.is_watched(),
            Io::Tls(io) => io.get_ref().0.is_watched(),
        }
    }

    /// Whether bytes have arrived that nobody has read.
    pub(crate) fn has_more(&self) -> bool {
        match self {
            Io::Plain(io) => io.has_more(),
            Io::Tls(io) => io.get_ref().0.has_more(),
        }
    }

    /// Sends bytes after which the connection is closed at once.
    pub(crate) fn poll_write_last(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Io::Plain(io) => io.poll_write_last(cx, bytes),
            // TLS has a message of its own for the end.
            Io::Tls(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    /// Whether the handshake of TLS has agreed on HTTP/2.
    pub(crate) fn has_agreed_on_http2(&self) -> bool {
        matches!(self, Io::Tls(io) if io.get_ref().1.alpn_protocol() == Some(b"h2"))
    }
}

impl AsyncRead for Io {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buffer),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Io {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Io::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Io::Tls(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(cx, pieces),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Plain(_) => Poll::Ready(Ok(())),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
