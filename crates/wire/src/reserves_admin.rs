//! What the manager of Cluster Reserves says as JSON at `GET /reserves`: who is up, what is used, what was given, and
//! why.
//!
//! Numbers keep their unit in their name. Percentages are of one node, promises of the cluster, which is the same
//! number as the mean over its nodes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reserves_wire::NodeFigures;

/// The cluster as the manager sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reserves {
    /// Seconds since the manager started.
    pub now_seconds: f64,
    /// Time between two periodic runs; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<f64>,
    /// Whether nodes that ask, come or go are a reason to run.
    pub on_demand: bool,
    /// What is promised.
    pub classes: Vec<Promise>,
    /// Every node of the policy.
    pub nodes: Vec<Node>,
    /// Counts of runs.
    pub runs: Runs,
    /// The last runs that led to shares, the newest first.
    pub last_runs: Vec<Run>,
    /// Why the last run came to nothing, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Connections that have not proven to be an agent's.
    pub refused: u64,
}

/// A class and its promise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Promise {
    /// The class.
    pub name: String,
    /// Its share of the cluster.
    pub share_percent: f64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// `up`; `silent`: connected and without a report for a second; `down`: not connected.
    pub state: String,
    /// Where its agent connects from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Age of its last report on this connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_age_seconds: Option<f64>,
    /// The run whose shares are in force there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// Its classes.
    pub classes: Vec<ClassOnNode>,
    /// The node as a whole.
    pub figures: NodeFigures,
}

/// A class on a node, by the last report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassOnNode {
    /// The class.
    pub name: String,
    /// The share in force (r).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// What it used (u).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_percent: Option<f64>,
    /// Whether it used all of its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<bool>,
    /// The share that the last run gave it (R).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_percent: Option<f64>,
}

/// Counts of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Runs {
    /// That led to shares, by cause: `periodic`, `sink_began`, `sink_ended`, `fell`, `joined`, `left`.
    pub done: BTreeMap<String, u64>,
    /// That came to nothing.
    pub failed: u64,
    /// Times that nodes asked.
    pub asked: u64,
    /// Time that finding shares took in all.
    pub solve_seconds: f64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its number.
    pub number: u64,
    /// How long ago it began.
    pub seconds_ago: f64,
    /// Why it was made, in a word.
    pub cause: String,
    /// The node that asked, came or went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The class that the node asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Nodes that were up.
    pub nodes: usize,
    /// By how much the promises cannot be met by what the classes can use (V).
    pub deviation_percent: f64,
    /// What classes were given more than before, in all.
    pub moved_percent: f64,
    /// How long finding the shares took.
    pub solve_seconds: f64,
}
