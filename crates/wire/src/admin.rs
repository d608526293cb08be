//! What the admin listener says as JSON, in base units: seconds, bytes, per second, shares from 0 to 1.
//!
//! Made from the engine's snapshots. Numbers keep their unit in their name. Texts that come from
//! clients (the keys of templates) are shown as UTF-8 with odd bytes replaced and control characters
//! escaped, and cut, so that a page of classes stays small and cannot steer a terminal.

mod groups;
mod pages;
mod resources;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::Active;
pub use groups::{Contention, ContentionState, Group, Moved, Surplus};
pub use pages::{PageTable, Route};
pub use resources::{Resource, Rounds, by_name};

/// Most characters of a template's key that are shown.
const MAX_KEY_CHARS: usize = 128;

/// The engine as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Seconds since the gateway started.
    pub now_seconds: f64,
    /// The discipline's name.
    pub discipline: String,
    /// Stage release: requests that may be inside; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Requests inside.
    pub outstanding: u32,
    /// Stage queue: requests waiting.
    pub waiting: u32,
    /// Stage control: why the window moved last.
    pub moved: Moved,
    /// Every window: one per group of nodes that serve the same pools, or one for all.
    pub groups: Vec<Group>,
    /// Live classes.
    pub classes: u32,
    /// Stage dispatch: every node.
    pub nodes: Vec<Node>,
    /// Stage dispatch: pools whose nodes are divided over sets of services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<Partition>,
    /// Stage dispatch: pools whose requests go where their targets are (`lard`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub localities: Vec<Locality>,
    /// Stage release: what is left of the nodes' resources, where that decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Stage release: the rounds in which they are shared, under `mdrr`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Rounds>,
    /// Stage queue: waiting requests by tag, where the discipline has tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// Slot-seconds per second that the guarantees need, as far as service times are known; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demanded_capacity: Option<f64>,
    /// Slot-seconds per second of the usable nodes; absent if unknown of one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_capacity: Option<f64>,
}

/// A tag of waiting requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tag {
    /// Its name.
    pub name: String,
    /// Requests that wait with it.
    pub waiting: u32,
}

/// A pool whose nodes are divided over sets of services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Partition {
    /// The pool's name.
    pub pool: String,
    /// Nodes that have changed their set since the start, or since a new policy came with other sets.
    pub moves: u64,
    /// Its sets.
    pub sets: Vec<Set>,
}

/// A pool whose requests go where their targets are. Counts are since the start; a retry counts as a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Locality {
    /// The pool's name.
    pub pool: String,
    /// Targets that are mapped to a node now.
    pub targets: u32,
    /// Most that may be.
    pub most: u32,
    /// Requests that went where their target was mapped.
    pub hits: u64,
    /// Requests whose target was mapped to another usable node, and is mapped anew.
    pub moves: u64,
    /// Requests whose target was not mapped.
    pub new: u64,
}

/// A set of services and its part of the nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Set {
    /// `top_static`, `top_dynamic`, `normal_static` or `normal_dynamic`.
    pub name: String,
    /// Its usable nodes.
    pub nodes: u32,
    /// Their CPUs.
    pub cpus: f64,
    /// Their load per CPU, in static requests inside.
    pub load: f64,
    /// CPUs that were asked for in the last period, refused requests included; before the first, what its size was
    /// taken from.
    pub demand: f64,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name, unique in its pool.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// May it get requests.
    pub state: NodeState,
    /// Seconds since the gateway's start at which its ejection ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected_until_seconds: Option<f64>,
    /// Requests inside it.
    pub outstanding: u32,
    /// Requests that it finished.
    pub served: u64,
    /// Failures.
    pub failed: u64,
    /// Slot-seconds per second; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// What its collector said; absent if it is not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<Collector>,
    /// Requests inside per CPU, a dynamic one as many static ones as it costs; with reports, as its collector counted.
    pub load: f64,
    /// The set of services that it serves; absent if its pool is not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// What is left of each resource, as a share of what it has; absent where all of it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub available: BTreeMap<String, f64>,
}

/// What a node's collector said last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Collector {
    /// Requests that the node is working on; absent before the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Active>,
    /// Seconds since that report came; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// So many reports have been missed in a row that the last one says little.
    pub stale: bool,
    /// Reports missed since the gateway has asked this node.
    pub failures: u64,
}

/// May a node get requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Yes.
    Up,
    /// No: its health checks fail.
    Down,
    /// No: it is being drained.
    Draining,
    /// No: it failed too often in a row.
    Ejected,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Class {
    /// Its number, for as long as the gateway runs.
    pub class: u32,
    /// Its name, or its template's.
    pub name: String,
    /// The key it was made for; absent for classes that the policy names, and for overflow classes, which
    /// carry their template's name and the counts of classes that made room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it is promised.
    pub guarantee: Guarantee,
    /// Stage classify: requests since the start.
    pub offered: u64,
    /// Stage observe: requests that a node finished.
    pub served: u64,
    /// Failures; each attempt counts.
    pub failed: u64,
    /// Left or cut off by the client.
    pub cancelled: u64,
    /// Turned away, by reason. Every reason is there.
    pub shed: BTreeMap<String, u64>,
    /// Retries.
    pub retried: u64,
    /// Stage queue: waiting now.
    pub waiting: u32,
    /// Inside now.
    pub outstanding: u32,
    /// Stage release: its share of the window if every class with a claim used it.
    pub share: f64,
    /// Stage classify: arrivals whose route the page table does not know.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_routes: u64,
    /// What its answered requests took of each resource since the start, by the page table; absent without one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used_node_seconds: BTreeMap<String, f64>,
    /// Stage release: what it may still take of each resource in this round, under `mdrr`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credit_node_seconds: BTreeMap<String, f64>,
    /// Stage release: what it has left of its guaranteed rate, in requests. With a whole one its next request is owed;
    /// below one it is surplus. Absent where the discipline does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// Stage release: owed requests that it may have inside whatever the window says; absent where load control does
    /// not say so, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowance: Option<f64>,
    /// Estimate of release to last byte; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_time_seconds: Option<f64>,
    /// Agreed or learned time on an unloaded node; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_time_seconds: Option<f64>,
    /// Its response-time limit is impossible by itself: shorter than its service time. Absent if it is not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub limit_impossible: bool,
    /// What it got over the sliding window.
    pub achieved: Achieved,
}

/// What a class is promised; nothing is best effort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Guarantee {
    /// Least throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_per_second: Option<f64>,
    /// Largest response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time: Option<Statistic>,
}

/// A statistic of the response time and its value or limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Statistic {
    /// `avg`, `p95`, `p99.9`.
    pub statistic: String,
    /// Its value or limit.
    pub seconds: f64,
}

/// What a class got over the sliding window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Achieved {
    /// Length of the window; shorter after a start.
    pub window_seconds: f64,
    /// Arrivals.
    pub offered_per_second: f64,
    /// Completions.
    pub served_per_second: f64,
    /// Sheds.
    pub shed_per_second: f64,
    /// Mean response time; like the others absent without completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_seconds: Option<f64>,
    /// Median response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_seconds: Option<f64>,
    /// 95th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_seconds: Option<f64>,
    /// 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_seconds: Option<f64>,
    /// The guaranteed statistic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<Statistic>,
    /// Throughput guarantee held: 99 % of what arrived within the guaranteed rate is served; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_held: Option<bool>,
    /// Response-time guarantee held; absent without one or without completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_held: Option<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The key of a template's class for people: UTF-8 where it is, control characters escaped, cut.
#[must_use]
pub fn key_text(key: &[u8]) -> String {
    let mut text = String::new();
    for (shown, c) in String::from_utf8_lossy(key).chars().enumerate() {
        if shown == MAX_KEY_CHARS {
            text.push('…');
            break;
        }
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_cut() {
        assert_eq!(key_text(&[b'x'; 500]), "x".repeat(MAX_KEY_CHARS) + "…");
    }
}
