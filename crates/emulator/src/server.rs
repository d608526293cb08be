//! The loop in which the nodes of a cluster live: sockets, stations and one alarm.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::clock::{self, Alarm};
use crate::connection::{Connection, READ, Step};
use crate::node::{Command, NodeSpec, NodeStats};
use crate::random::Random;
use crate::request::Request;
use crate::station::{Demand, Station};

/// What a [`crate::Cluster`] asks of its thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// Do something to a node.
    Command { node: usize, command: Command, answer: Sender<io::Result<()>> },
    /// Copy the counters out.
    Stats { answer: Sender<Vec<NodeStats>> },
    /// End.
    Stop,
}

const WAKER: Token = Token(0);
const ALARM: Token = Token(1);
/// Tokens of the listeners start here, those of connections after them.
const FIRST_LISTENER: usize = 2;

/// After a failure to accept (out of descriptors) it is tried again after so long.
const ACCEPT_AGAIN: u64 = clock::SECOND / 100;

/// Events taken from the system at once.
const EVENTS: usize = 1024;

struct Node {
    spec: NodeSpec,
    address: SocketAddr,
    listener: Option<TcpListener>,
    station: Station,
    random: Random,
    mode: Mode,
    stats: NodeStats,
    /// Finished requests whose replies have not been begun, with the instant at which they finished.
    finished: Vec<(u64, u64)>,
    /// The listener may have more, to be asked for at this instant.
    accept: Option<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Work,
    Errors,
    Garbage,
}

/// Everything that the thread owns.
pub(crate) struct Server {
    poll: Poll,
    alarm: Alarm,
    inbox: Receiver<Message>,
    nodes: Vec<Node>,
    connections: Vec<Option<Connection>>,
    free: VecDeque<usize>,
    generation: u32,
    /// Per connection place: the reply's size and whether it is to a HEAD request.
    replies: Vec<(usize, bool)>,
    buffer: Vec<u8>,
}

impl Server {
    /// Binds the listeners. Returns also what wakes the loop and where the nodes listen.
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
        for (i, spec) in specs.into_iter().enumerate() {
            let (listener, address) = listen(&poll, i, spec.address)
                .map_err(|e| io::Error::new(e.kind(), format!("node {} on {}: {e}", spec.name, spec.address)))?;
            nodes.push(Node {
                address,
                listener: Some(listener),
                station: Station::new(now, spec.cpus, spec.concurrency, spec.thrashing),
                random: Random::new(seeds.bits()),
                mode: Mode::Work,
                stats: NodeStats::new(spec.name.clone()),
                finished: Vec::new(),
                accept: None,
                spec,
            });
        }
        let addresses = nodes.iter().map(|n| n.address).collect();
        let server = Server {
            poll,
            alarm,
            inbox,
            nodes,
            connections: Vec::new(),
            free: VecDeque::new(),
            generation: 0,
            replies: Vec::new(),
            buffer: vec![0; READ],
        };
        Ok((server, waker, addresses))
    }

    /// Runs until it is told to stop.
    ///
    /// # Panics
    /// The system's poll or timer call fails, which it does only for wrong arguments.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let due = self.due();
            self.alarm.wait(&mut self.poll, &mut events, due).expect("poll and timer calls with valid arguments");
            // What is finished frees its CPU before anything new is looked at.
            self.finish_due();
            for event in &events {
                match event.token() {
                    WAKER => {
                        if self.obey().is_break() {
                            return;
                        }
                    }
                    ALARM => {}
                    Token(n) if n < FIRST_LISTENER + self.nodes.len() => self.accept(n - FIRST_LISTENER),
                    Token(n) => {
                        let place = n - FIRST_LISTENER - self.nodes.len();
                        if let Some(Some(connection)) = self.connections.get_mut(place) {
                            if event.is_readable() || event.is_read_closed() || event.is_error() {
                                connection.readable();
                            }
                            if event.is_read_closed() && connection.is_inside() {
                                // The client has left. Its work goes on, as in a server that looks at
                                // the connection only when it writes.
                                self.close(place);
                            }
                            self.go_on(place);
                        }
                    }
                }
            }
        }
    }

    /// When something is to be done without any event from outside.
    fn due(&self) -> Option<u64> {
        let of = |n: &Node| {
            let leftover = (!n.finished.is_empty()).then_some(0);
            n.station.next_event().into_iter().chain(n.accept).chain(leftover).min()
        };
        self.nodes.iter().filter_map(of).min()
    }

    fn finish_due(&mut self) {
        let now = clock::now();
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            node.station.advance(now, &mut node.finished);
            let mut finished = std::mem::take(&mut node.finished);
            for (id, at) in finished.drain(..) {
                self.finish(n, id, now.saturating_sub(at));
            }
            // A request that came in behind a reply may have finished something: the next round's work.
            if self.nodes[n].finished.is_empty() {
                self.nodes[n].finished = finished;
            }
            if self.nodes[n].accept.is_some_and(|at| at <= now) {
                self.nodes[n].accept = None;
                self.accept(n);
            }
        }
    }

    fn finish(&mut self, n: usize, id: u64, lateness: u64) {
        let node = &mut self.nodes[n];
        node.stats.lateness.saturating_record(lateness.max(1));
        let (place, generation) = ((id & u64::from(u32::MAX)) as usize, (id >> 32) as u32);
        match self.connections.get_mut(place) {
            Some(Some(connection)) if connection.generation == generation => {
                let (bytes, is_head) = self.replies[place];
                connection.reply("200 OK", &node.spec.name, bytes, is_head);
                self.go_on(place);
            }
            _ => node.stats.unwanted += 1,
        }
    }

    fn accept(&mut self, n: usize) {
        loop {
            let node = &mut self.nodes[n];
            let Some(listener) = &node.listener else { return };
            if node.stats.connections >= node.spec.connections {
                // Tried again when one closes.
                return;
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    // Replies are written whole: waiting to fill a segment could only delay them.
                    let _ = stream.set_nodelay(true);
                    node.stats.accepted += 1;
                    node.stats.connections += 1;
                    self.admit(n, stream);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    node.accept = Some(clock::now() + ACCEPT_AGAIN);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, n: usize, mut stream: mio::net::TcpStream) {
        let place = self.free.pop_front().unwrap_or_else(|| {
            self.connections.push(None);
            self.replies.push((0, false));
            self.connections.len() - 1
        });
        let token = Token(FIRST_LISTENER + self.nodes.len() + place);
        if self.poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE).is_err() {
            self.nodes[n].stats.connections -= 1;
            self.free.push_back(place);
            return;
        }
        self.generation = self.generation.wrapping_add(1);
        self.connections[place] = Some(Connection::new(stream, n, self.generation));
        self.go_on(place);
    }

    /// Goes on with a connection until it waits or is closed.
    fn go_on(&mut self, place: usize) {
        while let Some(Some(connection)) = self.connections.get_mut(place) {
            let n = connection.node;
            match connection.go_on(&mut self.buffer) {
                Step::Wait => return,
                Step::Arrived(request) => self.arrive(place, *request),
                Step::Replied => self.nodes[n].stats.replies += 1,
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
        let node = &mut self.nodes[connection.node];
        node.stats.requests += 1;
        if let Some(id) = request.id {
            if node.stats.log.len() < node.spec.log { node.stats.log.push(id) } else { node.stats.unlogged += 1 }
        }
        match node.mode {
            Mode::Errors => return connection.reply("500 Internal Server Error", &node.spec.name, 0, request.is_head),
            Mode::Garbage => return connection.garbage(),
            Mode::Work => {}
        }
        let cpu = request.demand.unwrap_or_else(|| node.spec.demand.draw(&mut node.random));
        let io = request.io.unwrap_or_else(|| node.spec.io.draw(&mut node.random));
        self.replies[place] = (request.bytes.unwrap_or(node.spec.reply_bytes), request.is_head);
        node.station.advance(clock::now(), &mut node.finished);
        let id = u64::from(connection.generation) << 32 | place as u64;
        node.station.arrive(id, Demand { cpu: clock::nanos(cpu), io: clock::nanos(io) });
        node.stats.max_inside = node.stats.max_inside.max(node.station.inside());
    }

    fn close(&mut self, place: usize) {
        if let Some(connection) = self.connections.get_mut(place).and_then(Option::take) {
            self.free.push_back(place);
            let node = &mut self.nodes[connection.node];
            if node.stats.connections == node.spec.connections {
                node.accept = Some(0);
            }
            node.stats.connections -= 1;
        }
    }

    fn obey(&mut self) -> std::ops::ControlFlow<()> {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Stop => return std::ops::ControlFlow::Break(()),
                Message::Stats { answer } => {
                    // Whoever asked may have gone; nothing is lost with the answer.
                    let _ = answer.send(self.nodes.iter_mut().map(Node::count).collect());
                }
                Message::Command { node, command, answer } => {
                    let _ = answer.send(self.command(node, command));
                }
            }
        }
        std::ops::ControlFlow::Continue(())
    }

    fn command(&mut self, n: usize, command: Command) -> io::Result<()> {
        let node = &mut self.nodes[n];
        node.station.advance(clock::now(), &mut node.finished);
        match command {
            Command::Stall => node.station.set_speed(0.0),
            Command::Slow { factor } => node.station.set_speed(1.0 / factor),
            Command::Errors => node.mode = Mode::Errors,
            Command::Garbage => node.mode = Mode::Garbage,
            Command::Crash => {
                node.listener = None;
                node.station.clear();
                node.finished.clear();
                for place in 0..self.connections.len() {
                    if self.connections[place].as_ref().is_some_and(|c| c.node == n) {
                        self.close(place);
                    }
                }
            }
            Command::Recover => {
                node.station.set_speed(1.0);
                node.mode = Mode::Work;
                if node.listener.is_none() {
                    node.listener = Some(listen(&self.poll, n, node.address)?.0);
                }
            }
        }
        Ok(())
    }
}

impl Node {
    fn count(&mut self) -> NodeStats {
        self.station.advance(clock::now(), &mut self.finished);
        let mut stats = self.stats.clone();
        stats.inside = self.station.inside();
        stats.waiting = self.station.waiting();
        stats.busy = Duration::from_nanos(self.station.busy() as u64);
        stats
    }
}

fn listen(poll: &Poll, n: usize, address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let mut listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    poll.registry().register(&mut listener, Token(FIRST_LISTENER + n), Interest::READABLE)?;
    Ok((listener, address))
}
