//! Exemplars: for each bucket of the response time, the latest request whose trace is exported.
//!
//! Source: OpenMetrics 1.0, section "Exemplars". From a slow bucket on a graph, one click leads to the trace of a
//! request in it. A request whose trace is not exported is none, because its trace could not be found. So without
//! `telemetry` there are no exemplars, and their lock is never taken.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::bounds::{Bounds, PLACES};
use crate::record::AccessRecord;

/// The metric that has exemplars, as its buckets begin on the page.
const BUCKET: &str = "weirgate_response_time_seconds_bucket{";

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exemplar {
    /// Hexadecimal digits of the trace's id.
    trace: [u8; 32],
    span: u64,
    micros: u64,
    /// Time since 1970 at which it ended.
    ended: Duration,
}

/// The exemplars of a class, by the place of their bucket.
pub(super) type OfClass = Box<[Option<Exemplar>; PLACES]>;

/// The exemplars of all classes. A class without one has no entry.
#[derive(Debug, Default)]
pub(super) struct Exemplars(Mutex<BTreeMap<Arc<str>, OfClass>>);

impl Exemplars {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, OfClass>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a served request whose trace is exported.
    pub(super) fn take(&self, record: &AccessRecord<'_>, bounds: &Bounds, now: SystemTime) {
        let (Some(span), Some(trace)) = (record.span, record.trace_id) else { return };
        let micros = u64::try_from((record.queue_wait + record.service_time).as_micros()).unwrap_or(u64::MAX);
        let ended = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let exemplar = Exemplar { trace: trace.digits(), span: span.own, micros, ended };
        let mut classes = self.lock();
        if !classes.contains_key(record.class_name) {
            classes.insert(record.class_name.into(), Box::new([None; PLACES]));
        }
        let of_class = classes.get_mut(record.class_name);
        if let Some(place) = of_class.and_then(|class| class.get_mut(bounds.place(micros))) {
            *place = Some(exemplar);
        }
    }

    /// Keeps those of these classes. If the bounds have changed, none is kept: its bucket may be another one.
    pub(super) fn retain(&self, keeps: impl Fn(&str) -> bool, bounds_changed: bool) {
        self.lock().retain(|name, _| !bounds_changed && keeps(name));
    }

    /// Returns the exemplars of these classes, for each of their buckets in the order of the page.
    pub(super) fn of<'a>(&self, classes: impl Iterator<Item = &'a str>, bounds: &Bounds) -> Vec<Option<Exemplar>> {
        let all = self.lock();
        if all.is_empty() {
            return Vec::new();
        }
        let of_class = |name| {
            let class = all.get(name);
            bounds.places().map(move |(_, place)| class?.get(place).copied()?)
        };
        classes.flat_map(of_class).collect()
    }
}

/// Adds the exemplars to a page. They are those of its buckets of the response time, in order.
pub(super) fn add_to(page: String, exemplars: &[Option<Exemplar>]) -> String {
    if exemplars.is_empty() {
        return page;
    }
    let mut exemplars = exemplars.iter();
    let mut all = String::with_capacity(page.len() + 128 * exemplars.len());
    for line in page.lines() {
        all.push_str(line);
        if line.starts_with(BUCKET)
            && let Some(Some(exemplar)) = exemplars.next()
        {
            let Exemplar { trace, span, micros, ended } = exemplar;
            let trace = std::str::from_utf8(trace).unwrap_or_default();
            let (time, ended) = (*micros as f64 / 1e6, ended.as_secs_f64());
            // Writing to a string cannot fail.
            let _ = write!(all, " # {{trace_id=\"{trace}\",span_id=\"{span:016x}\"}} {time} {ended:.3}");
        }
        all.push('\n');
    }
    all
}
