//! The one engine of the process, behind its lock.
//!
//! Why one engine, and what the lock costs: `docs/adr/0001-one-engine-per-process.md`. Time is read
//! under the lock, so that it never runs backwards for the engine. What the engine decides about waiting
//! requests leaves through one outbox per thread: the thread that holds the lock takes its own along, the
//! others are woken after the lock is released. Nothing wakes or logs inside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use weirgate_config::Site;
use weirgate_engine::{
    Action, Arrival, ClassId, ClassSnapshot, Demand, Engine, ImpossibleLimit, InvalidPolicy, NodeEvent, NodeId,
    Outcome, Shed, Snapshot, Ticket, Time, Verdict,
};

use crate::classify::ClassRef;
use crate::clock::Clock;
use crate::edition::{Edition, Target};

/// Most threads: one bit each says whom to wake.
pub(crate) const MAX_THREADS: usize = 128;

/// How exactly the engine is polled on time. Waking a thousand times a second is enough for limits that
/// people write in milliseconds.
const FINEST: Duration = Duration::from_millis(1);

/// The engine behind its lock.
#[derive(Debug)]
pub struct Control {
    clock: Clock,
    state: Mutex<State>,
    /// The version in force, so that threads need no lock to see that theirs is old.
    version: AtomicU64,
    /// One per thread: something is in its outbox (or in its mailbox).
    bells: Vec<Arc<Notify>>,
    /// The engine must be polled earlier than its timer thinks.
    timer: Notify,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    edition: Arc<Edition>,
    outboxes: Vec<Vec<Delivery>>,
    /// When the timer will poll.
    armed: Time,
    next_target: u64,
    held: Held,
}

/// How long the engine's lock is held, measured at one in 16 of its uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Uses of the lock.
    pub uses: u64,
    /// Uses that were measured.
    pub measured: u64,
    /// Nanoseconds of the measured ones together.
    pub nanos: u64,
    /// Nanoseconds of the longest one.
    pub longest_nanos: u64,
}

impl Held {
    /// A look at the clock costs some 25 ns, a tenth of a use: one in 16 makes that unmeasurable.
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

/// What the engine decided about a waiting request.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Which waiter of the thread.
    pub(crate) slot: usize,
    /// To tell a waiter from its successor in the same slot.
    pub(crate) ticket: Ticket,
    /// When it was decided.
    pub(crate) at: Time,
    /// What.
    pub(crate) decision: Decision,
}

/// Release or shed.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Forward it there.
    Release(Arc<Target>),
    /// Turn it away.
    Shed(Shed),
}

/// What the engine is told of an arrival beside its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Whom it comes from, as a keyed hash.
    pub(crate) flow: u64,
    /// What it asks for, as a keyed hash, if that matters.
    pub(crate) target: Option<u64>,
    /// What it costs, if a table says so.
    pub(crate) demand: Option<Demand>,
}

/// The answer to an arrival.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// Forward it there now.
    Release(Ticket, Arc<Target>),
    /// It waits.
    Wait(Ticket),
    /// Turn it away.
    Shed(Shed),
    /// The site was replaced since the request was classified: classify again.
    Stale,
}

impl Control {
    pub(crate) fn new(
        clock: Clock,
        site: Site,
        text: &str,
        seed: u64,
        bells: Vec<Arc<Notify>>,
    ) -> Result<Control, InvalidPolicy> {
        let mut next_target = 0;
        let edition = Arc::new(Edition::new(site, text, 1, None, &mut next_target));
        let engine = Engine::new(clock.now(), edition.site.policy.clone(), seed)?;
        let outboxes = bells.iter().map(|_| Vec::new()).collect();
        let state = State { engine, edition, outboxes, armed: Time::ZERO, next_target, held: Held::default() };
        Ok(Control { clock, state: Mutex::new(state), version: AtomicU64::new(1), bells, timer: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside the engine is a defect; the state behind it is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock that the engine is told.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The version in force.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The engine as a whole.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        state.engine.snapshot(self.clock.now())
    }

    /// Up to `most` live classes with ids from `from` on: a page, so that the lock is never held long.
    #[must_use]
    pub fn classes(&self, from: ClassId, most: usize) -> Vec<ClassSnapshot> {
        let state = self.lock();
        state.engine.classes(self.clock.now(), from, most)
    }

    /// Limits that nothing can keep, among `most` classes with ids from `from` on, and where the next page begins.
    pub(crate) fn impossible_limits(&self, from: ClassId, most: u32) -> (Vec<ImpossibleLimit>, Option<ClassId>) {
        self.lock().engine.impossible_limits(from, most)
    }

    /// How long the lock is held.
    #[must_use]
    pub fn held(&self) -> Held {
        self.lock().held
    }

    /// The site in force.
    #[must_use]
    pub fn edition(&self) -> Arc<Edition> {
        Arc::clone(&self.lock().edition)
    }

    /// Tells the engine about a node of the site in force.
    pub fn node(&self, event: NodeEvent) {
        self.with(None, &mut Vec::new(), |state, now| state.engine.node(now, event));
    }

    /// Tells the engine what was learned about a node; one that is gone is none.
    pub(crate) fn tell(&self, target: u64, event: impl FnOnce(NodeId) -> NodeEvent) {
        self.with(None, &mut Vec::new(), |state, now| {
            let found = state.edition.nodes.iter().position(|t| t.id == target);
            if let Some(node) = found.and_then(|index| u32::try_from(index).ok()).map(NodeId) {
                state.engine.node(now, event(node));
            }
        });
    }

    /// A request of class `class`, found under version `version`, is at the door of `thread`.
    pub(crate) fn arrive(
        &self,
        thread: usize,
        version: u64,
        class: ClassRef<'_>,
        Origin { flow, target, demand }: Origin,
        slot: usize,
        own: &mut Vec<Delivery>,
    ) -> (Time, Arrived) {
        let tag = (thread as u64) << 48 | slot as u64;
        self.with(Some(thread), own, |state, now| {
            if state.edition.version != version {
                return (now, Arrived::Stale);
            }
            let class = match class {
                ClassRef::Class(class) => class,
                ClassRef::Template(template, key) => state.engine.class(now, template, key),
            };
            let arrived = match state.engine.arrive(now, Arrival { class, flow, demand, target, tag }) {
                Verdict::Release { ticket, node } => match state.target(node) {
                    Some(target) => Arrived::Release(ticket, target),
                    None => {
                        state.engine.observe(now, ticket, Outcome::Reset);
                        Arrived::Stale
                    }
                },
                Verdict::Wait { ticket } => Arrived::Wait(ticket),
                Verdict::Shed(shed) => Arrived::Shed(shed),
            };
            (now, arrived)
        })
    }

    /// A waiting request is given up. False if it had been released already.
    pub(crate) fn cancel(&self, thread: usize, ticket: Ticket, own: &mut Vec<Delivery>) -> bool {
        self.with(Some(thread), own, |state, now| state.engine.cancel(now, ticket))
    }

    /// Something happened to a released request. A node answers a failure that is to be tried again there.
    pub(crate) fn observe(
        &self,
        thread: usize,
        ticket: Ticket,
        outcome: Outcome,
        own: &mut Vec<Delivery>,
    ) -> (Time, Option<Arc<Target>>) {
        self.with(Some(thread), own, |state, now| {
            let node = state.engine.observe(now, ticket, outcome);
            let target = node.and_then(|node| state.target(node));
            if node.is_some() && target.is_none() {
                state.engine.observe(now, ticket, Outcome::Reset);
            }
            (now, target)
        })
    }

    /// Takes what lies in the outbox of `thread`.
    pub(crate) fn collect(&self, thread: usize, own: &mut Vec<Delivery>) {
        let mut state = self.lock();
        if let Some(outbox) = state.outboxes.get_mut(thread) {
            own.append(outbox);
        }
    }

    /// Puts `site` in force.
    pub(crate) fn replace(&self, site: Site, text: &str) -> Result<Arc<Edition>, InvalidPolicy> {
        site.policy.validate()?;
        let (before, mut next_target) = {
            let state = self.lock();
            (Arc::clone(&state.edition), state.next_target)
        };
        // Compiling rules takes a while: not under the lock. Reloads come one at a time.
        let next = Arc::new(Edition::new(site, text, before.version + 1, Some(&before), &mut next_target));
        let policy = next.site.policy.clone();
        self.with(None, &mut Vec::new(), |state, now| {
            state.engine.reconfigure(now, policy)?;
            state.edition = Arc::clone(&next);
            state.next_target = next_target;
            self.version.store(next.version, Ordering::Release);
            Ok(())
        })?;
        for bell in &self.bells {
            bell.notify_one();
        }
        Ok(next)
    }

    /// Runs `work` on the engine, does what the engine wants done, and wakes whom it concerns. What concerns
    /// `thread` is added to `own`.
    fn with<T>(&self, thread: Option<usize>, own: &mut Vec<Delivery>, work: impl FnOnce(&mut State, Time) -> T) -> T {
        let mut concerned = 0u128;
        let mut earlier = false;
        let answer = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let now = self.clock.now();
            let answer = work(state, now);
            state.settle(now, thread, own, &mut concerned);
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
            if let Some(bell) = self.bells.get(thread) {
                bell.notify_one();
            }
        }
    }

    /// Polls the engine whenever its time has come; never ends. One thread runs it.
    pub(crate) async fn keep_time(&self) {
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
            // The far future is the bound of the runtime's timer.
            let _ = Clock::within(wait.min(Duration::from_secs(3600)), self.timer.notified()).await;
        }
    }
}

impl State {
    fn target(&self, node: NodeId) -> Option<Arc<Target>> {
        self.edition.nodes.get(node.0 as usize).cloned()
    }

    /// Does what the engine wants done: into `own` for `thread`, into outboxes for the others.
    fn settle(&mut self, now: Time, thread: Option<usize>, own: &mut Vec<Delivery>, concerned: &mut u128) {
        while let Some(action) = self.engine.poll(now) {
            let (ticket, tag, decision) = match action {
                Action::Release { ticket, tag, node, .. } => match self.target(node) {
                    Some(target) => (ticket, tag, Decision::Release(target)),
                    None => {
                        self.engine.observe(now, ticket, Outcome::Reset);
                        continue;
                    }
                },
                Action::Shed { ticket, tag, shed, .. } => (ticket, tag, Decision::Shed(shed)),
            };
            let to = (tag >> 48) as usize;
            let slot = (tag & 0xffff_ffff_ffff) as usize;
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
