//! The state machine: handles a request from its arrival to its release.

use core::time::Duration;

use crate::admission::{Admission, AdmissionView, Offer, Step};
use crate::classify::Classes;
use crate::demand::{Costs, Demand};
use crate::dispatch::Nodes;
use crate::limit::{Limit, LimitView};
use crate::parts::Parts;
use crate::policy::{InvalidPolicy, Policy};
use crate::queue::{Bounds, Queues, Turn};
use crate::random::Random;
use crate::request::{Action, Arrival, ClassId, Decision, NodeEvent, ShedReason, TemplateId, Ticket};
use crate::scheduler::{Scheduler, SchedulerView, Standing};
use crate::shadow::Shadow;
use crate::source_rate::SourceRates;
use crate::ticket::{RequestState, State, Tickets};
use crate::time::Time;

/// The engine. See the crate's documentation for the order of calls.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) now: Time,
    pub(crate) tickets: Tickets,
    pub(crate) classes: Classes,
    pub(crate) queues: Queues,
    pub(crate) rates: SourceRates,
    pub(crate) nodes: Nodes,
    pub(crate) admission: Admission,
    pub(crate) limit: Limit,
    pub(crate) scheduler: Scheduler,
    pub(crate) random: Random,
    /// Present while a class is not enforced for all its sources.
    pub(crate) shadow: Option<Box<Shadow>>,
    /// Its parts of guarantees that several engines promise together.
    pub(crate) parts: Parts,
}

/// Compute time in seconds charged to a class before any of its requests was measured: that of an ordinary
/// page.
pub(crate) const ASSUMED_COMPUTE: f64 = 0.010;

/// The outcome of a look for the next request to release.
enum Next {
    Nothing,
    /// A request was put behind the others of its class.
    Late,
    Action(Action),
}

impl Engine {
    /// Starts an engine at `now`. `seed` feeds its random generator (power of two choices).
    ///
    /// # Errors
    /// If the policy is not valid. See [`Policy::validate`].
    pub fn new(now: Time, policy: Policy, seed: u64) -> Result<Engine, InvalidPolicy> {
        policy.validate()?;
        let classes = Classes::new(now, &policy);
        let live = classes.all.len();
        let mut nodes = Nodes::new(&policy);
        nodes.begin(now);
        let limit = Limit::new(now, &policy, &nodes, live);
        let mut engine = Engine {
            now,
            tickets: Tickets::new(),
            rates: SourceRates::default(),
            queues: Queues::new(&policy, nodes.partitions.len(), live),
            scheduler: Scheduler::new(now, &policy, &classes, &nodes, &limit),
            admission: Admission::new(now, &policy, live),
            limit,
            nodes,
            random: Random::new(seed),
            classes,
            policy,
            shadow: None,
            parts: Parts::NONE,
        };
        engine.nodes_changed();
        engine.limit.begin();
        if engine.policy.observes() {
            engine.shadow = Some(Box::new(Shadow::new(now, &engine.policy, seed)?));
        }
        Ok(engine)
    }

    /// Stage *classify*: returns the class of `key` under a template and makes it on first use. Ask again
    /// for every request: an idle class may have been removed to make room for another one.
    pub fn class(&mut self, now: Time, template: TemplateId, key: &[u8]) -> ClassId {
        let now = self.advance(now);
        let (class, made) = self.classes.intern(now, template, key);
        if made {
            let live = self.classes.all.len();
            self.queues.grow(live);
            self.admission.open(now, class);
            self.limit.open(class);
            self.scheduler.open(now, &self.classes, &self.nodes, &self.limit, core::iter::once(class));
        }
        class
    }

    /// Takes the arrival of a request. If its class is not alive, the request counts for the policy's last
    /// class.
    pub fn arrive(&mut self, now: Time, arrival: Arrival) -> Decision {
        let now = self.advance(now);
        let class = match self.classes.all.get(arrival.class) {
            Some(state) if state.live => arrival.class,
            _ => self.classes.default_class(),
        };
        if self.shadow.is_some() {
            self.arrive_beside(now, class, &arrival)
        } else {
            self.arrive_enforced(now, class, &arrival)
        }
    }

    /// Takes the arrival of a request that the discipline decides about.
    #[inline]
    pub(crate) fn arrive_enforced(&mut self, now: Time, class: ClassId, arrival: &Arrival) -> Decision {
        if let Some(rate) = self.classes.spec(class).queue.max_rate_per_flow
            && let Some(wait) = self.rates.take(now, class, arrival.flow, rate)
        {
            return Decision::Shed(self.limited(now, class, ShedReason::SourceRate, wait));
        }
        if let Some(rate) = self.classes.spec(class).queue.max_rate
            && let Some(wait) = self.classes[class].bucket.take(now, rate)
        {
            return Decision::Shed(self.limited(now, class, ShedReason::ClassRate, wait));
        }
        let (guarantee, service) = (self.classes.spec(class).guarantee, self.classes.service_time(class));
        let owed = self.classes[class].observed.offered(now, &guarantee, service);
        let decision = self.enter(now, class, arrival, owed);
        decision.unwrap_or_else(|reason| Decision::Shed(self.refuse(now, class, reason, owed)))
    }

    /// Stages *admit* and *queue*: accepts a request, or returns the reason for refusing it. `owed` says
    /// that it is within the guarantee of its class.
    fn enter(&mut self, now: Time, class: ClassId, arrival: &Arrival, owed: bool) -> Result<Decision, ShedReason> {
        let spec = self.classes.spec(class);
        let (guarantee, bounds) = (spec.guarantee, spec.queue);
        let state = &mut self.classes[class];
        let known = self.policy.costs() != Costs::Unknown;
        state.observed.counts.unknown += u64::from(known && arrival.demand.is_none());
        let partition = state.partition;
        self.limit.offered(now, class, guarantee);
        self.classes.roll(now, class);
        self.promote(now);
        self.demand(class);
        if self.nodes.usable(partition) == 0 {
            return Err(ShedReason::NoNode);
        }
        let (demand, sub_queue) = self.demanded(class, arrival.demand);
        let managed = self.policy.managed(demand);
        if self.limit.resources().is_some_and(|resources| resources.is_too_large(partition, managed)) {
            return Err(ShedReason::TooLarge);
        }
        let offer = Offer { class, sub_queue, code: self.classes.spec(class).priority, itself: None, source: None };
        let standing = self.decide(&offer, Standing::Surplus, Step::Arrival).map(|_| {
            let (admission, view, _) = self.admitting();
            admission.offered(&view, &offer, arrival.flow)
        })?;
        // A method based on credit decides at every release and therefore never takes this shortcut.
        let free = self.limit.resources().is_none() && self.classes[class].queue.sub_queues[sub_queue].len == 0 && {
            let next = self.scheduler.standing(now, &self.classes, class);
            let place = self.limit.standing((&self.classes, &self.nodes), (partition, sub_queue), class, next);
            self.limit.room(&self.nodes, (partition, sub_queue), place, None)
                && self.limit.admits(&self.nodes, (partition, sub_queue), class, place)
        };
        if free && (self.queues.waiting == 0 || self.next().is_none()) {
            self.decide(&offer, standing, Step::Release)?;
            let index = self.accept(now, class, arrival, (demand, sub_queue));
            self.tickets[index].owed = owed;
            let node = self.send(now, index);
            return Ok(Decision::Release { ticket: self.tickets.ticket(index), node });
        }
        let source = self.queues.source(class, arrival.flow);
        let offer = Offer { source, ..offer };
        let room = self.queues.room(&self.classes[class].queue, source, bounds);
        let fits = self.or_displaces(&offer, room)? & {
            let decided = self.decide(&offer, standing, Step::Queue);
            self.or_displaces(&offer, decided)?
        };
        let index = self.accept(now, class, arrival, (demand, sub_queue));
        self.tickets[index].owed = owed;
        let bounds = self.bounds(class);
        let state = &mut self.classes[class];
        if self.queues.push(&mut self.tickets, &mut state.queue, (index, source), bounds) {
            self.admission.waits(class, sub_queue, now);
            self.scheduler.begins(&self.classes, class);
            self.rank(class);
        }
        if !fits {
            self.queues.displace(class);
        }
        Ok(Decision::Wait { ticket: self.tickets.ticket(index) })
    }

    /// Removes a *waiting* request because its client left or the driver gave it up. Its slot in the queue
    /// is free at once. Returns false if the ticket does not wait (it was released or shed already, or is
    /// stale).
    pub fn cancel(&mut self, now: Time, ticket: Ticket) -> bool {
        let now = self.advance(now);
        let Some(index) = self.tickets.find(ticket, State::Waiting) else { return false };
        self.left(now, index);
        self.forget(index);
        if self.shadow.is_some() {
            self.cancel_beside(now, ticket);
        }
        true
    }

    /// Whether a request in flight was released as surplus, beyond the guarantee of its class. `None` if the
    /// ticket is not in flight.
    pub fn is_surplus(&self, ticket: Ticket) -> Option<bool> {
        let index = self.tickets.find(ticket, State::InFlight)?;
        Some(self.tickets[index].standing == Standing::Surplus)
    }

    /// Reports an event of a node.
    pub fn node(&mut self, now: Time, event: NodeEvent) {
        let now = self.advance(now);
        if self.shadow.is_some() {
            self.node_beside(now, event);
        }
        if self.nodes.event(now, event) {
            self.nodes_changed();
        }
    }

    /// Returns the next thing to do, or `None`. Runs *control* when it is due.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        let now = self.advance(now);
        self.control(now);
        let action = if self.shadow.is_some() { self.next_beside(now) } else { self.next_action(now) };
        if action.is_none() {
            self.limit.held_back(now, self.queues.waiting > 0, &self.nodes, &self.scheduler);
        }
        action
    }

    pub(crate) fn next_action(&mut self, now: Time) -> Option<Action> {
        self.promote(now);
        if let Some(index) = self.queues.displaced(&self.tickets) {
            return Some(self.turn_away(now, index, ShedReason::FlowFull));
        }
        // A head that becomes late shows that others of its class may be due as well: the time of a drop moves closer
        // with the first request in flight.
        loop {
            if let Some(refused) = self.next_drop(now) {
                return Some(refused);
            }
            match self.next_release(now) {
                Next::Late => {}
                Next::Action(action) => return Some(action),
                Next::Nothing => return None,
            }
        }
    }

    /// Drops a request that has waited too long, or that no node can take.
    fn next_drop(&mut self, now: Time) -> Option<Action> {
        while let Some((_, class)) = self.queues.expiry.peek(0).filter(|(at, _)| *at <= now) {
            let (due, reason, oldest) = self.first_drop(now, class);
            if due <= now {
                if self.puts_late(oldest) {
                    continue;
                }
                return Some(self.turn_away(now, oldest, reason));
            }
            self.queues.expiry.set(0, class, due);
        }
        if let Some((_, index)) = self.queues.first_behind().filter(|(at, _)| *at <= now) {
            return Some(self.turn_away(now, index, ShedReason::QueueTimeout));
        }
        let index = self.too_large()?;
        Some(self.turn_away(now, index, ShedReason::TooLarge))
    }

    /// Releases the next request, or drops it if it has waited too long.
    fn next_release(&mut self, now: Time) -> Next {
        // A request that is put back is passed over once. After a full round the next request is handled
        // without putting it back.
        let mut passed = self.queues.waiting;
        while self.queues.waiting > 0 {
            let Some((class, sub_queue)) = self.next() else { return Next::Nothing };
            let index = self.classes[class].queue.head(sub_queue, self.queues.has_late());
            let (due, reason) = self.drop_at(now, index);
            if due <= now {
                if self.puts_late(index) {
                    return Next::Late;
                }
                return Next::Action(self.turn_away(now, index, reason));
            }
            let code = if passed == 0 { None } else { self.puts_back(index) };
            let Some(code) = code else {
                let (admission, view, _) = self.admitting();
                return Next::Action(match admission.dequeues(&view, class, sub_queue) {
                    Some((oldest, reason)) => self.turn_away(now, oldest, reason),
                    None => self.release(now, index),
                });
            };
            passed -= 1;
            if let Some(refused) = self.put_back(now, index, code) {
                return Next::Action(refused);
            }
        }
        Next::Nothing
    }

    /// The latest time for the next call of [`Engine::poll`], even if nothing else happens: the next drop,
    /// the next step of control, the next return of an ejected node, the next step of a slow start,
    /// the next resize of a partition, or the next step of a lease.
    pub fn next_timeout(&self) -> Option<Time> {
        let expiry = self.queues.expiry.peek(0).map_or(Time::NEVER, |(at, _)| at);
        let behind = self.queues.first_behind().map_or(Time::NEVER, |(at, _)| at);
        let nodes = self.nodes.next_return().min(self.nodes.next_resize()).min(self.nodes.next_step());
        let shadow = self.shadow.as_ref().map_or(Time::NEVER, |shadow| shadow.next());
        let next = self.limit.due().min(expiry).min(behind).min(nodes).min(shadow).min(self.parts.next);
        (next != Time::NEVER).then_some(next)
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sets the engine's clock to the later of `now` and the latest time seen, and returns it.
    pub(crate) fn advance(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        if self.now >= self.parts.next {
            self.enter_step(self.now);
        }
        self.now
    }

    /// The cost of a request of the class, and its sub-queue.
    pub(crate) fn demanded(&self, class: ClassId, demand: Option<Demand>) -> (Demand, usize) {
        if self.policy.costs() == Costs::Unknown {
            return (Demand::default(), 0);
        }
        let demand = demand.unwrap_or(self.classes.spec(class).demand);
        let demand = self.limit.cost(self.classes[class].partition, demand);
        (demand, self.policy.sub_queue_of(demand))
    }

    /// Updates classes with buckets that have filled up to a token: they now claim their guarantee.
    fn promote(&mut self, now: Time) {
        while let Some(class) = self.scheduler.promoted(now) {
            self.rank(class);
        }
    }

    /// Refuses a request if admission does so at this step.
    #[inline]
    fn decide(&mut self, offer: &Offer, standing: Standing, step: Step) -> Result<(), ShedReason> {
        let (admission, view, random) = self.admitting();
        admission.decide(&view, offer, standing, step, random).map_or(Ok(()), Err)
    }

    /// Returns true if the request fits, and false if it fits in the place of another one of its class.
    #[inline]
    fn or_displaces(&self, offer: &Offer, fits: Result<(), ShedReason>) -> Result<bool, ShedReason> {
        let Err(reason) = fits else { return Ok(true) };
        let displaces = self.queues.displaces(&self.tickets, offer.class, offer.source, (reason, offer.code));
        if displaces { Ok(false) } else { Err(reason) }
    }

    /// Creates the entry of an accepted request. It is in no queue yet.
    fn accept(&mut self, now: Time, class: ClassId, arrival: &Arrival, (demand, sub_queue): (Demand, usize)) -> u32 {
        if self.policy.is_priced() {
            self.classes.takes(class, f64::from(demand.dominant()) / 1e9);
            let (due, weight) = (self.classes.due_weight(class), self.classes[class].weight);
            // A change within 2 % of the weight is ignored.
            if due.abs_diff(weight) > weight / 50 {
                self.reweigh(class);
            }
        }
        let state = &mut self.classes[class];
        if !state.active() {
            if state.passing == 0 {
                self.classes.leave_idle(class);
            }
            self.reweigh(class);
            self.scheduler.active(&self.classes, class);
        }
        let index = self.tickets.insert(class, arrival.flow, arrival.token, now);
        self.tickets[index].code = self.classes.spec(class).priority;
        self.tickets[index].locality_key = arrival.locality_key;
        let known = self.classes[class].expected.seconds();
        let charge = match self.policy.is_priced() {
            true => f64::from(demand.dominant()) / 1e9,
            false => known.unwrap_or(ASSUMED_COMPUTE),
        };
        let entry = &mut self.tickets[index];
        (entry.demand, entry.sub_queue) = (demand, sub_queue as u8);
        entry.charged = if charge.is_finite() { charge.clamp(0.0, 1e6) } else { ASSUMED_COMPUTE };
        index
    }

    /// Takes a waiting request out of its queue. Returns true if it had the turn or was the oldest: then its
    /// class must be ranked again.
    pub(crate) fn dequeue(&mut self, index: u32, turn: Turn) -> bool {
        let class = self.tickets[index].class;
        let bounds = self.bounds(class);
        let queue = &mut self.classes[class].queue;
        self.queues.unlink(&mut self.tickets, queue, (index, turn), bounds)
    }

    /// Forgets a waiting request.
    pub(crate) fn forget(&mut self, index: u32) {
        let class = self.tickets[index].class;
        self.queues.left(class);
        if self.dequeue(index, Turn::Kept) {
            self.rank(class);
        }
        self.tickets.remove(index);
        if !self.classes[class].active() {
            self.retire(class);
        }
    }

    /// The facts about a class that the queues need.
    pub(crate) fn bounds(&self, class: ClassId) -> Bounds {
        Bounds { partition: self.classes[class].partition, queue: self.classes.spec(class).queue }
    }

    /// The time at which a waiting request is dropped, and the reason.
    pub(crate) fn drop_at(&mut self, now: Time, index: u32) -> (Time, ShedReason) {
        if self.is_late(index) {
            return (self.late_until(index), ShedReason::Deadline);
        }
        let RequestState { class, arrived, .. } = self.tickets[index];
        self.classes.roll(now, class);
        let (last, reason) = self.admission.deadline(&self.classes, class, arrived);
        // A request exactly at its deadline is still in time.
        (last + Duration::from_nanos(1), reason)
    }

    /// Admission and its view of the engine.
    #[inline]
    pub(crate) fn admitting(&mut self) -> (&mut Admission, AdmissionView<'_>, &mut Random) {
        let Engine { now, policy, classes, tickets, queues, nodes, admission, random, .. } = self;
        let view = AdmissionView { now: *now, policy, classes, tickets, queues, nodes };
        (admission, view, random)
    }

    /// The scheduler and its view of the engine.
    #[inline]
    pub(crate) fn scheduling(&mut self) -> (&mut Scheduler, SchedulerView<'_>) {
        let Engine { now, policy, classes, tickets, queues, nodes, limit, scheduler, .. } = self;
        (scheduler, SchedulerView { now: *now, policy, classes, tickets, queues, nodes, limit })
    }

    /// Load control and its view of the engine.
    #[inline]
    pub(crate) fn limiting(&mut self) -> (&mut Limit, LimitView<'_>) {
        let Engine { now, classes, nodes, limit, .. } = self;
        (limit, LimitView { now: *now, classes, nodes })
    }

    /// Runs the control steps that are due at `now`.
    fn control(&mut self, now: Time) {
        let (readmitted, grown) = (self.nodes.readmit(now), self.nodes.grow(now));
        if readmitted || grown {
            self.nodes_changed();
        }
        self.nodes.resize(now);
        if self.limit.due() <= now {
            let (limit, mut view) = self.limiting();
            limit.step(&mut view);
        }
    }

    /// Updates all stages after the set of usable nodes has changed.
    pub(crate) fn nodes_changed(&mut self) {
        self.nodes.rebalance();
        let (limit, mut view) = self.limiting();
        limit.nodes_changed(&mut view);
        self.scheduler.nodes_changed(&self.classes, &self.nodes, &self.limit);
        if self.shadow.is_some() {
            self.nodes_changed_beside();
        }
    }
}
