//! A connected socket: TCP, or a Unix stream socket.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix stream socket.
    Unix(UnixStream),
}

/// Calls the same method of either kind.
macro_rules! either {
    ($socket:expr, $io:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($io) => $call,
            Socket::Unix($io) => $call,
        }
    };
}

impl Socket {
    /// Sends as many bytes as the kernel takes at once.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, io => io.try_write(bytes))
    }

    /// Whether there is nothing to read, and the connection has not ended. The runtime takes a new socket for readable.
    /// This corrects it.
    pub(crate) fn is_silent(&self) -> bool {
        let peek = || Ok(recv(self, &mut [0; 1], RecvFlags::PEEK)?);
        let seen = either!(self, io => io.try_io(Interest::READABLE, peek));
        seen.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Ready when there are bytes to read, or the connection has ended or is broken.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        either!(self, io => io.poll_read_ready(cx)).map(drop)
    }

    /// Copies received bytes to `buffer` and leaves them in the socket. Returns their number, zero at the end.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(either!(self, io => io.poll_read_ready(cx)))?;
            let mut peek = || Ok(recv(self, &mut *buffer, RecvFlags::PEEK).map(|(seen, _)| seen)?);
            match either!(self, io => io.try_io(Interest::READABLE, &mut peek)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                seen => return Poll::Ready(seen),
            }
        }
    }
}

/// A connected socket on its way to another thread.
#[derive(Debug)]
pub(crate) enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    /// Detaches it from this thread.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Socket::Tcp(io) => Detached::Tcp(io.into_std()?),
            Socket::Unix(io) => Detached::Unix(io.into_std()?),
        })
    }
}

impl Detached {
    /// Attaches it to the present thread.
    pub(crate) fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            Detached::Tcp(io) => Socket::Tcp(TcpStream::from_std(io)?),
            Detached::Unix(io) => Socket::Unix(UnixStream::from_std(io)?),
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, io => io.as_fd())
    }
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => Pin::new(io).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), io => Pin::new(io).poll_write(cx, bytes))
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), io => Pin::new(io).poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The kernel has all that was written.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), io => Pin::new(io).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_client_is_not_readable() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let socket = Socket::Tcp(listener.accept().await.expect("a connection").0);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(socket.is_silent() && socket.poll_readable(&mut cx).is_pending());
        tokio::io::AsyncWriteExt::write_all(&mut client, b"x").await.expect("it is sent");
        std::future::poll_fn(|cx| socket.poll_readable(cx)).await;
        assert!(!socket.is_silent());
    }
}
