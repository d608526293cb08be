//! The families of scenarios: what each one makes difficult.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a scenario makes difficult.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Classes send two to six times what they sent, for a phase or two.
    Surge,
    /// Requests of a class take two to eight times the CPU that was agreed.
    Costly,
    /// Machines are taken out, crash, hang, slow down or answer errors: up to a third of them.
    NodesLost,
    /// Arrivals come in bursts: within its guarantee for one class, beyond it for others.
    Bursts,
    /// Some classes need the CPU, others wait inside for a database.
    IoAndCpu,
    /// Limits on p99 and p95 of four to eight times the unloaded p95.
    TightPercentiles,
    /// Several servers stand behind each address and take turns.
    HiddenServers,
    /// A request of one class costs up to a hundred times one of another.
    UnequalCosts,
    /// Clients leave at about the limit and try again.
    Abandonment,
    /// Machines differ in CPUs and speed, declared or not.
    UnequalNodes,
    /// Two or three pools share some of their machines.
    SharedPools,
    /// The declared service time is half or twice the true one, of every class or of one.
    WrongServiceTime,
    /// Twenty to a hundred small classes.
    ManyClasses,
    /// A class is idle, or every node hangs for a moment, and then everybody returns.
    IdleReturn,
    /// A class per tenant, made from a template.
    Tenants,
    /// The policy is loaded again in the middle of a surge.
    Reload,
    /// Health reports are lost, with a machine down or not.
    LostReports,
    /// Best-effort classes want more than the whole cluster, beside guaranteed ones.
    BestEffort,
    /// Requests take something of processors, disks and network, by a page table.
    Resources,
}

impl Family {
    /// Those in which seeds take turns, in their order. [`Family::Resources`] is not among them: the disciplines that it is
    /// for need a page table, and no other family has one.
    pub const TURNS: [Family; 18] = [
        Family::Surge,
        Family::Costly,
        Family::NodesLost,
        Family::Bursts,
        Family::IoAndCpu,
        Family::TightPercentiles,
        Family::HiddenServers,
        Family::UnequalCosts,
        Family::Abandonment,
        Family::UnequalNodes,
        Family::SharedPools,
        Family::WrongServiceTime,
        Family::ManyClasses,
        Family::IdleReturn,
        Family::Tenants,
        Family::Reload,
        Family::LostReports,
        Family::BestEffort,
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Family> {
        Family::TURNS.into_iter().chain([Family::Resources])
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Family> {
        Family::all().find(|family| family.name() == name)
    }

    /// The family of a seed if none is asked for: they take turns, so that consecutive seeds cover all of them alike.
    #[must_use]
    pub fn of(seed: u64) -> Family {
        Family::TURNS[(seed % Family::TURNS.len() as u64) as usize]
    }

    /// Its name in files and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Surge => "surge",
            Family::Costly => "costly",
            Family::NodesLost => "nodes-lost",
            Family::Bursts => "bursts",
            Family::IoAndCpu => "io-and-cpu",
            Family::TightPercentiles => "tight-percentiles",
            Family::HiddenServers => "hidden-servers",
            Family::UnequalCosts => "unequal-costs",
            Family::Abandonment => "abandonment",
            Family::UnequalNodes => "unequal-nodes",
            Family::SharedPools => "shared-pools",
            Family::WrongServiceTime => "wrong-service-time",
            Family::ManyClasses => "many-classes",
            Family::IdleReturn => "idle-return",
            Family::Tenants => "tenants",
            Family::Reload => "reload",
            Family::LostReports => "lost-reports",
            Family::BestEffort => "best-effort",
            Family::Resources => "resources",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
