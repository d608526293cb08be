//! Verdict of the judge, as plain data. The field names are those of the JSON report.

use serde::{Deserialize, Serialize, Serializer};

use super::learned::LearnedTable;
use super::resources::ResourceUse;

/// Judgement of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the discipline.
    pub discipline: String,
    /// Seed of the run.
    pub seed: u64,
    /// Every phase, in order of time.
    pub phases: Vec<PhaseVerdict>,
    /// Requests that were refused or late over the whole run while machines idled, for each class with a
    /// guaranteed throughput.
    #[serde(default)]
    pub avoidable: Vec<AvoidableVerdict>,
    /// Learned and actual costs of the page table, where it is learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<LearnedTable>,
    /// Invariants of the engine or the simulator that did not hold. If the list is not empty, something is broken.
    pub violations: Vec<ViolationFound>,
    /// Whether the guarantees were held.
    pub verdict: Word,
}

/// Whether the guarantees were held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// Every floor of every feasible judged phase and every possible ceiling of every judged phase was
    /// held, and hardly a refusal was avoidable.
    Held,
    /// At least one was not held.
    Broken,
}

/// Judgement of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseVerdict {
    /// Name of the phase.
    pub name: String,
    /// Start of the phase, in seconds from the start of the run.
    #[serde(serialize_with = "rounded")]
    pub from_s: f64,
    /// End of the phase, in seconds from the start of the run.
    #[serde(serialize_with = "rounded")]
    pub to_s: f64,
    /// Instant from which the phase is judged, in seconds from the start of the run. The part before it is
    /// in [`ClassVerdict::settling`].
    #[serde(serialize_with = "rounded")]
    pub judged_from_s: f64,
    /// Whether the phase counts. A warm-up does not count, nor does a phase that ends before it has settled.
    pub judged: bool,
    /// Whether the phase would count if it did not end before it has settled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
    /// Whether the live machines can carry the owed requests of all classes together. If not, floors do not count.
    pub feasible: bool,
    /// CPU-seconds done as a fraction of the CPU-seconds that the live machines had.
    #[serde(serialize_with = "rounded")]
    pub utilisation: f64,
    /// Work of served requests as a fraction of the maximum that could have been served of the offered
    /// work, for the resource with the largest fraction. Above 1 where work is finished that arrived
    /// before. `None` if nothing was offered.
    #[serde(serialize_with = "rounded_option")]
    pub served_over_oracle: Option<f64>,
    /// Usage of CPUs, disks and links, where requests need several of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceUse>,
    /// Every class of the policy, then its templates. All keys of a template are combined.
    pub classes: Vec<ClassVerdict>,
}

/// Judgement of a class in a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassVerdict {
    /// Name of the class.
    pub class: String,
    /// Results of the judged part.
    #[serde(flatten)]
    pub part: Part,
    /// Fraction of the live machines' CPU time that it received in the judged part, where classes have shares.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded_option")]
    pub cpu_share: Option<f64>,
    /// Requests that passed in the judged part, because the class is observed, and would have been shed. They count
    /// when that would have been decided. Only present where a class is observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_shed: Option<u64>,
    /// Requests per second that an oracle would serve in the judged part. Only present on demand.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded_option")]
    pub oracle_served_per_s: Option<f64>,
    /// Seconds from the start of the phase until its guarantees hold in every later window of two seconds.
    /// `None` if they do not hold in the last one.
    #[serde(serialize_with = "rounded_option")]
    pub reaction_s: Option<f64>,
    /// Results of the settling part, which does not count.
    pub settling: Part,
}

/// Results of a class over an interval. A request belongs to the interval in which it arrives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Arrivals per second.
    #[serde(serialize_with = "rounded")]
    pub offered_per_s: f64,
    /// Requests per second with a last byte in the interval, whenever they arrived.
    #[serde(serialize_with = "rounded")]
    pub served_per_s: f64,
    /// Arrivals per second that were served in time: the largest number of them, fastest first, over which
    /// the guaranteed statistic is within its limit. Without such a guarantee, all that were served. Counts
    /// pages where there are `pages`.
    #[serde(default, serialize_with = "rounded")]
    pub in_time_per_s: f64,
    /// Throughput guarantee, if there is one.
    pub floor: Option<FloorVerdict>,
    /// Response-time guarantee, if there is one.
    pub ceiling: Option<CeilingVerdict>,
    /// Owed requests that were refused or late while idle machines could have served them.
    #[serde(default)]
    pub avoidable: Avoidable,
    /// Requests shed.
    pub shed: Sheds,
    /// Requests that a node failed, or that timed out.
    pub failed: u64,
    /// Requests abandoned by their clients.
    pub left: u64,
    /// Requests that the end of the run cut off.
    pub unfinished: u64,
    /// Response times of served requests, or of complete pages where there are `pages`. `None` if there were none.
    pub response_ms: Option<ResponseTimes>,
    /// Outcomes of its pages. `None` if its traffic does not consist of pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageCounts>,
}

/// Pages, each with all its objects. A page belongs to the interval in which its own request arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageCounts {
    /// Pages requested per second.
    #[serde(serialize_with = "rounded")]
    pub offered_per_s: f64,
    /// Pages completed per second, out of these.
    #[serde(serialize_with = "rounded")]
    pub complete_per_s: f64,
    /// Pages for which the gateway shed the page or one of its objects.
    pub rejected: u64,
    /// Fraction of all pages that were rejected, 0 to 1.
    #[serde(serialize_with = "rounded")]
    pub rejected_share: f64,
    /// Pages for which a node failed the page or an object, or that timed out.
    pub failed: u64,
    /// Pages for which the client abandoned the page or an object.
    pub left: u64,
    /// Pages that the end of the run cut off.
    pub unfinished: u64,
}

/// Result of a throughput guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FloorVerdict {
    /// Guaranteed requests per second.
    #[serde(serialize_with = "rounded")]
    pub guaranteed_per_s: f64,
    /// Owed requests per second: those that arrived within the guaranteed rate. They are fewer if requests
    /// are more expensive than declared.
    #[serde(serialize_with = "rounded")]
    pub owed_per_s: f64,
    /// Requests per second that count as served: the larger of those that ended in the interval and those
    /// that arrived in it and were served in time.
    #[serde(serialize_with = "rounded")]
    pub counted_per_s: f64,
    /// Whether the guarantee was held.
    pub ok: bool,
}

/// Result of a response-time guarantee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CeilingVerdict {
    /// Name of the statistic: `avg`, `p95`, …
    pub statistic: String,
    /// Limit in milliseconds.
    #[serde(serialize_with = "rounded")]
    pub limit_ms: f64,
    /// Statistic over the served requests (complete pages) in milliseconds. `None` if there were none.
    #[serde(serialize_with = "rounded_option")]
    pub value_ms: Option<f64>,
    /// Whether the guarantee was held.
    pub ok: bool,
    /// Statistic over all requests, each alone on an idle machine, if that is above the limit. Then the
    /// limit is *impossible*, and exceeding it is no miss.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded_option")]
    pub impossible_ms: Option<f64>,
}

/// Owed requests that were refused or late while machines that could have served them idled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Avoidable {
    /// Requests that were owed.
    pub owed: u64,
    /// Owed requests that were refused.
    pub refused: u64,
    /// Owed requests that were served late or abandoned by their clients.
    pub late: u64,
}

/// Avoidable refusals over the judged phases of a run in which all owed work fits, including the settling parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AvoidableVerdict {
    /// Name of the class.
    pub class: String,
    /// Avoidable refusals over these phases.
    #[serde(flatten)]
    pub whole: Avoidable,
    /// Avoidable refusals of requests that arrived after the first second of the run.
    pub after_first_second: Avoidable,
    /// Largest acceptable fraction of the owed requests.
    pub allowed: f64,
    /// Whether both counts are small enough.
    pub ok: bool,
}

/// Requests shed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sheds {
    /// Number of requests shed.
    pub count: u64,
    /// Fraction of all arrivals that were shed, 0 to 1.
    #[serde(default, serialize_with = "rounded")]
    pub share: f64,
    /// Number of shed requests that the class was owed.
    pub wrong: u64,
    /// Time from arrival to refusal.
    pub latency_ms: ShedLatency,
}

/// Time that shed requests waited. Zeros if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShedLatency {
    /// Median, in milliseconds.
    #[serde(serialize_with = "rounded")]
    pub p50: f64,
    /// 95th percentile, in milliseconds.
    #[serde(serialize_with = "rounded")]
    pub p95: f64,
}

/// Response times of served requests, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseTimes {
    /// Mean.
    #[serde(serialize_with = "rounded")]
    pub mean: f64,
    /// Median.
    #[serde(serialize_with = "rounded")]
    pub p50: f64,
    /// 95th percentile.
    #[serde(serialize_with = "rounded")]
    pub p95: f64,
    /// 99th percentile.
    #[serde(serialize_with = "rounded")]
    pub p99: f64,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViolationFound {
    /// Instant, in seconds from the start.
    pub at_s: f64,
    /// Name of the invariant, in one word.
    pub invariant: String,
    /// Description of the violation.
    pub what: String,
}

/// A guarantee that was missed where it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Miss<'a> {
    /// Phase of the miss.
    pub phase: &'a PhaseVerdict,
    /// Class of the miss.
    pub class: &'a ClassVerdict,
    /// Kind of the guarantee.
    pub kind: Kind,
    /// Owed requests per second, the limit in milliseconds, or the fraction of owed requests that may be
    /// refused while machines idle.
    pub promised: f64,
    /// Actual value, or infinite if nothing was served.
    pub got: f64,
}

/// Kind of a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Throughput.
    Floor,
    /// Response time.
    Ceiling,
    /// Too many avoidable refusals over the run. The phase is the one with the largest number of them.
    Avoidable,
    /// Throughput or response time before the phase had settled. Reported, but does not break a run.
    Settling,
}

impl Miss<'_> {
    /// Fraction by which the guarantee was missed, 0 to 1.
    pub fn by(&self) -> f64 {
        let (less, more) = (self.got.min(self.promised), self.got.max(self.promised));
        if more > 0.0 { 1.0 - less / more } else { 0.0 }
    }
}

impl Avoidable {
    /// Number of refused and late requests.
    pub fn count(&self) -> u64 {
        self.refused + self.late
    }

    /// Their fraction of the owed requests, 0 to 1.
    pub fn share(&self) -> f64 {
        self.count() as f64 / self.owed.max(1) as f64
    }
}

impl std::ops::Add for Avoidable {
    type Output = Avoidable;

    fn add(self, other: Avoidable) -> Avoidable {
        let Avoidable { owed, refused, late } = other;
        Avoidable { owed: self.owed + owed, refused: self.refused + refused, late: self.late + late }
    }
}

impl CeilingVerdict {
    /// Whether no gateway can keep the limit, because the class's own requests take longer.
    pub fn is_impossible(&self) -> bool {
        self.impossible_ms.is_some()
    }

    /// Whether the limit was exceeded although it was possible.
    pub fn is_missed(&self) -> bool {
        !self.ok && !self.is_impossible()
    }
}

impl ClassVerdict {
    /// Owed requests of the whole phase that were refused or late while machines idled.
    pub fn avoidable(&self) -> Avoidable {
        self.part.avoidable + self.settling.avoidable
    }
}

impl Verdict {
    /// All misses that break the run: every guarantee that was missed where it counts, in order of phases
    /// and classes, and then the classes with too many avoidable refusals.
    pub fn misses(&self) -> impl Iterator<Item = Miss<'_>> {
        self.all_misses(false)
    }

    /// All misses that break the run. If `strict`, they include floors of infeasible phases and limits that
    /// are impossible by themselves, to decide whether a cluster is large enough for its guarantees.
    pub fn all_misses(&self, strict: bool) -> impl Iterator<Item = Miss<'_>> {
        let judged = self.phases.iter().filter(|phase| phase.judged);
        let guarantees = judged.flat_map(move |phase| phase.misses(strict));
        let avoidable = self.avoidable.iter().filter(|of| !of.ok).filter_map(|of| {
            let (phase, class) = self.max_avoidable(&of.class)?;
            let got = of.whole.share().max(of.after_first_second.share());
            Some(Miss { phase, class, kind: Kind::Avoidable, promised: of.allowed, got })
        });
        guarantees.chain(avoidable)
    }

    /// Guarantees that were missed before their phases had settled. They break nothing, because no control
    /// is instant.
    pub fn settling_misses(&self) -> impl Iterator<Item = Miss<'_>> {
        self.phases.iter().filter(|phase| phase.is_judged()).flat_map(|phase| {
            phase.classes.iter().filter_map(move |class| {
                let (_, promised, got) = class.settling.missed(phase.feasible, false).next()?;
                Some(Miss { phase, class, kind: Kind::Settling, promised, got })
            })
        })
    }

    /// Phase with the most avoidable refusals of a class, and the class in it. The first such phase in case of a tie.
    pub fn max_avoidable(&self, class: &str) -> Option<(&PhaseVerdict, &ClassVerdict)> {
        let phases = self.phases.iter().filter(|phase| phase.is_judged());
        let of =
            phases.flat_map(|phase| phase.classes.iter().filter(|own| own.class == class).map(move |own| (phase, own)));
        of.reduce(|max, next| if next.1.avoidable().count() > max.1.avoidable().count() { next } else { max })
    }

    /// Number of guarantees that were missed where they count.
    pub fn missed(&self) -> usize {
        self.misses().filter(|miss| matches!(miss.kind, Kind::Floor | Kind::Ceiling)).count()
    }

    /// Number of guarantees that count.
    pub fn judged(&self) -> usize {
        let of = |phase: &PhaseVerdict, class: &ClassVerdict| {
            usize::from(class.part.floor.is_some_and(|f| phase.feasible && f.owed_per_s > 0.0))
                + usize::from(class.part.ceiling.as_ref().is_some_and(|c| c.value_ms.is_some() && !c.is_impossible()))
        };
        let phases = self.phases.iter().filter(|phase| phase.judged);
        phases.map(|phase| phase.classes.iter().map(|class| of(phase, class)).sum::<usize>()).sum()
    }

    /// Whether every guarantee was held and there is no violation.
    pub fn sound(&self) -> bool {
        self.verdict == Word::Held && self.violations.is_empty()
    }
}

impl PhaseVerdict {
    /// Whether the experiment wants the phase judged, even if it ends before it has settled.
    pub fn is_judged(&self) -> bool {
        self.judged || self.unsettled
    }

    /// Every guarantee that was missed in the judged part.
    fn misses(&self, strict: bool) -> impl Iterator<Item = Miss<'_>> {
        self.classes.iter().flat_map(move |class| {
            let missed = class.part.missed(self.feasible || strict, strict);
            missed.map(move |(kind, promised, got)| Miss { phase: self, class, kind, promised, got })
        })
    }
}

impl Part {
    /// Missed guarantees, each with the guaranteed and the actual value. Includes floors only if `floors`,
    /// and limits that are impossible by themselves only if `impossible`.
    pub fn missed(&self, floors: bool, impossible: bool) -> impl Iterator<Item = (Kind, f64, f64)> + use<> {
        let floor = self.floor.filter(|floor| floors && !floor.ok);
        let floor = floor.map(|floor| (Kind::Floor, floor.owed_per_s, floor.counted_per_s));
        let ceiling =
            self.ceiling.as_ref().filter(|ceiling| if impossible { !ceiling.ok } else { ceiling.is_missed() });
        let ceiling = ceiling.map(|c| (Kind::Ceiling, c.limit_ms, c.value_ms.unwrap_or(f64::INFINITY)));
        floor.into_iter().chain(ceiling)
    }
}

/// Rounds to three decimals, which are enough for people and programs.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(super) fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1e3).round() / 1e3)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(super) fn rounded_option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => rounded(value, serializer),
        None => serializer.serialize_none(),
    }
}

/// Rounds fractions to a hundredth of a percent, because classes are compared by their ratios.
pub(super) fn rounded_all<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| (value * 1e4).round() / 1e4))
}
