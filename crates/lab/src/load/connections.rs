//! Connections to servers and the requests on them: sockets only, no schedule and no counts.
//!
//! The caller has the schedule. It drives the connections in one loop on one thread:
//!
//! ```text
//! loop {
//!     connections.wait(next instant)        sleeps until a socket is ready or a request is due
//!     connections.begin(…)                  sends requests that are due, before it reads replies
//!     connections.go_on()                   reads and writes on ready sockets
//!     while connections.take() …            returns replies and failures
//! }
//! ```
//!
//! A request takes the most recently used idle connection of its pool. If none is idle, it opens a new one. If the
//! pool is at its limit, the request waits in FIFO order. A connection carries one request at a time (HTTP/1.1 without
//! pipelining).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

pub use super::exchange::Ending;
use super::exchange::{Exchange, Progress, READ};
use weirgate_emulator::clock::{self, Alarm};

/// Poll token of the waker.
const WAKER: Token = Token(0);
/// Poll token of the alarm.
const ALARM: Token = Token(1);
/// Poll token of the first connection. The others follow.
const FIRST: usize = 2;

/// Maximum number of events that one poll returns.
const EVENTS: usize = 1024;

/// Time in nanoseconds after which an idle connection is closed. Common servers close later (Apache after 5 s), so a
/// request rarely crosses a close by the server.
const IDLE: u64 = 4 * clock::SECOND;

/// The server of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address of the server.
    pub address: SocketAddr,
    /// Maximum number of open connections.
    pub max: usize,
}

/// Handle of a request until it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    place: u32,
    /// Generation, which distinguishes it from earlier requests in the same place.
    life: u32,
}

/// A request that is over, and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over<R> {
    /// The value that [`Connections::begin`] got for it.
    pub request: R,
    /// Time of its end in nanoseconds, on the clock of `weirgate_emulator`.
    pub at: u64,
    /// Its outcome.
    pub ending: Ending,
}

/// Pools of connections, and the requests on them. Each request carries a value `R` of the caller.
pub struct Connections<R> {
    poll: Poll,
    alarm: Alarm,
    events: Events,
    pools: Vec<Pool>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Places of connections closed since the last wait. They are not reused before the next wait, because an event of
    /// the closed connection may still be in `events`.
    freed: Vec<usize>,
    /// Number of connections opened so far.
    serial: u64,
    requests: Vec<Seat<R>>,
    vacant: Vec<u32>,
    over: VecDeque<Over<R>>,
    trouble: Option<io::Error>,
    buffer: Vec<u8>,
}

struct Pool {
    target: Target,
    open: usize,
    opened: u64,
    /// Idle connections: place, serial number, start of the idle time.
    idle: VecDeque<(usize, u64, u64)>,
    /// Requests that wait for a connection, in FIFO order.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    ticket: Ticket,
    is_head: bool,
    head: Vec<u8>,
}

/// An open connection.
struct Slot {
    pool: usize,
    serial: u64,
    exchange: Exchange,
    request: Option<Ticket>,
}

/// A place for a request, occupied or vacant.
struct Seat<R> {
    life: u32,
    request: Option<Request<R>>,
}

struct Request<R> {
    owner: R,
    pool: usize,
    /// Place of its connection. `None` while it waits for one.
    slot: Option<usize>,
}

impl<R> Connections<R> {
    /// Creates one pool for each of `targets`, without open connections. The returned waker wakes
    /// [`Connections::wait`].
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(targets: impl IntoIterator<Item = Target>) -> io::Result<(Connections<R>, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let alarm = Alarm::new(&poll, ALARM)?;
        let pool = |target| Pool { target, open: 0, opened: 0, idle: VecDeque::new(), waiting: VecDeque::new() };
        let connections = Connections {
            poll,
            alarm,
            events: Events::with_capacity(EVENTS),
            pools: targets.into_iter().map(pool).collect(),
            slots: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            serial: 0,
            requests: Vec::new(),
            vacant: Vec::new(),
            over: VecDeque::new(),
            trouble: None,
            buffer: vec![0; READ],
        };
        Ok((connections, waker))
    }

    /// Sleeps until a connection is ready, the waker wakes it, or the clock reaches `until`. `None` sets no time.
    ///
    /// # Errors
    /// Errors of the system's poll and timer calls.
    pub fn wait(&mut self, until: Option<u64>) -> io::Result<()> {
        self.free.append(&mut self.freed);
        self.alarm.wait(&mut self.poll, &mut self.events, until)
    }

    /// Reads and writes on every ready connection, and closes connections that have been idle for four seconds.
    pub fn go_on(&mut self) {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            if let Some(place) = event.token().0.checked_sub(FIRST)
                && let Some(Some(slot)) = self.slots.get_mut(place)
            {
                slot.exchange.ready(event);
                let pool = slot.pool;
                self.step(place);
                self.serve_waiting(pool);
            }
        }
        self.events = events;
        let now = clock::now();
        for pool in 0..self.pools.len() {
            self.close_unused(pool, now);
        }
    }

    /// Begins a request in pool number `pool`. `write` appends the request head to its argument. Returns the handle of
    /// the request, and whether it has to wait for a connection.
    ///
    /// # Panics
    /// There is no such pool.
    pub fn begin(&mut self, pool: usize, owner: R, is_head: bool, write: impl FnOnce(&mut Vec<u8>)) -> (Ticket, bool) {
        let ticket = self.seat(Request { owner, pool, slot: None });
        match self.connection(pool) {
            Ok(Some(place)) => {
                self.put(place, ticket, is_head, write);
                (ticket, false)
            }
            Ok(None) => {
                let mut head = Vec::new();
                write(&mut head);
                self.pools[pool].waiting.push_back(Waiting { ticket, is_head, head });
                (ticket, true)
            }
            Err(error) => {
                self.refused(ticket, error);
                (ticket, false)
            }
        }
    }

    /// Returns the next request that is over. The requests come in the order in which they ended.
    pub fn take(&mut self) -> Option<Over<R>> {
        self.over.pop_front()
    }

    /// Whether the request is not over yet.
    pub fn is_under_way(&self, ticket: Ticket) -> bool {
        self.requests.get(ticket.place as usize).is_some_and(|p| p.life == ticket.life && p.request.is_some())
    }

    /// Aborts a request and closes its connection. Returns its value, or `None` if it was over already.
    pub fn give_up(&mut self, ticket: Ticket) -> Option<R> {
        let request = self.unseat(ticket)?;
        if let Some(place) = request.slot {
            self.close(place);
            self.serve_waiting(request.pool);
        }
        Some(request.owner)
    }

    /// Aborts all requests that are not over, and returns their values. Closes all connections.
    pub fn cut(&mut self) -> Vec<R> {
        for pool in &mut self.pools {
            pool.waiting.clear();
        }
        for place in 0..self.slots.len() {
            self.close(place);
        }
        let seats = self.requests.iter().enumerate();
        let tickets: Vec<Ticket> = seats.map(|(place, seat)| Ticket { place: place as u32, life: seat.life }).collect();
        tickets.into_iter().filter_map(|ticket| Some(self.unseat(ticket)?.owner)).collect()
    }

    /// Number of requests that are not over.
    pub fn under_way(&self) -> usize {
        self.requests.len() - self.vacant.len()
    }

    /// Number of connections that pool number `pool` has opened so far.
    ///
    /// # Panics
    /// There is no such pool.
    pub fn opened(&self, pool: usize) -> u64 {
        self.pools[pool].opened
    }

    /// Takes the first local error: this system had no descriptor, port or memory for a connection, which is no fault
    /// of the server. The affected request ends with [`Ending::NoConnection`] nevertheless.
    pub fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Stores a request and returns its handle.
    fn seat(&mut self, request: Request<R>) -> Ticket {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.requests.push(Seat { life: 0, request: None });
            (self.requests.len() - 1) as u32
        });
        let seat = &mut self.requests[place as usize];
        seat.request = Some(request);
        Ticket { place, life: seat.life }
    }

    /// Removes a request. Returns `None` if it was removed before.
    fn unseat(&mut self, ticket: Ticket) -> Option<Request<R>> {
        let seat = self.requests.get_mut(ticket.place as usize).filter(|seat| seat.life == ticket.life)?;
        let request = seat.request.take()?;
        seat.life = seat.life.wrapping_add(1);
        self.vacant.push(ticket.place);
        Some(request)
    }

    /// Returns the place of a connection for a request, or `None` if the request has to wait.
    fn connection(&mut self, pool: usize) -> io::Result<Option<usize>> {
        let now = clock::now();
        while let Some((place, serial, since)) = self.pools[pool].idle.pop_back() {
            match self.is_unused(place, serial) {
                true if since + IDLE > now => return Ok(Some(place)),
                true => self.close(place),
                false => {}
            }
        }
        let pool_at = &self.pools[pool];
        if pool_at.open >= pool_at.target.max { Ok(None) } else { self.connect(pool).map(Some) }
    }

    fn is_unused(&self, place: usize, serial: u64) -> bool {
        self.slots[place].as_ref().is_some_and(|slot| slot.serial == serial && slot.request.is_none())
    }

    fn connect(&mut self, pool: usize) -> io::Result<usize> {
        let mut stream = TcpStream::connect(self.pools[pool].target.address)?;
        // A request is written at once. Waiting to fill a segment would only delay it.
        let _ = stream.set_nodelay(true);
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(FIRST + place), interest) {
            self.free.push(place);
            return Err(error);
        }
        self.serial += 1;
        self.pools[pool].open += 1;
        self.pools[pool].opened += 1;
        self.slots[place] = Some(Slot { pool, serial: self.serial, exchange: Exchange::new(stream), request: None });
        Ok(place)
    }

    /// Puts a request on a connection.
    fn put(&mut self, place: usize, ticket: Ticket, is_head: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(slot) = &mut self.slots[place] else { return };
        slot.request = Some(ticket);
        slot.exchange.send(is_head, write);
        if let Some(request) = &mut self.requests[ticket.place as usize].request {
            request.slot = Some(place);
        }
        self.step(place);
    }

    /// Reads and writes on one connection as far as it is ready.
    fn step(&mut self, place: usize) {
        let Some(slot) = &mut self.slots[place] else { return };
        let Progress::Over { ending, reusable } = slot.exchange.go_on(&mut self.buffer) else { return };
        let now = clock::now();
        let request = slot.request.take();
        if reusable {
            self.pools[slot.pool].idle.push_back((place, slot.serial, now));
        } else {
            self.close(place);
        }
        if let Some(Request { owner, .. }) = request.and_then(|ticket| self.unseat(ticket)) {
            self.over.push_back(Over { request: owner, at: now, ending });
        }
    }

    /// Puts waiting requests on connections, until no connection is available.
    fn serve_waiting(&mut self, pool: usize) {
        // Each round removes one request or ends the loop, even if connecting fails at once.
        while let Some(Waiting { ticket, is_head, head }) = self.pools[pool].waiting.pop_front() {
            if !self.is_under_way(ticket) {
                continue;
            }
            match self.connection(pool) {
                Ok(Some(place)) => self.put(place, ticket, is_head, |out| *out = head),
                Ok(None) => return self.pools[pool].waiting.push_front(Waiting { ticket, is_head, head }),
                Err(error) => self.refused(ticket, error),
            }
        }
    }

    /// Ends a request for which no connection could be opened.
    fn refused(&mut self, ticket: Ticket, error: io::Error) {
        let of_the_server = matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::TimedOut
        );
        if !of_the_server && self.trouble.is_none() {
            self.trouble = Some(error);
        }
        if let Some(Request { owner, .. }) = self.unseat(ticket) {
            self.over.push_back(Over { request: owner, at: clock::now(), ending: Ending::NoConnection });
        }
    }

    fn close(&mut self, place: usize) {
        if let Some(slot) = self.slots[place].take() {
            self.pools[slot.pool].open -= 1;
            self.freed.push(place);
        }
    }

    /// Closes connections that have been idle for [`IDLE`].
    fn close_unused(&mut self, pool: usize, now: u64) {
        while let Some(&(place, serial, since)) = self.pools[pool].idle.front()
            && since + IDLE <= now
        {
            self.pools[pool].idle.pop_front();
            if self.is_unused(place, serial) {
                self.close(place);
            }
        }
    }
}
