//! The messages between members and coordinator: reports, and grants that answer them. Between processes they travel as
//! JSON with the names of their fields.
//!
//! Lists hold only what has changed since the last message that the other side has confirmed, so a quiet site of 1,000
//! classes sends short messages. All are bounded by the number of budgets of the [`Site`], and
//! [`MAX_GROUPS`] groups.

use serde::{Deserialize, Serialize};

use crate::settings::{MAX_BUDGET, MAX_EJECTED, MAX_GROUPS, MAX_NODE_NAME, Site};

/// The whole, for parts and factors.
pub(crate) const MILLIONTHS: u64 = 1_000_000;

/// The use of the window of one group of nodes by a member, in thousandths of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupUse {
    /// The window that the member has found.
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

impl GroupUse {
    /// Whether the coordinator needs to know of the change from `told`: beyond a request, and beyond an eighth.
    pub(crate) fn differs(&self, told: &GroupUse) -> bool {
        let far = |new: u32, old: u32| new.abs_diff(old) > 1_000.max(old / 8);
        far(self.in_flight, told.in_flight)
            || far(self.base, told.base)
            || far(self.waiting, told.waiting)
            || far(self.claiming, told.claiming)
    }
}

/// A member's share of the windows of one group of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupShare {
    /// Requests in flight of all other members, in thousandths, as all figures of them.
    pub others: u32,
    /// Answers to them a second.
    pub answers: u32,
    /// The work of these answers, in seconds on unloaded nodes.
    pub work: u32,
    /// Whether all windows are in a high half of their swing.
    pub high: bool,
    /// The part that the member's window is of all windows, in millionths.
    pub part: u32,
    /// Factor on the member's window, once, in millionths.
    pub factor: u32,
}

/// A member tells a coordinator its demand, and confirms its shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Report {
    /// Revision of the coordinator that is addressed. From now on the member accepts no grant of an older one.
    pub revision: u64,
    /// The member's process: greater for each later process under the same name.
    pub incarnation: u64,
    /// Number of the report, counted by the member's process.
    pub number: u64,
    /// Sequence number of the last grant of this coordinator that was applied, or 0.
    pub applied: u64,
    /// The shares at this moment of all budgets, if that grant asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Vec<u64>>,
    /// Demands that changed, as budget and amount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demands: Vec<(u32, u64)>,
    /// Use of the windows, by group. Empty if the member has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<GroupUse>,
    /// Nodes that the member has ejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ejected: Vec<String>,
    /// The member ends: it uses nothing from now on and applies no further grant.
    #[serde(default)]
    pub leaving: bool,
}

impl Report {
    /// Checks everything that a member may say against the site.
    pub(crate) fn check(&self, site: &Site) -> Result<(), Refused> {
        let held = self.held.as_ref();
        if self.demands.len() > site.budgets()
            || self.windows.len() > MAX_GROUPS
            || held.is_some_and(|held| held.len() != site.budgets())
            || !are_few(&self.ejected)
        {
            return Err(Refused::Size);
        }
        let known = self.demands.iter().all(|(budget, amount)| amounts(site, *budget, *amount));
        let possible =
            held.is_none_or(|held| held.iter().zip(&site.settings().budgets).all(|(held, total)| held <= total));
        if known && possible { Ok(()) } else { Err(Refused::Value) }
    }
}

/// Whether a budget exists and the amount is one.
fn amounts(site: &Site, budget: u32, amount: u64) -> bool {
    (budget as usize) < site.budgets() && amount <= MAX_BUDGET
}

/// Whether a message may name these nodes.
pub(crate) fn are_few(nodes: &[String]) -> bool {
    nodes.len() <= MAX_EJECTED && nodes.iter().all(|name| name.len() <= MAX_NODE_NAME)
}

/// The coordinator answers a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// Revision of the coordinator.
    pub revision: u64,
    /// The member's process that is meant.
    pub incarnation: u64,
    /// Number of the report that is answered. The lease counts from the moment at which it was sent.
    pub report: u64,
    /// Sequence number among the coordinator's messages to this member. Only later ones than the last are applied.
    pub sequence: u64,
    /// The change to make.
    pub step: Step,
    /// Shares of the windows, by group. Empty if none are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<GroupShare>,
    /// Nodes that some member has ejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ejected: Vec<String>,
}

/// The change that a [`Grant`] makes at its member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// State in the next report the shares of all budgets, and wait.
    State,
    /// Use these shares.
    Shares {
        /// Sequence number of the grant that the list builds on. Zero: it names every budget.
        base: u64,
        /// Shares that changed since, as budget and amount.
        shares: Vec<(u32, u64)>,
    },
    /// Goodbye to a member that leaves.
    Goodbye,
}

impl Step {
    /// Checks everything that a coordinator may say against the site.
    pub(crate) fn check(&self, site: &Site) -> Result<(), Refused> {
        let Step::Shares { shares, .. } = self else { return Ok(()) };
        if shares.len() > site.budgets() {
            return Err(Refused::Size);
        }
        let known =
            |(budget, amount): &(u32, u64)| amounts(site, *budget, *amount) && *amount <= site.total(*budget as usize);
        if shares.iter().all(known) { Ok(()) } else { Err(Refused::Value) }
    }
}

weirgate_engine::named! {
    /// Why a message was refused. Nothing has changed then.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Refused {
        /// It is for, or of, another coordinator than the present one.
        Revision = "of another coordinator",
        /// It is for, or of, another process of the member.
        Incarnation = "of another process of the member",
        /// It is older than one that was applied, or answers a report that is not known.
        Old = "older than a message that was applied",
        /// It builds on a message that has not arrived.
        Gap = "builds on a message that has not arrived",
        /// It lists more than there is.
        Size = "lists more than the site has",
        /// It names something unknown, or an impossible amount.
        Value = "names an unknown budget or an impossible amount",
        /// There is no such member.
        Member = "of an unknown member",
    }
}

impl core::error::Error for Refused {}
