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
    /// The time that requests wait for a dependency grows five to fifty times, for a while.
    SlowDependency,
    /// Best-effort or surplus requests of 1 to 60 s run beside short guaranteed ones.
    LongBatch,
    /// 0.5 to 3 % of the requests of a class take 20 to 100 times as long as the others.
    HeavyTails,
    /// Every request takes seconds to minutes, as conversations with a language model do.
    LongServices,
    /// The whole cluster has one to eight workers, and the pages of a class become up to ten times as expensive.
    SmallClusters,
    /// No service time is declared, and the load is 30 to 75 % from the first request on.
    ColdStarts,
    /// A third to four fifths of the machines crash, fail fast, or fail some requests, and nothing checks their health.
    MajorityCrash,
    /// Best-effort clients hold slots for seconds to minutes without using a CPU.
    SlotHolders,
    /// The declared service time is 0.1 to 10 times the true one, of one class or of all.
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

    /// Those of everyday life, whose turns come after the classic ones.
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

    /// All of them.
    pub fn all() -> impl Iterator<Item = Family> {
        Rotation::All.families().into_iter().chain([Family::Resources])
    }

    /// Whether its guarantees fit at the true cost of the requests, whatever was declared (see `rule`).
    #[must_use]
    pub fn fits_at_true_cost(self) -> bool {
        Family::EVERYDAY.contains(&self)
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

/// Which families seeds take turns through. Consecutive seeds cover all of them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// The classic families, then those of everyday life. [`Family::Resources`] takes no turn: the disciplines that it
    /// is for need a page table, and no other family has one.
    All,
    /// The classic families alone, as long as there were no others.
    Classic,
    /// Those of everyday life alone.
    Everyday,
    /// One family plays every seed.
    Only(Family),
}

impl Rotation {
    /// The families in the order of their turns.
    #[must_use]
    pub fn families(self) -> Vec<Family> {
        match self {
            Rotation::All => [Family::CLASSIC.as_slice(), Family::EVERYDAY.as_slice()].concat(),
            Rotation::Classic => Family::CLASSIC.to_vec(),
            Rotation::Everyday => Family::EVERYDAY.to_vec(),
            Rotation::Only(family) => vec![family],
        }
    }

    /// The family of a seed.
    #[must_use]
    pub fn family_of(self, seed: u64) -> Family {
        let families = self.families();
        families[(seed % families.len() as u64) as usize]
    }

    /// The rotation of this name: `classic`, `everyday`, or that of a family.
    #[must_use]
    pub fn named(name: &str) -> Option<Rotation> {
        match name {
            "classic" => Some(Rotation::Classic),
            "everyday" => Some(Rotation::Everyday),
            name => Family::all().find(|family| family.name() == name).map(Rotation::Only),
        }
    }

    /// Every name but that of all families, which has none.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["classic", "everyday"].into_iter().chain(Family::all().map(Family::name))
    }

    /// Its name, unless it is that of all families.
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
