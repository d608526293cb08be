//! A connected socket: TCP, or a Unix stream socket.
//!
//! The runtime watches a socket from the first time on that a task has to wait for it. Until then it is read and
//! written as it is. Watching costs two system calls and a wake-up, in vain for most clients that connect for a single
//! request: they have sent it by the time they are accepted, and take the response at once.
//!
//! The runtime's type for TCP watches Unix sockets as well: it knows a socket only by its descriptor. It tells when a
//! socket is ready, and the calls for bytes are made here. In a static program its own go through musl's code for the
//! cancellation of threads, which takes 1 % of the CPU time of a small request.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, writev};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A connected socket, which does not block.
#[derive(Debug)]
pub(crate) enum Socket {
    /// No runtime watches it yet, so it may go to another thread.
    Unwatched(OwnedFd),
    /// The runtime of this thread watches it.
    Watched(TcpStream),
    /// The runtime could not watch it, for lack of memory or because of `fs.epoll.max_user_watches`. It is closed.
    Lost,
}

impl Socket {
    /// Whether the runtime watches it.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self, Socket::Watched(_))
    }

    /// Whether the runtime could not watch it.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Socket::Lost)
    }

    /// Sends as many bytes as the kernel takes at once.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.fd()?, bytes, SendFlags::NOSIGNAL)?)
    }

    /// Sends bytes after which the connection is closed at once. The kernel sends them together with the end, in one
    /// packet less.
    pub(crate) fn poll_write_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes, SendFlags::MORE)
    }

    /// Sends as many bytes as there is room for.
    #[inline]
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], flags: SendFlags) -> Poll<io::Result<usize>> {
        // A connection that has ended is an error, not a signal.
        let send = |fd: BorrowedFd<'_>| send(fd, bytes, SendFlags::NOSIGNAL | flags);
        if let Some(sent) = self.at_once(send) {
            return Poll::Ready(sent);
        }
        let io = self.watched()?;
        loop {
            ready!(io.poll_write_ready(cx))?;
            match io.try_io(Interest::WRITABLE, || Ok(send(io.as_fd())?)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Ready when bytes can be sent, or the connection has ended or is broken.
    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watched()?.poll_write_ready(cx)
    }

    /// Ready when there are bytes to read, or the connection has ended or is broken.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.at_once(|fd| recv(fd, &mut [0; 1], RecvFlags::PEEK)) {
            Some(seen) => Poll::Ready(seen.map(drop)),
            None => self.watched()?.poll_read_ready(cx),
        }
    }

    /// Copies received bytes to `buffer` and leaves them in the socket. Returns their number, zero at the end.
    pub(crate) fn poll_peek(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.at_once(|fd| recv(fd, &mut *buffer, RecvFlags::PEEK)) {
            Some(seen) => Poll::Ready(seen.map(|(bytes, _)| bytes)),
            None => self.watched()?.poll_peek(cx, &mut ReadBuf::new(buffer)),
        }
    }

    /// Whether bytes have arrived that nobody has read.
    pub(crate) fn has_more(&self) -> bool {
        let seen = |fd| recv(fd, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.fd().is_ok_and(|fd| seen(fd).is_ok_and(|(bytes, _)| bytes > 0))
    }

    /// Whether the other side has closed its sending side or the connection, even if there are bytes to read.
    pub(crate) fn has_left(&self) -> bool {
        let Ok(fd) = self.fd() else { return true };
        let mut looked = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
        poll(&mut looked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Returns its descriptor.
    ///
    /// # Errors
    /// It has been lost.
    pub(crate) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Socket::Unwatched(fd) => Ok(fd.as_fd()),
            Socket::Watched(io) => Ok(io.as_fd()),
            Socket::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Makes a call without the runtime. Returns `None` if the call would block, or if the runtime watches the socket
    /// and knows better.
    #[inline]
    fn at_once<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>) -> Option<io::Result<T>> {
        let Socket::Unwatched(fd) = self else { return None };
        match call(fd.as_fd()) {
            Err(Errno::WOULDBLOCK) => None,
            done => Some(done.map_err(io::Error::from)),
        }
    }

    /// Returns the runtime's type for it, which watches it from now on.
    #[inline]
    fn watched(&mut self) -> io::Result<&mut TcpStream> {
        if !self.is_watched() {
            self.begin_watching()?;
        }
        match self {
            Socket::Watched(io) => Ok(io),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    #[cold]
    fn begin_watching(&mut self) -> io::Result<()> {
        if let Socket::Unwatched(fd) = std::mem::replace(self, Socket::Lost) {
            *self = Socket::Watched(TcpStream::from_std(fd.into())?);
        }
        Ok(())
    }
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        let room = buffer.remaining();
        let mut receive = |fd: BorrowedFd<'_>| {
            let (bytes, _) = recv(fd, buffer.initialize_unfilled(), RecvFlags::empty())?;
            buffer.advance(bytes);
            Ok(bytes)
        };
        if let Some(read) = socket.at_once(&mut receive) {
            return Poll::Ready(read.map(drop));
        }
        let io = socket.watched()?;
        loop {
            ready!(io.poll_read_ready(cx))?;
            let mut is_all = false;
            let read = io.try_io(Interest::READABLE, || {
                // The runtime waits for more from now on. Otherwise it would take another call to find that out.
                is_all = (1..room).contains(&receive(io.as_fd())?);
                if is_all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match read {
                _ if is_all => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(cx, bytes, SendFlags::empty())
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        match socket.at_once(|fd| writev(fd, pieces)) {
            Some(sent) => Poll::Ready(sent),
            None => Pin::new(socket.watched()?).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The kernel has all that was written.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(self.fd()?, Shutdown::Write) {
            // The other side has ended the connection.
            Err(Errno::NOTCONN) => Ok(()),
            done => done.map_err(io::Error::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn pair() -> (UnixStream, Socket) {
        let (other, own) = UnixStream::pair().expect("two sockets");
        own.set_nonblocking(true).expect("it is set");
        (other, Socket::Unwatched(own.into()))
    }

    #[tokio::test]
    async fn it_is_watched_once_a_task_has_to_wait() {
        let (mut client, mut socket) = pair();
        client.write_all(b"ab").expect("it is sent");
        std::future::poll_fn(|cx| socket.poll_readable(cx)).await.expect("it was sent");
        assert_eq!(socket.read(&mut [0; 16]).await.expect("it was sent"), 2);
        socket.write_all(b"c").await.expect("there is room");
        assert!(!socket.is_watched());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(socket.poll_readable(&mut cx).is_pending() && socket.is_watched());
        client.write_all(b"d").expect("it is sent");
        std::future::poll_fn(|cx| socket.poll_readable(cx)).await.expect("it was sent");
        assert_eq!(socket.read(&mut [0; 16]).await.expect("it was sent"), 1);
    }

    #[tokio::test]
    async fn whatever_is_sent_arrives_in_spite_of_full_buffers() {
        let (mut client, mut socket) = pair();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let reading = std::thread::spawn(move || {
            let mut received = Vec::new();
            client.read_to_end(&mut received).map(|_| received)
        });
        let (first, second) = sent.split_at(1_000_000);
        let mut pieces = [IoSlice::new(first), IoSlice::new(second)];
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            let taken = std::future::poll_fn(|cx| Pin::new(&mut socket).poll_write_vectored(cx, left)).await;
            IoSlice::advance_slices(&mut left, taken.expect("the other side reads"));
        }
        socket.write_all(&sent).await.expect("the other side reads");
        socket.shutdown().await.expect("it is connected");
        let received = reading.join().expect("no panic").expect("it ends");
        assert!(received.len() == 2 * sent.len() && received.chunks(sent.len()).all(|half| half == sent));
    }

    #[tokio::test]
    async fn the_last_bytes_and_the_end_arrive_in_spite_of_full_buffers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut client =
            std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (own, _) = listener.accept().expect("a connection");
        own.set_nonblocking(true).expect("it is set");
        let mut socket = Socket::Unwatched(own.into());
        let sent: Vec<u8> = (0..8_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let (reads, may_read) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            may_read.recv().map_err(std::io::Error::other)?;
            let mut received = Vec::new();
            client.read_to_end(&mut received).map(|_| received)
        });
        let mut left = &sent[..];
        while !left.is_empty() {
            let taken = std::future::poll_fn(|cx| {
                let written = socket.poll_write_last(cx, left);
                if written.is_pending() {
                    let _ = reads.send(());
                }
                written
            });
            left = &left[taken.await.expect("the other side reads")..];
        }
        assert!(socket.is_watched(), "the buffers took it all at once");
        drop(socket);
        assert!(reading.join().expect("no panic").expect("it ends") == sent);
    }

    #[tokio::test]
    async fn an_end_is_read_again_and_again() {
        let (client, mut socket) = pair();
        drop(client);
        for _ in 0..3 {
            assert_eq!(socket.read(&mut [0; 16]).await.expect("an end is no error"), 0);
        }
        assert!(socket.write_all(b"x").await.is_err());
    }
}
