//! A timer of the kernel, which wakes a task of a runtime without a timer of its own.
//!
//! The timer of the runtime costs about 600 instructions each time that a thread waits for sockets, used or not: it
//! reads the clock twice and searches its wheel. That is a twentieth of a request. A data thread has only two times to
//! wait for, the next tick of its [`crate::timer`] and the engine's next timeout, so each of them has a descriptor
//! (`timerfd_create(2)`) among the sockets.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

/// Size of the buffer for the number of expirations, which has eight bytes. A read that does not fill its buffer tells
/// the runtime that no more is there, which saves a second one.
const ROOM: usize = 16;

/// A timer that one task waits for.
///
/// A timer is read like a pipe, and the runtime's type for pipes is its only safe one that watches any descriptor.
pub(crate) struct KernelTimer(Receiver);

impl KernelTimer {
    /// Creates a timer that the present runtime watches.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub(crate) fn new() -> io::Result<KernelTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Receiver::from_owned_fd_unchecked(fd).map(KernelTimer)
    }

    /// Waits for `span`, with the precision of the kernel. An earlier wait that was dropped leaves no trace.
    pub(crate) async fn sleep(&mut self, span: Duration) {
        self.set(span, Duration::ZERO);
        self.next().await;
    }

    /// Makes it ring every `interval` from now on, instead of an earlier setting.
    pub(crate) fn repeat(&self, interval: Duration) {
        self.set(interval, interval);
    }

    /// Waits until it rings. If it has rung several times since the last wait, they count as one.
    pub(crate) async fn next(&mut self) {
        // It fails only for a descriptor that is no timer.
        let _ = self.0.read(&mut [0; ROOM]).await;
    }

    /// Sets it to ring after `span`, and then at every `interval` unless it is zero.
    fn set(&self, span: Duration, interval: Duration) {
        // Zero would disarm the timer.
        let first = timespec(span.max(Duration::from_nanos(1)));
        let setting = Itimerspec { it_interval: timespec(interval), it_value: first };
        // Fails only for values that are out of range. It also takes back an expiration that was not read.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &setting);
    }
}

fn timespec(span: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX), tv_nsec: span.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_in_a_runtime_without_a_timer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let mut timer = KernelTimer::new().expect("a timer");
            let clock = weirgate_clock::Clock::start();
            timer.sleep(Duration::ZERO).await;
            timer.sleep(Duration::from_millis(3)).await;
            assert!(clock.now() >= Duration::from_millis(3));
        });
    }

    #[test]
    fn it_rings_again_and_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let mut timer = KernelTimer::new().expect("a timer");
            let clock = weirgate_clock::Clock::start();
            timer.repeat(Duration::from_millis(2));
            for _ in 0..5 {
                timer.next().await;
            }
            // Rings that are missed make it later, never earlier.
            assert!(clock.now() >= Duration::from_millis(10));
        });
    }

    #[test]
    fn a_wait_that_was_dropped_leaves_no_trace() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let (mut timer, mut other) = (KernelTimer::new().expect("a timer"), KernelTimer::new().expect("a timer"));
            tokio::select! {
                biased;
                () = timer.sleep(Duration::from_millis(1)) => panic!("a millisecond is over at once"),
                () = std::future::ready(()) => {}
            }
            // The dropped wait rings meanwhile.
            other.sleep(Duration::from_millis(5)).await;
            let clock = weirgate_clock::Clock::start();
            timer.sleep(Duration::from_millis(3)).await;
            assert!(clock.now() >= Duration::from_millis(3));
        });
    }
}
