//! Start-time fair queueing in slot-seconds.
//!
//! Source: Goyal, Vin and Cheng, *Start-time Fair Queuing* (SIGCOMM 1996). Each class has a virtual start
//! that advances by (slot-seconds used)/φ. The smallest is next. A release is charged its expected cost,
//! which is corrected when it ends.

use crate::index::Table;
use crate::request::ClassId;

/// Virtual starts of all classes.
#[derive(Clone, Debug)]
pub(super) struct Fair {
    virtual_start: Table<ClassId, f64>,
    /// Largest virtual start released so far: of classes with φ > 0, and of best-effort classes.
    virtual_time: [f64; 2],
}

impl Fair {
    pub(super) fn new(classes: usize) -> Fair {
        Fair { virtual_start: Table::filled(classes, 0.0), virtual_time: [0.0; 2] }
    }

    /// Adds a new class.
    pub(super) fn open(&mut self, class: ClassId) {
        self.virtual_start.put(class, 0.0);
    }

    #[inline]
    pub(super) fn start_of(&self, class: ClassId) -> f64 {
        self.virtual_start[class]
    }

    /// A class begins to send requests. It does not catch up on unused shares.
    #[inline]
    pub(super) fn begin(&mut self, class: ClassId, weight: u64) {
        let start = &mut self.virtual_start[class];
        *start = start.max(self.virtual_time[usize::from(weight == 0)]);
    }

    /// Charges a release with its expected cost.
    #[inline]
    pub(super) fn charge(&mut self, class: ClassId, weight: u64, seconds: f64) {
        let start = &mut self.virtual_start[class];
        let time = &mut self.virtual_time[usize::from(weight == 0)];
        *time = time.max(*start);
        *start += seconds / slots(weight);
    }

    /// Corrects a charge of `charged` slot-seconds to the actual use.
    #[inline]
    pub(super) fn settle(&mut self, class: ClassId, weight: u64, charged: f64, used: f64) {
        self.virtual_start[class] += (used - charged) / slots(weight);
    }
}

/// φ in slots. All best-effort classes have equal shares.
pub(super) fn slots(weight: u64) -> f64 {
    if weight == 0 { 1.0 } else { weight as f64 / 1e9 }
}
