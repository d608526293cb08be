//! Waiting classes in order: one heap for each sub-queue of each partition.
//!
//! A partition without room for a sub-queue is skipped without touching its classes. A class that may not be
//! released is skipped without touching those behind it. So a choice costs O(partitions + log classes) and one
//! more step for each class that is skipped.

use super::{SchedulerView, Standing};
use crate::heap::Heaps;
use crate::index::{Id, PartitionId};
use crate::request::ClassId;

/// Waiting sub-queues, each with a key. The smallest key is next.
#[derive(Clone, Debug)]
pub(super) struct Waiting<K> {
    heaps: Heaps<K>,
    sub_queues: usize,
}

impl<K: Copy + PartialOrd> Waiting<K> {
    pub(super) fn new(partitions: usize, classes: usize, sub_queues: usize) -> Waiting<K> {
        Waiting { heaps: Heaps::new(partitions * sub_queues, classes * sub_queues), sub_queues }
    }

    /// Makes room for classes below `classes`.
    pub(super) fn grow(&mut self, classes: usize) {
        self.heaps.grow(classes * self.sub_queues);
    }

    #[inline]
    fn item(&self, class: ClassId, sub_queue: usize) -> u32 {
        class.0 * self.sub_queues as u32 + sub_queue as u32
    }

    #[inline]
    fn heap(&self, partition: PartitionId, sub_queue: usize) -> usize {
        partition.row() * self.sub_queues + sub_queue
    }

    /// Adds a waiting sub-queue or changes its key.
    #[inline]
    pub(super) fn set(&mut self, partition: PartitionId, class: ClassId, sub_queue: usize, key: K) {
        self.heaps.set(self.heap(partition, sub_queue), self.item(class, sub_queue), key);
    }

    /// Removes a sub-queue that no longer waits.
    #[inline]
    pub(super) fn remove(&mut self, partition: PartitionId, class: ClassId, sub_queue: usize) {
        self.heaps.remove(self.heap(partition, sub_queue), self.item(class, sub_queue));
    }

    #[inline]
    pub(super) fn contains(&self, class: ClassId, sub_queue: usize) -> bool {
        self.heaps.contains(self.item(class, sub_queue))
    }

    /// Whether a class of the partition waits in this sub-queue.
    #[inline]
    pub(super) fn any(&self, partition: PartitionId, sub_queue: usize) -> bool {
        self.heaps.peek(self.heap(partition, sub_queue)).is_some()
    }

    /// The first sub-queue that may be released in this standing, with its key.
    pub(super) fn first(&self, view: &SchedulerView<'_>, standing: Standing) -> Option<(K, (ClassId, usize))> {
        let mut best: Option<&(K, u32)> = None;
        for (heap, top) in self.heaps.tops() {
            if best.is_some_and(|best| best <= top) {
                continue;
            }
            let found = if view.room(PartitionId::of(heap / self.sub_queues), heap % self.sub_queues, standing) {
                let admits = |item: u32| {
                    let (class, sub_queue) = self.split(item);
                    view.admits(class, sub_queue, standing)
                };
                if admits(top.1) { Some(top) } else { self.heaps.first_where(heap, admits) }
            } else {
                let exceeds = |item: u32| {
                    let (class, sub_queue) = self.split(item);
                    view.may_exceed(class, sub_queue, standing)
                };
                // The first class has the smallest share of its need. No other class overtakes it, but claims without
                // a guarantee hold up nobody.
                let in_turn = |item: u32| standing == Standing::Surplus || view.has_guarantee(self.split(item).0);
                let first = self.heaps.first_where(heap, |item| in_turn(item) || exceeds(item));
                first.filter(|(_, item)| exceeds(*item))
            };
            if let Some(found) = found
                && best.is_none_or(|best| found < best)
            {
                best = Some(found);
            }
        }
        best.map(|(key, item)| (*key, self.split(*item)))
    }

    #[inline]
    fn split(&self, item: u32) -> (ClassId, usize) {
        match self.sub_queues {
            1 => (ClassId(item), 0),
            subs => (ClassId(item / subs as u32), item as usize % subs),
        }
    }
}
