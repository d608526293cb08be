//! Indexed binary heaps: the one data structure behind every O(log n) choice of the engine.
//!
//! Items are small integers (classes, nodes). Each is in at most one heap of a [`Heaps`] at a time, so
//! the heaps share one position table: a hundred pools with a hundred thousand classes cost no more
//! than one pool. A key may be changed or an item removed wherever it stands.
//!
//! Keys are compared with `<` only; equal keys fall back to the item's number, so that the order is
//! total and the same in every run. Keys must not be NaN.

/// Where an item stands: nowhere.
const ABSENT: u32 = u32::MAX;

/// A family of min-heaps over items `0..`, each item in at most one of them.
#[derive(Clone, Debug)]
pub(crate) struct Heaps<K> {
    heaps: Vec<Vec<(K, u32)>>,
    at: Vec<u32>,
}

impl<K: Copy + PartialOrd> Heaps<K> {
    /// `heaps` empty heaps with room for items below `items`.
    pub(crate) fn new(heaps: usize, items: usize) -> Heaps<K> {
        Heaps { heaps: (0..heaps).map(|_| Vec::new()).collect(), at: vec![ABSENT; items] }
    }

    /// Makes room for items below `items`.
    pub(crate) fn grow(&mut self, items: usize) {
        if self.at.len() < items {
            self.at.resize(items, ABSENT);
        }
    }

    /// The smallest key of `heap` and its item.
    pub(crate) fn peek(&self, heap: usize) -> Option<(K, u32)> {
        self.heaps[heap].first().copied()
    }

    /// Is `item` in a heap?
    pub(crate) fn contains(&self, item: u32) -> bool {
        self.at[item as usize] != ABSENT
    }

    /// All of `heap`, in no particular order.
    pub(crate) fn items(&self, heap: usize) -> &[(K, u32)] {
        &self.heaps[heap]
    }

    /// Puts `item` into `heap` with `key`, or changes its key if it is there.
    pub(crate) fn set(&mut self, heap: usize, item: u32, key: K) {
        let at = self.at[item as usize];
        let slots = &mut self.heaps[heap];
        if at == ABSENT {
            slots.push((key, item));
            let last = slots.len() - 1;
            self.at[item as usize] = last as u32;
            self.up(heap, last);
        } else {
            let at = at as usize;
            debug_assert_eq!(slots[at].1, item, "an item is in one heap only");
            slots[at].0 = key;
            let at = self.up(heap, at);
            self.down(heap, at);
        }
    }

    /// Takes `item` out of `heap` if it is there.
    pub(crate) fn remove(&mut self, heap: usize, item: u32) {
        let at = self.at[item as usize];
        if at == ABSENT {
            return;
        }
        let at = at as usize;
        self.at[item as usize] = ABSENT;
        let slots = &mut self.heaps[heap];
        debug_assert_eq!(slots[at].1, item, "an item is in one heap only");
        slots.swap_remove(at);
        if at < slots.len() {
            let moved = slots[at].1;
            self.at[moved as usize] = at as u32;
            let at = self.up(heap, at);
            self.down(heap, at);
        }
    }

    fn up(&mut self, heap: usize, mut at: usize) -> usize {
        let slots = &mut self.heaps[heap];
        while at > 0 {
            let parent = (at - 1) / 2;
            if !before(slots[at], slots[parent]) {
                break;
            }
            slots.swap(at, parent);
            self.at[slots[at].1 as usize] = at as u32;
            at = parent;
        }
        self.at[slots[at].1 as usize] = at as u32;
        at
    }

    fn down(&mut self, heap: usize, mut at: usize) {
        let slots = &mut self.heaps[heap];
        loop {
            let left = 2 * at + 1;
            if left >= slots.len() {
                break;
            }
            let right = left + 1;
            let child = if right < slots.len() && before(slots[right], slots[left]) { right } else { left };
            if !before(slots[child], slots[at]) {
                break;
            }
            slots.swap(at, child);
            self.at[slots[at].1 as usize] = at as u32;
            at = child;
        }
        self.at[slots[at].1 as usize] = at as u32;
    }
}

fn before<K: PartialOrd>(a: (K, u32), b: (K, u32)) -> bool {
    if a.0 < b.0 {
        true
    } else if b.0 < a.0 {
        false
    } else {
        a.1 < b.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Random operations against a sorted map; positions stay right.
    #[test]
    fn agrees_with_a_sorted_map() {
        let mut random = crate::random::Random::new(7);
        let mut heaps: Heaps<u64> = Heaps::new(3, 50);
        let mut model: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
        for _ in 0..20_000 {
            let item = random.below(50) as u32;
            match model.get(&item).copied() {
                Some((heap, _)) if random.below(3) == 0 => {
                    heaps.remove(heap, item);
                    model.remove(&item);
                }
                other => {
                    let heap = other.map_or(random.below(3) as usize, |(heap, _)| heap);
                    let key = random.below(20);
                    heaps.set(heap, item, key);
                    model.insert(item, (heap, key));
                }
            }
            for heap in 0..3 {
                let expected =
                    model.iter().filter(|(_, (h, _))| *h == heap).map(|(item, (_, key))| (*key, *item)).min();
                assert_eq!(heaps.peek(heap), expected);
            }
        }
    }
}
