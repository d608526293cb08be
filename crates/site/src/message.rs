//! The messages between members and coordinator: reports, and grants that answer them.
//!
//! Lists hold only what has changed since the last message that the other side has confirmed, so a quiet site of 1,000
//! classes sends short messages. All are bounded by the number of budgets and groups of the [`Site`].

use core::fmt;

use crate::settings::{MAX_BUDGET, Site};

/// Measurements of one group of nodes, as sums since the member's process began. Sums survive loss and repetition.
///
/// A joint controller of the group's window needs them: work per second against requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// Requests that the nodes have completed.
    pub completed: u64,
    /// Work completed, in nanoseconds of a node.
    pub work_nanos: u64,
    /// Integral of the requests in flight over time, in nanoseconds.
    pub in_flight_nanos: u64,
}

impl Evidence {
    /// Adds each of the sums. They wrap after 584 years of one request in flight.
    pub(crate) fn add(&mut self, other: &Evidence) {
        self.completed = self.completed.wrapping_add(other.completed);
        self.work_nanos = self.work_nanos.wrapping_add(other.work_nanos);
        self.in_flight_nanos = self.in_flight_nanos.wrapping_add(other.in_flight_nanos);
    }
}

/// A member tells a coordinator its demand, and confirms its shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    pub held: Option<Vec<u64>>,
    /// Demands that changed, as budget and amount.
    pub demands: Vec<(u32, u64)>,
    /// Evidence of every group.
    pub evidence: Vec<Evidence>,
    /// The member ends: it uses nothing from now on and applies no further grant.
    pub leaving: bool,
}

impl Report {
    /// Checks everything that a member may say against the site.
    pub(crate) fn check(&self, site: &Site) -> Result<(), Refused> {
        let settings = site.settings();
        let held = self.held.as_ref();
        if self.demands.len() > site.budgets()
            || self.evidence.len() != settings.groups
            || held.is_some_and(|held| held.len() != site.budgets())
        {
            return Err(Refused::Size);
        }
        let known = self.demands.iter().all(|(budget, amount)| amounts(site, *budget, *amount));
        let possible = held.is_none_or(|held| held.iter().zip(&settings.budgets).all(|(held, total)| held <= total));
        if known && possible { Ok(()) } else { Err(Refused::Value) }
    }
}

/// Whether a budget exists and the amount is one.
fn amounts(site: &Site, budget: u32, amount: u64) -> bool {
    (budget as usize) < site.budgets() && amount <= MAX_BUDGET
}

/// The coordinator answers a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
}

/// The change that a [`Grant`] makes at its member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

/// Why a message was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is for, or of, another coordinator than the present one.
    Revision,
    /// It is for, or of, another process of the member.
    Incarnation,
    /// It is older than one that was applied, or answers a report that is not known.
    Old,
    /// It builds on a message that has not arrived.
    Gap,
    /// It lists more than there is.
    Size,
    /// It names something unknown, or an impossible amount.
    Value,
    /// There is no such member.
    Member,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Revision => "of another coordinator",
            Refused::Incarnation => "of another process of the member",
            Refused::Old => "older than a message that was applied",
            Refused::Gap => "builds on a message that has not arrived",
            Refused::Size => "lists more than the site has",
            Refused::Value => "names an unknown budget or an impossible amount",
            Refused::Member => "of an unknown member",
        })
    }
}

impl core::error::Error for Refused {}
