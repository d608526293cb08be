//! Stage *observe*: counters of requests, and the page for Prometheus.
//!
//! Counting costs a look-up in a thread-local table by the number of the class and about ten relaxed additions, without
//! a lock or an allocation. The counters of a class are kept here and not in the engine, because classes made from
//! templates come and go together with their counters. Gauges are read from the engine when the page is
//! requested. Labels are names from the policy file and words from the code, never bytes of a request.
//!
//! Memory is bounded: one tally per class and template of the policy. [`Metrics::retain`] removes the others. So is the
//! page: see `shown`.

mod acme;
mod bounds;
mod classes;
mod discovery;
mod exemplars;
mod learned;
mod page;
mod shown;
mod site;
mod tally;
mod tls;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::record::{AccessRecord, ClassIndex, Ending, Observer};

pub(crate) use classes::{Classes, Live};
pub(crate) use page::{Scrape, Single, Value, render};
pub use shown::MAX_SHOWN;
pub(crate) use tls::Tls;

use bounds::Bounds;
use exemplars::Exemplars;
use shown::{Shown, Tallies, UNCLASSIFIED};
use tally::{Counts, Tally};

/// Maximum number of distinct words for refusals, and for failures. The code has fewer. More are counted as
/// `other`.
const MAX_WORDS: usize = 64;

/// Counters of all requests.
#[derive(Debug)]
pub struct Metrics {
    /// Distinguishes instances in the thread-local tables.
    id: u64,
    /// Incremented when tallies are removed or the bounds change. Threads then drop their tables.
    generation: AtomicU64,
    classes: Mutex<BTreeMap<Arc<str>, Arc<Tally>>>,
    /// The buckets of all histograms. Locked after `classes`.
    bounds: Mutex<Arc<Bounds>>,
    exemplars: Exemplars,
    /// Locked before `classes`.
    shown: Mutex<Shown>,
    refused: Words,
    failed: Words,
}

/// Lock-free counts by word. Only the code chooses the words.
#[derive(Debug)]
struct Words {
    slots: [(OnceLock<&'static str>, AtomicU64); MAX_WORDS],
    other: AtomicU64,
}

/// A thread-local table of tallies, by [`slot`].
#[derive(Default)]
struct Cache {
    /// Instance, generation, and version of the policy.
    of: (u64, u64, u64),
    bounds: Arc<Bounds>,
    tallies: Vec<Option<Arc<Tally>>>,
}

/// Returns the place of a class in a table.
fn slot(class: Option<ClassIndex>) -> usize {
    match class {
        None => 0,
        Some(ClassIndex::Class(index)) => 2 * index as usize + 1,
        Some(ClassIndex::Template(template)) => 2 * template.0 as usize + 2,
    }
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Creates metrics with all counters at zero.
    pub fn new() -> Metrics {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Metrics {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            generation: AtomicU64::new(0),
            classes: Mutex::default(),
            bounds: Mutex::default(),
            exemplars: Exemplars::default(),
            shown: Mutex::default(),
            refused: Words::default(),
            failed: Words::default(),
        }
    }

    /// Counts exactly these classes and templates, and `-` for requests refused before stage *classify*. Histograms get
    /// a bucket for each limit of a response time, as far as there are not too many. Classes removed by a reload are
    /// dropped.
    pub fn retain<'a>(&self, names: impl Iterator<Item = &'a str>, limits: impl Iterator<Item = Duration>) {
        let names: BTreeSet<&str> = names.chain([UNCLASSIFIED]).collect();
        let mut shown = self.shown();
        let mut classes = self.classes();
        let removed: Tallies = classes.extract_if(.., |name, _| !names.contains(&**name)).collect();
        let micros = limits.map(|limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX));
        let mut bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, moves) = bounds.for_limits(micros);
        let bounds_changed = **bounds != next;
        *bounds = Arc::new(next);
        drop(bounds);
        if !removed.is_empty() || bounds_changed {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        self.exemplars.retain(|name| names.contains(name), bounds_changed);
        if !moves.is_empty() {
            classes.values().chain(removed.iter().map(|(_, tally)| tally)).for_each(|tally| tally.shift(&moves));
            shown.shift(&moves);
        }
        for name in names {
            if !classes.contains_key(name) {
                classes.insert(name.into(), Arc::default());
            }
        }
        drop(classes);
        shown.forget(&removed);
    }

    fn classes(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Tally>>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bounds(&self) -> Arc<Bounds> {
        Arc::clone(&self.bounds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts for one page, by class, with the buckets of their histograms. `all` shows every class.
    /// Otherwise at most [`MAX_SHOWN`] classes are shown, and the others are counted as [`OTHER`]. `live` has the
    /// engine's own counts, which are taken over.
    fn series(&self, all: bool, live: &BTreeMap<String, Live>) -> (Vec<(Arc<str>, Counts)>, Arc<Bounds>) {
        let mut shown = self.shown();
        // Threads that count a class for the first time wait for this lock, so nothing is read under it.
        let tallies: Tallies =
            self.classes().iter().map(|(name, tally)| (Arc::clone(name), Arc::clone(tally))).collect();
        for (name, tally) in &tallies {
            if let Some(live) = live.get(&**name) {
                tally.unknown_routes.fetch_max(live.unknown_routes(), Ordering::Relaxed);
            }
        }
        let read = |(name, tally): (Arc<str>, Arc<Tally>)| (name, tally.read());
        let counts = if all { tallies.into_iter().map(read).collect() } else { shown.page(tallies) };
        // The bounds change under the lock on `shown`.
        (counts, self.bounds())
    }

    /// Adds a request to the tally of its class. Takes the lock only for a thread's first request of a class.
    fn count(&self, record: &AccessRecord<'_>) {
        let now = (self.id, self.generation.load(Ordering::Relaxed), record.version);
        let slot = slot(record.class);
        CACHE.with_borrow_mut(|cache| {
            if cache.of != now {
                *cache = Cache { of: now, bounds: self.bounds(), tallies: Vec::new() };
            }
            if record.span.is_some() && matches!(record.ending, Ending::Served) {
                self.exemplars.take(record, &cache.bounds, weirgate_clock::calendar());
            }
            if let Some(Some(tally)) = cache.tallies.get(slot) {
                return tally.add(record, &cache.bounds);
            }
            let tally = self.tally(record.class_name);
            tally.add(record, &cache.bounds);
            if cache.tallies.len() <= slot {
                cache.tallies.resize(slot + 1, None);
            }
            if let Some(place) = cache.tallies.get_mut(slot) {
                *place = Some(tally);
            }
        });
    }

    fn tally(&self, name: &str) -> Arc<Tally> {
        Arc::clone(self.classes().entry(name.into()).or_default())
    }
}

impl Observer for Arc<Metrics> {
    fn observe(&self, record: &AccessRecord<'_>) {
        self.count(record);
        match record.ending {
            Ending::Refused(word) => self.refused.add(word),
            Ending::Failed(word) => self.failed.add(word),
            Ending::Served
            | Ending::Tunnelled
            | Ending::Redirected
            | Ending::Challenge
            | Ending::Shed(_)
            | Ending::Left => {}
        }
    }
}

impl Default for Words {
    fn default() -> Words {
        Words { slots: std::array::from_fn(|_| Default::default()), other: AtomicU64::new(0) }
    }
}

impl Words {
    fn add(&self, word: &'static str) {
        // Slots fill from the front and never change. Use the first slot that has the word or is free.
        let slot = self.slots.iter().find(|(slot, _)| *slot.get_or_init(|| word) == word);
        slot.map_or(&self.other, |(_, count)| count).fetch_add(1, Ordering::Relaxed);
    }

    /// Returns every word with its count.
    fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let known = self.slots.iter().filter_map(|(word, n)| Some((*word.get()?, n.load(Ordering::Relaxed))));
        let other = Some(("other", self.other.load(Ordering::Relaxed))).filter(|(_, n)| *n > 0);
        known.chain(other)
    }
}

#[cfg(test)]
mod tests {
    use weirgate_engine::ShedReason;

    use super::*;

    fn record(class_name: &str, ending: Ending, status: u16) -> AccessRecord<'_> {
        // A record borrows. Tests are short.
        let request = Box::leak(Box::default());
        AccessRecord {
            // One letter each, and `-` for none.
            class: class_name
                .bytes()
                .next()
                .filter(u8::is_ascii_lowercase)
                .map(|b| ClassIndex::Class(u32::from(b - b'a'))),
            ending,
            status,
            retries: 1,
            queue_wait: Duration::from_millis(2),
            service_time: Duration::from_millis(9),
            total: Duration::from_millis(12),
            bytes_in: 3,
            bytes_out: 5,
            ..AccessRecord::served(request, class_name)
        }
    }

    fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    #[test]
    fn every_ending_is_counted_where_it_belongs() {
        let metrics = Arc::new(Metrics::new());
        metrics.observe(&record("a", Ending::Served, 200));
        metrics.observe(&record("a", Ending::Shed(ShedReason::QueueFull), 503));
        metrics.observe(&record("a", Ending::Left, 0));
        metrics.observe(&record("a", Ending::Failed("connection_refused"), 502));
        metrics.observe(&record("-", Ending::Refused("bad_framing"), 400));
        let a = metrics.tally("a");
        assert_eq!(a.requests.each_ref().map(get), [1, 0, 1, 0, 0, 2]);
        assert_eq!(get(&a.shed[ShedReason::QueueFull.index()]), 1);
        assert_eq!((get(&a.left), get(&a.retries), get(&a.received_bytes), get(&a.sent_bytes)), (1, 4, 12, 20));
        assert_eq!(a.response_time.buckets.iter().map(get).sum::<u64>(), 1);
        assert_eq!(get(&a.response_time.buckets[4]), 1, "11 ms lie between 10 and 25");
        assert_eq!(get(&a.queue_wait.buckets[1]), 3, "2 ms lie between 1 and 2.5");
        assert_eq!(metrics.refused.counts().collect::<Vec<_>>(), [("bad_framing", 1)]);
        assert_eq!(metrics.failed.counts().collect::<Vec<_>>(), [("connection_refused", 1)]);
    }

    #[test]
    fn d4_tallies_are_bounded_by_the_policy_and_outlive_a_reload() {
        let metrics = Arc::new(Metrics::new());
        metrics.retain(["a", "b"].into_iter(), [].into_iter());
        metrics.observe(&record("a", Ending::Served, 200));
        metrics.observe(&record("b", Ending::Served, 200));
        metrics.retain(["a", "c"].into_iter(), [].into_iter());
        assert_eq!(metrics.classes().keys().map(|name| &**name).collect::<Vec<_>>(), ["-", "a", "c"]);
        metrics.observe(&record("a", Ending::Served, 200));
        assert_eq!(get(&metrics.tally("a").requests[2]), 2);
        assert_eq!(get(&metrics.tally("b").requests[2]), 0);
    }

    #[test]
    fn threads_count_together() {
        let metrics = Arc::new(Metrics::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| metrics.observe(&record("a", Ending::Served, 200))));
            }
        });
        assert_eq!(get(&metrics.tally("a").requests[2]), 4000);
    }

    #[test]
    fn words_past_the_bound_are_other() {
        let words = Words::default();
        let many: Vec<&'static str> = (0..80).map(|i| &*String::leak(format!("w{i}"))).collect();
        many.iter().chain(&many).for_each(|word| words.add(word));
        let counts: Vec<_> = words.counts().collect();
        assert_eq!((counts.len(), counts[0], counts[MAX_WORDS]), (MAX_WORDS + 1, ("w0", 2), ("other", 32)));
    }
}
