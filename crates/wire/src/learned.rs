//! The learned state of a gateway, for another process that takes over: at `/learned` of the admin API, in a file, and
//! at a hand-over.
//!
//! Source: our own (`docs/adr/0024-learned-state-outlives-the-process.md`). Names decide what belongs together, never
//! positions. Unknown fields are skipped, so that versions of Weirgate can follow one another.
//!
//! The text may come from another machine, from another version or from a damaged file. Its size is bounded here, and a
//! number of it is never a NaN or infinite. The engine ignores values that cannot be, and bounds all others.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version that is written and read. It increases when a field changes its meaning, not when one is added.
pub const LEARNED_VERSION: u32 = 1;

/// Longest text that is read. [`MAX_LEARNED_CLASSES`] classes with keys of a hundred bytes have half of it.
pub const MAX_LEARNED_BYTES: usize = 4 << 20;

/// Maximum number of classes that are written: those with the most recent answers.
pub const MAX_LEARNED_CLASSES: usize = 4096;

/// Maximum number of routes: as many as are learned separately and found, many times over. The others follow the table.
pub const MAX_LEARNED_ROUTES: usize = 1024;

/// Longest key of a class that is written, in bytes. A class with a longer one begins anew.
pub const MAX_LEARNED_KEY: usize = 256;

/// The learned state of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedState {
    /// Version of the format: 1.
    pub version: u32,
    /// Time of writing, in seconds since 1970.
    pub written_seconds: f64,
    /// Checksum of the policy in force, for people.
    #[serde(default)]
    pub checksum: String,
    /// Classes with an answer, at most 4096.
    pub classes: Vec<LearnedClass>,
    /// Windows with an answer.
    pub windows: Vec<LearnedWindow>,
    /// Nodes.
    pub nodes: Vec<LearnedNode>,
    /// Routes of a learned page table that had requests, at most 1024.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<LearnedRoute>,
}

/// Estimates of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedClass {
    /// Name of the class or template.
    pub class: String,
    /// Key of a class of a template, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its upstream.
    pub upstream: String,
    /// Time since its last good answer.
    pub age_seconds: f64,
    /// Service time on a quiet node. Absent if it is declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_time_seconds: Option<f64>,
    /// Expected time in flight: the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_seconds: Option<f64>,
    /// Expected time in flight: the guaranteed percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_percentile_seconds: Option<f64>,
    /// Mean cost on the dominant resource in node-seconds. Absent without a page table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_seconds: Option<f64>,
    /// Time until it may send a whole burst of `max_rate` again.
    #[serde(default)]
    pub rate_full_in_seconds: f64,
    /// Times in flight. Absent under methods that do not need them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<LearnedTimes>,
}

/// Times in flight of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedTimes {
    /// Rate of arrivals.
    pub arrivals_per_second: f64,
    /// Mean.
    pub mean_seconds: f64,
    /// Mean square, in seconds².
    pub mean_square: f64,
    /// Number of completions in both.
    pub completions: f64,
}

/// A window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedWindow {
    /// The upstreams that its machines serve.
    pub upstreams: Vec<String>,
    /// The resource that dominates its requests, if there is a window for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Time since the last good answer.
    pub age_seconds: f64,
    /// Its size, and the estimates behind it.
    pub size: LearnedSize,
}

/// Size of a window, by the method of load control. In requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "method", rename_all = "snake_case")]
pub enum LearnedSize {
    /// Quorum's window.
    Linear {
        /// Size.
        size: u32,
    },
    /// Additive increase, multiplicative decrease.
    Aimd {
        /// Size.
        limit: f64,
    },
    /// The window that follows the gradient of response times.
    Gradient {
        /// Size.
        limit: f64,
        /// Long-term response time.
        long_seconds: f64,
    },
    /// The window at the knee.
    Adaptive {
        /// Size at the lower half of its cycle.
        base: f64,
        /// Weight of the machines that it is for.
        weight: f64,
        /// Factor by which all requests take longer than alone.
        slowdown: f64,
        /// Whether requests were seen to wait for one another.
        contended: bool,
        /// Number of owed requests that may be in flight otherwise.
        reach: f64,
    },
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedNode {
    /// Its upstream.
    pub upstream: String,
    /// Its name.
    pub node: String,
    /// Time in flight on its machine, relative to other machines.
    pub slowness: f64,
    /// Share of its latest answers that were failures.
    pub errors: f64,
    /// Rest of its ejection. Absent if it is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected_for_seconds: Option<f64>,
    /// Number of recent ejections.
    #[serde(default)]
    pub ejections: u32,
}

/// A route of a learned page table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedRoute {
    /// Path and parameters.
    pub pattern: String,
    /// Whether it was found in the traffic as a joint route of many similar paths.
    #[serde(default)]
    pub joint: bool,
    /// Time since its last requests.
    pub age_seconds: f64,
    /// Cost of a request by resource, as a share of a node of weight 1. Unknown ones are absent.
    pub cost: BTreeMap<String, f64>,
}

/// The part of the text that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl LearnedState {
    /// Reads the text of [`LearnedState::to_json`].
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, with the place of an error.
    pub fn parse(bytes: &[u8]) -> Result<LearnedState, String> {
        if bytes.len() > MAX_LEARNED_BYTES {
            return Err(format!("it is longer than {MAX_LEARNED_BYTES} bytes"));
        }
        let Versioned { version } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if version != LEARNED_VERSION {
            return Err(format!("it has version {version}; version {LEARNED_VERSION} is read here"));
        }
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Returns the text, on one line.
    pub fn to_json(&self) -> String {
        // Maps with text keys and numbers always have a JSON form.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// Returns a key as hexadecimal digits.
pub fn key_digits(key: &[u8]) -> String {
    use std::fmt::Write as _;
    key.iter().fold(String::with_capacity(2 * key.len()), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the key of such digits. `None` if they are none, or too many.
pub fn key_of_digits(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if digits.len() > 2 * MAX_LEARNED_KEY || !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    digits.chunks(2).map(|two| Some(value(two.first()?)? << 4 | value(two.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_passage_and_odd_digits_are_none() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(key_of_digits(&key_digits(&all)), Some(all));
        assert_eq!(["0", "0g", "é0", &"00".repeat(257)].map(key_of_digits), [None, None, None, None]);
        assert_eq!(key_of_digits(""), Some(Vec::new()));
    }

    #[test]
    fn errors_name_their_reason() {
        let error = |text: &str| LearnedState::parse(text.as_bytes()).expect_err(text);
        assert!(error("").contains("EOF"));
        assert!(error("\0\u{1}\u{2}").contains("expected value"));
        assert_eq!(error("{\"version\":2}"), "it has version 2; version 1 is read here");
        assert!(error("{\"version\":1}").contains("written_seconds"));
        assert!(error(&" ".repeat(MAX_LEARNED_BYTES + 1)).contains("longer"));
        let huge = "{\"version\":1,\"written_seconds\":1e999,\"classes\":[],\"windows\":[],\"nodes\":[]}";
        assert!(error(huge).contains("out of range"));
        // A list in lists without end is no map, and is not followed.
        assert!(error(&"[".repeat(1 << 20)).contains("column 1"), "{}", error(&"[".repeat(1 << 20)));
    }
}
