//! The only source of time in this crate. (Randomness always comes from a seed.)
//!
//! Time is a count of nanoseconds of the machine's monotonic clock. The alarm wakes a poll loop at a given
//! instant. `epoll_wait` counts in milliseconds, which is an eighth of a request of 8 ms. On Linux the
//! alarm is therefore a `timerfd`, which is exact to some ten microseconds and costs one system call each
//! time the instant changes. On other systems the time-out of the poll call is used, with its lower precision.

#![allow(clippy::disallowed_methods, reason = "the crate's only source of time and sleep")]

use std::io;
use std::time::Duration;

use mio::{Events, Poll, Token};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Nanoseconds of the monotonic clock, with the same origin for every process of the machine.
pub fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap_or(0) * SECOND + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// `span` in nanoseconds, saturated to 64 bits.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Blocks the calling thread for `span`.
pub fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Timer that wakes a poll loop at an instant.
pub struct Alarm {
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
    /// Instant for which the timer is set, or `None` if it is not set.
    set: Option<u64>,
}

impl Alarm {
    /// An alarm that wakes `poll` with `token`.
    ///
    /// # Errors
    /// The system has no timer left.
    #[cfg(target_os = "linux")]
    pub fn new(poll: &Poll, token: Token) -> io::Result<Alarm> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // Edge-triggered: each new setting starts afresh, so the expiry count need never be read.
        poll.registry().register(&mut mio::unix::SourceFd(&timer.as_raw_fd()), token, mio::Interest::READABLE)?;
        Ok(Alarm { timer, set: None })
    }

    /// An alarm that wakes `poll` by the time-out of its poll call.
    ///
    /// # Errors
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub fn new(_: &Poll, _: Token) -> io::Result<Alarm> {
        Ok(Alarm { set: None })
    }

    /// Waits until something is ready or `at` has come. `None` waits for ever.
    ///
    /// # Errors
    /// Errors of the system's poll and timer calls. An interruption by a signal is not an error.
    pub fn wait(&mut self, poll: &mut Poll, events: &mut Events, at: Option<u64>) -> io::Result<()> {
        let timeout = match at {
            Some(at) if at <= now() => Some(Duration::ZERO),
            at => self.arm(at)?,
        };
        match poll.poll(events, timeout) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }

    #[cfg(target_os = "linux")]
    fn arm(&mut self, at: Option<u64>) -> io::Result<Option<Duration>> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // The timer for a past instant has already fired, so it is set again only for another instant.
        // Disarming it for `None` is not worth a system call: the cost of leaving it set is one idle wake-up.
        if let Some(at) = at
            && self.set != Some(at)
        {
            let it_value = Timespec { tv_sec: (at / SECOND).cast_signed(), tv_nsec: (at % SECOND).cast_signed() as _ };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
            self.set = Some(at);
        }
        Ok(None)
    }

    #[cfg(not(target_os = "linux"))]
    fn arm(&mut self, at: Option<u64>) -> io::Result<Option<Duration>> {
        self.set = at;
        Ok(at.map(|at| Duration::from_nanos(at.saturating_sub(now()))))
    }
}
