//! Groups of nodes with their windows, as JSON, and why a window moved, in words.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weirgate_engine as engine;

use crate::resolve::span_text;

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

impl Group {
    pub(super) fn new(group: &engine::GroupSnapshot, class_name: impl Fn(engine::ClassId) -> String) -> Group {
        Group {
            resource: group.resource.clone(),
            pools: group.pools.clone(),
            window: group.window,
            outstanding: group.outstanding,
            surplus: group.surplus.map(Surplus::from),
            contention: group.contention.map(Contention::new),
            moved: Moved::new(&group.moved, class_name),
        }
    }
}

impl From<engine::SurplusSnapshot> for Surplus {
    fn from(surplus: engine::SurplusSnapshot) -> Surplus {
        let engine::SurplusSnapshot { reach, outstanding, stuck, needed, blocked } = surplus;
        Surplus { reach, outstanding, stuck, needed, blocked }
    }
}

impl Contention {
    fn new((state, since): (engine::Contention, engine::Time)) -> Contention {
        let state = match state {
            engine::Contention::Unseen => ContentionState::Unseen,
            engine::Contention::Trial => ContentionState::Trial,
            engine::Contention::Seen => ContentionState::Seen,
        };
        Contention { state, since_seconds: since.as_secs_f64() }
    }
}

impl Moved {
    pub(super) fn new(moved: &engine::Moved, class_name: impl Fn(engine::ClassId) -> String) -> Moved {
        Moved { at_seconds: moved.at.as_secs_f64(), from: moved.from, to: moved.to, why: why(moved, class_name) }
    }
}

/// Why the window moved, in words: `up 2: class SmallCorp computes in 41 ms, below half of its limit 200 ms`.
#[must_use]
pub fn why(moved: &engine::Moved, class_name: impl Fn(engine::ClassId) -> String) -> String {
    let compared = |class, compute, limit, relation| {
        let (name, compute, limit) = (class_name(class), span_text(compute), span_text(limit));
        format!("class {name} computes in {compute}, {relation} half of its limit {limit}")
    };
    let too_much = |class, compute, limit| {
        let (name, compute, limit) = (class_name(class), span_text(compute), span_text(limit));
        format!("class {name} computes in {compute}, too much of its limit {limit}")
    };
    let reason = match moved.why {
        engine::Why::First => return format!("first window: {}", moved.to),
        engine::Why::Nodes { usable, all } => format!("{usable} of {all} nodes are usable"),
        engine::Why::BelowHalf { class, compute, limit } => compared(class, compute, limit, "below"),
        engine::Why::AboveHalf { class, compute, limit } => compared(class, compute, limit, "above"),
        engine::Why::NoLimit => "no class has a response-time limit".to_owned(),
        engine::Why::NotFull => "compute times allow more, but the window held no request back".to_owned(),
        engine::Why::Reconfigured => "a new policy set it".to_owned(),
        engine::Why::Elasticity { elasticity, searching } => {
            // A window may be kept up by what the guarantees need, whatever its figure.
            let verdict = match moved.to.cmp(&moved.from) {
                Ordering::Greater if searching => "the knee is far off",
                Ordering::Greater if elasticity < 1.0 => "more in flight brings more",
                Ordering::Less => "requests wait for one another in flight",
                Ordering::Greater => "the guarantees need so many",
                Ordering::Equal => "the knee is near, or the guarantees need so many",
            };
            format!("times in flight follow the window by {elasticity:.2}: {verdict}")
        }
        engine::Why::Answered => "so many were answered without waiting for one another".to_owned(),
        engine::Why::Contention => "requests wait for one another in flight, from so many on".to_owned(),
        engine::Why::Doubted { class, compute, limit } => {
            let in_danger = too_much(class, compute, limit);
            format!("{in_danger}: for a while the window bounds what is owed, to see whether times fall")
        }
        engine::Why::Gradient { gradient } => format!("long-term over short-term response times give {gradient:.2}"),
        engine::Why::InTime => "answers come in time while the window is in use".to_owned(),
        engine::Why::Late => "an answer was late or a request failed".to_owned(),
        engine::Why::Endangered { class, compute, limit } => {
            let in_danger = too_much(class, compute, limit);
            match moved.to.cmp(&moved.from) {
                Ordering::Less => in_danger,
                _ => format!("{in_danger}, but the guarantees need so many"),
            }
        }
    };
    match (moved.from, moved.to) {
        (from, to) if to > from => format!("up {}: {reason}", to - from),
        (from, to) if to < from => format!("down {}: {reason}", from - to),
        _ => format!("unchanged: {reason}"),
    }
}
