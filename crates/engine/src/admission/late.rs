//! The account of late answers of a class: how many its guaranteed statistic still allows.
//!
//! Source: our own. A percentile p allows a part 1 − p of the answers to be late: an answer in time earns 1 − p, and a
//! late one costs 1. A mean allows as much lateness as other answers were early: an answer earns or costs the part by
//! which it is early or late, and 1 is the longest lateness. A class that is late anyway, because it is overloaded or
//! its requests have become expensive, has an empty account. So the account serves disturbances, and no class rides at
//! its limit.

use core::time::Duration;

use crate::policy::{ResponseTime, Statistic};

/// Seconds of answers, at the guaranteed rate, that an account remembers. A statistic is looked at over ten seconds or
/// longer, and a disturbance at the end of a calm hour must not spend all that the hour has earned. With 20, the
/// statistic of ten seconds was missed where some answers are late anyway.
const MEMORY: f64 = 5.0;

/// Limits after its arrival at which a late request is refused. Four are enough for the queue that a pause of one limit
/// leaves at a load of three quarters, and clients rarely wait longer.
pub(crate) const PATIENCE: u32 = 4;

/// Late answers that the statistic of a class still allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LateAnswers(f64);

impl LateAnswers {
    /// Nothing has been earned.
    pub(super) const NONE: LateAnswers = LateAnswers(0.0);

    /// Learns from an answer of a class with a guaranteed `rate` a second.
    #[inline]
    pub(super) fn answered(&mut self, response: Duration, promised: ResponseTime, rate: f64) {
        let (earned, each) = match promised.statistic {
            Statistic::Average => {
                let longest = f64::from(PATIENCE - 1);
                let early = 1.0 - response.as_secs_f64() / promised.limit.as_secs_f64().max(1e-9);
                (early / longest, 1.0 / longest)
            }
            Statistic::Percentile(percent) => {
                let each = 1.0 - percent / 100.0;
                (if response <= promised.limit { each } else { -1.0 }, each)
            }
        };
        let max = each * rate * MEMORY;
        self.0 = (self.0 + earned).clamp(-max, max);
    }

    /// Takes one more answer, which will be late, from the account if it is there. The answer itself costs as much
    /// again or more, so that the account lasts for half of what the statistic allows.
    pub(super) fn take(&mut self) -> bool {
        let has = self.0 >= 1.0;
        self.0 -= if has { 1.0 } else { 0.0 };
        has
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn promised(statistic: Statistic) -> ResponseTime {
        ResponseTime { statistic, limit: Duration::from_millis(100) }
    }

    proptest! {
        /// Whatever the order of answers, the statistic over all of them holds if only requests of the account are
        /// late.
        #[test]
        fn the_statistic_holds_over_all_answers(
            percent in prop::option::of(50.0..99.9_f64),
            steps in prop::collection::vec((0.0..1.0_f64, 0..4_u32), 1..400),
        ) {
            let statistic = percent.map_or(Statistic::Average, Statistic::Percentile);
            let (mut account, mut times) = (LateAnswers::NONE, Vec::new());
            for (part, wish) in steps {
                let late = wish == 0 && account.take();
                let ms = if late { 100.0 + 300.0 * part } else { 100.0 * part };
                times.push(ms);
                account.answered(Duration::from_secs_f64(ms / 1e3), promised(statistic), 1e3);
            }
            let late = times.iter().filter(|ms| **ms > 100.0).count() as f64;
            match percent {
                Some(percent) => {
                    let allowed = (1.0 - percent / 100.0) * times.len() as f64;
                    prop_assert!(late <= allowed + 1e-6 && 2.0 * late <= allowed + 1.0 + 1e-6, "{late} of {allowed}");
                }
                None => prop_assert!(times.iter().sum::<f64>() <= 100.0 * times.len() as f64 + 1e-6),
            }
        }
    }

    #[test]
    fn a_class_that_is_late_anyway_has_nothing_to_spend_for_a_while() {
        let p95 = promised(Statistic::Percentile(95.0));
        let [early, late] = [10, 200].map(Duration::from_millis);
        let mut account = LateAnswers::NONE;
        (0..100_000).for_each(|_| account.answered(early, p95, 100.0));
        let taken = (0..1000).filter(|_| account.take()).count();
        assert!((24..=25).contains(&taken), "a twentieth of 5 s at 100/s: {taken}");
        (0..100_000).for_each(|_| account.answered(late, p95, 100.0));
        (0..490).for_each(|_| account.answered(early, p95, 100.0));
        assert!(!account.take(), "it forgets in 5 s");
        (0..40).for_each(|_| account.answered(early, p95, 100.0));
        assert!(account.take());
    }

    #[test]
    fn without_a_rate_nothing_is_owed_and_nothing_earned() {
        let mut account = LateAnswers::NONE;
        (0..1000).for_each(|_| account.answered(Duration::ZERO, promised(Statistic::Average), 0.0));
        assert!(!account.take());
    }
}
