//! Counts the requests of logs, in memory of constant size.
//!
//! A *row* counts the requests of the whole site, of the crawlers, of a host, or of a first path segment of a host.
//! There are at most [`MAX_ROWS`]. A new host or segment gets a row when it has been seen [`SEEN_BEFORE`] times, which
//! a table of limited size counts (lossy counting: Manku and Motwani, *Approximate Frequency Counts over Data
//! Streams*, VLDB 2002; here all counts are halved when the table is full). If rows run out, those with the fewest
//! requests go.
//!
//! `windows` divides the time into windows and counts each row in each, and `sources` the busiest client.

mod sources;
mod windows;

use std::collections::HashMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::crawlers::is_crawler;
use crate::log::{Request, Tells};
use crate::names::{host_of, segment_of};
use sources::Sources;
pub(crate) use windows::{Cell, WINDOW, Window, Windows};

/// Maximum number of rows. A class needs one request in fifty, so a hundred rows can matter.
pub(crate) const MAX_ROWS: usize = 256;

/// Requests after which a host or segment gets a row. Names that were mistyped, or tried by a scanner, are seen less.
const SEEN_BEFORE: u32 = 8;

/// Maximum number of hosts and segments that are counted without a row.
const MAX_SEEN: usize = 8192;

/// Maximum number of servers that are kept. A pool with more is rarely written down by hand.
const MAX_NODES: usize = 64;

/// Longest time in the histograms, in microseconds: that of the longest request that is believed.
const MAX_MICROS: u64 = 86_400_000_000;

/// The row of the whole site.
pub(crate) const SITE: usize = 0;

/// The row of the crawlers, which are in no row of a host or segment.
pub(crate) const CRAWLERS: usize = 1;

/// The requests that a row counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The host. `None` is any.
    pub(crate) host: Option<String>,
    /// The first path segment, empty for `/` itself. `None` is any.
    pub(crate) segment: Option<String>,
}

/// The counts of a row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// Requests.
    pub(crate) count: u64,
    /// Requests that a server answered.
    pub(crate) served: u64,
    /// Requests with a time at the server.
    pub(crate) timed: u64,
    /// Sum of these times, in seconds.
    pub(crate) seconds: f64,
    /// Times until the last byte of served requests, in microseconds.
    pub(crate) responses: Histogram<u32>,
}

impl Row {
    fn new(key: Key) -> Row {
        // Two digits are more than a limit needs. The bounds are sound, so this cannot fail.
        let responses = Histogram::new_with_bounds(1, MAX_MICROS, 2).expect("sound bounds");
        Row { key, count: 0, served: 0, timed: 0, seconds: 0.0, responses }
    }
}

/// The counts of all logs.
#[derive(Debug)]
pub struct Tally {
    pub(crate) rows: Vec<Row>,
    index: HashMap<Key, usize>,
    seen: HashMap<Key, u32>,
    pub(crate) windows: Windows,
    pub(crate) sources: Sources,
    /// Servers with the number of their answers.
    pub(crate) nodes: HashMap<String, u64>,
    /// The facts that the formats of all logs have together.
    pub(crate) tells: Option<Tells>,
    /// Requests with a host.
    pub(crate) with_host: u64,
    /// Requests with the header `User-Agent`.
    pub(crate) with_agent: u64,
    /// Begin and end in milliseconds since 1970.
    pub(crate) span_ms: Option<(i64, i64)>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            rows: vec![Row::new(Key::default()), Row::new(Key::default())],
            index: HashMap::new(),
            seen: HashMap::new(),
            windows: Windows::default(),
            sources: Sources::default(),
            nodes: HashMap::new(),
            tells: None,
            with_host: 0,
            with_agent: 0,
            span_ms: None,
        }
    }
}

impl Tally {
    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        self.rows[SITE].count
    }

    /// Notes which facts the format of a log has. A figure needs all logs to have its facts.
    pub fn tells(&mut self, tells: Tells) {
        self.tells = Some(match self.tells {
            None => tells,
            Some(known) => Tells {
                host: known.host || tells.host,
                step: known.step.zip(tells.step).map(|(one, other)| one.max(other)),
                service: known.service && tells.service,
            },
        });
    }

    /// Counts a request.
    pub fn add(&mut self, request: &Request<'_>) {
        let at = request.ended_ms;
        self.span_ms = Some(self.span_ms.map_or((at, at), |(from, to)| (from.min(at), to.max(at))));
        let served = request.served();
        let time = request.service.or(request.response).filter(|_| served);
        let cell = Cell::of(served, time);
        let mut window = self.windows.at(at);
        let mut count = |row: &mut Row, slot: usize| {
            row.count += 1;
            row.served += u64::from(served);
            if let Some(time) = time {
                row.timed += 1;
                row.seconds += time.as_secs_f64();
            }
            if let Some(response) = request.response.filter(|_| served) {
                row.responses.saturating_record(micros(response));
            }
            if let Some(window) = &mut window {
                window.add(slot, cell);
            }
        };
        count(&mut self.rows[SITE], SITE);
        let host = request.host.as_deref().and_then(host_of);
        self.with_host += u64::from(host.is_some());
        self.with_agent += u64::from(request.agent.is_some());
        if request.agent.as_deref().is_some_and(is_crawler) {
            count(&mut self.rows[CRAWLERS], CRAWLERS);
        } else {
            let segment = request.path.as_deref().and_then(segment_of);
            let mut keys = [None, None];
            if host.is_some() {
                keys[0] = Some(Key { host: host.clone(), segment: None });
            }
            if let Some(segment) = segment {
                keys[1] = Some(Key { host, segment: Some(segment.to_owned()) });
            }
            let mut new = [None, None];
            for (key, new) in keys.into_iter().zip(&mut new) {
                let Some(key) = key else { continue };
                match self.index.get(&key) {
                    Some(&slot) => count(&mut self.rows[slot], slot),
                    None => *new = Some(key),
                }
            }
            new.into_iter().flatten().for_each(|key| self.meet(key));
        }
        if let Some(client) = &request.client {
            self.sources.add(client, at);
        }
        if let Some(node) = &request.node {
            if let Some(count) = self.nodes.get_mut(node.as_ref()) {
                *count += 1;
            } else if self.nodes.len() < MAX_NODES {
                self.nodes.insert(node.clone().into_owned(), 1);
            }
        }
    }

    /// Counts a host or segment that has no row, and gives it one if it has been seen often.
    fn meet(&mut self, key: Key) {
        while self.seen.len() >= MAX_SEEN && !self.seen.contains_key(&key) {
            self.seen.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
        let count = self.seen.entry(key.clone()).or_default();
        *count += 1;
        if *count < SEEN_BEFORE {
            return;
        }
        self.seen.remove(&key);
        if self.rows.len() == MAX_ROWS {
            self.prune();
        }
        self.index.insert(key.clone(), self.rows.len());
        self.rows.push(Row::new(key));
    }

    /// Removes the half of the rows with the fewest requests.
    fn prune(&mut self) {
        let mut order: Vec<usize> = (CRAWLERS + 1..self.rows.len()).collect();
        order.sort_by_key(|slot| std::cmp::Reverse(self.rows[*slot].count));
        order.truncate(MAX_ROWS / 2);
        order.extend([SITE, CRAWLERS]);
        order.sort_unstable();
        self.windows.keep(&order);
        let mut slot = 0;
        self.rows.retain(|_| {
            slot += 1;
            order.binary_search(&(slot - 1)).is_ok()
        });
        let named = self.rows.iter().enumerate().skip(CRAWLERS + 1);
        self.index = named.map(|(slot, row)| (row.key.clone(), slot)).collect();
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(MAX_MICROS).clamp(1, MAX_MICROS)
}

#[cfg(test)]
mod tests;
