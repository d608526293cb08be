//! The counters of one class.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weirgate_engine::ShedReason;

use super::bounds::{Bounds, Move, PLACES};
use crate::record::{AccessRecord, Ending};

/// Counters of one class, or of all classes of one template. `N` is `AtomicU64` while they count, and `u64` once they
/// are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally<N = AtomicU64> {
    /// Counts by status class: none sent, 1xx, … 5xx.
    pub(super) requests: [N; 6],
    pub(super) shed: [N; ShedReason::ALL.len()],
    pub(super) left: N,
    pub(super) retries: N,
    pub(super) received_bytes: N,
    pub(super) sent_bytes: N,
    /// Arrivals on routes that are not in the page table, as of the latest page.
    pub(super) unknown_routes: N,
    /// From head received to the node's last byte, for served requests.
    pub(super) response_time: Histogram<N>,
    /// From head received to release or shed.
    pub(super) queue_wait: Histogram<N>,
}

/// Counters that have been read.
pub(super) type Counts = Tally<u64>;

/// A histogram of times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram<N = AtomicU64> {
    /// Counts by the places of [`Bounds`].
    pub(super) buckets: [N; PLACES],
    pub(super) micros: N,
}

impl Tally {
    pub(super) fn add(&self, record: &AccessRecord<'_>, bounds: &Bounds) {
        let add = |counter: &AtomicU64, n: u64| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        if let Some(counter) = self.requests.get(usize::from(record.status / 100)).or(self.requests.first()) {
            add(counter, 1);
        }
        add(&self.retries, u64::from(record.retries));
        add(&self.received_bytes, record.bytes_in);
        add(&self.sent_bytes, record.bytes_out);
        match record.ending {
            Ending::Served => {
                self.response_time.add(record.queue_wait + record.service_time, bounds);
                self.queue_wait.add(record.queue_wait, bounds);
            }
            Ending::Shed(reason) => {
                if let Some(counter) = self.shed.get(reason.index()) {
                    add(counter, 1);
                }
                self.queue_wait.add(record.queue_wait, bounds);
            }
            Ending::Tunnelled | Ending::Failed(_) => self.queue_wait.add(record.queue_wait, bounds),
            Ending::Left => add(&self.left, 1),
            Ending::Refused(_) | Ending::Redirected | Ending::Challenge => {}
        }
    }

    /// Moves counts of buckets to other ones.
    pub(super) fn shift(&self, moves: &[Move]) {
        for Histogram { buckets, .. } in [&self.response_time, &self.queue_wait] {
            // First all are taken, because one may move to the place of another one.
            let taken: Vec<u64> = moves.iter().map(|(from, _)| buckets[*from].swap(0, Ordering::Relaxed)).collect();
            for ((_, to), count) in moves.iter().zip(taken) {
                buckets[*to].fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> Counts {
        self.with(&Counts::default(), |counter, _| counter.load(Ordering::Relaxed))
    }
}

impl<N> Tally<N> {
    /// Combines each counter with the one of `other`.
    fn with(&self, other: &Counts, of: impl Fn(&N, u64) -> u64) -> Counts {
        fn each<N, const L: usize>(a: &[N; L], b: &[u64; L], of: impl Fn(&N, u64) -> u64) -> [u64; L] {
            std::array::from_fn(|at| of(&a[at], b[at]))
        }
        let histogram = |a: &Histogram<N>, b: &Histogram<u64>| Histogram {
            buckets: each(&a.buckets, &b.buckets, &of),
            micros: of(&a.micros, b.micros),
        };
        Tally {
            requests: each(&self.requests, &other.requests, &of),
            shed: each(&self.shed, &other.shed, &of),
            left: of(&self.left, other.left),
            retries: of(&self.retries, other.retries),
            received_bytes: of(&self.received_bytes, other.received_bytes),
            sent_bytes: of(&self.sent_bytes, other.sent_bytes),
            unknown_routes: of(&self.unknown_routes, other.unknown_routes),
            response_time: histogram(&self.response_time, &other.response_time),
            queue_wait: histogram(&self.queue_wait, &other.queue_wait),
        }
    }
}

impl Counts {
    pub(super) fn plus(&self, other: &Counts) -> Counts {
        self.with(other, |a, b| a.saturating_add(b))
    }

    pub(super) fn minus(&self, other: &Counts) -> Counts {
        self.with(other, |a, b| a.saturating_sub(b))
    }

    /// Moves counts of buckets to other ones.
    pub(super) fn shift(&mut self, moves: &[Move]) {
        for Histogram { buckets, .. } in [&mut self.response_time, &mut self.queue_wait] {
            let taken: Vec<u64> = moves.iter().map(|(from, _)| std::mem::take(&mut buckets[*from])).collect();
            moves.iter().zip(taken).for_each(|((_, to), count)| buckets[*to] += count);
        }
    }

    /// Number of requests that ended.
    pub(super) fn requests(&self) -> u64 {
        self.requests.iter().sum()
    }
}

impl Histogram {
    fn add(&self, span: Duration, bounds: &Bounds) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(bounds.place(micros)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}
