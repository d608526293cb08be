//! The JSON of the admin listener, in base units: seconds, bytes, per second, shares from 0 to 1.
//!
//! It is made from the engine's snapshots. Field names include the unit. Texts that come from clients (the
//! keys of templates) are shown as UTF-8 with invalid bytes replaced and control characters escaped, and are
//! cut, so that a page of classes stays small and cannot control a terminal.

mod events;
mod groups;
mod pages;
mod resources;
mod site;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::Active;
pub use events::{Event, EventKind, Events, Refusals};
pub use groups::{Contention, ContentionState, MachineGroup, Moved, Surplus};
pub use pages::{PageTable, Route};
pub use resources::{Resource, Rounds, by_name};
pub use site::{MemberShare, SiteMember, SiteRollout, SiteShare, SiteStage, SiteStatus};

/// Maximum number of characters shown of a template's key.
const MAX_KEY_CHARS: usize = 128;

/// The engine as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Seconds since the gateway started.
    pub now_seconds: f64,
    /// The discipline's name.
    pub discipline: String,
    /// Release stage: maximum number of requests in flight. Absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Number of requests in flight.
    pub outstanding: u32,
    /// Queue stage: number of waiting requests.
    pub waiting: u32,
    /// Control stage: the window's last move, with its reason.
    pub moved: Moved,
    /// All windows: one per group of nodes that serve the same pools, or one for all nodes.
    pub machine_groups: Vec<MachineGroup>,
    /// Number of live classes.
    pub classes: u32,
    /// Dispatch stage: all nodes.
    pub nodes: Vec<Node>,
    /// Dispatch stage: pools with nodes divided among sets of services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub divided_pools: Vec<DividedPool>,
    /// Dispatch stage: pools that send requests to the node with their document (`lard`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub localities: Vec<Locality>,
    /// Release stage: available shares of the nodes' resources, if release depends on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Release stage: the rounds in which resources are shared, under `mdrr`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Rounds>,
    /// Queue stage: waiting requests by priority, if the discipline has priorities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<Priority>,
    /// Slot-seconds per second that the guarantees need, as far as service times are known. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demanded_capacity: Option<f64>,
    /// Slot-seconds per second of the usable nodes. Absent if the capacity of one of them is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_capacity: Option<f64>,
}

/// A source that names the nodes of an upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Discovery {
    /// The upstream.
    pub upstream: String,
    /// The source: a path, a URL or a name.
    pub source: String,
    /// Number of nodes that it named last.
    pub nodes: u32,
    /// Number of changes of the nodes.
    pub changes: u64,
    /// Number of looks that failed.
    pub failures: u64,
    /// Age of the last successful look in seconds. Absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_age_seconds: Option<f64>,
    /// Error of the last look. Absent if it was successful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Where learned state is kept, and from where it comes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedStatus {
    /// The file that keeps it over a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why the file could not be written the last time. Absent if it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_error: Option<String>,
    /// The gateways that are followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follows: Vec<Followed>,
}

/// A gateway that is followed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Followed {
    /// Address of its admin API.
    pub gateway: String,
    /// Time since its last answer in seconds. Absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// Time since it served a request, as far as its last answer says. Absent if it has served none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_age_seconds: Option<f64>,
    /// Time since something was taken over from it. Absent if nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_age_seconds: Option<f64>,
    /// Number of requests without a useful answer.
    pub failures: u64,
    /// Reason of the last failure. Absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A certificate that an authority issues (ACME).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcmeCertificate {
    /// Its names.
    pub names: Vec<String>,
    /// Its file.
    pub file: String,
    /// End of its validity, in seconds since 1970. Absent while there is none for all names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after_seconds: Option<f64>,
    /// Time until the next order in seconds: the renewal, or the next attempt after a failure.
    pub next_order_in_seconds: f64,
    /// Number of certificates that the authority has issued to this process.
    pub issued: u64,
    /// Number of failed attempts.
    pub failures: u64,
    /// Reason of the last failure. Absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A priority of waiting requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Priority {
    /// Its name.
    pub name: String,
    /// Number of waiting requests of this priority.
    pub waiting: u32,
}

/// A pool with nodes divided among sets of services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DividedPool {
    /// The pool's name.
    pub pool: String,
    /// Number of times that a node changed its set since the start, or since a new policy changed the sets.
    pub moves: u64,
    /// Its partitions, one per set of services.
    pub partitions: Vec<Partition>,
}

/// A pool that sends requests to the node with their document. Counts are since the start, and a retry counts
/// as a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Locality {
    /// The pool's name.
    pub pool: String,
    /// Number of documents that are mapped to a node now.
    pub keys: u32,
    /// Maximum number of mapped documents.
    pub max: u32,
    /// Requests sent to the node that their document was mapped to.
    pub hits: u64,
    /// Requests for a document that was mapped to another usable node, and is now mapped again.
    pub moves: u64,
    /// Requests for a document that was not mapped.
    pub new: u64,
}

/// A partition of a pool: the nodes for one set of services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Partition {
    /// Its set: `top_static`, `top_dynamic`, `normal_static` or `normal_dynamic`.
    pub set: String,
    /// Number of its usable nodes.
    pub nodes: u32,
    /// CPUs of these nodes.
    pub cpus: f64,
    /// Load of these nodes per CPU, in static requests in flight.
    pub load: f64,
    /// CPUs demanded in the last period, refused requests included. Before the end of the first period, the
    /// demand that the set's size was derived from.
    pub demand: f64,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name, unique in its pool.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Whether it may get requests, and if not, the reason.
    pub state: NodeState,
    /// Seconds since the gateway's start at which its ejection ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected_until_seconds: Option<f64>,
    /// Number of its requests in flight.
    pub outstanding: u32,
    /// Number of requests that it finished.
    pub served: u64,
    /// Number of failures.
    pub failed: u64,
    /// Share of its weight that it has during a slow start. Absent if it has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Number of workers of its machine, found by the order of its answers. Slightly more requests are in flight there
    /// at most. Absent while none has been found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Slot-seconds per second. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// Last report of its collector. Absent if the node has no collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<Collector>,
    /// Requests in flight per CPU. A dynamic request counts as the number of static ones that it costs. With
    /// `load: reports`, as counted by the collector.
    pub load: f64,
    /// The service set that it serves. Absent if its pool is not partitioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Available share of each resource. Absent if all resources are fully available.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub available: BTreeMap<String, f64>,
}

/// The last report of a node's collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Collector {
    /// Requests that the node is working on. Absent before the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Active>,
    /// Age of that report in seconds. Absent before the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// Whether so many consecutive reports were missed that the last one is no longer reliable.
    pub stale: bool,
    /// Number of reports missed since the gateway began to query this node.
    pub failures: u64,
}

/// Whether a node may get requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It may get requests.
    Up,
    /// It gets none, because its health checks fail.
    Down,
    /// It gets none, because it is being drained.
    Draining,
    /// It gets none, because it failed too often in a row.
    Ejected,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Class {
    /// Its number, which is constant while the gateway runs.
    pub class: u32,
    /// Its name, or its template's.
    pub name: String,
    /// The key it was made for. Absent for classes that the policy names, and for overflow classes, which
    /// have their template's name and the counts of removed classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its guarantee, as the policy promises it.
    pub guarantee: Guarantee,
    /// What this gateway keeps of the guaranteed throughput now, if the gateways of the site share it. Results are
    /// judged by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_per_second: Option<f64>,
    /// Classify stage: number of requests since the start.
    pub offered: u64,
    /// Observe stage: number of requests that a node finished.
    pub served: u64,
    /// Number of failed attempts.
    pub failed: u64,
    /// Number of requests that the client abandoned or aborted.
    pub cancelled: u64,
    /// Number of requests turned away, by reason. Every reason is listed.
    pub shed: BTreeMap<String, u64>,
    /// Share of its sources that are enforced. The requests of the others are observed: they pass, whatever the
    /// discipline decides. Absent if all are enforced.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub enforced_share: f64,
    /// Number of requests that passed and would have been turned away, by reason. Absent if there are none and all
    /// sources are enforced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub would_shed: BTreeMap<String, u64>,
    /// Number of retries.
    pub retried: u64,
    /// Queue stage: number of requests waiting now.
    pub waiting: u32,
    /// Number of requests in flight now.
    pub outstanding: u32,
    /// Release stage: its share of the window if every class with a claim used it.
    pub share: f64,
    /// Classify stage: number of arrivals with a route that is not in the page table.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown_routes: u64,
    /// Cost of its answered requests for each resource since the start, by the page table. Absent without a
    /// page table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used_node_seconds: BTreeMap<String, f64>,
    /// Release stage: its remaining credit for each resource in this round, under `mdrr`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credit_node_seconds: BTreeMap<String, f64>,
    /// Release stage: its unused guaranteed rate, in requests. With one or more, its next request is owed,
    /// else it is surplus. Absent if the discipline does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// Release stage: number of owed requests that it may have in flight whatever the window. Absent if load
    /// control does not set it, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowance: Option<f64>,
    /// Estimated time from release to last byte. Absent while there is no estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_time_seconds: Option<f64>,
    /// Declared or learned service time on an unloaded node. Absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_time_seconds: Option<f64>,
    /// Whether its response-time limit is impossible, because it is shorter than the service time.
    /// Absent if it is not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit_impossible: bool,
    /// Results over the sliding window.
    pub achieved: Achieved,
}

/// The guarantee of a class. An empty one means best effort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Guarantee {
    /// Minimum throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_per_second: Option<f64>,
    /// Maximum response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time: Option<Statistic>,
}

/// A statistic of the response time and its value or limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Statistic {
    /// `avg`, `p95`, `p99.9`.
    pub statistic: String,
    /// Value or limit.
    pub seconds: f64,
}

/// Results of a class over the sliding window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Achieved {
    /// Length of the window. It is shorter after a start.
    pub window_seconds: f64,
    /// Arrival rate.
    pub offered_per_second: f64,
    /// Rate of completions.
    pub served_per_second: f64,
    /// Rate of shed requests.
    pub shed_per_second: f64,
    /// Rate of requests that passed and would have been shed. Absent if it is zero.
    #[serde(default, skip_serializing_if = "is_default")]
    pub would_shed_per_second: f64,
    /// Mean response time. Absent without completions, like the other times.
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
    /// Whether the throughput guarantee held: 99 % of the arrivals within the guaranteed rate were served.
    /// Absent without such a guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_held: Option<bool>,
    /// Whether the response-time guarantee held. Absent without such a guarantee or without completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_held: Option<bool>,
}

fn one() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(share: &f64) -> bool {
    *share >= 1.0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Formats the key of a template's class: as UTF-8 where it is valid, with control characters escaped, cut to
/// length.
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
