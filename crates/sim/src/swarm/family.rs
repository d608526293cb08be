//! The families of scenarios. Each family has one difficulty.

use serde::Serialize;

weirgate_engine::named! {
    /// The difficulty of a scenario. The *classic* families stand before [`Family::Resources`], the *everyday*
    /// ones after it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Family {
        /// Classes send two to six times their normal rate, for a phase or two.
        Surge = "surge",
        /// Requests of a class take two to eight times the declared CPU time.
        Costly = "costly",
        /// Up to a third of the machines are taken out, crash, hang, slow down or answer errors.
        NodesLost = "nodes-lost",
        /// Arrivals come in bursts: within the guarantee of one class, beyond that of others.
        Bursts = "bursts",
        /// Requests of some classes need the CPU, those of others wait for a database while in flight.
        IoAndCpu = "io-and-cpu",
        /// Limits on p99 and p95 of four to eight times the unloaded p95.
        TightPercentiles = "tight-percentiles",
        /// Several servers stand behind each address and take turns.
        HiddenServers = "hidden-servers",
        /// A request of one class costs up to a hundred times as much as one of another.
        UnequalCosts = "unequal-costs",
        /// Clients leave at about the limit and retry.
        Abandonment = "abandonment",
        /// Machines differ in CPUs and speed, declared or not.
        UnequalNodes = "unequal-nodes",
        /// Two or three pools share some of their machines.
        SharedPools = "shared-pools",
        /// The declared service time is half or twice the true one, for every class or for one.
        WrongServiceTime = "wrong-service-time",
        /// Twenty to a hundred small classes.
        ManyClasses = "many-classes",
        /// A class is idle, or every node hangs for a moment, and then all traffic returns.
        IdleReturn = "idle-return",
        /// A class per tenant, made from a template.
        Tenants = "tenants",
        /// The policy is loaded again in the middle of a surge.
        Reload = "reload",
        /// Health reports are lost, with a machine down or not.
        LostReports = "lost-reports",
        /// Best-effort classes compete with guaranteed ones and send more than the whole cluster can serve.
        BestEffort = "best-effort",
        /// Requests use processors, disks and network, according to a page table.
        Resources = "resources",
        /// The time that requests wait for a dependency grows five to fifty times, for a while.
        SlowDependency = "slow-dependency",
        /// Best-effort or surplus requests of 1 to 60 s compete with short guaranteed ones.
        LongBatch = "long-batch",
        /// 0.5 to 3 % of the requests of a class take 20 to 100 times as long as the others.
        HeavyTails = "heavy-tails",
        /// Every request takes seconds to minutes, as conversations with a language model do.
        LongServices = "long-services",
        /// The whole cluster has one to eight workers, and the pages of a class become up to ten times as
        /// expensive.
        SmallClusters = "small-clusters",
        /// No service time is declared, and the load is 30 to 75 % from the first request on.
        ColdStarts = "cold-starts",
        /// A third to four fifths of the machines crash, fail fast, or fail some requests, without health
        /// checks.
        MajorityCrash = "majority-crash",
        /// Best-effort clients hold slots for seconds to minutes without using a CPU.
        SlotHolders = "slot-holders",
        /// The declared service time is 0.1 to 10 times the true one, for one class or for all.
        WrongDeclarations = "wrong-declarations",
        /// Requests of a service slowly become more expensive, in steps, until a restart.
        Leaks = "leaks",
        /// A database that all classes or one of them share takes 4 to 40 times as long for a minute, on one to twelve
        /// machines. In half of the scenarios a class surges at the same time.
        SharedDatabase = "shared-database",
    }
}

impl Family {
    /// Returns whether seeds of all families take turns through it.
    fn takes_turns(self) -> bool {
        // The disciplines of the first need a page table, and no other family has one. The other one was added later,
        // and a turn of it would change the scenarios of published seeds.
        !matches!(self, Family::Resources | Family::SharedDatabase)
    }

    /// Returns whether its guarantees fit at the true cost of the requests, whatever was declared (see
    /// `rule`).
    pub fn fits_at_true_cost(self) -> bool {
        self > Family::Resources
    }
}

/// The families that seeds take turns through. Consecutive seeds cover all of them equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// The classic families, then the everyday ones. [`Family::Resources`] and [`Family::SharedDatabase`] take no turn.
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
        let takes_turns = |family: &Family| match self {
            Rotation::All => family.takes_turns(),
            Rotation::Classic => *family < Family::Resources,
            Rotation::Everyday => *family > Family::Resources && family.takes_turns(),
            Rotation::Only(only) => *family == only,
        };
        Family::ALL.into_iter().filter(takes_turns).collect()
    }

    /// Returns the family of a seed.
    #[must_use]
    pub fn family_of(self, seed: u64) -> Family {
        let families = self.families();
        families[(seed % families.len() as u64) as usize]
    }

    /// Returns the rotation with this name: `classic`, `everyday`, or the name of a family.
    pub fn named(name: &str) -> Option<Rotation> {
        match name {
            "classic" => Some(Rotation::Classic),
            "everyday" => Some(Rotation::Everyday),
            name => Family::ALL.into_iter().find(|family| family.as_str() == name).map(Rotation::Only),
        }
    }

    /// Returns all names. The rotation of all families has none.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let alone = Family::ALL.into_iter().filter(|family| !family.takes_turns());
        let families = Rotation::All.families().into_iter().chain(alone);
        ["classic", "everyday"].into_iter().chain(families.map(Family::as_str))
    }

    /// Returns its name. The rotation of all families has none.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Rotation::All => None,
            Rotation::Classic => Some("classic"),
            Rotation::Everyday => Some("everyday"),
            Rotation::Only(family) => Some(family.as_str()),
        }
    }
}
