//! Handle on a set of running nodes.
//!
//! All nodes of a cluster live on one thread, because their CPUs are timers: several thousand requests per
//! second need a fraction of a real core.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use mio::Waker;

use crate::node::{Health, NodeSpec, NodeStats};
use crate::server::{Message, Server};

/// Maximum number of nodes in one cluster. The server checks the next event of every node whenever anything happens.
pub const MAX_NODES: usize = 256;

/// Running nodes. They stop when this handle is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: usize,
    addresses: Vec<SocketAddr>,
    messages: Sender<Message>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts the nodes. Each node draws its demands from its own generator, seeded from `seed`.
    ///
    /// # Errors
    /// The address of a node cannot be bound, a parameter of a node is invalid, there are more than
    /// [`MAX_NODES`], or the system has no thread or descriptor left.
    pub fn start(nodes: Vec<NodeSpec>, seed: u64) -> io::Result<Cluster> {
        if nodes.len() > MAX_NODES {
            return Err(invalid(format!("a cluster has at most {MAX_NODES} nodes, not {}", nodes.len())));
        }
        if let Some(problem) = nodes.iter().find_map(NodeSpec::problem) {
            return Err(invalid(problem));
        }
        let count = nodes.len();
        let (messages, inbox) = channel();
        let (server, waker, addresses) = Server::new(nodes, seed, inbox)?;
        let thread = std::thread::Builder::new().name("emulated-nodes".into()).spawn(move || server.run())?;
        Ok(Cluster { nodes: count, addresses, messages, waker, thread: Some(thread) })
    }

    /// Listening addresses of all nodes: first all addresses of the first node, then those of the second,
    /// and so on, in the order of their specifications.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sets the faults of node number `node` and returns once they are in force.
    ///
    /// # Errors
    /// There is no such node, a value is invalid, or the system did not give its ports back to a node that
    /// had crashed.
    pub fn set_health(&self, node: usize, health: Health) -> io::Result<()> {
        if node >= self.nodes {
            return Err(invalid(format!("there is no node {node}")));
        }
        let speed = health.speed;
        if !(speed.is_finite() && speed > 0.0) {
            return Err(invalid(format!(
                "a share of speed must be finite and > 0, not {speed}: to stop a node, stall it"
            )));
        }
        let shares = health.fails_of.iter().map(|(_, share)| *share).chain([health.fails]);
        if let Some(fails) = shares.into_iter().find(|share| !(0.0..=1.0).contains(share)) {
            return Err(invalid(format!("a share of failures must be 0 to 1, not {fails}")));
        }
        let (answer, answered) = channel();
        self.send(Message::Health { node, health, answer })?;
        answered.recv().map_err(|_| gone())?
    }

    /// Counters of each node, including the ids it logged.
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn stats(&self) -> io::Result<Vec<NodeStats>> {
        let (answer, answered) = channel();
        self.send(Message::Stats { answer })?;
        answered.recv().map_err(|_| gone())
    }

    /// Work done by each node so far: its CPU time ([`NodeStats::done`]) in seconds of a nominal CPU, and
    /// the seconds for which its disk and its link were busy. Cheap enough to call often.
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn done(&self) -> io::Result<Vec<[f64; 3]>> {
        let (answer, answered) = channel();
        self.send(Message::Done { answer })?;
        answered.recv().map_err(|_| gone())
    }

    /// Seconds for which the CPUs, the disk and the link of each node were occupied so far, and for which
    /// its workers were held.
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn occupied(&self) -> io::Result<Vec<[f64; 4]>> {
        let (answer, answered) = channel();
        self.send(Message::Occupied { answer })?;
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
            // If that thread panicked, the panic has been printed. There is nothing to add while dropping.
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
