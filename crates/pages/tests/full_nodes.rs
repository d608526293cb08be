//! Learning on nodes that are always full: constant costs, and one cost that triples.
//!
//! The test runs a small cluster in virtual time. Each node has a CPU, a disk and a link. A request passes
//! through the disk, the CPU and the link, which requests share evenly or use in turn. Requests are admitted
//! until the learned table says that a fifth of a second of some resource is in flight, so the learned costs
//! decide the load.

#[path = "support/dice.rs"]
mod dice;

use dice::Dice;
use weirgate_pages::{Learner, RESOURCES, Shares, Study};

impl Dice {
    /// Returns an approximately lognormal size with mean 1 and deviation 0.2.
    fn size(&mut self) -> f64 {
        (0.2 * self.normal() - 0.02).exp()
    }
}

/// Maximum work in flight per resource, in seconds of a node.
const HORIZON: f64 = 0.2;

/// The order in which a request uses the resources: disk, CPU, link.
const STAGES: [usize; RESOURCES] = [1, 0, 2];

struct Request {
    route: usize,
    from: f64,
    stage: usize,
    /// Remaining work per resource.
    left: Shares,
    /// Cost charged at admission.
    charged: Shares,
}

#[derive(Default)]
struct Node {
    in_flight: Vec<Request>,
    charged: Shares,
    used: Shares,
}

/// Whether a resource serves requests evenly or one after the other.
#[derive(Clone, Copy, PartialEq)]
enum Server {
    Shared,
    InTurn,
}

impl Node {
    /// Returns for each request its part of its resource.
    fn speeds(&self, server: Server) -> Vec<f64> {
        let mut at = [0.0; RESOURCES];
        let mut speeds = vec![0.0; self.in_flight.len()];
        self.in_flight.iter().for_each(|request| at[STAGES[request.stage]] += 1.0);
        let mut taken = [false; RESOURCES];
        for (speed, request) in speeds.iter_mut().zip(&self.in_flight) {
            let resource = STAGES[request.stage];
            *speed = match server {
                Server::Shared => 1.0 / at[resource],
                Server::InTurn => f64::from(u8::from(!std::mem::replace(&mut taken[resource], true))),
            };
        }
        speeds
    }
}

struct Cluster {
    study: Study,
    nodes: Vec<Node>,
    dice: Dice,
    now: f64,
    server: Server,
    /// Number of waiting clients per route.
    waiting: Vec<usize>,
    next: usize,
}

impl Cluster {
    fn new(nodes: usize, clients: &[usize], table: &[Shares], server: Server) -> Cluster {
        let mut study = Study::new(Learner::new(table.iter().map(|cost| Some(*cost))), [None; RESOURCES]);
        study.follow((0..nodes as u64).map(|node| (node, 1.0)));
        Cluster {
            study,
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            dice: Dice(7),
            now: 0.0,
            server,
            waiting: clients.to_vec(),
            next: 0,
        }
    }

    /// Admits requests that fit, one route after the other.
    fn admit(&mut self, actual: &[Shares]) {
        let routes = actual.len();
        let mut refused = 0;
        while refused < routes {
            let route = self.next % routes;
            self.next += 1;
            let cost = self.study.learner.cost(route).expect("it is in the table");
            let room =
                |node: &Node| (0..RESOURCES).map(|k| HORIZON - node.charged[k] - cost[k]).fold(f64::MAX, f64::min);
            let best = self.nodes.iter_mut().max_by(|a, b| room(a).total_cmp(&room(b))).expect("nodes");
            if self.waiting[route] == 0 || room(best) < 0.0 {
                refused += 1;
                continue;
            }
            refused = 0;
            self.waiting[route] -= 1;
            (0..RESOURCES).for_each(|k| best.charged[k] += cost[k]);
            let left = actual[route].map(|cost| cost * self.dice.size());
            best.in_flight.push(Request { route, from: self.now, stage: 0, left, charged: cost });
        }
    }

    /// Runs until `until` with the costs `actual`.
    fn go(&mut self, until: f64, actual: &[Shares]) {
        while self.now < until {
            self.admit(actual);
            let second = self.now.floor() + 1.0;
            let speeds: Vec<Vec<f64>> = self.nodes.iter().map(|node| node.speeds(self.server)).collect();
            let next = self.nodes.iter().zip(&speeds).flat_map(|(node, speeds)| {
                node.in_flight.iter().zip(speeds).map(|(request, speed)| request.left[STAGES[request.stage]] / speed)
            });
            let step = next.fold(f64::INFINITY, f64::min).min(second - self.now);
            self.now = if step < second - self.now { self.now + step } else { second };
            for (number, (node, speeds)) in self.nodes.iter_mut().zip(speeds).enumerate() {
                let mut busy = [0.0; RESOURCES];
                for (request, speed) in node.in_flight.iter_mut().zip(speeds) {
                    let resource = STAGES[request.stage];
                    busy[resource] = step;
                    request.left[resource] -= step * speed;
                    request.stage += usize::from(request.left[resource] <= 1e-12);
                }
                (0..RESOURCES).for_each(|k| node.used[k] += busy[k]);
                for request in node.in_flight.extract_if(.., |request| request.stage == STAGES.len()) {
                    (0..RESOURCES).for_each(|k| node.charged[k] -= request.charged[k]);
                    self.waiting[request.route] += 1;
                    let route = u32::try_from(request.route).ok();
                    self.study.finished(number as u64, route, (request.from, self.now), true);
                }
            }
            if self.now == second {
                for (number, node) in self.nodes.iter().enumerate() {
                    self.study.reported(number as u64, 0, self.now, node.used.map(Some), [Some(1.0); RESOURCES]);
                }
            }
        }
    }

    /// Returns the learned cost per route and resource, as a part of the truth.
    fn found(&self, actual: &[Shares]) -> Vec<Shares> {
        let cost = |route| self.study.learner.cost(route).expect("it is in the table");
        actual.iter().enumerate().map(|(route, actual)| std::array::from_fn(|k| cost(route)[k] / actual[k])).collect()
    }
}

/// Each page takes most of a different resource.
const PAGES: [Shares; 3] = [[0.006, 0.002, 0.002], [0.002, 0.006, 0.002], [0.002, 0.002, 0.006]];
/// Six hundred clients, more of the first page than of the others.
const CLIENTS: [usize; 3] = [330, 135, 135];

/// Multiplies one cost by `factor` two minutes into the run. Returns each learned cost a minute later, as a
/// part of the truth.
fn changed(nodes: usize, server: Server, (route, resource): (usize, usize), factor: f64) -> Vec<Shares> {
    let mut cluster = Cluster::new(nodes, &CLIENTS, &PAGES, server);
    cluster.go(120.0, &PAGES);
    let mut actual = PAGES;
    actual[route][resource] *= factor;
    cluster.go(180.0, &actual);
    cluster.found(&actual)
}

#[test]
fn what_does_not_change_stays_for_five_minutes() {
    for (nodes, server) in [(1, Server::Shared), (4, Server::Shared), (1, Server::InTurn), (4, Server::InTurn)] {
        let mut cluster = Cluster::new(nodes, &CLIENTS, &PAGES, server);
        cluster.go(300.0, &PAGES);
        let found = cluster.found(&PAGES);
        assert!(found.iter().flatten().all(|part| (part - 1.0).abs() < 0.05), "{nodes} nodes: {found:.2?}");
        assert!(cluster.study.learner.background().iter().all(|used| *used < 0.02), "nothing else works there");
    }
}

#[test]
fn a_cost_that_trebles_is_known_after_a_minute_and_not_taken_for_another() {
    // The main cost of the busiest page, the main cost of another page, and a small cost of that page.
    for change in [(0, 0), (2, 2), (2, 0)] {
        for nodes in [1, 4] {
            let found = changed(nodes, Server::Shared, change, 3.0);
            let (route, resource) = change;
            assert!((found[route][resource] - 1.0).abs() < 0.2, "{change:?}, {nodes} nodes: {found:.2?}");
            assert!(found.iter().flatten().all(|part| (part - 1.0).abs() < 0.25), "{change:?}, {nodes}: {found:.2?}");
        }
    }
}

#[test]
fn where_stays_say_nothing_the_level_is_right() {
    // In a server that works in turn, all requests wait for each other. The change may be attributed to the
    // wrong route, but the total must be right.
    for change in [(0, 0), (2, 2), (2, 0)] {
        for nodes in [1, 4] {
            let found = changed(nodes, Server::InTurn, change, 3.0);
            let mut actual = PAGES;
            actual[change.0][change.1] *= 3.0;
            for resource in 0..RESOURCES {
                let sum = |costs: &dyn Fn(usize) -> f64| (0..PAGES.len()).map(costs).sum::<f64>();
                let all = sum(&|route| actual[route][resource]);
                let level = sum(&|route| actual[route][resource] * found[route][resource]) / all;
                assert!((level - 1.0).abs() < 0.3, "{change:?}, {nodes} nodes: {found:.2?}");
            }
        }
    }
}
