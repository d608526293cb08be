//! What the judge found, as plain data. The field names are those of the JSON report.

use serde::{Deserialize, Serialize, Serializer};

use super::learned::LearnedTable;
use super::resources::ResourceUse;

/// The judgement of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The experiment's name.
    pub experiment: String,
    /// The discipline's name.
    pub discipline: String,
    /// The run's seed.
    pub seed: u64,
    /// Every phase, in order of time.
    pub phases: Vec<PhaseVerdict>,
    /// Per class with a guaranteed throughput what was refused or late over the whole run though machines idled.
    #[serde(default)]
    pub avoidable: Vec<AvoidableVerdict>,
    /// What the page table believed that requests take, beside the truth, where it is learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<LearnedTable>,
    /// Invariants of the engine or the simulator that did not hold. Empty, or something is broken.
    pub violations: Vec<ViolationFound>,
    /// Were the guarantees held?
    pub verdict: Word,
}

/// Were the guarantees held?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// Every floor of every feasible judged phase, and every possible ceiling of every judged phase; and hardly a
    /// refusal was avoidable.
    Held,
    /// At least one was not.
    Broken,
}

/// A phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseVerdict {
    /// Its name.
    pub name: String,
    /// When it begins, in seconds from the start of the run.
    #[serde(serialize_with = "rounded")]
    pub from_s: f64,
    /// When it ends.
    #[serde(serialize_with = "rounded")]
    pub to_s: f64,
    /// From when on it is judged; what is before that is in [`ClassVerdict::settling`].
    #[serde(serialize_with = "rounded")]
    pub judged_from_s: f64,
    /// Does it count? A warm-up does not, nor does a phase that ends before it has settled.
    pub judged: bool,
    /// It would count if it did not end before it has settled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
    /// Can the live machines carry what all classes together are owed? Else floors do not count.
    pub feasible: bool,
    /// CPU-seconds done over CPU-seconds that the live machines had.
    #[serde(serialize_with = "rounded")]
    pub utilisation: f64,
    /// Work of served requests over the most that could have been served of the work that was asked
    /// for, of the resource of which that is nearest to all. Above 1 where work is finished that was asked for before.
    /// `None` if nothing was asked for.
    #[serde(serialize_with = "rounded_option")]
    pub served_over_oracle: Option<f64>,
    /// What was used of CPUs, disks and links, where requests take something of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceUse>,
    /// Every class of the policy, then its templates, all keys of one together.
    pub classes: Vec<ClassVerdict>,
}

/// A class in a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassVerdict {
    /// Its name.
    pub class: String,
    /// The judged part.
    #[serde(flatten)]
    pub part: Part,
    /// Its share of the live machines' CPU time in the judged part, where classes have shares.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded_option")]
    pub cpu_share: Option<f64>,
    /// What an oracle serves it per second in the judged part; only if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded_option")]
    pub oracle_served_per_s: Option<f64>,
    /// Seconds from the start of the phase until its guarantees hold in every later window of two seconds;
    /// `None` if they do not in the last one.
    #[serde(serialize_with = "rounded_option")]
    pub reaction_s: Option<f64>,
    /// The first part, which does not count.
    pub settling: Part,
}

/// A class over a stretch of time. A request belongs to the stretch in which it arrives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Arrivals per second.
    #[serde(serialize_with = "rounded")]
    pub offered_per_s: f64,
    /// Requests per second whose last byte came in the stretch, whenever they arrived.
    #[serde(serialize_with = "rounded")]
    pub served_per_s: f64,
    /// Arrivals per second that were served in time: the most of them, quickest first, of which the guaranteed
    /// statistic is within its limit; all without one. Of pages where there are `pages`.
    #[serde(default, serialize_with = "rounded")]
    pub in_time_per_s: f64,
    /// The throughput guarantee, if there is one.
    pub floor: Option<FloorVerdict>,
    /// The response-time guarantee, if there is one.
    pub ceiling: Option<CeilingVerdict>,
    /// What was owed, and refused or late though machines idled that could have served it.
    #[serde(default)]
    pub avoidable: Avoidable,
    /// Requests turned away.
    pub shed: Sheds,
    /// Requests that a node failed, or that timed out.
    pub failed: u64,
    /// Requests whose client left.
    pub left: u64,
    /// Requests that the end of the run cut off.
    pub unfinished: u64,
    /// Response times of served requests, of complete pages where there are `pages`; `None` if there were none.
    pub response_ms: Option<ResponseTimes>,
    /// What became of its pages; `None` if its traffic does not come as pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageCounts>,
}

/// Pages, each with all its objects. A page belongs to the stretch in which its own request arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageCounts {
    /// Pages asked for per second.
    #[serde(serialize_with = "rounded")]
    pub offered_per_s: f64,
    /// Of these, so many per second became complete.
    #[serde(serialize_with = "rounded")]
    pub complete_per_s: f64,
    /// Of these, the gateway turned the page away, or one of its objects.
    pub rejected: u64,
    /// Their share of all, 0 to 1.
    #[serde(serialize_with = "rounded")]
    pub rejected_share: f64,
    /// A node failed the page or an object, or it timed out.
    pub failed: u64,
    /// The client gave the page or an object up.
    pub left: u64,
    /// The end of the run came first.
    pub unfinished: u64,
}

/// A throughput guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FloorVerdict {
    /// Requests per second that are promised.
    #[serde(serialize_with = "rounded")]
    pub guaranteed_per_s: f64,
    /// Requests per second that are owed: what arrived within the guaranteed rate, fewer if they are dearer
    /// than agreed.
    #[serde(serialize_with = "rounded")]
    pub owed_per_s: f64,
    /// Requests per second that count as served: the larger of what ended in the stretch and what arrived
    /// in it and was served in time.
    #[serde(serialize_with = "rounded")]
    pub counted_per_s: f64,
    /// Was it held?
    pub ok: bool,
}

/// A response-time guarantee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CeilingVerdict {
    /// `avg`, `p95`, …
    pub statistic: String,
    /// The limit, in milliseconds.
    #[serde(serialize_with = "rounded")]
    pub limit_ms: f64,
    /// The statistic over the served requests (complete pages); `None` if there were none.
    #[serde(serialize_with = "rounded_option")]
    pub value_ms: Option<f64>,
    /// Was it held?
    pub ok: bool,
    /// The statistic over all that was asked for, each request alone on an idle machine, if that is above the limit:
    /// then the limit is *impossible by itself*, and that it was not held is no miss.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded_option")]
    pub impossible_ms: Option<f64>,
}

/// Owed requests that were refused or late while machines that could have served them idled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Avoidable {
    /// Requests that were owed.
    pub owed: u64,
    /// Of these, refused.
    pub refused: u64,
    /// Of these, served late or given up by their clients.
    pub late: u64,
}

/// The same over the judged phases of a run in which all that is owed fits, what is before they settle included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AvoidableVerdict {
    /// The class.
    pub class: String,
    /// All of it.
    #[serde(flatten)]
    pub whole: Avoidable,
    /// Of requests that arrived after the first second of the run.
    pub after_first_second: Avoidable,
    /// The share of what was owed that is not too much.
    pub allowed: f64,
    /// Are they few enough, of both?
    pub ok: bool,
}

/// Requests turned away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sheds {
    /// How many.
    pub count: u64,
    /// Of all arrivals this share, 0 to 1.
    #[serde(default, serialize_with = "rounded")]
    pub share: f64,
    /// Of these, how many the class was owed.
    pub wrong: u64,
    /// From arrival to refusal.
    pub latency_ms: ShedLatency,
}

/// How long requests waited that were turned away; zeros if there were none.
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
    /// When, in seconds from the start.
    pub at_s: f64,
    /// Which, in one word.
    pub invariant: String,
    /// What was found.
    pub what: String,
}

/// A guarantee that was not held where it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Miss<'a> {
    /// In this phase.
    pub phase: &'a PhaseVerdict,
    /// By this class.
    pub class: &'a ClassVerdict,
    /// Which of its guarantees.
    pub kind: Kind,
    /// Requests per second owed, milliseconds, or the share of owed requests that may be refused though machines idle.
    pub promised: f64,
    /// What it was instead; infinite if nothing was served.
    pub got: f64,
}

/// Which guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Throughput.
    Floor,
    /// Response time.
    Ceiling,
    /// Too many avoidable refusals over the run. The phase is the one that has most of them.
    Avoidable,
    /// Throughput or response time before the phase had settled: reported, and does not break a run.
    Settling,
}

impl Miss<'_> {
    /// By what share it was missed, 0 to 1.
    #[must_use]
    pub fn by(&self) -> f64 {
        let (less, more) = (self.got.min(self.promised), self.got.max(self.promised));
        if more > 0.0 { 1.0 - less / more } else { 0.0 }
    }
}

impl Avoidable {
    /// Refused or late.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.refused + self.late
    }

    /// Their share of what was owed, 0 to 1.
    #[must_use]
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
    /// Can no gateway keep it, because the class's own requests take longer?
    #[must_use]
    pub fn is_impossible(&self) -> bool {
        self.impossible_ms.is_some()
    }

    /// It was not held although it could have been.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        !self.ok && !self.is_impossible()
    }
}

impl ClassVerdict {
    /// Owed requests of the whole phase that were refused or late though machines idled.
    #[must_use]
    pub fn avoidable(&self) -> Avoidable {
        self.part.avoidable + self.settling.avoidable
    }
}

impl Verdict {
    /// Everything that breaks the run: every guarantee that was missed where it counts, in order of phases and classes,
    /// and then the classes with too many avoidable refusals.
    pub fn misses(&self) -> impl Iterator<Item = Miss<'_>> {
        self.all_misses(false)
    }

    /// The same. If `strict`, with floors of infeasible phases and limits that are impossible by themselves: for the
    /// question whether a cluster keeps its promises.
    pub fn all_misses(&self, strict: bool) -> impl Iterator<Item = Miss<'_>> {
        let judged = self.phases.iter().filter(|phase| phase.judged);
        let guarantees = judged.flat_map(move |phase| phase.misses(strict));
        let avoidable = self.avoidable.iter().filter(|of| !of.ok).filter_map(|of| {
            let (phase, class) = self.most_avoidable(&of.class)?;
            let got = of.whole.share().max(of.after_first_second.share());
            Some(Miss { phase, class, kind: Kind::Avoidable, promised: of.allowed, got })
        });
        guarantees.chain(avoidable)
    }

    /// Guarantees that were missed before their phases had settled, which breaks nothing: no control is instant.
    pub fn settling_misses(&self) -> impl Iterator<Item = Miss<'_>> {
        self.phases.iter().filter(|phase| phase.is_judged()).flat_map(|phase| {
            phase.classes.iter().filter_map(move |class| {
                let (_, promised, got) = class.settling.missed(phase.feasible, false).next()?;
                Some(Miss { phase, class, kind: Kind::Settling, promised, got })
            })
        })
    }

    /// The phase in which most of a class's refusals were avoidable, and the class in it; the first of those with
    /// equally many.
    #[must_use]
    pub fn most_avoidable(&self, class: &str) -> Option<(&PhaseVerdict, &ClassVerdict)> {
        let phases = self.phases.iter().filter(|phase| phase.is_judged());
        let of =
            phases.flat_map(|phase| phase.classes.iter().filter(|own| own.class == class).map(move |own| (phase, own)));
        of.reduce(|most, next| if next.1.avoidable().count() > most.1.avoidable().count() { next } else { most })
    }

    /// Guarantees that were missed where they count.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.misses().filter(|miss| matches!(miss.kind, Kind::Floor | Kind::Ceiling)).count()
    }

    /// Guarantees that count.
    #[must_use]
    pub fn judged(&self) -> usize {
        let of = |phase: &PhaseVerdict, class: &ClassVerdict| {
            usize::from(class.part.floor.is_some_and(|f| phase.feasible && f.owed_per_s > 0.0))
                + usize::from(class.part.ceiling.as_ref().is_some_and(|c| c.value_ms.is_some() && !c.is_impossible()))
        };
        let phases = self.phases.iter().filter(|phase| phase.judged);
        phases.map(|phase| phase.classes.iter().map(|class| of(phase, class)).sum::<usize>()).sum()
    }

    /// Every guarantee held and no violation.
    #[must_use]
    pub fn sound(&self) -> bool {
        self.verdict == Word::Held && self.violations.is_empty()
    }
}

impl PhaseVerdict {
    /// Does the experiment want it judged, if only what is before it has settled?
    #[must_use]
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
    /// Which guarantees were missed, each with what was promised and what it was; floors only if they count, and limits
    /// that are impossible by themselves only if `impossible`.
    pub fn missed(&self, floors: bool, impossible: bool) -> impl Iterator<Item = (Kind, f64, f64)> + use<> {
        let floor = self.floor.filter(|floor| floors && !floor.ok);
        let floor = floor.map(|floor| (Kind::Floor, floor.owed_per_s, floor.counted_per_s));
        let ceiling =
            self.ceiling.as_ref().filter(|ceiling| if impossible { !ceiling.ok } else { ceiling.is_missed() });
        let ceiling = ceiling.map(|c| (Kind::Ceiling, c.limit_ms, c.value_ms.unwrap_or(f64::INFINITY)));
        floor.into_iter().chain(ceiling)
    }
}

/// Three digits after the point are enough for people and programs.
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

/// Shares are told to a hundredth of a percent: classes are compared by their ratios.
pub(super) fn rounded_all<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| (value * 1e4).round() / 1e4))
}
