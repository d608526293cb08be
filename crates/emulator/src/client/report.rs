//! What came back: counters, histograms and a series over time.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::generator::Due;
use super::plan::{Guarantee, LONGEST_TIMEOUT, Statistic};

/// Everything that a run measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// Per class, in the order of the plan.
    pub classes: Vec<ClassReport>,
    /// The series over time.
    pub points: Vec<Point>,
    /// How long requests were sent.
    pub elapsed: Duration,
    /// Why sending ended.
    pub ended: Ended,
    /// How late after their intended instants requests were begun, in microseconds: the error of the
    /// generator. It is part of every response time.
    pub lateness: Histogram<u32>,
}

/// Why sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The last phase was over.
    Schedule,
    /// Someone asked for it.
    Asked,
    /// The plan's number of requests was reached.
    Count,
}

/// What one class got.
#[derive(Clone, Debug)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// What it was promised.
    pub guarantee: Guarantee,
    /// Connections opened over all.
    pub connections: u64,
    /// Per phase, in the order of the plan.
    pub phases: Vec<PhaseReport>,
}

/// What one class got in one phase. Requests belong to the phase and part of their intended instants.
#[derive(Clone, Debug)]
pub struct PhaseReport {
    /// The phase's name.
    pub name: String,
    /// Requests of the first part, which is judged apart.
    pub settling: Tally,
    /// Requests of the rest.
    pub settled: Tally,
}

/// Counts over a set of requests: arrivals = served + shed + failed + cut.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests.
    pub arrivals: u64,
    /// Those of them that fit into a token bucket of the guaranteed rate with a burst of one second.
    pub within_rate: u64,
    /// Their demands together.
    pub demand: Duration,
    /// Answered with a status from 200 to 399, whole.
    pub served: u64,
    /// Answered with 503 or 429.
    pub shed: u64,
    /// Everything else.
    pub failed: Failures,
    /// Under way when the run was asked to end.
    pub cut: u64,
    /// Requests that had to wait for a connection of the client's own.
    pub delayed: u64,
    /// Replies by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes of bodies received.
    pub bytes: u64,
    /// Response times of served requests in microseconds, from the intended instant to the last byte.
    pub response: Histogram<u32>,
    /// The same of shed requests.
    pub shed_response: Histogram<u32>,
}

/// Requests that came to nothing, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// No connection could be made.
    pub connect: u64,
    /// The connection ended before the reply did.
    pub reset: u64,
    /// Given up after the class's time-out.
    pub timeout: u64,
    /// The reply was not HTTP.
    pub garbled: u64,
    /// Replies of other statuses.
    pub status: u64,
}

impl Failures {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.connect + self.reset + self.timeout + self.garbled + self.status
    }
}

/// What happened during one tick. Replies count when they came, whenever the request was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The end of the tick, since the start.
    pub at: Duration,
    /// Its length; the last one may be shorter.
    pub length: Duration,
    /// Index of the phase at its end.
    pub phase: usize,
    /// Per class.
    pub classes: Vec<ClassPoint>,
}

/// One class's part in a [`Point`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassPoint {
    /// Requests.
    pub arrivals: u64,
    /// Replies with a status from 200 to 399.
    pub served: u64,
    /// Replies with 503 or 429.
    pub shed: u64,
    /// Whatever failed.
    pub failed: u64,
    /// Under way at the end of the tick.
    pub under_way: u64,
    /// The guaranteed statistic of the served requests' response times, or their 95th percentile;
    /// `None` if there were none.
    pub response: Option<Duration>,
    /// Their mean.
    pub mean: Option<Duration>,
}

/// A histogram of microseconds up to the longest time-out.
pub(super) fn histogram(digits: u8) -> Histogram<u32> {
    // Twice the longest time-out: a late generator must not saturate it.
    Histogram::new_with_bounds(1, 2 * LONGEST_TIMEOUT.as_micros() as u64, digits).expect("constant bounds are valid")
}

/// A statistic of a histogram of microseconds; `None` if it is empty.
#[must_use]
pub(super) fn statistic(histogram: &Histogram<u32>, statistic: Statistic) -> Option<Duration> {
    if histogram.is_empty() {
        return None;
    }
    let micros = match statistic {
        Statistic::Average => histogram.mean(),
        Statistic::Percentile(p) => histogram.value_at_percentile(p) as f64,
    };
    Some(Duration::from_secs_f64(micros / 1e6))
}

impl Default for Tally {
    /// Nothing.
    fn default() -> Tally {
        Tally {
            arrivals: 0,
            within_rate: 0,
            demand: Duration::ZERO,
            served: 0,
            shed: 0,
            failed: Failures::default(),
            cut: 0,
            delayed: 0,
            statuses: BTreeMap::new(),
            bytes: 0,
            response: histogram(3),
            shed_response: histogram(2),
        }
    }
}

impl Tally {
    /// Counts a request that is due.
    pub fn arrived(&mut self, due: &Due) {
        self.arrivals += 1;
        self.within_rate += u64::from(due.within_rate);
        self.demand += due.demand;
    }

    /// Counts a request that was served after so long.
    pub fn served(&mut self, response: Duration) {
        self.served += 1;
        self.response.saturating_record(response.as_micros() as u64);
    }

    /// Adds another set of requests.
    pub fn add(&mut self, other: &Tally) {
        self.arrivals += other.arrivals;
        self.within_rate += other.within_rate;
        self.demand += other.demand;
        self.served += other.served;
        self.shed += other.shed;
        self.failed.connect += other.failed.connect;
        self.failed.reset += other.failed.reset;
        self.failed.timeout += other.failed.timeout;
        self.failed.garbled += other.failed.garbled;
        self.failed.status += other.failed.status;
        self.cut += other.cut;
        self.delayed += other.delayed;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.bytes += other.bytes;
        self.response += &other.response;
        self.shed_response += &other.shed_response;
    }

    /// A statistic of the served requests' response times; `None` if none was served.
    #[must_use]
    pub fn response_time(&self, which: Statistic) -> Option<Duration> {
        statistic(&self.response, which)
    }
}

impl ClassReport {
    /// All requests of the run.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for phase in &self.phases {
            total.add(&phase.settling);
            total.add(&phase.settled);
        }
        total
    }
}
