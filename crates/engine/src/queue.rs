//! Stage *queue*: the waiting requests.
//!
//! Each class has one queue, fair among the sources of its requests: see [`sources`]. The requests of one source
//! leave in order of arrival. So do requests of different sources, as long as each source has one. Late requests leave
//! after all others ([`crate::late`]). A request that its client cancels frees its slot at once, wherever it stands.
//! Enqueue, dequeue and cancel are O(1), or O(log sources) for a source with several waiting requests. Bounds apply
//! per class, per source within a class, and over all queues.
//!
//! A doubly linked list through the ticket slab keeps all requests in order of arrival, because the oldest is the
//! first to be dropped for its wait, even if another one has the turn. The list is in order of
//! arrival times except for requests that were put back. Those are also kept in a heap, ordered by the end
//! of their maximum wait.
//!
//! Where a discipline knows the costs of requests (see `demand`), the queue of a class has a *sub-queue* for
//! each resource, chosen by the tendency of the request, as in mQoS (Feng and Lin, Sec. 3.2: m classes and n
//! resources make m·n queues). A request that waits for the disk does not stand behind one that waits for
//! the processor. All other disciplines have one sub-queue, and one for late requests.
//!
//! Methods that use SEDA priorities see the queues of a pool as one (SEDA's queue of a stage): the number of
//! waiting requests per priority.

mod sources;
#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::demand::RESOURCES;
use crate::heap::Heaps;
use crate::index::{Id, PartitionId};
use crate::policy::{Policy, QueueBounds};
use crate::request::{ClassId, ShedReason};
use crate::ticket::{NONE, Tickets};
use crate::time::Time;

use sources::Sources;

pub(crate) use sources::{SourceId, Turn};

/// The sub-queue of late requests ([`crate::late`]), where the queue of a class has only one other.
pub(crate) const LATE: usize = RESOURCES - 1;

/// One class's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) sub_queues: [SubQueue; RESOURCES],
    /// Length of all sub-queues together.
    pub(crate) len: u32,
}

/// Waiting requests, in order of arrival and in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubQueue {
    /// The request that has the turn.
    pub(crate) head: u32,
    /// The request with the last turn: the oldest one of its source.
    last: u32,
    /// The first request in order of arrival.
    pub(crate) oldest: u32,
    newest: u32,
    pub(crate) len: u32,
    /// Number of sources that wait here, and of those with several requests.
    sources: u32,
    crowds: u32,
}

impl Queue {
    pub(crate) const EMPTY: Queue = {
        let empty = SubQueue { head: NONE, last: NONE, oldest: NONE, newest: NONE, len: 0, sources: 0, crowds: 0 };
        Queue { sub_queues: [empty; RESOURCES], len: 0 }
    };

    /// The request of a sub-queue that is released next, or [`NONE`]. Late requests come after all others.
    #[inline]
    pub(crate) fn head(&self, sub_queue: usize, has_late: bool) -> u32 {
        let head = self.sub_queues[sub_queue].head;
        if head == NONE && has_late { self.sub_queues[LATE].head } else { head }
    }

    /// The request that has waited longest, or [`NONE`]. Compares arrival times, because a request that was put
    /// back has a late sequence number and an early arrival.
    pub(crate) fn oldest(&self, tickets: &Tickets) -> u32 {
        let heads = self.sub_queues.iter().map(|sub| sub.oldest).filter(|oldest| *oldest != NONE);
        heads.min_by_key(|oldest| tickets[*oldest].arrived).unwrap_or(NONE)
    }
}

/// State shared by all queues.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// Requests waiting in all queues.
    pub(crate) waiting: u32,
    max_waiting: u32,
    sources: Sources,
    /// The class with a request that has the place of another one of its class, which is dropped next.
    displaced: Option<ClassId>,
    /// Number of sub-queues in every class's queue.
    pub(crate) sub_queues: usize,
    /// Waiting classes by the instant at which their oldest request is dropped.
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
        Queues {
            waiting: 0,
            max_waiting: policy.max_waiting,
            sources: Sources::new(classes),
            displaced: None,
            sub_queues: policy.sub_queues(),
            expiry: Heaps::new(1, classes),
            behind: Heaps::new(1, 0),
            by_priority: vec![0; partitions * priorities],
            priorities,
        }
    }

    /// Makes room for classes below `classes`.
    pub(crate) fn grow(&mut self, classes: usize) {
        self.expiry.grow(classes);
        self.sources.grow(classes);
    }

    /// Whether late requests wait in a sub-queue of their own.
    #[inline]
    pub(crate) fn has_late(&self) -> bool {
        self.sub_queues == 1
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

    /// The source of a class with this hash, if requests of it wait.
    #[inline]
    pub(crate) fn source(&self, class: ClassId, flow: u64) -> Option<SourceId> {
        self.sources.find(class, flow)
    }

    /// Refuses a request if its source, its class or the total of all queues is full.
    pub(crate) fn room(&self, queue: &Queue, source: Option<SourceId>, bounds: QueueBounds) -> Result<(), ShedReason> {
        let bounded = bounds.max_waiting_per_flow < bounds.max_waiting;
        if bounded && self.sources.waiting(source) >= bounds.max_waiting_per_flow {
            return Err(ShedReason::FlowFull);
        }
        if queue.len >= bounds.max_waiting {
            return Err(ShedReason::QueueFull);
        }
        if self.waiting >= self.max_waiting {
            return Err(ShedReason::TotalFull);
        }
        Ok(())
    }

    /// Whether a request that was refused because too many wait may take the place of another one: the newest
    /// request of the source of its class that has most, if that source has more even without it. Only one
    /// request can be displaced at a time. `code` is the SEDA priority of the new request.
    #[cold]
    pub(crate) fn displaces(
        &self,
        tickets: &Tickets,
        class: ClassId,
        source: Option<SourceId>,
        (reason, code): (ShedReason, u32),
    ) -> bool {
        let crowded = matches!(reason, ShedReason::QueueFull | ShedReason::TotalFull | ShedReason::Threshold);
        crowded
            && self.displaced.is_none()
            && self.sources.longest(class).is_some_and(|longest| {
                // Both would otherwise have as many, and nothing is gained.
                self.sources.waiting(Some(longest)) > self.sources.waiting(source) + 1
                    && tickets[self.sources.newest(tickets, longest)].code == code
            })
    }

    /// Marks a class from which one request is dropped next.
    pub(crate) fn displace(&mut self, class: ClassId) {
        self.displaced = Some(class);
    }

    /// A request of the class has left its queue in the meantime. None is displaced there any more.
    pub(crate) fn left(&mut self, class: ClassId) {
        if self.displaced == Some(class) {
            self.displaced = None;
        }
    }

    /// The request that was displaced.
    pub(crate) fn displaced(&self, tickets: &Tickets) -> Option<u32> {
        let longest = self.sources.longest(self.displaced?)?;
        Some(self.sources.newest(tickets, longest))
    }

    /// Number of requests that have their turn before a new one of this source, at most: each other source
    /// comes as often as the new request's own.
    pub(crate) fn ahead(&self, queue: &Queue, sub_queue: usize, source: Option<SourceId>) -> u32 {
        let sub = &queue.sub_queues[sub_queue];
        let own = self.sources.waiting_in(source, sub_queue);
        let (others, crowds) = (sub.sources - u32::from(own > 0), sub.crowds - u32::from(own > 1));
        sub.len.min((own + others).saturating_add(crowds.saturating_mul(own)))
    }

    /// Appends a ticket to its sub-queue. `source` is its source, if requests of it wait. Returns true if it
    /// becomes the head.
    pub(crate) fn push(
        &mut self,
        tickets: &mut Tickets,
        queue: &mut Queue,
        (index, source): (u32, Option<SourceId>),
        bounds: Bounds,
    ) -> bool {
        queue.len += 1;
        let queue = &mut queue.sub_queues[usize::from(tickets[index].sub_queue)];
        tickets[index].prev = queue.newest;
        tickets[index].next = NONE;
        self.behind.grow(tickets.entries.len());
        if queue.newest == NONE {
            queue.oldest = index;
        } else {
            let (newest, arrived) = (queue.newest, tickets[index].arrived);
            if self.behind.contains(newest) || tickets[newest].arrived > arrived {
                // A request exactly at its deadline is still in time.
                self.behind.set(0, index, arrived + bounds.queue.max_wait + Duration::from_nanos(1));
            }
            tickets[newest].next = index;
        }
        queue.newest = index;
        queue.len += 1;
        self.waiting += 1;
        *self.count(bounds.partition, tickets[index].code) += 1;
        self.sources.enter(tickets, queue, index, source);
        queue.head == index
    }

    /// Removes a ticket, wherever it stands. `turn` says whether its source has had its turn. Returns true if
    /// it had the turn or was the oldest request of its sub-queue.
    pub(crate) fn unlink(
        &mut self,
        tickets: &mut Tickets,
        queue: &mut Queue,
        (index, turn): (u32, Turn),
        bounds: Bounds,
    ) -> bool {
        queue.len -= 1;
        let queue = &mut queue.sub_queues[usize::from(tickets[index].sub_queue)];
        let (prev, next) = (tickets[index].prev, tickets[index].next);
        let ranks = queue.head == index || queue.oldest == index;
        self.behind.remove(0, index);
        if prev == NONE {
            queue.oldest = next;
        } else {
            tickets[prev].next = next;
        }
        if next == NONE {
            queue.newest = prev;
        } else {
            tickets[next].prev = prev;
        }
        queue.len -= 1;
        self.waiting -= 1;
        *self.count(bounds.partition, tickets[index].code) -= 1;
        self.sources.leave(tickets, queue, index, turn);
        ranks
    }
}
