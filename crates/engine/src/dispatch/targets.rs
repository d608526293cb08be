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

    fn write_u64(&mut self, target: u64) {
        self.0 = target;
    }
}

/// One target.
#[derive(Clone, Copy, Debug)]
struct Place {
    target: u64,
    node: NodeId,
    /// Neighbours in the order of use.
    older: u32,
    newer: u32,
}

/// The map.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    most: u32,
    places: Vec<Place>,
    at: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    oldest: u32,
    newest: u32,
}

impl Targets {
    /// An empty map for at most `most` targets, at least one.
    pub(super) fn new(most: u32) -> Targets {
        Targets { most: most.max(1), places: Vec::new(), at: HashMap::default(), oldest: NONE, newest: NONE }
    }

    pub(super) fn len(&self) -> u32 {
        self.places.len() as u32
    }

    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// The node of a target.
    pub(super) fn get(&self, target: u64) -> Option<NodeId> {
        self.at.get(&target).map(|place| self.places[*place as usize].node)
    }

    /// Maps a target to `node` and makes it the most recently used one.
    pub(super) fn set(&mut self, target: u64, node: NodeId) {
        let place = match self.at.get(&target) {
            Some(place) => {
                let place = *place;
                self.unlink(place);
                place
            }
            None if self.len() < self.most => {
                self.places.push(Place { target, node, older: NONE, newer: NONE });
                self.len() - 1
            }
            None => {
                let place = self.oldest;
                self.unlink(place);
                self.at.remove(&self.places[place as usize].target);
                place
            }
        };
        self.at.insert(target, place);
        self.places[place as usize] = Place { target, node, older: self.newest, newer: NONE };
        match self.newest {
            NONE => self.oldest = place,
            newest => self.places[newest as usize].newer = place,
        }
        self.newest = place;
    }

    fn unlink(&mut self, place: u32) {
        let Place { older, newer, .. } = self.places[place as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.places[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.places[newer as usize].older = older,
        }
    }

    /// All targets and their nodes, the least recently used first.
    pub(super) fn in_order_of_use(&self) -> impl Iterator<Item = (u64, NodeId)> + '_ {
        let places = core::iter::successors(self.places.get(self.oldest as usize), |place| {
            self.places.get(place.newer as usize)
        });
        places.map(|place| (place.target, place.node))
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
        fn it_knows_what_a_plain_list_knows(most in 1u32..8, steps in prop::collection::vec((0u64..12, 0u32..4), 1..200)) {
            let mut targets = Targets::new(most);
            let mut list: Vec<(u64, NodeId)> = Vec::new();
            for (target, node) in steps {
                let node = NodeId(node);
                prop_assert_eq!(targets.get(target), list.iter().find(|(t, _)| *t == target).map(|(_, n)| *n));
                targets.set(target, node);
                list.retain(|(t, _)| *t != target);
                if list.len() == most as usize {
                    list.remove(0);
                }
                list.push((target, node));
                prop_assert!(targets.len() <= most);
                prop_assert_eq!(targets.in_order_of_use().collect::<Vec<_>>(), list.clone());
            }
        }
    }
}
