//! Connections to servers and the requests on them: sockets only, no schedule and no counts.
//!
//! Whoever has a schedule begins requests, waits, goes on and takes what is over, in one loop on one thread:
//!
//! ```text
//! loop {
//!     connections.wait(next instant)        sleeps until something is ready or due
//!     connections.begin(…)                  what is due leaves before replies are looked at
//!     connections.go_on()                   reads and writes what is ready
//!     while connections.take() …            replies and failures
//! }
//! ```
//!
//! A request takes an unused connection of its pool, the one used last; opens one if there is none; and waits for one,
//! in order, if the pool is exhausted. One request at a time is on a connection (HTTP/1.1 without pipelining).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

pub use super::exchange::Ending;
use super::exchange::{Exchange, Progress, READ};
use weirgate_emulator::clock::{self, Alarm};

/// Tokens of the poll.
const WAKER: Token = Token(0);
const ALARM: Token = Token(1);
/// Those of connections start here.
const FIRST: usize = 2;

/// Events taken from the system at once.
const EVENTS: usize = 1024;

/// Unused connections are closed after so long, before common servers do it (Apache: 5 s), as a
/// request could meet the server's close half-way.
const IDLE: u64 = 4 * clock::SECOND;

/// Where a pool's connections lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server.
    pub address: SocketAddr,
    /// Most connections at once.
    pub most: usize,
}

/// Names a request until it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    place: u32,
    /// Tells it from earlier requests in the same place.
    life: u32,
}

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over<R> {
    /// What it was begun with.
    pub request: R,
    /// When, on the crate's clock.
    pub at: u64,
    /// How.
    pub ending: Ending,
}

/// Pools of connections, and requests that each carry an `R` of their owner's.
pub struct Connections<R> {
    poll: Poll,
    alarm: Alarm,
    events: Events,
    pools: Vec<Pool>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Places of connections closed since the last wait: an event of such a connection may still be at hand.
    freed: Vec<usize>,
    /// Counts connections.
    serial: u64,
    requests: Vec<Seat<R>>,
    vacant: Vec<u32>,
    over: VecDeque<Over<R>>,
    trouble: Option<io::Error>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Pool {
    target: Target,
    open: usize,
    opened: u64,
    /// Unused connections: place, serial number, since when.
    idle: VecDeque<(usize, u64, u64)>,
    /// Requests that wait for a connection, in order.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    is_head: bool,
    head: Vec<u8>,
}

/// A connection in its place.
#[derive(Debug)]
struct Slot {
    pool: usize,
    serial: u64,
    exchange: Exchange,
    request: Option<Ticket>,
}

/// A place for a request.
struct Seat<R> {
    life: u32,
    request: Option<Request<R>>,
}

struct Request<R> {
    owner: R,
    pool: usize,
    /// The connection that it is on; `None` while it waits for one.
    slot: Option<usize>,
}

impl<R> Connections<R> {
    /// One pool for each of `targets`; no connection is open yet. The waker wakes [`Connections::wait`].
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

    /// Sleeps until a connection is ready, the waker wakes, or the clock says `until`; `None` is never.
    ///
    /// # Errors
    /// Those of the system's poll and timer calls.
    pub fn wait(&mut self, until: Option<u64>) -> io::Result<()> {
        self.free.append(&mut self.freed);
        self.alarm.wait(&mut self.poll, &mut self.events, until)
    }

    /// Goes on with every connection that was ready, and closes those that have been unused for long.
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

    /// Begins a request in pool number `pool`; `write` appends its head to what it is given. Returns its name, and
    /// whether it has to wait for a connection.
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

    /// The next request that is over, in the order in which they ended.
    pub fn take(&mut self) -> Option<Over<R>> {
        self.over.pop_front()
    }

    /// Is this request still under way?
    #[must_use]
    pub fn is_under_way(&self, ticket: Ticket) -> bool {
        self.requests.get(ticket.place as usize).is_some_and(|p| p.life == ticket.life && p.request.is_some())
    }

    /// Gives a request up and closes its connection. `None` if it is over already.
    pub fn give_up(&mut self, ticket: Ticket) -> Option<R> {
        let request = self.unseat(ticket)?;
        if let Some(place) = request.slot {
            self.close(place);
            self.serve_waiting(request.pool);
        }
        Some(request.owner)
    }

    /// Gives up everything that is under way.
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

    /// Requests under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.requests.len() - self.vacant.len()
    }

    /// Connections that pool number `pool` has opened over all.
    ///
    /// # Panics
    /// There is no such pool.
    #[must_use]
    pub fn opened(&self, pool: usize) -> u64 {
        self.pools[pool].opened
    }

    /// The first time that this system itself had no descriptor, port or memory for a connection: the server is
    /// not to blame. The request is over with [`Ending::NoConnection`] all the same.
    pub fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// A place for a request.
    fn seat(&mut self, request: Request<R>) -> Ticket {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.requests.push(Seat { life: 0, request: None });
            (self.requests.len() - 1) as u32
        });
        let seat = &mut self.requests[place as usize];
        seat.request = Some(request);
        Ticket { place, life: seat.life }
    }

    /// Takes a request from its place.
    fn unseat(&mut self, ticket: Ticket) -> Option<Request<R>> {
        let seat = self.requests.get_mut(ticket.place as usize).filter(|seat| seat.life == ticket.life)?;
        let request = seat.request.take()?;
        seat.life = seat.life.wrapping_add(1);
        self.vacant.push(ticket.place);
        Some(request)
    }

    /// A connection for a request; `None`: it has to wait for one.
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
        if pool_at.open >= pool_at.target.most { Ok(None) } else { self.connect(pool).map(Some) }
    }

    fn is_unused(&self, place: usize, serial: u64) -> bool {
        self.slots[place].as_ref().is_some_and(|slot| slot.serial == serial && slot.request.is_none())
    }

    fn connect(&mut self, pool: usize) -> io::Result<usize> {
        let mut stream = TcpStream::connect(self.pools[pool].target.address)?;
        // Requests are written whole: waiting to fill a segment could only delay them.
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

    /// Goes on with a connection.
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

    /// Puts what waits for a connection on one, as far as there are any.
    fn serve_waiting(&mut self, pool: usize) {
        // Each round takes one request away or ends the loop, also when connecting fails at once.
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

    /// There is no connection to be had for a request.
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

    /// Closes connections that have been unused for long.
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
