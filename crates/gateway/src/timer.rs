//! Deadlines of connections: one coarse timer per thread instead of one per phase of a request.
//!
//! This is a hashed wheel (Varghese and Lauck, *Hashed and hierarchical timing wheels*, SOSP 1987, scheme 5)
//! with lazy entries. Moving a deadline later costs nothing, and the old entry is corrected when it comes up.
//! A request changes its deadline four times. Its connection enters the wheel about once per shortest
//! deadline. Departure: entries further away than one turn come up early and are put back.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use weirgate_engine::Time;

use crate::clock::Clock;

/// Interval between two turns of the wheel. Limits are at least hundreds of milliseconds, and fifty wake-ups
/// a second have a negligible cost.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// Number of slots in the wheel. One turn takes about ten seconds, the usual deadline for a head.
const SLOTS: usize = 512;

/// The timer of one thread.
pub(crate) struct Timers {
    now: Cell<Time>,
    /// Whether `now` was read in the present turn of a task.
    exact: Cell<bool>,
    turned: Cell<u64>,
    slots: RefCell<Vec<Vec<WheelEntry>>>,
}

struct WheelEntry {
    alarm: Weak<Alarm>,
    due: Time,
}

/// Wakes one task at its due time, which can be changed.
#[derive(Debug)]
pub(crate) struct Alarm {
    due: Cell<Time>,
    /// Time of the earliest entry in the wheel.
    armed: Cell<Time>,
    waker: RefCell<Waker>,
}

impl Alarm {
    pub(crate) fn new() -> Rc<Alarm> {
        Rc::new(Alarm {
            due: Cell::new(Time::NEVER),
            armed: Cell::new(Time::NEVER),
            waker: RefCell::new(Waker::noop().clone()),
        })
    }

    /// Wakes the task now.
    pub(crate) fn wake(&self) {
        self.waker.borrow().wake_by_ref();
    }
}

impl Timers {
    pub(crate) fn new(now: Time) -> Timers {
        Timers {
            now: Cell::new(now),
            exact: Cell::new(false),
            turned: Cell::new(tick_of(now)),
            slots: RefCell::new((0..SLOTS).map(|_| Vec::new()).collect()),
        }
    }

    /// Returns the time, at most one tick old.
    pub(crate) fn now(&self) -> Time {
        self.now.get()
    }

    /// Updates the time with a more recent one that was obtained anyway.
    pub(crate) fn saw(&self, now: Time) {
        self.exact.set(true);
        if now > self.now.get() {
            self.now.set(now);
        }
    }

    /// Begins a turn of a task.
    pub(crate) fn begin_turn(&self) {
        self.exact.set(false);
    }

    /// Returns the time in this turn of a task. Reads the clock unless the turn has read it, because a turn takes
    /// microseconds.
    pub(crate) fn this_turn(&self, clock: Clock) -> Time {
        if !self.exact.get() {
            self.saw(clock.now());
        }
        self.now.get()
    }

    /// Sets `waker` to be woken at `due`. Replaces the previous setting.
    pub(crate) fn set(&self, alarm: &Rc<Alarm>, due: Time, waker: &Waker) {
        alarm.due.set(due);
        if !alarm.waker.borrow().will_wake(waker) {
            alarm.waker.replace(waker.clone());
        }
        if due < alarm.armed.get() {
            self.enter(alarm, due);
        }
    }

    /// Waits for `span`, and up to two ticks more.
    pub(crate) async fn sleep(&self, span: Duration) {
        self.within(span, std::future::pending::<()>()).await;
    }

    /// Waits for `work`, for at most `span` and up to two ticks more. Returns `None` if it takes longer.
    pub(crate) async fn within<T>(&self, span: Duration, work: impl Future<Output = T>) -> Option<T> {
        let (alarm, due) = (Alarm::new(), self.now() + span + TICK);
        let mut work = pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.now() >= due => Poll::Ready(None),
            Poll::Pending => {
                self.set(&alarm, due, cx.waker());
                Poll::Pending
            }
        })
        .await
    }

    fn enter(&self, alarm: &Rc<Alarm>, due: Time) {
        alarm.armed.set(due);
        // Never enter the slot that is being emptied now.
        let tick = tick_of(due).max(self.turned.get() + 1);
        let slot = usize::try_from(tick % SLOTS as u64).unwrap_or(0);
        if let Some(slot) = self.slots.borrow_mut().get_mut(slot) {
            slot.push(WheelEntry { alarm: Rc::downgrade(alarm), due });
        }
    }

    /// Advances to `now` and wakes the tasks that are due. Returns the number of woken tasks.
    pub(crate) fn turn(&self, now: Time) -> usize {
        self.saw(now);
        let until = tick_of(self.now.get());
        let from = self.turned.get() + 1;
        let mut woken = 0;
        // After a long sleep, one whole turn covers all slots.
        for tick in from.max((until + 1).saturating_sub(SLOTS as u64))..=until {
            self.turned.set(tick);
            let slot = usize::try_from(tick % SLOTS as u64).unwrap_or(0);
            let entries = self.slots.borrow_mut().get_mut(slot).map(std::mem::take).unwrap_or_default();
            for entry in entries {
                let Some(alarm) = entry.alarm.upgrade() else { continue };
                if alarm.armed.get() != entry.due {
                    // An earlier entry replaces this one.
                    continue;
                }
                alarm.armed.set(Time::NEVER);
                let due = alarm.due.get();
                if due <= self.now.get() {
                    alarm.due.set(Time::NEVER);
                    alarm.wake();
                    woken += 1;
                } else if due != Time::NEVER {
                    self.enter(&alarm, due);
                }
            }
        }
        woken
    }
}

/// Returns the tick to which `time` belongs.
fn tick_of(time: Time) -> u64 {
    time.as_nanos() / u64::try_from(TICK.as_nanos()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn an_alarm_rings_once_when_due_and_not_before() {
        let timers = Timers::new(at(0));
        let (alarm, count) = (Alarm::new(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        timers.set(&alarm, at(100), &waker);
        assert_eq!(timers.turn(at(90)), 0);
        assert_eq!(timers.turn(at(130)), 1);
        assert_eq!(timers.turn(at(60_000)), 0);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_turn_reads_the_clock_once() {
        let (timers, clock) = (Timers::new(at(0)), Clock::start());
        let first = timers.this_turn(clock);
        assert!(weirgate_clock::becomes_true(TICK, || clock.now() > first));
        assert_eq!(timers.this_turn(clock), first);
        timers.begin_turn();
        assert!(timers.this_turn(clock) > first);
        timers.begin_turn();
        timers.saw(at(1000));
        assert_eq!(timers.this_turn(clock), at(1000));
    }

    #[test]
    fn moving_it_later_costs_no_entry_and_earlier_rings_earlier() {
        let timers = Timers::new(at(0));
        let alarm = Alarm::new();
        let waker = Waker::noop();
        timers.set(&alarm, at(1000), waker);
        timers.set(&alarm, at(5000), waker);
        timers.set(&alarm, at(3000), waker);
        assert_eq!(timers.slots.borrow().iter().map(Vec::len).sum::<usize>(), 1);
        assert_eq!(timers.turn(at(2000)), 0);
        timers.set(&alarm, at(2500), waker);
        assert_eq!(timers.turn(at(2600)), 1);
        assert_eq!(timers.turn(at(10_000)), 0);
    }

    #[test]
    fn further_than_a_turn_and_after_a_long_sleep() {
        let timers = Timers::new(at(0));
        let (near, far) = (Alarm::new(), Alarm::new());
        timers.set(&near, at(50), Waker::noop());
        timers.set(&far, at(60_000), Waker::noop());
        assert_eq!(timers.turn(at(55_000)), 1);
        assert_eq!(timers.turn(at(59_000)), 0);
        assert_eq!(timers.turn(at(60_100)), 1);
    }

    #[test]
    fn a_wait_takes_at_least_its_time() {
        let timers = Timers::new(at(1000));
        let mut wait = pin!(timers.sleep(Duration::from_millis(50)));
        let mut work = pin!(timers.within(Duration::from_millis(50), std::future::ready(7)));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(work.as_mut().poll(&mut cx), Poll::Ready(Some(7)));
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert_eq!(timers.turn(at(1049)), 0);
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert_eq!(timers.turn(at(1100)), 1);
        assert!(wait.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let timers = Timers::new(at(0));
        let alarm = Alarm::new();
        timers.set(&alarm, at(50), Waker::noop());
        drop(alarm);
        assert_eq!(timers.turn(at(100)), 0);
        assert_eq!(timers.slots.borrow().iter().map(Vec::len).sum::<usize>(), 0);
    }
}
