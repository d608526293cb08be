//! [`crate::Precedence::WeightedFair`]: partition of the window in proportion to the classes' weights.
//!
//! Source: Quorum Sec. 3.2. The window is partitioned in proportion to the classes' weights φ (guaranteed
//! throughput × expected cost). Slots that a class does not claim go to the others. Shares are shares of
//! *slots*, not of rate: if the requests of a class become more expensive, the class keeps its share of the
//! cluster and loses only its own throughput.
//!
//! The paper names the properties (those of weighted fair queueing, applied to window sizes) and leaves the
//! arithmetic open. It takes two steps here.
//! 1. *Partition.* θ = W / Σφ over the classes with a claim (waiting or in flight). A class goes first if
//!    its next slot lies within its share, (in flight + 1) ≤ φθ. The smallest (in flight + 1)/φ is first
//!    among these. A class that loses a slot by a completion gets it back at once, which Sec. 3.3 relies on.
//! 2. *Surplus and fractions.* The rest consists of the fractions of slots left by rounding and of unclaimed
//!    shares. It is assigned by start-time fair queueing in slot-seconds (see `fair`). So a class with a
//!    share of a tenth of a slot holds a slot a tenth of the time, and no class with φ > 0 starves.
//!
//! Best-effort classes (φ = 0) share the slots that no other class can use, in turn.

use super::fair::Fair;
use super::waiting::Waiting;
use super::{Claim, SchedulerView, Standing};
use crate::index::PartitionId;
use crate::request::ClassId;

/// Tolerance: θ and (in flight + 1)/φ may differ in the last bits by rounding, and a share that is reached
/// exactly counts.
const EXACT: f64 = 1.0 + 1e-9;

/// The partition of the window and its surplus.
#[derive(Clone, Debug)]
pub(crate) struct WeightedFair {
    /// Waiting classes with φ > 0 by (in flight + 1)/φ.
    entitled: Waiting<(f64, u64)>,
    /// The same classes by virtual start.
    surplus: Waiting<(f64, u64)>,
    /// Waiting classes with φ = 0 by virtual start.
    best_effort: Waiting<(f64, u64)>,
    pub(super) fair: Fair,
    /// Σφ over classes with a claim.
    pub(super) claimed: u64,
}

impl WeightedFair {
    pub(super) fn new(classes: usize, waiting: Waiting<(f64, u64)>) -> WeightedFair {
        WeightedFair {
            entitled: waiting.clone(),
            surplus: waiting.clone(),
            best_effort: waiting,
            fair: Fair::new(classes),
            claimed: 0,
        }
    }

    pub(super) fn grow(&mut self, classes: usize) {
        self.entitled.grow(classes);
        self.surplus.grow(classes);
        self.best_effort.grow(classes);
    }

    pub(super) fn waits(&mut self, view: &SchedulerView<'_>, claim: Claim) {
        let Claim { class, partition, sub_queue, head } = claim;
        let (state, tie) = (&view.classes[class], view.tickets[head].sequence);
        let start = self.fair.start_of(class);
        if state.weight == 0 {
            self.best_effort.set(partition, class, sub_queue, (start, tie));
            return;
        }
        let next = f64::from(state.in_flight + 1) / state.weight as f64;
        self.entitled.set(partition, class, sub_queue, (next, tie));
        self.surplus.set(partition, class, sub_queue, (start, tie));
    }

    pub(super) fn gone(&mut self, class: ClassId, partition: PartitionId, sub_queue: usize) {
        self.entitled.remove(partition, class, sub_queue);
        self.surplus.remove(partition, class, sub_queue);
        self.best_effort.remove(partition, class, sub_queue);
    }

    pub(super) fn any(&self, partition: PartitionId, sub_queue: usize) -> bool {
        [&self.entitled, &self.surplus, &self.best_effort].iter().any(|waiting| waiting.any(partition, sub_queue))
    }

    pub(super) fn next(&self, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let found = match self.entitled.first(view, Standing::Owed) {
            // A partitioned window is the only window.
            Some(((key, _), found)) if key * self.claimed as f64 <= f64::from(view.window()) * EXACT => Some(found),
            Some(_) => self.surplus.first(view, Standing::Surplus).map(|(_, found)| found),
            None => None,
        };
        found.or_else(|| self.best_effort.first(view, Standing::Surplus).map(|(_, found)| found))
    }
}
