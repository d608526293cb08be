//! What bounds surplus in a window, beside its size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weirgate_engine as engine;

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

impl From<engine::SurplusSnapshot> for Surplus {
    fn from(surplus: engine::SurplusSnapshot) -> Surplus {
        let engine::SurplusSnapshot { reach, outstanding, stuck, needed, blocked } = surplus;
        Surplus { reach, outstanding, stuck, needed, blocked }
    }
}
