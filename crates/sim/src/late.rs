//! Time limits of the gateway on an exchange with a node.
//!
//! All requests of a class have the same limits and time only moves forward, so the deadlines of one length
//! come in order. One first-in-first-out queue per length is enough, and no heap is needed. Entries of
//! answered requests stay in their queue, recognised by their stamps, until they reach its head. A queue is
//! therefore about as long as the number of requests in flight, even if a limit is ten minutes.

use std::collections::VecDeque;
use std::time::Duration;

/// The kind of time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// From sending a request to the first byte of the reply, once per attempt at a node.
    FirstByte,
    /// From release to the last byte, once per attempt of the client.
    Total,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: u64,
    pub(crate) slot: u32,
    /// The request's `attempt` or `life`, depending on the limit.
    pub(crate) stamp: u32,
}

/// Deadlines of one length.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) limit: Limit,
    length: u64,
    deadlines: VecDeque<Deadline>,
    /// Whether the agenda already has an entry for this queue at its first deadline or before.
    is_armed: bool,
}

/// One queue per limit and length in use.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) all: Vec<Queue>,
}

impl Queues {
    /// Returns the number of the queue for this limit and length.
    pub(crate) fn number(&mut self, limit: Limit, length: Duration) -> usize {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let found = self.all.iter().position(|queue| queue.limit == limit && queue.length == length);
        found.unwrap_or_else(|| {
            self.all.push(Queue { limit, length, deadlines: VecDeque::new(), is_armed: false });
            self.all.len() - 1
        })
    }
}

impl Queue {
    /// Adds a deadline. Returns the instant at which the queue must be checked, if no check is planned yet.
    pub(crate) fn push(&mut self, now: u64, slot: u32, stamp: u32, over: impl Fn(&Deadline) -> bool) -> Option<u64> {
        // Remove up to two entries for each one added. This takes bounded time and keeps the queue short.
        if self.deadlines.pop_front_if(|first| over(first)).is_some() {
            self.deadlines.pop_front_if(|first| over(first));
        }
        let at = now.saturating_add(self.length);
        self.deadlines.push_back(Deadline { at, slot, stamp });
        (!std::mem::replace(&mut self.is_armed, true)).then_some(at)
    }

    /// Returns the instant of the next check of the queue.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let first = self.deadlines.front().map(|deadline| deadline.at);
        self.is_armed = first.is_some();
        first
    }

    /// Removes and returns the next deadline that has passed. Skips deadlines of requests that are `over`.
    pub(crate) fn pop(&mut self, now: u64, over: impl Fn(&Deadline) -> bool) -> Option<Deadline> {
        while let Some(first) = self.deadlines.front().copied() {
            let is_over = over(&first);
            if !is_over && first.at > now {
                return None;
            }
            self.deadlines.pop_front();
            if !is_over {
                return Some(first);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_only_those_of_requests_under_way() {
        let mut queues = Queues::default();
        let number = queues.number(Limit::Total, Duration::from_nanos(10));
        assert_eq!(queues.number(Limit::Total, Duration::from_nanos(10)), number);
        assert_ne!(queues.number(Limit::FirstByte, Duration::from_nanos(10)), number);
        let queue = &mut queues.all[number];
        let pushed = [0, 1, 2, 5].map(|now| queue.push(now, now as u32, 7, |_| false));
        assert_eq!(pushed, [Some(10), None, None, None]);
        assert_eq!(queue.pop(9, |_| false), None);
        let taken = queue.pop(12, |deadline| deadline.slot == 0).map(|deadline| deadline.slot);
        assert_eq!((taken, queue.arm()), (Some(1), Some(12)));
        assert_eq!(queue.pop(12, |deadline| deadline.slot == 2), None);
        assert_eq!(queue.arm(), Some(15));
    }

    #[test]
    fn what_is_over_leaves_when_others_come() {
        let mut queues = Queues::default();
        let number = queues.number(Limit::Total, Duration::from_secs(600));
        let queue = &mut queues.all[number];
        for now in 0..1000 {
            queue.push(now, now as u32, 0, |deadline| u64::from(deadline.slot) + 20 < now);
        }
        assert!(queue.deadlines.len() <= 23, "{}", queue.deadlines.len());
    }
}
