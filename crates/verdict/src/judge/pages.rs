//! Pages of a class, each of which its clients wait for as a whole.
//!
//! Where the traffic of a class consists of pages, its response times are those of pages, from the first
//! request's start to the last object's last byte (the page latency of Andreolini, Casalicchio, Colajanni
//! and Mambelli, Sec. 3). A page belongs to the class of its own request. Objects count only with their
//! page. A request of such a class that belongs to no page counts as a page by itself.

use std::ops::Range;

use weirgate_experiment::{Experiment, Fate, Page, Record, Run};

use super::class::seconds;
use super::verdict::PageCounts;

pub(crate) struct Pages {
    /// Pages in order of arrival.
    all: Vec<Page>,
    /// Minimum time of each page in nanoseconds: its own request and then its longest object, alone on a machine.
    alone: Vec<u64>,
}

impl Pages {
    /// The pages of class or template `subject`, in the order of [`weirgate_engine::Policy::all_classes`]. `None`
    /// if none of its traffic consists of pages. `alone` returns the minimum time of a request, in nanoseconds.
    pub(crate) fn of(
        experiment: &Experiment,
        run: &Run,
        subject: usize,
        alone: impl Fn(&Record) -> u64,
    ) -> Option<Pages> {
        let policy = &experiment.site.policy;
        let is_ours =
            |traffic: usize| experiment.traffic.get(traffic).is_some_and(|t| t.class.index(policy) == subject);
        let ours: Vec<bool> = (0..experiment.traffic.len()).map(is_ours).collect();
        if !ours.iter().enumerate().any(|(traffic, ours)| *ours && experiment.is_pages(traffic)) {
            return None;
        }
        let is_ours = |traffic: u32| ours.get(traffic as usize).copied().unwrap_or(false);
        // The longest attempt of each page's own request, and of its objects.
        let mut parts = vec![[0; 2]; run.pages.len()];
        for record in &run.records {
            let Some(page) = record.page.map(|page| page as usize) else { continue };
            if let Some((parts, of)) = parts.get_mut(page).zip(run.pages.get(page)) {
                let part = &mut parts[usize::from(record.traffic != of.traffic)];
                *part = alone(record).max(*part);
            }
        }
        let pages = run.pages.iter().zip(parts).filter(|(page, _)| is_ours(page.traffic));
        let pages = pages.map(|(page, parts)| (*page, parts.iter().sum()));
        let single = run.records.iter().filter(|record| record.page.is_none() && is_ours(record.traffic));
        let single = single.map(|record| {
            let Record { traffic, fate, arrived, ended, .. } = *record;
            (Page { traffic, fate, arrived, ended, objects: 0 }, alone(record))
        });
        let mut all: Vec<(Page, u64)> = pages.chain(single).collect();
        all.sort_by_key(|(page, _)| page.arrived);
        let (all, alone) = all.into_iter().unzip();
        Some(Pages { all, alone })
    }

    /// Minimum times of the pages of an interval, complete or not, in nanoseconds.
    pub(crate) fn alone(&self, stretch: &Range<u64>) -> impl Iterator<Item = u64> {
        self.alone[self.range(stretch)].iter().copied()
    }

    /// Arrivals and response times of the complete pages of an interval, in nanoseconds.
    pub(crate) fn times(&self, stretch: &Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let complete = self.between(stretch).iter().filter(|page| page.fate == Fate::Served);
        complete.map(|page| (page.arrived, page.ended.saturating_sub(page.arrived)))
    }

    /// Outcomes of the pages of an interval.
    pub(crate) fn counts(&self, stretch: &Range<u64>) -> PageCounts {
        let pages = self.between(stretch);
        let length = seconds(stretch);
        let per_second = |n: usize| if length > 0.0 { n as f64 / length } else { 0.0 };
        let count = |fate: Fate| pages.iter().filter(|page| page.fate == fate).count();
        let rejected = count(Fate::Shed);
        PageCounts {
            offered_per_s: per_second(pages.len()),
            complete_per_s: per_second(count(Fate::Served)),
            rejected: rejected as u64,
            rejected_share: if pages.is_empty() { 0.0 } else { rejected as f64 / pages.len() as f64 },
            failed: count(Fate::Failed) as u64,
            left: count(Fate::Left) as u64,
            unfinished: count(Fate::Cut) as u64,
        }
    }

    fn between(&self, stretch: &Range<u64>) -> &[Page] {
        &self.all[self.range(stretch)]
    }

    fn range(&self, stretch: &Range<u64>) -> Range<usize> {
        let index = |at: u64| self.all.partition_point(|page| page.arrived < at);
        index(stretch.start)..index(stretch.end).max(index(stretch.start))
    }
}
