//! Pools of workers and other machines, played answer by answer.

use std::collections::VecDeque;

use super::*;
use crate::discipline::Discipline;
use crate::index::MachineGroupId;
use crate::policy::{Content, Node, Policy, Pool};
use crate::random::{Random, mixed};

/// Mean of the demand of a request, in seconds.
const DEMAND: f64 = 0.05;

/// A machine that takes requests in the order in which they come, and the gateway in front of it.
struct Stage {
    random: Random,
    workers: Workers,
    /// The usual answers of two classes.
    usual: [Option<Figures>; 2],
    /// Number of workers of the machine. It may be another one from some moment on.
    pool: usize,
    /// Number of its processors, which those at work share.
    cpus: f64,
    now: f64,
    /// Requests at work, with the seconds that they still need with a processor of their own.
    at_work: Vec<(f64, u32)>,
    /// Requests that wait at the machine.
    queue: VecDeque<u32>,
    /// Requests that wait in the gateway.
    held: usize,
    sent: u32,
    next: f64,
    /// Requests that found the machine at its bound.
    held_back: usize,
}

impl Stage {
    fn new(pool: usize, seed: u64) -> Stage {
        Stage {
            random: Random::new(seed),
            workers: Workers::default(),
            usual: [None; 2],
            pool,
            cpus: f64::INFINITY,
            now: 0.0,
            at_work: Vec::new(),
            queue: VecDeque::new(),
            held: 0,
            sent: 0,
            next: 0.0,
            held_back: 0,
        }
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.random.unit()).ln()
    }

    fn time(&self) -> Time {
        Time::from_nanos((self.now * 1e9) as u64)
    }

    /// Plays this number of answers. Requests of each class come at a rate that keeps `load` workers busy, or as many
    /// as the bound allows, but no more than 400.
    fn play(&mut self, answers: usize, load: f64, demand: impl Fn(&mut Stage, u32) -> f64) {
        let mut left = answers;
        while left > 0 {
            let needs = self.at_work.iter().enumerate().map(|(at, (needs, _))| (*needs, at));
            let (needs, at) = needs.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0));
            let speed = (self.cpus / self.at_work.len() as f64).min(1.0);
            let (arrival, answer) = (self.next - self.now, needs / speed);
            let step = arrival.min(answer);
            self.now += step;
            self.at_work.iter_mut().for_each(|(needs, _)| *needs -= step * speed);
            if arrival <= answer {
                self.next += self.exponential() * DEMAND / load;
                self.held_back += usize::from(self.in_flight() >= self.workers.bound() as usize);
                self.held += 1;
            } else {
                let (_, ticket) = self.at_work.swap_remove(at);
                self.workers.answered(self.time(), ticket, &mut self.usual[class_of(ticket)]);
                self.workers.ended(self.time(), ticket);
                left -= 1;
            }
            while self.held > 0 && self.in_flight() < self.workers.bound().min(400) as usize {
                self.held -= 1;
                self.workers.began(self.time(), self.sent);
                self.queue.push_back(self.sent);
                self.sent += 1;
            }
            while self.at_work.len() < self.pool
                && let Some(ticket) = self.queue.pop_front()
            {
                let needs = demand(self, ticket);
                self.at_work.push((needs, ticket));
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.at_work.len() + self.queue.len()
    }
}

/// The class of a request.
fn class_of(ticket: u32) -> usize {
    (mixed(u64::from(ticket)) % 2) as usize
}

/// The second class takes three times as long as the first one, and each time differs by a few percent.
fn constant(stage: &mut Stage, ticket: u32) -> f64 {
    DEMAND * [0.5, 1.5][class_of(ticket)] * (0.95 + 0.1 * stage.random.unit())
}

fn exponential(stage: &mut Stage, ticket: u32) -> f64 {
    constant(stage, ticket) * stage.exponential()
}

/// Times that vary say little by their means, and more by who overtakes whom. So with such times larger pools may not
/// be found, and neither may one worker, on which nobody overtakes.
#[test]
fn the_workers_of_a_pool_are_found() {
    for (pool, seed) in [1, 2, 3, 4, 8, 12, 16].into_iter().flat_map(|pool| (1..=4).map(move |seed| (pool, seed))) {
        for (load, varies) in [(0.6, false), (0.8, true), (0.9, false), (0.9, true)] {
            let mut stage = Stage::new(pool, seed);
            for _ in 0..200 {
                stage.play(100, load * pool as f64, |stage, ticket| match varies {
                    true => exponential(stage, ticket),
                    false => constant(stage, ticket),
                });
                if stage.workers.found().is_some() {
                    break;
                }
            }
            let (most, found) = (if pool > 8 { pool / 2 } else { (pool / 4).max(1) }, stage.workers.found());
            let is_right = found.map_or(pool > 8 || (pool == 1 && varies), |found| {
                (pool - 1..=pool + most).contains(&(found as usize))
            });
            assert!(is_right, "{found:?} of {pool}, load {load}, varies {varies}, seed {seed}");
        }
    }
}

#[test]
fn a_machine_on_which_nobody_waits_is_not_held_back() {
    for (load, seed) in [1.0, 3.0, 10.0, 40.0].into_iter().flat_map(|load| (1..=8).map(move |seed| (load, seed))) {
        for varies in [false, true] {
            let mut stage = Stage::new(usize::MAX, seed);
            stage.play(20_000, load, |stage, ticket| match varies {
                true => exponential(stage, ticket),
                false => constant(stage, ticket),
            });
            assert_eq!(stage.held_back, 0, "load {load}, varies {varies}, seed {seed}");
        }
    }
}

/// Requests that share processors do not wait for one another in an order. What is found there leaves half as many
/// again in flight as there are processors.
#[test]
fn shared_processors_stay_busy() {
    for (load, seed) in [2.0, 3.0, 3.6, 4.4].into_iter().flat_map(|load| (1..=8).map(move |seed| (load, seed))) {
        for varies in [false, true] {
            let mut stage = Stage::new(usize::MAX, seed);
            stage.cpus = 4.0;
            for _ in 0..100 {
                stage.play(100, load, |stage, ticket| match varies {
                    true => exponential(stage, ticket),
                    false => constant(stage, ticket),
                });
                let bound = stage.workers.bound();
                assert!(bound >= 6, "{bound} with load {load}, varies {varies}, seed {seed}");
            }
        }
    }
}

/// A database becomes ten times as slow, so that a crowd comes into being. The later its requests came, the larger was
/// the crowd and the longer they take, but that is no sign of fewer workers.
#[test]
fn a_crowd_behind_a_slow_database_does_not_hide_workers() {
    for seed in 1..=20 {
        let mut stage = Stage::new(8, seed);
        stage.play(1500, 1.5, constant);
        let before = stage.now;
        stage.play(2000, 1.5, |stage, ticket| constant(stage, ticket) * (1.0 + 9.0 * (stage.now - before).min(1.0)));
        assert!(stage.workers.bound() >= 8, "seed {seed}: {:?}", stage.workers);
    }
}

/// All of the requests wait, so only a change of the crowd shows that they wait no longer.
#[test]
fn more_workers_are_noticed_under_overload() {
    for (varies, seed) in [false, true].into_iter().flat_map(|varies| (1..=4).map(move |seed| (varies, seed))) {
        let demand = |stage: &mut Stage, ticket: u32| match varies {
            true => exponential(stage, ticket),
            false => constant(stage, ticket),
        };
        let mut stage = Stage::new(2, seed);
        stage.play(2000, 1.7, demand);
        stage.play(2000, 20.0, demand);
        assert_eq!(stage.workers.found(), Some(2), "varies {varies}, seed {seed}");
        stage.pool = 8;
        stage.play(8000, 20.0, demand);
        assert!(stage.workers.bound() >= 8, "varies {varies}, seed {seed}: {:?}", stage.workers);
    }
}

#[test]
fn the_list_is_bounded() {
    let mut workers = Workers::default();
    let requests = LISTED as u32 + 50;
    (0..requests).for_each(|ticket| workers.began(Time::from_nanos(0), ticket));
    assert_eq!((workers.unlisted, workers.list.len()), (LISTED, 50));
    // Those that are not listed may end in any order, and say nothing.
    let mut usual = None;
    workers.answered(Time::from_nanos(1), 0, &mut usual);
    workers.ended(Time::from_nanos(1), 0);
    assert_eq!((workers.unlisted, workers.assumed, usual), (LISTED - 1, 1, None));
    // The last one has overtaken all others. That is more than can be found.
    workers.answered(Time::from_nanos(2), requests - 1, &mut usual);
    assert_eq!(workers.assumed, LISTED);
    (1..requests).for_each(|ticket| workers.ended(Time::from_nanos(3), ticket));
    assert_eq!((workers.unlisted, workers.list.len()), (0, 0));
}

#[test]
fn a_machine_with_known_workers_has_a_quarter_more_requests() {
    let policy = Policy::of_one_pool(Discipline::weirgate(), Pool::new("web"), vec![Node::new("n", 0)], Vec::new());
    let mut nodes = Nodes::new(&policy);
    let (node, machine) = (NodeId(0), nodes.nodes[NodeId(0)].machine);
    let mut stage = Stage::new(8, 1);
    stage.play(6000, 6.0, exponential);
    assert_eq!(stage.workers.found(), Some(8));
    stage.workers.alternates = false;
    nodes.machines[machine].workers = stage.workers;
    nodes.spread(MachineGroupId(0), 100, 1.0);
    for in_flight in 0..10 {
        assert!(nodes.can_take(node), "{in_flight}");
        nodes.count(node, Content::Dynamic, true);
    }
    assert!(!nodes.can_take(node));
    assert_eq!(nodes.workers(node), Some(8));
    nodes.count(node, Content::Dynamic, false);
    assert!(nodes.can_take(node));
    // A smaller window still holds.
    nodes.spread(MachineGroupId(0), 6, 1.0);
    assert!(!nodes.can_take(node));
    assert_eq!(nodes.beyond_bounds(MachineGroupId(0)), 3);
}
