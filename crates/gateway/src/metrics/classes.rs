//! The classes of one page: their counts, and the engine's present state of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use weirgate_engine::{ClassSnapshot, Mode, ShedReason};

use super::Metrics;
use super::bounds::Bounds;
use super::exemplars::Exemplar;
use super::shown::OTHER;
use super::tally::Counts;

/// The classes of one page, each with its name.
#[derive(Debug)]
pub(crate) struct Classes {
    pub(super) counts: Vec<(Arc<str>, Counts)>,
    /// The buckets of the histograms.
    pub(super) bounds: Arc<Bounds>,
    /// Exemplars of the buckets of the response times, in the order of `counts`, or empty.
    pub(super) exemplars: Vec<Option<Exemplar>>,
    pub(super) live: Vec<(Arc<str>, Live)>,
}

impl Classes {
    /// Selects the classes of a page: all of them, or at most [`MAX_SHOWN`] and the sum of the others. `live` has the
    /// live classes, summed by their names in the policy.
    pub(crate) fn select(metrics: &Metrics, mut live: BTreeMap<String, Live>, all: bool) -> Classes {
        let (counts, bounds) = metrics.series(all, &live);
        let exemplars = metrics.exemplars.of(counts.iter().map(|(name, _)| &**name), &bounds);
        let mut shown: Vec<(Arc<str>, Live)> =
            counts.iter().filter_map(|(name, _)| Some((Arc::clone(name), live.remove(&**name)?))).collect();
        // The rest are the others, and classes of a policy that has been in force for a moment.
        if !live.is_empty() {
            let mut others = Live::default();
            live.values().for_each(|live| others.merge(live));
            shown.push((OTHER.into(), others));
        }
        Classes { counts, bounds, exemplars, live: shown }
    }
}

/// Live classes of one name: the class itself, or all classes made from a template. Or all classes without series of
/// their own.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(super) classes: u64,
    pub(super) waiting: u64,
    pub(super) outstanding: u64,
    pub(super) share: f64,
    pub(crate) tunnels: u64,
    pub(crate) long_responses: u64,
    unknown_routes: u64,
    /// Requests that passed and would have been refused, by reason.
    pub(super) would_shed: [u64; ShedReason::ALL.len()],
    /// Smallest enforced share of the sources of a class that is not enforced for all of them.
    pub(super) enforced: Option<f64>,
    /// Only for classes named in the policy. One value for many keys would be meaningless.
    pub(super) named: Option<Named>,
}

/// Guarantee and achieved values of a class named in the policy. Of several classes: the sum of the rates, and whether
/// all of them hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named {
    pub(super) guaranteed_throughput: Option<f64>,
    pub(super) achieved_throughput: Option<f64>,
    pub(super) guaranteed_response_time: Option<f64>,
    pub(super) achieved_response_time: Option<f64>,
    pub(super) compute_time: Option<f64>,
    pub(super) throughput_held: Option<bool>,
    pub(super) response_time_held: Option<bool>,
    pub(super) impossible: Option<bool>,
}

/// Combines two values, if there are two.
fn either<T>(a: Option<T>, b: Option<T>, both: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (a, b) => a.or(b),
    }
}

impl Named {
    fn of(class: &ClassSnapshot) -> Named {
        let achieved = &class.achieved;
        Named {
            guaranteed_throughput: class.guarantee.throughput,
            achieved_throughput: Some(achieved.served_per_s),
            guaranteed_response_time: class.guarantee.response_time.map(|r| r.limit.as_secs_f64()),
            achieved_response_time: achieved.limited.map(|(_, span)| span.as_secs_f64()),
            compute_time: class.compute_time.map(|span| span.as_secs_f64()),
            throughput_held: achieved.throughput_held,
            response_time_held: achieved.response_time_held,
            impossible: class.guarantee.response_time.map(|_| class.impossible),
        }
    }

    /// Times of several classes have no sum.
    fn plus(self, other: Named) -> Named {
        Named {
            guaranteed_throughput: either(self.guaranteed_throughput, other.guaranteed_throughput, |a, b| a + b),
            achieved_throughput: either(self.achieved_throughput, other.achieved_throughput, |a, b| a + b),
            throughput_held: either(self.throughput_held, other.throughput_held, |a, b| a && b),
            response_time_held: either(self.response_time_held, other.response_time_held, |a, b| a && b),
            impossible: either(self.impossible, other.impossible, |a, b| a || b),
            ..Named::default()
        }
    }
}

impl Live {
    /// Adds a live class. `named` says whether the policy names it.
    pub(crate) fn add(&mut self, class: &ClassSnapshot, named: bool) {
        self.classes += 1;
        self.waiting += u64::from(class.waiting);
        self.outstanding += u64::from(class.outstanding);
        self.share += class.share;
        self.unknown_routes += class.unknown;
        self.would_shed.iter_mut().zip(class.would_shed).for_each(|(sum, count)| *sum += count);
        if class.mode != Mode::Enforce {
            self.enforced = either(self.enforced, Some(class.mode.share()), f64::min);
        }
        if named {
            self.named = Some(Named::of(class));
        }
    }

    /// Whether requests pass, or have passed, because the class is observed.
    pub(super) fn is_observed(&self) -> bool {
        self.enforced.is_some() || self.would_shed.iter().any(|count| *count > 0)
    }

    pub(super) fn unknown_routes(&self) -> u64 {
        self.unknown_routes
    }

    /// Adds the classes of another name, which have no series of their own.
    fn merge(&mut self, other: &Live) {
        self.classes += other.classes;
        self.waiting += other.waiting;
        self.outstanding += other.outstanding;
        self.tunnels += other.tunnels;
        self.long_responses += other.long_responses;
        self.share += other.share;
        self.would_shed.iter_mut().zip(other.would_shed).for_each(|(sum, count)| *sum += count);
        self.enforced = either(self.enforced, other.enforced, f64::min);
        let named = either(self.named, other.named, |a, _| a);
        self.named = named.map(|_| self.named.unwrap_or_default().plus(other.named.unwrap_or_default()));
    }
}
