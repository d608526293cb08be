//! Stage *queue*: where a request waits.
//!
//! One first-in-first-out queue per class, a doubly linked list through the ticket slab, so that a
//! client that leaves frees its place at once wherever it stands: O(1) to enqueue, dequeue, cancel.
//! Bounds per class, per source inside a class, and over all queues.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::policy::QueueBounds;
use crate::request::ShedReason;
use crate::ticket::{NONE, Tickets};

/// One class's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) head: u32,
    tail: u32,
    pub(crate) len: u32,
}

impl Queue {
    pub(crate) const EMPTY: Queue = Queue { head: NONE, tail: NONE, len: 0 };
}

/// What all queues share.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// Requests waiting in all queues.
    pub(crate) waiting: u32,
    max_waiting: u32,
    /// Requests waiting per class and source, kept only for classes that bound it.
    flows: HashMap<(u32, u64), u32, BuildHasherDefault<FlowHasher>>,
}

impl Queues {
    pub(crate) fn new(max_waiting: u32) -> Queues {
        Queues { waiting: 0, max_waiting, flows: HashMap::default() }
    }

    /// Is there a place for one more of this class and source?
    pub(crate) fn room(&self, class: u32, flow: u64, queue: &Queue, bounds: QueueBounds) -> Result<(), ShedReason> {
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

    /// Appends a ticket. True if it is the new head.
    pub(crate) fn push(&mut self, tickets: &mut Tickets, queue: &mut Queue, index: u32, bounds: QueueBounds) -> bool {
        tickets[index].prev = queue.tail;
        tickets[index].next = NONE;
        if queue.tail == NONE {
            queue.head = index;
        } else {
            tickets[queue.tail].next = index;
        }
        queue.tail = index;
        queue.len += 1;
        self.waiting += 1;
        if bounded(bounds) {
            *self.flows.entry((tickets[index].class, tickets[index].flow)).or_insert(0) += 1;
        }
        queue.head == index
    }

    /// Takes a ticket out, wherever it stands. True if it was the head.
    pub(crate) fn unlink(&mut self, tickets: &mut Tickets, queue: &mut Queue, index: u32, bounds: QueueBounds) -> bool {
        let (prev, next) = (tickets[index].prev, tickets[index].next);
        let was_head = queue.head == index;
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
        if bounded(bounds) {
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
