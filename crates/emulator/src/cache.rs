//! Part of a node's disk that is held in memory. The least recently used objects are evicted first.
//!
//! This is the cache of the LARD studies (Pai et al., *Locality-Aware Request Distribution in Cluster-Based
//! Network Servers*, ASPLOS 1998), in which the throughput of a node follows from the share of its working
//! set that fits into memory. Departure: their cache is greedy-dual-size. The page cache of an operating
//! system, which is the cache of a web server, goes by recency. An object larger than the whole memory is
//! not kept, because it would evict everything else and still not fit.

use std::collections::BTreeMap;

/// Objects in memory, ordered by recency of use.
#[derive(Debug)]
pub struct Cache {
    capacity: u64,
    used: u64,
    /// Number of uses so far, which is also the stamp of the next use.
    uses: u64,
    /// Stamp of the last use and size in bytes, by object.
    objects: BTreeMap<u64, (u64, u64)>,
    /// Object by stamp. The first is the least recently used.
    recency: BTreeMap<u64, u64>,
}

impl Cache {
    /// An empty memory of `capacity` bytes.
    pub fn new(capacity: u64) -> Cache {
        Cache { capacity, used: 0, uses: 0, objects: BTreeMap::new(), recency: BTreeMap::new() }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Uses `object` and returns whether it is in memory. Costs O(log objects).
    pub fn touch(&mut self, object: u64) -> bool {
        let Some((stamp, _)) = self.objects.get_mut(&object) else { return false };
        self.recency.remove(stamp);
        *stamp = self.uses;
        self.recency.insert(self.uses, object);
        self.uses += 1;
        true
    }

    /// Inserts `object`, or changes its size, as the most recently used object. Evicts others to make room.
    pub fn insert(&mut self, object: u64, bytes: u64) {
        if let Some((stamp, before)) = self.objects.remove(&object) {
            self.recency.remove(&stamp);
            self.used -= before;
        }
        if bytes > self.capacity {
            return;
        }
        while self.used > self.capacity - bytes
            && let Some((_, oldest)) = self.recency.pop_first()
            && let Some((_, freed)) = self.objects.remove(&oldest)
        {
            self.used -= freed;
        }
        self.objects.insert(object, (self.uses, bytes));
        self.recency.insert(self.uses, object);
        self.uses += 1;
        self.used += bytes;
    }

    /// Evicts everything.
    pub fn clear(&mut self) {
        self.objects.clear();
        self.recency.clear();
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let mut cache = Cache::new(10);
        cache.insert(1, 4);
        cache.insert(2, 4);
        assert!(cache.touch(1));
        cache.insert(3, 6);
        assert_eq!([1, 2, 3].map(|object| cache.touch(object)), [true, false, true]);
        assert_eq!(cache.used(), 10);
    }

    #[test]
    fn what_is_larger_than_everything_drives_nothing_out() {
        let mut cache = Cache::new(10);
        cache.insert(1, 10);
        cache.insert(2, 11);
        assert_eq!([1, 2].map(|object| cache.touch(object)), [true, false]);
        // An object that has grown too large must not stay in its old size.
        cache.insert(1, 11);
        assert_eq!((cache.touch(1), cache.used()), (false, 0));
    }

    proptest! {
        /// The cache keeps the same objects as a list in order of use, searched from end to end.
        #[test]
        fn it_keeps_what_a_plain_list_keeps(
            capacity in 1u64..60,
            steps in prop::collection::vec((0u64..12, 0u64..20, 0u8..20), 1..200),
        ) {
            let mut cache = Cache::new(capacity);
            let mut list: Vec<(u64, u64)> = Vec::new();
            for (object, bytes, kind) in steps {
                let here = list.iter().position(|(o, _)| *o == object);
                match kind {
                    0 => {
                        cache.clear();
                        list.clear();
                    }
                    1..10 => {
                        prop_assert_eq!(cache.touch(object), here.is_some());
                        if let Some(at) = here {
                            let entry = list.remove(at);
                            list.push(entry);
                        }
                    }
                    _ => {
                        cache.insert(object, bytes);
                        if let Some(at) = here {
                            list.remove(at);
                        }
                        if bytes <= capacity {
                            while list.iter().map(|(_, b)| b).sum::<u64>() + bytes > capacity {
                                list.remove(0);
                            }
                            list.push((object, bytes));
                        }
                    }
                }
                prop_assert_eq!(cache.used(), list.iter().map(|(_, b)| b).sum::<u64>());
                prop_assert!(cache.used() <= capacity);
            }
        }
    }
}
