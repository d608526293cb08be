//! A small virtual-time driver for the engine's tests: processor-sharing nodes and a clock.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_engine::*;

/// SplitMix64, independent of the engine's own.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an exponential number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns bounds that no test reaches.
pub fn unbounded(max_wait: Duration) -> QueueBounds {
    QueueBounds { max_waiting: 1_000_000, max_waiting_per_flow: 1_000_000, max_wait, ..QueueBounds::default() }
}

/// Returns a class in pool 0 with these guarantees.
pub fn class(name: &str, throughput: Option<f64>, limit: Option<(Statistic, u64)>, service_ms: Option<u64>) -> Class {
    let response_time = limit.map(|(statistic, limit)| ResponseTime { statistic, limit: ms(limit) });
    Class {
        guarantee: Guarantee { throughput, response_time },
        service_time: service_ms.map(ms),
        queue: unbounded(ms(600_000)),
        ..Class::best_effort(name, 0)
    }
}

/// A guaranteed mean in milliseconds.
pub fn avg(limit: u64) -> Option<(Statistic, u64)> {
    Some((Statistic::Average, limit))
}

/// A guaranteed 95th percentile in milliseconds.
pub fn p95(limit: u64) -> Option<(Statistic, u64)> {
    Some((Statistic::Percentile(95.0), limit))
}

/// Requests a second with exponential demands of this mean, in seconds.
pub fn load(rate: f64, demand: f64) -> Load {
    Load { rate, demand, exponential: true }
}

/// Requests a second, each of the same demand in seconds.
pub fn even(rate: f64, demand: f64) -> Load {
    Load { rate, demand, exponential: false }
}

/// A request of unknown cost.
pub fn arrival(class: u32, flow: u64, token: u64) -> Arrival {
    Arrival { class: ClassId(class), flow, demand: None, locality_key: None, position: 0, token }
}

/// Returns a policy with one pool of `nodes` nodes.
pub fn policy(discipline: Discipline, nodes: usize, classes: Vec<Class>) -> Policy {
    let nodes = (0..nodes).map(|n| Node::new(format!("n{n}"), 0)).collect();
    Policy::of_one_pool(discipline, Pool::new("web"), nodes, classes)
}

/// Returns a discipline with a fixed window that is shared by weights. It sheds nothing.
pub fn partitioned(window: u32) -> Discipline {
    Discipline {
        name: "custom".into(),
        priorities: Vec::new(),
        admit: Admit::None,
        load_control: LoadControl::Fixed { window: Some(window) },
        precedence: Precedence::WeightedFair,
    }
}

/// Egalitarian processor sharing on `cpus` CPUs: each of n requests runs at min(1, cpus/n).
struct PsNode {
    cpus: f64,
    at: f64,
    /// Work done so far per request that was there all along.
    done: f64,
    /// Requests by the amount of `done` at which they finish.
    jobs: BTreeMap<(u64, u64), Ticket>,
    stalled: bool,
    speed: f64,
}

impl PsNode {
    fn rate(&self) -> f64 {
        if self.stalled { 0.0 } else { self.speed * (self.cpus / self.jobs.len().max(1) as f64).min(1.0) }
    }

    fn advance(&mut self, now: f64) {
        self.done += (now - self.at) * self.rate();
        self.at = now;
    }

    fn next(&self) -> Option<f64> {
        let ((finish, _), _) = self.jobs.first_key_value()?;
        let left = (f64::from_bits(*finish) - self.done).max(0.0);
        (self.rate() > 0.0).then(|| self.at + left / self.rate())
    }
}

/// Outcomes of the requests of one class.
#[derive(Default, Clone, Debug)]
pub struct Tally {
    pub offered: u64,
    pub served: Vec<f64>,
    pub shed: u64,
    /// Slot-seconds held.
    pub slots: f64,
}

/// Drives one engine over a cluster.
pub struct Bench {
    pub engine: Engine,
    pub now: f64,
    nodes: Vec<PsNode>,
    arrivals: BTreeMap<(u64, usize), ()>,
    pub classes: Vec<Load>,
    pub tallies: Vec<Tally>,
    requests: Vec<(usize, f64, f64)>,
    held: BTreeMap<Ticket, (usize, f64)>,
    sequence: u64,
    random: Random,
}

/// Offered load of a class.
#[derive(Clone, Copy)]
pub struct Load {
    pub rate: f64,
    pub demand: f64,
    pub exponential: bool,
}

impl Bench {
    pub fn new(policy: Policy, cpus: f64, classes: Vec<Load>, seed: u64) -> Bench {
        let nodes = policy.nodes.len();
        let mut bench = Bench {
            engine: Engine::new(Time::ZERO, policy, seed).expect("a valid policy"),
            now: 0.0,
            nodes: (0..nodes)
                .map(|_| PsNode { cpus, at: 0.0, done: 0.0, jobs: BTreeMap::new(), stalled: false, speed: 1.0 })
                .collect(),
            arrivals: BTreeMap::new(),
            tallies: vec![Tally::default(); classes.len()],
            classes,
            requests: Vec::new(),
            held: BTreeMap::new(),
            sequence: 0,
            random: Random(seed ^ 0xABCD),
        };
        for class in 0..bench.classes.len() {
            bench.schedule(class);
        }
        bench
    }

    pub fn stall(&mut self, stalled: bool) {
        for node in &mut self.nodes {
            node.advance(self.now);
            node.stalled = stalled;
        }
    }

    /// Makes these nodes work at `speed` from now on.
    pub fn slow_down(&mut self, nodes: &[usize], speed: f64) {
        for index in nodes {
            self.nodes[*index].advance(self.now);
            self.nodes[*index].speed = speed;
        }
    }

    /// The process ends with all its requests, and `engine` takes over its clients.
    pub fn replace(&mut self, engine: Engine) {
        for node in &mut self.nodes {
            node.advance(self.now);
            node.jobs.clear();
        }
        self.held.clear();
        self.engine = engine;
        self.poll();
    }

    /// Resets the tallies.
    pub fn reset(&mut self) {
        self.tallies = vec![Tally::default(); self.classes.len()];
        for (_, since) in self.held.values_mut() {
            *since = self.now;
        }
    }

    /// Runs to `until`, and tallies only what happens after `from`.
    pub fn measure(&mut self, from: f64, until: f64) {
        self.run(from);
        self.reset();
        self.run(until);
    }

    fn schedule(&mut self, class: usize) {
        let rate = self.classes[class].rate;
        if rate > 0.0 {
            let at = self.now + self.random.exponential(1.0 / rate);
            self.arrivals.insert((at.to_bits(), class), ());
        }
    }

    pub fn set_rate(&mut self, class: usize, rate: f64) {
        self.arrivals.retain(|(_, c), ()| *c != class);
        self.classes[class].rate = rate;
        self.schedule(class);
    }

    fn time(&self) -> Time {
        Time::from_nanos((self.now * 1e9) as u64)
    }

    pub fn run(&mut self, until: f64) {
        loop {
            let arrival = self.arrivals.first_key_value().map(|((at, class), ())| (f64::from_bits(*at), *class));
            let finish = (0..self.nodes.len())
                .filter_map(|n| Some((self.nodes[n].next()?, n)))
                .reduce(|a, b| if b.0 < a.0 { b } else { a });
            let timer = self.engine.next_timeout().map(|t| t.as_secs_f64() + 1e-9);
            let candidates = [arrival.map(|a| a.0), finish.map(|f| f.0), timer];
            let next = candidates.into_iter().flatten().fold(f64::INFINITY, f64::min).max(self.now);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            if finish.is_some_and(|f| f.0 <= next) {
                self.finish(finish.expect("just seen").1);
            } else if let Some((at, class)) = arrival.filter(|a| a.0 <= next) {
                self.arrivals.remove(&(at.to_bits(), class));
                self.arrive(class);
                self.schedule(class);
            }
            self.poll();
        }
    }

    fn arrive(&mut self, class: usize) {
        let load = self.classes[class];
        let demand = if load.exponential { self.random.exponential(load.demand) } else { load.demand };
        self.tallies[class].offered += 1;
        let token = self.requests.len() as u64;
        self.requests.push((class, self.now, demand));
        match self.engine.arrive(self.time(), arrival(class as u32, token, token)) {
            Decision::Release { ticket, node } => self.start(ticket, token, node),
            Decision::Wait { .. } => {}
            Decision::Shed(_) => self.tallies[class].shed += 1,
        }
    }

    fn start(&mut self, ticket: Ticket, token: u64, node: NodeId) {
        let (class, _, demand) = self.requests[token as usize];
        let node = &mut self.nodes[node.0 as usize];
        node.advance(self.now);
        self.sequence += 1;
        let finish = node.done + demand;
        node.jobs.insert((finish.to_bits(), self.sequence << 32 | token), ticket);
        self.held.insert(ticket, (class, self.now));
    }

    fn finish(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.advance(self.now);
        let ((_, id), ticket) = node.jobs.pop_first().expect("a job that finishes");
        let (class, arrived, _) = self.requests[(id & 0xFFFF_FFFF) as usize];
        let (_, since) = self.held.remove(&ticket).expect("it was in flight");
        self.tallies[class].slots += self.now - since;
        self.tallies[class].served.push(self.now - arrived);
        self.engine.observe(self.time(), ticket, Outcome::LastByte { status: 200 });
    }

    fn poll(&mut self) {
        while let Some(action) = self.engine.poll(self.time()) {
            match action {
                Action::Release { ticket, token, node, .. } => self.start(ticket, token, node),
                Action::Shed { token, .. } => self.tallies[self.requests[token as usize].0].shed += 1,
            }
        }
    }

    /// Returns the mean number of slots held over `seconds` since the last reset, including those still held.
    pub fn mean_slots(&self, class: usize, seconds: f64) -> f64 {
        let running: f64 = self.held.values().filter(|(c, _)| *c == class).map(|(_, since)| self.now - since).sum();
        (self.tallies[class].slots + running) / seconds
    }
}

/// Returns the p-th percentile (0 to 1) of `values`.
pub fn percentile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len() as f64 * p) as usize).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}
