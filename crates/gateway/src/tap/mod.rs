//! Stage *observe*: finished requests for people who watch them, as they end.
//!
//! A viewer has a filter and a queue of lines. A line has the form of the access log. Without viewers a request pays
//! one relaxed load. With viewers the serving thread applies each filter to the record, and formats the line only if
//! one of them matches. It copies the line into the queues under a lock that is held for that copy alone. A full queue
//! loses the line and counts it, so that no request waits for a viewer.
//!
//! A viewer reads in several responses, because a connection to the admin API does not last for ever. Its queue fills
//! between two of them. `admin::tap` has the responses.

mod filter;

pub use filter::{Filter, Wanted};

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::Notify;

use crate::access_log;
use crate::gateway::Gateway;
use crate::record::AccessRecord;

/// Maximum number of viewers. Each costs every request a comparison. A few people look at a gateway at a time.
const MAX_VIEWERS: usize = 8;

/// Maximum size of a viewer's queue, in bytes: about 600 lines, more than a person reads between two pieces.
const MAX_QUEUE: usize = 256 * 1024;

/// The viewers of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    /// Number of viewers. Serving threads look at the list only if it is not 0.
    count: AtomicU32,
    viewers: RwLock<Vec<Arc<Viewer>>>,
}

/// A viewer: the requests that it wants, and its lines.
#[derive(Debug)]
pub(crate) struct Viewer {
    /// Names the viewer in its next response. It is random, so that the id of another process finds nothing.
    pub(crate) id: u64,
    filter: Filter,
    /// Number of requests that matched the filter, for sampling.
    matched: AtomicU64,
    queue: Mutex<Queue>,
    /// Signals the first line of an empty queue.
    pub(crate) changed: Notify,
    /// Number of responses so far. Only the latest one reads.
    responses: AtomicU64,
}

/// Lines that wait for a viewer.
#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// Number of lines lost since the last reading.
    lost: u64,
}

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Gateway {
    /// Returns the viewers of requests.
    pub(crate) fn tap(&self) -> &Tap {
        &self.shared.tap
    }
}

impl Tap {
    /// Adds a viewer. Returns `None` if there are too many.
    pub(crate) fn join(&self, filter: Filter) -> Option<Arc<Viewer>> {
        let viewer = Arc::new(Viewer {
            id: weirgate_clock::seed(),
            filter,
            matched: AtomicU64::new(0),
            queue: Mutex::default(),
            changed: Notify::new(),
            responses: AtomicU64::new(0),
        });
        let mut viewers = self.viewers.write().unwrap_or_else(PoisonError::into_inner);
        if viewers.len() >= MAX_VIEWERS {
            return None;
        }
        viewers.push(Arc::clone(&viewer));
        self.count(&viewers);
        Some(viewer)
    }

    /// Returns the viewer with an id.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Viewer>> {
        let viewers = self.viewers.read().unwrap_or_else(PoisonError::into_inner);
        viewers.iter().find(|viewer| viewer.id == id).cloned()
    }

    /// Removes a viewer.
    pub(crate) fn leave(&self, viewer: &Arc<Viewer>) {
        let mut viewers = self.viewers.write().unwrap_or_else(PoisonError::into_inner);
        viewers.retain(|one| !Arc::ptr_eq(one, viewer));
        self.count(&viewers);
    }

    fn count(&self, viewers: &[Arc<Viewer>]) {
        self.count.store(u32::try_from(viewers.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Gives a finished request to the viewers that want it. Runs on the serving thread.
    pub(crate) fn observe(&self, record: &AccessRecord<'_>) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        LINE.with_borrow_mut(|line| {
            line.clear();
            let viewers = self.viewers.read().unwrap_or_else(PoisonError::into_inner);
            for viewer in viewers.iter().filter(|viewer| viewer.wants(record)) {
                if line.is_empty() {
                    access_log::append(line, record);
                }
                viewer.add(line);
            }
        });
    }
}

impl Viewer {
    /// Returns whether it wants a request, and counts those that match its filter.
    fn wants(&self, record: &AccessRecord<'_>) -> bool {
        self.filter.matches(record) && self.filter.takes(self.matched.fetch_add(1, Ordering::Relaxed))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, or counts it as lost.
    fn add(&self, line: &[u8]) {
        let mut queue = self.queue();
        if queue.lines.len() + line.len() > MAX_QUEUE {
            queue.lost += 1;
            return;
        }
        let first = queue.lines.is_empty();
        queue.lines.extend_from_slice(line);
        drop(queue);
        if first {
            self.changed.notify_one();
        }
    }

    /// Takes the lines that wait, with a last line about those that were lost. Empty if there is nothing to tell.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut queue = self.queue();
        let (mut lines, lost) = (std::mem::take(&mut queue.lines), std::mem::take(&mut queue.lost));
        drop(queue);
        if lost > 0 {
            lines.extend_from_slice(format!("{{\"lost\":{lost}}}\n").as_bytes());
        }
        lines
    }

    /// Begins a response, and returns its number. It ends the one before.
    pub(crate) fn respond(&self) -> u64 {
        let response = self.responses.fetch_add(1, Ordering::Relaxed) + 1;
        self.changed.notify_one();
        response
    }

    /// Returns whether a response is the latest one.
    pub(crate) fn is_latest(&self, response: u64) -> bool {
        self.responses.load(Ordering::Relaxed) == response
    }
}

#[cfg(test)]
mod tests;
