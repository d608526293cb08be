//! Indexed binary heaps: the one data structure behind every O(log n) choice of the engine.
//!
//! Items are small integers (classes, nodes). Each item is in at most one heap of a [`Heaps`] at a time, so
//! all heaps share one position table: a hundred pools with a hundred thousand classes need no more memory
//! than one pool. A key can be changed and an item can be removed wherever it stands.
//!
//! Equal keys are ordered by item number, so that the order is total and the same in every run. Keys must
//! not be NaN.

use crate::index::{Id, Table};

/// Position of an item that is in no heap.
const ABSENT: u32 = u32::MAX;

/// A family of min-heaps over the items of one id type. Each item is in at most one of them.
#[derive(Clone, Debug)]
pub(crate) struct Heaps<K, I = u32> {
    heaps: Vec<Vec<(K, I)>>,
    at: Table<I, u32>,
}

impl<K: Copy + PartialOrd, I: Id> Heaps<K, I> {
    /// Creates `heaps` empty heaps with room for items below `items`.
    pub(crate) fn new(heaps: usize, items: usize) -> Heaps<K, I> {
        Heaps { heaps: (0..heaps).map(|_| Vec::new()).collect(), at: Table::filled(items, ABSENT) }
    }

    /// Makes room for items below `items`.
    pub(crate) fn grow(&mut self, items: usize) {
        if self.at.len() < items {
            self.at.grow(items, ABSENT);
        }
    }

    /// Makes room for heaps below `heaps`.
    pub(crate) fn grow_heaps(&mut self, heaps: usize) {
        if self.heaps.len() < heaps {
            self.heaps.resize_with(heaps, Vec::new);
        }
    }

    /// The smallest key of `heap` and its item.
    #[inline]
    pub(crate) fn peek(&self, heap: usize) -> Option<(K, I)> {
        self.heaps[heap].first().copied()
    }

    /// The non-empty heaps, each with its smallest key and that key's item.
    #[inline]
    pub(crate) fn tops(&self) -> impl Iterator<Item = (usize, &(K, I))> + '_ {
        self.heaps.iter().enumerate().filter_map(|(heap, slots)| Some((heap, slots.first()?)))
    }

    /// Whether `item` is in a heap.
    #[inline]
    pub(crate) fn contains(&self, item: I) -> bool {
        self.at[item] != ABSENT
    }

    /// The key of `item` in `heap`, if it is there.
    pub(crate) fn key(&self, heap: usize, item: I) -> Option<K> {
        self.heaps[heap].get(*self.at.get(item)? as usize).map(|(key, _)| *key)
    }

    /// All items of `heap` with their keys, in no particular order.
    pub(crate) fn items(&self, heap: usize) -> &[(K, I)] {
        &self.heaps[heap]
    }

    /// The first `N` items of `heap`, in order.
    pub(crate) fn first<const N: usize>(&self, heap: usize) -> impl Iterator<Item = (K, I)> + '_ {
        let slots = &self.heaps[heap];
        // Positions with parents that have been returned. Each step takes one out and puts two in. The last
        // step needs none.
        let mut open = [0; N];
        let mut count = usize::from(!slots.is_empty()).min(N);
        (0..N).map_while(move |_| {
            let min = (0..count).reduce(|a, b| if slots[open[b]] < slots[open[a]] { b } else { a })?;
            let place = open[min];
            count -= 1;
            open[min] = open[count];
            for child in [2 * place + 1, 2 * place + 2] {
                if child < slots.len() && count < N {
                    open[count] = child;
                    count += 1;
                }
            }
            Some(slots[place])
        })
    }

    /// The item of `heap` with the smallest key that `fits` accepts. Looks below an item only if it does not
    /// fit: one step for each item that is passed over.
    pub(crate) fn first_where(&self, heap: usize, mut fits: impl FnMut(I) -> bool) -> Option<&(K, I)> {
        let slots = &self.heaps[heap];
        let top = slots.first()?;
        if fits(top.1) {
            return Some(top);
        }
        let mut best = None;
        for below in [1, 2] {
            search(slots, below, &mut fits, &mut best);
        }
        best
    }

    /// Puts `item` into `heap` with `key`, or changes its key if it is already there.
    pub(crate) fn set(&mut self, heap: usize, item: I, key: K) {
        self.put(heap, item, key, down);
    }

    /// Does the same as [`Heaps::set`], faster for a key that is among the largest if it has grown.
    pub(crate) fn set_late(&mut self, heap: usize, item: I, key: K) {
        self.put(heap, item, key, sink);
    }

    #[inline]
    fn put(&mut self, heap: usize, item: I, key: K, down: impl Fn(&mut [(K, I)], &mut Table<I, u32>, usize)) {
        let at = self.at[item];
        let slots = &mut self.heaps[heap];
        if at == ABSENT {
            let last = slots.len();
            slots.push((key, item));
            up(slots, &mut self.at, last, 0);
            return;
        }
        let at = at as usize;
        let slot = &mut slots[at];
        debug_assert_eq!(slot.1, item, "an item is in one heap only");
        let rises = key < slot.0;
        slot.0 = key;
        if rises {
            up(slots, &mut self.at, at, 0);
        } else {
            down(slots, &mut self.at, at);
        }
    }

    /// Changes the keys of all items of `heap`: one step an item, where [`Heaps::set`] takes one for each level. Items
    /// may stand at other positions than after as many calls of it.
    pub(crate) fn rekey(&mut self, heap: usize, key: impl Fn(I) -> K) {
        let slots = &mut self.heaps[heap];
        slots.iter_mut().for_each(|slot| slot.0 = key(slot.1));
        for at in (0..slots.len() / 2).rev() {
            down(slots, &mut self.at, at);
        }
    }

    /// Removes `item` from `heap` if it is there.
    #[inline]
    pub(crate) fn remove(&mut self, heap: usize, item: I) {
        if self.contains(item) {
            self.take(heap, item);
        }
    }

    fn take(&mut self, heap: usize, item: I) {
        let at = core::mem::replace(&mut self.at[item], ABSENT) as usize;
        let slots = &mut self.heaps[heap];
        let gone = slots.swap_remove(at);
        debug_assert_eq!(gone.1, item, "an item is in one heap only");
        if at < slots.len() {
            if slots[at] < gone {
                up(slots, &mut self.at, at, 0);
            } else {
                down(slots, &mut self.at, at);
            }
        }
    }
}

/// Finds the smallest fitting item at or below `place`, if it is smaller than `best`. The recursion is as
/// deep as the heap is high.
fn search<'a, K: Copy + PartialOrd, I: Id>(
    slots: &'a [(K, I)],
    place: usize,
    fits: &mut impl FnMut(I) -> bool,
    best: &mut Option<&'a (K, I)>,
) {
    let Some(slot) = slots.get(place) else { return };
    if best.is_some_and(|best| best < slot) {
        return;
    }
    if fits(slot.1) {
        *best = Some(slot);
        return;
    }
    search(slots, 2 * place + 1, fits, best);
    search(slots, 2 * place + 2, fits, best);
}

/// Moves the item at `hole` towards the root until its parent is not greater, at most to the place `top`.
fn up<K: Copy + PartialOrd, I: Id>(slots: &mut [(K, I)], places: &mut Table<I, u32>, mut hole: usize, top: usize) {
    let slot = slots[hole];
    while hole > top {
        let parent = (hole - 1) / 2;
        let above = slots[parent];
        if above <= slot {
            break;
        }
        slots[hole] = above;
        places[above.1] = hole as u32;
        hole = parent;
    }
    slots[hole] = slot;
    places[slot.1] = hole as u32;
}

/// Moves the item at `hole` away from the root until no child is smaller.
fn down<K: Copy + PartialOrd, I: Id>(slots: &mut [(K, I)], places: &mut Table<I, u32>, mut hole: usize) {
    let slot = slots[hole];
    while let Some((child, below)) = smaller_child(slots, hole) {
        if slot <= below {
            break;
        }
        slots[hole] = below;
        places[below.1] = hole as u32;
        hole = child;
    }
    slots[hole] = slot;
    places[slot.1] = hole as u32;
}

/// Moves the item at `start` to the same place as [`down`]: to the end of the path of smaller children first, and back
/// from there. That is half of the comparisons for an item that belongs to the end.
fn sink<K: Copy + PartialOrd, I: Id>(slots: &mut [(K, I)], places: &mut Table<I, u32>, start: usize) {
    let slot = slots[start];
    let mut hole = start;
    while let Some((child, below)) = smaller_child(slots, hole) {
        slots[hole] = below;
        places[below.1] = hole as u32;
        hole = child;
    }
    slots[hole] = slot;
    up(slots, places, hole, start);
}

/// Returns the place of the smaller child of `place`, and the item there.
#[inline]
fn smaller_child<K: Copy + PartialOrd, I: Id>(slots: &[(K, I)], place: usize) -> Option<(usize, (K, I))> {
    let left = 2 * place + 1;
    match slots.get(left..)? {
        [below, right, ..] if right < below => Some((left + 1, *right)),
        [below, ..] => Some((left, *below)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares random operations with a sorted map and checks that positions stay right.
    #[test]
    fn agrees_with_a_sorted_map() {
        let mut random = crate::random::Random::new(7);
        let mut heaps: Heaps<u64> = Heaps::new(3, 50);
        let mut late: Heaps<u64> = Heaps::new(3, 50);
        let mut model: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
        for _ in 0..20_000 {
            let item = random.below(50) as u32;
            match model.get(&item).copied() {
                Some((heap, _)) if random.below(3) == 0 => {
                    heaps.remove(heap, item);
                    late.remove(heap, item);
                    model.remove(&item);
                }
                _ if random.below(50) == 0 => {
                    let heap = random.below(3) as usize;
                    let factor = random.below(20);
                    heaps.rekey(heap, |item| u64::from(item) * factor % 20);
                    late.rekey(heap, |item| u64::from(item) * factor % 20);
                    let of_heap = model.iter_mut().filter(|(_, (of, _))| *of == heap);
                    of_heap.for_each(|(item, (_, key))| *key = u64::from(*item) * factor % 20);
                }
                other => {
                    let heap = other.map_or(random.below(3) as usize, |(heap, _)| heap);
                    let key = random.below(20);
                    heaps.set(heap, item, key);
                    late.set_late(heap, item, key);
                    model.insert(item, (heap, key));
                }
            }
            for heap in 0..3 {
                assert_eq!(heaps.items(heap), late.items(heap));
                let expected =
                    model.iter().filter(|(_, (h, _))| *h == heap).map(|(item, (_, key))| (*key, *item)).min();
                assert_eq!(heaps.peek(heap), expected);
                let mut all: Vec<(u64, u32)> =
                    model.iter().filter(|(_, (h, _))| *h == heap).map(|(item, (_, key))| (*key, *item)).collect();
                all.sort_unstable();
                all.truncate(6);
                assert_eq!(heaps.first::<6>(heap).collect::<Vec<_>>(), all);
            }
        }
    }
}
