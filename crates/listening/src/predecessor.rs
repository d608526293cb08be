//! The side of the new process: takes the sockets, reports ready, and waits for the predecessor's consent.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use rustix::process::getppid;

use crate::channel::Channel;
use crate::file::SocketFile;
use crate::inherited::{Inherited, Origin};
use crate::socket::Socket;
use crate::successor::{ALL, GO, GREETING, LENT, READY, SOCKET, VARIABLE};

/// The process that this one replaces.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    process: u32,
}

/// How the predecessor answered.
#[derive(Debug)]
pub enum Approval {
    /// It drains now. It may have left a file with its state.
    Given(Option<File>),
    /// It has ended before it could answer. Nothing else serves its sockets now.
    Ended,
}

impl Predecessor {
    /// Takes over from the process that started this one, if it did so for a hand-over. The announcement names that
    /// process, so that other descendants do not mistake it for theirs.
    ///
    /// # Errors
    /// The sockets could not be received, or the predecessor speaks another version of the exchange.
    pub fn find() -> io::Result<Option<(Predecessor, Inherited)>> {
        let named = std::env::var(VARIABLE).ok().and_then(|value| value.parse::<u32>().ok());
        let parent = getppid().map(|id| id.as_raw_nonzero().get().cast_unsigned());
        let Some(process) = named.filter(|named| Some(*named) == parent) else { return Ok(None) };
        let channel = Channel::over(io::stdin().as_fd().try_clone_to_owned()?);
        let inherited = receive(&channel)?;
        Ok(Some((Predecessor { channel, process }, inherited)))
    }

    /// Returns the process id.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Reports that this process is ready to accept connections, and waits for the predecessor's consent.
    ///
    /// # Errors
    /// The exchange failed.
    pub fn take_over(self) -> io::Result<Approval> {
        match self.channel.send(READY, None) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Approval::Ended),
            sent => sent?,
        }
        match self.channel.receive() {
            Ok(Some(message)) if message.text == GO => Ok(Approval::Given(message.socket.map(File::from))),
            Ok(Some(message)) => Err(unexpected(&message.text)),
            Ok(None) => Ok(Approval::Ended),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Approval::Ended),
            Err(error) => Err(error),
        }
    }
}

fn receive(channel: &Channel) -> io::Result<Inherited> {
    let next = || channel.receive()?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof));
    let greeting = next()?;
    if greeting.text != GREETING {
        return Err(unexpected(&greeting.text));
    }
    let mut sockets = Vec::new();
    loop {
        let message = next()?;
        match (message.text.split_once(' '), message.socket) {
            (Some((word @ (SOCKET | LENT), name)), Some(socket)) => {
                sockets.push((name.to_owned(), typed(socket, word == SOCKET)?));
            }
            _ if message.text == ALL => return Ok(Inherited::new(Origin::Predecessor, sockets)),
            _ => return Err(unexpected(&message.text)),
        }
    }
}

fn typed(socket: OwnedFd, with_file: bool) -> io::Result<Socket> {
    if socket_domain(&socket)? != AddressFamily::UNIX {
        return Ok(Socket::Tcp(TcpListener::from(socket)));
    }
    let listener = UnixListener::from(socket);
    let address = listener.local_addr()?;
    let file = address.as_pathname().filter(|_| with_file).map(SocketFile::of_predecessor);
    Ok(Socket::Unix(listener, file))
}

fn unexpected(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the running process said {text:?}, not {GREETING:?}"))
}
