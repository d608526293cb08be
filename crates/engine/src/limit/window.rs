//! A window of requests in flight: what all methods of load control have in common.

use crate::request::{Moved, Why};
use crate::scheduler::Standing;
use crate::time::Time;

/// The window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Requests that may be in flight; `u32::MAX` is no limit.
    pub(crate) size: u32,
    /// Owed requests that may be in flight, if these are more.
    pub(crate) reach: u32,
    pub(crate) in_flight: u32,
    /// Those of them that were released as surplus, if the method tells surplus apart.
    pub(crate) surplus: u32,
    /// Requests in flight beyond the bounds of their machines, which hang or were bounded since.
    pub(crate) stuck: u32,
    /// Did it hold a request back since the last step?
    pub(crate) held_back: bool,
    pub(crate) moved: Moved,
}

impl Window {
    pub(crate) fn new(now: Time, size: u32) -> Window {
        let moved = Moved { at: now, from: size, to: size, why: Why::First };
        Window { size, reach: 0, in_flight: 0, surplus: 0, stuck: 0, held_back: false, moved }
    }

    /// Has it room for one more? Surplus has what is left of the size. What is owed is bounded by itself, so that
    /// surplus that stays long cannot keep it out. What a guarantee needs is let in anyhow.
    #[inline]
    pub(crate) fn has_room(&self, standing: Standing) -> bool {
        let counted = self.in_flight.saturating_sub(self.stuck);
        match standing {
            Standing::Surplus => counted < self.size,
            Standing::Owed => counted < self.size || self.owed() < self.size.max(self.reach),
            Standing::Needed => true,
        }
    }

    /// Owed requests in flight.
    #[inline]
    pub(crate) fn owed(&self) -> u32 {
        self.in_flight.saturating_sub(self.surplus).saturating_sub(self.stuck)
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        (self.size != u32::MAX).then_some(self.size)
    }

    pub(crate) fn set(&mut self, now: Time, size: u32, why: Why) {
        self.moved = Moved { at: now, from: self.size, to: size, why };
        self.size = size;
    }
}
