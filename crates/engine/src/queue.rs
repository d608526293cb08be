//! Stage *queue*: the waiting requests.
//!
//! Each class has one first-in-first-out queue, a doubly linked list through the ticket slab. A request that
//! its client cancels frees its slot at once, wherever it stands. Enqueue, dequeue and cancel are O(1).
//! Bounds apply per class, per source within a class, and over all queues.
//!
//! The head of a queue is its oldest request, except for requests that were put back. Those are also kept in
//! a heap, ordered by the end of their maximum wait.
//!
//! Where a discipline knows the costs of requests (see `demand`), the queue of a class has a *sub-queue* for
//! each resource, chosen by the tendency of the request, as in mQoS (Feng and Lin, Sec. 3.2: m classes and n
//! resources make m·n queues). A request that waits for the disk does not stand behind one that waits for
//! the processor. All other disciplines have one sub-queue.
//!
//! Methods that use SEDA priorities see the queues of a pool as one (SEDA's queue of a stage): the number of
//! waiting requests per priority.

use core::time::Duration;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::demand::RESOURCES;
use crate::heap::Heaps;
use crate::index::{Id, PartitionId};
use crate::policy::{Policy, QueueBounds};
use crate::request::{ClassId, ShedReason};
use crate::ticket::{NONE, Tickets};
use crate::time::Time;

/// One class's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) sub_queues: [SubQueue; RESOURCES],
    /// Length of all sub-queues together.
    pub(crate) len: u32,
}

/// A linked list of waiting requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubQueue {
    pub(crate) head: u32,
    tail: u32,
    pub(crate) len: u32,
}

impl Queue {
    pub(crate) const EMPTY: Queue =
        Queue { sub_queues: [SubQueue { head: NONE, tail: NONE, len: 0 }; RESOURCES], len: 0 };

    /// The head that has waited longest, or [`NONE`]. Compares arrival times, because a request that was put
    /// back has a late sequence number and an early arrival.
    pub(crate) fn oldest(&self, tickets: &Tickets) -> u32 {
        let heads = self.sub_queues.iter().map(|sub| sub.head).filter(|head| *head != NONE);
        heads.min_by_key(|head| tickets[*head].arrived).unwrap_or(NONE)
    }
}

/// State shared by all queues.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// Requests waiting in all queues.
    pub(crate) waiting: u32,
    max_waiting: u32,
    /// Requests waiting per class and source, kept only for classes that bound it.
    flows: HashMap<(ClassId, u64), u32, BuildHasherDefault<FlowHasher>>,
    /// Number of sub-queues in every class's queue.
    pub(crate) sub_queues: usize,
    /// Waiting classes by the instant at which their head is dropped.
    pub(crate) expiry: Heaps<Time, ClassId>,
    /// Requests that stand behind younger ones, by the instant at which they have waited too long.
    behind: Heaps<Time>,
    /// Requests waiting per partition and SEDA priority.
    by_priority: Vec<u32>,
    /// Number of SEDA priorities, at least one.
    priorities: usize,
}

/// The facts about a class that the queues need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) partition: PartitionId,
    pub(crate) queue: QueueBounds,
}

impl Queues {
    /// Creates empty queues for `partitions` partitions and `classes` classes.
    pub(crate) fn new(policy: &Policy, partitions: usize, classes: usize) -> Queues {
        let priorities = policy.discipline.priorities.len().max(1);
        let (max_waiting, sub_queues, expiry) = (policy.max_waiting, policy.sub_queues(), Heaps::new(1, classes));
        let (flows, behind, by_priority) = (HashMap::default(), Heaps::new(1, 0), vec![0; partitions * priorities]);
        Queues { waiting: 0, max_waiting, flows, sub_queues, expiry, behind, by_priority, priorities }
    }

    /// Of the requests that stand behind younger ones, the first to be dropped, and its time.
    pub(crate) fn first_behind(&self) -> Option<(Time, u32)> {
        self.behind.peek(0)
    }

    /// Number of requests waiting in a partition, per SEDA priority.
    pub(crate) fn by_priority(&self, partition: PartitionId) -> &[u32] {
        &self.by_priority[partition.row() * self.priorities..][..self.priorities]
    }

    fn count(&mut self, partition: PartitionId, code: u32) -> &mut u32 {
        &mut self.by_priority[partition.row() * self.priorities + code as usize]
    }

    /// Refuses a request if its class, its source or the total of all queues is full.
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

    /// Appends a ticket to its sub-queue. Returns true if it becomes the head.
    pub(crate) fn push(&mut self, tickets: &mut Tickets, queue: &mut Queue, index: u32, bounds: Bounds) -> bool {
        queue.len += 1;
        let queue = &mut queue.sub_queues[usize::from(tickets[index].sub_queue)];
        tickets[index].prev = queue.tail;
        tickets[index].next = NONE;
        self.behind.grow(tickets.entries.len());
        if queue.tail != NONE {
            let (tail, arrived) = (queue.tail, tickets[index].arrived);
            if self.behind.contains(tail) || tickets[tail].arrived > arrived {
                // A request exactly at its deadline is still in time.
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
        *self.count(bounds.partition, tickets[index].code) += 1;
        if bounded(bounds.queue) {
            *self.flows.entry((tickets[index].class, tickets[index].flow)).or_insert(0) += 1;
        }
        queue.head == index
    }

    /// Removes a ticket, wherever it stands. Returns true if it was the head of its sub-queue.
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
        *self.count(bounds.partition, tickets[index].code) -= 1;
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

/// Whether the bound per source can ever bind. If not, sources are not counted.
fn bounded(bounds: QueueBounds) -> bool {
    bounds.max_waiting_per_flow < bounds.max_waiting
}

/// Hasher for sources. They arrive as keyed hashes ([`crate::Arrival::flow`]), so mixing in the class is
/// enough: without the driver's key an attacker cannot aim at one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct FlowHasher(u64);

impl Hasher for FlowHasher {
    /// Mixes high bits into low ones, because the table uses both ends.
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
