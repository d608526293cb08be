//! When a certificate is ordered: a state machine without clock and I/O.
//!
//! Sources: RFC 8555 (ACME), RFC 9773 (renewal information). A certificate is renewed after about two thirds of its
//! lifetime, as authorities recommend for lifetimes of 90 days, or within the window that the authority suggests. The
//! time within the last thirtieth before, or within the window, is random, so that the certificates of many gateways do
//! not load the authority at once. After a failure the next attempt waits twice as long as the one before.

use std::time::{Duration, SystemTime};

/// Wait after a first failure. A listener or a name server that has just been set up is often ready by then.
const FIRST_RETRY: Duration = Duration::from_secs(60);

/// Longest wait after failures. A certificate for 6 days has 2 days left when it is renewed, which is 8 attempts.
const MAX_RETRY: Duration = Duration::from_secs(6 * 3600);

/// Share of the lifetime after which a certificate is renewed.
const RENEW_AT: f64 = 2.0 / 3.0;

/// Share of the lifetime by which renewals are spread.
const SPREAD: f64 = 1.0 / 30.0;

/// Share of the lifetime after which no window can postpone the renewal.
const RENEW_BY: f64 = 0.95;

/// Bounds of the time until the authority is asked for its window again (RFC 9773 Sec. 4.3.2).
const ASK_WITHIN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(86_400));

/// Time until it is asked again if it gave no answer. The RFC suggests the same time after answers.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(6 * 3600);

/// The time of a certificate's validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: SystemTime,
    pub(crate) to: SystemTime,
}

/// The next thing to do for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Order it.
    Order,
    /// Ask the authority when it should be renewed.
    AskWindow,
}

/// The state of one certificate. `random` is a number from 0 to less than 1 everywhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Validity of the present certificate. `None` if there is none for all names.
    pub(crate) present: Option<Validity>,
    /// When it is renewed if nothing fails.
    renewal: SystemTime,
    /// The window that the authority has suggested.
    window: Option<(SystemTime, SystemTime)>,
    /// When the authority is asked for it.
    ask: SystemTime,
    /// Number of failed attempts since the last certificate.
    pub(crate) failures: u32,
    /// No attempt before.
    retry: SystemTime,
}

impl Schedule {
    /// Creates the state of a certificate, which may be there.
    pub(crate) fn new(present: Option<Validity>, now: SystemTime, random: f64) -> Schedule {
        let renewal = present.map_or(now, |validity| validity.renewal(random));
        Schedule { present, renewal, window: None, ask: now, failures: 0, retry: now }
    }

    /// Returns the time of the next order.
    pub(crate) fn order(&self) -> SystemTime {
        self.renewal.max(self.retry)
    }

    /// Returns the next task and its time.
    pub(crate) fn next(&self) -> (SystemTime, Task) {
        let order = self.order();
        match self.present {
            Some(_) if self.ask < order => (self.ask, Task::AskWindow),
            _ => (order, Task::Order),
        }
    }

    /// Notes a new certificate.
    pub(crate) fn issued(&mut self, validity: Validity, now: SystemTime, random: f64) {
        *self = Schedule::new(Some(validity), now, random);
        if self.renewal <= now {
            // Its authority issues certificates that are nearly over, or one of the clocks is wrong.
            self.retry = now + MAX_RETRY;
        }
    }

    /// Notes a failed attempt. `after` is the time that the authority wants to be left alone.
    pub(crate) fn failed(&mut self, after: Option<Duration>, now: SystemTime, random: f64) {
        let wait = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(MAX_RETRY);
        // Up to a quarter longer.
        let wait = wait.mul_f64(1.0 + random / 4.0);
        self.failures = self.failures.saturating_add(1);
        self.retry = now + wait.max(after.unwrap_or_default().min(ASK_WITHIN.1));
    }

    /// Lets another process order the certificate first.
    pub(crate) fn postpone(&mut self, until: SystemTime) {
        self.retry = self.retry.max(until);
    }

    /// Notes the window that the authority suggests, or that it has none. It is asked again after `again`.
    pub(crate) fn suggested(
        &mut self,
        window: Option<(SystemTime, SystemTime)>,
        again: Duration,
        now: SystemTime,
        random: f64,
    ) {
        self.ask = now + again.clamp(ASK_WITHIN.0, ASK_WITHIN.1);
        let sound = window.filter(|(from, to)| from < to);
        if let Some((from, to)) = sound
            && sound != self.window
        {
            let span = to.duration_since(from).unwrap_or_default();
            let last = self.present.map_or(now, |present| present.at(RENEW_BY));
            self.renewal = (from + span.mul_f64(random)).min(last);
            self.window = sound;
        }
    }
}

impl Validity {
    fn renewal(self, random: f64) -> SystemTime {
        self.at(RENEW_AT - SPREAD * random)
    }

    /// Returns the time after this share of it.
    fn at(self, share: f64) -> SystemTime {
        self.from + self.to.duration_since(self.from).unwrap_or_default().mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// An authority in virtual time. Orders fail while it is out of order.
    struct Authority {
        lifetime: Duration,
        out: Vec<(SystemTime, SystemTime)>,
        orders: Vec<SystemTime>,
        window: Option<(SystemTime, SystemTime)>,
    }

    impl Authority {
        fn order(&mut self, now: SystemTime) -> Option<Validity> {
            self.orders.push(now);
            let out = self.out.iter().any(|(from, to)| (*from..*to).contains(&now));
            (!out).then(|| Validity { from: now, to: now + self.lifetime })
        }
    }

    /// A fixed sequence of random numbers.
    fn random(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Plays `span` from `start`. Returns the longest time without a valid certificate after the first one.
    fn play(authority: &mut Authority, start: SystemTime, span: Duration, seed: u64) -> Duration {
        let mut numbers = seed;
        let mut now = start;
        let mut schedule = Schedule::new(None, now, random(&mut numbers));
        let mut without = Duration::ZERO;
        while now < start + span {
            let (at, task) = schedule.next();
            assert!(at >= now || task == Task::Order && schedule.failures == 0, "time runs backwards");
            now = now.max(at);
            match task {
                Task::AskWindow => schedule.suggested(authority.window.take(), ASK_EVERY, now, random(&mut numbers)),
                Task::Order => match authority.order(now) {
                    Some(validity) => {
                        let before = schedule.present.map_or(now, |present| present.to);
                        without = without.max(now.duration_since(before).unwrap_or_default());
                        schedule.issued(validity, now, random(&mut numbers));
                    }
                    None => schedule.failed(None, now, random(&mut numbers)),
                },
            }
        }
        without
    }

    #[test]
    fn two_years_need_few_orders_and_survive_outages() {
        let start = UNIX_EPOCH + 20_000 * DAY;
        for seed in 0..50 {
            for (lifetime, outage, most) in [(90 * DAY, 20 * DAY, 13 + 100), (6 * DAY, DAY, 200 + 100)] {
                let out = (1..7).map(|n| (start + n * 100 * DAY, start + n * 100 * DAY + outage)).collect();
                let mut authority = Authority { lifetime, out, orders: Vec::new(), window: None };
                let without = play(&mut authority, start, 730 * DAY, seed);
                assert_eq!(without, Duration::ZERO, "seed {seed}");
                // An outage of 20 days has at most 4 attempts a day, and a few in the first hours.
                let most = most + 6 * (outage.as_secs() / MAX_RETRY.as_secs() + 10);
                assert!(authority.orders.len() as u64 <= most, "{} orders", authority.orders.len());
                for pair in authority.orders.windows(2) {
                    assert!(pair[1].duration_since(pair[0]).unwrap_or_default() >= FIRST_RETRY);
                }
            }
        }
    }

    #[test]
    fn renewals_are_spread_before_two_thirds_of_the_lifetime() {
        let now = UNIX_EPOCH + 20_000 * DAY;
        let validity = Validity { from: now, to: now + 90 * DAY };
        let at = |random| {
            let mut schedule = Schedule::new(Some(validity), now, random);
            schedule.suggested(None, 1000 * DAY, now, 0.0);
            schedule.ask = now + 1000 * DAY;
            schedule.next()
        };
        assert_eq!(at(0.0).1, Task::Order);
        let days = |random: f64| at(random).0.duration_since(now).expect("later").as_secs_f64() / 86_400.0;
        assert!((days(0.0) - 60.0).abs() < 0.01 && (days(0.999) - 57.0).abs() < 0.01);
    }

    #[test]
    fn the_window_of_the_authority_counts() {
        let now = UNIX_EPOCH + 20_000 * DAY;
        let mut schedule = Schedule::new(Some(Validity { from: now, to: now + 90 * DAY }), now, 0.0);
        assert_eq!(schedule.next(), (now, Task::AskWindow));
        schedule.suggested(Some((now + DAY, now + 3 * DAY)), ASK_EVERY, now, 0.5);
        assert_eq!(schedule.next(), (now + ASK_EVERY, Task::AskWindow));
        // The same window draws no other time. A window in the past, as after a mass revocation, means at once.
        schedule.suggested(Some((now + DAY, now + 3 * DAY)), 10 * DAY, now, 0.9);
        assert_eq!((schedule.renewal, schedule.ask), (now + 2 * DAY, now + DAY));
        schedule.suggested(Some((now - 2 * DAY, now - DAY)), ASK_EVERY, now, 0.5);
        assert_eq!(schedule.next(), (now, Task::Order));
        // A window without a length is none.
        let before = schedule.clone();
        schedule.suggested(Some((now, now)), ASK_EVERY, now, 0.5);
        assert_eq!(schedule, before);
    }

    #[test]
    fn attempts_wait_twice_as_long_up_to_six_hours_or_as_long_as_the_authority_says() {
        let now = UNIX_EPOCH + 20_000 * DAY;
        let mut schedule = Schedule::new(None, now, 0.0);
        let mut waits = Vec::new();
        for _ in 0..12 {
            schedule.failed(None, now, 0.0);
            waits.push(schedule.next().0.duration_since(now).expect("later").as_secs() / 60);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360, 360]);
        schedule.failed(Some(10 * Duration::from_secs(3600)), now, 0.0);
        assert_eq!(schedule.next(), (now + 10 * Duration::from_secs(3600), Task::Order));
        // No authority can stop all attempts.
        schedule.failed(Some(1000 * DAY), now, 0.0);
        assert_eq!(schedule.next().0, now + DAY);
    }

    #[test]
    fn a_certificate_that_is_nearly_over_is_not_ordered_in_a_circle() {
        let now = UNIX_EPOCH + 20_000 * DAY;
        let mut schedule = Schedule::new(None, now, 0.0);
        schedule.issued(Validity { from: now - 89 * DAY, to: now + DAY }, now, 0.0);
        schedule.suggested(None, DAY, now, 0.0);
        assert_eq!(schedule.next(), (now + MAX_RETRY, Task::Order));
    }
}
