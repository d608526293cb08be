//! Event loop of the nodes of a cluster: sockets, machines and one alarm.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use mio::{Events, Interest, Poll, Token, Waker};

use crate::clock::{self, Alarm};
use crate::computer::{Usage, Work};
use crate::connection::{Answer, Connection, READ, Status, Step};
use crate::machine::{Machine, Reception};
use crate::node::{Health, NodeSpec, NodeStats};
use crate::port::Port;
use crate::random::Random;
use crate::request::{Content, Request};
use crate::station::{BEAT, Demand};

/// Message from a [`crate::Cluster`] to its thread.
pub(crate) enum Message {
    /// Sets the faults of a node.
    Health { node: usize, health: Health, answer: Sender<io::Result<()>> },
    /// Asks for a copy of the counters.
    Stats { answer: Sender<Vec<NodeStats>> },
    /// Asks for the work done by each node, in seconds of a nominal CPU, of its disk and of its link.
    Done { answer: Sender<Vec<[f64; 3]>> },
    /// Asks for the seconds for which CPUs, disks and links were occupied, and workers held.
    Occupied { answer: Sender<Vec<[f64; 4]>> },
    /// Ends the thread.
    Stop,
}

const WAKER: Token = Token(0);
const ALARM: Token = Token(1);
/// First token of the ports. The tokens of connections follow those of the ports.
const FIRST_PORT: usize = 2;

/// Nanoseconds until the next attempt after a failure to accept (out of descriptors).
const ACCEPT_AGAIN: u64 = clock::SECOND / 100;

/// Maximum number of events taken from the system at once.
const EVENTS: usize = 1024;

/// An instant that never comes.
const NEVER: u64 = u64::MAX;

struct Node {
    spec: NodeSpec,
    ports: Vec<Port>,
    machine: Machine,
    stats: NodeStats,
    /// Finished requests without a reply so far, with the instant at which each finished.
    finished: Vec<(u64, u64)>,
    /// Instant at which to try to accept again, if the ports may have more connections.
    accept: Option<u64>,
}

/// All state of the thread.
pub(crate) struct Server {
    poll: Poll,
    alarm: Alarm,
    inbox: Receiver<Message>,
    nodes: Vec<Node>,
    /// Instant of the next work that needs no outside event, by node. [`NEVER`] if there is none.
    due: Vec<u64>,
    /// Node of each port.
    node_of: Vec<usize>,
    connections: Vec<Option<Connection>>,
    /// Free slots of connections.
    free: Vec<usize>,
    /// Slots that become free after the next poll. Until then there may be an event for the connection that
    /// was there.
    freed: Vec<usize>,
    generation: u32,
    buffer: Vec<u8>,
}

impl Server {
    /// Binds the listeners. Also returns the waker of the loop and the addresses of the nodes.
    pub(crate) fn new(
        specs: Vec<NodeSpec>,
        seed: u64,
        inbox: Receiver<Message>,
    ) -> io::Result<(Server, Waker, Vec<SocketAddr>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let alarm = Alarm::new(&poll, ALARM)?;
        let now = clock::now();
        let mut seeds = Random::new(seed);
        let mut nodes = Vec::with_capacity(specs.len());
        let (mut node_of, mut addresses) = (Vec::new(), Vec::new());
        for (n, spec) in specs.into_iter().enumerate() {
            let mut ports = Vec::with_capacity(spec.addresses.len());
            for address in &spec.addresses {
                let port = Port::open(&poll, Token(FIRST_PORT + node_of.len()), *address)
                    .map_err(|e| io::Error::new(e.kind(), format!("node {} on {address}: {e}", spec.name)))?;
                addresses.push(port.address);
                node_of.push(n);
                ports.push(port);
            }
            let random = Random::new(Random::new(seeds.bits()).bits());
            nodes.push(Node {
                ports,
                machine: Machine::new(now, &spec, random),
                stats: NodeStats::new(spec.name.clone()),
                finished: Vec::new(),
                accept: None,
                spec,
            });
        }
        let server = Server {
            poll,
            alarm,
            inbox,
            due: vec![NEVER; nodes.len()],
            nodes,
            node_of,
            connections: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            generation: 0,
            buffer: vec![0; READ],
        };
        Ok((server, waker, addresses))
    }

    /// Runs until it is told to stop.
    ///
    /// # Panics
    /// The system's poll or timer call fails, which happens only for invalid arguments.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            self.free.append(&mut self.freed);
            let due = self.due.iter().min().copied().filter(|due| *due < NEVER);
            self.alarm.wait(&mut self.poll, &mut events, due).expect("poll and timer calls with valid arguments");
            // Finished requests free their CPUs before any new event is handled.
            self.finish_due();
            for event in &events {
                match event.token() {
                    WAKER => {
                        if self.obey().is_break() {
                            return;
                        }
                    }
                    ALARM => {}
                    Token(n) if n < self.first_connection() => self.accept(self.node_of[n - FIRST_PORT]),
                    Token(n) => {
                        let place = n - self.first_connection();
                        if let Some(Some(connection)) = self.connections.get_mut(place) {
                            if event.is_readable() || event.is_read_closed() || event.is_error() {
                                connection.readable(event.is_read_closed() || event.is_error());
                            }
                            if event.is_read_closed() && connection.is_in_flight() {
                                self.abandon(place);
                            }
                            self.go_on(place);
                        }
                    }
                }
            }
        }
    }

    /// Token of the connection in slot 0.
    fn first_connection(&self) -> usize {
        FIRST_PORT + self.node_of.len()
    }

    /// Recalculates the instant of the next work of node `n`. Call it after every event that concerns the node.
    fn schedule(&mut self, n: usize) {
        let node = &self.nodes[n];
        let leftover = (!node.finished.is_empty() || node.machine.has_begun()).then_some(0);
        self.due[n] = node.machine.next_event().into_iter().chain(node.accept).chain(leftover).min().unwrap_or(NEVER);
    }

    fn finish_due(&mut self) {
        let now = clock::now();
        for n in 0..self.nodes.len() {
            if self.due[n] > now {
                continue;
            }
            let node = &mut self.nodes[n];
            node.machine.advance(now, &mut node.finished);
            if node.machine.has_begun() {
                for id in node.machine.begun().collect::<Vec<u64>>() {
                    self.begin(n, id);
                }
            }
            let mut finished = std::mem::take(&mut self.nodes[n].finished);
            for (id, at) in finished.drain(..) {
                self.finish(n, id, now.saturating_sub(at));
            }
            // A request that followed a reply on its connection may have finished something. The next round
            // handles that.
            if self.nodes[n].finished.is_empty() {
                self.nodes[n].finished = finished;
            }
            if self.nodes[n].accept.is_some_and(|at| at <= now) {
                self.nodes[n].accept = None;
                self.accept(n);
            }
            self.schedule(n);
        }
    }

    fn finish(&mut self, n: usize, id: u64, lateness: u64) {
        let node = &mut self.nodes[n];
        node.stats.lateness.saturating_record(lateness.max(1));
        let (place, generation) = ((id & u64::from(u32::MAX)) as usize, (id >> 32) as u32);
        match self.connections.get_mut(place) {
            Some(Some(connection)) if connection.generation == generation => {
                connection.reply(&node.spec.name);
                self.go_on(place);
            }
            _ => node.stats.unwanted += 1,
        }
    }

    /// Sends the first byte of a streaming reply, or a keep-alive byte.
    fn begin(&mut self, n: usize, id: u64) {
        let (place, generation) = ((id & u64::from(u32::MAX)) as usize, (id >> 32) as u32);
        if let Some(Some(connection)) = self.connections.get_mut(place)
            && connection.generation == generation
        {
            connection.begin(&self.nodes[n].spec.name);
            self.go_on(place);
        }
    }

    /// Accepts the connections that have reached the ports of node `n`.
    fn accept(&mut self, n: usize) {
        let mut port = 0;
        loop {
            let node = &mut self.nodes[n];
            if port >= node.ports.len() || node.stats.connections >= node.spec.connections {
                // A node at its connection limit tries again when a connection closes.
                return;
            }
            match node.ports[port].listener().map(mio::net::TcpListener::accept) {
                Some(Ok((stream, _))) => {
                    // Replies are written whole. Waiting to fill a segment could only delay them.
                    let _ = stream.set_nodelay(true);
                    node.stats.accepted += 1;
                    node.stats.connections += 1;
                    self.admit(n, stream);
                }
                Some(Err(e)) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                Some(Err(e)) if e.kind() != io::ErrorKind::WouldBlock => {
                    node.accept = Some(clock::now() + ACCEPT_AGAIN);
                    return self.schedule(n);
                }
                Some(Err(_)) | None => port += 1,
            }
        }
    }

    fn admit(&mut self, n: usize, mut stream: mio::net::TcpStream) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let token = Token(self.first_connection() + place);
        if self.poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE).is_err() {
            self.nodes[n].stats.connections -= 1;
            self.freed.push(place);
            return;
        }
        self.generation = self.generation.wrapping_add(1);
        self.connections[place] = Some(Connection::new(stream, n, self.generation));
        self.go_on(place);
    }

    /// Drives a connection until it waits or is closed.
    fn go_on(&mut self, place: usize) {
        while let Some(Some(connection)) = self.connections.get_mut(place) {
            let n = connection.node;
            match connection.go_on(&mut self.buffer) {
                Step::Wait => return,
                Step::Arrived(request) => self.arrive(place, *request),
                Step::Replied => {
                    let Answer { status, id, .. } = std::mem::take(&mut connection.answer);
                    let Node { spec, stats, .. } = &mut self.nodes[n];
                    stats.replies += 1;
                    if status == Status::Done && stats.ids.answered.len() < spec.log {
                        stats.ids.answered.extend(id);
                    }
                }
                Step::Bad => self.nodes[n].stats.bad += 1,
                Step::Closed { amid } => {
                    self.nodes[n].stats.bad += u64::from(amid);
                    self.close(place);
                }
            }
        }
    }

    fn arrive(&mut self, place: usize, request: Request) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        let n = connection.node;
        let node = &mut self.nodes[n];
        node.stats.requests += 1;
        if let Some(id) = &request.id {
            let ids = &mut node.stats.ids;
            if ids.received.len() < node.spec.log { ids.received.push(id.clone()) } else { ids.unlogged += 1 }
        }
        let bytes = request.bytes.unwrap_or(node.spec.reply_bytes);
        let parts = [request.demand, request.io, request.disk, request.link, request.stream];
        let [cpu, io, disk, link, stream] = parts.map(clock::nanos);
        let demand = Demand { cpu, io, disk, link, stream };
        // One byte for every keep-alive, and the last one.
        let bytes = if stream > 0 { bytes.max(2 + (stream / BEAT) as usize) } else { bytes };
        let sent = if request.is_head { 0 } else { bytes as u64 };
        let work = Work { demand, class: 0, object: request.object, bytes: sent };
        let content = request.content;
        let since = clock::now();
        node.machine.advance(since, &mut node.finished);
        let &Health { garbles, stalled, .. } = node.machine.health();
        if content == Content::Report && !garbles {
            connection.answer = Answer { is_head: request.is_head, content, ..Answer::default() };
            // The agent of a stalled node answers no more than the node itself.
            if !stalled {
                self.report(place);
            }
            return self.schedule(n);
        }
        let status = if garbles && !stalled {
            Status::Garbage
        } else {
            match node.machine.receive(key(connection.generation, place), request.class.as_deref(), work) {
                Reception::Taken => Status::Done,
                Reception::Failed => Status::Failed,
                Reception::Full => Status::Full,
            }
        };
        node.stats.max_in_flight = node.stats.max_in_flight.max(node.machine.in_flight());
        node.stats.failed += u64::from(status == Status::Failed);
        node.stats.refused += u64::from(status == Status::Full);
        let bytes = if matches!(status, Status::Failed | Status::Full) { 0 } else { bytes };
        connection.answer = Answer { status, bytes, is_head: request.is_head, id: request.id, content, since };
        if matches!(status, Status::Full | Status::Garbage) {
            connection.reply(&node.spec.name);
        }
        self.schedule(n);
    }

    /// Answers the connection at `place` with the requests in flight at its node and the resource usage of
    /// the node. Costs O(connections), a few times per minute.
    fn report(&mut self, place: usize) {
        let Some(Some(asking)) = self.connections.get(place) else { return };
        let n = asking.node;
        let of_node = self.connections.iter().flatten().filter(|connection| connection.node == n);
        let (mut files, mut pages) = (0, 0);
        for content in of_node.filter_map(Connection::active) {
            files += usize::from(content == Content::Static);
            pages += usize::from(content == Content::Dynamic);
        }
        let usage = self.nodes[n].usage();
        if let Some(Some(asking)) = self.connections.get_mut(place) {
            asking.report(files, pages, &usage);
        }
    }

    /// Handles the departure of the client of a request in flight.
    fn abandon(&mut self, place: usize) {
        let Some(Some(connection)) = self.connections.get(place) else { return };
        let (n, id) = (connection.node, key(connection.generation, place));
        let node = &mut self.nodes[n];
        if node.spec.drops_abandoned && connection.active() != Some(Content::Report) {
            node.machine.advance(clock::now(), &mut node.finished);
            node.machine.remove(id);
            // The request may have just finished.
            node.finished.retain(|(other, _)| *other != id);
            node.stats.unwanted += 1;
        }
        self.close(place);
        self.schedule(n);
    }

    fn close(&mut self, place: usize) {
        if let Some(connection) = self.connections.get_mut(place).and_then(Option::take) {
            self.freed.push(place);
            let n = connection.node;
            let node = &mut self.nodes[n];
            if node.stats.connections == node.spec.connections {
                node.accept = Some(0);
                self.due[n] = 0;
            }
            node.stats.connections -= 1;
        }
    }

    fn obey(&mut self) -> std::ops::ControlFlow<()> {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Stop => return std::ops::ControlFlow::Break(()),
                // The receiver of the answer may be gone. The answer can then be dropped.
                Message::Stats { answer } => {
                    let _ = answer.send(self.nodes.iter_mut().map(Node::count).collect());
                }
                Message::Done { answer } => {
                    let _ = answer.send(self.nodes.iter_mut().map(Node::done).collect());
                }
                Message::Occupied { answer } => {
                    let _ = answer.send(self.nodes.iter_mut().map(Node::occupied).collect());
                }
                Message::Health { node, health, answer } => {
                    let _ = answer.send(self.set_health(node, health));
                }
            }
            (0..self.nodes.len()).for_each(|n| self.schedule(n));
        }
        std::ops::ControlFlow::Continue(())
    }

    fn set_health(&mut self, n: usize, health: Health) -> io::Result<()> {
        let node = &mut self.nodes[n];
        node.machine.advance(clock::now(), &mut node.finished);
        let crashed = health.crashed;
        node.machine.set_health(health);
        if !crashed {
            let poll = &self.poll;
            return node.ports.iter_mut().try_for_each(|port| port.reopen(poll));
        }
        node.finished.clear();
        let closed = node.ports.iter_mut().map(Port::close).fold(Ok(()), io::Result::and);
        for place in 0..self.connections.len() {
            if let Some(connection) = self.connections[place].as_ref().filter(|connection| connection.node == n) {
                // A connection that cannot be reset has already ended.
                let _ = connection.reset_on_close();
                self.close(place);
            }
        }
        closed
    }
}

/// Key of the request in flight on a connection. No other connection in the same slot has the same key.
fn key(generation: u32, place: usize) -> u64 {
    u64::from(generation) << 32 | place as u64
}

impl Node {
    fn count(&mut self) -> NodeStats {
        self.machine.advance(clock::now(), &mut self.finished);
        let mut stats = self.stats.clone();
        let usage = self.machine.usage();
        stats.in_flight = self.machine.in_flight();
        stats.waiting = self.machine.waiting();
        stats.busy = Duration::from_nanos(usage.busy as u64);
        stats.done = Duration::from_nanos(usage.done as u64);
        stats.disk_busy = Duration::from_nanos(usage.disk as u64);
        stats.link_busy = Duration::from_nanos(usage.link as u64);
        (stats.hits, stats.misses) = (usage.hits, usage.misses);
        stats
    }

    fn done(&mut self) -> [f64; 3] {
        self.machine.advance(clock::now(), &mut self.finished);
        let Usage { done, disk, link, .. } = self.machine.usage();
        [done, disk, link].map(|nanos| nanos / clock::SECOND as f64)
    }

    fn occupied(&mut self) -> [f64; 4] {
        self.machine.advance(clock::now(), &mut self.finished);
        let Usage { busy, disk, link, held, .. } = self.machine.usage();
        [busy, disk, link, held].map(|nanos| nanos / clock::SECOND as f64)
    }

    /// Resource usage as an agent reports it: busy seconds and number of CPUs, disks and links. Call
    /// [`Machine::advance`] to the present first.
    fn usage(&self) -> String {
        let Usage { busy, disk, link, .. } = self.machine.usage();
        let [cpu, disk, bandwidth] = [("cpu", busy), ("disk", disk), ("bandwidth", link)]
            .map(|(name, nanos)| (name, nanos / clock::SECOND as f64));
        let resources = [cpu, disk, bandwidth].into_iter().zip(self.machine.capacity());
        let resource = |((name, used), capacity)| format!("\"{name}\":{{\"used\":{used:.6},\"capacity\":{capacity}}}");
        format!("{{{}}}", resources.map(resource).collect::<Vec<String>>().join(","))
    }
}
