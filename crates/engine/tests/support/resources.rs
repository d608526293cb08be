//! Sites whose requests are known by what they take.

use std::time::Duration;

use weirgate_engine::*;

/// A pool of nodes and the classes that share it.
#[derive(Clone, Debug)]
pub struct Site {
    /// The classes' weights.
    pub weights: Vec<f64>,
    /// How many resources there are.
    pub resources: usize,
    /// The nodes' weights.
    pub nodes: Vec<f64>,
    /// Longest wait.
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
            name: format!("c{}", index + 1),
            pool: 0,
            guarantee: Guarantee::default(),
            content: Content::Dynamic,
            service_time: None,
            utility: 1.0,
            weight: *weight,
            demand: Demand::of_shares(&[0.01, 0.01, 0.01][..self.resources.min(3)]),
            tag: 0,
            fallback: None,
            queue: QueueBounds { max_waiting: 1_000_000, max_waiting_per_flow: 1_000_000, max_wait: self.max_wait },
            retry: RetryBudget::default(),
        };
        let node = |(index, weight): (usize, &f64)| Node {
            name: format!("n{index}"),
            machine: format!("n{index}"),
            pool: 0,
            weight: *weight,
            capacity: None,
            max_outstanding: None,
        };
        Policy {
            discipline,
            pools: vec![Pool {
                name: "web".into(),
                dispatch: Dispatch::LeastOutstanding,
                ejection: Ejection { consecutive_failures: 0, ..Ejection::default() },
            }],
            nodes: self.nodes.iter().enumerate().map(node).collect(),
            classes: self.weights.iter().enumerate().map(class).collect(),
            templates: Vec::new(),
            max_waiting: 1_000_000,
            resources: ["cpu", "disk", "bandwidth"][..self.resources].iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    pub fn engine(&self, discipline: Discipline) -> Engine {
        Engine::new(Time::ZERO, self.policy(discipline), 1).expect("a valid policy")
    }
}

pub fn arrival(class: u32, demand: Demand, tag: u64) -> Arrival {
    Arrival { class: ClassId(class), flow: tag, demand: Some(demand), target: None, tag }
}
