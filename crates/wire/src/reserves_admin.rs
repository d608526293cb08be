//! The coordinator's JSON for Cluster Reserves at `GET /reserves`: state of the nodes, use, shares, and the
//! reasons for runs.
//!
//! Field names include the unit. Percentages are of one node, except guaranteed shares, which are of the
//! cluster and equal the mean over its nodes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reserves_wire::NodeFigures;

/// The cluster as seen by the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reserves {
    /// Seconds since the coordinator started.
    pub now_seconds: f64,
    /// Time between two periodic runs. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<f64>,
    /// Whether a request by a node, or a node that joins or leaves, causes a run.
    pub on_demand: bool,
    /// Classes with their guaranteed shares.
    pub classes: Vec<Promise>,
    /// Every node of the policy.
    pub nodes: Vec<Node>,
    /// Counts of runs.
    pub runs: Runs,
    /// The last runs that computed shares, the newest first.
    pub last_runs: Vec<Run>,
    /// The reason for which the last run failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Number of connections that did not authenticate as an agent's.
    pub refused: u64,
}

/// A class and its guaranteed share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Promise {
    /// Name of the class.
    pub name: String,
    /// Its guaranteed share of the cluster.
    pub share_percent: f64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// `up`, `silent` (connected, but without a report for a second) or `down` (not connected).
    pub state: String,
    /// Address from which its agent connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Age of its last report on this connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_age_seconds: Option<f64>,
    /// The run that computed its shares in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// Its classes.
    pub classes: Vec<ClassOnNode>,
    /// Figures of the node as a whole.
    pub figures: NodeFigures,
}

/// A class on a node, as of the last report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassOnNode {
    /// Name of the class.
    pub name: String,
    /// The share in force (r).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Its use (u).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_percent: Option<f64>,
    /// Whether it used all of its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<bool>,
    /// The share computed by the last run (R).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_percent: Option<f64>,
}

/// Counts of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Runs {
    /// Runs that computed shares, by cause: `periodic`, `sink_began`, `sink_ended`, `fell`, `joined`, `left`.
    pub done: BTreeMap<String, u64>,
    /// Runs that failed.
    pub failed: u64,
    /// Number of requests for new shares by nodes.
    pub asked: u64,
    /// Total time spent on computing shares.
    pub solve_seconds: f64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its number.
    pub number: u64,
    /// Time since it began.
    pub seconds_ago: f64,
    /// Its cause, in one word.
    pub cause: String,
    /// The node that asked, joined or left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The class for which the node asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Number of nodes that were up.
    pub nodes: usize,
    /// Part of the guaranteed shares that cannot be met, given the use that the classes can make of the nodes (V).
    pub deviation_percent: f64,
    /// Sum of all increases of shares.
    pub moved_percent: f64,
    /// Time spent on computing the shares.
    pub solve_seconds: f64,
}
