//! The shadow: a second engine that enforces everything, next to the real one.
//!
//! Source: our own. While a class is observed, its requests pass ([`crate::passing`]), and the nodes carry all of them.
//! The *shadow* takes the same arrivals of all classes under the same policy, enforced for all. So it has queues,
//! tokens and windows of its own, and its refusals are those that would have happened. The rules are not written
//! twice: the shadow is an [`Engine`].
//!
//! What the shadow lacks are nodes that serve only what it released. It learns from the real ones:
//! - A request that is in flight in both ends in both at the same time. As long as nothing would be refused or
//!   held back, the shadow equals the real engine.
//! - The real answer of any other request is work that the nodes could have done for the shadow. [`servers`] gives
//!   it to the requests that the shadow has in flight.
//!
//! Consequences: the shadow knows the throughput of overloaded nodes without knowing their capacity. It believes
//! declared service times. It cannot know work that the nodes lose because they are overloaded, service times that
//! were never seen on quiet nodes, and clients that would behave differently if they were refused.
//!
//! A refusal of the shadow does not refuse anything. It counts in the class of the real engine
//! ([`crate::ClassSnapshot::would_shed`]), and is known of the request as long as that is in flight ([`Would`]).

mod servers;
mod spread;

use crate::admission::LoadSource;
use crate::classify::Classes;
use crate::demand::Demand;
use crate::discipline::Admit;
use crate::engine::{ASSUMED_COMPUTE, Engine};
use crate::index::MachineId;
use crate::mode::Mode;
use crate::policy::{InvalidPolicy, Policy};
use crate::random::Random;
use crate::request::{Action, Arrival, ClassId, Decision, NodeEvent, NodeId, Outcome, Shed, ShedReason, Ticket};
use crate::ticket::{NONE, State};
use crate::time::Time;

use servers::Servers;
use spread::Spread;

/// Control steps that the shadow makes up for at once. They are a few hundred milliseconds to minutes, more than a
/// driver is ever late. The steps of a longer pause are left out.
const MAX_STEPS: u32 = 1_000;

/// What would have happened to a request that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Would {
    /// It would still wait.
    Wait,
    /// It would have been released.
    Release,
    /// It would have been refused.
    Shed(ShedReason),
    /// It would have been refused for this reason, and served by its fallback class.
    Degrade(ShedReason),
}

/// The number of no request.
const NOBODY: Ticket = Ticket { index: NONE, generation: 0 };

/// A request of the shadow, by its ticket there.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Its ticket in the real engine, or [`NOBODY`]. The ticket may be stale.
    twin: Ticket,
    /// Nanoseconds of service.
    work: f64,
    machine: MachineId,
    /// Whether it passed in reality.
    observed: bool,
    /// The reason for which its first class refused it.
    refused: Option<ShedReason>,
}

const NO_MEMBER: Member = Member { twin: NOBODY, work: 0.0, machine: MachineId(0), observed: false, refused: None };

/// A request of the real engine, by its ticket there.
#[derive(Clone, Copy, Debug)]
struct Twin {
    generation: u32,
    /// Its ticket in the shadow, or [`NOBODY`]. The ticket may be stale.
    member: Ticket,
    observed: bool,
    would: Would,
}

const NO_TWIN: Twin = Twin { generation: 0, member: NOBODY, observed: false, would: Would::Wait };

/// The shadow of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    engine: Engine,
    servers: Servers,
    /// By class and template of the policy.
    spreads: Vec<Spread>,
    random: Random,
    members: Vec<Member>,
    twins: Vec<Twin>,
    /// Waiting requests of the real engine that pass next, the first one last.
    to_pass: Vec<Ticket>,
}

/// The policy with all classes enforced. Nodes are usable when the real ones are, so nothing ejects them, and loads are
/// those of the shadow.
fn enforced(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    policy.classes.iter_mut().for_each(|class| class.mode = Mode::Enforce);
    policy.templates.iter_mut().for_each(|template| template.class.mode = Mode::Enforce);
    policy.pools.iter_mut().for_each(|pool| pool.ejection.consecutive_failures = 0);
    if let Admit::ServerLoad(figures) = &mut policy.discipline.admit {
        figures.source = LoadSource::Live;
    }
    policy
}

/// Capacities of the machines, as far as they tell how many requests fit. Service times that are learned are too small
/// for that: they are the smallest means.
fn capacities(engine: &Engine) -> Vec<Option<f64>> {
    let known = engine.policy.is_priced() || engine.policy.all_classes().all(|class| class.service_time.is_some());
    engine.nodes.capacities().map(|capacity| capacity.filter(|_| known)).collect()
}

impl Shadow {
    /// Its engine.
    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The shadow of an engine that starts.
    pub(crate) fn new(now: Time, policy: &Policy, seed: u64) -> Result<Shadow, InvalidPolicy> {
        Ok(Shadow::of(Engine::new(now, enforced(policy), seed)?))
    }

    /// A shadow that begins as a copy of an engine.
    fn of(engine: Engine) -> Shadow {
        let servers = Servers::new(engine.now, capacities(&engine).into_iter());
        let mut shadow = Shadow {
            servers,
            spreads: vec![Spread::UNKNOWN; engine.classes.specs.len()],
            random: engine.random.clone(),
            engine,
            members: Vec::new(),
            twins: Vec::new(),
            to_pass: Vec::new(),
        };
        for index in 0..shadow.engine.tickets.entries.len() as u32 {
            let (entry, ticket) = (&shadow.engine.tickets[index], shadow.engine.tickets.ticket(index));
            if entry.state == State::Free {
                continue;
            }
            let work = shadow.engine.work(entry.class, entry.demand);
            let would = if entry.state == State::Waiting { Would::Wait } else { Would::Release };
            shadow.put(ticket, Member { twin: ticket, work, ..NO_MEMBER });
            shadow.twin(ticket, Twin { generation: ticket.generation, member: ticket, observed: false, would });
        }
        shadow
    }

    /// The time of its engine's next step, or [`Time::NEVER`]. Requests that end before are counted then, or at the
    /// next call of the real engine: a timer for each of them would cost more than the requests themselves.
    pub(crate) fn next(&self) -> Time {
        self.engine.next_timeout().unwrap_or(Time::NEVER)
    }

    fn put(&mut self, ticket: Ticket, member: Member) {
        let index = ticket.index as usize;
        if self.members.len() <= index {
            self.members.resize(index + 1, NO_MEMBER);
        }
        self.members[index] = member;
    }

    fn twin(&mut self, ticket: Ticket, twin: Twin) {
        let index = ticket.index as usize;
        if self.twins.len() <= index {
            self.twins.resize(index + 1, NO_TWIN);
        }
        self.twins[index] = twin;
    }

    /// The real request of a ticket, if that is not stale.
    fn twin_of(&mut self, ticket: Ticket) -> Option<&mut Twin> {
        self.twins.get_mut(ticket.index as usize).filter(|twin| twin.generation == ticket.generation)
    }

    /// Lets everything happen that is due by `now`. `real` are the classes of the real engine.
    fn advance(&mut self, now: Time, real: &mut Classes) {
        let mut steps = 0;
        loop {
            let ends = self.servers.next().filter(|(at, _)| *at <= now);
            let timer = self.engine.next_timeout().filter(|at| *at <= now && steps < MAX_STEPS);
            let at = match (ends, timer) {
                (Some((at, machine)), timer) if timer.is_none_or(|timer| at <= timer) => {
                    if let Some(index) = self.servers.finish(at, machine) {
                        let ticket = self.engine.tickets.ticket(index);
                        self.engine.observe(at, ticket, Outcome::LastByte { status: 200 });
                    }
                    at
                }
                (_, Some(timer)) => {
                    steps += 1;
                    timer
                }
                (_, None) => break,
            };
            self.settle(at, real);
        }
    }

    /// Carries out the actions of the shadow's engine.
    fn settle(&mut self, now: Time, real: &mut Classes) {
        while let Some(action) = self.engine.poll(now) {
            match action {
                Action::Release { ticket, node, .. } => self.released(now, ticket, node),
                Action::Shed { ticket, shed, .. } => {
                    // The entry is free, but it is not used again yet.
                    let entry = &self.engine.tickets[ticket.index];
                    let arrival = Arrival {
                        class: entry.class,
                        flow: entry.flow,
                        demand: Some(entry.demand),
                        locality_key: entry.locality_key,
                        position: 0,
                        token: 0,
                    };
                    self.refused(now, arrival, self.members[ticket.index as usize], shed, real);
                }
            }
        }
    }

    /// A request arrives in the shadow.
    fn offer(&mut self, now: Time, arrival: Arrival, member: Member, real: &mut Classes) {
        match self.engine.arrive(now, arrival) {
            Decision::Release { ticket, node } => {
                self.accepted(ticket, member);
                self.released(now, ticket, node);
            }
            Decision::Wait { ticket } => self.accepted(ticket, member),
            Decision::Shed(shed) => self.refused(now, arrival, member, shed, real),
        }
    }

    fn accepted(&mut self, ticket: Ticket, member: Member) {
        self.put(ticket, member);
        if let Some(twin) = self.twin_of(member.twin) {
            twin.member = ticket;
        }
    }

    fn released(&mut self, now: Time, ticket: Ticket, node: NodeId) {
        let member = &mut self.members[ticket.index as usize];
        member.machine = self.engine.nodes.nodes[node].machine;
        let Member { twin, work, machine, refused, .. } = *member;
        self.servers.enter(now, machine, ticket.index, work);
        if let Some(twin) = self.twin_of(twin) {
            twin.would = refused.map_or(Would::Release, Would::Degrade);
        }
    }

    /// The shadow refuses a request. One that has really passed then arrives as one of the fallback class. One that is
    /// enforced does so in reality, if that refuses it as well.
    fn refused(&mut self, now: Time, arrival: Arrival, member: Member, shed: Shed, real: &mut Classes) {
        if member.observed {
            let class = real.counterpart(&self.engine.classes, arrival.class);
            real[class].observed.would_shed(now, shed.reason);
            if let (Some(class), None) = (shed.fallback, member.refused) {
                let member = Member { refused: Some(shed.reason), ..member };
                return self.offer(now, Arrival { class, ..arrival }, member, real);
            }
        }
        if let Some(twin) = self.twin_of(member.twin) {
            (twin.member, twin.would) = (NOBODY, Would::Shed(shed.reason));
        }
    }

    /// A real request is over. So is its twin, unless that waits for nodes that have already served the real one.
    fn ended(&mut self, now: Time, ticket: Ticket, outcome: Outcome, served: bool) {
        let Some(twin) = self.twin_of(ticket) else { return };
        let member = core::mem::replace(&mut twin.member, NOBODY);
        if let Some(index) = self.engine.tickets.find(member, State::InFlight) {
            self.servers.remove(now, self.members[index as usize].machine, index, served);
            let outcome = match outcome {
                Outcome::Failed { .. } => Outcome::Failed { retryable: false },
                outcome => outcome,
            };
            self.engine.observe(now, member, outcome);
        } else if outcome == Outcome::Reset {
            self.engine.cancel(now, member);
        }
    }

    /// Puts a new policy in force.
    fn reconfigure(&mut self, now: Time, policy: &Policy) -> Result<(), InvalidPolicy> {
        let in_flight = |shadow: &Shadow| -> Vec<u32> {
            let entries = shadow.engine.tickets.entries.iter().enumerate();
            entries.filter(|(_, entry)| entry.state == State::InFlight).map(|(index, _)| index as u32).collect()
        };
        for index in in_flight(self) {
            let Member { machine, work, .. } = self.members[index as usize];
            let left = self.servers.left(now, machine, index);
            self.members[index as usize].work = if left > 0.0 { left } else { work };
        }
        self.engine.reconfigure(now, enforced(policy))?;
        self.servers = Servers::new(now, capacities(&self.engine).into_iter());
        // Classes may have other numbers now.
        self.spreads = vec![Spread::UNKNOWN; self.engine.classes.specs.len()];
        for index in in_flight(self) {
            let (ticket, node) = (self.engine.tickets.ticket(index), self.engine.tickets[index].node);
            if node == NodeId::NONE {
                // Its node is gone.
                self.engine.observe(now, ticket, Outcome::Reset);
            } else {
                self.released(now, ticket, node);
            }
        }
        Ok(())
    }
}

impl Classes {
    /// The class that corresponds to one of `others`, which were made from the same policy.
    fn counterpart(&self, others: &Classes, class: ClassId) -> ClassId {
        match &others[class].made {
            Some(made) => self.known(made.template, &made.key),
            None => class,
        }
    }
}

impl Engine {
    /// What would have happened to a request in flight that passed because its class is observed. `None` if it did
    /// not pass.
    pub fn would(&self, ticket: Ticket) -> Option<Would> {
        let index = self.tickets.find(ticket, State::InFlight)?;
        let twin = self.shadow.as_ref()?.twins.get(index as usize)?;
        (twin.generation == ticket.generation && twin.observed).then_some(twin.would)
    }

    /// Nanoseconds of service of a request. A class that has not been measured costs as much as is assumed elsewhere.
    fn work(&self, class: ClassId, demand: Demand) -> f64 {
        if self.policy.is_priced() {
            return f64::from(demand.dominant());
        }
        let known = self.classes.service_time(class).or_else(|| self.classes[class].expected.seconds());
        // At least one nanosecond, so that every request takes time.
        (known.unwrap_or(ASSUMED_COMPUTE) * 1e9).max(1.0)
    }

    fn machine_of(&self, node: NodeId) -> Option<MachineId> {
        (node != NodeId::NONE).then(|| self.nodes.nodes[node].machine)
    }

    /// Runs the shadow up to `now`.
    fn catch_up(&mut self, now: Time) {
        if let Some(shadow) = &mut self.shadow {
            shadow.advance(now, &mut self.classes);
        }
    }

    /// [`Engine::arrive`] with a shadow.
    #[cold]
    pub(crate) fn arrive_beside(&mut self, now: Time, class: ClassId, arrival: &Arrival) -> Decision {
        self.catch_up(now);
        let observed = !self.classes.spec(class).mode.enforces(arrival.position);
        let decision = match observed {
            true => self.arrive_observed(now, class, arrival),
            false => self.arrive_enforced(now, class, arrival),
        };
        let work = self.work(class, self.demanded(class, arrival.demand).0);
        // Without a node nothing is observed: the request was refused.
        let served = self.nodes.usable(self.classes[class].partition) > 0;
        let Some(mut shadow) = self.shadow.take() else { return decision };
        let twin = match decision {
            Decision::Release { ticket, .. } | Decision::Wait { ticket } => {
                let generation = ticket.generation;
                shadow.twin(ticket, Twin { generation, observed, ..NO_TWIN });
                ticket
            }
            Decision::Shed(_) => NOBODY,
        };
        if let Decision::Release { node, .. } = decision {
            self.carries(&mut shadow, now, node);
        }
        if served {
            let class = match &self.classes[class].made {
                Some(made) => shadow.engine.class(now, made.template, &made.key),
                None => class,
            };
            let spec = shadow.engine.classes[class].spec as usize;
            let ratio = if self.policy.is_priced() { 1.0 } else { shadow.spreads[spec].draw(&mut shadow.random) };
            let work = (work * ratio).max(1.0);
            let arrival = Arrival { class, ..*arrival };
            shadow.offer(now, arrival, Member { twin, work, observed, ..NO_MEMBER }, &mut self.classes);
            shadow.settle(now, &mut self.classes);
        }
        self.shadow = Some(shadow);
        decision
    }

    /// The next action with a shadow.
    #[cold]
    pub(crate) fn next_beside(&mut self, now: Time) -> Option<Action> {
        self.catch_up(now);
        let mut action = None;
        while action.is_none() {
            let Some(ticket) = self.shadow.as_mut().and_then(|shadow| shadow.to_pass.pop()) else { break };
            action = self.pass_waiting(now, ticket);
        }
        let action = action.or_else(|| self.next_action(now));
        if let Some(Action::Release { node, .. }) = action
            && let Some(mut shadow) = self.shadow.take()
        {
            self.carries(&mut shadow, now, node);
            self.shadow = Some(shadow);
        }
        action
    }

    /// [`Engine::observe`] with a shadow.
    #[cold]
    pub(crate) fn observe_beside(&mut self, now: Time, ticket: Ticket, outcome: Outcome) -> Option<NodeId> {
        self.catch_up(now);
        let entry = &self.tickets[ticket.index];
        let (class, node, holding) = (entry.class, entry.node, now.since(entry.released).as_secs_f64());
        let work = self.work(class, entry.demand);
        let again = self.carry_out(now, ticket.index, outcome);
        let is_over = self.tickets.find(ticket, State::InFlight).is_none();
        let machine = self.machine_of(node);
        let Some(mut shadow) = self.shadow.take() else { return again };
        if is_over {
            let served = matches!(outcome, Outcome::LastByte { status: 0..500 } | Outcome::Upgraded);
            // Machines share their time. So a request that ends early has used its part of the usual time.
            let usual = self.classes[class].expected.seconds().filter(|_| !served);
            let part = usual.map_or(1.0, |usual| (holding / usual).min(1.0));
            shadow.ended(now, ticket, outcome, served);
            if let (true, Some(mean), Some(service)) =
                (served, self.classes[class].expected.seconds(), self.classes.service_time(class))
            {
                shadow.spreads[self.classes[class].spec as usize].add(holding, mean, service);
            }
            if let Some(machine) = machine {
                shadow.servers.answered(now, machine, work * part, served);
            }
        }
        for node in [Some(node), again].into_iter().flatten() {
            self.carries(&mut shadow, now, node);
        }
        shadow.settle(now, &mut self.classes);
        self.shadow = Some(shadow);
        again
    }

    /// [`Engine::cancel`] with a shadow.
    #[cold]
    pub(crate) fn cancel_beside(&mut self, now: Time, ticket: Ticket) {
        self.catch_up(now);
        if let Some(shadow) = &mut self.shadow {
            shadow.ended(now, ticket, Outcome::Reset, false);
            shadow.settle(now, &mut self.classes);
        }
    }

    /// Tells the shadow about figures of a node. Its state follows in [`Engine::nodes_changed_beside`].
    #[cold]
    pub(crate) fn node_beside(&mut self, now: Time, event: NodeEvent) {
        self.catch_up(now);
        if let Some(shadow) = &mut self.shadow
            && matches!(event, NodeEvent::Capacity(..))
        {
            shadow.engine.node(now, event);
            for (machine, capacity) in shadow.engine.nodes.machine_ids().zip(capacities(&shadow.engine)) {
                shadow.servers.set_capacity(now, machine, capacity);
            }
            shadow.settle(now, &mut self.classes);
        }
    }

    /// Tells the shadow which nodes are usable.
    #[cold]
    pub(crate) fn nodes_changed_beside(&mut self) {
        let now = self.now;
        self.catch_up(now);
        let Some(shadow) = &mut self.shadow else { return };
        for (index, node) in self.nodes.nodes.pairs() {
            if shadow.engine.nodes.nodes[index].usable() != node.usable() {
                let event = if node.usable() { NodeEvent::Up(index) } else { NodeEvent::Down(index) };
                shadow.engine.node(now, event);
            }
        }
        shadow.settle(now, &mut self.classes);
    }

    /// Tells the shadow how many requests are in flight on the machine of a node.
    fn carries(&self, shadow: &mut Shadow, now: Time, node: NodeId) {
        if let Some(machine) = self.machine_of(node) {
            shadow.servers.carries(now, machine, self.nodes.on(machine));
        }
    }

    /// The shadow for a new policy, if it needs one. Nothing of the policy is in force yet.
    pub(crate) fn shadow_for(&mut self, now: Time, policy: &Policy) -> Option<Box<Shadow>> {
        self.catch_up(now);
        let running = self.shadow.take();
        // A shadow that begins knows all that the real engine has learned.
        policy.observes().then(|| running.unwrap_or_else(|| Box::new(Shadow::of(self.clone()))))
    }

    /// Puts the policy in force for the shadow, too, after the real engine.
    pub(crate) fn resume_shadow(&mut self, now: Time, mut shadow: Box<Shadow>) {
        // The policy is valid, as the real engine took it.
        if shadow.reconfigure(now, &self.policy).is_err() {
            return;
        }
        shadow.to_pass = self.to_pass().rev().collect();
        for at in 0..shadow.to_pass.len() {
            let ticket = shadow.to_pass[at];
            let Some(twin) = shadow.twin_of(ticket) else { continue };
            twin.observed = true;
            let member = twin.member;
            if shadow.engine.tickets.find(member, State::Waiting).is_some() {
                shadow.members[member.index as usize].observed = true;
            }
        }
        for machine in self.nodes.machine_ids() {
            shadow.servers.carries(now, machine, self.nodes.on(machine));
        }
        self.shadow = Some(shadow);
        self.nodes_changed_beside();
    }
}
