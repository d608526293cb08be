//! State of one client connection, shared by the code that serves it.
//!
//! hyper, the framing check in front of it and the current request all run in the connection's task. They
//! communicate through this state. It does not depend on the transport.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::HeaderMap;
use weirgate_engine::Time;

use crate::exchange::Exchange;
use crate::field_lines;
use crate::hops::Stamps;
use crate::pump::SharedPump;
use crate::refusal::Refusal;
use crate::timer::Alarm;
use crate::tunnel::Tunnel;
use crate::worker::Worker;

/// Time for which a new connection without a byte is not closed in favour of another one. A client that is connected
/// can send its request at once, without another round trip, so the time is for a client that is busy.
const FIRST_BYTE: Duration = Duration::from_millis(250);

/// A client connection.
#[derive(Debug)]
pub(crate) struct ClientConn {
    pub(crate) worker: Rc<Worker>,
    /// Address of the peer.
    pub(crate) peer: SocketAddr,
    /// The listener that accepted it, as the policy names it.
    pub(crate) listener: SocketAddr,
    /// Port that the client connected to.
    pub(crate) port: u16,
    /// Wakes the connection's task.
    pub(crate) alarm: Rc<Alarm>,
    /// Time at which the current request exceeds the limit of its present phase.
    pub(crate) phase: Cell<Time>,
    /// Time at which it exceeds its total limit.
    pub(crate) total: Cell<Time>,
    /// Maximum time without progress on a body, in either direction.
    pub(crate) progress: Cell<Duration>,
    /// Sequence number and refusal of a refused head. Nothing after it is read.
    pub(crate) refused: Cell<Option<(u64, Refusal)>>,
    /// Sequence number and refusal of a request with a refused body. hyper may read a body before it hands
    /// over the head.
    bad_body: Cell<Option<(u64, Refusal)>>,
    /// Whether the current request asked for another protocol and did not get it, so that HTTP continues.
    pub(crate) declined: Cell<bool>,
    /// The last head that passed, kept for a retry.
    pub(crate) head: RefCell<Head>,
    /// Number of heads that hyper has handed over.
    pub(crate) calls: Cell<u64>,
    /// Whether a request is being served: from its head to the last byte of its response.
    pub(crate) busy: Cell<bool>,
    /// Whether the response to the current request has been handed to hyper.
    pub(crate) answered: Cell<bool>,
    /// Time since which no request is being served. At first the time of its acceptance.
    pub(crate) idle_since: Cell<Time>,
    /// Time of the first byte of the head that is being received.
    pub(crate) head_since: Cell<Option<Time>>,
    /// Number of body bytes received for the current request.
    pub(crate) bytes_in: Cell<u64>,
    /// Whether no further request is accepted.
    pub(crate) closing: Cell<bool>,
    /// The node's response that is read ahead for a slow client.
    pub(crate) pump: RefCell<Option<SharedPump>>,
    /// The tunnel that follows the current response.
    pub(crate) tunnel: RefCell<Option<Tunnel>>,
    /// A request that has ended, while its last bytes may still be unsent.
    pub(crate) finished: RefCell<Option<Box<Exchange>>>,
    /// Headers for the nodes that are the same from request to request.
    pub(crate) stamps: RefCell<Stamps>,
}

/// A head as received. Copying its bytes costs less than cloning the headers of every request in case of a
/// retry.
#[derive(Debug, Default)]
pub(crate) struct Head {
    number: u64,
    bytes: Vec<u8>,
}

impl Head {
    /// Stores a head that has passed the framing check.
    pub(crate) fn keep(&mut self, number: u64, bytes: &[u8]) {
        self.number = number;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether this is the head with this sequence number.
    pub(crate) fn is(&self, number: u64) -> bool {
        self.number == number
    }

    /// Returns the headers of the head with this sequence number, if it is still stored. A client that does
    /// not wait for its response may have sent the next head already.
    pub(crate) fn headers(&self, number: u64) -> Option<HeaderMap> {
        if !self.is(number) {
            return None;
        }
        let first = self.bytes.iter().position(|&b| b == b'\n')?;
        field_lines::parse(self.bytes.get(first + 1..)?)
    }
}

impl ClientConn {
    pub(crate) fn new(worker: &Rc<Worker>, peer: SocketAddr, listener: SocketAddr, port: u16) -> Rc<ClientConn> {
        Rc::new(ClientConn {
            worker: Rc::clone(worker),
            peer,
            listener,
            port,
            alarm: Alarm::new(),
            phase: Cell::new(Time::NEVER),
            total: Cell::new(Time::NEVER),
            // Until a class is known.
            progress: Cell::new(Duration::from_secs(30)),
            refused: Cell::new(None),
            bad_body: Cell::new(None),
            declined: Cell::new(false),
            head: RefCell::new(Head::default()),
            calls: Cell::new(0),
            busy: Cell::new(false),
            answered: Cell::new(false),
            idle_since: Cell::new(worker.timers.now()),
            head_since: Cell::new(None),
            bytes_in: Cell::new(0),
            closing: Cell::new(false),
            pump: RefCell::new(None),
            tunnel: RefCell::new(None),
            finished: RefCell::new(None),
            stamps: RefCell::new(Stamps::default()),
        })
    }

    /// Returns the time, at most one tick of the timer old.
    pub(crate) fn now(&self) -> Time {
        self.worker.timers.now()
    }

    /// Begins a new phase of the current request, which may take at most `span`.
    pub(crate) fn begin_phase(&self, span: Duration) {
        self.phase.set(self.now() + span);
    }

    /// Whether the phase or the whole request has exceeded its limit.
    pub(crate) fn is_late(&self) -> bool {
        self.now() >= self.phase.get().min(self.total.get())
    }

    /// Takes the next head that hyper hands over. Returns its refusal if the head is a stand-in.
    pub(crate) fn begin(&self) -> Option<Refusal> {
        self.calls.set(self.calls.get() + 1);
        self.busy.set(true);
        self.answered.set(false);
        self.bytes_in.set(0);
        self.refused.get().filter(|(number, _)| *number == self.calls.get()).map(|(_, refusal)| refusal)
    }

    /// Records that the body of the request with this sequence number is refused.
    pub(crate) fn refuse_body(&self, number: u64, refusal: Refusal) {
        self.bad_body.set(Some((number, refusal)));
    }

    /// Returns the reason for refusing the body of the current request, if it was refused.
    pub(crate) fn body_refusal(&self) -> Option<Refusal> {
        self.bad_body.get().filter(|(number, _)| *number == self.calls.get()).map(|(_, refusal)| refusal)
    }

    /// Ends the current request.
    pub(crate) fn end(&self) {
        self.busy.set(false);
        self.phase.set(Time::NEVER);
        self.total.set(Time::NEVER);
        self.idle_since.set(self.now());
    }

    /// Returns the time since which the connection has been idle, if it may be closed to make room for another one. A
    /// client that has just connected is given [`FIRST_BYTE`] to begin its first request.
    pub(crate) fn spare_since(&self) -> Option<Time> {
        let idle = !self.busy.get() && self.head_since.get().is_none();
        let since = self.idle_since.get();
        let begins = self.calls.get() == 0 && self.now().since(since) < FIRST_BYTE;
        (idle && !begins).then_some(since)
    }

    /// Stops accepting requests on this connection.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.alarm.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_head_gives_its_headers_back() {
        let mut head = Head::default();
        head.keep(3, b"GET /a:b HTTP/1.1\r\nHost: a\r\nX: 1\r\nx:\t2 : 3 \r\nE:\r\n\r\n");
        let headers = head.headers(3).expect("it is this one");
        let fields: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        assert_eq!(fields, [("host", &b"a"[..]), ("x", b"1"), ("x", b"2 : 3"), ("e", b"")]);
        assert!(head.headers(2).is_none() && head.headers(4).is_none());
    }
}
