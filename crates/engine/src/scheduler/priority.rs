//! [`crate::Precedence::Priority`]: the greatest SEDA priority first, in arrival order within it.
//!
//! Source: Le Baron and Elkan, Sec. 3.3: the priority queue that the paper describes and did not build.

use super::waiting::Waiting;
use super::{Claim, SchedulerView, Standing};
use crate::request::ClassId;

/// Sub-queues by the rank of their heads' SEDA priorities, then by arrival.
#[derive(Clone, Debug)]
pub(crate) struct Priority {
    pub(super) waiting: Waiting<(f64, u64)>,
}

impl Priority {
    pub(super) fn new(waiting: Waiting<(f64, u64)>) -> Priority {
        Priority { waiting }
    }

    pub(super) fn waits(&mut self, view: &SchedulerView<'_>, claim: Claim) {
        let Claim { class, partition, sub_queue, head } = claim;
        let head = &view.tickets[head];
        let rank = f64::from(view.policy.discipline.rank(head.code));
        self.waiting.set(partition, class, sub_queue, (-rank, head.sequence));
    }

    pub(super) fn next(&self, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        self.waiting.first(view, Standing::Owed).map(|(_, found)| found)
    }
}
