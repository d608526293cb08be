//! Messages between Weirgate's processes.
//!
//! - [`admin`]: the JSON of a gateway's admin API. [`access_log`]: a line of its access log.
//! - [`Report`]: an agent's report of its node, which a collector asks for.
//! - [`LearnedState`]: the learned state of a gateway, for one that takes over.
//! - [`Hello`], [`NodeReport`] and [`NodeShares`]: the messages of Cluster Reserves. [`reserves_admin`] is the JSON of
//!   the coordinator's page.
//! - [`RolloutStep`] and its neighbours: what the gateways of a site keep in etcd about a rollout of a policy. Their
//!   other messages are those of `weirgate-site`.
//!
//! Messages from another machine are bounded and checked here, before anything acts on them.

pub mod access_log;
pub mod admin;
mod learned;
mod report;
pub mod reserves_admin;
mod reserves_wire;
mod rollout;

pub use learned::{
    LEARNED_VERSION, LearnedClass, LearnedNode, LearnedRoute, LearnedSize, LearnedState, LearnedTimes, LearnedWindow,
    MAX_LEARNED_BYTES, MAX_LEARNED_CLASSES, MAX_LEARNED_KEY, MAX_LEARNED_ROUTES, key_digits, key_of_digits,
};
pub use report::{Active, MAX_REPORT_BYTES, REPORT_VERSION, RESOURCE_NAMES, Report, Usage};
pub use reserves_wire::{
    Hello, Measured, NodeFigures, NodeReport, NodeShares, Refused, SESSIONS_PATH, Session, Trigger, WIRE_VERSION,
};
pub use rollout::{
    MAX_ROLLOUT_BYTES, RolloutAnswer, RolloutPolicy, RolloutRequest, RolloutStage, RolloutState, RolloutStep,
    RolloutTaken,
};
