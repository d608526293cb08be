//! The sources of waiting requests, and the order of their turns.
//!
//! Source: round robin over the sources that have waiting requests (Nagle, *On Packet Switches with Infinite
//! Storage*, RFC 970), as in the fair queueing of Kubernetes' API Priority and Fairness. A source takes its first
//! turn behind all sources that wait already, so sources with one request each keep the order of arrival.
//! If too many requests wait, a new one takes the place of the newest request of the source that has most
//! (McKenney, *Stochastic Fairness Queueing*, INFOCOM 1990: buffer stealing).
//!
//! Departures:
//! - All requests count alike, whatever they cost. Costs are shared among classes, by stage *release*.
//! - Sources are told apart exactly, not by a hash modulo a number of queues, so two sources never share a queue.
//!   That is possible because a source is known only while requests of it wait: there are at most as many sources
//!   as waiting requests.
//! - A source without waiting requests has no credit and no debt.
//!
//! The lists run through the ticket slab: `older` and `younger` link the requests of a source in a sub-queue, and
//! `turn_before` and `turn_after` link the oldest requests of all its sources.

use core::cmp::Reverse;

use super::SubQueue;
use crate::demand::RESOURCES;
use crate::heap::Heaps;
use crate::index::Id;
use crate::request::ClassId;
use crate::ticket::{NONE, Tickets};

/// A source that has waiting requests in a class.
pub(crate) type SourceId = u32;

/// Whether a request that leaves the queue uses its source's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The next request of the source inherits the turn.
    Kept,
    /// The source comes again after all others.
    Used,
}

/// One source in one class.
#[derive(Clone, Copy, Debug)]
struct Source {
    class: ClassId,
    flow: u64,
    /// The next source in the same bucket, or the next free entry.
    next: SourceId,
    /// Requests waiting in all sub-queues.
    waiting: u32,
    lines: [Line; RESOURCES],
}

/// The requests of a source in a sub-queue.
#[derive(Clone, Copy, Debug)]
struct Line {
    newest: u32,
    len: u32,
}

/// All sources that have waiting requests.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    /// First source of each bucket of the hash table. A power of two, not less than the number of entries.
    buckets: Vec<SourceId>,
    entries: Vec<Source>,
    free: SourceId,
    /// Sources with several waiting requests, those with most first. One heap per class.
    longest: Heaps<Reverse<u32>, SourceId>,
}

impl Sources {
    pub(super) fn new(classes: usize) -> Sources {
        Sources { buckets: vec![NONE; 16], entries: Vec::new(), free: NONE, longest: Heaps::new(classes, 0) }
    }

    /// Makes room for classes below `classes`.
    pub(super) fn grow(&mut self, classes: usize) {
        self.longest.grow_heaps(classes);
    }

    #[inline]
    pub(super) fn find(&self, class: ClassId, flow: u64) -> Option<SourceId> {
        let mut source = self.buckets[self.bucket(class, flow)];
        while source != NONE {
            let entry = &self.entries[source.row()];
            if entry.flow == flow && entry.class == class {
                return Some(source);
            }
            source = entry.next;
        }
        None
    }

    /// Number of waiting requests of a source.
    #[inline]
    pub(super) fn waiting(&self, source: Option<SourceId>) -> u32 {
        source.map_or(0, |source| self.entries[source.row()].waiting)
    }

    /// Number of requests of a source that wait in a sub-queue.
    #[inline]
    pub(super) fn waiting_in(&self, source: Option<SourceId>, sub_queue: usize) -> u32 {
        source.map_or(0, |source| self.entries[source.row()].lines[sub_queue].len)
    }

    /// The source of a class with most waiting requests, if one has several.
    pub(super) fn longest(&self, class: ClassId) -> Option<SourceId> {
        self.longest.peek(class.row()).map(|(_, source)| source)
    }

    /// The newest waiting request of a source.
    pub(super) fn newest(&self, tickets: &Tickets, source: SourceId) -> u32 {
        let newest = self.entries[source.row()].lines.iter().map(|line| line.newest).filter(|newest| *newest != NONE);
        newest.max_by_key(|newest| tickets[*newest].sequence).unwrap_or(NONE)
    }

    /// Appends a request to those of its source. `source` is the source if it is known.
    #[inline]
    pub(super) fn enter(&mut self, tickets: &mut Tickets, queue: &mut SubQueue, index: u32, source: Option<SourceId>) {
        let (class, flow, sub_queue) = {
            let entry = &tickets[index];
            (entry.class, entry.flow, usize::from(entry.sub_queue))
        };
        let source = source.unwrap_or_else(|| self.insert(class, flow));
        let entry = &mut self.entries[source.row()];
        entry.waiting += 1;
        let waiting = entry.waiting;
        let line = &mut entry.lines[sub_queue];
        line.len += 1;
        let older = core::mem::replace(&mut line.newest, index);
        if line.len == 1 {
            queue.sources += 1;
            append_turn(tickets, queue, index);
        } else {
            queue.crowds += u32::from(line.len == 2);
            tickets[older].younger = index;
        }
        let ticket = &mut tickets[index];
        (ticket.source, ticket.older, ticket.younger) = (source, older, NONE);
        if waiting > 1 {
            self.longest.set(class.row(), source, Reverse(waiting));
        }
    }

    /// Removes a request from those of its source. If it was the oldest of them, the next one takes over its
    /// turn or comes last.
    #[inline]
    pub(super) fn leave(&mut self, tickets: &mut Tickets, queue: &mut SubQueue, index: u32, turn: Turn) {
        let ticket = &tickets[index];
        let (source, older, younger) = (ticket.source, ticket.older, ticket.younger);
        let entry = &mut self.entries[source.row()];
        entry.waiting -= 1;
        let (class, waiting) = (entry.class, entry.waiting);
        let line = &mut entry.lines[usize::from(ticket.sub_queue)];
        line.len -= 1;
        queue.crowds -= u32::from(line.len == 1);
        queue.sources -= u32::from(line.len == 0);
        if younger == NONE {
            line.newest = older;
        } else {
            tickets[younger].older = older;
        }
        if older != NONE {
            tickets[older].younger = younger;
        } else if younger == NONE {
            remove_turn(tickets, queue, index);
        } else if turn == Turn::Kept {
            replace_turn(tickets, queue, index, younger);
        } else {
            remove_turn(tickets, queue, index);
            append_turn(tickets, queue, younger);
        }
        match waiting {
            0 => self.remove(source),
            1 => self.longest.remove(class.row(), source),
            _ => self.longest.set(class.row(), source, Reverse(waiting)),
        }
    }

    /// The bucket of a source. Hashes arrive keyed ([`crate::Arrival::flow`]), so mixing in the class is enough:
    /// without the driver's key an attacker cannot aim at one bucket.
    #[inline]
    fn bucket(&self, class: ClassId, flow: u64) -> usize {
        let mixed = (flow ^ (flow >> 32) ^ u64::from(class.0).rotate_left(20)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (self.buckets.len() - 1)
    }

    fn insert(&mut self, class: ClassId, flow: u64) -> SourceId {
        let source = self.free;
        let fresh = Source { class, flow, next: NONE, waiting: 0, lines: [Line { newest: NONE, len: 0 }; RESOURCES] };
        if source == NONE {
            return self.insert_another(fresh);
        }
        self.free = self.entries[source.row()].next;
        self.entries[source.row()] = fresh;
        self.link(source);
        source
    }

    /// Adds an entry to the table, which may have to grow.
    #[cold]
    fn insert_another(&mut self, fresh: Source) -> SourceId {
        let source = SourceId::of(self.entries.len());
        self.entries.push(fresh);
        self.longest.grow(self.entries.len());
        if self.entries.len() <= self.buckets.len() {
            self.link(source);
        } else {
            // No entry is free, so all are in use.
            self.buckets = vec![NONE; 2 * self.buckets.len()];
            (0..=source).for_each(|source| self.link(source));
        }
        source
    }

    /// Puts a source into its bucket.
    #[inline]
    fn link(&mut self, source: SourceId) {
        let Source { class, flow, .. } = self.entries[source.row()];
        let bucket = self.bucket(class, flow);
        self.entries[source.row()].next = core::mem::replace(&mut self.buckets[bucket], source);
    }

    /// Takes a source out of its bucket and frees its entry.
    #[inline]
    fn remove(&mut self, source: SourceId) {
        let Source { class, flow, next, .. } = self.entries[source.row()];
        let bucket = self.bucket(class, flow);
        let mut before = self.buckets[bucket];
        if before == source {
            self.buckets[bucket] = next;
        } else {
            while self.entries[before.row()].next != source {
                before = self.entries[before.row()].next;
            }
            self.entries[before.row()].next = next;
        }
        self.entries[source.row()].next = core::mem::replace(&mut self.free, source);
    }
}

/// Gives a request the last turn.
#[inline]
fn append_turn(tickets: &mut Tickets, queue: &mut SubQueue, index: u32) {
    let last = core::mem::replace(&mut queue.last, index);
    if last == NONE {
        queue.head = index;
    } else {
        tickets[last].turn_after = index;
    }
    (tickets[index].turn_before, tickets[index].turn_after) = (last, NONE);
}

/// Takes the turn from a request.
#[inline]
fn remove_turn(tickets: &mut Tickets, queue: &mut SubQueue, index: u32) {
    let (before, after) = (tickets[index].turn_before, tickets[index].turn_after);
    if before == NONE {
        queue.head = after;
    } else {
        tickets[before].turn_after = after;
    }
    if after == NONE {
        queue.last = before;
    } else {
        tickets[after].turn_before = before;
    }
}

/// Gives the turn of `index` to `heir`.
fn replace_turn(tickets: &mut Tickets, queue: &mut SubQueue, index: u32, heir: u32) {
    let (before, after) = (tickets[index].turn_before, tickets[index].turn_after);
    (tickets[heir].turn_before, tickets[heir].turn_after) = (before, after);
    if before == NONE {
        queue.head = heir;
    } else {
        tickets[before].turn_after = heir;
    }
    if after == NONE {
        queue.last = heir;
    } else {
        tickets[after].turn_before = heir;
    }
}
