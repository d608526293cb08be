//! A window of requests in flight: what all methods of load control have in common.

use crate::request::{Moved, Why};
use crate::time::Time;

/// The window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Requests that may be in flight; `u32::MAX` is no limit.
    pub(crate) size: u32,
    pub(crate) in_flight: u32,
    /// Did it hold a request back since the last step?
    pub(crate) held_back: bool,
    pub(crate) moved: Moved,
}

impl Window {
    pub(crate) fn new(now: Time, size: u32) -> Window {
        Window { size, in_flight: 0, held_back: false, moved: Moved { at: now, from: size, to: size, why: Why::First } }
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < self.size
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        (self.size != u32::MAX).then_some(self.size)
    }

    pub(crate) fn set(&mut self, now: Time, size: u32, why: Why) {
        self.moved = Moved { at: now, from: self.size, to: size, why };
        self.size = size;
    }
}
