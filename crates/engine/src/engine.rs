//! The state machine: what happens to a request from its arrival to its release.

use crate::admit::{self, Outlook};
use crate::classify::Classes;
use crate::control::Steering;
use crate::demand::Demand;
use crate::discipline::{Admit, Infeasible, Precedence as Method};
use crate::dispatch::{Nodes, Wanted};
use crate::heap::Heaps;
use crate::index::Id;
use crate::policy::{InvalidPolicy, Policy};
use crate::queue::{Bounds, Queues};
use crate::random::Random;
use crate::release::{Precedence, Window};
use crate::request::{Action, Arrival, ClassId, NodeEvent, NodeId, Shed, ShedReason, TemplateId, Ticket, Verdict};
use crate::ticket::{Entry, State, Tickets};
use crate::time::Time;
use core::time::Duration;

/// The engine. See the crate's documentation for the order of calls.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) now: Time,
    pub(crate) sequence: u64,
    pub(crate) tickets: Tickets,
    pub(crate) classes: Classes,
    pub(crate) queues: Queues,
    pub(crate) nodes: Nodes,
    /// Lines of every class's queue.
    pub(crate) lines: usize,
    /// One per group of nodes; under adaptive load control one per line and group, those of a line together.
    pub(crate) windows: Vec<Window>,
    pub(crate) precedence: Precedence,
    /// Waiting classes by the instant at which their head is dropped.
    pub(crate) expiry: Heaps<Time, ClassId>,
    pub(crate) steering: Steering,
    pub(crate) random: Random,
}

/// Compute time charged before anything is known of a class: an ordinary page.
pub(crate) const ASSUMED_COMPUTE: f64 = 0.010;

impl Engine {
    /// Starts an engine at `now`. `seed` feeds its generator (power of two choices).
    ///
    /// # Errors
    /// If the policy is not valid; see [`Policy::validate`].
    pub fn new(now: Time, policy: Policy, seed: u64) -> Result<Engine, InvalidPolicy> {
        policy.validate()?;
        let classes = Classes::new(now, &policy);
        let live = classes.all.len();
        let mut nodes = Nodes::new(&policy);
        nodes.begin(now);
        let window = Window::new(now, policy.discipline.load_control);
        let lines = policy.lines();
        let mut engine = Engine {
            now,
            sequence: 0,
            tickets: Tickets::new(),
            queues: Queues::new(policy.max_waiting, nodes.sections.len(), policy.discipline.tags.len()),
            windows: vec![window; nodes.groups.len() * policy.windows()],
            precedence: Precedence::new(policy.discipline.precedence, nodes.sections.len(), live, lines),
            lines,
            nodes,
            expiry: Heaps::new(1, live),
            steering: Steering::new(now, &policy),
            random: Random::new(seed),
            classes,
            policy,
        };
        engine.open_accounts((0..live as u32).map(ClassId));
        engine.nodes_changed(now);
        for window in &mut engine.windows {
            window.moved.from = window.size;
            window.moved.why = crate::request::Why::First;
        }
        Ok(engine)
    }

    /// Stage *classify*: the class of `key` under a template, made on first use. Ask again for every
    /// request: an idle class may have made room for another since.
    pub fn class(&mut self, now: Time, template: TemplateId, key: &[u8]) -> ClassId {
        let now = self.advance(now);
        let (class, made) = self.classes.intern(now, template, key);
        if made {
            let live = self.classes.all.len();
            self.precedence.grow(live);
            self.expiry.grow(live);
            self.open_accounts(core::iter::once(class));
        }
        class
    }

    /// A request is at the door. A class that is not alive counts as the policy's last one.
    pub fn arrive(&mut self, now: Time, arrival: Arrival) -> Verdict {
        let now = self.advance(now);
        let class = match self.classes.all.get(arrival.class) {
            Some(state) if state.live => arrival.class,
            _ => self.classes.default_class(),
        };
        self.enter(now, class, &arrival).unwrap_or_else(|reason| Verdict::Shed(self.refuse(now, class, reason)))
    }

    /// Stages *admit* and *queue*: takes a request in, or says why not.
    fn enter(&mut self, now: Time, class: ClassId, arrival: &Arrival) -> Result<Verdict, ShedReason> {
        let admit = &self.policy.discipline.admit;
        let spec = self.classes.spec(class);
        let (response_time, bounds) = (spec.guarantee.response_time, spec.queue);
        let limit = response_time.map(|rt| rt.limit);
        let state = &mut self.classes[class];
        state.observed.offered(now);
        let known = !self.policy.resources.is_empty();
        state.observed.counts.unknown += u64::from(known && arrival.demand.is_none());
        self.steering.see(now, class, &mut state.seen, response_time);
        state.expected.roll(now, state.outstanding > 0, admit, response_time);
        let pool = state.pool;
        self.promote(now);
        self.demand(class);
        if self.nodes.usable(pool) == 0 {
            return Err(ShedReason::NoNode);
        }
        let (demand, line) = self.demanded(class, arrival.demand);
        if self.nodes.is_too_large(pool, self.policy.managed(demand)) {
            return Err(ShedReason::TooLarge);
        }
        if self.overloaded(class) {
            return Err(ShedReason::ServerLoad);
        }
        let predicted = self.predicted(now, class, line);
        // Where credit decides, it does so at every release.
        let free = !self.nodes.available
            && self.classes[class].queue.lines[line].len == 0
            && self.nodes.has_room(pool, self.windows_of(line), None);
        if free && (self.queues.waiting == 0 || self.next().is_none()) {
            let expected = self.classes[class].expected.guaranteed().unwrap_or(0.0);
            if admit::hopeless(&self.policy.discipline.admit, limit, expected) {
                return Err(ShedReason::Deadline);
            }
            let index = self.accept(now, class, arrival, (demand, line));
            let node = self.send(now, index);
            return Ok(Verdict::Release { ticket: self.tickets.ticket(index), node });
        }
        self.queues.room(class, arrival.flow, &self.classes[class].queue, bounds)?;
        if let Some(reason) = predicted {
            return Err(reason);
        }
        if !self.admits(pool, self.classes.spec(class).tag, None) {
            return Err(ShedReason::Threshold);
        }
        let index = self.accept(now, class, arrival, (demand, line));
        let weight = self.fair_weight(class);
        let bounds = self.bounds(class);
        let state = &mut self.classes[class];
        if self.queues.push(&mut self.tickets, &mut state.queue, index, bounds) {
            state.backlogged[line] = now;
            state.tag = self.precedence.start(state.tag, weight);
            self.rank(class);
        }
        Ok(Verdict::Wait { ticket: self.tickets.ticket(index) })
    }

    /// The client of a *waiting* request left, or the driver gave it up: its place is free at once.
    /// False if the ticket does not wait (it was released or shed already, or is stale).
    pub fn cancel(&mut self, now: Time, ticket: Ticket) -> bool {
        self.advance(now);
        let Some(index) = self.tickets.find(ticket, State::Waiting) else { return false };
        let class = self.tickets[index].class;
        self.classes[class].observed.counts.cancelled += 1;
        self.forget(index);
        true
    }

    /// Something became known about a node.
    pub fn node(&mut self, now: Time, event: NodeEvent) {
        let now = self.advance(now);
        if self.nodes.event(event) {
            self.nodes_changed(now);
        }
    }

    /// The next thing to do, or `None`. Runs *control* when it is due.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        let now = self.advance(now);
        self.control(now);
        let action = self.next_action(now);
        if action.is_none() {
            self.note_held_back(now);
        }
        action
    }

    fn next_action(&mut self, now: Time) -> Option<Action> {
        self.promote(now);
        while let Some((_, class)) = self.expiry.peek(0).filter(|(at, _)| *at <= now) {
            let head = self.classes[class].queue.oldest(&self.tickets);
            let (due, reason) = self.drop_at(now, head);
            if due <= now {
                return Some(self.turn_away(now, head, reason));
            }
            self.expiry.set(0, class, due);
        }
        if let Some((_, index)) = self.queues.first_behind().filter(|(at, _)| *at <= now) {
            return Some(self.turn_away(now, index, ShedReason::QueueTimeout));
        }
        if let Some(index) = self.too_large() {
            return Some(self.turn_away(now, index, ShedReason::TooLarge));
        }
        // Whoever is put back is passed over once: the round after the next request is handled as it is.
        let mut passed = self.queues.waiting;
        while self.queues.waiting > 0 {
            let (class, line) = self.next()?;
            let index = self.classes[class].queue.lines[line].head;
            let (due, reason) = self.drop_at(now, index);
            if due <= now {
                return Some(self.turn_away(now, index, reason));
            }
            if passed == 0 || !self.is_put_back(index) {
                return Some(self.release(now, index));
            }
            passed -= 1;
            if let Some(refused) = self.put_back(now, index) {
                return Some(refused);
            }
        }
        None
    }

    /// Stage *release*: the head of a class's queue goes inside.
    fn release(&mut self, now: Time, index: u32) -> Action {
        let entry = &self.tickets[index];
        let fair = self.precedence.charges(entry.class, usize::from(entry.line));
        self.tickets[index].fair = fair;
        // The release ranks its class anew.
        self.dequeue(index);
        let node = self.send(now, index);
        let entry = &self.tickets[index];
        let waited = now.since(entry.arrived);
        Action::Release { ticket: self.tickets.ticket(index), tag: entry.tag, node, waited }
    }

    /// When [`Engine::poll`] must be called next even if nothing else happens: the next drop, the next
    /// step of control, the next return of an ejected node.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let expiry = self.expiry.peek(0).map_or(Time::NEVER, |(at, _)| at);
        let behind = self.queues.first_behind().map_or(Time::NEVER, |(at, _)| at);
        let next =
            self.steering.next.min(expiry).min(behind).min(self.nodes.next_return()).min(self.nodes.next_resize());
        (next != Time::NEVER).then_some(next)
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Time never runs backwards in here.
    pub(crate) fn advance(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// The windows that requests of a line are inside, one per group of nodes.
    pub(crate) fn windows_of(&self, line: usize) -> &[Window] {
        &self.windows[self.first_window(line)..][..self.nodes.groups.len()]
    }

    /// The first of them.
    pub(crate) fn first_window(&self, line: usize) -> usize {
        let groups = self.nodes.groups.len();
        if self.windows.len() == groups { 0 } else { line * groups }
    }

    /// What a request of the class takes, and its line.
    fn demanded(&self, class: ClassId, demand: Option<Demand>) -> (Demand, usize) {
        if self.policy.resources.is_empty() {
            return (Demand::default(), 0);
        }
        let demand = demand.unwrap_or(self.classes.spec(class).demand);
        let demand = self.nodes.estimated(self.classes[class].pool, demand);
        (demand, self.policy.line_of(demand))
    }

    /// Windows learn whether they hold anything back: a full one does if a request waits that could go there.
    /// It also does if it only turns requests aside to a group that holds others back.
    fn note_held_back(&mut self, now: Time) {
        let groups = &self.nodes.groups;
        for (line, windows) in self.windows.chunks_mut(groups.len()).enumerate() {
            for (window, group) in windows.iter_mut().zip(groups) {
                let full = self.queues.waiting > 0 && !window.has_room();
                window.hold(now, full && group.pools.iter().any(|pool| self.precedence.waits(*pool, line)));
            }
            if self.queues.waiting == 0 || groups.len() == 1 {
                continue;
            }
            for (index, group) in groups.iter().enumerate() {
                if windows[index].has_room() || windows[index].holds() {
                    continue;
                }
                let mut beside = group.pools.iter().flat_map(|pool| self.nodes.groups_of(*pool));
                if beside.any(|other| windows[other.row()].holds()) {
                    windows[index].hold(now, true);
                }
            }
        }
    }

    /// Classes whose buckets have filled up to a token claim their guarantee from now on.
    fn promote(&mut self, now: Time) {
        while let Some(class) = self.precedence.promoted(now) {
            self.rank(class);
        }
    }

    /// Would a request of the class that arrives now wait too long?
    fn predicted(&mut self, now: Time, class: ClassId, line: usize) -> Option<ShedReason> {
        let Admit::Predict(figures) = self.policy.discipline.admit else { return None };
        let spec = self.classes.spec(class);
        let (guarantee, max_wait) = (spec.guarantee, spec.queue.max_wait);
        let mut owed = false;
        if let Some(rate) = guarantee.throughput {
            owed = self.classes[class].arrivals.level(now, rate) >= 1.0;
            if owed {
                let tokens = self.dearness(class);
                // A debt of what it takes beyond the one that is there.
                self.classes[class].arrivals.take(now, rate, tokens, f64::INFINITY);
            }
        }
        let state = &mut self.classes[class];
        let waiting = state.queue.lines[line].len;
        if waiting == 0 {
            return None;
        }
        state.pace[line].roll(now, figures.fresh);
        let outlook = Outlook {
            waiting,
            backlogged: now.as_nanos() - state.backlogged[line].as_nanos(),
            owed,
            guaranteed: guarantee.throughput.unwrap_or(0.0),
            limit: guarantee.response_time.map(|rt| rt.limit),
            max_wait,
            expected: state.expected.guaranteed().unwrap_or(0.0),
            pace: state.pace[line],
        };
        admit::too_long(figures, &outlook)
    }

    /// Takes a request in; it is in no queue yet.
    fn accept(&mut self, now: Time, class: ClassId, arrival: &Arrival, (demand, line): (Demand, usize)) -> u32 {
        if self.policy.is_priced() {
            self.classes.takes(class, f64::from(demand.dominant()) / 1e9);
            let (due, weight) = (self.classes.due_weight(class), self.classes[class].weight);
            // Within 2 % it is as good as it was.
            if due.abs_diff(weight) > weight / 50 {
                self.reweigh(class);
            }
        }
        let state = &mut self.classes[class];
        if !state.active() {
            self.classes.leave_idle(class);
            self.reweigh(class);
            let weight = self.fair_weight(class);
            let state = &mut self.classes[class];
            state.tag = self.precedence.start(state.tag, weight);
            self.precedence.claim(state.weight, true);
        }
        self.sequence += 1;
        let index = self.tickets.insert(class, arrival.flow, arrival.tag, now, self.sequence);
        self.tickets[index].code = self.classes.spec(class).tag;
        self.tickets[index].target = arrival.target;
        let known = self.classes[class].expected.seconds();
        let charge = match self.policy.is_priced() {
            true => f64::from(demand.dominant()) / 1e9,
            false => known.unwrap_or(ASSUMED_COMPUTE),
        };
        let entry = &mut self.tickets[index];
        (entry.demand, entry.line) = (demand, line as u8);
        entry.charged = if charge.is_finite() { charge.clamp(0.0, 1e6) } else { ASSUMED_COMPUTE };
        index
    }

    /// Stage *release*: puts an accepted request inside. The pool has room.
    fn send(&mut self, now: Time, index: u32) -> NodeId {
        let class = self.tickets[index].class;
        let pool = self.classes[class].pool;
        let (content, target) = (self.classes.spec(class).content, self.tickets[index].target);
        let line = usize::from(self.tickets[index].line);
        let demand = self.policy.managed(self.tickets[index].demand);
        let wanted = Wanted { pool, class, content, target, demand, avoid: NodeId::NONE, kept: None };
        let first = self.first_window(line);
        let windows = &self.windows[first..][..self.nodes.groups.len()];
        let node = self.nodes.dispatch(&wanted, windows, &mut self.random).unwrap_or(NodeId::NONE);
        debug_assert_ne!(node, NodeId::NONE, "the caller made sure that the pool has room");
        let window = first as u32 + self.nodes.group_of(node).0;
        self.precedence.charge_resources(class, line, demand);
        let weight = self.fair_weight(class);
        let spec = self.classes.spec(class);
        let (budget, guarantee) = (spec.retry, spec.guarantee);
        if let Method::Tokens(figures) = self.policy.discipline.precedence {
            let ranked = figures.infeasible != Infeasible::Proportional;
            let tokens = if ranked { self.dearness(class) } else { 1.0 };
            // Without a limit a second is the only measure of time that a class has.
            let limit = guarantee.response_time.map_or(1.0, |rt| rt.limit.as_secs_f64());
            let bucket = &mut self.classes[class].bucket;
            bucket.take(now, guarantee.throughput.unwrap_or(figures.best_effort_rate), tokens, figures.debt * limit);
        }
        let state = &mut self.classes[class];
        state.retry.deposit(&budget);
        if let Admit::Predict(figures) = self.policy.discipline.admit {
            state.pace[line].released(now, figures.fresh);
        }
        state.outstanding += 1;
        let entry = &mut self.tickets[index];
        entry.state = State::Inside;
        entry.node = node;
        entry.window = window;
        entry.released = now;
        if entry.fair {
            state.tag = self.precedence.charge(state.tag, weight, entry.charged);
        }
        self.windows[window as usize].count(now, true);
        self.rank(class);
        node
    }

    /// Takes a waiting request out of its queue. True if it was the head: then its class must be ranked anew.
    fn dequeue(&mut self, index: u32) -> bool {
        let class = self.tickets[index].class;
        let bounds = self.bounds(class);
        let queue = &mut self.classes[class].queue;
        self.queues.unlink(&mut self.tickets, queue, index, bounds)
    }

    /// A waiting request is gone.
    fn forget(&mut self, index: u32) {
        let class = self.tickets[index].class;
        if self.dequeue(index) {
            self.rank(class);
        }
        self.tickets.remove(index);
        if !self.classes[class].active() {
            self.retire(class);
        }
    }

    /// A waiting request is turned away.
    pub(crate) fn turn_away(&mut self, now: Time, index: u32, reason: ShedReason) -> Action {
        let entry = &self.tickets[index];
        let (class, tag, waited) = (entry.class, entry.tag, now.since(entry.arrived));
        let ticket = self.tickets.ticket(index);
        let shed = self.refuse(now, class, reason);
        self.forget(index);
        Action::Shed { ticket, tag, shed, waited }
    }

    fn refuse(&mut self, now: Time, class: ClassId, reason: ShedReason) -> Shed {
        self.classes[class].observed.shed(now, reason);
        let fallback = self.classes.spec(class).fallback.map(|index| ClassId(index as u32));
        Shed { reason, retry_after: self.retry_after(class, reason), fallback }
    }

    /// What the queues need to know of a class.
    pub(crate) fn bounds(&self, class: ClassId) -> Bounds {
        Bounds { pool: self.classes[class].pool, queue: self.classes.spec(class).queue }
    }

    /// When a waiting request is dropped, and why.
    pub(crate) fn drop_at(&mut self, now: Time, index: u32) -> (Time, ShedReason) {
        let Entry { class, arrived, .. } = self.tickets[index];
        let admit = &self.policy.discipline.admit;
        let spec = self.classes.spec(class);
        let (limit, max_wait) = (spec.guarantee.response_time, spec.queue.max_wait);
        let state = &mut self.classes[class];
        state.expected.roll(now, state.outstanding > 0, admit, limit);
        let expected = state.expected.guaranteed();
        let (limit, alone) = (limit.map(|rt| rt.limit), state.outstanding == 0);
        let (last, reason) = admit::drop_at(admit, arrived, limit, expected.unwrap_or(0.0), alone, max_wait);
        // Exactly on time is still in time.
        (last + Duration::from_nanos(1), reason)
    }

    /// When trying again makes sense: when the queue will have drained, between 1 and 60 s; with no
    /// usable node, when a health check may have found one.
    fn retry_after(&self, class: ClassId, reason: ShedReason) -> Duration {
        if reason == ShedReason::NoNode {
            return Duration::from_secs(5);
        }
        let state = &self.classes[class];
        let each = state.expected.seconds().unwrap_or(0.0) / f64::from(state.outstanding.max(1));
        let seconds = (f64::from(state.queue.len) * each).ceil().clamp(1.0, 60.0);
        Duration::from_secs(seconds as u64)
    }
}
