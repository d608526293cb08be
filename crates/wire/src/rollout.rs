//! A policy that is rolled out to all gateways of a site, as JSON in etcd.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum size of a policy that is rolled out, in bytes: what the admin API takes.
pub const MAX_ROLLOUT_BYTES: usize = 60 << 10;

/// A request of an operator to roll out a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutRequest {
    /// Text of the policy file.
    pub policy: String,
    /// Time for which one gateway tries it before the others, in milliseconds.
    pub watch_ms: u64,
}

/// The answer: the rollout has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutTaken {
    /// The rollout, as `/snapshot` names it.
    pub id: String,
}

/// The policy that is proposed, or was put in force last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutPolicy {
    /// The rollout. No two have the same one.
    pub id: String,
    /// Text of the policy file.
    pub text: String,
}

/// The step at which a rollout is. Only the elected gateway changes it after the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutStep {
    /// The rollout.
    pub id: String,
    /// The step.
    pub stage: RolloutStage,
    /// The gateway that tries the policy first. Empty before it is chosen.
    #[serde(default)]
    pub canary: String,
    /// Time for which it tries the policy, in milliseconds.
    pub watch_ms: u64,
    /// Why the rollout was withdrawn, or which gateways it does not wait for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// A step of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutStage {
    /// Every gateway checks the policy.
    Proposed,
    /// One gateway has it in force.
    Canary,
    /// Every gateway puts it in force, now or when it can read this.
    InForce,
    /// No gateway keeps it.
    Withdrawn,
}

impl RolloutStage {
    /// Returns the word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            RolloutStage::Proposed => "proposed",
            RolloutStage::Canary => "canary",
            RolloutStage::InForce => "in_force",
            RolloutStage::Withdrawn => "withdrawn",
        }
    }
}

/// The answer of a gateway to a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutAnswer {
    /// The rollout.
    pub id: String,
    /// The answer.
    pub state: RolloutState,
    /// Why it is no.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What a gateway says of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    /// It can use the policy.
    Ready,
    /// It cannot.
    Refused,
    /// It has tried the policy, and keeps its guarantees.
    Good,
    /// It has tried the policy, and does not.
    Bad,
    /// It has the policy in its file, and in force.
    InForce,
    /// It has the policy before in force again.
    Restored,
}
