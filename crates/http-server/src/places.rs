//! Places of connections, and silent connections that give theirs up.
//!
//! A connection is silent until a request of it has been let in for its party or its token, or, where no one needs
//! either, at all. Anybody can open silent connections, also without a certificate. So these never keep a new
//! connection out: when all places are taken, a silent one is closed in its favour. The data plane does the same
//! (`limits.connections`). Served connections keep their places.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::source::Source;

/// The places of a listener.
pub(crate) struct Places {
    limit: usize,
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    /// Number of the next connection. Older connections have lower ones.
    next: u64,
    taken: HashMap<u64, Arc<Notify>>,
    /// Silent connections by source.
    silent: HashMap<Source, BTreeSet<u64>, RandomState>,
}

/// A place of one connection. It is free once this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    source: Source,
    given_up: Arc<Notify>,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Arc<Places> {
        let silent = HashMap::with_hasher(weirgate_clock::keyed_hasher());
        let state = State { next: 0, taken: HashMap::new(), silent };
        Arc::new(Places { limit, state: Mutex::new(state), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place for a connection from `address` (`None` on a Unix socket). If all are taken, a silent
    /// connection gives its place up. If none is silent, this waits until a place is free.
    pub(crate) async fn take(self: &Arc<Places>, address: Option<IpAddr>) -> Place {
        let source = Source::of(address);
        loop {
            {
                let mut state = self.lock();
                if state.taken.len() < self.limit || state.close_one() {
                    let number = state.next;
                    state.next += 1;
                    let given_up = Arc::new(Notify::new());
                    state.taken.insert(number, Arc::clone(&given_up));
                    state.silent.entry(source).or_default().insert(number);
                    return Place { places: Arc::clone(self), number, source, given_up };
                }
            }
            self.freed.notified().await;
        }
    }

    /// Waits until no place is taken.
    pub(crate) async fn all_free(&self) {
        while !self.lock().taken.is_empty() {
            self.freed.notified().await;
        }
    }
}

impl State {
    /// Closes the oldest silent connection of the source with most of them. Returns false if there is none.
    fn close_one(&mut self) -> bool {
        let most = self.silent.iter().max_by_key(|(_, numbers)| (numbers.len(), Reverse(numbers.first().copied())));
        let Some((source, number)) = most.and_then(|(source, numbers)| Some((*source, *numbers.first()?))) else {
            return false;
        };
        self.speaks(source, number);
        // Its task gets the notice later, but its place is free now.
        self.taken.remove(&number).inspect(|given_up| given_up.notify_one());
        true
    }

    /// Removes a connection from the silent ones.
    fn speaks(&mut self, source: Source, number: u64) {
        if let Some(numbers) = self.silent.get_mut(&source) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.silent.remove(&source);
            }
        }
    }
}

impl Place {
    /// Notes that a request of the connection was let in, so that it keeps its place.
    pub(crate) fn speaks(&self) {
        self.places.lock().speaks(self.source, self.number);
    }

    /// Waits until the place is given to another connection, so that this one must be closed.
    pub(crate) async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.speaks(self.source, self.number);
        if state.taken.remove(&self.number).is_some() {
            self.places.freed.notify_one();
        }
    }
}
