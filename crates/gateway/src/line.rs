//! One client connection, as everything that serves it sees it.
//!
//! The connection's task, the framing check in front of hyper and the request in hand all run in one
//! task; what they have to tell one another is here. Nothing in it knows the transport.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use weirgate_engine::Time;

use crate::exchange::Exchange;
use crate::framing::Refusal;
use crate::hops::Stamps;
use crate::pump::SharedPump;
use crate::timer::Alarm;
use crate::tunnel::Tunnel;
use crate::worker::Worker;

/// A client connection.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) worker: Rc<Worker>,
    /// Who is at the other end.
    pub(crate) peer: SocketAddr,
    /// The listener that accepted it, as the policy names it.
    pub(crate) listener: SocketAddr,
    /// The port that the client connected to.
    pub(crate) port: u16,
    /// Wakes the connection's task.
    pub(crate) alarm: Rc<Alarm>,
    /// When the request in hand has taken too long in its present phase.
    pub(crate) phase: Cell<Time>,
    /// When it has taken too long altogether.
    pub(crate) total: Cell<Time>,
    /// How long the client may go without taking or giving a byte of a body.
    pub(crate) progress: Cell<Duration>,
    /// The head of this number was refused; nothing after it is read.
    pub(crate) refused: Cell<Option<(u64, Refusal)>>,
    /// The body of the request of this number was refused. hyper may read a body before it hands over the
    /// head.
    bad_body: Cell<Option<(u64, Refusal)>>,
    /// The request in hand asked for another protocol and did not get it: HTTP goes on.
    pub(crate) declined: Cell<bool>,
    /// The head that passed last, for sending it again.
    pub(crate) head: RefCell<Head>,
    /// Heads that hyper has handed over.
    pub(crate) calls: Cell<u64>,
    /// From a head to the last byte of its answer.
    pub(crate) busy: Cell<bool>,
    /// The answer to the request in hand has been handed to hyper.
    pub(crate) answered: Cell<bool>,
    /// Since when nothing was asked.
    pub(crate) idle_since: Cell<Time>,
    /// Body bytes received for the request in hand.
    pub(crate) bytes_in: Cell<u64>,
    /// No further request is taken.
    pub(crate) closing: Cell<bool>,
    /// The node's answer that is being read ahead for a slow client.
    pub(crate) pump: RefCell<Option<SharedPump>>,
    /// The tunnel that follows the answer in hand.
    pub(crate) tunnel: RefCell<Option<Tunnel>>,
    /// Ended, but its last bytes may not have left yet.
    pub(crate) finished: RefCell<Option<Box<Exchange>>>,
    /// Headers for the nodes that repeat from request to request.
    pub(crate) stamps: RefCell<Stamps>,
}

/// A head as it was received. To copy its bytes costs less than to clone the headers of every request in
/// case it has to be sent again.
#[derive(Debug, Default)]
pub(crate) struct Head {
    number: u64,
    bytes: Vec<u8>,
}

impl Head {
    /// Keeps a head that has passed the framing check.
    pub(crate) fn keep(&mut self, number: u64, bytes: &[u8]) {
        self.number = number;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether it is the head of this number.
    pub(crate) fn is(&self, number: u64) -> bool {
        self.number == number
    }

    /// Its headers, if the head of this number is the one that was kept: a client that does not wait for its
    /// answer may have sent the next one already.
    pub(crate) fn headers(&self, number: u64) -> Option<HeaderMap> {
        if !self.is(number) {
            return None;
        }
        let mut headers = HeaderMap::new();
        for line in self.bytes.split(|&b| b == b'\n').skip(1) {
            let Some(colon) = line.iter().position(|&b| b == b':') else { break };
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        }
        Some(headers)
    }
}

impl Line {
    pub(crate) fn new(worker: &Rc<Worker>, peer: SocketAddr, listener: SocketAddr, port: u16) -> Rc<Line> {
        Rc::new(Line {
            worker: Rc::clone(worker),
            peer,
            listener,
            port,
            alarm: Alarm::new(),
            phase: Cell::new(Time::NEVER),
            total: Cell::new(Time::NEVER),
            // Until a class says otherwise.
            progress: Cell::new(Duration::from_secs(30)),
            refused: Cell::new(None),
            bad_body: Cell::new(None),
            declined: Cell::new(false),
            head: RefCell::new(Head::default()),
            calls: Cell::new(0),
            busy: Cell::new(false),
            answered: Cell::new(false),
            idle_since: Cell::new(worker.timers.now()),
            bytes_in: Cell::new(0),
            closing: Cell::new(false),
            pump: RefCell::new(None),
            tunnel: RefCell::new(None),
            finished: RefCell::new(None),
            stamps: RefCell::new(Stamps::default()),
        })
    }

    /// The time, at most one tick of the timer old.
    pub(crate) fn now(&self) -> Time {
        self.worker.timers.now()
    }

    /// A new phase of the request in hand begins, which may last `span`.
    pub(crate) fn begin_phase(&self, span: Duration) {
        self.phase.set(self.now() + span);
    }

    /// Whether the phase or the whole has taken too long.
    pub(crate) fn is_late(&self) -> bool {
        self.now() >= self.phase.get().min(self.total.get())
    }

    /// Takes the next head that hyper hands over; returns its refusal if it is a stand-in.
    pub(crate) fn begin(&self) -> Option<Refusal> {
        self.calls.set(self.calls.get() + 1);
        self.busy.set(true);
        self.answered.set(false);
        self.bytes_in.set(0);
        self.refused.get().filter(|(number, _)| *number == self.calls.get()).map(|(_, refusal)| refusal)
    }

    /// The body of the request of this number is refused.
    pub(crate) fn refuse_body(&self, number: u64, refusal: Refusal) {
        self.bad_body.set(Some((number, refusal)));
    }

    /// Why the body of the request in hand was refused, if it was.
    pub(crate) fn body_refusal(&self) -> Option<Refusal> {
        self.bad_body.get().filter(|(number, _)| *number == self.calls.get()).map(|(_, refusal)| refusal)
    }

    /// The request in hand has ended.
    pub(crate) fn end(&self) {
        self.busy.set(false);
        self.phase.set(Time::NEVER);
        self.total.set(Time::NEVER);
        self.idle_since.set(self.now());
    }

    /// Takes no further request.
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
