//! Step 1: finds how much of the promises can be used at all.
//!
//! Source: Cluster Reserves, Sec. 3, step 1, which asks for the least sum of absolute deviations. Giving a
//! class more than its promise never helps, unless the minimum share forces it. The sum is therefore least
//! when as much as possible is given out with every class at or below its target. This is a maximum flow from
//! nodes to classes. Its minimum cut also tells which nodes must give everything, which classes reach their
//! target, and which shares are at their bounds in *every* best solution. Step 2 decides only the free
//! shares.

use crate::flow::Network;
use crate::problem::Problem;

/// The flow counts in billionths of a percent, so it is exact. This is a hundred times finer than the
/// precision required of the result, and 10,000 nodes at 100 % are 10^15, far below 2^64.
const UNITS: f64 = 1e9;

/// Minimum share of a class on a node, in percent. It is the paper's figure and lets a class with a first
/// request begin.
const MIN: f64 = 1.0;

/// Result of step 1.
pub(crate) struct Deviation {
    /// V, in percent of a node.
    pub deviation: f64,
    /// Minimum share of every class on every node, in percent: [`MIN`], or an equal part of a node with
    /// more than a hundred classes.
    pub floor: f64,
    /// Maximum share per node and class, in percent of the node.
    pub upper: Vec<Vec<f64>>,
    /// Target for the sum of each class's shares, in percent of a node (T).
    pub target: Vec<f64>,
    /// Per node, whether it may keep something, that is, whether it is on the source's side of the cut. All
    /// others give 100 %.
    pub slack_node: Vec<bool>,
    /// Per class, whether its shares sum to its target. All others stay at or below it.
    pub full_class: Vec<bool>,
}

/// Solves step 1.
pub(crate) fn deviation(problem: &Problem) -> Deviation {
    let (nodes, classes) = (problem.nodes(), problem.classes());
    let whole = |percent: f64| (percent * UNITS).round() as u64;
    let percent = |units: u64| units as f64 / UNITS;
    let hundred = whole(100.0);
    let floor = whole(MIN).min(hundred / classes as u64);
    let upper = |node: usize, class: usize| match problem.sink[node][class] {
        true => hundred,
        false => whole(problem.usage[node][class].min(100.0)).max(floor),
    };
    let target = |class: usize| whole(problem.desired[class] * nodes as f64).max(floor * nodes as u64);

    // Every class has the floor. The flow comes on top.
    let (source, sink) = (nodes + classes, nodes + classes + 1);
    let mut network = Network::new(nodes + classes + 2);
    for node in 0..nodes {
        network.edge(source, node, hundred - floor * classes as u64);
        for class in 0..classes {
            let room = upper(node, class) - floor;
            if room > 0 {
                network.edge(node, nodes + class, room);
            }
        }
    }
    for class in 0..classes {
        network.edge(nodes + class, sink, target(class) - floor * nodes as u64);
    }
    let given = network.maximum(source, sink) + floor * (nodes * classes) as u64;
    let side = network.reachable(source);

    let targets: Vec<f64> = (0..classes).map(|class| percent(target(class))).collect();
    let over: f64 = targets.iter().zip(&problem.desired).map(|(target, desired)| target - desired * nodes as f64).sum();
    let short = targets.iter().sum::<f64>() - percent(given);
    Deviation {
        deviation: (over + short).max(0.0),
        floor: percent(floor),
        upper: (0..nodes).map(|node| (0..classes).map(|class| percent(upper(node, class))).collect()).collect(),
        target: targets,
        slack_node: side[..nodes].to_vec(),
        full_class: side[nodes..nodes + classes].to_vec(),
    }
}
