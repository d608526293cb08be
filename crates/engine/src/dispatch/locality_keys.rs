//! A bounded map from targets to nodes. The least recently used target is forgotten first.
//!
//! Targets are keyed hashes that the driver has spread evenly, so the table uses them without further
//! hashing. Two targets with the same hash share a node, with no other consequence. Entries are linked in
//! the order of use. Once full, the map allocates nothing more (the table may grow once, because of removed
//! entries).

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use crate::request::NodeId;
use crate::ticket::NONE;

/// Hasher that returns the target itself.
#[derive(Clone, Copy, Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// One target.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    node: NodeId,
    /// Neighbours in the order of use.
    older: u32,
    newer: u32,
}

/// The map.
#[derive(Clone, Debug)]
pub(super) struct LocalityKeys {
    max: u32,
    slots: Vec<Slot>,
    at: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    oldest: u32,
    newest: u32,
}

impl LocalityKeys {
    /// An empty map for at most `max` targets, at least one.
    pub(super) fn new(max: u32) -> LocalityKeys {
        LocalityKeys { max: max.max(1), slots: Vec::new(), at: HashMap::default(), oldest: NONE, newest: NONE }
    }

    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// The node of a target.
    pub(super) fn get(&self, key: u64) -> Option<NodeId> {
        self.at.get(&key).map(|slot| self.slots[*slot as usize].node)
    }

    /// Maps a target to `node` and makes it the most recently used one.
    pub(super) fn set(&mut self, key: u64, node: NodeId) {
        let slot = match self.at.get(&key) {
            Some(slot) => {
                let slot = *slot;
                self.unlink(slot);
                slot
            }
            None if self.len() < self.max => {
                self.slots.push(Slot { key, node, older: NONE, newer: NONE });
                self.len() - 1
            }
            None => {
                let slot = self.oldest;
                self.unlink(slot);
                self.at.remove(&self.slots[slot as usize].key);
                slot
            }
        };
        self.at.insert(key, slot);
        self.slots[slot as usize] = Slot { key, node, older: self.newest, newer: NONE };
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.slots[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { older, newer, .. } = self.slots[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
    }

    /// All targets and their nodes, the least recently used first.
    pub(super) fn in_order_of_use(&self) -> impl Iterator<Item = (u64, NodeId)> + '_ {
        let slots =
            core::iter::successors(self.slots.get(self.oldest as usize), |slot| self.slots.get(slot.newer as usize));
        slots.map(|slot| (slot.key, slot.node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the map with a plain list in order of use: both know the same targets, and never more
        /// than the bound.
        #[test]
        fn it_knows_what_a_plain_list_knows(max in 1u32..8, steps in prop::collection::vec((0u64..12, 0u32..4), 1..200)) {
            let mut keys = LocalityKeys::new(max);
            let mut list: Vec<(u64, NodeId)> = Vec::new();
            for (key, node) in steps {
                let node = NodeId(node);
                prop_assert_eq!(keys.get(key), list.iter().find(|(t, _)| *t == key).map(|(_, n)| *n));
                keys.set(key, node);
                list.retain(|(t, _)| *t != key);
                if list.len() == max as usize {
                    list.remove(0);
                }
                list.push((key, node));
                prop_assert!(keys.len() <= max);
                prop_assert_eq!(keys.in_order_of_use().collect::<Vec<_>>(), list.clone());
            }
        }
    }
}
