//! The one engine of the process, behind its lock.
//!
//! `docs/adr/0001-one-engine-per-process.md` gives the reasons for one engine and the cost of the lock. The
//! clock is read under the lock, so that time never runs backwards for the engine. Decisions about waiting
//! requests leave through one outbox per thread. The thread that holds the lock takes its own decisions with
//! it. The other threads are woken after the lock is released. Nothing is woken or logged while the lock is
//! held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use weirgate_config::{Site, network_text};
use weirgate_engine::{
    Action, Adopted, Arrival, Beside, ClassId, ClassSnapshot, Decision, Demand, Engine, InvalidPolicy, Learned,
    LearnedClass, Lease, NodeEvent, NodeId, Outcome, Part, Shed, Snapshot, Ticket, Time, WindowUse, Would,
};

use crate::active_config::{ActiveConfig, Endpoint};
use crate::classify::ClassRef;
use crate::client::Source;
use crate::clock::Clock;
use crate::kernel_timer::KernelTimer;
use crate::site;

/// Maximum number of threads. A bit mask with one bit per thread records the threads to wake.
pub(crate) const MAX_THREADS: usize = 128;

/// Number of classes that [`Control::each_class`] copies under the lock at once, which takes some tens of microseconds.
const PAGE: usize = 64;

/// Minimum interval at which the timer polls the engine. A thousand wake-ups a second are precise enough for
/// limits given in milliseconds.
const FINEST: Duration = Duration::from_millis(1);

/// The engine behind its lock.
#[derive(Debug)]
pub struct Control {
    clock: Clock,
    state: Mutex<State>,
    /// The version in force, so that threads can detect an old version without the lock.
    version: AtomicU64,
    /// One waker per thread. It signals that the thread's outbox or command queue is not empty.
    wakers: Vec<Arc<Notify>>,
    /// Wakes the thread that follows the configuration for the sake of the nodes.
    watch: Arc<Notify>,
    /// Signals that the engine must be polled earlier than the timer is set.
    timer: Notify,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    active_config: Arc<ActiveConfig>,
    outboxes: Vec<Vec<Delivery>>,
    /// Time for which the timer is set.
    armed: Time,
    next_endpoint: u64,
    held: Held,
}

/// Time for which the engine's lock is held, measured at one in 16 of its uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Number of uses of the lock.
    pub uses: u64,
    /// Number of measured uses.
    pub measured: u64,
    /// Total time of the measured uses, in nanoseconds.
    pub nanos: u64,
    /// Longest measured time, in nanoseconds.
    pub longest_nanos: u64,
}

impl Held {
    /// Reading the clock takes about 25 ns, a tenth of a use. Sampling one in 16 makes that cost negligible.
    const SAMPLE: u64 = 16;

    fn used(&mut self, since: Time, clock: Clock) {
        self.uses += 1;
        if self.uses.is_multiple_of(Self::SAMPLE) {
            let nanos = u64::try_from(clock.now().since(since).as_nanos()).unwrap_or(u64::MAX);
            self.measured += 1;
            self.nanos += nanos;
            self.longest_nanos = self.longest_nanos.max(nanos);
        }
    }
}

/// Effect of an event on waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// None: the event changed no queue and no slot, as the arrival of a request that is shed. Actions that are due by
    /// time are the timer's.
    None,
    /// The engine may have decisions.
    Decisions,
}

/// The engine's decision about a waiting request.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The waiter's slot in its thread.
    pub(crate) slot: usize,
    /// Distinguishes a waiter from its successor in the same slot.
    pub(crate) ticket: Ticket,
    /// Time of the decision.
    pub(crate) at: Time,
    /// Forward the request to this endpoint, or answer it with a refusal.
    pub(crate) decision: Result<Arc<Endpoint>, Shed>,
}

/// Answer to the outcome of a released request.
pub(crate) struct Observed {
    /// Time of the report.
    pub(crate) at: Time,
    /// The endpoint to try next, after a failure that is to be retried.
    pub(crate) endpoint: Option<Arc<Endpoint>>,
    /// What would have happened to the request, if it passed because its class is observed.
    pub(crate) would: Option<Would>,
}

/// Properties of an arriving request that the engine receives in addition to its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Source of the request.
    pub(crate) source: Source,
    /// Requested resource, as a keyed hash, if the class's pool uses it.
    pub(crate) locality_key: Option<u64>,
    /// Expected cost, if the page table has one.
    pub(crate) demand: Option<Demand>,
}

impl Control {
    pub(crate) fn new(
        clock: Clock,
        site: Site,
        text: &str,
        seed: u64,
        (wakers, watch): (Vec<Arc<Notify>>, Arc<Notify>),
    ) -> Result<Control, InvalidPolicy> {
        let mut next_endpoint = 0;
        let active_config = Arc::new(ActiveConfig::new(site, text, 1, None, &mut next_endpoint));
        let mut engine = Engine::new(clock.now(), active_config.site.policy.clone(), seed)?;
        site::begin(&mut engine, clock.now(), &active_config.site);
        let outboxes = wakers.iter().map(|_| Vec::new()).collect();
        let state = State { engine, active_config, outboxes, armed: Time::ZERO, next_endpoint, held: Held::default() };
        Ok(Control { clock, state: Mutex::new(state), version: AtomicU64::new(1), wakers, watch, timer: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in the engine is a defect. Its state is still the best one available.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock used for the engine.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the version in force.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns a snapshot of the engine as a whole.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        state.engine.snapshot(self.clock.now())
    }

    /// Returns up to `max` live classes with ids from `from` on. Paging keeps the lock from being held for
    /// long.
    pub fn classes(&self, from: ClassId, max: usize) -> Vec<ClassSnapshot> {
        let state = self.lock();
        state.engine.classes(self.clock.now(), from, max)
    }

    /// Returns what was learned about windows and nodes.
    pub(crate) fn learned_windows(&self) -> Learned {
        let state = self.lock();
        state.engine.learned_windows(self.clock.now())
    }

    /// Returns what was learned about up to `max` classes from `from` on, and the id to continue with.
    pub(crate) fn learned_classes(&self, from: ClassId, max: usize) -> (Vec<LearnedClass>, Option<ClassId>) {
        let state = self.lock();
        state.engine.learned_classes(self.clock.now(), from, max)
    }

    /// Takes over what another engine has learned about classes, `age` ago. Returns their number.
    pub(crate) fn adopt_classes(&self, classes: &[LearnedClass], age: Duration) -> usize {
        self.with(None, &mut Vec::new(), |state, now| state.engine.adopt_classes(now, classes, age))
    }

    /// Takes over what another engine has learned about windows and nodes, `age` ago.
    pub(crate) fn adopt_windows(&self, learned: &Learned, age: Duration) -> Adopted {
        self.with(None, &mut Vec::new(), |state, now| state.engine.adopt_windows(now, learned, age))
    }

    /// Adds the arrivals of `classes` that may count for their guarantees, unless the configuration in force is another
    /// one.
    pub(crate) fn asked(
        &self,
        is_right: impl FnOnce(&ActiveConfig) -> bool,
        classes: &[ClassId],
        counts: &mut Vec<u64>,
    ) {
        let state = self.lock();
        if is_right(&state.active_config) {
            counts.extend(classes.iter().map(|class| state.engine.asked(*class)));
        }
    }

    /// Keeps these parts of guaranteed throughputs, unless the configuration in force is another one.
    pub(crate) fn keep_parts(
        &self,
        is_right: impl FnOnce(&ActiveConfig) -> bool,
        lease: Lease,
        parts: &[(ClassId, Part)],
    ) {
        self.with(None, &mut Vec::new(), |state, now| {
            if is_right(&state.active_config) {
                state.engine.keep_parts(now, lease, parts);
            }
        });
    }

    /// Returns the use of the windows, or nothing if the configuration in force is another one.
    pub(crate) fn window_uses(&self, is_right: impl FnOnce(&ActiveConfig) -> bool) -> Vec<WindowUse> {
        let state = self.lock();
        if is_right(&state.active_config) { state.engine.window_uses() } else { Vec::new() }
    }

    /// Takes over what other gateways do at the nodes, unless the configuration in force is another one.
    pub(crate) fn beside(&self, is_right: impl FnOnce(&ActiveConfig) -> bool, until: Time, groups: &[Beside]) {
        self.with(None, &mut Vec::new(), |state, now| {
            if is_right(&state.active_config) {
                state.engine.beside(now, until, groups);
            }
        });
    }

    /// The nodes that the engine has ejected, each as `pool/name`.
    pub(crate) fn ejected(&self) -> Vec<String> {
        self.lock().engine.ejected().map(|[pool, name]| format!("{pool}/{name}")).collect()
    }

    /// Notes which nodes, each as `pool/name`, other gateways have ejected.
    pub(crate) fn ejected_elsewhere(&self, nodes: &[String]) {
        let is_ejected = |[pool, name]: [&str; 2]| {
            nodes.iter().any(|node| node.strip_prefix(pool).and_then(|rest| rest.strip_prefix('/')) == Some(name))
        };
        self.lock().engine.ejected_elsewhere(is_ejected);
    }

    /// Passes every live class to `take`, in the order of their ids. Yields to requests between pages.
    pub(crate) async fn each_class(&self, mut take: impl FnMut(ClassSnapshot)) {
        let mut from = Some(ClassId(0));
        while let Some(first) = from {
            let page = self.classes(first, PAGE);
            // Ids ascend within a page. A page that is not full is the last one.
            from = page.last().filter(|_| page.len() == PAGE).and_then(|last| last.class.0.checked_add(1)).map(ClassId);
            page.into_iter().for_each(&mut take);
            tokio::task::yield_now().await;
        }
    }

    /// Returns the measured times for which the lock is held.
    pub fn held(&self) -> Held {
        self.lock().held
    }

    /// Returns the configuration in force.
    pub fn active_config(&self) -> Arc<ActiveConfig> {
        Arc::clone(&self.lock().active_config)
    }

    /// Reports an event of a node of the configuration in force to the engine.
    pub fn node(&self, event: NodeEvent) {
        self.with(None, &mut Vec::new(), |state, now| state.engine.node(now, event));
    }

    /// Reports an event of the node with the id `endpoint` to the engine. Does nothing if that node no longer
    /// exists.
    pub(crate) fn tell(&self, endpoint: u64, event: impl FnOnce(NodeId) -> NodeEvent) {
        self.with(None, &mut Vec::new(), |state, now| {
            if let Some(node) = state.active_config.node_of(endpoint) {
                state.engine.node(now, event(node));
            }
        });
    }

    /// Reports the arrival on `thread` of a request of class `class`, which was found under version
    /// `version`. Returns no decision if another version is in force: then the request has to be classified
    /// again.
    pub(crate) fn arrive(
        &self,
        thread: usize,
        version: u64,
        class: ClassRef<'_>,
        Origin { source: Source { flow, position }, locality_key, demand }: Origin,
        slot: usize,
        own: &mut Vec<Delivery>,
    ) -> (Time, Option<Decision>) {
        let token = (thread as u64) << 48 | slot as u64;
        // The text of a network is made before the lock is taken.
        let network = match class {
            ClassRef::Network(_, key) => network_text(&key),
            ClassRef::Class(_) | ClassRef::Template(..) => String::new(),
        };
        self.locked(Some(thread), own, |state, now| {
            if state.active_config.version != version {
                return ((now, None), Effect::None);
            }
            let class = match class {
                ClassRef::Class(class) => class,
                ClassRef::Template(template, key) => state.engine.class(now, template, key),
                ClassRef::Network(template, _) => state.engine.class(now, template, network.as_bytes()),
            };
            let decision = state.engine.arrive(now, Arrival { class, flow, demand, locality_key, position, token });
            let effect = if let Decision::Shed(_) = decision { Effect::None } else { Effect::Decisions };
            ((now, Some(decision)), effect)
        })
    }

    /// Gives up a waiting request. Returns false if it has already been released.
    pub(crate) fn cancel(&self, thread: usize, ticket: Ticket, own: &mut Vec<Delivery>) -> bool {
        self.with(Some(thread), own, |state, now| state.engine.cancel(now, ticket))
    }

    /// Reports an outcome of a released request.
    pub(crate) fn observe(&self, thread: usize, ticket: Ticket, outcome: Outcome, own: &mut Vec<Delivery>) -> Observed {
        self.with(Some(thread), own, |state, now| {
            // The ticket may be stale afterwards.
            let would = state.engine.would(ticket);
            let node = state.engine.observe(now, ticket, outcome);
            let endpoint = node.and_then(|node| state.active_config.endpoint(node));
            if node.is_some() && endpoint.is_none() {
                state.engine.observe(now, ticket, Outcome::Reset);
            }
            Observed { at: now, endpoint, would }
        })
    }

    /// Moves the contents of the outbox of `thread` to `own`.
    pub(crate) fn collect(&self, thread: usize, own: &mut Vec<Delivery>) {
        let mut state = self.lock();
        if let Some(outbox) = state.outboxes.get_mut(thread) {
            own.append(outbox);
        }
    }

    /// Puts `site` in force.
    pub(crate) fn replace(&self, site: Site, text: &str) -> Result<Arc<ActiveConfig>, InvalidPolicy> {
        site.policy.validate()?;
        let (before, mut next_endpoint) = {
            let state = self.lock();
            (Arc::clone(&state.active_config), state.next_endpoint)
        };
        // Compiling rules takes a while, so it is not done under the lock. Reloads are done one at a time.
        let next = Arc::new(ActiveConfig::new(site, text, before.version + 1, Some(&before), &mut next_endpoint));
        self.put(next, next_endpoint)
    }

    /// Puts `site` in force, which differs from that of `before` in its nodes alone. No reload may run meanwhile.
    pub(crate) fn replace_nodes(&self, before: &ActiveConfig, site: Site) -> Result<Arc<ActiveConfig>, InvalidPolicy> {
        site.policy.validate()?;
        let mut next_endpoint = self.lock().next_endpoint;
        let next = Arc::new(before.with_nodes(site, &mut next_endpoint));
        self.put(next, next_endpoint)
    }

    /// Puts a configuration in force.
    fn put(&self, next: Arc<ActiveConfig>, next_endpoint: u64) -> Result<Arc<ActiveConfig>, InvalidPolicy> {
        let policy = next.site.policy.clone();
        self.with(None, &mut Vec::new(), |state, now| {
            state.engine.reconfigure(now, policy)?;
            site::begin(&mut state.engine, now, &next.site);
            state.active_config = Arc::clone(&next);
            state.next_endpoint = next_endpoint;
            self.version.store(next.version, Ordering::Release);
            Ok(())
        })?;
        for waker in self.wakers.iter().chain([&self.watch]) {
            waker.notify_one();
        }
        Ok(next)
    }

    /// Runs `work` on the engine, carries out the engine's actions, and wakes the threads with new decisions.
    /// Decisions for `thread` are added to `own`.
    fn with<T>(&self, thread: Option<usize>, own: &mut Vec<Delivery>, work: impl FnOnce(&mut State, Time) -> T) -> T {
        self.locked(thread, own, |state, now| (work(state, now), Effect::Decisions))
    }

    /// Does the same, and asks for the engine's actions only if `work` may have led to some.
    fn locked<T>(
        &self,
        thread: Option<usize>,
        own: &mut Vec<Delivery>,
        work: impl FnOnce(&mut State, Time) -> (T, Effect),
    ) -> T {
        let mut concerned = 0u128;
        let mut earlier = false;
        let answer = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let now = self.clock.now();
            let (answer, effect) = work(state, now);
            if effect == Effect::Decisions {
                state.settle(now, thread, own, &mut concerned);
            }
            if let Some(next) = state.engine.next_timeout()
                && next + FINEST < state.armed
            {
                state.armed = next;
                earlier = true;
            }
            state.held.used(now, self.clock);
            answer
        };
        self.ring(concerned);
        if earlier {
            self.timer.notify_one();
        }
        answer
    }

    fn ring(&self, mut concerned: u128) {
        while concerned != 0 {
            let thread = concerned.trailing_zeros() as usize;
            concerned &= concerned - 1;
            if let Some(waker) = self.wakers.get(thread) {
                waker.notify_one();
            }
        }
    }

    /// Polls the engine whenever it is due. Never returns. Exactly one thread runs it.
    pub(crate) async fn keep_time(&self, timer: &mut KernelTimer) {
        loop {
            let wait = {
                let mut concerned = 0;
                let wait = {
                    let mut guard = self.lock();
                    let now = self.clock.now();
                    guard.settle(now, None, &mut Vec::new(), &mut concerned);
                    guard.armed = guard.engine.next_timeout().unwrap_or(Time::NEVER);
                    guard.armed.since(now)
                };
                self.ring(concerned);
                wait.max(FINEST)
            };
            tokio::select! {
                () = timer.sleep(wait) => {}
                () = self.timer.notified() => {}
            }
        }
    }
}

impl State {
    /// Carries out the engine's actions: decisions for `thread` go to `own`, the others to the outboxes.
    fn settle(&mut self, now: Time, thread: Option<usize>, own: &mut Vec<Delivery>, concerned: &mut u128) {
        while let Some(action) = self.engine.poll(now) {
            let (ticket, token, decision) = match action {
                Action::Release { ticket, token, node, .. } => match self.active_config.endpoint(node) {
                    Some(endpoint) => (ticket, token, Ok(endpoint)),
                    None => {
                        self.engine.observe(now, ticket, Outcome::Reset);
                        continue;
                    }
                },
                Action::Shed { ticket, token, shed, .. } => (ticket, token, Err(shed)),
            };
            let to = (token >> 48) as usize;
            let slot = (token & 0xffff_ffff_ffff) as usize;
            let delivery = Delivery { slot, ticket, at: now, decision };
            if Some(to) == thread {
                own.push(delivery);
            } else if let Some(outbox) = self.outboxes.get_mut(to) {
                outbox.push(delivery);
                *concerned |= 1 << to;
            }
        }
    }
}
