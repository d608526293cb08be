//! [`crate::Precedence::Fifo`]: arrival order over all classes.

use super::waiting::Waiting;
use super::{Claim, SchedulerView, Standing};
use crate::request::ClassId;

/// Sub-queues by the arrival number of their heads.
#[derive(Clone, Debug)]
pub(crate) struct Fifo {
    pub(super) waiting: Waiting<(f64, u64)>,
}

impl Fifo {
    pub(super) fn new(waiting: Waiting<(f64, u64)>) -> Fifo {
        Fifo { waiting }
    }

    pub(super) fn waits(&mut self, view: &SchedulerView<'_>, claim: Claim) {
        let Claim { class, partition, sub_queue, head } = claim;
        let sequence = view.tickets[head].sequence;
        self.waiting.set(partition, class, sub_queue, (sequence as f64, sequence));
    }

    pub(super) fn next(&self, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        self.waiting.first(view, Standing::Owed).map(|(_, found)| found)
    }
}
