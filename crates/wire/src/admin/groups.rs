//! Groups of nodes with their windows, as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A group of nodes that serve the same pools, and its window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// The resource that its requests take most of, where the group has a window for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The pools' names.
    pub pools: Vec<String>,
    /// Requests that may be inside; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Requests inside.
    pub outstanding: u32,
    /// What bounds surplus beside the window, under disciplines that tell it from what is owed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surplus: Option<Surplus>,
    /// Whether requests have been seen to wait for one another in flight; absent if load control does not look for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// Why the window moved last.
    pub moved: Moved,
}

/// What bounds surplus and what is owed in one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Surplus {
    /// Owed requests that may be inside, whatever the window. Absent once requests have been seen to wait for one
    /// another inside: then the window bounds them as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<u32>,
    /// Requests inside that were released as surplus.
    pub outstanding: u32,
    /// Requests inside beyond the bounds of their machines, which hang or were bounded since; the window does not count
    /// them.
    pub stuck: u32,
    /// Slots that the classes with a guaranteed throughput need now.
    pub needed: f64,
    /// Slots that what is inside keeps from them for longer than their limits allow.
    pub blocked: f64,
}

/// Whether requests have been seen to wait for one another in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contention {
    /// What is known of it.
    pub state: ContentionState,
    /// Since when, in seconds since the gateway started.
    pub since_seconds: f64,
}

/// What is known of contention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContentionState {
    /// It has not been seen: the window bounds surplus, and nothing that is owed is held back.
    Unseen,
    /// It had been seen, but times in flight have changed since: nothing that is owed is held back, on trial.
    Trial,
    /// It has been seen, or it is being found out: the window bounds what is owed as well.
    Seen,
}

/// The window's last move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Seconds since the gateway started.
    pub at_seconds: f64,
    /// From how many requests.
    pub from: u32,
    /// To how many.
    pub to: u32,
    /// Why, for people.
    pub why: String,
}
