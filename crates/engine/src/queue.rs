//! Stage *queue*: where a request waits.
//!
//! One first-in-first-out queue per class, a doubly linked list through the ticket slab, so that a
//! client that leaves frees its place at once wherever it stands: O(1) to enqueue, dequeue, cancel.
//! Bounds per class, per source inside a class, and over all queues.
//!
//! The head of a queue is its oldest request, but for those that were put back; these have their own places in a heap
//! of longest waits.
//!
//! Where a discipline knows what requests take (see `demand`), a class's queue has a *sub-queue* for each resource,
//! after the tendency of the request, as in mQoS (Feng and Lin, Sec. 3.2: m classes and n resources make m·n queues):
//! who waits for the disk does not stand behind who waits for the processor. Everywhere else there is one.
//!
//! Methods that look at tags see the queues of a pool as one (SEDA's queue of a stage): how many wait there, with
//! which tag.

use core::time::Duration;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::demand::RESOURCES;
use crate::heap::Heaps;
use crate::policy::{Policy, QueueBounds};
use crate::request::{ClassId, ShedReason};
use crate::ticket::{NONE, Tickets};
use crate::time::Time;

/// One class's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) sub_queues: [SubQueue; RESOURCES],
    /// Of all sub-queues together.
    pub(crate) len: u32,
}

/// Requests that wait one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubQueue {
    pub(crate) head: u32,
    tail: u32,
    pub(crate) len: u32,
}

impl Queue {
    pub(crate) const EMPTY: Queue =
        Queue { sub_queues: [SubQueue { head: NONE, tail: NONE, len: 0 }; RESOURCES], len: 0 };

    /// The head that has waited longest, or [`NONE`]. One that was put back has a late number and an early arrival.
    pub(crate) fn oldest(&self, tickets: &Tickets) -> u32 {
        let heads = self.sub_queues.iter().map(|sub| sub.head).filter(|head| *head != NONE);
        heads.min_by_key(|head| tickets[*head].arrived).unwrap_or(NONE)
    }
}

/// What all queues share.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// Requests waiting in all queues.
    pub(crate) waiting: u32,
    max_waiting: u32,
    /// Requests waiting per class and source, kept only for classes that bound it.
    flows: HashMap<(ClassId, u64), u32, BuildHasherDefault<FlowHasher>>,
    /// Sub-queues of every class's queue.
    pub(crate) sub_queues: usize,
    /// Waiting classes by the instant at which their head is dropped.
    pub(crate) expiry: Heaps<Time, ClassId>,
    /// Requests that stand behind younger ones, by the instant at which they have waited too long.
    behind: Heaps<Time>,
    /// Requests waiting per pool and tag.
    tagged: Vec<u32>,
    /// Tags, at least one.
    tags: usize,
}

/// What the queues need to know of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) pool: usize,
    pub(crate) queue: QueueBounds,
}

impl Queues {
    /// `pools` and `classes` say how many there are.
    pub(crate) fn new(policy: &Policy, pools: usize, classes: usize) -> Queues {
        let tags = policy.discipline.tags.len().max(1);
        let (max_waiting, sub_queues, expiry) = (policy.max_waiting, policy.sub_queues(), Heaps::new(1, classes));
        let (flows, behind, tagged) = (HashMap::default(), Heaps::new(1, 0), vec![0; pools * tags]);
        Queues { waiting: 0, max_waiting, flows, sub_queues, expiry, behind, tagged, tags }
    }

    /// The request that stands behind younger ones and is to be dropped first, and when.
    pub(crate) fn first_behind(&self) -> Option<(Time, u32)> {
        self.behind.peek(0)
    }

    /// How many wait in a pool with each tag.
    pub(crate) fn tagged(&self, pool: usize) -> &[u32] {
        &self.tagged[pool * self.tags..][..self.tags]
    }

    fn count(&mut self, pool: usize, code: u32) -> &mut u32 {
        &mut self.tagged[pool * self.tags + code as usize]
    }

    /// Is there a place for one more of this class and source?
    pub(crate) fn room(&self, class: ClassId, flow: u64, queue: &Queue, bounds: QueueBounds) -> Result<(), ShedReason> {
        if queue.len >= bounds.max_waiting {
            return Err(ShedReason::QueueFull);
        }
        if bounded(bounds) && self.flows.get(&(class, flow)).is_some_and(|n| *n >= bounds.max_waiting_per_flow) {
            return Err(ShedReason::FlowFull);
        }
        if self.waiting >= self.max_waiting {
            return Err(ShedReason::TotalFull);
        }
        Ok(())
    }

    /// Appends a ticket to its sub-queue. True if it is that one's new head.
    pub(crate) fn push(&mut self, tickets: &mut Tickets, queue: &mut Queue, index: u32, bounds: Bounds) -> bool {
        queue.len += 1;
        let queue = &mut queue.sub_queues[usize::from(tickets[index].sub_queue)];
        tickets[index].prev = queue.tail;
        tickets[index].next = NONE;
        self.behind.grow(tickets.entries.len());
        if queue.tail != NONE {
            let (tail, arrived) = (queue.tail, tickets[index].arrived);
            if self.behind.contains(tail) || tickets[tail].arrived > arrived {
                // Exactly on time is still in time.
                self.behind.set(0, index, arrived + bounds.queue.max_wait + Duration::from_nanos(1));
            }
        }
        if queue.tail == NONE {
            queue.head = index;
        } else {
            tickets[queue.tail].next = index;
        }
        queue.tail = index;
        queue.len += 1;
        self.waiting += 1;
        *self.count(bounds.pool, tickets[index].code) += 1;
        if bounded(bounds.queue) {
            *self.flows.entry((tickets[index].class, tickets[index].flow)).or_insert(0) += 1;
        }
        queue.head == index
    }

    /// Takes a ticket out, wherever it stands. True if it was the head of its sub-queue.
    pub(crate) fn unlink(&mut self, tickets: &mut Tickets, queue: &mut Queue, index: u32, bounds: Bounds) -> bool {
        queue.len -= 1;
        let queue = &mut queue.sub_queues[usize::from(tickets[index].sub_queue)];
        let (prev, next) = (tickets[index].prev, tickets[index].next);
        let was_head = queue.head == index;
        self.behind.remove(0, index);
        if prev == NONE {
            queue.head = next;
        } else {
            tickets[prev].next = next;
        }
        if next == NONE {
            queue.tail = prev;
        } else {
            tickets[next].prev = prev;
        }
        queue.len -= 1;
        self.waiting -= 1;
        *self.count(bounds.pool, tickets[index].code) -= 1;
        if bounded(bounds.queue) {
            let key = (tickets[index].class, tickets[index].flow);
            if let Some(count) = self.flows.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.flows.remove(&key);
                }
            }
        }
        was_head
    }
}

/// Does the bound per source ever bind? If not, nobody counts.
fn bounded(bounds: QueueBounds) -> bool {
    bounds.max_waiting_per_flow < bounds.max_waiting
}

/// Sources arrive as keyed hashes ([`crate::Arrival::flow`]), so mixing in the class is enough: who
/// does not know the driver's key cannot aim at one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct FlowHasher(u64);

impl Hasher for FlowHasher {
    /// High bits mixed into low ones: the table uses both ends.
    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
