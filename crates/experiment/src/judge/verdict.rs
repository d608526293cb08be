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
    /// Every floor of every feasible judged phase, and every ceiling of every judged phase.
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
    /// Can the live machines carry what all classes together are owed? Else floors do not count.
    pub feasible: bool,
    /// CPU-seconds done over CPU-seconds that the live machines had.
    #[serde(serialize_with = "rounded")]
    pub utilisation: f64,
    /// Work of served requests over the most that could have been served of the work that was asked
    /// for, of the resource of which that is nearest to all. Above 1 where work is finished that was asked for before. `None`
    /// if nothing was asked for.
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
    /// Arrivals per second that were served within the limit on response times, or at all without one; of pages where
    /// there are `pages`.
    #[serde(default, serialize_with = "rounded")]
    pub in_time_per_s: f64,
    /// The throughput guarantee, if there is one.
    pub floor: Option<FloorVerdict>,
    /// The response-time guarantee, if there is one.
    pub ceiling: Option<CeilingVerdict>,
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
}

/// Which guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Throughput.
    Floor,
    /// Response time.
    Ceiling,
}

impl Verdict {
    /// Every guarantee that was missed where it counts, in order of phases and classes.
    pub fn misses(&self) -> impl Iterator<Item = Miss<'_>> {
        self.phases.iter().flat_map(PhaseVerdict::misses)
    }

    /// Guarantees that count.
    #[must_use]
    pub fn judged(&self) -> usize {
        let of = |phase: &PhaseVerdict, class: &ClassVerdict| {
            usize::from(class.part.floor.is_some_and(|f| phase.feasible && f.owed_per_s > 0.0))
                + usize::from(class.part.ceiling.as_ref().is_some_and(|c| c.value_ms.is_some()))
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
    /// Every guarantee that was missed in this phase, if it counts.
    pub fn misses(&self) -> impl Iterator<Item = Miss<'_>> {
        let classes = self.classes.iter().filter(|_| self.judged);
        classes.flat_map(move |class| {
            let floor = class.part.floor.is_some_and(|f| !f.ok && self.feasible).then_some(Kind::Floor);
            let ceiling = class.part.ceiling.as_ref().is_some_and(|c| !c.ok).then_some(Kind::Ceiling);
            floor.into_iter().chain(ceiling).map(move |kind| Miss { phase: self, class, kind })
        })
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
