//! Dispatch of Cluster Reserves (Aron et al., App. A), compared with a second version of the rules in plain
//! loops over plain lists. Every decision in random sequences must be the same.

mod support;

use std::collections::BTreeMap;

use support::{Random, class, policy};
use weirgate_engine::*;

/// A cluster under test and its known state.
struct Cluster {
    engine: Engine,
    in_flight: Vec<(Ticket, NodeId)>,
    usable: Vec<bool>,
    weights: Vec<f64>,
}

impl Cluster {
    fn new(dispatch: Dispatch, weights: &[f64], classes: usize) -> Cluster {
        let names = ["a", "b", "c"];
        let classes = names[..classes].iter().map(|name| class(name, None, None, None)).collect();
        let mut policy = policy(Discipline::none(), weights.len(), classes);
        policy.pools[0].dispatch = dispatch;
        for (node, weight) in policy.nodes.iter_mut().zip(weights) {
            node.weight = *weight;
        }
        let engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
        Cluster { engine, in_flight: Vec::new(), usable: vec![true; weights.len()], weights: weights.to_vec() }
    }

    fn send(&mut self, class: u32, locality_key: Option<u64>) -> Option<usize> {
        let arrival = Arrival { class: ClassId(class), flow: 0, demand: None, locality_key, position: 0, token: 0 };
        match self.engine.arrive(Time::ZERO, arrival) {
            Decision::Release { ticket, node } => {
                self.in_flight.push((ticket, node));
                Some(node.0 as usize)
            }
            Decision::Shed(_) => None,
            Decision::Wait { .. } => panic!("nothing waits without a window"),
        }
    }

    fn finish(&mut self, which: usize) -> usize {
        let (ticket, node) = self.in_flight.swap_remove(which);
        self.engine.observe(Time::ZERO, ticket, Outcome::LastByte { status: 200 });
        node.0 as usize
    }

    /// Returns the number of requests in flight on each node.
    fn counts(&self) -> Vec<f64> {
        let on = |node: usize| self.in_flight.iter().filter(|(_, n)| n.0 as usize == node).count() as f64;
        (0..self.weights.len()).map(on).collect()
    }

    fn turn(&mut self, node: usize) {
        self.usable[node] = !self.usable[node];
        let id = NodeId(node as u32);
        let event = if self.usable[node] { NodeEvent::Resumed(id) } else { NodeEvent::Draining(id) };
        self.engine.node(Time::ZERO, event);
    }

    fn locality(&self) -> LocalitySnapshot {
        self.engine.snapshot(Time::ZERO).localities[0].clone()
    }
}

/// App. A.1 step by step: starts at the node after the last one, walks round once, and keeps the first of the
/// least loaded.
fn walk(last: Option<usize>, load: &[f64], may: impl Fn(usize) -> bool) -> Option<usize> {
    let nodes = load.len();
    let start = last.map_or(0, |last| last + 1);
    let mut chosen: Option<usize> = None;
    for step in 0..nodes {
        let node = (start + step) % nodes;
        if may(node) && chosen.is_none_or(|best| load[node] < load[best]) {
            chosen = Some(node);
        }
    }
    chosen
}

#[test]
fn round_robin_is_the_appendix_step_by_step() {
    for (seed, weights) in [vec![1.0; 4], vec![1.0; 3], vec![2.0, 1.0, 4.0], vec![1.0]].into_iter().enumerate() {
        for avoid_last in [false, true] {
            let mut random = Random(seed as u64);
            let mut cluster = Cluster::new(Dispatch::LeastLoaded { avoid_last }, &weights, 3);
            let (mut last, mut of_class) = (None, [None; 3]);
            let mut decisions = 0;
            for step in 0..3000 {
                match random.below(10) {
                    0..5 => {
                        let class = random.below(3) as usize;
                        let load: Vec<f64> = cluster
                            .counts()
                            .iter()
                            .zip(&weights)
                            .map(|(in_flight, weight)| (in_flight + 1.0) / weight)
                            .collect();
                        let usable = |node: usize| cluster.usable[node];
                        let fresh = |node: usize| usable(node) && !(avoid_last && of_class[class] == Some(node));
                        let due = walk(last, &load, fresh).or_else(|| walk(last, &load, usable));
                        let chosen = cluster.send(class as u32, None);
                        assert_eq!(chosen, due, "step {step}, loads {load:?}, last {last:?}");
                        if chosen.is_some() {
                            (last, of_class[class]) = (chosen, chosen);
                            decisions += 1;
                        }
                    }
                    5..9 if !cluster.in_flight.is_empty() => {
                        cluster.finish(random.below(cluster.in_flight.len() as u64) as usize);
                    }
                    9 if random.below(5) == 0 => cluster.turn(random.below(weights.len() as u64) as usize),
                    _ => {}
                }
            }
            assert!(decisions > 300, "{decisions} decisions with {weights:?}");
        }
    }
}

#[test]
fn equals_take_turns_and_the_least_loaded_goes_first() {
    let mut cluster = Cluster::new(Dispatch::LeastLoaded { avoid_last: false }, &[1.0; 3], 1);
    let first: Vec<_> = (0..4).filter_map(|_| cluster.send(0, None)).collect();
    assert_eq!(first, [0, 1, 2, 0]);
    // Node 1 is empty again and therefore the least loaded, although it is not the next in turn.
    cluster.finish(1);
    assert_eq!((cluster.send(0, None), cluster.send(0, None)), (Some(1), Some(2)));
}

#[test]
fn one_request_at_a_time_never_meets_the_same_node_twice() {
    let mut cluster = Cluster::new(Dispatch::LeastLoaded { avoid_last: true }, &[1.0, 100.0], 2);
    let mut last = None;
    for _ in 0..50 {
        let node = cluster.send(0, None);
        assert_ne!(node, last, "the heavy node would be chosen every time");
        last = node;
        cluster.finish(0);
    }
    // With one node left there is no choice.
    cluster.turn(0);
    assert_eq!((cluster.send(0, None), cluster.send(0, None)), (Some(1), Some(1)));
}

/// Fig. 16 as a table: the cost of each node.
fn cost(figures: &Lard, load: f64, mapped_here: bool) -> f64 {
    let mut sum = 0.0;
    if load > figures.overload {
        sum += f64::INFINITY;
    } else if load >= figures.idle {
        sum += load - figures.idle;
    }
    if mapped_here {
        sum += 1.0;
    } else {
        sum += figures.miss_cost;
        if load >= figures.idle {
            sum += figures.miss_cost;
        }
    }
    sum
}

/// A model of LARD, with a list of targets in order of use.
struct Oracle {
    figures: Lard,
    list: Vec<(u64, usize)>,
    last_new: Option<usize>,
    hits: u64,
    moves: u64,
    new: u64,
}

impl Oracle {
    fn send(&mut self, locality_key: Option<u64>, load: &[f64], usable: &[bool]) -> Option<usize> {
        let known = self.list.iter().find(|(t, _)| Some(*t) == locality_key).map(|(_, node)| *node);
        let home = known.filter(|node| usable[*node]);
        let costs: Vec<f64> = (0..load.len()).map(|node| cost(&self.figures, load[node], home == Some(node))).collect();
        let all_overloaded = (0..load.len()).all(|node| !usable[node] || costs[node].is_infinite());
        let by = if all_overloaded { load } else { &costs };
        let chosen = walk(self.last_new, by, |node| usable[node])?;
        if home.is_none() {
            self.last_new = Some(chosen);
        }
        let Some(locality_key) = locality_key else { return Some(chosen) };
        match home {
            None => self.new += 1,
            Some(home) if home == chosen => self.hits += 1,
            Some(_) => self.moves += 1,
        }
        self.list.retain(|(t, _)| *t != locality_key);
        if self.list.len() == self.figures.max_keys as usize {
            self.list.remove(0);
        }
        self.list.push((locality_key, chosen));
        Some(chosen)
    }
}

#[test]
fn lard_is_the_table_step_by_step() {
    let paper_in_small = Lard { idle: 3.0, overload: 8.0, miss_cost: 4.0, max_keys: 12 };
    let tight = Lard { max_keys: 2, ..paper_in_small };
    let never_idle = Lard { idle: 0.0, overload: 2.0, miss_cost: 1.0, max_keys: 12 };
    let mut seen = [0; 4];
    for (seed, figures) in [paper_in_small, tight, never_idle].into_iter().enumerate() {
        for weights in [vec![1.0; 4], vec![3.0, 1.0, 2.0]] {
            let mean = weights.iter().sum::<f64>() / weights.len() as f64;
            let mut random = Random(seed as u64 + 10);
            let mut cluster = Cluster::new(Dispatch::Lard(figures), &weights, 1);
            let mut oracle = Oracle { figures, list: Vec::new(), last_new: None, hits: 0, moves: 0, new: 0 };
            for step in 0..4000 {
                // High and low load alternate, so that nodes are idle, busy and overloaded.
                let crowd = if step / 500 % 2 == 0 { 6 } else { 4 };
                match random.below(10) {
                    n if n < crowd => {
                        // Small numbers are more frequent.
                        let locality_key = (random.below(30) * random.below(30) / 30).checked_sub(1);
                        let load: Vec<f64> = cluster
                            .counts()
                            .iter()
                            .zip(&weights)
                            .map(|(in_flight, weight)| in_flight / weight * mean)
                            .collect();
                        let due = oracle.send(locality_key, &load, &cluster.usable);
                        assert_eq!(cluster.send(0, locality_key), due, "step {step}, {locality_key:?}, loads {load:?}");
                        seen[3] += usize::from(load.iter().all(|load| *load > figures.overload));
                    }
                    0..9 if !cluster.in_flight.is_empty() => {
                        cluster.finish(random.below(cluster.in_flight.len() as u64) as usize);
                    }
                    9 if random.below(8) == 0 => cluster.turn(random.below(weights.len() as u64) as usize),
                    _ => {}
                }
                let known = cluster.locality();
                assert!(known.keys <= figures.max_keys, "the map exceeds its bound");
                assert_eq!(known.keys as usize, oracle.list.len());
                assert_eq!((known.hits, known.moves, known.new), (oracle.hits, oracle.moves, oracle.new));
            }
            let counts = [oracle.hits, oracle.moves, oracle.new];
            (0..3).for_each(|kind| seen[kind] += counts[kind] as usize);
        }
    }
    assert!(seen.iter().all(|count| *count > 100), "hits, moves, new, all overloaded: {seen:?}");
}

#[test]
fn a_target_stays_until_its_node_is_a_miss_busier_than_an_idle_one() {
    let figures = Lard::default();
    let mut cluster = Cluster::new(Dispatch::Lard(figures), &[1.0; 2], 1);
    // 1 + load − 30 against 50 on an idle node: equal at 79, more at 80.
    let sent: Vec<_> = (0..81).filter_map(|_| cluster.send(0, Some(7))).collect();
    assert!(sent[..79].iter().all(|node| *node == 0));
    assert_eq!(sent[80], 1, "{sent:?}");
    // The target stays on its new node.
    assert_eq!(cluster.send(0, Some(7)), Some(1));
    assert_eq!(cluster.locality().moves, 1);
}

#[test]
fn new_targets_are_spread_evenly_over_idle_nodes() {
    let mut cluster = Cluster::new(Dispatch::Lard(Lard::default()), &[1.0; 4], 1);
    // Requests for a known target in between do not disturb the turns.
    let mut counts = BTreeMap::new();
    for locality_key in 0..16 {
        cluster.send(0, Some(0));
        *counts.entry(cluster.send(0, Some(100 + locality_key))).or_insert(0) += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [4; 4]);
}

#[test]
fn targets_of_a_node_that_is_gone_are_mapped_anew_and_others_survive_a_reload() {
    let dispatch = Dispatch::Lard(Lard { max_keys: 8, ..Lard::default() });
    let mut cluster = Cluster::new(dispatch, &[1.0; 3], 1);
    let at: Vec<_> = (0..6).map(|locality_key| cluster.send(0, Some(locality_key))).collect();
    assert_eq!(at, [0, 1, 2, 0, 1, 2].map(Some));
    let mut policy = cluster.engine.policy().clone();
    policy.nodes.remove(0);
    cluster.engine.reconfigure(Time::ZERO, policy.clone()).expect("a valid policy");
    assert_eq!(cluster.locality().keys, 4);
    // Nodes 1 and 2 are now nodes 0 and 1.
    let again: Vec<_> = [1, 2, 4, 5].map(|locality_key| cluster.send(0, Some(locality_key))).to_vec();
    assert_eq!(again, [0, 1, 0, 1].map(Some));
    assert_eq!((cluster.locality().hits, cluster.locality().new), (4, 6));
    // A smaller bound keeps the targets used last.
    policy.pools[0].dispatch = Dispatch::Lard(Lard { max_keys: 2, ..Lard::default() });
    cluster.engine.reconfigure(Time::ZERO, policy).expect("a valid policy");
    assert_eq!((cluster.locality().keys, cluster.locality().max), (2, 2));
    assert_eq!((cluster.send(0, Some(4)), cluster.locality().hits), (Some(0), 5));
}

#[test]
fn a_retry_goes_elsewhere_and_takes_its_target_along() {
    for dispatch in [Dispatch::Lard(Lard::default()), Dispatch::LeastLoaded { avoid_last: true }] {
        let mut cluster = Cluster::new(dispatch, &[1.0; 3], 1);
        assert_eq!(cluster.send(0, Some(1)), Some(0));
        let (ticket, _) = cluster.in_flight[0];
        let next = cluster.engine.observe(Time::ZERO, ticket, Outcome::Failed { retryable: true });
        assert_eq!(next, Some(NodeId(1)));
        if let Dispatch::Lard(_) = dispatch {
            assert_eq!(cluster.send(0, Some(1)), Some(1));
        }
    }
}

#[test]
fn figures_that_make_no_sense_are_refused() {
    let good = Lard::default();
    for bad in [
        Lard { idle: -1.0, ..good },
        Lard { overload: 29.0, ..good },
        Lard { overload: f64::INFINITY, ..good },
        Lard { miss_cost: 0.5, ..good },
        Lard { max_keys: 0, ..good },
        Lard { max_keys: u32::MAX, ..good },
    ] {
        let mut policy = policy(Discipline::none(), 2, vec![class("a", None, None, None)]);
        policy.pools[0].dispatch = Dispatch::Lard(bad);
        assert!(Engine::new(Time::ZERO, policy, 1).is_err(), "{bad:?}");
    }
}
