//! The page table: what a request that arrives is expected to cost, and what is learned of that.
//!
//! Source: mQoS, Secs. 3.1 and 3.2, and `weirgate_pages`, which has all that is decided. Here a thread looks a request
//! up in its own hold on the table; costs in it are atomic figures that the learner writes, so that nothing waits for
//! anything. What is learned from goes the other way through two bounded queues: which request was inside which node
//! from when to when, and paths of no route if routes are to be found. A queue that is full loses what comes, and
//! requests that were lost void the windows that they were in (`lessons.rs`).

mod lessons;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weirgate_config::Usage;
use weirgate_config::admin as shape;
use weirgate_engine::{Demand, RESOURCES, Time};
use weirgate_pages::{Index, Shares};

use crate::edition::Edition;
use lessons::Lessons;

/// Requests that may end between two reports. A gateway of two threads ends some 40,000 a second at most, and each
/// node's report empties the queue; it takes 1.3 MiB.
const MOST_STAYS: usize = 32 * 1024;

/// Paths of no route between two reports: enough to see what is frequent, and nobody waits for the others.
const MOST_PATHS: usize = 256;

/// Paths that are looked at after a report, of those that came: each is compared with a thousand others, which takes
/// some tenths of a millisecond.
const MOST_LOOKS: usize = 32;

/// Longest path that is kept to be looked at, in bytes.
const LONGEST_PATH: usize = 512;

/// No route.
const NO_ROUTE: u32 = u32::MAX;

/// The table of the process.
pub(crate) struct Pages {
    table: Mutex<Arc<Table>>,
    /// Its version, so that threads need no lock to see that theirs is old.
    version: AtomicU64,
    stays: SyncSender<Stayed>,
    /// Some were lost.
    lost: AtomicBool,
    paths: SyncSender<Box<str>>,
    lessons: Mutex<Lessons>,
}

/// A table in force. Only its costs change.
#[derive(Debug, Default)]
pub(crate) struct Table {
    version: u64,
    /// Tables of one epoch number their routes alike, as far as they have them.
    epoch: u32,
    index: Index,
    costs: Vec<Cost>,
    /// What requests use is learned.
    learned: bool,
    /// Routes are found in the traffic.
    discovers: bool,
    /// Per route: it is one of many neighbours, in which others may be found.
    wide: Vec<bool>,
}

/// What a route's requests cost.
#[derive(Debug, Default)]
struct Cost {
    known: AtomicBool,
    billionths: [AtomicU32; RESOURCES],
}

impl Cost {
    fn new(demand: Option<Demand>) -> Cost {
        let cost = Cost::default();
        cost.set(demand);
        cost
    }

    /// Readers may see some resources before and some after: both were right a moment ago.
    fn set(&self, demand: Option<Demand>) {
        for (cost, demand) in self.billionths.iter().zip(demand.unwrap_or_default().0) {
            cost.store(demand, Ordering::Relaxed);
        }
        self.known.store(demand.is_some(), Ordering::Release);
    }

    fn get(&self) -> Option<Demand> {
        let cost = |resource: usize| self.billionths[resource].load(Ordering::Relaxed);
        self.known.load(Ordering::Acquire).then(|| Demand(std::array::from_fn(cost)))
    }
}

/// Of which route a request is, and what that costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routed {
    epoch: u32,
    route: Option<u32>,
    learned: bool,
    /// `None`: no table knows it.
    pub(crate) demand: Option<Demand>,
}

/// A request that is inside a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    routed: Routed,
    node: u64,
    from: Time,
}

impl Stay {
    /// One of `routed` that has been inside the node since `from`.
    pub(crate) fn new(routed: Routed, node: u64, from: Time) -> Stay {
        Stay { routed, node, from }
    }

    /// The same request inside another node.
    pub(crate) fn moved(self, node: u64, from: Time) -> Stay {
        Stay { node, from, ..self }
    }
}

/// A request that was inside a node.
#[derive(Clone, Copy, Debug)]
struct Stayed {
    node: u64,
    epoch: u32,
    route: u32,
    from: Time,
    until: Time,
    whole: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain data, as good as it was.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pages {
    /// The table of `edition`.
    pub(crate) fn new(edition: &Edition) -> Pages {
        let (stays, ended) = sync_channel(MOST_STAYS);
        let (paths, seen) = sync_channel(MOST_PATHS);
        let mut lessons = Lessons::new(ended, seen);
        let table = lessons.follow(edition);
        let version = AtomicU64::new(table.version);
        Pages {
            table: Mutex::new(table),
            version,
            stays,
            lost: AtomicBool::new(false),
            paths,
            lessons: Mutex::new(lessons),
        }
    }

    /// Follows a reload. What was learned of routes that stay is kept.
    pub(crate) fn follow(&self, edition: &Edition) {
        let mut lessons = lock(&self.lessons);
        let table = lessons.follow(edition);
        self.publish(&lessons, table);
    }

    /// Puts a table in force. With the lock on the lessons that made it: tables must be published in their order.
    fn publish(&self, _: &MutexGuard<'_, Lessons>, table: Arc<Table>) {
        let version = table.version;
        *lock(&self.table) = table;
        self.version.store(version, Ordering::Release);
    }

    /// The table in force.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&lock(&self.table))
    }

    /// A request has left its node at `until`; `whole` unless it was cut off.
    pub(crate) fn left(&self, stay: Stay, until: Time, whole: bool) {
        let Stay { routed, node, from } = stay;
        if !routed.learned {
            return;
        }
        let route = routed.route.unwrap_or(NO_ROUTE);
        if self.stays.try_send(Stayed { node, epoch: routed.epoch, route, from, until, whole }).is_err() {
            self.lost.store(true, Ordering::Relaxed);
        }
    }

    /// The agent of a node has reported at `now`. Takes up to some milliseconds.
    pub(crate) fn reported(&self, node: u64, now: Time, usage: &Usage) {
        let mut lessons = lock(&self.lessons);
        if self.lost.swap(false, Ordering::Relaxed) {
            lessons.spoil();
        }
        if let Some(table) = lessons.reported(node, now, usage) {
            self.publish(&lessons, table);
        }
    }

    /// What operators see. `None` without a table. Takes some milliseconds.
    pub(crate) fn view(&self, most: usize) -> Option<shape::PageTable> {
        lock(&self.lessons).view(most)
    }
}

impl Table {
    /// Looks a request up by its canonical path and raw query.
    fn find(&self, path: &str, query: Option<&str>) -> Routed {
        let route = self.index.find(path, query);
        let demand = route.and_then(|route| self.costs.get(route)?.get());
        let route = route.and_then(|route| u32::try_from(route).ok());
        Routed { epoch: self.epoch, route, learned: self.learned, demand }
    }

    fn set(&self, route: usize, shares: Option<Shares>) {
        if let Some(cost) = self.costs.get(route) {
            cost.set(shares.map(|shares| Demand::of_shares(&shares)));
        }
    }
}

/// One thread's hold on the table in force.
#[derive(Debug)]
pub(crate) struct Lookup(Arc<Table>);

impl Lookup {
    pub(crate) fn new(pages: &Pages) -> Lookup {
        Lookup(pages.table())
    }

    /// Stage *classify*: the route and the cost of a request.
    pub(crate) fn find(&mut self, pages: &Pages, path: &str, query: Option<&str>) -> Routed {
        if self.0.version != pages.version.load(Ordering::Acquire) {
            *self = Lookup::new(pages);
        }
        self.0.find(path, query)
    }

    /// A request has been answered well. If it is of no route, or one of many neighbours, and routes are found in the
    /// traffic, it may be of one that is to be found; what a scanner asks for is not.
    pub(crate) fn answered(&self, pages: &Pages, path: &str, query: Option<&str>) {
        let open = |route: u32| self.0.wide.get(route as usize).copied().unwrap_or(false);
        if self.0.discovers && path.len() <= LONGEST_PATH && self.0.find(path, query).route.is_none_or(open) {
            // A full queue has enough to look at.
            let _ = pages.paths.try_send(path.into());
        }
    }
}
