//! Counts per window of time.
//!
//! Windows are kept sparsely, in any order, so the files of a log need no order and may overlap. There are at most
//! [`MAX_WINDOWS`]. If the logs cover more, a random half of the windows is left out from then on, and again. The
//! choice is a hash of the window's number, so that an event of every hour is neither always in it nor never.

use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_engine::Random;

/// Length of a window. Rates of single seconds are mostly chance, and a surge of a minute spans several windows.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// Maximum number of windows: 23 hours in a row. The 99th percentile of a half of them is still exact to some windows.
/// With 256 rows they take at most 25 MB.
const MAX_WINDOWS: usize = 8192;

/// The requests of a row in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    /// Requests.
    pub(crate) count: u32,
    /// Requests that a server answered.
    pub(crate) served: u32,
    /// Sum of the times at the server, in seconds.
    pub(crate) seconds: f32,
}

impl Cell {
    /// Returns the cell of one request.
    pub(super) fn of(served: bool, time: Option<Duration>) -> Cell {
        Cell { count: 1, served: u32::from(served), seconds: time.map_or(0.0, |time| time.as_secs_f32()) }
    }

    /// Returns the cell without the requests of `other`, which are among these.
    pub(crate) fn without(self, other: Cell) -> Cell {
        Cell {
            count: self.count.saturating_sub(other.count),
            served: self.served.saturating_sub(other.served),
            seconds: (self.seconds - other.seconds).max(0.0),
        }
    }

    fn add(&mut self, other: Cell) {
        self.count = self.count.saturating_add(other.count);
        self.served = self.served.saturating_add(other.served);
        self.seconds += other.seconds;
    }
}

/// A window: a cell for each row. Rows that have no request at the end are missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window(Vec<Cell>);

impl Window {
    /// Adds requests to the row in `slot`.
    pub(super) fn add(&mut self, slot: usize, cell: Cell) {
        if self.0.len() <= slot {
            self.0.resize(slot + 1, Cell::default());
        }
        self.0[slot].add(cell);
    }

    /// Returns the cell of the row in `slot`.
    pub(crate) fn cell(&self, slot: usize) -> Cell {
        self.0.get(slot).copied().unwrap_or_default()
    }
}

/// All windows that are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    kept: BTreeMap<i64, Window>,
    /// One window of 2 to this power is kept.
    halvings: u32,
}

impl Windows {
    /// Returns the window at a time in milliseconds since 1970, if it is kept.
    pub(super) fn at(&mut self, ms: i64) -> Option<&mut Window> {
        let number = ms.div_euclid(WINDOW.as_millis() as i64);
        if !is_kept(number, self.halvings) {
            return None;
        }
        while self.kept.len() >= MAX_WINDOWS && !self.kept.contains_key(&number) {
            self.halvings += 1;
            let halvings = self.halvings;
            self.kept.retain(|number, _| is_kept(*number, halvings));
            if !is_kept(number, halvings) {
                return None;
            }
        }
        Some(self.kept.entry(number).or_default())
    }

    /// Keeps only the rows in these slots, which are in rising order.
    pub(super) fn keep(&mut self, slots: &[usize]) {
        for window in self.kept.values_mut() {
            window.0 = slots.iter().map_while(|slot| window.0.get(*slot).copied()).collect();
        }
    }

    /// Returns the windows, in the order of time.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Window> {
        self.kept.values()
    }

    /// Returns the number of windows that are kept.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns whether windows were left out.
    pub(crate) fn sampled(&self) -> bool {
        self.halvings > 0
    }
}

/// Returns whether a window is kept after some halvings.
fn is_kept(number: i64, halvings: u32) -> bool {
    // More than 63 halvings would need more windows than there are times.
    Random::new(number as u64).bits() & ((1u64 << halvings.min(63)) - 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_sample_is_fair() {
        let mut windows = Windows::default();
        for number in 0..100_000i64 {
            if let Some(window) = windows.at(number * 10_000) {
                window.add(0, Cell::of(true, None));
            }
        }
        assert!(windows.sampled() && (MAX_WINDOWS / 3..=MAX_WINDOWS).contains(&windows.len()), "{}", windows.len());
        // A job that runs in every 60th window is in one of 60 of the sample, too.
        let share = windows.kept.keys().filter(|number| *number % 60 == 7).count() as f64 / windows.len() as f64;
        assert!((0.8..1.2).contains(&(share * 60.0)), "{share}");
    }
}
