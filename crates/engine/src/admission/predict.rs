//! [`crate::Admit::Predict`]: a surplus request that would wait too long is refused at arrival.
//!
//! Source: our own design, after Quorum's selective dropping (see `deadline`), with two differences. It distinguishes
//! owed requests, which are within the guaranteed rate of arrivals and a burst of one second, from surplus. An owed
//! request waits as long as it can meet its limit. About surplus it decides at arrival: the predicted wait is the
//! length of the queue divided by the release rate of the class. A surplus request is refused as soon as the queue is
//! longer than a small part of the limit. A longer queue would not serve more requests. It would only move every
//! response time to the limit.
//!
//! An owed request that has waited too long is dropped a margin before the last instant at which it would be in time.
//! Without it, a class that is overloaded would be served at its limit, and every error of the expected compute time
//! would break the guarantee.
//!
//! Parts ([`crate::Part`]): an arrival within the whole guarantee may wait as an owed request does, although it has no
//! claim yet to go first. The other engines are granted less before this one is granted more, which takes some tenths
//! of a second after the load has moved.
//!
//! Sources: the queue of a request is the number of requests that have their turn before it. A greedy source
//! therefore has a long queue, and a polite source of the same class has one request per source in it. If more
//! arrive than are guaranteed, the guaranteed arrivals are divided by max-min among the sources ([`super::holders`]).

use core::time::Duration;

use super::holders::Holders;
use super::late::LateAnswers;
use super::{AdmissionView, Offer};
use crate::demand::RESOURCES;
use crate::discipline::Predict as Figures;
use crate::index::{Id as _, Table};
use crate::policy::Guarantee;
use crate::request::{ClassId, ShedReason};
use crate::scheduler::{Bucket, Standing};
use crate::time::{Time, nanos};

/// State of the classes.
#[derive(Clone, Debug)]
pub(crate) struct Predict {
    figures: Figures,
    /// Bucket of guaranteed arrivals per class. An arrival takes a token if there is one, and is then owed
    /// an answer.
    arrivals: Table<ClassId, Bucket>,
    /// The sources of the latest guaranteed arrivals of a class, once more have arrived than that.
    holders: Table<ClassId, Option<Box<Holders>>>,
    /// Release rate of each of its sub-queues.
    rates: Table<ClassId, [ReleaseRate; RESOURCES]>,
    /// Since when requests have waited in each sub-queue, if any do.
    backlogged: Table<ClassId, [Time; RESOURCES]>,
    /// Late answers that the guaranteed statistic still allows.
    late: Table<ClassId, LateAnswers>,
}

impl Predict {
    pub(super) fn new(now: Time, figures: Figures, classes: usize) -> Predict {
        Predict {
            figures,
            arrivals: Table::filled(classes, Bucket::new(now)),
            holders: Table::filled(classes, None),
            rates: Table::filled(classes, [ReleaseRate::NONE; RESOURCES]),
            backlogged: Table::filled(classes, [now; RESOURCES]),
            late: Table::filled(classes, LateAnswers::NONE),
        }
    }

    pub(super) fn open(&mut self, now: Time, class: ClassId) {
        self.arrivals.put(class, Bucket::new(now));
        self.holders.put(class, None);
        self.rates.put(class, [ReleaseRate::NONE; RESOURCES]);
        self.backlogged.put(class, [now; RESOURCES]);
        self.late.put(class, LateAnswers::NONE);
    }

    /// Copies the state of a class from the old policy.
    pub(super) fn carry(&mut self, old: &Predict, from: ClassId, to: ClassId) {
        self.arrivals[to] = old.arrivals[from];
        self.holders[to] = old.holders[from].clone();
        self.rates[to] = old.rates[from];
        self.late[to] = old.late[from];
    }

    /// Records an arrival and returns whether it is owed an answer.
    pub(super) fn offered(&mut self, view: &AdmissionView<'_>, offer: &Offer, flow: u64) -> Standing {
        let Offer { class, sub_queue, .. } = *offer;
        let mut standing = Standing::Surplus;
        // Of a guarantee that several engines share the whole counts: this one may be granted more of it at once.
        let promised = view.policy.classes.get(class.row()).map(|class| class.guarantee.throughput);
        if let Some(rate) = promised.unwrap_or(view.classes.spec(class).guarantee.throughput) {
            let (arrivals, holders) = (&mut self.arrivals[class], &mut self.holders[class]);
            let has_token = arrivals.level(view.now, rate) >= 1.0;
            if let Some(holders) = holders
                && arrivals.is_full(rate)
            {
                holders.clear();
            }
            let owed = match holders {
                None if has_token => true,
                holders => holders.get_or_insert_default().owed(flow, has_token),
            };
            if has_token {
                arrivals.take(view.now, rate, 1.0, 0.0);
            }
            if owed {
                standing = Standing::Owed;
            }
        }
        if view.classes[class].queue.sub_queues[sub_queue].len > 0 {
            self.rates[class][sub_queue].roll(view.now, self.figures.fresh);
        }
        standing
    }

    /// Returns the reason if the request would wait too long.
    pub(super) fn predicted(&self, view: &AdmissionView<'_>, offer: &Offer, standing: Standing) -> Option<ShedReason> {
        let Offer { class, sub_queue, .. } = *offer;
        let waiting = view.queues.ahead(&view.classes[class].queue, sub_queue, offer.source);
        // Owed requests are released sooner or later. The rate of releases while nodes hang, or while a window shrinks,
        // says nothing about the rate after that.
        if waiting == 0 || standing == Standing::Owed {
            return None;
        }
        let spec = view.classes.spec(class);
        let outlook = Outlook {
            waiting,
            backlogged: view.now.as_nanos() - self.backlogged[class][sub_queue].as_nanos(),
            guaranteed: spec.guarantee.throughput.unwrap_or(0.0),
            limit: spec.guarantee.response_time.map(|rt| rt.limit),
            max_wait: spec.queue.max_wait,
            expected: view.classes[class].expected.guaranteed().unwrap_or(0.0),
            release_rate: self.rates[class][sub_queue],
        };
        too_long(self.figures, &outlook)
    }

    /// Returns whether one more request may be late, and takes it from the account.
    pub(super) fn takes_late(&mut self, class: ClassId) -> bool {
        self.late[class].take()
    }

    /// Learns from an answer.
    #[inline]
    pub(super) fn answered(&mut self, class: ClassId, response: Duration, guarantee: &Guarantee) {
        if let (Some(promised), Some(rate)) = (guarantee.response_time, guarantee.throughput) {
            self.late[class].answered(response, promised, rate);
        }
    }

    /// Records that requests have waited in a sub-queue since `since`.
    #[inline]
    pub(super) fn waits(&mut self, class: ClassId, sub_queue: usize, since: Time) {
        self.backlogged[class][sub_queue] = since;
    }

    #[inline]
    pub(super) fn released(&mut self, now: Time, class: ClassId, sub_queue: usize) {
        self.rates[class][sub_queue].released(now, self.figures.fresh);
    }

    /// The seconds of a limit that must be left at a release. `alone` says that no request of the class is in flight.
    #[inline]
    pub(super) fn left(&self, limit: Duration, expected: f64, alone: bool) -> f64 {
        // One request must pass, because otherwise the engine never learns that the class is fast again.
        if alone { 0.0 } else { left(self.figures, limit.as_secs_f64(), expected) }
    }
}

/// Returns the seconds of a limit that must be left at a release: the expected compute time, capped if it uses up the
/// limit, and a margin for its error.
fn left(figures: Figures, limit: f64, expected: f64) -> f64 {
    expected.min(figures.max_compute * limit) + (1.0 - figures.margin) * limit
}

/// The facts about a class that [`Predict`] needs at the arrival of a surplus request.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    /// Number of requests already waiting, at least one.
    waiting: u32,
    /// Age of the queue in nanoseconds.
    backlogged: u64,
    /// Guaranteed requests per second, 0 for none.
    guaranteed: f64,
    /// Limit of the response time, if there is one, and maximum wait.
    limit: Option<Duration>,
    max_wait: Duration,
    /// Expected compute time in seconds.
    expected: f64,
    /// The class's release rate, brought up to now.
    release_rate: ReleaseRate,
}

/// Returns the reason if a surplus request that arrives now would wait too long.
fn too_long(figures: Figures, outlook: &Outlook) -> Option<ShedReason> {
    let patience = outlook.limit.unwrap_or(outlook.max_wait).as_secs_f64();
    let young = outlook.backlogged < nanos(figures.young);
    if young && outlook.guaranteed == 0.0 {
        return None;
    }
    // A queue may be young only because the class has sent less until now.
    let known = outlook.release_rate.per_s;
    let rate = if young { known.max(outlook.guaranteed) } else { known };
    // At least one request could be released in the time that the queue has existed.
    let rate = rate.max(1e9 / outlook.backlogged.max(1) as f64);
    let wait = f64::from(outlook.waiting) / rate.max(1e-9);
    let expected = if outlook.limit.is_some() { outlook.expected } else { 0.0 };
    let hard = patience - left(figures, patience, expected);
    let soft = (figures.soft_share * patience).max(figures.soft_min.as_secs_f64());
    if wait > soft && soft < hard {
        return Some(ShedReason::Overload);
    }
    (wait > hard).then_some(ShedReason::Deadline)
}

/// The release rate of a class.
#[derive(Clone, Copy, Debug)]
struct ReleaseRate {
    period: u64,
    count: u32,
    /// Average over the last few tenths of a second.
    per_s: f64,
}

impl ReleaseRate {
    /// Nanoseconds of a period: short compared with any limit worth a prediction.
    const PERIOD: u64 = 100_000_000;

    const NONE: ReleaseRate = ReleaseRate { period: 0, count: 0, per_s: 0.0 };

    /// Brings the rate up to `now`.
    fn roll(&mut self, now: Time, fresh: f64) {
        let period = now.as_nanos() / ReleaseRate::PERIOD;
        let passed = period.saturating_sub(self.period);
        if passed == 0 {
            return;
        }
        self.period = period;
        let rate = f64::from(core::mem::take(&mut self.count)) * (1e9 / ReleaseRate::PERIOD as f64);
        let empty = (passed - 1).min(10_000) as i32;
        self.per_s = (self.per_s + fresh * (rate - self.per_s)) * (1.0 - fresh).powi(empty);
    }

    /// Counts a release.
    fn released(&mut self, now: Time, fresh: f64) {
        self.roll(now, fresh);
        self.count += 1;
    }
}
