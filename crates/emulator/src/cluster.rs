//! The handle on a set of running nodes.
//!
//! All nodes of a cluster live on one thread, as their CPUs are timers: several thousand requests a
//! second need a fraction of a real core.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use mio::Waker;

use crate::node::{Command, NodeSpec, NodeStats};
use crate::server::{Message, Server};

/// Most nodes of one cluster. Each costs a look at its next event whenever anything happens.
pub const MOST_NODES: usize = 256;

/// Running nodes. They stop when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    addresses: Vec<SocketAddr>,
    messages: Sender<Message>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts the nodes; each draws its demands from a generator of its own, seeded from `seed`.
    ///
    /// # Errors
    /// A node's address cannot be bound, a figure of a node makes no sense, there are more than
    /// [`MOST_NODES`], or the system has no thread or descriptor left.
    pub fn start(nodes: Vec<NodeSpec>, seed: u64) -> io::Result<Cluster> {
        if nodes.len() > MOST_NODES {
            return Err(invalid(format!("a cluster has at most {MOST_NODES} nodes, not {}", nodes.len())));
        }
        if let Some(bad) = nodes.iter().find(|n| n.cpus == 0 || n.concurrency == Some(0) || n.connections == 0) {
            return Err(invalid(format!("node {}: CPUs, concurrency and connections must be at least 1", bad.name)));
        }
        let (messages, inbox) = channel();
        let (server, waker, addresses) = Server::new(nodes, seed, inbox)?;
        let thread = std::thread::Builder::new().name("emulated-nodes".into()).spawn(move || server.run())?;
        Ok(Cluster { addresses, messages, waker, thread: Some(thread) })
    }

    /// Where the nodes listen, in the order of their specifications.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Does something to node number `node`, and returns when it is done.
    ///
    /// # Errors
    /// There is no such node, a factor makes no sense, or a crashed node's address was taken meanwhile.
    pub fn command(&self, node: usize, command: Command) -> io::Result<()> {
        if node >= self.addresses.len() {
            return Err(invalid(format!("there is no node {node}")));
        }
        if let Command::Slow { factor } = command
            && !(factor.is_finite() && factor > 0.0)
        {
            return Err(invalid(format!("a factor must be finite and > 0, not {factor}")));
        }
        let (answer, answered) = channel();
        self.send(Message::Command { node, command, answer })?;
        answered.recv().map_err(|_| gone())?
    }

    /// What each node has counted.
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn stats(&self) -> io::Result<Vec<NodeStats>> {
        let (answer, answered) = channel();
        self.send(Message::Stats { answer })?;
        answered.recv().map_err(|_| gone())
    }

    fn send(&self, message: Message) -> io::Result<()> {
        self.messages.send(message).map_err(|_| gone())?;
        self.waker.wake()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.send(Message::Stop).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic of that thread has been printed; there is nothing to add while dropping.
            let _ = thread.join();
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread of the emulated nodes has ended")
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
