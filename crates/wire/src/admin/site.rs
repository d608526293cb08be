//! The gateways that keep the guarantees of a site together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{RolloutAnswer, RolloutStep};

/// The site, as this gateway knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiteStatus {
    /// Name of this gateway.
    pub gateway: String,
    /// Where its shares come from.
    pub stage: SiteStage,
    /// Time until that ends, in seconds. Absent for minimum shares, which do not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_ends_in_seconds: Option<f64>,
    /// The elected gateway, which divides the guarantees. Absent while none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<String>,
    /// Revision of its election. 0 while none is known.
    pub revision: u64,
    /// Time since its last answer in seconds. Absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_age_seconds: Option<f64>,
    /// Why it has not answered last. Absent after an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time since the last answer of etcd in seconds. Absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_age_seconds: Option<f64>,
    /// Why etcd has not answered last. Absent after an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_error: Option<String>,
    /// Checksum of what all gateways must agree on.
    pub checksum: String,
    /// Number of reports that this gateway has refused, since its start.
    pub refused: u64,
    /// Requests that all other gateways have in flight, as the elected one has told. Absent if the lease has ended, or
    /// if load control shares no windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_of_others: Option<f64>,
    /// All gateways, by name.
    pub members: Vec<SiteMember>,
    /// Number of times that shares have changed, under the policy in force. Between two looks with the same number they
    /// have not, unless a lease has ended.
    #[serde(default)]
    pub changes: u64,
    /// Classes with a guaranteed throughput, by name.
    pub classes: Vec<SiteShare>,
    /// Number of classes that [`SiteMember::shares`] leave out: those with the smallest guarantees.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub classes_left_out: usize,
    /// The latest rollout of a policy. Absent if there was none, or if the policy does not allow them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<SiteRollout>,
}

/// A rollout of a policy, as a gateway knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SiteRollout {
    /// Its step in etcd.
    pub step: RolloutStep,
    /// The last answer of this gateway to it. Absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<RolloutAnswer>,
}

/// Where the shares of a gateway come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SiteStage {
    /// The lease runs.
    Granted,
    /// The lease has ended: a part of the shares.
    Safe,
    /// There is no grant: the minimum.
    #[default]
    Minimum,
}

impl SiteStage {
    /// Returns the word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            SiteStage::Granted => "granted",
            SiteStage::Safe => "safe",
            SiteStage::Minimum => "minimum",
        }
    }
}

/// A gateway of the site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiteMember {
    /// Its name.
    pub name: String,
    /// Its address for the other gateways.
    pub address: String,
    /// Time since its last report in seconds. Absent if this gateway is not the elected one, or has heard none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// What the elected gateway knows of it: `unknown`, `asked`, `live` or `left`. Absent if this gateway is not the
    /// elected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Requests that it has in flight, by its last report. Absent if this gateway is not the elected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<f64>,
    /// Its shares of the largest guarantees, the largest first, with its demand: at most 100 classes, fewer if the site
    /// has more than 20 gateways, and at least one. Absent if this gateway is not the elected one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<MemberShare>,
}

/// The share of one gateway in the guaranteed throughput of a class, as the elected gateway knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberShare {
    /// The class.
    pub class: String,
    /// The most of the guarantee that it may hold.
    pub held_per_second: f64,
    /// Requests that reach it, by its last report, counted up to the whole guarantee. Absent if its lease has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand_per_second: Option<f64>,
}

/// The share of this gateway in the guaranteed throughput of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiteShare {
    /// The class.
    pub class: String,
    /// What the site guarantees.
    pub guaranteed_per_second: f64,
    /// What this gateway keeps of it now.
    pub share_per_second: f64,
    /// Requests that reach this gateway.
    pub demand_per_second: f64,
    /// The most that all gateways may hold together, as the elected one counts it. Absent on the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_per_second: Option<f64>,
    /// The part of that which no gateway has stated yet, after an election. It is part of the share of no
    /// [`SiteMember`]. Absent if there is none, and on gateways that are not elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstated_per_second: Option<f64>,
    /// Requests that reach all gateways whose leases run, each counted up to the whole guarantee. Absent on gateways
    /// that are not elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_demand_per_second: Option<f64>,
}

/// Whether a number is left out.
fn is_zero(number: &usize) -> bool {
    *number == 0
}
