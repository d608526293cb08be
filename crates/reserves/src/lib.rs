//! Cluster Reserves: every class gets its share of a cluster's resources, whichever nodes its requests reach.
//!
//! Source: Aron, Druschel and Zwaenepoel, "Cluster Reserves: A Mechanism for Resource Management in
//! Cluster-based Network Servers" (SIGMETRICS 2000), Secs. 3 and 5. A class is promised a percentage of the
//! *cluster*, but only its share of each *node* can be set. From the use of every class on every node,
//! [`solve`] finds the shares of all nodes that come closest to all promises, and stay as close to the use as
//! possible.
//!
//! The crate is pure: it has no clock, no I/O and no randomness. Every percentage is of one node. A promise
//! is a percentage of the cluster, which is the same number as the mean over its nodes.
//!
//! `problem` is the optimiser's input and output, `deviation` and `closest` are two of its steps, `flow` is the
//! maximum flow under them, and [`solve`] combines the steps. `cluster` is the operator's declaration, `tracker` the
//! node's side, and `coordinator` the coordinator's side.
//!
//! # Examples
//! Each of two classes is promised half of a cluster of two nodes. Requests of the first reach only the first node:
//! ```
//! use weirgate_reserves::{Problem, is_sink, solve};
//!
//! // Both classes have half of each node. A row is a node, a column is a class.
//! let usage = vec![vec![50.0, 50.0], vec![0.0, 50.0]];
//! let sink = usage.iter().map(|node| node.iter().map(|used| is_sink(50.0, *used)).collect()).collect();
//! let solution = solve(&Problem { desired: vec![50.0, 50.0], usage, sink }).unwrap();
//!
//! // The first class gets the first node, the second class the other one. Each class keeps at least 1 % of each node.
//! let shares = solution.allocation.iter().map(|node| node.iter().map(|share| share.round()).collect());
//! assert_eq!(shares.collect::<Vec<Vec<f64>>>(), [[99.0, 1.0], [1.0, 99.0]]);
//! assert!(solution.deviation < 1e-6);
//! ```
#![forbid(unsafe_code)]

mod closest;
mod cluster;
mod coordinator;
mod deviation;
pub mod flow;
mod problem;
mod solve;
mod tracker;

pub use cluster::{Cluster, ClusterClass};
pub use coordinator::{
    Cause, Coordinator, Finished, GATHERING, Ledger, MAX_FINISHED, MEMORY, Node, Runs, SILENCE, Settings, Shares,
};
pub use problem::{Error, MAX_CLASSES, MAX_NODES, Problem, Solution, is_sink};
pub use solve::solve;
pub use tracker::{Tracker, WINDOW, spent};
pub use weirgate_wire::{Measured, Trigger};
