//! The gateway's clock: time as the engine counts it.

use weirgate_engine::Time;

/// Monotonic clock with its origin at the start of the gateway.
#[derive(Clone, Copy, Debug)]
pub struct Clock(weirgate_clock::Clock);

impl Clock {
    /// Creates a clock that starts now.
    pub fn start() -> Clock {
        Clock(weirgate_clock::Clock::start())
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.now().as_nanos()).unwrap_or(u64::MAX))
    }
}
