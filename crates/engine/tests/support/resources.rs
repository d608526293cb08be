//! Sites with requests of known cost.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use weirgate_engine::*;

/// A pool of nodes and the classes that share it.
#[derive(Clone, Debug)]
pub struct Site {
    /// The classes' weights.
    pub weights: Vec<f64>,
    /// Number of resources.
    pub resources: usize,
    /// The nodes' weights.
    pub nodes: Vec<f64>,
    /// Maximum wait.
    pub max_wait: Duration,
}

impl Default for Site {
    fn default() -> Self {
        let max_wait = Duration::from_secs(1_000_000);
        Site { weights: vec![6.0, 3.0, 1.0], resources: 3, nodes: vec![1.0], max_wait }
    }
}

impl Site {
    pub fn policy(&self, discipline: Discipline) -> Policy {
        let class = |(index, weight): (usize, &f64)| Class {
            weight: *weight,
            demand: Demand::of_shares(&[0.01, 0.01, 0.01][..self.resources.min(3)]),
            queue: QueueBounds {
                max_waiting: 1_000_000,
                max_waiting_per_flow: 1_000_000,
                max_wait: self.max_wait,
                ..QueueBounds::default()
            },
            ..Class::best_effort(format!("c{}", index + 1), 0)
        };
        let node = |(index, weight): (usize, &f64)| Node { weight: *weight, ..Node::new(format!("n{index}"), 0) };
        let pool = Pool { ejection: Ejection { consecutive_failures: 0, ..Ejection::default() }, ..Pool::new("web") };
        let nodes = self.nodes.iter().enumerate().map(node).collect();
        let classes = self.weights.iter().enumerate().map(class).collect();
        let resources = ["cpu", "disk", "bandwidth"][..self.resources].iter().map(|name| (*name).to_owned()).collect();
        Policy { resources, ..Policy::of_one_pool(discipline, pool, nodes, classes) }
    }

    /// Returns a policy with a second upstream, of the classes from `first` on. Both upstreams use the same machine.
    pub fn two_upstreams(&self, discipline: Discipline, first: usize) -> Policy {
        let mut policy = self.policy(discipline);
        let (mut pool, mut node) = (policy.pools[0].clone(), policy.nodes[0].clone());
        (pool.name, node.pool) = ("other".into(), 1);
        policy.pools.push(pool);
        policy.nodes.push(node);
        policy.classes[first..].iter_mut().for_each(|class| class.pool = 1);
        policy
    }

    pub fn engine(&self, discipline: Discipline) -> Engine {
        Engine::new(Time::ZERO, self.policy(discipline), 1).expect("a valid policy")
    }
}

/// mQoS with the precedence `drfq`.
pub fn drfq() -> Discipline {
    Discipline { precedence: Precedence::Drfq, ..Discipline::mqos() }
}

/// Costs of requests in seconds of a whole node: much CPU, much disk, much network.
pub const KINDS: [[f64; 3]; 3] = [[0.09, 0.03, 0.03], [0.03, 0.09, 0.03], [0.03, 0.03, 0.09]];

/// Returns the cost of a request in seconds of a whole node.
pub fn node_seconds(demand: Demand) -> f64 {
    f64::from(demand.dominant()) / 1e9
}

pub fn arrival(class: u32, demand: Demand, token: u64) -> Arrival {
    Arrival { class: ClassId(class), flow: token, demand: Some(demand), locality_key: None, position: 0, token }
}

/// A driver of an engine, with the requests that wait or are in flight, and their costs.
#[derive(Clone, Debug)]
pub struct Driver {
    pub engine: Engine,
    pub now: Time,
    /// Class and cost of each request.
    pub requests: Vec<(u32, Demand)>,
    pub waiting: Vec<(u64, Ticket)>,
    pub in_flight: Vec<(u64, Ticket, NodeId)>,
    /// Requests that were released, in order.
    pub released: Vec<u64>,
}

impl Driver {
    pub fn new(engine: Engine) -> Driver {
        let (now, none) = (Time::ZERO, Vec::new());
        Driver { engine, now, requests: none, waiting: Vec::new(), in_flight: Vec::new(), released: Vec::new() }
    }

    /// Lets a request arrive. Returns false if it is refused.
    pub fn arrive(&mut self, class: u32, demand: Demand) -> bool {
        let token = self.requests.len() as u64;
        self.requests.push((class, demand));
        match self.engine.arrive(self.now, arrival(class, demand, token)) {
            Decision::Wait { ticket } => self.waiting.push((token, ticket)),
            Decision::Release { .. } => panic!("credit decides at every release"),
            Decision::Shed(_) => return false,
        }
        true
    }

    /// Lets `count` equal requests of a class arrive.
    pub fn fill(&mut self, class: u32, count: usize, shares: &[f64]) {
        (0..count).for_each(|_| assert!(self.arrive(class, Demand::of_shares(shares))));
    }

    /// Ends a request in flight, chosen by `below`. Returns class and cost of the requests that are released then.
    pub fn turn(&mut self, below: impl FnOnce(u64) -> u64) -> Vec<(u32, Demand)> {
        self.end(below(self.in_flight.len() as u64) as usize, Outcome::LastByte { status: 200 });
        self.drain();
        std::mem::take(&mut self.released).into_iter().map(|token| self.requests[token as usize]).collect()
    }

    /// Executes all due actions.
    pub fn drain(&mut self) {
        while self.step() {}
    }

    /// Executes the next action. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        match self.engine.poll(self.now) {
            None => return false,
            Some(Action::Release { ticket, token, node, .. }) => {
                self.waiting.retain(|(waiting, _)| *waiting != token);
                self.in_flight.push((token, ticket, node));
                self.released.push(token);
            }
            Some(Action::Shed { token, .. }) => self.waiting.retain(|(waiting, _)| *waiting != token),
        }
        true
    }

    /// Ends the `at`-th request in flight with `outcome`. A retry continues on another node.
    pub fn end(&mut self, at: usize, outcome: Outcome) {
        let (token, ticket, _) = self.in_flight.remove(at);
        if let Some(node) = self.engine.observe(self.now, ticket, outcome) {
            self.in_flight.push((token, ticket, node));
        }
    }

    /// Lets the `at`-th waiting request leave.
    pub fn leave(&mut self, at: usize) {
        let (_, ticket) = self.waiting.remove(at);
        assert!(self.engine.cancel(self.now, ticket));
    }

    /// Returns the amount of a resource taken by the requests in flight on a node, in billionths.
    pub fn taken(&self, node: u32, resource: usize) -> u64 {
        let in_flight = self.in_flight.iter().filter(|(_, _, at)| at.0 == node);
        in_flight.map(|(token, ..)| u64::from(self.requests[*token as usize].1.0[resource])).sum()
    }

    /// Checks that nothing is overdrawn or lost: the remaining amounts are the full ones minus the costs of
    /// the requests in flight.
    pub fn check(&self, weights: &[f64]) {
        let snapshot = self.engine.snapshot(self.now);
        for (node, weight) in weights.iter().enumerate() {
            for resource in 0..snapshot.resources.len() {
                let full = (weight * 1e9).round();
                let taken = self.taken(node as u32, resource) as f64;
                assert!(taken <= full, "node {node} is overdrawn: {taken} of {full}");
                let left = snapshot.nodes[node].available[resource];
                assert_eq!(left, (full - taken) / full, "node {node}, resource {resource}");
            }
        }
        assert_eq!(snapshot.waiting as usize, self.waiting.len());
        assert_eq!(snapshot.outstanding as usize, self.in_flight.len());
    }
}
