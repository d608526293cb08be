//! The gateway as a whole: its threads, its phases, and its interface for the admin plane.

use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use tokio::sync::Notify;
use weirgate_acme::Acme;
use weirgate_config::{ListenerName, Site};
use weirgate_listening::{Address, Socket};
use weirgate_log::Level;
use weirgate_tls::{LiveTrust, Role};

use crate::active_config::{ActiveConfig, Endpoint, ReloadError, ReloadSource};
use crate::allocator;
use crate::clock::Clock;
use crate::collector::Reports;
use crate::config_thread::{ConfigThread, copied};
use crate::connect_rate::ConnectRates;
use crate::control::{Control, MAX_THREADS};
use crate::counters::Counters;
use crate::discovery::Discovery;
use crate::events::Events;
use crate::learned::Learning;
use crate::listener::{self, Opened};
use crate::memory::Memory;
use crate::pages::Pages;
use crate::places::{ClassPlaces, Places};
use crate::record::{AccessRecord, Observer};
use crate::site::{self, Membership};
use crate::threads::{Command, Threads};
use crate::tls_files::{self, TlsFiles};
use crate::{watch_thread, worker};

/// A running gateway. Clones refer to the same gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
}

/// State shared by all threads.
pub(crate) struct Shared {
    pub(crate) control: Control,
    pub(crate) counters: Counters,
    /// Reports of the nodes' collectors.
    pub(crate) reports: Reports,
    /// Costs of requests.
    pub(crate) pages: Pages,
    pub(crate) learning: Learning,
    /// Its part in the site.
    pub(crate) membership: Membership,
    /// Hasher with the same key on all threads, so that a client is the same flow on each of them.
    pub(crate) hasher: RandomState,
    /// Memory limit of the process, and the present pressure.
    pub(crate) memory: Memory,
    /// Maximum number of open client connections: the policy's, or fewer if file descriptors are scarce.
    pub(crate) connections: AtomicU64,
    /// Number of accepted connections that wait because that maximum is reached.
    pub(crate) waiting_conns: AtomicUsize,
    /// Certificates of listeners, and authorities for nodes.
    pub(crate) tls: TlsFiles,
    /// Certificates that an authority issues.
    pub(crate) acme: Acme,
    /// The trust of the site, as it was named at the start.
    pub(crate) trust: Option<Arc<LiveTrust>>,
    /// Open connections per peer.
    pub(crate) peers: Places,
    /// Rates of new connections per peer.
    pub(crate) connect_rates: ConnectRates,
    /// Responses without a slot that wait for slow clients, by the id of the node.
    pub(crate) stalled: Places,
    /// Tunnels.
    pub(crate) tunnels: ClassPlaces,
    pub(crate) long_responses: ClassPlaces,
    observers: Vec<Box<dyn Observer>>,
    pub(crate) tap: crate::tap::Tap,
    /// Commands to the threads.
    pub(crate) threads: Threads,
    phase: AtomicU8,
    /// Open listeners.
    pub(crate) listeners: Mutex<Vec<Opened>>,
    pub(crate) source: ReloadSource,
    /// Held while the listeners or the phase may change.
    pub(crate) reloading: Mutex<()>,
    /// Whether another process is about to take over.
    pub(crate) handing_over: AtomicBool,
    /// Whether another process has taken over.
    pub(crate) handed_over: AtomicBool,
    pub(crate) handles: Mutex<Vec<JoinHandle<()>>>,
    /// Sources of nodes.
    pub(crate) discovery: Discovery,
    /// The latest changes that an operator acts on.
    pub(crate) events: Events,
    pub(crate) config_thread: ConfigThread,
    running: AtomicUsize,
    /// Wakes the thread of `watch_thread`, after a change of the configuration and at the end.
    pub(crate) watch: Arc<Notify>,
    ended: Notify,
}

weirgate_engine::named! {
    /// Phase in the life of a gateway.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Phase {
        /// Its threads are starting.
        Starting = "starting",
        /// It serves requests.
        Ready = "ready",
        /// It accepts nothing new and finishes the requests in flight.
        Draining = "draining",
        /// Its threads have ended.
        Stopped = "stopped",
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("counters", &self.counters).field("source", &self.source).finish_non_exhaustive()
    }
}

/// Locks `mutex`, even after a panic. These locks protect plain data, which stays usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Tells the observers about a finished request.
    pub(crate) fn observe(&self, record: &AccessRecord<'_>) {
        for observer in &self.observers {
            observer.observe(record);
        }
        self.tap.observe(record);
    }

    pub(crate) fn phase(&self) -> Phase {
        let phases = [Phase::Starting, Phase::Ready, Phase::Draining];
        let phase = self.phase.load(Ordering::Acquire);
        phases.into_iter().find(|known| *known as u8 == phase).unwrap_or(Phase::Stopped)
    }

    /// Gives the threads the sockets of each address.
    fn hand_out(&self, opened: Vec<Opened>) {
        let threads = self.threads.count();
        for (nth, mut one) in opened.into_iter().enumerate() {
            let deal = one.accepting.len() < threads;
            for (index, socket) in std::mem::take(&mut one.accepting).into_iter().enumerate() {
                // Every socket gets a thread, because connections wait in its queue. Where there are few sockets,
                // different threads accept for different addresses.
                let index = if deal { index + nth } else { index } % threads;
                self.threads.tell(index, Command::Listen { named: Arc::clone(&one.named), socket, deal });
            }
            lock(&self.listeners).push(one);
        }
    }

    /// Makes all threads drain. A connection is closed when it has been idle for `idle`.
    pub(crate) fn drain(&self, idle: Duration) {
        self.end_with(|| Command::Drain(idle));
    }

    fn end_with(&self, command: impl Fn() -> Command) {
        // The phase only moves forward, so a stopped gateway stays stopped.
        self.phase.fetch_max(Phase::Draining as u8, Ordering::AcqRel);
        self.threads.tell_all(command);
        self.discovery.changed.notify_one();
        self.membership.changed.notify_one();
        self.acme.wake();
        lock(&self.listeners).clear();
    }
}

impl Gateway {
    /// Opens the listeners of `site`, starts the threads, and serves. `text` is the policy file as read, for its
    /// checksum. `observers` are told about every finished request.
    ///
    /// # Errors
    /// A listener cannot be opened, the policy is not valid, or a thread cannot be started.
    pub fn start(
        site: Site,
        text: &str,
        source: ReloadSource,
        observers: Vec<Box<dyn Observer>>,
    ) -> io::Result<Gateway> {
        let gateway = Gateway::prepare(site, text, source, observers, |_| Vec::new())?;
        gateway.serve();
        Ok(gateway)
    }

    /// Does the same up to the point where connections are accepted. For each listener of the policy, `inherited`
    /// returns the sockets that another process has opened for it. Listeners without any are opened. Clients can
    /// connect when this returns, and wait until [`Gateway::serve`].
    ///
    /// # Errors
    /// As for [`Gateway::start`].
    pub fn prepare(
        site: Site,
        text: &str,
        source: ReloadSource,
        observers: Vec<Box<dyn Observer>>,
        mut inherited: impl FnMut(&ListenerName) -> Vec<Socket>,
    ) -> io::Result<Gateway> {
        let count = site.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let count = count.clamp(1, MAX_THREADS);
        let listeners = site.listeners.iter().map(|one| match inherited(&one.name) {
            sockets if sockets.is_empty() => listener::open(one, count),
            sockets => listener::adopt(one, sockets),
        });
        let opened = listeners.collect::<io::Result<Vec<_>>>()?;
        let tls = TlsFiles::default();
        let loaded = tls.load(&site).map_err(|faults| io::Error::new(io::ErrorKind::InvalidInput, faults))?;
        tls.set(loaded);
        let trust = site.trust.as_deref().map(|folder| LiveTrust::load(folder, &[Role::Gateway], None)).transpose();
        let trust = trust.map_err(|faults| io::Error::new(io::ErrorKind::InvalidInput, faults))?.map(Arc::new);
        let memory = Memory::new(&site.limits);
        let connections = listener::max_connections(&site, count);
        let wakers: Vec<_> = (0..count).map(|_| Arc::new(Notify::new())).collect();
        let watch = Arc::new(Notify::new());
        let config_thread = ConfigThread::start(allocator::give_back);
        let control = {
            let (site, text, wakers) = (Arc::new(site), text.to_owned(), (wakers.clone(), Arc::clone(&watch)));
            config_thread
                .run(move || Control::new(Clock::start(), Site::clone(&site), &text, weirgate_clock::seed(), wakers))
        };
        let control = control.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        let shared = Arc::new(Shared {
            pages: Pages::new(&control.active_config()),
            control,
            counters: Counters::default(),
            reports: Reports::default(),
            learning: Learning::default(),
            membership: Membership::default(),
            hasher: weirgate_clock::keyed_hasher(),
            memory,
            connections: AtomicU64::new(connections),
            waiting_conns: AtomicUsize::new(0),
            tls,
            acme: Acme::default(),
            trust,
            peers: Places::default(),
            connect_rates: ConnectRates::default(),
            stalled: Places::default(),
            tunnels: ClassPlaces::default(),
            long_responses: ClassPlaces::default(),
            observers,
            tap: crate::tap::Tap::default(),
            threads: Threads::new(wakers),
            phase: AtomicU8::new(Phase::Starting as u8),
            listeners: Mutex::new(opened),
            source,
            reloading: Mutex::default(),
            handing_over: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            handles: Mutex::default(),
            discovery: Discovery::default(),
            events: Events::default(),
            config_thread,
            running: AtomicUsize::new(count),
            watch,
            ended: Notify::new(),
        });
        let gateway = Gateway { shared };
        let started = gateway.start_threads(count).and_then(|()| watch_thread::start(&gateway));
        let started = started.and_then(|()| gateway.follow_sources()).and_then(|()| site::follow(&gateway));
        if let Err(error) = started.and_then(|()| gateway.follow_authority()) {
            gateway.cut();
            gateway.join();
            return Err(error);
        }
        gateway.wait_for_sources();
        Ok(gateway)
    }

    /// Accepts connections from now on, unless the gateway does so already or was told to stop.
    pub fn serve(&self) {
        let _not_during_a_drain = lock(&self.shared.reloading);
        let (starting, ready) = (Phase::Starting as u8, Phase::Ready as u8);
        if self.shared.phase.compare_exchange(starting, ready, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let mut opened = std::mem::take(&mut *lock(&self.shared.listeners));
            let lines = listener::take_over(&mut opened, &self.active_config().site);
            weirgate_log::say(Level::Warning, &lines);
            self.shared.hand_out(opened);
            self.shared.membership.changed.notify_one();
        }
    }

    fn start_threads(&self, count: usize) -> io::Result<()> {
        let (ready, readies) = sync_channel(count);
        for index in 0..count {
            let shared = Arc::clone(&self.shared);
            let ready = ready.clone();
            let waker = self.shared.threads.waker(index);
            let run = move || {
                let finish = Finish(Arc::clone(&shared));
                worker::run(index, shared, &waker, &ready);
                drop(finish);
            };
            let thread = std::thread::Builder::new().name(format!("weirgate-{index}")).spawn(run)?;
            lock(&self.shared.handles).push(thread);
        }
        drop(ready);
        for _ in 0..count {
            readies.recv().map_err(|_| io::Error::other("a thread ended before it served"))??;
        }
        Ok(())
    }

    /// Returns the engine, for snapshots and node events.
    pub fn control(&self) -> &Control {
        &self.shared.control
    }

    /// Returns the configuration in force.
    pub fn active_config(&self) -> Arc<ActiveConfig> {
        self.shared.control.active_config()
    }

    /// Returns the TCP addresses that clients can connect to now, with the actual port where port 0 was
    /// configured.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        lock(&self.shared.listeners).iter().filter_map(|opened| opened.bound.tcp()).collect()
    }

    /// Returns all addresses that clients can connect to now, each with whether connections to it are encrypted.
    pub fn listeners(&self) -> Vec<(Address, bool)> {
        let is_encrypted = |opened: &Opened| self.shared.tls.listeners.of(&opened.named).is_some();
        lock(&self.shared.listeners).iter().map(|opened| (opened.bound.clone(), is_encrypted(opened))).collect()
    }

    /// Returns the limit of the process's memory in bytes, if there is one.
    pub fn memory_limit(&self) -> Option<u64> {
        self.shared.memory.bound()
    }

    /// Returns the maximum number of open client connections: `limits.connections`, or fewer if the process
    /// has too few file descriptors (`ulimit -n`). Each connection needs one and its connection to a node
    /// another one, and a few are reserved.
    pub fn connection_limit(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the phase of the gateway.
    pub fn phase(&self) -> Phase {
        self.shared.phase()
    }

    /// Returns the counters and gauges.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Returns the number of responses without a slot that wait for slow clients now.
    pub fn stalled_responses(&self) -> u64 {
        self.shared.stalled.taken()
    }

    /// Returns the tunnels that are open, or that requests under way ask for.
    pub fn tunnels(&self) -> &ClassPlaces {
        &self.shared.tunnels
    }

    /// Returns the responses that have given their slot back as `long_responses` of their class.
    pub fn long_responses(&self) -> &ClassPlaces {
        &self.shared.long_responses
    }

    /// Checks the files of certificates, as the gateway does every ten seconds. Changed files are put in force when two
    /// checks have found the same ones. Blocks while files are read.
    pub fn look_at_certificates(&self) {
        tls_files::look(&self.shared);
    }

    /// Returns the trust of the site. `None` if the policy names none.
    pub fn trust(&self) -> Option<Arc<LiveTrust>> {
        self.shared.trust.clone()
    }

    /// Returns the number of upstreams without a usable node, and whether no upstream has one. As of the last second.
    pub(crate) fn unusable_upstreams(&self) -> (usize, bool) {
        self.shared.events.unusable()
    }

    /// Returns the state of the nodes' collectors, by the names of pool and node. Nodes without a collector
    /// are left out.
    pub fn collectors(&self) -> std::collections::BTreeMap<(String, String), weirgate_wire::admin::Collector> {
        let (active_config, now) = (self.active_config(), self.shared.control.clock().now());
        let of = |t: &Arc<Endpoint>| Some(((t.pool.clone(), t.name.clone()), self.shared.reports.of(t.id, now)?));
        active_config.nodes.iter().filter_map(of).collect()
    }

    /// Returns the state of the sources that name nodes, by upstream.
    pub fn discovery(&self) -> Vec<weirgate_wire::admin::Discovery> {
        self.shared.discovery.view(self.shared.control.clock().now())
    }

    /// Returns the events after number `after`, and the latest refusals.
    pub fn events(&self, after: u64) -> weirgate_wire::admin::Events {
        self.shared.events.since(after, self.shared.control.clock().now())
    }

    /// Returns the state of the certificates that an authority issues.
    pub fn acme(&self) -> Vec<weirgate_wire::admin::AcmeCertificate> {
        self.shared.acme.view()
    }

    /// Orders the certificates of the configuration in force. No reload may run meanwhile.
    fn follow_authority(&self) -> io::Result<()> {
        let shared = &self.shared;
        if shared.acme.follow(shared.control.active_config().site.acme.as_ref()) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let gateway = self.clone();
            let run = move || {
                let ended = || !matches!(gateway.phase(), Phase::Starting | Phase::Ready);
                // The second check finds the same files as the first one, and puts them in force.
                let issued = || (0..2).for_each(|_| gateway.look_at_certificates());
                runtime.block_on(gateway.shared.acme.run(ended, issued));
                // A name server that does not answer must not keep the process from ending.
                runtime.shutdown_background();
            };
            let thread = std::thread::Builder::new().name("weirgate-acme".to_owned()).spawn(run)?;
            lock(&shared.handles).push(thread);
        }
        Ok(())
    }

    /// Reads the policy file again, puts it in force and returns the new configuration. Blocks while the file
    /// is read and checked. Listeners that stay are not touched. The number of threads, the admin listener
    /// and the access log stay as they were at the start.
    ///
    /// # Errors
    /// All errors in the policy. The old policy stays in force.
    pub fn reload(&self) -> Result<Arc<ActiveConfig>, ReloadError> {
        let gateway = self.clone();
        let reload = move || {
            let ReloadSource::File { path, resolve } = &gateway.shared.source else {
                return Err(ReloadError::NoSource);
            };
            let name = path.display().to_string();
            let (site, text) = copied(|| {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| ReloadError::Unreadable(format!("{name}: {error}")))?;
                Ok((resolve(&name, &text).map_err(ReloadError::Invalid)?, text))
            })?;
            gateway.replace(site, &text)
        };
        self.count(self.shared.config_thread.run(reload))
    }

    /// Puts `site` in force. `text` is the text that it was made from.
    ///
    /// # Errors
    /// See [`Gateway::reload`].
    pub fn reload_site(&self, site: Site, text: &str) -> Result<Arc<ActiveConfig>, ReloadError> {
        let (gateway, text) = (self.clone(), text.to_owned());
        self.count(self.shared.config_thread.run(move || gateway.replace(site, &text)))
    }

    fn count(&self, result: Result<Arc<ActiveConfig>, ReloadError>) -> Result<Arc<ActiveConfig>, ReloadError> {
        let counters = &self.shared.counters;
        let counter = if result.is_ok() { &counters.reloads } else { &counters.reload_failures };
        counter.fetch_add(1, Ordering::Relaxed);
        result
    }

    fn replace(&self, mut site: Site, text: &str) -> Result<Arc<ActiveConfig>, ReloadError> {
        let shared = &self.shared;
        let _one_at_a_time = lock(&shared.reloading);
        if self.phase() != Phase::Ready {
            return Err(ReloadError::Draining);
        }
        if shared.handing_over.load(Ordering::Acquire) {
            return Err(ReloadError::HandingOver);
        }
        let wanted: Vec<_> = site.listeners.iter().map(|listener| listener.name.clone()).collect();
        let known: Vec<_> = lock(&shared.listeners).iter().map(|opened| Arc::clone(&opened.named)).collect();
        let count = shared.threads.count();
        let new = site.listeners.iter().filter(|listener| known.iter().all(|known| **known != listener.name));
        let opened = new.map(|listener| listener::open(listener, count)).collect::<io::Result<Vec<_>>>();
        let opened = opened.map_err(|error| ReloadError::Listen(error.to_string()))?;
        let tls = shared.tls.load(&site).map_err(ReloadError::Invalid)?;
        let missing = listener::follow(&lock(&shared.listeners), &site);
        let missing = missing.map_err(|error| ReloadError::Listen(error.to_string()))?;
        let limits = site.limits;
        let connections = listener::max_connections(&site, count);
        shared.discovery.fill(&mut site, &shared.control.active_config().site);
        let active_config =
            shared.control.replace(site, text).map_err(|error| ReloadError::Invalid(error.to_string()))?;
        shared.pages.follow(&active_config);
        let followed = self.follow_sources().and_then(|()| site::follow(self));
        followed.map_err(|error| ReloadError::Listen(error.to_string()))?;
        shared.memory.set(&limits);
        shared.connections.store(connections, Ordering::Relaxed);
        shared.tls.set(tls);
        self.follow_authority().map_err(|error| ReloadError::Listen(error.to_string()))?;
        shared.hand_out(opened);
        for gone in known.into_iter().filter(|known| !wanted.contains(known)) {
            lock(&shared.listeners).retain(|opened| opened.named != gone);
            shared.threads.tell_all(|| Command::Close(Arc::clone(&gone)));
        }
        weirgate_log::say(Level::Warning, &missing);
        Ok(active_config)
    }

    /// Stops accepting, finishes the requests in flight within the drain deadline, and ends the threads.
    /// Returns at once. See [`Gateway::join`].
    pub fn drain(&self) {
        let _not_during_a_reload = lock(&self.shared.reloading);
        self.shared.drain(Duration::ZERO);
    }

    /// Ends at once and aborts the requests in flight.
    pub fn cut(&self) {
        self.shared.end_with(|| Command::Cut);
    }

    /// Waits until the threads have ended.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *lock(&self.shared.handles));
        for thread in threads {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
    }

    /// Resolves when the threads have ended.
    pub(crate) async fn ended(&self) {
        while self.phase() != Phase::Stopped {
            self.shared.ended.notified().await;
        }
    }
}

/// Records the end of a thread, however it ends.
struct Finish(Arc<Shared>);

impl Drop for Finish {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.phase.store(Phase::Stopped as u8, Ordering::Release);
            self.0.watch.notify_one();
            self.0.ended.notify_one();
        }
    }
}
