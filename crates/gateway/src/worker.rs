//! One thread with its runtime, its listeners, its connections, and the state shared by its requests.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use weirgate_config::{Key, ListenerName};
use weirgate_engine::{Decision, Outcome, Shed, Ticket, Time};

use crate::accept::accept;
use crate::active_config::{ActiveConfig, ConfigHandle, Endpoint};
use crate::allocator;
use crate::classify::ClassRef;
use crate::client::Source;
use crate::client_conn::ClientConn;
use crate::control::{Delivery, Observed, Origin};
use crate::gateway::Shared;
use crate::kernel_timer::KernelTimer;
use crate::listener::Acceptor;
use crate::pages::{Lookup, Routed, ServiceInterval};
use crate::permit::Permit;
use crate::places::Place;
use crate::proxy_protocol::Ends;
use crate::record::ClassIndex;
use crate::request::Request;
use crate::roster::{Roster, Spare};
use crate::threads::{Accepted, Command};
use crate::timer::{TICK, Timers};
use crate::trace::TraceIds;
use crate::upstream::{Inbox, Pools};
use crate::waiting::{Decided, WaitSlot, Waiting};
use crate::{client, connection, upstream};

/// Maximum number of bytes read from a client at once.
const SCRATCH: usize = 64 * 1024;

/// Number of ticks between two checks of idle connections to nodes: about a second.
const SWEEP: u32 = 50;

/// Pause in accepting when the process has no file descriptor left. Requests end within that time, and new
/// connections wait in the kernel.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of idle client connections closed at once to free capacity: enough for the next burst, and
/// few enough to keep most of the idle connections.
const AT_ONCE: usize = 32;

/// State shared by the requests of one thread.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) timers: Timers,
    pub(crate) waiting: Waiting,
    pub(crate) pools: Pools,
    pub(crate) traces: TraceIds,
    /// Bytes read from a client.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Bytes read from a node.
    pub(crate) inbox: RefCell<Inbox>,
    /// Bytes to send. It is empty between two turns.
    pub(crate) out: RefCell<Vec<u8>>,
    /// The present date, as `Date` has it.
    pub(crate) date: RefCell<String>,
    active_config: RefCell<Rc<ConfigHandle>>,
    lookup: RefCell<Lookup>,
    hasher: RandomState,
    spare: RefCell<Vec<Delivery>>,
    conns: RefCell<Roster>,
    /// The turn of a TLS handshake.
    pub(crate) handshakes: Semaphore,
    /// Signals that a connection has ended.
    pub(crate) left: Notify,
    /// The drain, once it has begun.
    drain: Cell<Option<Drain>>,
}

/// A drain that has begun.
#[derive(Clone, Copy, Debug)]
struct Drain {
    since: Time,
    /// Time after which an idle connection is closed.
    idle: Duration,
    /// Time at which all connections are cut.
    deadline: Time,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("index", &self.index).finish_non_exhaustive()
    }
}

/// State of the admission of a request.
pub(crate) enum Admission {
    /// The engine has queued it.
    Queued(WaitSlot),
    /// The engine released it at this time. Forward it to this endpoint.
    Released(Time, Permit, Arc<Endpoint>),
    /// The engine shed it at this time.
    Shed(Time, Shed),
    /// The configuration was replaced after the request was classified. Classify it again.
    Stale,
}

/// Keeps a connection in the thread's list for the lifetime of this guard.
pub(crate) struct ConnectionGuard(Rc<ClientConn>);

impl ConnectionGuard {
    /// Keeps `conn` in the list instead.
    pub(crate) fn replace(&mut self, conn: &Rc<ClientConn>) {
        let before = std::mem::replace(&mut self.0, Rc::clone(conn));
        conn.key.set(before.key.replace(usize::MAX));
        conn.worker.conns.borrow_mut().replace(conn.key.get(), Rc::clone(conn));
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let worker = &self.0.worker;
        worker.conns.borrow_mut().remove(self.0.key.replace(usize::MAX));
        worker.shared.counters.open.fetch_sub(1, Ordering::Relaxed);
        worker.left.notify_one();
    }
}

impl Worker {
    fn new(index: usize, shared: Arc<Shared>) -> Rc<Worker> {
        let clock = shared.control.clock();
        let active_config = shared.control.active_config();
        Rc::new(Worker {
            index,
            timers: Timers::new(clock.now()),
            waiting: Waiting::default(),
            pools: Pools::default(),
            traces: TraceIds::new(),
            scratch: RefCell::new(vec![0; SCRATCH]),
            inbox: RefCell::new(upstream::inbox()),
            out: RefCell::new(Vec::with_capacity(SCRATCH)),
            date: RefCell::new(http_date()),
            active_config: RefCell::new(ConfigHandle::on(active_config)),
            lookup: RefCell::new(Lookup::new(&shared.pages)),
            hasher: shared.hasher.clone(),
            spare: RefCell::new(Vec::new()),
            conns: RefCell::default(),
            handshakes: Semaphore::new(1),
            left: Notify::new(),
            drain: Cell::new(None),
            shared,
        })
    }

    /// Returns the configuration in force.
    pub(crate) fn active_config(&self) -> Rc<ConfigHandle> {
        let mut active_config = self.active_config.borrow_mut();
        if active_config.version != self.shared.control.version() {
            *active_config = ConfigHandle::on(self.shared.control.active_config());
        }
        Rc::clone(&active_config)
    }

    /// Returns the source of a request of a class. See [`client::source`].
    pub(crate) fn source<'a>(
        &self,
        config: &ActiveConfig,
        class: Option<ClassIndex>,
        client: IpAddr,
        field: impl FnOnce(&Key) -> Option<&'a [u8]>,
    ) -> Source {
        client::source(&self.hasher, config.source_of(class), client, config.divides_sources, field)
    }

    /// Returns the requested resource, as a keyed hash.
    pub(crate) fn locality_key(&self, host: &str, path: &str, query: Option<&str>) -> u64 {
        self.hasher.hash_one((host, path, query))
    }

    /// Returns the route of a request and its expected cost.
    pub(crate) fn route(&self, request: &Request) -> Routed {
        self.lookup.borrow_mut().find(&self.shared.pages, request)
    }

    /// Notes that a request was answered successfully.
    pub(crate) fn answered(&self, request: &Request) {
        self.lookup.borrow().answered(&self.shared.pages, request);
    }

    /// Adds a connection to the list.
    pub(crate) fn guard(&self, conn: &Rc<ClientConn>) -> ConnectionGuard {
        conn.key.set(self.conns.borrow_mut().insert(Rc::clone(conn)));
        ConnectionGuard(Rc::clone(conn))
    }

    /// Returns the reason why a connection can be spared, if there is one.
    pub(crate) fn set_spare(&self, conn: &ClientConn, spare: Option<Spare>) {
        self.conns.borrow_mut().set(conn.key.get(), spare);
    }

    /// Returns the connections for which `condition` holds.
    fn conns_that(&self, condition: impl Fn(&ClientConn) -> bool) -> Vec<Rc<ClientConn>> {
        self.conns.borrow().all().filter(|conn| condition(conn)).cloned().collect()
    }

    /// Stages *admit*, *queue* and *release*: reports the arrival of a request of `routed`, classified under
    /// `config`, from this source with this locality key. Returns the time of the arrival with the decision.
    pub(crate) fn arrive(
        self: &Rc<Self>,
        config: &ActiveConfig,
        class: ClassRef<'_>,
        (source, locality_key): (Source, Option<u64>),
        routed: Routed,
    ) -> (Time, Admission) {
        let mut own = self.spare.take();
        let slot = self.waiting.next_slot();
        let origin = Origin { source, locality_key, demand: routed.demand };
        let (at, decision) = self.shared.control.arrive(self.index, config.version, class, origin, slot, &mut own);
        self.timers.saw(at);
        // The wait slot must exist before a decision about it is delivered.
        let admission = match decision {
            None => Admission::Stale,
            Some(Decision::Shed(shed)) => Admission::Shed(at, shed),
            Some(Decision::Release { ticket, node }) => match config.endpoint(node) {
                Some(endpoint) => self.released(at, ticket, endpoint, routed),
                None => {
                    self.observe(ticket, Outcome::Reset);
                    Admission::Stale
                }
            },
            Some(Decision::Wait { ticket }) => Admission::Queued(WaitSlot::enter(self, ticket)),
        };
        self.deliver(own);
        (at, admission)
    }

    /// Returns the admission of a request of `routed` that has waited for `decision`.
    pub(crate) fn decided(self: &Rc<Self>, ticket: Ticket, decision: Decided, routed: Routed) -> Admission {
        match decision {
            (at, Ok(endpoint)) => self.released(at, ticket, endpoint, routed),
            (at, Err(shed)) => Admission::Shed(at, shed),
        }
    }

    fn released(self: &Rc<Self>, at: Time, ticket: Ticket, endpoint: Arc<Endpoint>, routed: Routed) -> Admission {
        Admission::Released(at, Permit::new(self, ticket, ServiceInterval::new(routed, endpoint.id, at)), endpoint)
    }

    /// Counts one more connection of a peer, if its limits allow it. Listed proxies have none. Counts those that are
    /// refused.
    pub(crate) fn place(&self, peer: IpAddr, limited: bool) -> Option<Place> {
        let active_config = self.active_config();
        let limits = &active_config.site.limits;
        let limited = limited && !active_config.site.trusts(peer.to_canonical());
        let key = client::peer_key(peer);
        let Shared { peers, connect_rates, counters, control, .. } = &*self.shared;
        let Some(place) = peers.enter(key, limits.connections_per_source.filter(|_| limited)) else {
            counters.refused_connections.count(peer);
            return None;
        };
        let interval = limits.connect_interval_per_source.filter(|_| limited);
        if interval.is_some_and(|interval| !connect_rates.take(key, interval, control.clock().now())) {
            counters.over_rate_connections.count(peer);
            return None;
        }
        Some(place)
    }

    /// Gives up a waiting request. Returns false if it has already been released.
    pub(crate) fn cancel(&self, ticket: Ticket) -> bool {
        let mut own = self.spare.take();
        let waited = self.shared.control.cancel(self.index, ticket, &mut own);
        self.deliver(own);
        waited
    }

    /// Reports an outcome of a released request.
    pub(crate) fn observe(&self, ticket: Ticket, outcome: Outcome) -> Observed {
        let mut own = self.spare.take();
        let observed = self.shared.control.observe(self.index, ticket, outcome, &mut own);
        self.timers.saw(observed.at);
        self.deliver(own);
        observed
    }

    /// Closes idle connections because the process has no file descriptors left.
    pub(crate) fn make_room(&self) {
        self.pools.clear();
        self.conns.borrow().all().filter_map(|conn| conn.own_pools()).for_each(Pools::clear);
        self.close_idle(AT_ONCE);
    }

    /// Closes connections to nodes that are no longer needed.
    fn sweep(&self, now: Time) {
        let active_config = self.active_config();
        self.pools.sweep(&active_config, now);
        for own in self.conns.borrow().all().filter_map(|conn| conn.own_pools()) {
            own.sweep(&active_config, now);
        }
    }

    /// Closes the client connections that can be spared best, to free capacity for others: see [`Roster::to_spare`].
    pub(crate) fn close_idle(&self, max: usize) {
        let spared = self.conns.borrow().to_spare(max, self.part());
        self.shared.counters.spared_connections.fetch_add(spared.len() as u64, Ordering::Relaxed);
        spared.iter().for_each(|conn| conn.give_way());
    }

    /// Returns the part of each peer: the number of connections that it would have if all had the same number, and at
    /// least one.
    pub(crate) fn part(&self) -> u32 {
        let Shared { connections, peers, .. } = &*self.shared;
        let part = connections.load(Ordering::Relaxed) / peers.keys().max(1) as u64;
        u32::try_from(part).unwrap_or(u32::MAX).max(1)
    }

    /// Whether there are as many client connections as there may be.
    pub(crate) fn is_full(&self) -> bool {
        let Shared { connections, counters, .. } = &*self.shared;
        counters.open.load(Ordering::Relaxed) >= connections.load(Ordering::Relaxed)
    }

    /// Begins to drain, or drains with less patience than before.
    fn begin_drain(&self, idle: Duration) {
        let now = self.shared.control.clock().now();
        let drain = match self.drain.get() {
            Some(drain) => Drain { idle: drain.idle.min(idle), ..drain },
            None => Drain { since: now, idle, deadline: now + self.active_config().site.drain_deadline },
        };
        self.drain.set(Some(drain));
        // A client that speaks HTTP/2 is notified at once, and loses no request.
        let told = self.conns_that(|conn| drain.idle.is_zero() || conn.http2.get());
        told.iter().for_each(|conn| conn.close());
        self.close_drained(now);
    }

    /// Whether the thread drains. The next answer then tells the client that its connection ends. Otherwise the client
    /// could send its next request while the connection is being closed, and lose it.
    pub(crate) fn drains(&self) -> bool {
        self.drain.get().is_some()
    }

    /// During a drain, closes the connections that have been idle for long enough.
    fn close_drained(&self, now: Time) {
        let Some(drain) = self.drain.get() else { return };
        let idle = |since: Time| now.since(since.max(drain.since)) >= drain.idle;
        let drained = self.conns_that(|conn| !conn.is_fresh() && conn.idle_since().is_some_and(idle));
        drained.iter().for_each(|conn| conn.close());
    }

    /// Whether a connection may still need this thread. One that is being dealt out is counted already.
    fn is_needed(&self) -> bool {
        self.shared.counters.open.load(Ordering::Relaxed) > 0 || self.shared.waiting_conns.load(Ordering::Relaxed) > 0
    }

    /// Serves a connection that has been counted.
    pub(crate) fn serve(self: &Rc<Self>, accepted: Accepted) {
        let Accepted { stream, peer, place, named, port, destination } = accepted;
        let task =
            connection::drive(ClientConn::new(self, Ends { client: peer, destination }, (named, port), place), stream);
        // A connection limits its turns itself, in bytes. The runtime's own limit counts calls.
        tokio::task::spawn_local(tokio::task::unconstrained(task));
    }

    fn deliver(&self, mut own: Vec<Delivery>) {
        for delivery in own.drain(..) {
            // A waiter that is gone has already given back its wait slot.
            self.waiting.deliver(delivery);
        }
        self.spare.replace(own);
    }
}

/// Runs a thread to its end.
pub(crate) fn run(
    index: usize,
    shared: Arc<Shared>,
    waker: &Notify,
    ready: &std::sync::mpsc::SyncSender<io::Result<()>>,
) {
    // All tasks of a thread stay on it.
    let runtime = match Builder::new_current_thread().enable_io().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            // The receiver waits for exactly one message from each thread.
            let _ = ready.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        let worker = Worker::new(index, shared);
        match KernelTimer::new().and_then(|first| Ok((first, KernelTimer::new()?))) {
            Ok(timers) => serve(&worker, waker, timers, ready).await,
            Err(error) => drop(ready.send(Err(error))),
        }
    });
    // Dropping the tasks gives back every remaining permit and wait slot.
    drop(runtime);
}

async fn serve(
    worker: &Rc<Worker>,
    waker: &Notify,
    (for_ticks, mut for_engine): (KernelTimer, KernelTimer),
    ready: &std::sync::mpsc::SyncSender<io::Result<()>>,
) {
    let mut listeners = Listeners::default();
    let mut keepers = vec![tokio::task::spawn_local(tick(Rc::clone(worker), for_ticks))];
    if worker.index == 0 {
        let shared = Arc::clone(&worker.shared);
        keepers.push(tokio::task::spawn_local(async move { shared.control.keep_time(&mut for_engine).await }));
    }
    let clock = worker.shared.control.clock();
    let _ = ready.send(Ok(()));
    loop {
        let drain = worker.drain.get();
        let rung = async {
            tokio::select! {
                () = waker.notified() => {}
                () = worker.left.notified(), if drain.is_some() => {}
            }
        };
        match drain {
            None => rung.await,
            Some(drain) => {
                let left = drain.deadline.since(clock.now());
                if left.is_zero() || (!worker.is_needed() && worker.shared.threads.close(worker.index)) {
                    break;
                }
                // The last connection may end on another thread.
                let _ = worker.timers.within(left.min(PAUSE), rung).await;
            }
        }
        let mut own = worker.spare.take();
        worker.shared.control.collect(worker.index, &mut own);
        worker.deliver(own);
        if listeners.obey(worker) == Order::Cut {
            break;
        }
        // Also lets go of a replaced configuration.
        worker.active_config();
    }
    keepers.iter().for_each(JoinHandle::abort);
    worker.pools.clear();
}

/// Turns the timer wheel.
async fn tick(worker: Rc<Worker>, mut timer: KernelTimer) {
    let clock = worker.shared.control.clock();
    let mut ticks = 0;
    timer.repeat(TICK);
    loop {
        timer.next().await;
        let now = clock.now();
        worker.timers.turn(now);
        worker.close_drained(now);
        // A connection that waits for capacity may get it from any thread.
        let waiting_conns = worker.shared.waiting_conns.load(Ordering::Relaxed);
        if waiting_conns > 0 {
            worker.close_idle(waiting_conns.min(AT_ONCE));
        }
        ticks += 1;
        if ticks >= SWEEP {
            ticks = 0;
            worker.date.replace(http_date());
            worker.sweep(now);
            if worker.conns.borrow_mut().has_emptied() {
                // The thread may rest from now on.
                allocator::give_back();
            }
            if worker.index == 0 {
                worker.shared.memory.look();
            }
        }
    }
}

/// Returns the present date in the form of `Date` (RFC 9110 Sec. 5.6.7).
fn http_date() -> String {
    httpdate::fmt_http_date(weirgate_clock::calendar())
}

/// How a thread continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Serve,
    Cut,
}

/// The listeners of one thread.
#[derive(Default)]
struct Listeners {
    open: Vec<(Arc<ListenerName>, JoinHandle<()>)>,
}

impl Listeners {
    /// Carries out the commands for this thread. Returns how the thread continues.
    fn obey(&mut self, worker: &Rc<Worker>) -> Order {
        let mut order = Order::Serve;
        for command in worker.shared.threads.take(worker.index) {
            match command {
                Command::Listen { named, socket, deal } => match Acceptor::new(socket) {
                    Ok(acceptor) => {
                        let accepting = accept(Rc::clone(worker), acceptor, Arc::clone(&named), deal);
                        let task = tokio::task::spawn_local(accepting);
                        self.open.push((named, task));
                    }
                    // The other threads serve this address.
                    Err(_) => drop(worker.shared.counters.accept_pauses.fetch_add(1, Ordering::Relaxed)),
                },
                Command::Serve(accepted) => worker.serve(accepted),
                Command::Close(named) => {
                    self.open.retain(|(open, task)| {
                        if *open == named {
                            task.abort();
                        }
                        *open != named
                    });
                    worker.conns_that(|conn| conn.listener == named).iter().for_each(|conn| conn.close());
                }
                Command::Drain(idle) => {
                    self.close_all();
                    worker.begin_drain(idle);
                }
                Command::Cut => {
                    self.close_all();
                    order = Order::Cut;
                }
            }
        }
        order
    }

    fn close_all(&mut self) {
        for (_, task) in self.open.drain(..) {
            task.abort();
        }
    }
}
