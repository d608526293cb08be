//! The event agenda: the earliest of a fixed set of sources, and a heap of events for single requests.
//!
//! Nearly all events of a simulation come from few sources, and each source knows its own next instant: a
//! stream of arrivals, a server, the engine's timer. The agenda is therefore a tournament tree over the
//! sources (Knuth, *The Art of Computer Programming* 3, Sec. 5.4.1), not one heap of all events. A new
//! instant of a source costs a few comparisons, no entry is ever stale, and nothing is allocated. Events of
//! a single request or user (patience that ends, thinking that ends) wait in a heap, which is itself one
//! source.
//!
//! At equal instants the source with the lower number comes first, and errands come in the order in which
//! they were added. The order of events is therefore the same in every run.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The value of a source that waits for no instant.
const NEVER: u64 = u64::MAX;

/// The next instant of every source.
pub(crate) struct Agenda {
    /// A binary tree in an array. The sources start at `leaves`, and each inner node holds the earlier of
    /// its two children. Each entry is one number, see [`entry`].
    tree: Vec<u128>,
    leaves: usize,
}

/// Packs the instant into the upper half and the source into the lower, so that the earlier entry is the
/// smaller.
fn entry(at: u64, source: usize) -> u128 {
    u128::from(at) << 64 | source as u128
}

impl Agenda {
    /// Creates an agenda of `sources` sources, none of which waits for an instant.
    pub(crate) fn new(sources: usize) -> Agenda {
        let leaves = sources.next_power_of_two();
        let mut tree: Vec<u128> = (0..2 * leaves).map(|i| entry(NEVER, i.saturating_sub(leaves))).collect();
        for i in (1..leaves).rev() {
            tree[i] = tree[2 * i];
        }
        Agenda { tree, leaves }
    }

    /// Sets the next instant of `source`.
    pub(crate) fn set(&mut self, source: usize, at: Option<u64>) {
        let mut first = entry(at.unwrap_or(NEVER), source);
        let mut i = self.leaves + source;
        while self.tree[i] != first {
            self.tree[i] = first;
            if i == 1 {
                return;
            }
            first = first.min(self.tree[i ^ 1]);
            i /= 2;
        }
    }

    /// Returns the earliest instant and its source.
    pub(crate) fn first(&self) -> Option<(u64, usize)> {
        let (at, source) = ((self.tree[1] >> 64) as u64, self.tree[1] as usize);
        (at != NEVER).then_some((at, source))
    }
}

/// Errands in order of time.
pub(crate) struct Errands<T> {
    heap: BinaryHeap<Reverse<Errand<T>>>,
    given: u64,
}

struct Errand<T> {
    at: u64,
    number: u64,
    what: T,
}

impl<T> PartialEq for Errand<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Errand<T> {}

impl<T> PartialOrd for Errand<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Errand<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<T> Errands<T> {
    /// Creates an empty heap.
    pub(crate) fn new() -> Errands<T> {
        Errands { heap: BinaryHeap::new(), given: 0 }
    }

    /// Adds an errand that is due at `at`.
    pub(crate) fn push(&mut self, at: u64, what: T) {
        self.heap.push(Reverse(Errand { at, number: self.given, what }));
        self.given += 1;
    }

    /// Returns the instant at which the first errand is due.
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(errand)| errand.at)
    }

    /// Removes and returns the first errand if it is due at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<T> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(errand)| errand.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_agenda_of_one_source_and_of_none_set() {
        let mut agenda = Agenda::new(1);
        assert_eq!(agenda.first(), None);
        agenda.set(0, Some(7));
        assert_eq!(agenda.first(), Some((7, 0)));
        agenda.set(0, None);
        assert_eq!(agenda.first(), None);
    }

    #[test]
    fn errands_of_one_instant_keep_their_order() {
        let mut errands = Errands::new();
        for (at, what) in [(5, 'b'), (3, 'a'), (5, 'c')] {
            errands.push(at, what);
        }
        assert_eq!((errands.next(), errands.pop(2)), (Some(3), None));
        assert_eq!([5, 5, 5].map(|now| errands.pop(now)), [Some('a'), Some('b'), Some('c')]);
        assert_eq!(errands.pop(99), None);
    }

    proptest! {
        /// The first entry is always the smallest (instant, number), whatever the order of the calls.
        #[test]
        fn the_first_is_the_earliest(
            sources in 1usize..40,
            sets in prop::collection::vec((0usize..40, prop::option::of(0u64..6)), 1..200),
        ) {
            let mut agenda = Agenda::new(sources);
            let mut model = vec![None; sources];
            for (source, at) in sets {
                agenda.set(source % sources, at);
                model[source % sources] = at;
                let first = model.iter().enumerate().filter_map(|(i, at)| Some(((*at)?, i))).min();
                prop_assert_eq!(agenda.first(), first);
            }
        }
    }
}
