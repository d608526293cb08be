//! The families of scenarios. Each family has one difficulty.

use std::fmt;

use serde::{Serialize, Serializer};

/// The difficulty of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Classes send two to six times their normal rate, for a phase or two.
    Surge,
    /// Requests of a class take two to eight times the declared CPU time.
    Costly,
    /// Up to a third of the machines are taken out, crash, hang, slow down or answer errors.
    NodesLost,
    /// Arrivals come in bursts: within the guarantee of one class, beyond that of others.
    Bursts,
    /// Requests of some classes need the CPU, those of others wait for a database while in flight.
    IoAndCpu,
    /// Limits on p99 and p95 of four to eight times the unloaded p95.
    TightPercentiles,
    /// Several servers stand behind each address and take turns.
    HiddenServers,
    /// A request of one class costs up to a hundred times as much as one of another.
    UnequalCosts,
    /// Clients leave at about the limit and retry.
    Abandonment,
    /// Machines differ in CPUs and speed, declared or not.
    UnequalNodes,
    /// Two or three pools share some of their machines.
    SharedPools,
    /// The declared service time is half or twice the true one, for every class or for one.
    WrongServiceTime,
    /// Twenty to a hundred small classes.
    ManyClasses,
    /// A class is idle, or every node hangs for a moment, and then all traffic returns.
    IdleReturn,
    /// A class per tenant, made from a template.
    Tenants,
    /// The policy is loaded again in the middle of a surge.
    Reload,
    /// Health reports are lost, with a machine down or not.
    LostReports,
    /// Best-effort classes compete with guaranteed ones and send more than the whole cluster can serve.
    BestEffort,
    /// Requests use processors, disks and network, according to a page table.
    Resources,
    /// The time that requests wait for a dependency grows five to fifty times, for a while.
    SlowDependency,
    /// Best-effort or surplus requests of 1 to 60 s compete with short guaranteed ones.
    LongBatch,
    /// 0.5 to 3 % of the requests of a class take 20 to 100 times as long as the others.
    HeavyTails,
    /// Every request takes seconds to minutes, as conversations with a language model do.
    LongServices,
    /// The whole cluster has one to eight workers, and the pages of a class become up to ten times as
    /// expensive.
    SmallClusters,
    /// No service time is declared, and the load is 30 to 75 % from the first request on.
    ColdStarts,
    /// A third to four fifths of the machines crash, fail fast, or fail some requests, without health
    /// checks.
    MajorityCrash,
    /// Best-effort clients hold slots for seconds to minutes without using a CPU.
    SlotHolders,
    /// The declared service time is 0.1 to 10 times the true one, for one class or for all.
    WrongDeclarations,
    /// Requests of a service slowly become more expensive, in steps, until a restart.
    Leaks,
}

impl Family {
    /// The first families, in the order of their turns.
    pub const CLASSIC: [Family; 18] = [
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

    /// The everyday families. Their turns come after the classic ones.
    pub const EVERYDAY: [Family; 10] = [
        Family::SlowDependency,
        Family::LongBatch,
        Family::HeavyTails,
        Family::LongServices,
        Family::SmallClusters,
        Family::ColdStarts,
        Family::MajorityCrash,
        Family::SlotHolders,
        Family::WrongDeclarations,
        Family::Leaks,
    ];

    /// Returns all families.
    pub fn all() -> impl Iterator<Item = Family> {
        Rotation::All.families().into_iter().chain([Family::Resources])
    }

    /// Returns whether its guarantees fit at the true cost of the requests, whatever was declared (see
    /// `rule`).
    #[must_use]
    pub fn fits_at_true_cost(self) -> bool {
        Family::EVERYDAY.contains(&self)
    }

    /// Returns its name in files and tables.
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
            Family::SlowDependency => "slow-dependency",
            Family::LongBatch => "long-batch",
            Family::HeavyTails => "heavy-tails",
            Family::LongServices => "long-services",
            Family::SmallClusters => "small-clusters",
            Family::ColdStarts => "cold-starts",
            Family::MajorityCrash => "majority-crash",
            Family::SlotHolders => "slot-holders",
            Family::WrongDeclarations => "wrong-declarations",
            Family::Leaks => "leaks",
        }
    }
}

/// The families that seeds take turns through. Consecutive seeds cover all of them equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// The classic families, then the everyday ones. [`Family::Resources`] takes no turn: its disciplines
    /// need a page table, and no other family has one.
    All,
    /// Only the classic families. This was the whole rotation before the everyday ones were added.
    Classic,
    /// Only the everyday families.
    Everyday,
    /// One family for every seed.
    Only(Family),
}

impl Rotation {
    /// Returns the families in the order of their turns.
    #[must_use]
    pub fn families(self) -> Vec<Family> {
        match self {
            Rotation::All => [Family::CLASSIC.as_slice(), Family::EVERYDAY.as_slice()].concat(),
            Rotation::Classic => Family::CLASSIC.to_vec(),
            Rotation::Everyday => Family::EVERYDAY.to_vec(),
            Rotation::Only(family) => vec![family],
        }
    }

    /// Returns the family of a seed.
    #[must_use]
    pub fn family_of(self, seed: u64) -> Family {
        let families = self.families();
        families[(seed % families.len() as u64) as usize]
    }

    /// Returns the rotation with this name: `classic`, `everyday`, or the name of a family.
    #[must_use]
    pub fn named(name: &str) -> Option<Rotation> {
        match name {
            "classic" => Some(Rotation::Classic),
            "everyday" => Some(Rotation::Everyday),
            name => Family::all().find(|family| family.name() == name).map(Rotation::Only),
        }
    }

    /// Returns all names. The rotation of all families has none.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["classic", "everyday"].into_iter().chain(Family::all().map(Family::name))
    }

    /// Returns its name. The rotation of all families has none.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Rotation::All => None,
            Rotation::Classic => Some("classic"),
            Rotation::Everyday => Some("everyday"),
            Rotation::Only(family) => Some(family.name()),
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
