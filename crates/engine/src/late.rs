//! Late requests: owed requests that can no longer be in time, and that the guaranteed statistic leaves room for.
//!
//! Source: our own. A guarantee of a p95 allows one answer in twenty to be late, and a guarantee of a mean allows some
//! answers to be late if others are early. After a pause of all nodes, or a burst, the requests that have waited too
//! long are therefore not refused but put behind the others of their class. They wait in a sub-queue of their own,
//! which has its turn only while no other request of the class waits. In the one queue, each of them would make those
//! behind it late as well.
//!
//! How many may wait there is a question for stage *admit*
//! ([`Admission::takes_late`](crate::admission::Admission::takes_late)). Policies with a page table have no such
//! sub-queue, because a class has a queue for each resource there.

use crate::admission::PATIENCE;
use crate::engine::Engine;
use crate::queue::{LATE, Turn};
use crate::request::{ClassId, ShedReason};
use crate::ticket::RequestState;
use crate::time::Time;

impl Engine {
    /// Returns the first request of a class that is dropped, with the time and the reason.
    pub(crate) fn first_drop(&mut self, now: Time, class: ClassId) -> (Time, ShedReason, u32) {
        let queue = &self.classes[class].queue;
        let [others, late] = [queue.sub_queues[0].oldest, queue.sub_queues[LATE].oldest];
        let both = self.queues.has_late() && queue.sub_queues[LATE].len > 0 && queue.sub_queues[0].len > 0;
        if !both {
            let oldest = queue.oldest(&self.tickets);
            let (due, reason) = self.drop_at(now, oldest);
            return (due, reason, oldest);
        }
        let [first, second] = [others, late].map(|index| {
            let (due, reason) = self.drop_at(now, index);
            (due, reason, index)
        });
        if first.0 <= second.0 { first } else { second }
    }

    /// Returns whether a waiting request is among the late ones of its class.
    #[inline]
    pub(crate) fn is_late(&self, index: u32) -> bool {
        self.queues.has_late() && usize::from(self.tickets[index].sub_queue) == LATE
    }

    /// Returns the time at which a late request is dropped.
    pub(crate) fn late_until(&self, index: u32) -> Time {
        let RequestState { class, arrived, .. } = self.tickets[index];
        let spec = self.classes.spec(class);
        let patience = spec.guarantee.response_time.map(|promised| promised.limit.saturating_mul(PATIENCE));
        arrived + patience.map_or(spec.queue.max_wait, |patience| patience.min(spec.queue.max_wait))
    }

    /// Puts an owed request that can no longer be in time behind all others of its class, if the guaranteed statistic
    /// leaves room for it. Returns whether it does.
    pub(crate) fn puts_late(&mut self, index: u32) -> bool {
        let RequestState { class, owed, adopted, flow, .. } = self.tickets[index];
        if !owed || adopted || !self.queues.has_late() || self.is_late(index) {
            return false;
        }
        if !self.admission.takes_late(class) {
            return false;
        }
        self.dequeue(index, Turn::Kept);
        self.tickets[index].sub_queue = LATE as u8;
        let (bounds, source) = (self.bounds(class), self.queues.source(class, flow));
        self.queues.push(&mut self.tickets, &mut self.classes[class].queue, (index, source), bounds);
        self.rank(class);
        true
    }
}
