//! The socket between predecessor and successor: short messages, each with at most one file descriptor.
//!
//! It is a connected pair without a name, so no other process can connect to it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Maximum length of a message in bytes. The longest has the path of a Unix socket, of at most 108 bytes.
const MAX_MESSAGE: usize = 1024;

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// A received message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) socket: Option<OwnedFd>,
}

impl Channel {
    /// Returns an end, and the other end for the standard input of a new process.
    pub(crate) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(own), other))
    }

    pub(crate) fn over(end: OwnedFd) -> Channel {
        Channel(end)
    }

    /// Limits the time that each `send` and `receive` may take.
    pub(crate) fn limit(&self, span: Duration) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Send, Some(span))?;
        Ok(set_socket_timeout(&self.0, Timeout::Recv, Some(span))?)
    }

    pub(crate) fn send(&self, text: &str, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let sockets: Vec<_> = socket.into_iter().collect();
        if !sockets.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(&self.0, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a message. Returns `None` if the other process has ended.
    pub(crate) fn receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = [0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let socket = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        if received.bytes == 0 {
            return Ok(None);
        }
        let text = bytes.get(..received.bytes).and_then(|bytes| str::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?.to_owned();
        Ok(Some(Message { text, socket }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn messages_and_sockets_arrive_in_order_and_the_end_is_seen() {
        let (near, far) = Channel::pair().unwrap();
        let far = Channel::over(far);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        near.send("with", Some(listener.as_fd())).unwrap();
        near.send("without", None).unwrap();
        drop(near);
        let first = far.receive().unwrap().unwrap();
        let passed = TcpListener::from(first.socket.unwrap());
        assert_eq!((first.text.as_str(), passed.local_addr().unwrap()), ("with", listener.local_addr().unwrap()));
        let second = far.receive().unwrap().unwrap();
        assert!(second.text == "without" && second.socket.is_none());
        assert!(far.receive().unwrap().is_none());
    }

    #[test]
    fn a_silent_process_is_not_awaited_for_ever() {
        let (near, _far) = Channel::pair().unwrap();
        near.limit(Duration::from_millis(10)).unwrap();
        assert_eq!(near.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
