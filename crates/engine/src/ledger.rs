//! Account of one class over a sliding window: whether its guaranteed throughput is held.
//!
//! An arrival is *owed* an answer if it takes a token from a bucket that fills at the guaranteed rate and
//! holds the burst of one second. The judge of simulated runs uses the same rule. The guarantee is held if
//! 99 % of the owed requests are served, by one of two counts, again as in the judge:
//! - The first count covers requests that arrived in the window and have had their time, and their answers.
//!   It is exact if answers come in time, however requests arrive.
//! - The second count covers all answers given in the window. It is fair to a class with late answers,
//!   because that class gets the promised throughput.
//!
//! A request that waits or is in flight for too long counts as not served. A request that its client cancels
//! within the limit is neither owed nor served.
//!
//! Departure from the judge: the judge knows how each request ended, and here some requests are still under
//! way. Such a request counts as not served after the patience of [`Terms`], or after twice that time if
//! there are so few of them that chance may explain it.

use core::time::Duration;

use crate::policy::{Guarantee, Statistic};
use crate::scheduler::Bucket;
use crate::time::{Time, nanos};

/// Slots of the window. A request is judged at most a fortieth of the window late.
const SLOTS: usize = 40;
/// Shortest length of a slot in nanoseconds. Forty of them make the ten-second window of `observed`.
const SLOT: u64 = 250_000_000;
/// Share of owed requests that must be served. The judge uses the same value.
const ENOUGH: f64 = 0.99;
/// A statistic can hold although single requests exceed its limit. With exponential times, one in four
/// hundred exceeds six means, and also twice the 95th percentile. That is less than [`ENOUGH`] allows.
const MEANS: u32 = 6;
const PERCENTILES: u32 = 2;
/// Maximum number of missing answers that may be chance, whatever their share, until twice the patience has
/// passed.
const LATE: u32 = 2;
/// Minimum limit of a request without a guaranteed response time. One second is not slow for a page.
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Span of recent arrivals in nanoseconds: the window over which the judge evaluates the reaction.
const LATELY: u64 = 2_000_000_000;
/// Number of requests beyond the guarantee that may be chance, and the divisor for their share. A bucket of
/// one token misses some requests of a class that sends less than its rate at random times.
const LUCK: (u32, u32) = (2, 10);

/// The figures by which a class is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Response time limit of the class. Without a guaranteed one: [`MEANS`] service times, but at least a
    /// [`SECOND`].
    pub(crate) limit: Duration,
    /// Time that a request may wait and be in flight before it counts as not served.
    patience: Duration,
    /// Length of a slot in nanoseconds.
    length: u64,
}

impl Terms {
    /// `service` is the declared or learned service time in seconds.
    pub(crate) fn of(guarantee: &Guarantee, service: Option<f64>) -> Terms {
        let (limit, patience) = match guarantee.response_time {
            Some(rt) if matches!(rt.statistic, Statistic::Percentile(_)) => {
                (rt.limit, rt.limit.saturating_mul(PERCENTILES))
            }
            Some(rt) => (rt.limit, rt.limit.saturating_mul(MEANS)),
            None => {
                let service = service.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or_default();
                let limit = service.saturating_mul(MEANS).max(SECOND);
                (limit, limit)
            }
        };
        // At least a third of the window must be older than twice the patience.
        let window = nanos(patience).saturating_mul(3);
        // Powers of two, so that a service time that is still being learned rarely changes the length.
        let slots = window.div_ceil(SLOT * SLOTS as u64).clamp(1, 1 << 16).next_power_of_two();
        Terms { limit, patience, length: SLOT * slots }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Counts of the requests that arrived in this slot.
    offered: u32,
    owed: u32,
    answered: u32,
    /// Answers that were given in this slot.
    ended: u32,
}

/// Requests that a class was owed, and the answers it was given.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    arrivals: Bucket,
    length: u64,
    /// The first slot ever counted in, and the newest one.
    first: u64,
    newest: u64,
    slots: [Slot; SLOTS],
}

impl Ledger {
    pub(crate) fn new(now: Time, terms: Terms) -> Ledger {
        let slot = now.as_nanos() / terms.length;
        let arrivals = Bucket::new(now);
        Ledger { arrivals, length: terms.length, first: slot, newest: slot, slots: [Slot::default(); SLOTS] }
    }

    /// Whether the ledger was made with the slot length of `terms`.
    pub(crate) fn suits(&self, terms: Terms) -> bool {
        self.length == terms.length
    }

    fn slot(&mut self, at: u64) -> &mut Slot {
        &mut self.slots[(at % SLOTS as u64) as usize]
    }

    /// Empties the slots that have left the window and returns the slot of `now`.
    fn current(&mut self, now: Time) -> &mut Slot {
        let slot = now.as_nanos() / self.length;
        let passed = slot.saturating_sub(self.newest).min(SLOTS as u64);
        for n in 0..passed {
            *self.slot(slot - n) = Slot::default();
        }
        self.newest = self.newest.max(slot);
        self.slot(self.newest)
    }

    /// The slot in which a request arrived, if it is in the window.
    fn of(&mut self, arrived: Time) -> Option<&mut Slot> {
        let at = arrived.as_nanos() / self.length;
        let known = at >= self.first && at <= self.newest && at + SLOTS as u64 > self.newest;
        known.then(|| self.slot(at))
    }

    /// Counts an arrival and returns whether it is owed an answer.
    pub(crate) fn offered(&mut self, now: Time, rate: f64) -> bool {
        let owed = self.arrivals.level(now, rate) >= 1.0;
        if owed {
            self.arrivals.take(now, rate, 1.0, 0.0);
        }
        let slot = self.current(now);
        slot.offered += 1;
        slot.owed += u32::from(owed);
        owed
    }

    /// The guaranteed rate changes from the first to the second one.
    pub(crate) fn rate_changes(&mut self, now: Time, rates: (f64, f64)) {
        self.arrivals.rate_changes(now, rates);
    }

    /// Counts a good answer to a request that arrived at `arrived`.
    pub(crate) fn answered(&mut self, now: Time, arrived: Time) {
        self.current(now).ended += 1;
        if let Some(slot) = self.of(arrived) {
            slot.answered += 1;
        }
    }

    /// Counts an owed request that its client cancelled within its limit.
    pub(crate) fn left(&mut self, now: Time, arrived: Time) {
        self.current(now);
        if let Some(slot) = self.of(arrived) {
            slot.owed = slot.owed.saturating_sub(1);
        }
    }

    /// The slots of the window that ends at `now`, each with its number.
    fn window(&self, now: Time) -> impl Iterator<Item = (u64, &Slot)> {
        let end = now.as_nanos() / self.length;
        let begin = end.saturating_sub(SLOTS as u64 - 1).max(self.first);
        (begin..=end.min(self.newest)).map(|at| (at, &self.slots[(at % SLOTS as u64) as usize]))
    }

    /// Whether the guarantee is held over the window that ends at `now`.
    pub(crate) fn is_held(&self, now: Time, terms: Terms) -> bool {
        let (mut owed, mut ended) = (0, 0);
        for (_, slot) in self.window(now) {
            owed += slot.owed;
            ended += slot.ended;
        }
        let patience = nanos(terms.patience);
        is_enough(ended, owed) || self.lacks(now, patience) <= LATE && self.lacks(now, patience.saturating_mul(2)) == 0
    }

    /// Number of missing answers to requests that arrived in the window at least `ago` nanoseconds ago.
    fn lacks(&self, now: Time, ago: u64) -> u32 {
        let judged = now.as_nanos().saturating_sub(ago) / self.length;
        let (mut owed, mut answered) = (0u32, 0u32);
        for (_, slot) in self.window(now).filter(|(at, _)| *at < judged) {
            owed += slot.owed;
            answered += slot.answered;
        }
        if is_enough(answered, owed) { 0 } else { owed - answered }
    }

    /// Whether the class has recently sent no more than its guarantee.
    pub(crate) fn asks_within(&self, now: Time) -> bool {
        let from = now.as_nanos().saturating_sub(LATELY) / self.length;
        let lately = self.window(now).filter(|(at, _)| *at >= from);
        let (offered, owed) = lately.fold((0, 0), |(all, owed), (_, slot)| (all + slot.offered, owed + slot.owed));
        offered.saturating_sub(owed) <= LUCK.0.max(offered / LUCK.1)
    }
}

fn is_enough(served: u32, owed: u32) -> bool {
    f64::from(served) >= ENOUGH * f64::from(owed)
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
