//! The steady state in which decisions are measured. Every class has its part of `waiting` requests, and the
//! window is full. In each step one request ends, one is released and one arrives. With a page table requests
//! use three resources, and releases equal completions only on average.

use std::collections::VecDeque;
use std::time::Duration;

use weirgate_engine::*;

/// Costs of requests in turn: an eighth of a node's second of one resource and a quarter of that of the two
/// others. Four nodes have room for 64 such requests, as many as the window of the others.
const SHARES: [[f64; 3]; 3] = [[0.125, 0.03125, 0.03125], [0.03125, 0.125, 0.03125], [0.03125, 0.03125, 0.125]];

/// An engine with `classes` classes and `waiting` waiting requests.
pub struct Steady {
    engine: Engine,
    in_flight: VecDeque<Ticket>,
    now: u64,
    classes: u32,
    next: u32,
    /// Costs of the next requests. Empty without a page table.
    demands: Vec<Demand>,
}

impl Steady {
    /// Creates four nodes and guarantees of 64 slots in all. Quorum's own window would grow without bound, so
    /// it is fixed at 64.
    pub fn new(discipline: Discipline, classes: u32, waiting: u32) -> Steady {
        Steady::with(discipline, classes, waiting, Vec::new())
    }

    /// Creates the same with a page table of three resources.
    pub fn priced(discipline: Discipline, classes: u32, waiting: u32) -> Steady {
        Steady::with(discipline, classes, waiting, SHARES.map(|shares| Demand::of_shares(&shares)).to_vec())
    }

    fn with(mut discipline: Discipline, classes: u32, waiting: u32, demands: Vec<Demand>) -> Steady {
        let class = |index: u32| Class {
            guarantee: Guarantee {
                throughput: Some(8000.0 / f64::from(classes) * f64::from(1 + index % 50) / 25.5),
                response_time: Some(ResponseTime {
                    statistic: Statistic::Percentile(95.0),
                    limit: Duration::from_secs(100_000),
                }),
            },
            content: if index.is_multiple_of(2) { Content::Static } else { Content::Dynamic },
            service_time: Some(Duration::from_millis(8)),
            queue: QueueBounds {
                max_waiting: u32::MAX,
                max_waiting_per_flow: u32::MAX,
                max_wait: Duration::from_secs(200_000),
                ..QueueBounds::default()
            },
            weight: f64::from(1 + index % 50),
            ..Class::best_effort(format!("c{index}"), 0)
        };
        if matches!(discipline.load_control, LoadControl::WindowLinear { .. }) {
            discipline.load_control = LoadControl::Fixed { window: Some(64) };
        }
        let nodes = (0..4).map(|n| Node::new(format!("n{n}"), 0)).collect();
        let policy = Policy {
            resources: demands.iter().zip(["cpu", "disk", "bandwidth"]).map(|(_, name)| name.into()).collect(),
            max_waiting: u32::MAX,
            ..Policy::of_one_pool(discipline, Pool::new("web"), nodes, (0..classes).map(class).collect())
        };
        let engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
        let mut steady =
            Steady { engine, in_flight: VecDeque::with_capacity(10_000), now: 0, classes, next: 0, demands };
        for _ in 0..waiting + 64 {
            steady.arrive();
        }
        steady.release();
        steady
    }

    fn arrive(&mut self) {
        // A stride that is coprime to 10, 1,000 and 100,000 visits all classes in mixed order.
        self.next = (self.next + 7_919) % self.classes;
        let demand = self.demands.first().copied();
        let turn = self.demands.len().min(1);
        self.demands.rotate_left(turn);
        let arrival = Arrival { class: ClassId(self.next), flow: 0, demand, locality_key: None, position: 0, token: 0 };
        if let Decision::Release { ticket, .. } = self.engine.arrive(Time::from_nanos(self.now), arrival) {
            self.in_flight.push_back(ticket);
        }
    }

    /// Ends one request, releases one and lets one arrive: three calls that decide.
    pub fn step(&mut self) {
        self.now += 100_000;
        let now = Time::from_nanos(self.now);
        let ticket = self.in_flight.pop_front().expect("the window is full");
        self.engine.observe(now, ticket, Outcome::LastByte { status: 200 });
        self.release();
        self.arrive();
    }

    fn release(&mut self) {
        while let Some(action) = self.engine.poll(Time::from_nanos(self.now)) {
            if let Action::Release { ticket, .. } = action {
                self.in_flight.push_back(ticket);
            }
        }
    }
}
