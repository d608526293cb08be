//! A model of everything that a driver may observe of the engine, and random operations against it.
//!
//! The model knows which requests wait and which are in flight, and nothing about the engine's decisions. After every
//! operation it checks conservation. After every drain it checks that no slot is idle while a request that could use
//! it waits.

mod sources;

use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_engine::*;

/// Maximum wait of every class, in nanoseconds.
const MAX_WAIT: u64 = 2_000_000_000;

/// Number of variants of the policy.
pub const VARIANTS: u64 = 4320;

/// Source of the numbers: a seed in tests, bytes in the fuzzer.
pub trait Source {
    /// Returns a number below `n`, or `None` at the end.
    fn below(&mut self, n: u64) -> Option<u64>;
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    token: u64,
    state: State,
    arrived: u64,
    /// Its class and source.
    from: (ClassId, u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    InFlight(NodeId),
}

/// The engine and a driver's knowledge of it.
pub struct Model {
    engine: Engine,
    now: u64,
    next_token: u64,
    requests: BTreeMap<Ticket, Request>,
    /// Tickets of requests that have ended.
    stale: Vec<Ticket>,
    counted: Counted,
    /// Whether a reload may have changed the classes of requests.
    reloaded: bool,
    /// Whether the engine had nothing more to do before the present operation.
    drained: bool,
    /// Events in order.
    pub trace: Vec<String>,
}

#[derive(Default, Debug, PartialEq)]
struct Counted {
    offered: u64,
    ended: u64,
}

/// Returns a policy that uses every extension point. `variant` selects the methods and the classes and nodes that
/// exist.
pub fn policy(variant: u64) -> Policy {
    let class = |name: &str, pool, throughput, limit: Option<u64>, waiting| Class {
        guarantee: Guarantee {
            throughput,
            response_time: limit.map(|limit| ResponseTime {
                statistic: if limit.is_multiple_of(2) { Statistic::Average } else { Statistic::Percentile(95.0) },
                limit: Duration::from_millis(limit),
            }),
        },
        content: if name < "B" { Content::Static } else { Content::Dynamic },
        service_time: (limit == Some(300)).then(|| Duration::from_millis(20)),
        queue: QueueBounds {
            max_waiting: waiting,
            max_waiting_per_flow: 3,
            max_wait: Duration::from_nanos(MAX_WAIT),
            ..QueueBounds::default()
        },
        utility: 1.0 + waiting as f64,
        weight: 1.0 + waiting as f64,
        demand: Demand::of_shares(&[0.2, 0.1]),
        ..Class::best_effort(name, pool)
    };
    let mut digits = variant;
    let mut digit = |base: u64| {
        let digit = digits % base;
        digits /= base;
        digit
    };
    let switches = variant / 2160 == 1;
    // Seven has no factor in common with the bases of the digits, so all combinations occur.
    let reserves = variant % 7 < 2;
    // The same holds for eleven.
    let (priced, shared) = (variant % 11 < 4, variant % 11 < 2);
    let admit = match digit(5) {
        0 if switches => Admit::ServerLoad(ServerLoad { threshold: 2.0, omega: 1.5, source: LoadSource::Live }),
        1 if switches => {
            let source = LoadSource::Reports { every: Duration::from_secs(1) };
            Admit::ServerLoad(ServerLoad { threshold: 2.0, omega: 1.5, source })
        }
        0 => Admit::None,
        1 => Admit::Deadline { stale: StaleEstimate::Decay },
        2 => Admit::Predict(Predict::default()),
        3 => Admit::Thresholds { queue: 4 },
        _ => Admit::Deadline { stale: StaleEstimate::Hold },
    };
    let load_control = match digit(6) {
        0 => LoadControl::Fixed { window: Some(4) },
        1 => LoadControl::Fixed { window: None },
        2 => LoadControl::WindowAdaptive(Adaptive::default()),
        5 => LoadControl::Slots { per_cpu: 1.0 },
        3 => LoadControl::WindowLinear { delta: 2, first: 6, min: 1, max: 40, grow: Grow::Always },
        _ => LoadControl::WindowLinear { delta: 1, first: 3, min: 2, max: 9, grow: Grow::WhileFull },
    };
    let tokens = |infeasible| Precedence::Tokens(Tokens { infeasible, ..Tokens::default() });
    let precedence = match digit(6) {
        0 => Precedence::WeightedFair,
        1 => Precedence::Fifo,
        2 => tokens(Infeasible::Proportional),
        3 => Precedence::Priority,
        4 => Precedence::Reenqueue,
        _ => tokens(Infeasible::Utility),
    };
    let (spread, two, templated) = (digit(3), digit(2) == 0, digit(2) == 0);
    let mut priorities = PriorityLevel::seda();
    priorities[0].handle = [Handle::Never, Handle::Highest, Handle::Chance(0.3)][(variant % 3) as usize];
    priorities[1].beyond = 0.5;
    priorities[2].quota = Some(3);
    let resize = Resize { every: Duration::from_secs(1), busy: 0.8 };
    let dispatch = match (&load_control, switches) {
        _ if shared => [Dispatch::LeastOutstanding; 3],
        _ if reserves => {
            let lard = |idle, max_keys| Dispatch::Lard(Lard { idle, overload: 3.0, miss_cost: 2.0, max_keys });
            [Dispatch::LeastLoaded { avoid_last: switches }, lard(1.0, 3), lard(0.0, 1)]
        }
        (LoadControl::WindowAdaptive(_), _) | (_, false) => {
            [Dispatch::LeastOutstanding, Dispatch::WeightedRoundRobin, Dispatch::PowerOfTwo]
        }
        _ => [
            Dispatch::PartitionDynamic { sizes: None, resize },
            Dispatch::PartitionStatic { sizes: Some([1.0, 2.0, 1.0, 2.0]) },
            Dispatch::PartitionDynamic { sizes: Some([1.0; 4]), resize },
        ],
    };
    let pool = |name: &str, shift| Pool {
        name: name.into(),
        dispatch: dispatch[((spread + shift) % 3) as usize],
        ejection: Ejection { consecutive_failures: 2, base: Duration::from_millis(300), max_share: 0.5 },
        slow_start: Duration::from_millis(if variant % 13 < 6 { 700 } else { 0 }),
    };
    let node = |pool: usize, n: u64, max_outstanding| Node {
        machine: format!("m{n}"),
        weight: 1.0 + n as f64,
        max_outstanding,
        ..Node::new(format!("n{n}"), pool)
    };
    let mut nodes = vec![node(0, 0, None), node(0, 1, Some(2)), node(0, 2, None), node(1, 0, Some(1))];
    let mut classes = vec![class("A", 0, Some(20.0), Some(300), 5), class("B", 0, Some(5.0), Some(401), 4)];
    if two {
        nodes.push(node(1, 7, None));
        classes.push(class("C", 1, Some(10.0), None, 3));
    } else {
        nodes.remove(1);
    }
    classes.push(class("other", 1, None, None, 4));
    classes[0].priority = 2;
    classes[0].fallback = two.then_some(classes.len() - 1);
    let templates = if templated {
        vec![Template { class: class("tenant", 0, Some(1.0), Some(300), 2), max_live: 3 }]
    } else {
        Vec::new()
    };
    let (load_control, precedence) = match variant % 11 {
        _ if !shared => (load_control, precedence),
        first => {
            let only = variant.is_multiple_of(5).then_some(1);
            let figures = Availability { only, ..Availability::default() };
            let precedence = if first == 0 { Precedence::Mdrr } else { Precedence::Drfq };
            (LoadControl::ResourceAvailability(figures), precedence)
        }
    };
    Policy {
        discipline: Discipline { name: "custom".into(), priorities, admit, load_control, precedence },
        pools: vec![pool("p0", 0), pool("p1", 1)],
        nodes,
        classes,
        templates,
        max_waiting: 12,
        estimated: variant.is_multiple_of(7),
        resources: if priced { vec!["cpu".into(), "disk".into()] } else { Vec::new() },
    }
}

impl Model {
    pub fn new(variant: u64, seed: u64) -> Model {
        let engine = Engine::new(Time::ZERO, policy(variant), seed).expect("a valid policy");
        Model {
            engine,
            now: 0,
            next_token: 0,
            requests: BTreeMap::new(),
            stale: Vec::new(),
            counted: Counted::default(),
            reloaded: false,
            drained: true,
            trace: Vec::new(),
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    /// Executes one random operation. Returns `None` when the source has run dry.
    pub fn step(&mut self, source: &mut impl Source) -> Option<()> {
        match source.below(20)? {
            0..=6 => self.arrive(source)?,
            7 => self.cancel(source)?,
            8..=13 => self.observe(source)?,
            14 => self.node(source)?,
            15..=17 => self.now += source.below(200_000_000)?,
            18 => self.stale(source)?,
            _ if source.below(8)? == 0 => self.reconfigure(source)?,
            _ => {
                if let Some(at) = self.engine.next_timeout() {
                    self.now = self.now.max(at.as_nanos());
                }
            }
        }
        self.check();
        // A driver polls after every call. This one is sometimes late.
        self.drained = source.below(10)? > 0;
        if self.drained {
            self.drain();
        }
        Some(())
    }

    fn arrive(&mut self, source: &mut impl Source) -> Option<()> {
        let policy = self.engine.policy();
        let (named, templates) = (policy.classes.len() as u64, policy.templates.len() as u64);
        let class = if templates > 0 && source.below(3)? == 0 {
            let key = [b'k', source.below(6)? as u8];
            self.engine.class(self.time(), TemplateId(0), &key)
        } else {
            ClassId(source.below(named)? as u32)
        };
        self.next_token += 1;
        let token = self.next_token;
        let (locality_key, flow) = (source.below(7)?.checked_sub(1), source.below(4)?);
        let demand = match flow {
            0 => None,
            _ => Some(Demand::of_shares(&[source.below(12)? as f64 / 10.0, source.below(9)? as f64 / 10.0])),
        };
        let arrival = Arrival { class, flow, demand, locality_key, position: 0, token };
        self.counted.offered += 1;
        let before = self.engine.snapshot(self.time());
        let decision = self.engine.arrive(self.time(), arrival);
        self.trace.push(format!("{} {decision:?}", self.now));
        let from = (class, flow);
        match decision {
            Decision::Release { ticket, node } => {
                self.may_enter(&before, ticket, class, node);
                assert!(
                    self.requests
                        .insert(ticket, Request { token, state: State::InFlight(node), arrived: self.now, from })
                        .is_none()
                );
            }
            Decision::Wait { ticket } => {
                let request = Request { token, state: State::Waiting, arrived: self.now, from };
                assert!(self.requests.insert(ticket, request).is_none());
            }
            Decision::Shed(shed) => {
                assert!(shed.retry_after >= Duration::from_secs(1));
                if matches!(shed.reason, ShedReason::QueueFull | ShedReason::TotalFull) && self.drained {
                    self.may_be_refused(from);
                }
                self.counted.ended += 1;
            }
        }
        Some(())
    }

    /// Checks that a release had a usable node with room, and a free slot or a class that needs it for its guarantee.
    fn may_enter(&self, before: &Snapshot, ticket: Ticket, class: ClassId, node: NodeId) {
        let owed = self.engine.is_surplus(ticket) == Some(false);
        let exceeds = || self.classes().iter().any(|state| state.class == class && exceeded(state, owed));
        let room = |group: &MachineGroupSnapshot| has_room(group, owed, 0) || (yields(group, owed) && exceeds());
        assert!(windows(before, node.0).any(room), "no window had room");
        let state = &before.nodes[node.0 as usize];
        assert_eq!(state.state, NodeState::Up, "released to an unusable node");
        let bound = bound(self.engine.policy(), node.0 as usize, state.share);
        assert!(state.outstanding < bound, "released beyond the node's bound");
    }

    fn pick(&self, source: &mut impl Source, waiting: bool) -> Option<Option<(Ticket, Request)>> {
        let of = |r: &Request| (r.state == State::Waiting) == waiting;
        let fitting: Vec<(Ticket, Request)> =
            self.requests.iter().filter(|(_, r)| of(r)).map(|(t, r)| (*t, *r)).collect();
        if fitting.is_empty() {
            return Some(None);
        }
        Some(Some(fitting[source.below(fitting.len() as u64)? as usize]))
    }

    fn end(&mut self, ticket: Ticket) {
        self.requests.remove(&ticket);
        self.counted.ended += 1;
        self.stale.push(ticket);
        if self.stale.len() > 50 {
            self.stale.remove(0);
        }
    }

    fn cancel(&mut self, source: &mut impl Source) -> Option<()> {
        if let Some((ticket, _)) = self.pick(source, true)? {
            assert!(self.engine.cancel(self.time(), ticket), "a waiting request can be cancelled");
            self.end(ticket);
        }
        Some(())
    }

    fn observe(&mut self, source: &mut impl Source) -> Option<()> {
        let Some((ticket, request)) = self.pick(source, false)? else { return Some(()) };
        assert!(!self.engine.cancel(self.time(), ticket), "a request in flight does not wait");
        let outcome = match source.below(12)? {
            0 => Outcome::FirstByte,
            1 => Outcome::Failed { retryable: true },
            2 => Outcome::Failed { retryable: false },
            3 => Outcome::Reset,
            4 => Outcome::Upgraded,
            5 => Outcome::LastByte { status: 503 },
            _ => Outcome::LastByte { status: 200 },
        };
        let again = self.engine.observe(self.time(), ticket, outcome);
        self.trace.push(format!("{} {outcome:?} {again:?}", self.now));
        match again {
            Some(node) => {
                assert_eq!(outcome, Outcome::Failed { retryable: true });
                self.requests.insert(ticket, Request { state: State::InFlight(node), ..request });
            }
            None if outcome == Outcome::FirstByte => {}
            None => self.end(ticket),
        }
        Some(())
    }

    fn node(&mut self, source: &mut impl Source) -> Option<()> {
        let id = NodeId(source.below(self.engine.policy().nodes.len() as u64 + 1)? as u32);
        let event = match source.below(8)? {
            0 | 1 => NodeEvent::Down(id),
            2 => NodeEvent::Draining(id),
            4 => NodeEvent::Resumed(id),
            5 => NodeEvent::Load {
                node: id,
                static_content: source.below(5)? as u32,
                dynamic_content: source.below(5)? as u32,
            },
            3 => NodeEvent::Capacity(id, [2.0, -1.0, f64::NAN, f64::INFINITY][source.below(4)? as usize]),
            _ => NodeEvent::Up(id),
        };
        self.engine.node(self.time(), event);
        Some(())
    }

    /// Checks that tickets of ended requests are ignored, whatever is reported about them.
    fn stale(&mut self, source: &mut impl Source) -> Option<()> {
        if self.stale.is_empty() {
            return Some(());
        }
        let ticket = self.stale[source.below(self.stale.len() as u64)? as usize];
        let before = self.engine.snapshot(self.time());
        assert!(!self.engine.cancel(self.time(), ticket));
        for outcome in [Outcome::FirstByte, Outcome::LastByte { status: 200 }, Outcome::Failed { retryable: true }] {
            assert_eq!(self.engine.observe(self.time(), ticket, outcome), None);
        }
        assert_eq!(self.engine.snapshot(self.time()), before);
        Some(())
    }

    fn reconfigure(&mut self, source: &mut impl Source) -> Option<()> {
        let old = self.engine.policy().clone();
        let new = policy(source.below(VARIANTS)?);
        let mut broken = new.clone();
        broken.classes.clear();
        let before = self.engine.snapshot(self.time());
        assert!(self.engine.reconfigure(self.time(), broken).is_err());
        assert_eq!(self.engine.snapshot(self.time()), before, "an invalid policy changes nothing");
        self.engine.reconfigure(self.time(), new.clone()).expect("a valid policy");
        let name = |policy: &Policy, id: NodeId| {
            policy.nodes.get(id.0 as usize).map(|n| (policy.pools[n.pool].name.clone(), n.name.clone()))
        };
        for request in self.requests.values_mut() {
            if let State::InFlight(node) = &mut request.state {
                let was = name(&old, *node);
                let now = (0..new.nodes.len() as u32).map(NodeId).find(|id| was.is_some() && name(&new, *id) == was);
                *node = now.unwrap_or(NodeId(u32::MAX));
            }
        }
        self.reloaded = true;
        self.counted = Counted { offered: self.requests.len() as u64, ended: 0 };
        Some(())
    }

    /// Executes all actions that the engine returns.
    pub fn drain(&mut self) {
        loop {
            let (before, classes) = (self.engine.snapshot(self.time()), self.classes());
            let Some(action) = self.engine.poll(self.time()) else { break };
            self.trace.push(format!("{} {action:?}", self.now));
            match action {
                Action::Release { ticket, token, node, .. } => {
                    let after = self.engine.snapshot(self.time());
                    let owed = self.engine.is_surplus(ticket) == Some(false);
                    // The same room, one release later.
                    let grew = |now: &ClassSnapshot| {
                        let was = classes.iter().find(|was| was.class == now.class);
                        now.outstanding > was.map_or(0, |was| was.outstanding)
                    };
                    let exceeds = || self.classes().iter().any(|class| grew(class) && exceeded(class, owed));
                    let within =
                        |group: &MachineGroupSnapshot| has_room(group, owed, 1) || (yields(group, owed) && exceeds());
                    assert!(windows(&after, node.0).any(within), "released beyond the window");
                    assert!(before.outstanding + 1 == after.outstanding);
                    let request = self.requests.get_mut(&ticket).expect("an unknown request was released");
                    assert_eq!((request.token, request.state), (token, State::Waiting));
                    request.state = State::InFlight(node);
                    self.may_leave(ticket);
                }
                Action::Shed { ticket, token, shed, .. } => {
                    let request = self.requests.get(&ticket).expect("an unknown request was shed");
                    assert_eq!((request.token, request.state), (token, State::Waiting));
                    if shed.reason == ShedReason::FlowFull {
                        self.may_be_displaced(request);
                    }
                    self.end(ticket);
                }
            }
            self.check();
        }
        self.check_work_conserving();
        let overdue = |r: &&Request| r.state == State::Waiting && self.now - r.arrived > MAX_WAIT;
        assert_eq!(self.requests.values().find(overdue), None, "it waits longer than any queue allows");
        assert!(self.engine.next_timeout().is_none_or(|at| at > self.time()), "a timeout that is due is left");
    }

    fn classes(&self) -> Vec<ClassSnapshot> {
        self.engine.classes(self.time(), ClassId(0), usize::MAX)
    }

    /// Checks that nothing is lost or doubled, and that every count agrees with the model's.
    fn check(&self) {
        let snapshot = self.engine.snapshot(self.time());
        let waiting = self.requests.values().filter(|r| r.state == State::Waiting).count();
        let in_flight = self.requests.len() - waiting;
        assert_eq!((snapshot.waiting as usize, snapshot.outstanding as usize), (waiting, in_flight));
        assert_eq!(self.counted.offered, self.counted.ended + self.requests.len() as u64);
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let on_it = self.requests.values().filter(|r| r.state == State::InFlight(NodeId(index as u32))).count();
            assert_eq!(node.outstanding as usize, on_it, "node {}", node.name);
        }
        self.check_partitions(&snapshot);
        for known in &snapshot.localities {
            assert!(known.keys <= known.max, "{known:?}");
            assert!(u64::from(known.keys) <= known.hits + known.moves + known.new, "{known:?}");
        }
        let classes = self.classes();
        assert_eq!(classes.iter().map(|c| c.waiting as usize).sum::<usize>(), waiting);
        assert_eq!(classes.iter().map(|c| c.outstanding as usize).sum::<usize>(), in_flight);
        assert!(classes.len() <= self.engine.policy().classes.len() + 4 * self.engine.policy().templates.len());
        let share: f64 = classes.iter().map(|c| c.share).sum();
        assert!((share - 1.0).abs() < 1e-9 || share == 0.0, "shares sum to {share}");
    }

    /// Checks that every usable node is in one partition, and that no dynamic partition is empty.
    fn check_partitions(&self, snapshot: &Snapshot) {
        for divided in &snapshot.divided_pools {
            let pool = self.engine.policy().pools.iter().find(|pool| pool.name == divided.pool);
            let dynamic = matches!(pool.expect("a pool").dispatch, Dispatch::PartitionDynamic { .. });
            let usable = snapshot.nodes.iter().filter(|n| n.pool == divided.pool && n.state == NodeState::Up);
            assert_eq!(
                usable.clone().count() as u32,
                divided.partitions.iter().map(|partition| partition.nodes).sum::<u32>()
            );
            for partition in &divided.partitions {
                let members: Vec<_> = usable.clone().filter(|n| n.set == Some(partition.set)).collect();
                assert_eq!(members.len() as u32, partition.nodes);
                let load: f64 = members.iter().map(|n| n.load * n.capacity.unwrap_or(self.weight(n.node))).sum();
                assert!((load - partition.load * partition.cpus).abs() < 1e-6, "{partition:?}: {load}");
                let enough = usable.clone().count() >= divided.partitions.len();
                assert!(partition.nodes > 0 || !enough || !dynamic, "{divided:?}");
            }
        }
    }

    fn weight(&self, node: NodeId) -> f64 {
        self.engine.policy().nodes[node.0 as usize].weight
    }

    /// Checks that after a drain a request waits only for a slot or a node. A request that is not owed may wait as
    /// long as it would keep slots from classes that need them.
    fn check_work_conserving(&self) {
        let snapshot = self.engine.snapshot(self.time());
        let policy = self.engine.policy();
        for class in self.engine.classes(self.time(), ClassId(0), usize::MAX).iter().filter(|c| c.waiting > 0) {
            let mut specs = policy.all_classes();
            let spec = specs.find(|c| c.name == class.name).expect("a live class has a policy");
            let (pool, set) = (spec.pool, ServiceSet::of(spec));
            let room = policy.nodes.iter().zip(&snapshot.nodes).any(|(spec, node)| {
                let serves = spec.pool == pool && node.set.is_none_or(|its| its == set);
                let within = |group: &MachineGroupSnapshot| is_kept_without_need(group, class);
                // Where resources are shared, nodes may lack one, but then they are not all idle.
                let idle = snapshot.resources.is_empty() || all_are_idle(policy, &snapshot, pool);
                serves && node.room && idle && windows(&snapshot, node.node.0).all(within)
            });
            for (index, node) in snapshot.nodes.iter().enumerate() {
                let free = node.state == NodeState::Up && node.outstanding < bound(policy, index, node.share);
                assert!(free || !node.room, "{} is not to be used", node.name);
                // Under one window for all, a node's own bound is the only one.
                assert!(node.room || !free || snapshot.groups.len() > 1 || adaptive(policy), "{} is free", node.name);
            }
            assert!(!room, "{class:?} waits while a slot and a node are free: {snapshot:?}");
        }
    }
}

/// Returns the windows of a node's group: one, or one for each resource.
fn windows(snapshot: &Snapshot, node: u32) -> impl Iterator<Item = &MachineGroupSnapshot> {
    let lines = snapshot.groups.iter().filter(|group| group.resource.as_deref() != Some("disk")).count();
    snapshot.groups.iter().skip(snapshot.nodes[node as usize].group as usize).step_by(lines.max(1))
}

/// Returns whether a window had room for a request, owed or surplus, before `released` releases. Owed requests in
/// flight have a bound of their own, the window or the reach, so that long surplus cannot keep them out. Requests
/// that hang do not count.
fn has_room(group: &MachineGroupSnapshot, owed: bool, released: u32) -> bool {
    let (Some(window), Some(surplus)) = (group.window, group.surplus) else {
        return group.window.is_none_or(|window| group.outstanding < window + released);
    };
    let counted = group.outstanding.saturating_sub(surplus.stuck);
    let of_owed = counted.saturating_sub(surplus.outstanding);
    counted < window + released || (owed && of_owed < window.max(surplus.reach.unwrap_or(0)) + released)
}

/// Returns whether a window may yield to a request, owed or surplus. To surplus only if owed requests alone fill it.
fn yields(group: &MachineGroupSnapshot, owed: bool) -> bool {
    let (Some(window), Some(surplus)) = (group.window, group.surplus) else { return false };
    owed || group.outstanding.saturating_sub(surplus.stuck).saturating_sub(surplus.outstanding) >= window
}

/// Returns whether the last request in flight of a class, owed or surplus, may have exceeded the window. An owed one
/// may if the class needed it for its guarantee, by Little's law, or was within its allowance. Returns true if the
/// service time is unknown, because the model cannot tell.
fn exceeded(class: &ClassSnapshot, owed: bool) -> bool {
    // A class without a guarantee may have earned its requests, which the model does not know.
    let Some(throughput) = class.guarantee.throughput else { return true };
    let need = class.service_time.map_or(f64::INFINITY, |time| throughput * time.as_secs_f64());
    // The engine counts in billionths of a slot, and the smallest need is one of them.
    owed && f64::from(class.outstanding) - 1.0 < need.max(class.allowance.unwrap_or(0.0)).max(1e-9)
}

/// Returns whether a waiting class is kept out of a window without reason. There is a reason for surplus while slots
/// are needed or blocked there, and for a claim beyond the class's allowance once contention has been seen. If the
/// discipline counts no tokens, a class is owed only its part of the window, which the model does not know.
fn is_kept_without_need(group: &MachineGroupSnapshot, class: &ClassSnapshot) -> bool {
    let Some(surplus) = group.surplus else { return has_room(group, true, 0) };
    let owed = class.guarantee.throughput.is_some() && class.tokens.is_some_and(|tokens| tokens >= 1.0);
    let claims = owed
        && (surplus.reach.is_some()
            || class.allowance.is_none_or(|allowance| f64::from(class.outstanding) < allowance));
    has_room(group, owed, 0) && (claims || surplus.needed + surplus.blocked < 1e-6)
}

/// Returns whether the machines of a pool's usable nodes have no request in flight.
fn all_are_idle(policy: &Policy, snapshot: &Snapshot, pool: usize) -> bool {
    let nodes = || policy.nodes.iter().zip(&snapshot.nodes);
    let usable = |machine: &str| {
        nodes().any(|(spec, node)| spec.pool == pool && spec.machine == machine && node.state == NodeState::Up)
    };
    nodes().filter(|(spec, _)| usable(&spec.machine)).all(|(_, node)| node.outstanding == 0)
}

/// Returns the maximum number of requests in flight on a node.
fn bound(policy: &Policy, node: usize, share: f64) -> u32 {
    let spec = &policy.nodes[node];
    let own = spec.max_outstanding.unwrap_or(u32::MAX);
    let slots = policy.max_in_flight(node).min(own);
    if slots == u32::MAX { slots } else { (f64::from(slots) * share).ceil() as u32 }
}

/// Returns whether load control bounds the requests per machine.
fn adaptive(policy: &Policy) -> bool {
    matches!(policy.discipline.load_control, LoadControl::WindowAdaptive(_))
}
