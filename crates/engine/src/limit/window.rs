//! A window of requests in flight, common to all methods of load control.

use crate::learned::Answered;
use crate::request::{Moved, Why};
use crate::scheduler::Standing;
use crate::time::Time;

/// Part of a window that is left to classes without a guarantee, however many owed requests are in flight. It makes the
/// requests of the others a twentieth longer at most. Windows of fewer than twenty leave nothing: with one slot at
/// least, 9 of 60 runs with small pools of workers miss something instead of 6.
pub(super) const REST: f64 = 0.05;

/// The window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Maximum number of requests in flight. `u32::MAX` is no limit.
    pub(crate) size: u32,
    /// Maximum number of owed requests in flight, if it is larger than `size`.
    pub(crate) reach: u32,
    pub(crate) in_flight: u32,
    /// Number of requests in flight that were released as surplus, if the method tells surplus apart.
    pub(crate) surplus: u32,
    /// Number of requests in flight beyond the bounds of their machines. They hang, or the bounds have fallen
    /// since.
    pub(crate) stuck: u32,
    /// Whether it held a request back since the last step.
    pub(crate) held_back: bool,
    pub(crate) moved: Moved,
    /// Time of the last good answer to one of its requests, here or in the engine that this one has learned from.
    pub(crate) answered: Answered,
}

impl Window {
    pub(crate) fn new(now: Time, size: u32) -> Window {
        let moved = Moved { at: now, from: size, to: size, why: Why::First };
        Window {
            size,
            reach: 0,
            in_flight: 0,
            surplus: 0,
            stuck: 0,
            held_back: false,
            moved,
            answered: Answered::NEVER,
        }
    }

    /// Returns whether it has room for one more request. Surplus gets the rest of the size. Owed requests
    /// have a bound of their own, so that long surplus cannot keep them out. Requests that a guarantee needs
    /// are always admitted.
    #[inline]
    pub(crate) fn has_room(&self, standing: Standing) -> bool {
        let counted = self.in_flight.saturating_sub(self.stuck);
        match standing {
            Standing::Surplus => counted < self.size,
            Standing::Owed => counted < self.size || self.owed() < self.size.max(self.reach),
            Standing::Needed => true,
        }
    }

    /// Returns whether owed requests alone fill it, and one more request of surplus stays within [`REST`] of it.
    #[inline]
    pub(crate) fn keeps_rest_out(&self) -> bool {
        self.owed() >= self.size && f64::from(self.surplus + 1) <= REST * f64::from(self.size)
    }

    /// Returns the number of owed requests in flight.
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
