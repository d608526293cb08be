//! The handle on a set of running nodes.
//!
//! All nodes of a cluster live on one thread, as their CPUs are timers: several thousand requests a
//! second need a fraction of a real core.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use mio::Waker;

use crate::node::{Health, NodeSpec, NodeStats};
use crate::server::{Message, Server};

/// Most nodes of one cluster. Each costs a look at its next event whenever anything happens.
pub const MOST_NODES: usize = 256;

/// Running nodes. They stop when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: usize,
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
        if let Some(problem) = nodes.iter().find_map(NodeSpec::problem) {
            return Err(invalid(problem));
        }
        let count = nodes.len();
        let (messages, inbox) = channel();
        let (server, waker, addresses) = Server::new(nodes, seed, inbox)?;
        let thread = std::thread::Builder::new().name("emulated-nodes".into()).spawn(move || server.run())?;
        Ok(Cluster { nodes: count, addresses, messages, waker, thread: Some(thread) })
    }

    /// Where the nodes listen: all addresses of the first, all of the second, and so on, in the order of their
    /// specifications.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Says what is wrong with node number `node` from now on, and returns when it is so.
    ///
    /// # Errors
    /// There is no such node, a figure makes no sense, or the system did not give the ports back to a node that
    /// has crashed.
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

    /// What each node has counted, its ids included.
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn stats(&self) -> io::Result<Vec<NodeStats>> {
        let (answer, answered) = channel();
        self.send(Message::Stats { answer })?;
        answered.recv().map_err(|_| gone())
    }

    /// What each node has done until now ([`NodeStats::done`]) in seconds of a nominal CPU, and for how many seconds
    /// its disk and its link were busy: cheap enough to ask for often.
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn done(&self) -> io::Result<Vec<[f64; 3]>> {
        let (answer, answered) = channel();
        self.send(Message::Done { answer })?;
        answered.recv().map_err(|_| gone())
    }

    /// For how many seconds the CPUs, the disk and the link of each node were occupied until now, and its workers held.
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
