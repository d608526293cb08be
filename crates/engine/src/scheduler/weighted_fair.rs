//! [`crate::Precedence::WeightedFair`]: the window partitioned in proportion to the classes' weights.
//!
//! Source: Quorum Sec. 3.2. The window is partitioned in proportion to the classes' weights φ
//! (guaranteed throughput × expected cost); slots that a class does not claim go to the others. Shares
//! are of *slots*, not of rate: a class whose requests become more expensive keeps its part of the cluster and
//! loses throughput, not the others'.
//!
//! The paper names the properties (those of weighted fair queueing, applied to window sizes) and leaves
//! the arithmetic open. Here it is two steps.
//! 1. *Partition.* θ = W / Σφ over the classes with a claim (waiting or in flight). A class whose next slot
//!    lies within its part, (in flight + 1) ≤ φθ, goes first, smallest (in flight + 1)/φ before others: a class that
//!    loses a slot by a completion gets it back at once, which Sec. 3.3 relies on.
//! 2. *Surplus and fractions.* What remains are the fractions of slots that rounding leaves and the
//!    parts that no class claims. They go by start-time fair queueing in slot-seconds (see `fair`). So a class whose
//!    part is a tenth of a slot holds a slot a tenth of the time, and nothing with φ > 0 starves.
//!
//! Best-effort classes (φ = 0) get what no other class can use, in turns.

use super::fair::Fair;
use super::waiting::Waiting;
use super::{Claim, SchedulerView, Standing};
use crate::request::ClassId;

/// Rounding of θ and (in flight + 1)/φ may differ in the last bits; a part that is met exactly counts.
const EXACT: f64 = 1.0 + 1e-9;

/// The partition of the window and what it leaves.
#[derive(Clone, Debug)]
pub(crate) struct WeightedFair {
    /// Waiting classes with φ > 0 by (in flight + 1)/φ.
    partition: Waiting<(f64, u64)>,
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
            partition: waiting.clone(),
            surplus: waiting.clone(),
            best_effort: waiting,
            fair: Fair::new(classes),
            claimed: 0,
        }
    }

    pub(super) fn grow(&mut self, classes: usize) {
        self.partition.grow(classes);
        self.surplus.grow(classes);
        self.best_effort.grow(classes);
    }

    pub(super) fn waits(&mut self, view: &SchedulerView<'_>, claim: Claim) {
        let Claim { class, pool, sub_queue, head } = claim;
        let (state, tie) = (&view.classes[class], view.tickets[head].sequence);
        let start = self.fair.start_of(class);
        if state.weight == 0 {
            self.best_effort.set(pool, class, sub_queue, (start, tie));
            return;
        }
        let next = f64::from(state.in_flight + 1) / state.weight as f64;
        self.partition.set(pool, class, sub_queue, (next, tie));
        self.surplus.set(pool, class, sub_queue, (start, tie));
    }

    pub(super) fn gone(&mut self, class: ClassId, pool: usize, sub_queue: usize) {
        self.partition.remove(pool, class, sub_queue);
        self.surplus.remove(pool, class, sub_queue);
        self.best_effort.remove(pool, class, sub_queue);
    }

    pub(super) fn any(&self, pool: usize, sub_queue: usize) -> bool {
        [&self.partition, &self.surplus, &self.best_effort].iter().any(|waiting| waiting.any(pool, sub_queue))
    }

    pub(super) fn next(&self, view: &SchedulerView<'_>) -> Option<(ClassId, usize)> {
        let found = match self.partition.first(view, Standing::Owed) {
            // A partition of the window knows one window.
            Some(((key, _), found)) if key * self.claimed as f64 <= f64::from(view.window()) * EXACT => Some(found),
            Some(_) => self.surplus.first(view, Standing::Surplus).map(|(_, found)| found),
            None => None,
        };
        found.or_else(|| self.best_effort.first(view, Standing::Surplus).map(|(_, found)| found))
    }
}
