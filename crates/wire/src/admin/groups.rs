//! Groups of nodes with their windows, as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A group of nodes that serve the same pools, and its window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineGroup {
    /// The resource that its requests use most, if the group has a window for each resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Names of the pools.
    pub pools: Vec<String>,
    /// Maximum number of requests in flight. Absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Number of requests in flight.
    pub outstanding: u32,
    /// Limits on surplus in addition to the window, under disciplines that distinguish surplus from owed requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surplus: Option<Surplus>,
    /// Whether requests have been observed to wait for each other in flight. Absent if load control does not
    /// watch for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// The window's last move, with its reason.
    pub moved: Moved,
}

/// Limits on surplus and on owed requests in one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Surplus {
    /// Maximum number of owed requests in flight, whatever the window. Absent once requests have been
    /// observed to wait for each other in flight, because the window then limits owed requests as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<u32>,
    /// Requests in flight that were released as surplus.
    pub outstanding: u32,
    /// Requests in flight beyond the limits of their machines, because they hang or because the limit was set
    /// after their release. The window does not count them.
    pub stuck: u32,
    /// Slots that the classes with a guaranteed throughput need now.
    pub needed: f64,
    /// Slots that requests in flight keep from these classes for longer than the classes' limits allow.
    pub blocked: f64,
}

/// Whether requests have been observed to wait for each other in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contention {
    /// The present knowledge about contention.
    pub state: ContentionState,
    /// Time at which this state began, in seconds since the gateway started.
    pub since_seconds: f64,
}

/// Knowledge about contention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContentionState {
    /// Contention has not been observed. The window limits surplus, and owed requests are not held back.
    Unseen,
    /// Contention was observed, but times in flight have changed since. Owed requests are not held back, on trial.
    Trial,
    /// Contention has been observed or is being tested for. The window limits owed requests as well.
    Seen,
}

/// The window's last move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Time in seconds since the gateway started.
    pub at_seconds: f64,
    /// Window before the move, in requests.
    pub from: u32,
    /// Window after the move, in requests.
    pub to: u32,
    /// Reason, as text for the operator.
    pub why: String,
}
