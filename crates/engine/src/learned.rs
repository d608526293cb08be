//! The state that an engine has learned and another one may begin with: after a restart, a hand-over or the failure of
//! its process.
//!
//! Source: our own. The rules follow `docs/adr/0024-learned-state-outlives-the-process.md`:
//!
//! - Classes are the same if their names and the names of their pools are, nodes if pool and name are, windows if their
//!   groups serve the same pools and they are for the same resource. Everything else is ignored.
//! - A record is taken over only if it is more recent than the own one, and nothing of its own has been answered for
//!   [`QUIET`]. Two engines can therefore follow each other: the one with traffic keeps its state.
//! - Each method gives and takes its own part. The default is to have none.
//! - The values may come from a hostile or damaged source. Those that cannot be are ignored, and sizes are bounded by a
//!   multiple of the size of a cold start, so that the first answers can correct them.
//!
//! Estimates that decay while nothing completes (`docs/adr/0002-stale-estimates-decay.md`) decay for the age of their
//! record, too. Token buckets and release rates are not learned: they are full, or known again, within a second.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::index::{Id as _, PartitionId};
use crate::request::{ClassId, NodeId, TemplateId};
use crate::time::Time;

/// Time without an answer of its own after which an engine takes over a record from another one. Five seconds are
/// longer than a lull between the requests of a class with traffic, and shorter than the time in which a standby must
/// have followed.
pub(crate) const QUIET: Duration = Duration::from_secs(5);

/// Longest time in flight or service time that is taken over. A request that takes longer is cut by every default
/// timeout of the gateway.
const MAX_SPAN: Duration = Duration::from_secs(3600);

/// Highest rate of arrivals that is taken over: far more than one process serves.
const MAX_PER_S: f64 = 1e7;

/// The state that an engine has learned. It says nothing about requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// Classes with an answer.
    pub classes: Vec<LearnedClass>,
    /// Windows with an answer.
    pub windows: Vec<LearnedWindow>,
    /// All nodes.
    pub nodes: Vec<LearnedNode>,
}

/// Estimates of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnedClass {
    /// Name of the class or of its template.
    pub name: String,
    /// The key, if it was made from a template.
    pub key: Option<Vec<u8>>,
    /// Name of its pool.
    pub pool: String,
    /// Time since its last good answer.
    pub age: Duration,
    /// Service time on a quiet node, if it is learned and not declared.
    pub service_time: Option<Duration>,
    /// Expected time in flight: the mean, and the guaranteed percentile if there is one.
    pub expected: Option<(Duration, Option<Duration>)>,
    /// Mean cost on the dominant resource in node-seconds, if requests are priced.
    pub cost: Option<f64>,
    /// Time until the bucket of its maximum rate is full.
    pub rate_full_in: Duration,
    /// The part of load control.
    pub times: Option<LearnedTimes>,
}

/// Times in flight of a class, as the adaptive window learns them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LearnedTimes {
    /// Arrivals per second.
    pub arrivals_per_s: f64,
    /// Mean time in flight in seconds.
    pub mean: f64,
    /// Mean square of the times in flight, in seconds².
    pub square: f64,
    /// Number of completions in both.
    pub completions: f64,
}

/// A window.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedWindow {
    /// Names of the pools that its machines serve, sorted.
    pub pools: Vec<String>,
    /// The resource that dominates its requests, if there is a window for each resource.
    pub resource: Option<String>,
    /// Time since the last good answer to one of its requests.
    pub age: Duration,
    /// The part of load control.
    pub size: LearnedSize,
}

/// Size of a window and the estimates behind it, by the method of load control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LearnedSize {
    /// [`crate::LoadControl::WindowLinear`].
    Linear {
        /// Requests in flight.
        size: u32,
    },
    /// [`crate::LoadControl::Aimd`].
    Aimd {
        /// Requests in flight.
        limit: f64,
    },
    /// [`crate::LoadControl::Gradient`].
    Gradient {
        /// Requests in flight.
        limit: f64,
        /// Long-term response time in seconds.
        long: f64,
    },
    /// [`crate::LoadControl::WindowAdaptive`].
    Knee(LearnedKnee),
}

/// The knee that an adaptive window has found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LearnedKnee {
    /// Requests in flight.
    pub base: f64,
    /// Weight of the usable machines that the base is for.
    pub weight: f64,
    /// Factor by which every request takes longer in flight than alone, ≥ 1.
    pub slowdown: f64,
    /// Whether requests were seen to wait for one another, so that owed requests are bounded as well.
    pub contended: bool,
    /// Number of owed requests that may be in flight otherwise.
    pub reach: f64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnedNode {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Time in flight on its machine, relative to the means of the classes. 1 if it was not measured.
    pub slowness: f64,
    /// Moving average of its failures, as a share of its answers.
    pub errors: f64,
    /// Remaining time of its ejection.
    pub ejected_for: Option<Duration>,
    /// Number of recent ejections.
    pub ejections: u32,
}

/// Number of records that were taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Classes.
    pub classes: usize,
    /// Windows.
    pub windows: usize,
    /// Nodes.
    pub nodes: usize,
}

impl Adopted {
    /// Whether nothing was taken over.
    pub fn is_nothing(&self) -> bool {
        *self == Adopted::default()
    }
}

/// Time of the last good answer, in nanoseconds on the engine's clock. It may lie before the start of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    at: i64,
    /// Whether it was an answer of this engine, and not of the one that it has learned from.
    own: bool,
}

impl Answered {
    /// There was none.
    pub(crate) const NEVER: Answered = Answered { at: i64::MIN, own: false };

    #[inline]
    pub(crate) fn at(now: Time) -> Answered {
        Answered { at: now.as_nanos().cast_signed(), own: true }
    }

    /// The answer of another engine that is `age` old.
    pub(crate) fn before(now: Time, age: Duration) -> Answered {
        let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        Answered { at: now.as_nanos().cast_signed().saturating_sub(age).max(i64::MIN + 1), own: false }
    }

    /// Its age. `None` if there was none.
    pub(crate) fn age(self, now: Time) -> Option<Duration> {
        let age = now.as_nanos().cast_signed().saturating_sub(self.at);
        (self != Answered::NEVER).then(|| Duration::from_nanos(age.max(0).unsigned_abs()))
    }

    /// Whether a record with this time is replaced by one with the time `other`.
    pub(crate) fn yields(self, other: Answered, now: Time) -> bool {
        other.at > self.at && (!self.own || self.age(now).is_none_or(|age| age >= QUIET))
    }
}

/// Returns a number that can be taken over: finite and within these bounds, or else `None`.
pub(crate) fn within(value: f64, min: f64, max: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then(|| value.clamp(min, max))
}

impl LearnedTimes {
    /// The same values if they can be: a mean square is never less than the square of the mean.
    pub(crate) fn checked(self) -> Option<LearnedTimes> {
        let max = MAX_SPAN.as_secs_f64();
        let mean = within(self.mean, 0.0, max)?;
        Some(LearnedTimes {
            arrivals_per_s: within(self.arrivals_per_s, 0.0, MAX_PER_S)?,
            mean,
            square: within(self.square, mean * mean, max * max)?,
            completions: within(self.completions, 0.0, f64::MAX)?,
        })
    }
}

impl Engine {
    /// Returns all that was learned. A driver that must not wait for a hundred thousand classes asks for them in pages:
    /// [`Engine::learned_classes`].
    pub fn learned(&self, now: Time) -> Learned {
        let classes = self.learned_classes(now, ClassId(0), usize::MAX);
        Learned { classes: classes.0, ..self.learned_windows(now) }
    }

    /// Returns the windows and nodes.
    pub fn learned_windows(&self, now: Time) -> Learned {
        let now = now.max(self.now);
        let windows = self.limit.learned(now, &self.policy, &self.nodes);
        let node = |(index, node): (NodeId, _)| {
            let spec = &self.policy.nodes[index.row()];
            let known: LearnedNode = self.nodes.learned(now, node);
            LearnedNode { pool: self.policy.pools[spec.pool].name.clone(), name: spec.name.clone(), ..known }
        };
        Learned { classes: Vec::new(), windows, nodes: self.nodes.nodes.pairs().map(node).collect() }
    }

    /// Returns the classes with an answer among the `max` classes with ids from `from` on, and the id to continue with.
    pub fn learned_classes(&self, now: Time, from: ClassId, max: usize) -> (Vec<LearnedClass>, Option<ClassId>) {
        let now = now.max(self.now);
        let count = self.classes.all.len();
        let end = from.row().saturating_add(max).min(count);
        let known = (from.row()..end).map(ClassId::of).filter_map(|class| self.learned_class(now, class));
        (known.collect(), (end < count).then(|| ClassId::of(end)))
    }

    fn learned_class(&self, now: Time, class: ClassId) -> Option<LearnedClass> {
        let state = &self.classes[class];
        let age = state.observed.answered.age(now).filter(|_| state.live)?;
        let spec = self.classes.spec(class);
        let span = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(MAX_SPAN);
        let mut expected = state.expected.clone();
        expected.roll(now, state.in_flight > 0, self.classes.estimation, spec.guarantee.response_time);
        let (mean, percentile) = expected.learned();
        Some(LearnedClass {
            name: spec.name.clone(),
            key: state.made.as_ref().map(|made| made.key.to_vec()),
            pool: self.policy.pools[spec.pool].name.clone(),
            age,
            service_time: state.observed.learned().map(span),
            expected: mean.map(|mean| (span(mean), percentile.map(span))),
            cost: self.classes.mean_cost(class),
            rate_full_in: state.bucket.full_in(now),
            times: self.limit.learned_times(class),
        })
    }

    /// Takes over what another engine has learned, as far as it is of use here. `age` is the time since
    /// [`Engine::learned`] was called there, or more. Requests are not affected. Call [`Engine::poll`] afterwards.
    pub fn adopt(&mut self, now: Time, learned: &Learned, age: Duration) -> Adopted {
        let now = self.advance(now);
        let classes = self.adopt_classes(now, &learned.classes, age);
        let mut adopted = self.adopt_windows(now, learned, age);
        adopted.classes += classes;
        adopted
    }

    /// Takes over the records of classes, and returns their number.
    pub fn adopt_classes(&mut self, now: Time, classes: &[LearnedClass], age: Duration) -> usize {
        let now = self.advance(now);
        if let Some(shadow) = &mut self.shadow {
            shadow.engine().adopt_classes(now, classes, age);
        }
        let policy = &self.policy;
        let named: BTreeMap<&str, ClassId> =
            (0..).map(ClassId).zip(&policy.classes).map(|(id, class)| (class.name.as_str(), id)).collect();
        let templates: BTreeMap<&str, TemplateId> =
            (0..).map(TemplateId).zip(&policy.templates).map(|(id, t)| (t.class.name.as_str(), id)).collect();
        // Overflow classes of templates have a number, but no key.
        let overflow = |template: TemplateId| ClassId::of(policy.classes.len() + template.0 as usize);
        let target = |known: &LearnedClass| match (templates.get(known.name.as_str()), &known.key) {
            (Some(template), key) => Some((overflow(*template), key.as_ref().map(|key| (*template, key.clone())))),
            (None, None) => named.get(known.name.as_str()).map(|class| (*class, None)),
            (None, Some(_)) => None,
        };
        let found: Vec<_> = classes.iter().filter_map(|known| Some((known, target(known)?))).collect();
        let mut adopted = 0;
        for (known, (class, made)) in found {
            let pool = self.classes.spec(class).pool;
            if self.policy.pools[pool].name != known.pool {
                continue;
            }
            let class = match made {
                // A class without room for it shares the overflow class, which has a record of its own.
                Some((template, key)) => {
                    let class = self.class(now, template, &key);
                    if self.classes[class].made.is_none() {
                        continue;
                    }
                    class
                }
                None => class,
            };
            adopted += usize::from(self.adopt_class(now, class, known, age));
        }
        adopted
    }

    fn adopt_class(&mut self, now: Time, class: ClassId, known: &LearnedClass, age: Duration) -> bool {
        let answered = Answered::before(now, known.age.saturating_add(age));
        if !self.classes[class].observed.answered.yields(answered, now) {
            return false;
        }
        let limit = self.classes.spec(class).guarantee.response_time;
        let estimation = self.classes.estimation;
        let state = &mut self.classes[class];
        state.observed.answered = answered;
        state.bucket.delay(now, known.rate_full_in.saturating_sub(age));
        if let Some((mean, percentile)) = known.expected {
            let percentile = percentile.map(|span| span.min(MAX_SPAN).as_secs_f64());
            state.expected.adopt(now, (mean.min(MAX_SPAN).as_secs_f64(), percentile), age, (estimation, limit));
        }
        if let Some(service_time) = known.service_time.filter(|span| !span.is_zero()) {
            self.classes.adopt_service_time(class, service_time.min(MAX_SPAN).as_secs_f64());
        }
        if self.policy.is_priced()
            && let Some(cost) = known.cost.and_then(|cost| within(cost, 0.0, MAX_SPAN.as_secs_f64()))
        {
            self.classes.adopt_cost(class, cost);
        }
        if let Some(times) = known.times.and_then(LearnedTimes::checked) {
            self.limit.adopt_times(class, times);
        }
        self.reweigh(class);
        true
    }

    /// Takes over windows and nodes.
    pub fn adopt_windows(&mut self, now: Time, learned: &Learned, age: Duration) -> Adopted {
        let now = self.advance(now);
        if let Some(shadow) = &mut self.shadow {
            shadow.engine().adopt_windows(now, learned, age);
        }
        let found: Vec<(usize, &LearnedWindow)> =
            self.limit.yielding(now, &learned.windows, age, (&self.policy, &self.nodes));
        if found.is_empty() {
            return Adopted::default();
        }
        let pools: Vec<bool> = {
            let partitions = |window: usize| self.nodes.groups[self.limit.group_of(window as u32)].partitions.iter();
            let of = |partition: &PartitionId| self.nodes.partitions.pools[*partition];
            let mut pools = vec![false; self.policy.pools.len()];
            found.iter().flat_map(|(window, _)| partitions(*window)).for_each(|partition| pools[of(partition)] = true);
            pools
        };
        let ids: BTreeMap<(&str, &str), NodeId> = (0..)
            .map(NodeId)
            .zip(&self.policy.nodes)
            .filter(|(_, node)| pools[node.pool])
            .map(|(id, node)| ((self.policy.pools[node.pool].name.as_str(), node.name.as_str()), id))
            .collect();
        let mut nodes = 0;
        for known in &learned.nodes {
            if let Some(id) = ids.get(&(known.pool.as_str(), known.name.as_str())) {
                self.nodes.adopt(now, *id, known, age);
                nodes += 1;
            }
        }
        self.nodes.adopted();
        // Sets the bounds of windows from the service times that are known now.
        self.nodes_changed();
        let windows = found.len();
        let (limit, mut view) = self.limiting();
        for (window, known) in found {
            limit.adopt(&mut view, window, known, age);
        }
        Adopted { classes: 0, windows, nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Time = Time::from_millis;

    #[test]
    fn the_more_recent_record_is_kept_and_an_own_one_while_it_is_fresh() {
        let now = AT(20_000);
        let [old, recent] = [4_000, 19_000].map(|ms| Answered::at(AT(ms)));
        assert!(Answered::NEVER.yields(Answered::before(now, Duration::from_secs(3600)), now), "before the start");
        assert!(old.yields(recent, now) && !recent.yields(old, now));
        assert!(!recent.yields(Answered::at(now), now), "own answers a second ago");
        assert!(!old.yields(old, now) && !Answered::NEVER.yields(Answered::NEVER, now));
        let [followed, newer] = [2_000, 1_000].map(|ms| Answered::before(now, Duration::from_millis(ms)));
        assert!(followed.yields(newer, now), "answers of the other one");
        assert_eq!(
            Answered::before(AT(1), Duration::MAX).age(AT(1)).map(|age| age > Duration::from_secs(1)),
            Some(true)
        );
    }

    #[test]
    fn numbers_that_cannot_be_are_ignored() {
        assert_eq!([f64::NAN, f64::INFINITY, -1.0].map(|value| within(value, 0.0, 9.0)), [None; 3]);
        assert_eq!([0.5, 1.0, 1e300].map(|value| within(value, 1.0, 9.0)), [Some(1.0), Some(1.0), Some(9.0)]);
        let times = LearnedTimes { arrivals_per_s: 1e99, mean: 2.0, square: 0.0, completions: 3.0 };
        let checked = times.checked().expect("finite");
        assert_eq!((checked.square, checked.arrivals_per_s), (4.0, MAX_PER_S));
        assert_eq!(LearnedTimes { mean: f64::NAN, ..times }.checked(), None);
    }

    #[test]
    fn spans_of_any_length_are_counted() {
        assert!(Answered::before(AT(5), Duration::MAX) != Answered::NEVER);
    }
}
