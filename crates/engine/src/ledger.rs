//! Is a guaranteed throughput held? The account of one class, over a sliding window.
//!
//! An arrival is *owed* an answer if it takes a token from a bucket that fills at the guaranteed rate and holds a burst
//! of a second. That is the rule of the judge of simulated runs. The guarantee is held if 99 % of what is owed is
//! served, by one of two counts, as there: the answers to what arrived in the window and has had its time, or the
//! answers that were given in the window. The first is exact where answers come in time, however requests arrive. The
//! second is fair to a class whose answers always come late: its throughput is what it was promised. A request that
//! waits or is in flight for too long counts as not served. A request whose client leaves within its limit is neither
//! owed nor served.
//!
//! Departure from the judge: the judge knows how each request ended, and here some have not. So what is under way has
//! the patience of [`Terms`] before it counts as not served, and twice as long where it is so few that it may be luck.

use core::time::Duration;

use crate::policy::{Guarantee, Statistic};
use crate::scheduler::Bucket;
use crate::time::{Time, nanos};

/// Slots of the window. So a request is judged a fortieth of the window late at most.
const SLOTS: usize = 40;
/// Shortest length of a slot in nanoseconds: forty make the ten seconds of the window of `observed`.
const SLOT: u64 = 250_000_000;
/// Share of what is owed that must be served: the judge's.
const ENOUGH: f64 = 0.99;
/// A statistic holds although single requests take longer than its limit. Of exponential times one in four hundred is
/// beyond six means, and beyond twice the 95th percentile: less than [`ENOUGH`] allows.
const MEANS: u32 = 6;
const PERCENTILES: u32 = 2;
/// Requests under way that are luck, whatever their share: for twice the patience.
const LATE: u32 = 2;
/// What a request without a limit has at least: a second is not slow for a page.
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// What a class sent lately, in nanoseconds: the window in which the judge looks at the reaction.
const LATELY: u64 = 2_000_000_000;
/// Requests beyond the guarantee that are luck, and their share: a bucket of one token misses some of a class that
/// sends less than its rate at random times.
const LUCK: (u32, u32) = (2, 10);

/// By which figures a class is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The limit of its response time. Without one [`MEANS`] service times, but at least a [`SECOND`].
    pub(crate) limit: Duration,
    /// How long a request may wait and be in flight before it counts as not served.
    patience: Duration,
    /// Nanoseconds of a slot.
    length: u64,
}

impl Terms {
    /// `service` is the agreed or learned service time in seconds.
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
        // A third of the window or more has been given twice the patience.
        let window = nanos(patience).saturating_mul(3);
        // Powers of two, so that a service time that is still being learned hardly ever changes it.
        let slots = window.div_ceil(SLOT * SLOTS as u64).clamp(1, 1 << 16).next_power_of_two();
        Terms { limit, patience, length: SLOT * slots }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Of what arrived in it.
    offered: u32,
    owed: u32,
    answered: u32,
    /// Answers that were given in it.
    ended: u32,
}

/// What a class was owed and given.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    arrivals: Bucket,
    length: u64,
    /// The slots that it has counted in: the first ever, and the newest.
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

    /// Was it made for such slots?
    pub(crate) fn suits(&self, terms: Terms) -> bool {
        self.length == terms.length
    }

    fn slot(&mut self, at: u64) -> &mut Slot {
        &mut self.slots[(at % SLOTS as u64) as usize]
    }

    /// The slot of `now`, after emptying those that the window has left.
    fn current(&mut self, now: Time) -> &mut Slot {
        let slot = now.as_nanos() / self.length;
        let passed = slot.saturating_sub(self.newest).min(SLOTS as u64);
        for n in 0..passed {
            *self.slot(slot - n) = Slot::default();
        }
        self.newest = self.newest.max(slot);
        self.slot(self.newest)
    }

    /// The slot in which a request arrived, if that is in the window.
    fn of(&mut self, arrived: Time) -> Option<&mut Slot> {
        let at = arrived.as_nanos() / self.length;
        let known = at >= self.first && at <= self.newest && at + SLOTS as u64 > self.newest;
        known.then(|| self.slot(at))
    }

    /// An arrival. Is it owed an answer?
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

    /// A good answer to what arrived then.
    pub(crate) fn answered(&mut self, now: Time, arrived: Time) {
        self.current(now).ended += 1;
        if let Some(slot) = self.of(arrived) {
            slot.answered += 1;
        }
    }

    /// The client left a request that was owed, before its limit was over.
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

    /// Is the guarantee held over the window that ends at `now`?
    pub(crate) fn is_held(&self, now: Time, terms: Terms) -> bool {
        let (mut owed, mut ended) = (0, 0);
        for (_, slot) in self.window(now) {
            owed += slot.owed;
            ended += slot.ended;
        }
        let patience = nanos(terms.patience);
        is_enough(ended, owed) || self.lacks(now, patience) <= LATE && self.lacks(now, patience.saturating_mul(2)) == 0
    }

    /// How many answers are missing to what arrived in the window, so long ago or longer.
    fn lacks(&self, now: Time, ago: u64) -> u32 {
        let judged = now.as_nanos().saturating_sub(ago) / self.length;
        let (mut owed, mut answered) = (0u32, 0u32);
        for (_, slot) in self.window(now).filter(|(at, _)| *at < judged) {
            owed += slot.owed;
            answered += slot.answered;
        }
        if is_enough(answered, owed) { 0 } else { owed - answered }
    }

    /// Does the class ask for no more than it is guaranteed, lately?
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
