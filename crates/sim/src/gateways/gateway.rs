//! One gateway: its engine, its member, and its clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weirgate_emulator::random::Random;
use weirgate_engine::{
    Action, Arrival, Beside, Class, ClassId, Decision, Demand as Shares, Discipline, Engine, Guarantee, LearnedClass,
    LearnedTimes, Lease, Node, NodeId, Outcome, Part, Policy, Pool, ResponseTime, Statistic, Ticket, Time,
};
use weirgate_site::{Demand, Grant, GroupShare, Member, Report, Site, Usage};

use super::{Fault, SECOND, World};

/// Time over which arrivals are counted, in nanoseconds, as gateways do.
pub(super) const INTERVAL: u64 = 25_000_000;

/// Patience of the clients of both classes, in nanoseconds.
const PATIENCE: [u64; 2] = [SECOND, 4 * SECOND];

struct Request {
    class: usize,
    sent: u64,
    ticket: Ticket,
    node: Option<usize>,
}

pub(super) struct Gateway {
    pub(super) is_away: bool,
    /// When its process began.
    pub(super) began: u64,
    engine: Engine,
    member: Member,
    incarnation: u64,
    demand: Demand,
    asked: u64,
    usage: Usage,
    /// Ejected nodes that the engine was told of.
    ejected: Vec<String>,
    /// The last parts that the engine has.
    parts: Option<(Lease, [u64; 3])>,
    requests: BTreeMap<u64, Request>,
    /// Ids, with the gateway above bit 40.
    next_id: u64,
    random: Random,
    /// The load until the next request of each class.
    left: [f64; 2],
}

fn engine(world: &World<'_>, seed: u64) -> Engine {
    let plan = world.plan;
    let limit = plan.limit.map(|limit| ResponseTime { statistic: Statistic::Percentile(95.0), limit });
    let guarantee = Guarantee { throughput: Some(plan.floor), response_time: limit };
    let class = |name, guarantee| Class { guarantee, service_time: plan.declared, ..Class::best_effort(name, 0) };
    let classes = vec![class("gold", guarantee), class("rest", Guarantee::default())];
    let nodes = (0..plan.nodes).map(|node| Node::new(format!("n{node}"), 0)).collect();
    let mut policy = Policy::of_one_pool(Discipline::weirgate(), Pool::new("web"), nodes, classes);
    if plan.page.is_some() {
        policy.resources = ["cpu", "disk"].map(String::from).to_vec();
    }
    Engine::new(Time::from_nanos(world.now), policy, seed).expect("a policy")
}

impl Gateway {
    pub(super) fn new(world: &World<'_>, index: usize, seed: u64, agreed: Arc<Site>) -> Gateway {
        let seed = seed.wrapping_mul(1_000).wrapping_add(index as u64);
        let mut member = Member::new(agreed, 1);
        member.follow(1);
        let mut random = Random::new(seed);
        Gateway {
            is_away: false,
            began: world.now,
            engine: engine(world, seed),
            member,
            incarnation: 1,
            demand: Demand::default(),
            asked: 0,
            usage: Usage::default(),
            ejected: Vec::new(),
            parts: None,
            requests: BTreeMap::new(),
            next_id: (index as u64) << 40,
            left: [random.exponential(), random.exponential()],
            random,
        }
    }

    /// It is killed, or another process begins.
    pub(super) fn turn(&mut self, world: &mut World<'_>, index: usize, seed: u64, agreed: &Arc<Site>, away: bool) {
        for (id, request) in &self.requests {
            if let Some(node) = request.node {
                world.nodes[node].remove(*id);
            }
        }
        let (incarnation, next_id) = (self.incarnation + 1, self.next_id);
        *self = Gateway::new(world, index, seed.wrapping_add(incarnation), Arc::clone(agreed));
        self.member = Member::new(Arc::clone(agreed), incarnation);
        self.member.follow(1);
        (self.incarnation, self.next_id, self.is_away) = (incarnation, next_id, away);
        self.pass_on(world);
    }

    pub(super) fn window(&self) -> f64 {
        self.engine.window_uses().iter().map(|used| used.base).sum()
    }

    pub(super) fn due(&self) -> Option<u64> {
        if self.is_away { None } else { self.engine.next_timeout().map(Time::as_nanos) }
    }

    /// Sends the requests of the last step.
    pub(super) fn offer(&mut self, world: &mut World<'_>, index: usize) {
        let (plan, step) = (world.plan, super::STEP as f64 / SECOND as f64);
        let turn = world.now / plan.moves.as_nanos() as u64;
        let part = |of: usize| plan.parts[(of + turn as usize) % plan.parts.len()];
        let count = plan.gateways;
        let before = (index + count - 1) % count;
        let running = (0..count).filter(|of| !world.is(Fault::Killed, *of)).count();
        let mut own = if count == 1 { plan.parts.iter().sum() } else { part(index) };
        if before != index && world.is(Fault::Killed, before) {
            own += part(before);
        }
        let loads = [own * plan.load[0], plan.load[1] / running.max(1) as f64];
        if self.is_away {
            return;
        }
        for (class, load) in loads.into_iter().enumerate() {
            self.left[class] -= load * step;
            while self.left[class] < 0.0 {
                self.left[class] += self.random.exponential();
                self.arrive(world, class);
            }
        }
        self.give_up(world);
        self.settle(world, world.now);
    }

    fn arrive(&mut self, world: &mut World<'_>, class: usize) {
        let now = Time::from_nanos(world.now);
        self.next_id += 1;
        let id = self.next_id;
        if class == 0 && world.counts() {
            world.outcome.sent += 1.0;
            // Until it is answered in time.
            world.outcome.missed += 1.0;
        }
        let plan = world.plan;
        let [cpu, disk] = plan.seconds(class);
        let arrival = Arrival {
            class: ClassId(class as u32),
            flow: id,
            demand: plan.page.map(|_| Shares::of_shares(&[cpu / f64::from(plan.cpus), disk])),
            locality_key: None,
            position: 0,
            token: id,
        };
        let (ticket, node) = match self.engine.arrive(now, arrival) {
            Decision::Release { ticket, node } => (ticket, Some(node)),
            Decision::Wait { ticket } => (ticket, None),
            Decision::Shed(_) => return,
        };
        self.requests.insert(id, Request { class, sent: world.now, ticket, node: None });
        if let Some(node) = node {
            self.release(world, id, node);
        }
    }

    fn release(&mut self, world: &mut World<'_>, id: u64, node: NodeId) {
        let node = node.0 as usize;
        let flaky = world.is(Fault::Flaky, node) && world.random.unit() < 0.3;
        if flaky || world.is(Fault::Failing, node) {
            let Some(request) = self.requests.remove(&id) else { return };
            world.outcome.failed += f64::from(u8::from(world.counts()));
            self.engine.observe(Time::from_nanos(world.now), request.ticket, Outcome::LastByte { status: 503 });
        } else if let Some(request) = self.requests.get_mut(&id) {
            request.node = Some(node);
            world.arrive(node, id, request.class);
        }
    }

    /// Carries out what the engine decides at `at`.
    pub(super) fn settle(&mut self, world: &mut World<'_>, at: u64) {
        while let Some(action) = self.engine.poll(Time::from_nanos(at)) {
            match action {
                Action::Release { token, node, .. } => self.release(world, token, node),
                Action::Shed { token, .. } => drop(self.requests.remove(&token)),
            }
        }
    }

    /// Clients whose patience has ended leave.
    fn give_up(&mut self, world: &mut World<'_>) {
        let is_late =
            |(id, request): (&u64, &Request)| (world.now > request.sent + PATIENCE[request.class]).then_some(*id);
        let late: Vec<u64> = self.requests.iter().filter_map(is_late).collect();
        let now = Time::from_nanos(world.now);
        for id in late {
            let Some(request) = self.requests.remove(&id) else { continue };
            match request.node {
                Some(node) => {
                    world.nodes[node].remove(id);
                    self.engine.observe(now, request.ticket, Outcome::Reset);
                }
                None => drop(self.engine.cancel(now, request.ticket)),
            }
        }
    }

    pub(super) fn answered(&mut self, world: &mut World<'_>, id: u64, at: u64) {
        let Some(request) = self.requests.remove(&id) else { return };
        self.engine.observe(Time::from_nanos(at), request.ticket, Outcome::LastByte { status: 200 });
        let seconds = at - request.sent;
        let limit = world.plan.limit.map_or(PATIENCE[0], |limit| limit.as_nanos() as u64);
        let is_good = seconds <= if request.class == 0 { limit } else { PATIENCE[1] };
        if is_good && request.sent >= world.plan.length.as_nanos() as u64 / 3 {
            world.outcome.good_per_s += 1.0;
            if request.class == 0 {
                world.outcome.missed -= 1.0;
                world.outcome.seconds += seconds as f64 / SECOND as f64;
            }
        }
        self.settle(world, at);
    }

    /// Measures demand and the use of windows when it is due, and returns a report.
    pub(super) fn report(&mut self, world: &World<'_>) -> Option<Report> {
        if self.is_away {
            return None;
        }
        let now = Time::from_nanos(world.now);
        if world.now.is_multiple_of(INTERVAL) {
            let asked = self.engine.asked(ClassId(0));
            let interval = Duration::from_nanos(INTERVAL);
            self.demand.note(asked - self.asked, self.member.share(now, 0), interval);
            self.asked = asked;
            self.member.demand(0, self.demand.micro_per_s(interval));
            self.member.ejected(self.engine.ejected().map(|[_, node]| node.to_owned()));
            if world.plan.shares_windows {
                let uses = self.usage.note(&self.engine.window_uses(), interval);
                self.member.windows(now, uses);
            }
        }
        self.member.poll_report(now)
    }

    pub(super) fn granted(&mut self, world: &mut World<'_>, grant: Grant) {
        // A refused message is as good as a lost one.
        let _ = self.member.granted(Time::from_nanos(world.now), grant);
        self.pass_on(world);
    }

    /// What it has learned of classes, as it tells other gateways.
    pub(super) fn costs(&self, world: &World<'_>) -> Vec<LearnedClass> {
        self.engine.learned_classes(Time::from_nanos(world.now), ClassId(0), 2).0
    }

    /// Takes over what another gateway has learned of classes, as far as it has no estimates of its own.
    pub(super) fn take_over(&mut self, world: &mut World<'_>, costs: &[LearnedClass]) {
        // The load of the other one is not the own.
        let alone = |cost: &LearnedClass| {
            let times = cost.times.map(|times| LearnedTimes { arrivals_per_s: 0.0, ..times });
            LearnedClass { rate_full_in: Duration::ZERO, times, ..cost.clone() }
        };
        let costs: Vec<LearnedClass> = costs.iter().map(alone).collect();
        self.engine.adopt_classes(Time::from_nanos(world.now), &costs, Duration::ZERO);
        self.settle(world, world.now);
    }

    /// Passes shares that have changed on to the engine.
    fn pass_on(&mut self, world: &mut World<'_>) {
        let now = Time::from_nanos(world.now);
        let lease = self.member.ends();
        let lease = lease.map_or(Lease::ENDED, |(granted, safe)| Lease { granted_until: granted, safe_until: safe });
        let steps = self.member.steps(0);
        if self.parts != Some((lease, steps)) {
            self.parts = Some((lease, steps));
            let [granted, safe, least] = steps.map(|amount| amount as f64 / 1e6);
            self.engine.keep_parts(now, lease, &[(ClassId(0), Part { granted, safe, least })]);
        }
        let shares = self.member.take_windows();
        if !shares.is_empty() {
            let beside: Vec<Beside> = shares.iter().map(GroupShare::beside).collect();
            self.engine.beside(now, now + world.windows_last, &beside);
        }
        let ejected = self.member.ejected_at_site(now);
        if world.plan.shares_health && ejected != self.ejected {
            self.ejected = ejected.to_vec();
            self.engine.ejected_elsewhere(|[_, node]| ejected.iter().any(|name| name == node));
        }
        self.settle(world, world.now);
    }
}
