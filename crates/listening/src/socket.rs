//! A listening socket of either kind.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::file::{self, FileAccess, SocketFile};

/// A listening socket, with its file if this process has or gets one.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix stream socket. There is no file if it belongs to the service manager, or if the socket has none.
    Unix(UnixListener, Option<SocketFile>),
}

impl Socket {
    /// Opens a Unix socket. It does not block.
    ///
    /// # Errors
    /// A process listens there, there is another kind of file, or the file cannot be made or given to its owner.
    pub fn open_unix(path: &Path, access: FileAccess) -> io::Result<Socket> {
        file::open(path, access).map(|(listener, file)| Socket::Unix(listener, file))
    }

    /// Returns a duplicate, which does not own the file.
    ///
    /// # Errors
    /// There is no file descriptor left.
    pub fn try_clone(&self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(listener) => Socket::Tcp(listener.try_clone()?),
            Socket::Unix(listener, file) => {
                Socket::Unix(listener.try_clone()?, file.as_ref().map(SocketFile::duplicate))
            }
        })
    }

    /// Returns a duplicate, which has the file from now on.
    ///
    /// # Errors
    /// There is no file descriptor left.
    pub fn share(&mut self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(listener) => Socket::Tcp(listener.try_clone()?),
            Socket::Unix(listener, file) => Socket::Unix(listener.try_clone()?, file.take()),
        })
    }

    /// Sets whether accepting blocks.
    ///
    /// # Errors
    /// That of the system.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Socket::Tcp(listener) => listener.set_nonblocking(nonblocking),
            Socket::Unix(listener, _) => listener.set_nonblocking(nonblocking),
        }
    }

    /// Returns the file of a Unix socket that this process has or gets.
    pub fn file(&self) -> Option<&SocketFile> {
        match self {
            Socket::Tcp(_) => None,
            Socket::Unix(_, file) => file.as_ref(),
        }
    }

    /// Returns the same, to change it.
    pub fn file_mut(&mut self) -> Option<&mut SocketFile> {
        match self {
            Socket::Tcp(_) => None,
            Socket::Unix(_, file) => file.as_mut(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(listener) => listener.as_fd(),
            Socket::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl From<TcpListener> for Socket {
    fn from(listener: TcpListener) -> Socket {
        Socket::Tcp(listener)
    }
}
