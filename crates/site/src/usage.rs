//! Between an engine and its member: the use of windows as messages tell it, and shares as the engine takes them.

use core::time::Duration;

use weirgate_engine::{Beside, WindowUse};

use crate::message::{GroupShare, GroupUse, MILLIONTHS};

/// Weight of the latest look in the averages: with looks every 25 ms they are those of the last eighth of a second, and
/// so is the delay. Numbers in flight and answers are averaged alike, so that both belong to the same time.
const LATEST: f64 = 0.2;

/// Averages of one window.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    in_flight: f64,
    owed: f64,
    waiting: f64,
    claiming: f64,
    answers: f64,
    work: f64,
    /// Counts at the last look.
    counted: [f64; 2],
}

/// The use of all windows of an engine, averaged over some looks.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    all: Vec<Average>,
}

/// An amount in thousandths.
fn thousandths(amount: f64) -> u32 {
    (1e3 * amount) as u32
}

impl Usage {
    /// Notes a look at an engine, `passed` after the one before. Returns the use to report.
    pub fn note(&mut self, uses: &[WindowUse], passed: Duration) -> Vec<GroupUse> {
        if self.all.len() != uses.len() {
            let counted = |used: &WindowUse| Average { counted: [used.answers, used.work], ..Average::default() };
            self.all = uses.iter().map(counted).collect();
        }
        let seconds = passed.as_secs_f64().max(1e-3);
        let note = |(average, used): (&mut Average, &WindowUse)| {
            let [answers, work] = [used.answers - average.counted[0], used.work - average.counted[1]];
            average.counted = [used.answers, used.work];
            let latest = [
                (&mut average.in_flight, f64::from(used.in_flight)),
                (&mut average.owed, f64::from(used.owed)),
                (&mut average.waiting, f64::from(used.waiting)),
                (&mut average.claiming, f64::from(used.claiming)),
                // Below zero if another policy has begun new counts.
                (&mut average.answers, answers.max(0.0) / seconds),
                (&mut average.work, work.max(0.0) / seconds),
            ];
            latest.into_iter().for_each(|(mean, new)| *mean += LATEST * (new - *mean));
            GroupUse {
                base: thousandths(used.base),
                least: thousandths(used.least),
                in_flight: thousandths(average.in_flight),
                owed: thousandths(average.owed),
                waiting: thousandths(average.waiting),
                claiming: thousandths(average.claiming),
                answers: thousandths(average.answers),
                work: thousandths(average.work),
            }
        };
        self.all.iter_mut().zip(uses).map(note).collect()
    }
}

impl GroupShare {
    /// The share as the engine takes it.
    pub fn beside(&self) -> Beside {
        let [in_flight, answers_per_s, work_per_s] =
            [self.others, self.answers, self.work].map(|amount| f64::from(amount) / 1e3);
        let [part, factor] = [self.part, self.factor].map(|amount| f64::from(amount) / MILLIONTHS as f64);
        Beside { in_flight, work_per_s, answers_per_s, high: self.high, part, factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_use_is_told_as_it_is_and_new_counts_are_no_answers() {
        let mut usage = Usage::default();
        let used = |answers| WindowUse {
            base: 7.5,
            least: 1.0,
            in_flight: 9,
            owed: 2,
            waiting: 5,
            claiming: 3,
            work: answers / 100.0,
            answers,
        };
        let mut told = Vec::new();
        for look in 0..200 {
            told = usage.note(&[used(f64::from(look))], Duration::from_millis(25));
        }
        let expected = GroupUse {
            base: 7_500,
            least: 1_000,
            in_flight: 9_000,
            owed: 2_000,
            waiting: 5_000,
            claiming: 3_000,
            answers: 40_000,
            work: 400,
        };
        let near = |told: u32, expected: u32| told.abs_diff(expected) <= 1;
        assert!(near(told[0].answers, expected.answers) && near(told[0].work, expected.work), "{told:?}");
        assert!(
            near(told[0].in_flight, 9_000)
                && near(told[0].owed, 2_000)
                && near(told[0].waiting, 5_000)
                && near(told[0].claiming, 3_000),
            "{told:?}"
        );
        assert!(usage.note(&[used(0.0)], Duration::from_millis(25))[0].answers < expected.answers);
    }
}
