//! Counts with a limit for each key: open connections per peer, stalled responses per node, tunnels and long
//! responses per class.
//!
//! A table has an entry for each key with a place that is taken, so it is bounded by the number of client connections.
//! Places are counted whether there is a limit or not, so that a reload may set one.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of places that each key has taken, on all threads.
#[derive(Debug)]
pub(crate) struct Places<K = u64>(Arc<Mutex<HashMap<K, u32>>>);

/// One place of a key, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<K: Hash + Eq = u64> {
    places: Places<K>,
    key: K,
}

impl<K> Default for Places<K> {
    fn default() -> Places<K> {
        Places(Arc::default())
    }
}

impl<K: Clone + Hash + Eq> Places<K> {
    /// Takes one more place for `key`, unless it has `max` of them.
    pub(crate) fn enter(&self, key: K, max: Option<u32>) -> Option<Place<K>> {
        let mut counts = self.counts();
        let count = counts.entry(key.clone()).or_insert(0);
        if max.is_some_and(|max| *count >= max) {
            if *count == 0 {
                counts.remove(&key);
            }
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Place { places: Places(Arc::clone(&self.0)), key })
    }

    /// Returns the number of places that `key` has.
    pub(crate) fn of(&self, key: &K) -> u32 {
        self.counts().get(key).copied().unwrap_or(0)
    }

    /// Returns the number of keys that have a place.
    pub(crate) fn keys(&self) -> usize {
        self.counts().len()
    }

    /// Returns the number of places that are taken.
    pub(crate) fn taken(&self) -> u64 {
        self.counts().values().copied().map(u64::from).sum()
    }
}

impl<K> Places<K> {
    fn counts(&self) -> MutexGuard<'_, HashMap<K, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        let mut counts = self.places.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

/// Places of requests that hold no slot, in all and for each class.
#[derive(Debug, Default)]
pub struct ClassPlaces {
    all: Places<()>,
    classes: Places<Arc<str>>,
}

/// The place of one request, among all of them and among those of its class.
pub(crate) struct ClassPlace {
    _all: Place<()>,
    _class: Place<Arc<str>>,
}

impl ClassPlaces {
    /// Takes a place for one more request of a class, unless all classes have `max` of them, or this one `class_max`.
    pub(crate) fn enter(&self, max: Option<u32>, class: &str, class_max: Option<u32>) -> Option<Box<ClassPlace>> {
        let all = self.all.enter((), max)?;
        let class = self.classes.enter(class.into(), class_max)?;
        Some(Box::new(ClassPlace { _all: all, _class: class }))
    }

    /// Returns the number of places that are taken.
    pub fn taken(&self) -> u64 {
        self.all.taken()
    }

    /// Returns the classes that have a place, with their numbers of places.
    pub fn by_class(&self) -> BTreeMap<String, u32> {
        self.classes.counts().iter().map(|(class, count)| (class.as_ref().to_owned(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit() {
        let places: Places = Places::default();
        let first = places.enter(1, Some(2)).expect("a place");
        let second = places.enter(1, Some(2)).expect("a place");
        assert!(places.enter(1, Some(2)).is_none() && places.enter(2, Some(2)).is_some());
        assert!(places.enter(1, None).is_some() && places.enter(3, Some(0)).is_none());
        assert_eq!((places.of(&1), places.of(&2), places.taken()), (2, 0, 2));
        drop(first);
        let again = places.enter(1, Some(2)).expect("a place is free again");
        assert!(places.enter(1, Some(2)).is_none());
        drop((second, again));
        assert!(places.counts().is_empty());
    }
}
