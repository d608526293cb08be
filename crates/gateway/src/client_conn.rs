//! State of one client connection, shared by the code that serves it.
//!
//! The connection's task, the current request and the thread communicate through it: deadlines, counts, and whether the
//! connection is busy or to be closed. It does not depend on the transport.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use weirgate_engine::Time;

use crate::timer::Alarm;
use crate::worker::Worker;

/// Time for which a new connection without a byte is not closed in favour of another one. A client that is connected
/// can send its request at once, without another round trip, so the time is for a client that is busy.
const FIRST_BYTE: Duration = Duration::from_millis(250);

/// Time after which a connection without any deadline is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// A client connection.
#[derive(Debug)]
pub(crate) struct ClientConn {
    pub(crate) worker: Rc<Worker>,
    /// Address of the peer.
    pub(crate) peer: SocketAddr,
    /// Its IP address as text. It is written in every head for a node.
    pub(crate) peer_text: Box<str>,
    /// The listener that accepted it, as the policy names it.
    pub(crate) listener: SocketAddr,
    /// Port that the client connected to.
    pub(crate) port: u16,
    /// Wakes the connection's task.
    pub(crate) alarm: Rc<Alarm>,
    /// Time at which the present phase takes too long: idle, a head, or the node's part of a request.
    pub(crate) phase: Cell<Time>,
    /// Time at which the current request exceeds its total limit.
    pub(crate) total: Cell<Time>,
    /// Time at which the client has sent its body too slowly.
    pub(crate) body_due: Cell<Time>,
    /// Time at which the client has accepted no bytes for too long.
    pub(crate) stuck: Cell<Time>,
    /// Maximum time without progress on a body, in either direction.
    pub(crate) progress: Cell<Duration>,
    /// Number of requests so far.
    pub(crate) requests: Cell<u64>,
    /// Whether a request is being served: from its head to the last byte of its response.
    pub(crate) busy: Cell<bool>,
    /// Whether a byte of the response to the current request has been sent.
    pub(crate) answered: Cell<bool>,
    /// Time since which no request is being served. At first the time of its acceptance.
    pub(crate) idle_since: Cell<Time>,
    /// Time of the first byte of the head that is being received.
    pub(crate) head_since: Cell<Option<Time>>,
    /// Number of body bytes received for the current request.
    pub(crate) bytes_in: Cell<u64>,
    /// Whether no further request is accepted.
    pub(crate) closing: Cell<bool>,
}

impl ClientConn {
    pub(crate) fn new(worker: &Rc<Worker>, peer: SocketAddr, listener: SocketAddr, port: u16) -> Rc<ClientConn> {
        Rc::new(ClientConn {
            worker: Rc::clone(worker),
            peer,
            peer_text: peer.ip().to_canonical().to_string().into_boxed_str(),
            listener,
            port,
            alarm: Alarm::new(),
            phase: Cell::new(Time::NEVER),
            total: Cell::new(Time::NEVER),
            body_due: Cell::new(Time::NEVER),
            stuck: Cell::new(Time::NEVER),
            // Until a class is known.
            progress: Cell::new(Duration::from_secs(30)),
            requests: Cell::new(0),
            busy: Cell::new(false),
            answered: Cell::new(false),
            idle_since: Cell::new(worker.timers.now()),
            head_since: Cell::new(None),
            bytes_in: Cell::new(0),
            closing: Cell::new(false),
        })
    }

    /// Returns the time, at most one tick of the timer old.
    pub(crate) fn now(&self) -> Time {
        self.worker.timers.now()
    }

    /// Begins a new phase, which may take at most `span`.
    pub(crate) fn begin_phase(&self, span: Duration) {
        self.phase.set(self.now() + span);
    }

    /// Ends the node's part of the current request, and its limits.
    pub(crate) fn end_phases(&self) {
        self.phase.set(Time::NEVER);
        self.total.set(Time::NEVER);
    }

    /// Whether the phase or the whole request has exceeded its limit.
    pub(crate) fn is_late(&self) -> bool {
        self.now() >= self.phase.get().min(self.total.get())
    }

    /// Wakes the connection's task at its next deadline.
    pub(crate) fn arm(&self, waker: &Waker) {
        let mut due = self.phase.get().min(self.total.get()).min(self.body_due.get()).min(self.stuck.get());
        if due == Time::NEVER {
            due = self.now() + LOOK_AGAIN;
        }
        self.worker.timers.set(&self.alarm, due, waker);
    }

    /// Begins a request.
    pub(crate) fn begin(&self) {
        self.requests.set(self.requests.get() + 1);
        self.busy.set(true);
        self.answered.set(false);
        self.head_since.set(None);
        self.bytes_in.set(0);
        self.end_phases();
    }

    /// Ends the current request.
    pub(crate) fn end(&self) {
        self.busy.set(false);
        self.end_phases();
        self.body_due.set(Time::NEVER);
        self.stuck.set(Time::NEVER);
        self.idle_since.set(self.now());
    }

    /// Returns the time since which the connection has been idle, if it may be closed to make room for another one. A
    /// client that has just connected is given [`FIRST_BYTE`] to begin its first request.
    pub(crate) fn spare_since(&self) -> Option<Time> {
        let idle = !self.busy.get() && self.head_since.get().is_none();
        let since = self.idle_since.get();
        let begins = self.requests.get() == 0 && self.now().since(since) < FIRST_BYTE;
        (idle && !begins).then_some(since)
    }

    /// Stops accepting requests on this connection.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.alarm.wake();
    }
}
