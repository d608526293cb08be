//! Messages between the gateways of a site: reports of their demand, and the shares that answer them.
//!
//! A gateway sends a report with PUT to [`SITE_PATH`] of the elected one, which keeps it for some time and answers with
//! a grant, or with status 204 if another report of the same gateway has taken its place. Source: our own
//! (`docs/adr/0023-shares-on-leases.md`). Budgets are numbered, because gateways with the same
//! checksum have the same ones. Amounts are millionths of a request a second.

use serde::{Deserialize, Serialize};

/// Version of the messages. Gateways of different versions share nothing.
pub const SITE_VERSION: u32 = 3;

/// Path of reports.
pub const SITE_PATH: &str = "/site/report";

/// Longest message in bytes: that of a thousand budgets has half of it.
pub const MAX_SITE_BYTES: u64 = 64 << 10;

/// Report of a gateway to the elected one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteReport {
    /// [`SITE_VERSION`] of the sender.
    pub version: u32,
    /// Checksum of what the gateways agree on.
    pub checksum: String,
    /// Name of the sender.
    pub member: String,
    /// Revision of the election that is followed.
    pub revision: u64,
    /// Number of the sender's process.
    pub incarnation: u64,
    /// Number of the report.
    pub number: u64,
    /// Number of the last message of the elected gateway that was applied.
    pub applied: u64,
    /// The shares of all budgets, if that message asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Vec<u64>>,
    /// Demands that changed, as budget and amount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demands: Vec<(u32, u64)>,
    /// Use of the window of each group of nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<SiteWindow>,
    /// Whether the sender leaves.
    #[serde(default)]
    pub leaving: bool,
}

/// Answer to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteGrant {
    /// Revision of the election.
    pub revision: u64,
    /// Number of the process that is meant.
    pub incarnation: u64,
    /// Number of the report that is answered.
    pub report: u64,
    /// Number of this message.
    pub sequence: u64,
    /// What to do.
    pub step: SiteStep,
    /// Share of the window of each group of nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<SiteWindowShare>,
}

/// Use of the window of one group of nodes by the sender, in thousandths of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteWindow {
    /// The window that the sender has found.
    pub base: u32,
    /// Its lower bound there.
    pub least: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Those of them that are owed.
    pub owed: u32,
    /// Requests that the window holds back.
    pub waiting: u32,
    /// Those of them whose class has a guaranteed throughput.
    pub claiming: u32,
    /// Answers a second.
    pub answers: u32,
    /// Their work a second, in seconds on unloaded nodes.
    pub work: u32,
}

/// Share of the window of one group of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteWindowShare {
    /// Requests in flight of all other gateways, in thousandths.
    pub others: u32,
    /// Answers to them a second, in thousandths.
    pub answers: u32,
    /// The work of these answers, in thousandths of a second on unloaded nodes.
    pub work: u32,
    /// Whether all windows are in a high half of their swing.
    pub high: bool,
    /// The part of all windows that is the receiver's, in millionths.
    pub part: u32,
    /// Factor on the receiver's window, once, in millionths.
    pub factor: u32,
}

/// What a gateway does with a [`SiteGrant`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiteStep {
    /// State all shares in the next report.
    State,
    /// Use these shares.
    Shares {
        /// Number of the message on which the list builds. 0: it names every budget.
        base: u64,
        /// Budgets and amounts.
        shares: Vec<(u32, u64)>,
    },
    /// Goodbye to a gateway that leaves.
    Goodbye,
}
