//! Changes that an operator acts on, and refusals with their reasons, as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The latest events, and the latest refusals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// Seconds since the gateway started.
    pub now_seconds: f64,
    /// The latest events, oldest first.
    pub events: Vec<Event>,
    /// The latest spans of time in which a class had requests refused, the latest refusal first.
    pub refusals: Vec<Refusals>,
}

/// A change that an operator acts on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Number of the event. The first one since the start is 1.
    pub number: u64,
    /// Time in seconds since the gateway started.
    pub at_seconds: f64,
    /// Calendar time in seconds since 1970.
    pub unix_seconds: f64,
    /// Kind of change.
    pub kind: EventKind,
    /// The change in one sentence, with its figures.
    pub text: String,
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Another policy or another list of nodes is in force.
    PolicyChanged,
    /// A node gets no requests, because its health checks fail.
    NodeDown,
    /// A node gets no requests, because its requests failed.
    NodeEjected,
    /// A node is being drained.
    NodeDraining,
    /// A node may get requests again.
    NodeUp,
    /// A node has been added to the policy.
    NodeAppeared,
    /// A node has been removed from the policy.
    NodeLeft,
    /// No node of an upstream can get requests.
    UpstreamUnusable,
    /// A node of such an upstream can get requests again.
    UpstreamUsable,
    /// Requests of a class are refused.
    SheddingBegan,
    /// No request of a class has been refused for a while.
    SheddingEnded,
    /// Requests of an observed class are let through that would be refused if the policy were enforced.
    WouldShedBegan,
    /// No request of an observed class would have been refused for a while.
    WouldShedEnded,
    /// A class misses its guarantee.
    GuaranteeMissed,
    /// A class has kept its guarantee again for a while.
    GuaranteeHeld,
    /// The response-time limit of a class is below the time that its requests take on idle nodes.
    LimitImpossible,
    /// The limit is no longer below it.
    LimitPossible,
    /// New connections of a peer are closed at once.
    ConnectionsRefused,
    /// No connection of that peer was closed for a while.
    ConnectionsAccepted,
    /// The certificate of a listener expires soon.
    CertificateEnding,
    /// The certificate of a listener has expired, so clients refuse it.
    CertificateEnded,
    /// A certificate that was about to expire has been renewed.
    CertificateRenewed,
    /// A gateway of the site is elected, and divides the guarantees.
    GatewayElected,
    /// The elected gateway grants this one its shares of the guarantees.
    SharesGranted,
    /// No shares were granted for too long. This gateway keeps a part of the last ones.
    SharesSafe,
    /// The time for this part is over, too. The gateway keeps only the minimum.
    SharesMinimum,
    /// Another process runs under the name of this gateway, so it keeps the minimum and is not elected.
    GatewayFenced,
    /// A policy that was rolled out to the site is in force on this gateway.
    RolloutInForce,
    /// This gateway cannot use a policy that is rolled out, or performs badly with it.
    RolloutRefused,
    /// A rollout has failed, and no gateway keeps its policy.
    RolloutWithdrawn,
    /// Stands for events that were left out, because there were too many at once.
    More,
}

/// A span of time in which a class had requests refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Refusals {
    /// Name of the class or template.
    pub class: String,
    /// Time of the first refusal, in seconds since the gateway started, to the second.
    pub from_seconds: f64,
    /// Time of the latest refusal.
    pub to_seconds: f64,
    /// Whether requests were refused within the last seconds.
    pub lasts: bool,
    /// Number of refused requests.
    pub count: u64,
    /// Number of requests that arrived meanwhile.
    pub offered: u64,
    /// The most frequent reason.
    pub reason: String,
    /// This reason in words, with the figures of the latest refusal.
    pub why: String,
}
