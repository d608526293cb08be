//! The classes with series of their own, and the sum of the others.
//!
//! A page with every one of ten thousand classes has 37 MB, and Prometheus would keep a million series. So at most
//! [`MAX_SHOWN`] classes are shown, those with the most requests, and the others are counted together as [`OTHER`].
//!
//! No counter may go backwards when a class becomes shown or stops being shown, and a request may count in one series
//! only, so that sums over the classes are right. Every counter of a class is therefore divided into two parts that
//! only grow: the part in its own series, and the part in the series of the others. While a class is shown its own part
//! grows, and otherwise the other part does. One of the parts is kept as [`Mark::counts`], and the other one is the
//! class's total minus that. A class that becomes shown thus starts at zero, or where it stopped before.
//!
//! A shown class gives way only to a class with more than twice as many requests. A change therefore needs twice the
//! requests of the one before it, and there are few.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::bounds::Move;
use super::tally::{Counts, Tally};

/// Maximum number of classes with series of their own. Each has about 60 series in 3.7 KB, so all together fit one
/// page of 0.8 MB.
pub const MAX_SHOWN: usize = 200;

/// Name of the classes without series of their own. No class of a policy can have it.
pub(crate) const OTHER: &str = "(other)";

/// Name of requests without a class. It is always shown.
pub(super) const UNCLASSIFIED: &str = "-";

/// Classes with their counters.
pub(super) type Tallies = Vec<(Arc<str>, Arc<Tally>)>;

/// The classes that have been on a page.
#[derive(Debug, Default)]
pub(super) struct Shown {
    marks: BTreeMap<Arc<str>, Mark>,
    /// The counts of removed classes that were part of the others.
    gone: Counts,
}

/// The division of a class's counters.
#[derive(Debug, Default)]
struct Mark {
    shown: bool,
    /// The part that does not grow now, unless it is zero: that of the others while the class is shown, and its own
    /// while it is not.
    counts: Option<Box<Counts>>,
}

impl Mark {
    /// Shows a hidden class, or hides a shown one.
    fn flip(&mut self, total: &Counts) {
        self.counts = Some(Box::new(self.growing(total)));
        self.shown = !self.shown;
    }

    fn growing(&self, total: &Counts) -> Counts {
        self.counts.as_ref().map_or_else(|| total.clone(), |counts| total.minus(counts))
    }

    /// Returns the part of the others, unless it is zero.
    fn of_others(&self, total: &Counts) -> Option<Counts> {
        if self.shown { self.counts.as_deref().cloned() } else { Some(self.growing(total)) }
    }
}

impl Shown {
    /// Chooses the classes of a page. Returns their counts in the order of `tallies`, and those of the others last,
    /// if there are any.
    pub(super) fn page(&mut self, tallies: Tallies) -> Vec<(Arc<str>, Counts)> {
        let totals: Vec<(Arc<str>, Counts)> = tallies.into_iter().map(|(name, tally)| (name, tally.read())).collect();
        let chosen = self.choose(&totals);
        let mut others = self.gone.clone();
        let mut series = Vec::new();
        for ((name, total), show) in totals.into_iter().zip(&chosen) {
            // A class that has not been on a page has no part in the others.
            let new = || Mark { shown: *show, counts: None };
            let mark = self.marks.entry(Arc::clone(&name)).or_insert_with(new);
            if mark.shown != *show {
                mark.flip(&total);
            }
            if let Some(part) = mark.of_others(&total) {
                others = others.plus(&part);
            }
            if mark.shown {
                series.push((name, mark.growing(&total)));
            }
        }
        if others != Counts::default() || chosen.contains(&false) {
            series.push((OTHER.into(), others));
        }
        series
    }

    /// Returns for each class whether it is to be shown.
    fn choose(&self, totals: &[(Arc<str>, Counts)]) -> Vec<bool> {
        let classes = || (0..totals.len()).filter(|at| &*totals[*at].0 != UNCLASSIFIED);
        if classes().count() <= MAX_SHOWN {
            return vec![true; totals.len()];
        }
        let is_shown = |name: &Arc<str>| &**name == UNCLASSIFIED || self.marks.get(name).is_some_and(|mark| mark.shown);
        let mut show: Vec<bool> = totals.iter().map(|(name, _)| is_shown(name)).collect();
        let requests = |at: usize| totals[at].1.requests();
        let mut fewest: Vec<usize> = classes().filter(|at| show[*at]).collect();
        fewest.sort_by_key(|at| requests(*at));
        let mut most: Vec<usize> = classes().filter(|at| !show[*at] && requests(*at) > 0).collect();
        most.sort_by_key(|at| Reverse(requests(*at)));
        let mut most = most.into_iter();
        for at in most.by_ref().take(MAX_SHOWN.saturating_sub(fewest.len())) {
            show[at] = true;
        }
        for (shown, hidden) in fewest.into_iter().zip(most) {
            if requests(hidden) <= 2 * requests(shown) {
                break;
            }
            (show[shown], show[hidden]) = (false, true);
        }
        show
    }

    /// Moves counts of buckets to other ones, as the tallies do.
    pub(super) fn shift(&mut self, moves: &[Move]) {
        let marks = self.marks.values_mut().filter_map(|mark| mark.counts.as_deref_mut());
        marks.chain([&mut self.gone]).for_each(|counts| counts.shift(moves));
    }

    /// Forgets removed classes. Their part in the others stays there.
    pub(super) fn forget(&mut self, removed: &Tallies) {
        for (name, tally) in removed {
            if let Some(part) = self.marks.remove(name).and_then(|mark| mark.of_others(&tally.read())) {
                self.gone = self.gone.plus(&part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use proptest::prelude::*;

    use super::*;

    fn tallies(count: usize) -> Tallies {
        (0..count).map(|at| (format!("c{at:05}").into(), Arc::default())).collect()
    }

    fn count(tallies: &Tallies, at: usize, requests: u64) {
        let tally = &tallies[at].1;
        tally.requests[2].fetch_add(requests, Ordering::Relaxed);
        tally.response_time.buckets[3].fetch_add(requests, Ordering::Relaxed);
    }

    /// Requests of each series.
    fn requests(page: &[(Arc<str>, Counts)]) -> BTreeMap<Arc<str>, u64> {
        page.iter().map(|(name, counts)| (Arc::clone(name), counts.requests())).collect()
    }

    #[test]
    fn all_classes_are_shown_while_they_are_few() {
        let (all, mut shown) = (tallies(MAX_SHOWN), Shown::default());
        count(&all, 7, 3);
        let page = shown.page(all.clone());
        assert_eq!(page.len(), MAX_SHOWN);
        assert_eq!(requests(&page)["c00007"], 3);
    }

    #[test]
    fn the_busiest_are_shown_and_give_way_to_twice_as_many_requests() {
        let (all, mut shown) = (tallies(10_000), Shown::default());
        (0..10_000).for_each(|at| count(&all, at, at as u64));
        let page = requests(&shown.page(all.clone()));
        assert_eq!(page.len(), MAX_SHOWN + 1);
        assert_eq!((page.get("c09800"), page.get("c09799")), (Some(&9_800), None));
        let sum = 10_000 * 9_999 / 2;
        assert_eq!(page.values().sum::<u64>(), sum);
        count(&all, 5, 19_595);
        assert!(!requests(&shown.page(all.clone())).contains_key("c00005"), "19,600 are not more than twice 9,800");
        count(&all, 5, 1);
        let before = requests(&shown.page(all.clone()))[OTHER];
        count(&all, 5, 10);
        count(&all, 9_800, 20);
        let page = requests(&shown.page(all.clone()));
        assert_eq!((page["c00005"], page.get("c09800")), (10, None), "it starts at zero, and the least busy one ends");
        assert_eq!(page[OTHER], before + 20);
        count(&all, 9_800, 40_000);
        shown.page(all.clone());
        count(&all, 9_800, 1);
        assert_eq!(requests(&shown.page(all))["c09800"], 9_801, "it goes on where it stopped");
    }

    proptest! {
        /// Whatever is counted, shown, hidden, added and removed: no series goes backwards, and each request is counted
        /// in one series.
        #[test]
        fn no_counter_goes_backwards(
            sizes in prop::collection::vec(150usize..400, 1..6),
            steps in prop::collection::vec((0usize..400, 0u64..2_000), 1..120),
        ) {
            let mut shown = Shown::default();
            let mut all = tallies(sizes[0]);
            let mut last: BTreeMap<Arc<str>, u64> = BTreeMap::new();
            let mut added = 0;
            for (step, chunk) in steps.chunks(steps.len().div_ceil(sizes.len() * 4)).enumerate() {
                for (at, requests) in chunk {
                    count(&all, at % all.len(), *requests);
                    added += requests;
                }
                let page = shown.page(all.clone());
                let now = requests(&page);
                prop_assert!(page.len() <= MAX_SHOWN + 1);
                for (name, counts) in &page {
                    prop_assert_eq!(counts.response_time.buckets[3], counts.requests());
                    prop_assert!(last.get(name).is_none_or(|last| *last <= counts.requests()), "{} fell", name);
                }
                // A series that has ended keeps its last value in sums of increases.
                last.extend(now.clone());
                prop_assert_eq!(last.values().sum::<u64>(), added);
                if step % 4 == 3 {
                    let size = sizes[(step / 4 + 1) % sizes.len()];
                    let removed = all.split_off(size.min(all.len()));
                    shown.forget(&removed);
                    // A class that comes back begins anew, under another name here.
                    let grown = (all.len()..size).map(|at| (format!("n{step}-{at}").into(), Arc::default()));
                    all.extend(grown);
                }
            }
        }
    }
}
