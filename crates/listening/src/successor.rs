//! The side of the running process: starts its successor, passes the sockets on, and waits until it is ready.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::channel::Channel;
use crate::socket::Socket;

/// Variable of the successor's environment with the process id of the predecessor.
pub(crate) const VARIABLE: &str = "WEIRGATE_HANDOVER";

pub(crate) const GREETING: &str = "weirgate handover 1";
pub(crate) const SOCKET: &str = "socket";
/// In place of `socket`, for one whose file belongs to neither process.
pub(crate) const LENT: &str = "lent";
pub(crate) const ALL: &str = "all";
pub(crate) const READY: &str = "ready";
pub(crate) const GO: &str = "go";

/// A process that has been started to replace this one. It is killed when the value is dropped, unless it has taken
/// over.
#[derive(Debug)]
pub struct Successor {
    channel: Channel,
    child: Arc<Mutex<Child>>,
    in_charge: bool,
}

/// Why a successor did not become ready.
#[derive(Debug)]
pub enum Unready {
    /// It has ended. Its own messages say why.
    Ended(ExitStatus),
    /// It has not answered for this time.
    Late(Duration),
    /// It does not know the exchange.
    Unexpected(String),
    /// The exchange failed.
    Failed(io::Error),
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unready::Ended(status) => write!(f, "it ended before it was ready ({status})"),
            Unready::Late(span) => write!(f, "it was not ready within {} s", span.as_secs_f64()),
            Unready::Unexpected(text) => write!(f, "it answered {text:?}"),
            Unready::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unready {}

/// Ends a successor from another thread.
#[derive(Clone, Debug)]
pub struct Killer(Arc<Mutex<Child>>);

impl Killer {
    /// Kills the successor, if it has not ended.
    pub fn kill(&self) {
        // It has ended already, or it is killed: both are the aim.
        let _ = lock(&self.0).kill();
    }
}

impl Successor {
    /// Starts `command` as the successor. `limit` bounds each of its answers.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(mut command: Command, limit: Duration) -> io::Result<Successor> {
        let (channel, other) = Channel::pair()?;
        channel.limit(limit)?;
        command.stdin(Stdio::from(other)).env(VARIABLE, std::process::id().to_string());
        let child = Arc::new(Mutex::new(command.spawn()?));
        // The command holds the successor's end. Without it the end of the successor is seen as the end of the channel.
        drop(command);
        Ok(Successor { channel, child, in_charge: false })
    }

    /// Returns a handle that ends it from another thread.
    pub fn killer(&self) -> Killer {
        Killer(Arc::clone(&self.child))
    }

    /// Returns its process id.
    pub fn process(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Passes `sockets` on under their names, and waits until the successor is ready to accept connections.
    ///
    /// # Errors
    /// It did not become ready. Drop the value then.
    pub fn ready(&self, sockets: impl Iterator<Item = (String, Socket)>, limit: Duration) -> Result<(), Unready> {
        let exchange = || {
            self.channel.send(GREETING, None)?;
            for (name, socket) in sockets {
                let word = if matches!(socket, Socket::Unix(_, None)) { LENT } else { SOCKET };
                self.channel.send(&format!("{word} {name}"), Some(socket.as_fd()))?;
            }
            self.channel.send(ALL, None)?;
            self.channel.receive()
        };
        match exchange() {
            Ok(Some(message)) if message.text == READY => Ok(()),
            Ok(Some(message)) => Err(Unready::Unexpected(message.text)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Unready::Late(limit)),
            Ok(None) => Err(self.ended()),
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Err(self.ended())
            }
            Err(error) => Err(Unready::Failed(error)),
        }
    }

    /// Puts it in charge of the sockets. From now on it accepts connections. `state` is a text for it, which reaches it
    /// in a file without a name. If that file cannot be made, it gets none.
    ///
    /// # Errors
    /// It has ended in the meantime.
    pub fn go(mut self, state: &[u8]) -> io::Result<()> {
        let file = nameless_file(state).ok();
        self.channel.send(GO, file.as_ref().map(File::as_fd))?;
        self.in_charge = true;
        Ok(())
    }

    /// Returns how it ended. It has closed its channel, so it has ended or is about to.
    fn ended(&self) -> Unready {
        let mut child = lock(&self.child);
        // A program that only closed its standard input would run on.
        let _ = child.kill();
        child.wait().map_or_else(Unready::Failed, Unready::Ended)
    }
}

/// Returns a file in memory with this content.
fn nameless_file(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("weirgate-state", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.in_charge {
            let mut child = lock(&self.child);
            // Both fail only if it has ended and been waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Locks `child`, even after a panic.
fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
