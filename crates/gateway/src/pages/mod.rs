//! The page table: the expected cost of arriving requests, and how it is learned.
//!
//! Source: mQoS, Secs. 3.1 and 3.2, and `weirgate_pages`, which makes all the decisions. In this module a
//! thread looks up a request in its own handle to the table. Costs in the table are atomic values written by
//! the learner, so that no thread waits for another. The data for learning goes the other way through two
//! bounded queues. One has the node, start and end of each finished request. The other has paths that match
//! no route, if routes are to be discovered. A full queue drops new entries. Lost requests invalidate their
//! learning windows (`lessons.rs`).

mod lessons;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lessons::Lessons;
use weirgate_engine::{Demand, RESOURCES, Time};
use weirgate_pages::{Index, Shares};
use weirgate_wire::{LearnedRoute, Usage, admin as shape};

use crate::active_config::ActiveConfig;
use crate::gateway::Gateway;
use crate::request::Request;

/// Maximum number of requests that may finish between two reports. A gateway with two threads finishes at
/// most about 40,000 a second, and each node's report empties the queue. It takes 1.3 MiB.
const MAX_INTERVALS: usize = 32 * 1024;

/// Maximum number of paths without a route between two reports: enough to see the frequent ones. The others
/// are dropped and delay no request.
const MAX_PATHS: usize = 256;

/// Maximum number of these paths examined after a report. Each is compared with about a thousand others,
/// which takes some tenths of a millisecond.
const MAX_LOOKS: usize = 32;

/// Maximum length of a path kept for examination, in bytes.
const LONGEST_PATH: usize = 512;

/// Number that means "no route".
const NO_ROUTE: u32 = u32::MAX;

/// The page table of the process.
pub(crate) struct Pages {
    table: Mutex<Arc<Table>>,
    /// Version of the table, so that threads can detect an old one without a lock.
    version: AtomicU64,
    intervals: SyncSender<FinishedInterval>,
    /// Whether finished requests were lost.
    lost: AtomicBool,
    paths: SyncSender<Box<str>>,
    lessons: Mutex<Lessons>,
}

/// A table in force. Only its costs change.
#[derive(Debug, Default)]
pub(crate) struct Table {
    version: u64,
    /// Tables of the same epoch give the same number to the same route.
    epoch: u32,
    index: Index,
    costs: Vec<Cost>,
    /// Whether costs are learned.
    learned: bool,
    /// Whether routes are discovered in the traffic.
    discovers: bool,
    /// For each route, whether it matches many similar paths, among which other routes may be found.
    wide: Vec<bool>,
}

/// Cost of a route's requests.
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

    /// Readers may see some resources before the change and some after it. Both were correct a moment ago.
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

/// Route of a request, and its expected cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routed {
    epoch: u32,
    route: Option<u32>,
    learned: bool,
    /// Expected cost, or `None` if no table has it.
    pub(crate) demand: Option<Demand>,
}

/// A service interval that has not ended: a request in flight at a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceInterval {
    routed: Routed,
    node: u64,
    from: Time,
}

impl ServiceInterval {
    /// A request of `routed` that has been in flight at the node since `from`.
    pub(crate) fn new(routed: Routed, node: u64, from: Time) -> ServiceInterval {
        ServiceInterval { routed, node, from }
    }

    /// The same request at another node.
    pub(crate) fn moved(self, node: u64, from: Time) -> ServiceInterval {
        ServiceInterval { node, from, ..self }
    }
}

/// A service interval that has ended.
#[derive(Clone, Copy, Debug)]
struct FinishedInterval {
    node: u64,
    epoch: u32,
    route: u32,
    from: Time,
    until: Time,
    whole: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The lock protects plain data, which stays usable after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pages {
    /// Creates the table of `active_config`.
    pub(crate) fn new(active_config: &ActiveConfig) -> Pages {
        let (intervals, ended) = sync_channel(MAX_INTERVALS);
        let (paths, seen) = sync_channel(MAX_PATHS);
        let mut lessons = Lessons::new(ended, seen);
        let table = lessons.follow(active_config);
        let version = AtomicU64::new(table.version);
        Pages {
            table: Mutex::new(table),
            version,
            intervals,
            lost: AtomicBool::new(false),
            paths,
            lessons: Mutex::new(lessons),
        }
    }

    /// Applies a reload. Knowledge about routes that stay is kept.
    pub(crate) fn follow(&self, active_config: &ActiveConfig) {
        let mut lessons = lock(&self.lessons);
        let table = lessons.follow(active_config);
        self.publish(&lessons, table);
    }

    /// Puts a table in force. The caller holds the lock on the `Lessons` that made it, so that tables are
    /// published in order.
    fn publish(&self, _: &MutexGuard<'_, Lessons>, table: Arc<Table>) {
        let version = table.version;
        *lock(&self.table) = table;
        self.version.store(version, Ordering::Release);
    }

    /// Returns the table in force.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&lock(&self.table))
    }

    /// Records that a request left its node at `until`. `whole` is false if it was cut off.
    pub(crate) fn left(&self, interval: ServiceInterval, until: Time, whole: bool) {
        let ServiceInterval { routed, node, from } = interval;
        if !routed.learned {
            return;
        }
        let route = routed.route.unwrap_or(NO_ROUTE);
        if self.intervals.try_send(FinishedInterval { node, epoch: routed.epoch, route, from, until, whole }).is_err() {
            self.lost.store(true, Ordering::Relaxed);
        }
    }

    /// Handles a report of a node's agent at `now`. Takes up to a few milliseconds.
    pub(crate) fn reported(&self, node: u64, now: Time, usage: &Usage) {
        let mut lessons = lock(&self.lessons);
        if self.lost.swap(false, Ordering::Relaxed) {
            lessons.spoil();
        }
        if let Some(table) = lessons.reported(node, now, usage) {
            self.publish(&lessons, table);
        }
    }

    /// Returns what was learned of routes until `now`: the most recent [`MAX_LEARNED_ROUTES`].
    pub(crate) fn learned(&self, now: Time) -> Vec<LearnedRoute> {
        lock(&self.lessons).learned(now)
    }

    /// Takes over what another gateway has learned of routes, `age` ago. Returns the number of routes.
    pub(crate) fn begin_with(&self, routes: &[LearnedRoute], age: Duration, now: Time) -> usize {
        let mut lessons = lock(&self.lessons);
        let (taken, table) = lessons.begin_with(routes, age, now);
        if let Some(table) = table {
            self.publish(&lessons, table);
        }
        taken
    }

    /// Returns the state for operators, or `None` without a table. Takes a few milliseconds.
    pub(crate) fn view(&self, max: usize) -> Option<shape::PageTable> {
        lock(&self.lessons).view(max)
    }
}

impl Gateway {
    /// Returns the page table with at most `max` of its routes and without the fraction of unknown ones, or
    /// `None` if there is no page table. Takes a few milliseconds.
    pub fn page_table(&self, max: usize) -> Option<weirgate_wire::admin::PageTable> {
        self.shared.pages.view(max)
    }
}

impl Table {
    /// Looks up a request by its canonical path and raw query. A gateway without routes does not look at them.
    fn find(&self, request: &Request) -> Routed {
        let route = match self.costs.is_empty() {
            true => None,
            false => self.index.find(request.path(), request.query()),
        };
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

/// One thread's handle to the table in force.
pub(crate) struct Lookup(Arc<Table>);

impl Lookup {
    pub(crate) fn new(pages: &Pages) -> Lookup {
        Lookup(pages.table())
    }

    /// Stage *classify*: returns the route and the cost of a request.
    pub(crate) fn find(&mut self, pages: &Pages, request: &Request) -> Routed {
        if self.0.version != pages.version.load(Ordering::Acquire) {
            *self = Lookup::new(pages);
        }
        self.0.find(request)
    }

    /// Notes that a request was answered successfully. If routes are discovered, the path of a request
    /// without a route, or with a route of many similar paths, is a candidate for a new route. A scanner's
    /// failed requests are not.
    pub(crate) fn answered(&self, pages: &Pages, request: &Request) {
        if !self.0.discovers {
            return;
        }
        let path = request.path();
        let open = |route: u32| self.0.wide.get(route as usize).copied().unwrap_or(false);
        if path.len() <= LONGEST_PATH && self.0.find(request).route.is_none_or(open) {
            // If the queue is full, there are enough paths to examine.
            let _ = pages.paths.try_send(path.into());
        }
    }
}
