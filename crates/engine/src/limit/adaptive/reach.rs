//! How far owed requests may go beyond the window.
//!
//! Source: our own. What is owed is held back only by contention that has been *seen*: a queue in front of nodes that
//! have room serves no class. While a group is open, its reach grows by one for each completion that finds it used, as
//! the congestion window of TCP does in slow start (Jacobson 1988). So it doubles within a time in flight, and nodes
//! that hang, and complete nothing, cannot fill it. Once requests are seen to wait for one another ([`super::profile`],
//! or the elasticity of a swing) the group is closed: the window, which seeks the knee, bounds what is owed as well.
//!
//! By Little's law a class that keeps to g needs g × (time in flight) slots. Half of a limit is for that, so Σ g ×
//! limit/2 bounds the reach: a burst of all buckets at once would make every request late that comes behind it.
//!
//! It opens again if requests are seen not to wait for one another, or for a trial if times in flight change for
//! another reason. A trial doubles what is owed at most. If it shows contention it is over: the window is again what it
//! was before, and there is no other trial for a while, twice as long each time. The other way
//! round, a limit that is missed while a group is open raises a doubt: it is closed at half of what is in flight, which
//! shows whether times fall.

use core::time::Duration;

use crate::request::Contention;
use crate::time::Time;

/// How far what is owed may grow in a trial: a doubling shows contention, and is over within a time in flight.
const TRIAL: f64 = 2.0;

/// Requests on each machine that may be in flight before anything is known: a few for each processor. It doubles within
/// a time in flight.
const FIRST: f64 = 8.0;

/// First pause after a trial or a doubt that came to nothing, and the longest: a trial costs about two times in flight.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Weight of the latest answer in what classes showed, and the share of answers that decides, from -1 to 1: three of
/// four, and at least fourteen in a row.
const VOTE: f64 = 0.05;
const MAJORITY: f64 = 0.5;

/// The reach of one window.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    state: Contention,
    /// Since when it is in that state.
    since: Time,
    /// Owed requests that may be in flight while it is open.
    size: f64,
    /// Most of them that could be answered within their limits.
    most: f64,
    /// Most of them in a trial.
    trial: f64,
    /// What classes showed lately: 1 if all of it was contention, −1 if none of it.
    shown: f64,
    pause: Duration,
    next_trial: Time,
    next_doubt: Time,
}

impl Reach {
    pub(super) fn new(now: Time) -> Reach {
        Reach {
            state: Contention::Unseen,
            since: now,
            size: 0.0,
            most: f64::INFINITY,
            trial: 0.0,
            shown: 0.0,
            pause: PAUSE,
            next_trial: now,
            next_doubt: now,
        }
    }

    /// The machines of the group, as they are first known.
    pub(super) fn machines(&mut self, machines: u32) {
        if self.size == 0.0 {
            self.size = FIRST * f64::from(machines.max(1));
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state != Contention::Seen
    }

    /// Its state, and since when.
    pub(super) fn contention(&self) -> (Contention, Time) {
        (self.state, self.since)
    }

    /// Puts it into a state. Returns the one before.
    fn turn(&mut self, now: Time, state: Contention) -> Contention {
        if self.state != state {
            self.since = now;
        }
        core::mem::replace(&mut self.state, state)
    }

    /// Owed requests that may be in flight, whatever the window; 0 once contention has been seen.
    pub(super) fn size(&self) -> u32 {
        if self.is_open() { self.size.min(self.most).clamp(1.0, 1e9) as u32 } else { 0 }
    }

    /// Bounds it by what could be answered within limits.
    pub(super) fn bound(&mut self, most: f64) {
        self.most = most;
    }

    /// A good answer, while `owed` requests are in flight.
    #[inline]
    pub(super) fn completed(&mut self, owed: u32) {
        let most = if self.state == Contention::Trial { self.most.min(self.trial) } else { self.most };
        if self.is_open() && f64::from(owed) + 1.0 >= self.size && self.size < most {
            self.size += 1.0;
        }
    }

    fn paused(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }

    /// Times in flight have changed for another reason than contention. `used` are the window's size and the owed
    /// requests in flight: from there on it grows again. True if a trial begins.
    pub(super) fn changed(&mut self, now: Time, used: [u32; 2]) -> bool {
        let used = f64::from(used[0].max(used[1]));
        self.shown = 0.0;
        if self.is_open() {
            self.size = self.size.min(used);
            return false;
        }
        let begins = now >= self.next_trial;
        if begins {
            self.turn(now, Contention::Trial);
            (self.size, self.trial) = (used, TRIAL * used);
        }
        begins
    }

    /// A class showed that its requests wait for one another, or that they do not. Classes may contradict one another:
    /// a class whose own dependency slows down has more in flight the slower it is. Most of the latest answers decide.
    pub(super) fn shows(&mut self, contention: bool) -> Option<bool> {
        let shown = if contention { 1.0 } else { -1.0 };
        self.shown += VOTE * (shown - self.shown);
        (self.shown.abs() > MAJORITY).then_some(self.shown > 0.0)
    }

    /// Contention has been seen. Returns the state before: if it was unseen the window begins at the knee that was
    /// seen, after a trial at what it was before.
    pub(super) fn contended(&mut self, now: Time) -> Contention {
        let before = self.turn(now, Contention::Seen);
        if before != Contention::Seen {
            self.next_trial = now + self.paused();
        }
        before
    }

    /// Requests have been seen not to wait for one another. `window` is its size. True if it was closed.
    pub(super) fn free(&mut self, now: Time, window: u32) -> bool {
        let opens = !self.is_open();
        if opens {
            self.size = f64::from(window);
        }
        self.turn(now, Contention::Unseen);
        self.pause = PAUSE;
        opens
    }

    /// A limit is missed although nothing owed is held back. True if it is to be found out whether requests wait for
    /// one another.
    pub(super) fn doubts(&mut self, now: Time) -> bool {
        if !self.is_open() || now < self.next_doubt {
            return false;
        }
        self.next_doubt = now + self.paused();
        self.turn(now, Contention::Seen);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Time = Time::from_millis;

    #[test]
    fn it_doubles_within_a_time_in_flight_only_if_it_is_used() {
        let mut reach = Reach::new(AT(0));
        reach.machines(2);
        assert_eq!(reach.size(), 16);
        (0..16).for_each(|_| reach.completed(10));
        assert_eq!(reach.size(), 16);
        (0..16).for_each(|n| reach.completed(15 + n));
        assert_eq!(reach.size(), 32);
        reach.bound(20.0);
        assert_eq!(reach.size(), 20, "more could not be answered within limits");
    }

    #[test]
    fn a_trial_that_fails_is_not_repeated_for_twice_as_long() {
        let mut reach = Reach::new(AT(0));
        reach.machines(1);
        assert!(reach.contended(AT(10)) == Contention::Unseen && !reach.is_open() && reach.size() == 0);
        // That it was news is the first pause.
        let mut now = AT(10) + PAUSE;
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            assert!(reach.changed(now, [40, 3]) && reach.is_open() && reach.size() == 40);
            (0..100).for_each(|_| reach.completed(1000));
            assert_eq!(reach.size(), 80, "a trial doubles it at most");
            assert_eq!(reach.contended(now), Contention::Trial);
            assert!(!reach.changed(now + Duration::from_millis(seconds * 1000 - 1), [40, 3]), "after {seconds} s");
            now = now + Duration::from_secs(seconds);
        }
    }

    #[test]
    fn a_doubt_closes_it_and_freedom_opens_it() {
        let mut reach = Reach::new(AT(0));
        reach.machines(1);
        assert!(reach.doubts(AT(10)) && !reach.is_open());
        assert!(reach.free(AT(20), 50));
        assert!(reach.is_open() && reach.size() == 50);
        assert_eq!(reach.contention(), (Contention::Unseen, AT(20)));
        assert!(!reach.doubts(AT(500)), "it was asked a moment ago");
    }
}
