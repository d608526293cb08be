//! Commands to the threads: sockets to accept from, connections to serve, and the end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use weirgate_config::ListenerName;
use weirgate_listening::Socket;

use crate::places::Place;
use crate::socket;

/// Command to a thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Accept connections from this socket, which belongs to this listener. With `deal` the connections
    /// are dealt out to all threads, because not every thread has a socket.
    Listen { named: Arc<ListenerName>, socket: Socket, deal: bool },
    /// Serve this connection, which another thread has accepted and counted.
    Serve(Accepted),
    /// Stop accepting connections of this listener.
    Close(Arc<ListenerName>),
    /// Stop accepting, finish the requests in flight, and end. An idle connection is closed after this time.
    Drain(Duration),
    /// End without finishing the requests in flight.
    Cut,
}

/// An accepted connection on its way to a thread.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: socket::Socket,
    pub(crate) peer: SocketAddr,
    /// The connection among those of its peer.
    pub(crate) place: Place,
    /// The listener, as the policy names it.
    pub(crate) named: Arc<ListenerName>,
    /// Port of the listener, 0 for a Unix socket.
    pub(crate) port: u16,
    /// Address that the client connected to.
    pub(crate) destination: SocketAddr,
}

/// The command queues of all threads.
pub(crate) struct Threads {
    queues: Vec<Mutex<CommandQueue>>,
    wakers: Vec<Arc<Notify>>,
    /// Number of connections dealt out.
    dealt: AtomicUsize,
}

/// Pending commands of a thread.
#[derive(Debug, Default)]
struct CommandQueue {
    commands: Vec<Command>,
    /// Whether the thread has read its last command.
    closed: bool,
}

impl Threads {
    /// Returns a queue for each thread, which `wakers` wake.
    pub(crate) fn new(wakers: Vec<Arc<Notify>>) -> Threads {
        let queues = wakers.iter().map(|_| Mutex::default()).collect();
        Threads { queues, wakers, dealt: AtomicUsize::new(0) }
    }

    /// Returns the number of threads.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    /// Returns the waker of thread `index`.
    pub(crate) fn waker(&self, index: usize) -> Arc<Notify> {
        self.wakers.get(index).cloned().unwrap_or_default()
    }

    /// Takes the pending commands of thread `index`.
    pub(crate) fn take(&self, index: usize) -> Vec<Command> {
        self.queues.get(index).map(|queue| std::mem::take(&mut lock(queue).commands)).unwrap_or_default()
    }

    /// Accepts no more commands for thread `index`, if none is pending. Returns whether none is.
    pub(crate) fn close(&self, index: usize) -> bool {
        self.queues.get(index).is_none_or(|queue| {
            let mut queue = lock(queue);
            queue.closed = queue.commands.is_empty();
            queue.closed
        })
    }

    /// Gives thread `index` a command. Returns it if the thread has ended.
    pub(crate) fn tell(&self, index: usize, command: Command) -> Option<Command> {
        let (Some(queue), Some(waker)) = (self.queues.get(index), self.wakers.get(index)) else {
            return Some(command);
        };
        {
            let mut queue = lock(queue);
            if queue.closed {
                return Some(command);
            }
            queue.commands.push(command);
        }
        waker.notify_one();
        None
    }

    /// Gives every thread a command. A thread that has ended needs none.
    pub(crate) fn tell_all(&self, command: impl Fn() -> Command) {
        for index in 0..self.count() {
            self.tell(index, command());
        }
    }

    /// Gives `accepted` to the next thread in turn. Returns it if that is thread `own`, or if that thread has
    /// ended.
    pub(crate) fn deal(&self, own: usize, accepted: Accepted) -> Option<Accepted> {
        let turn = self.dealt.fetch_add(1, Ordering::Relaxed) % self.count().max(1);
        if turn == own {
            return Some(accepted);
        }
        match self.tell(turn, Command::Serve(accepted)) {
            Some(Command::Serve(accepted)) => Some(accepted),
            _ => None,
        }
    }
}

/// Locks a queue, even after a panic. It stays usable.
fn lock(queue: &Mutex<CommandQueue>) -> MutexGuard<'_, CommandQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn accepted() -> Accepted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let named = Arc::new(ListenerName::first(peer.into()));
        let stream = socket::Socket::Unwatched(TcpStream::connect(peer).unwrap().into());
        let place = crate::places::Places::default().enter(0, None).unwrap();
        Accepted { stream, peer, place, named, port: peer.port(), destination: peer }
    }

    #[test]
    fn connections_are_dealt_out_in_turn() {
        let threads = Threads::new((0..3).map(|_| Arc::default()).collect());
        let own = (0..6).filter(|_| threads.deal(1, accepted()).is_some()).count();
        assert_eq!((threads.take(0).len(), own, threads.take(2).len()), (2, 2, 2));
    }

    #[test]
    fn a_connection_for_a_thread_that_has_ended_comes_back() {
        let threads = Threads::new((0..2).map(|_| Arc::default()).collect());
        threads.tell(1, Command::Cut);
        assert!(!threads.close(1), "it has a command to read");
        assert_eq!(threads.take(1).len(), 1);
        assert!(threads.close(1));
        assert!(threads.deal(0, accepted()).is_some() && threads.deal(0, accepted()).is_some());
    }
}
