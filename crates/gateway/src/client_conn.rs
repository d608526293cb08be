//! State of one client connection, shared by the code that serves it.
//!
//! The connection's task, its requests and the thread communicate through it: counts, and whether the connection is
//! busy or to be closed. It does not depend on the transport. The state of one request is in `stream_state`.

use std::cell::{Cell, OnceCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weirgate_config::{ListenerName, UNIX_CLIENT};
use weirgate_engine::Time;

use crate::active_config::Endpoint;
use crate::client;
use crate::handshake::ClientTls;
use crate::places::Place;
use crate::proxy_protocol::Ends;
use crate::roster::Spare;
use crate::timer::Alarm;
use crate::upstream::Pools;
use crate::worker::Worker;

/// Time after its acceptance or an answer in which the next request of a client may be on its way: a round trip to the
/// other side of the earth. Meanwhile the connection makes room for another one only if no other connection can.
const FRESH: Duration = Duration::from_millis(250);

/// A client connection.
#[derive(Debug)]
pub(crate) struct ClientConn {
    pub(crate) worker: Rc<Worker>,
    /// Address of the peer. It is the client that a balancer has named by the PROXY protocol.
    pub(crate) peer: SocketAddr,
    /// Its IP address as text. It is written in every head for a node. `None` for a client on a Unix socket.
    peer_text: Option<Box<str>>,
    /// The listener that accepted it, as the policy names it.
    pub(crate) listener: Arc<ListenerName>,
    /// Port of that listener, 0 for a Unix socket.
    pub(crate) port: u16,
    /// Address that the client connected to.
    pub(crate) destination: SocketAddr,
    /// Connections to nodes that serve this client only, if there are any.
    own_pools: OnceCell<Box<Pools>>,
    /// The connection among those of its peer.
    _place: Place,
    /// Facts about its TLS, if it is encrypted.
    pub(crate) tls: OnceCell<Box<ClientTls>>,
    /// Wakes the connection's task.
    pub(crate) alarm: Rc<Alarm>,
    /// Number of requests so far.
    pub(crate) requests: Cell<u64>,
    /// Number of requests that are being served: from the head to the last byte of the response.
    pub(crate) busy: Cell<u32>,
    /// Time since which no request is being served. At first the time of its acceptance.
    pub(crate) idle_since: Cell<Time>,
    /// Time of the first byte of the head that is being received.
    pub(crate) head_since: Cell<Option<Time>>,
    /// Its key in the thread's list of connections. There is none with the first one.
    pub(crate) key: Cell<usize>,
    /// Whether no further request is accepted.
    pub(crate) closing: Cell<bool>,
    /// Whether its request gives up waiting, to make room for another connection.
    pub(crate) gives_way: Cell<bool>,
    /// Whether the client speaks HTTP/2.
    pub(crate) http2: Cell<bool>,
}

impl ClientConn {
    /// Creates the state of a connection with these ends, which a listener on `port` has accepted.
    pub(crate) fn new(
        worker: &Rc<Worker>,
        Ends { client: peer, destination }: Ends,
        (listener, port): (Arc<ListenerName>, u16),
        place: Place,
    ) -> Rc<ClientConn> {
        Rc::new(ClientConn {
            worker: Rc::clone(worker),
            peer,
            peer_text: address_of(peer).map(|ip| ip.to_string().into_boxed_str()),
            listener,
            port,
            destination,
            own_pools: OnceCell::new(),
            _place: place,
            tls: OnceCell::new(),
            alarm: Alarm::new(),
            requests: Cell::new(0),
            busy: Cell::new(0),
            idle_since: Cell::new(worker.timers.now()),
            head_since: Cell::new(None),
            key: Cell::new(usize::MAX),
            closing: Cell::new(false),
            gives_way: Cell::new(false),
            http2: Cell::new(false),
        })
    }

    /// Returns the connection between the ends that a balancer names, which this one continues.
    pub(crate) fn continues(&self, ends: Ends, place: Place) -> Rc<ClientConn> {
        let conn = ClientConn::new(&self.worker, ends, (Arc::clone(&self.listener), self.port), place);
        conn.idle_since.set(self.idle_since.get());
        conn
    }

    /// Returns the peer's IP address. `None` for a client on a Unix socket.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        address_of(self.peer)
    }

    /// Returns the text of that address.
    pub(crate) fn address_text(&self) -> Option<&str> {
        self.peer_text.as_deref()
    }

    /// Returns the ends of the connection.
    pub(crate) fn ends(&self) -> Ends {
        Ends { client: self.peer, destination: self.destination }
    }

    /// Returns the connections to nodes that a request of this client may use for `endpoint`.
    pub(crate) fn pools(&self, endpoint: &Endpoint) -> &Pools {
        match endpoint.is_per_client() {
            false => &self.worker.pools,
            true => self.own_pools.get_or_init(Box::default),
        }
    }

    /// Returns the connections to nodes that serve this client only, if there are any.
    pub(crate) fn own_pools(&self) -> Option<&Pools> {
        self.own_pools.get().map(|pools| &**pools)
    }

    /// Returns the scheme that the client used.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.get().is_some() { "https" } else { "http" }
    }

    /// Returns the time, at most one tick of the timer old.
    pub(crate) fn now(&self) -> Time {
        self.worker.timers.now()
    }

    /// Returns the time at which the first byte of the client is overdue. It runs from the acceptance on, so that a
    /// silent client does not stay for long.
    pub(crate) fn first_due(&self) -> Time {
        let timeouts = self.worker.active_config().site.timeouts;
        self.idle_since.get() + timeouts.idle.min(timeouts.header)
    }

    /// Counts a request that begins.
    pub(crate) fn enter(&self) {
        self.requests.set(self.requests.get() + 1);
        self.busy.set(self.busy.get() + 1);
        self.head_since.set(None);
        self.stand();
    }

    /// Counts a request that has ended.
    pub(crate) fn leave(&self) {
        self.busy.set(self.busy.get().saturating_sub(1));
        self.idle_since.set(self.now());
        self.stand();
    }

    /// Notes the first byte of a head. Returns the time of it.
    pub(crate) fn head_begins(&self) -> Time {
        if let Some(since) = self.head_since.get() {
            return since;
        }
        let now = self.now();
        self.head_since.set(Some(now));
        self.stand();
        now
    }

    /// Notes the end of a head that is not yet a request, or of other bytes.
    pub(crate) fn head_ends(&self) {
        if self.head_since.take().is_some() {
            self.stand();
        }
    }

    /// Enters the list that the connection belongs to.
    pub(crate) fn stand(&self) {
        let spare = match (self.busy.get(), self.requests.get()) {
            _ if self.closing.get() || self.head_since.get().is_some() => None,
            (0, 0) => Some(Spare::Silent),
            (0, _) => Some(Spare::Idle),
            _ => None,
        };
        self.worker.set_spare(self, spare);
    }

    /// Enters the list of connections with a request that may give way, unless it has several requests.
    pub(crate) fn may_give_way(&self) {
        if !self.http2.get() && !self.closing.get() {
            self.worker.set_spare(self, Some(Spare::Waiting));
        }
    }

    /// Returns the time since which the connection has been idle, if it is.
    pub(crate) fn idle_since(&self) -> Option<Time> {
        let is_idle = self.busy.get() == 0 && self.head_since.get().is_none();
        is_idle.then(|| self.idle_since.get())
    }

    /// Whether a request may be on its way that the client has sent before it could notice that the connection is being
    /// closed. A client that speaks HTTP/2 is told which of its requests are lost.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.http2.get() && self.now().since(self.idle_since.get()) < FRESH
    }

    /// Returns the number of connections that its peer has. A listed proxy counts like a peer with no other connection,
    /// because it serves many clients.
    pub(crate) fn of_its_peer(&self) -> u32 {
        let peer = self.peer.ip();
        let listed = self.worker.active_config().site.trusts(peer.to_canonical());
        if listed { 1 } else { self.worker.shared.peers.of(&client::peer_key(peer)) }
    }

    /// Whether the connection ends with its current answer, because there are as many connections as there may be and
    /// its peer has more than its part of them. A client that reads so before it sends its next request loses none,
    /// unlike one whose idle connection is closed while it sends.
    pub(crate) fn exceeds_its_part(&self) -> bool {
        self.worker.is_full() && !self.http2.get() && self.of_its_peer() > self.worker.part()
    }

    /// Makes room for another connection: closes this one, or refuses its request that waits. A request that arrives
    /// before it is closed is served.
    pub(crate) fn give_way(&self) {
        self.gives_way.set(self.busy.get() > 0);
        self.close();
    }

    /// Stops accepting requests on this connection.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.stand();
        self.alarm.wake();
    }
}

fn address_of(peer: SocketAddr) -> Option<IpAddr> {
    Some(peer.ip().to_canonical()).filter(|ip| *ip != UNIX_CLIENT)
}
