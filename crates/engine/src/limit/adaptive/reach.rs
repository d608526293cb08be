//! Reach: the number of owed requests that may be in flight beyond the window.
//!
//! Source: our own. Owed requests are held back only after contention has been *seen*, because a queue in
//! front of nodes with room serves no class. While a group is open, its reach grows by a third for each
//! completion that finds it used, as the congestion window of TCP grows in slow start (Jacobson 1988), but more
//! slowly. It therefore doubles in about two mean times in flight, and nodes that hang cannot fill it because they
//! complete nothing. Once requests are seen to wait for one another ([`super::profile`], or the elasticity of a cycle)
//! and their number still rises, the group is closed. The window, which seeks the knee, then bounds owed requests too.
//!
//! By Little's law a class that keeps to g needs g × (time in flight) slots. Half of a limit is for that
//! time, so Σ g × limit/2 bounds the reach: a burst of all buckets at once would make every later request
//! late.
//!
//! The group opens again if requests are seen not to wait for one another. It also opens for a trial if times
//! in flight change for another reason. A trial at most doubles the owed requests. If it shows contention it
//! ends: the window returns to its previous size, and the next trial has to wait, twice as long each time.
//! Conversely, a limit that is missed while a group is open raises a doubt. The group is then closed at half
//! of the number in flight, which shows whether times fall.

use core::time::Duration;

use crate::learned::{LearnedKnee, within};
use crate::limit::learned::AT_MOST;
use crate::request::Contention;
use crate::time::Time;

/// Maximum growth of owed requests in a trial. A doubling shows contention and takes one mean time in flight.
const TRIAL: f64 = 2.0;

/// Initial number of requests in flight on each machine: a few for each processor. It doubles in about two mean times
/// in flight.
const FIRST: f64 = 8.0;

/// Growth of the reach with an answer that finds it used. An answer tells of the number one time in flight ago. With a
/// whole slot for each answer this number has doubled by then: what was waiting enters as a crowd, all of it computes
/// at the same moment, and its answers close the group although there is room once it has spread. With a half, more
/// random slow databases cost floors than with a third. With a quarter or less a slow dependency does. A trial is
/// bounded, so it grows by a whole slot.
const GROWTH: f64 = 1.0 / 3.0;

/// First and longest pause after a trial or a doubt that failed, and after a raise that another class suffered from. A
/// trial costs about two mean times in flight.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Renewals of the requests in flight after which their number must still rise. With exponential times, nineteen of
/// twenty have been replaced then. With two of them 29 of 600 random scenarios missed instead of 22, and with five 25.
const LASTING: f64 = 3.0;

/// Time for which a change that nothing explains is a recent one. With ten seconds `api-gunicorn` loses more
/// guarantees.
const LATELY: Duration = Duration::from_secs(60);

/// Weight of the latest answer in the vote of the classes, and the majority that decides, from -1 to 1. It
/// takes three of four answers, and at least fourteen in a row.
const VOTE: f64 = 0.05;
const MAJORITY: f64 = 0.5;

/// A vote that was a sign of contention.
#[derive(Clone, Copy, Debug)]
struct Sign {
    /// Number in flight at that time.
    in_flight: u32,
    /// When the number must still rise, and when later signs are of another crowd.
    due: Time,
    until: Time,
}

/// The reach of one window.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    state: Contention,
    /// Time of the last change of `state`.
    since: Time,
    /// Owed requests that may be in flight while it is open.
    size: f64,
    /// Maximum number of owed requests that could be answered within their limits.
    max: f64,
    /// Maximum number of owed requests in a trial.
    trial: f64,
    /// Average of the latest evidence: 1 if all of it was contention, −1 if none of it was.
    shown: f64,
    pause: Duration,
    next_trial: Time,
    next_doubt: Time,
    /// The latest sign of contention.
    sign: Option<Sign>,
    /// Time of the latest change of times in flight that nothing explains.
    changed: Option<Time>,
}

impl Reach {
    pub(super) fn new(now: Time) -> Reach {
        Reach {
            state: Contention::Unseen,
            since: now,
            size: 0.0,
            max: f64::INFINITY,
            trial: 0.0,
            shown: 0.0,
            pause: PAUSE,
            next_trial: now,
            next_doubt: now,
            sign: None,
            changed: None,
        }
    }

    /// Sets the initial size by the machines of the group once they are known.
    pub(super) fn machines(&mut self, machines: u32) {
        if self.size == 0.0 {
            self.size = FIRST * f64::from(machines.max(1));
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state != Contention::Seen
    }

    /// Returns its state and the time since which it holds.
    pub(super) fn contention(&self) -> (Contention, Time) {
        (self.state, self.since)
    }

    /// Sets the state and returns the previous one.
    fn turn(&mut self, now: Time, state: Contention) -> Contention {
        if self.state != state {
            self.since = now;
        }
        core::mem::replace(&mut self.state, state)
    }

    /// Returns the number of owed requests that may be in flight whatever the window, or 0 once contention
    /// has been seen.
    pub(super) fn size(&self) -> u32 {
        if self.is_open() { self.size.min(self.max).clamp(1.0, 1e9) as u32 } else { 0 }
    }

    /// Takes over what another engine has seen. A reach for owed requests is bounded as a window is.
    pub(super) fn adopt(&mut self, now: Time, knee: &LearnedKnee, machines: u32) {
        let first = FIRST * f64::from(machines.max(1));
        self.turn(now, if knee.contended { Contention::Seen } else { Contention::Unseen });
        self.size = within(knee.reach, first, AT_MOST * first).unwrap_or(first);
        self.shown = 0.0;
        (self.pause, self.next_trial, self.next_doubt) = (PAUSE, now, now);
    }

    /// Bounds the reach by the number of requests that could be answered within limits.
    pub(super) fn bound(&mut self, max: f64) {
        self.max = max;
    }

    /// Learns from a successful answer while `owed` requests are in flight.
    #[inline]
    pub(super) fn completed(&mut self, owed: u32) {
        let (growth, max) = match self.state {
            Contention::Trial => (1.0, self.max.min(self.trial)),
            Contention::Unseen => (GROWTH, self.max),
            Contention::Seen => return,
        };
        if f64::from(owed) + 1.0 >= self.size && self.size < max {
            self.size += growth;
        }
    }

    fn paused(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }

    /// Handles a change of times in flight that the number in flight does not explain, but possibly (`explained`)
    /// another class that has become expensive. `used` holds the window's size and the owed requests in flight, from
    /// which it grows again. Returns whether a trial begins.
    pub(super) fn changed(&mut self, now: Time, explained: bool, used: [u32; 2]) -> bool {
        let used = f64::from(used[0].max(used[1]));
        self.shown = 0.0;
        if !explained {
            self.changed = Some(now);
        }
        if self.is_open() {
            self.size = self.size.min(used);
            return false;
        }
        let begins = !explained && now >= self.next_trial;
        if begins {
            self.turn(now, Contention::Trial);
            (self.size, self.trial) = (used, TRIAL * used);
        }
        begins
    }

    /// Returns whether times in flight have changed lately, and nothing explains it.
    pub(super) fn has_changed(&self, now: Time) -> bool {
        self.changed.is_some_and(|at| now.since(at) < LATELY)
    }

    /// Adds evidence of a class that its requests wait for one another, or do not. Classes may contradict one
    /// another, because a class with a slow dependency has more in flight the slower it is. The majority of
    /// the latest answers decides.
    pub(super) fn shows(&mut self, contention: bool) -> Option<bool> {
        let shown = if contention { 1.0 } else { -1.0 };
        self.shown += VOTE * (shown - self.shown);
        (self.shown.abs() > MAJORITY).then_some(self.shown > 0.0)
    }

    /// Returns whether a vote for contention counts. It closes an open group only if the number `in_flight` still rises
    /// when the requests in flight have been renewed [`LASTING`] times (`renewal` is in seconds), or if it cannot rise:
    /// as many requests are `owed` as the group may ever have, or the window's `size` is what holds the number.
    ///
    /// If a dependency becomes slow, more requests are in flight because each stays for longer (Little's law). That
    /// looks like contention, but their number stays once it has risen.
    pub(super) fn persists(
        &mut self,
        now: Time,
        [in_flight, owed, size]: [u32; 3],
        renewal: impl FnOnce() -> f64,
    ) -> bool {
        if self.state != Contention::Unseen {
            return true;
        }
        if self.sign.is_some_and(|sign| now < sign.due) {
            return false;
        }
        // Bounded as pauses are, so that requests which hang do not keep the group open for longer.
        let wait = Duration::from_secs_f64((LASTING * renewal()).min(LONGEST_PAUSE.as_secs_f64()));
        let sign = Sign { in_flight, due: now + wait, until: now + 2 * wait };
        let Some(before) = self.sign.replace(sign) else { return false };
        let is_held = in_flight == size || f64::from(owed) + 1.0 >= self.max;
        now < before.until && (in_flight > before.in_flight || is_held)
    }

    /// Records contention and returns the previous state. If that was unseen, the window begins at the knee
    /// that was seen. After a trial it begins at its previous size.
    pub(super) fn contended(&mut self, now: Time) -> Contention {
        let before = self.turn(now, Contention::Seen);
        if before != Contention::Seen {
            self.next_trial = now + self.paused();
        }
        before
    }

    /// Records that requests do not wait for one another. `window` is the window's size. Returns whether the
    /// group was closed.
    pub(super) fn free(&mut self, now: Time, window: u32) -> bool {
        let opens = !self.is_open();
        if opens {
            self.size = f64::from(window);
        }
        self.turn(now, Contention::Unseen);
        self.pause = PAUSE;
        opens
    }

    /// Returns whether the group has been open for the length of the first pause, and not for a trial. Before that, the
    /// answers to a growing crowd are those of its short requests, and look free.
    pub(super) fn has_been_free(&self, now: Time) -> bool {
        self.state == Contention::Unseen && now.since(self.since) >= PAUSE
    }

    /// Records that a limit is missed although no owed request is held back. Returns whether to test for
    /// contention.
    pub(super) fn doubts(&mut self, now: Time) -> bool {
        if !self.is_open() || now < self.next_doubt {
            return false;
        }
        self.next_doubt = now + self.paused();
        // Votes of the time before have not seen what the doubt says, and would open the group at once.
        self.shown = 0.0;
        self.turn(now, Contention::Seen);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Time = Time::from_millis;

    #[test]
    fn it_doubles_within_a_few_times_in_flight_only_if_it_is_used() {
        let mut reach = Reach::new(AT(0));
        reach.machines(2);
        assert_eq!(reach.size(), 16);
        (0..48).for_each(|_| reach.completed(10));
        assert_eq!(reach.size(), 16);
        (0..49).for_each(|n| reach.completed(16 + n / 3));
        assert_eq!(reach.size(), 32);
        reach.bound(20.0);
        assert_eq!(reach.size(), 20, "more could not be answered within limits");
    }

    #[test]
    fn a_trial_that_fails_is_not_repeated_for_twice_as_long() {
        let mut reach = Reach::new(AT(0));
        reach.machines(1);
        assert!(reach.contended(AT(10)) == Contention::Unseen && !reach.is_open() && reach.size() == 0);
        // The first contention already starts a pause.
        let mut now = AT(10) + PAUSE;
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            assert!(!reach.changed(now, true, [40, 3]), "another class explains the change");
            assert!(reach.changed(now, false, [40, 3]) && reach.is_open() && reach.size() == 40);
            (0..100).for_each(|_| reach.completed(1000));
            assert_eq!(reach.size(), 80, "a trial doubles it at most");
            assert_eq!(reach.contended(now), Contention::Trial);
            let before = now + Duration::from_millis(seconds * 1000 - 1);
            assert!(!reach.changed(before, false, [40, 3]), "after {seconds} s");
            now = now + Duration::from_secs(seconds);
        }
    }

    #[test]
    fn a_change_that_nothing_explains_is_recent_for_a_minute() {
        let mut reach = Reach::new(AT(0));
        reach.changed(AT(10), true, [40, 3]);
        assert!(!reach.has_changed(AT(10)), "another class explains it");
        reach.changed(AT(20), false, [40, 3]);
        assert!(reach.has_changed(AT(20)) && reach.has_changed(AT(60_019)) && !reach.has_changed(AT(60_020)));
    }

    #[test]
    fn contention_closes_an_open_group_if_the_number_in_flight_still_rises() {
        // The first of answers every 10 ms whose vote counts. The requests are renewed in a tenth of a second.
        let closes = |in_flight: fn(u32) -> u32, owed: u32| {
            let mut reach = Reach::new(AT(0));
            reach.bound(200.0);
            (0..200).find(|n| reach.persists(AT(u64::from(*n) * 10), [in_flight(*n), owed, 9], || 0.1))
        };
        assert_eq!(closes(|n| 10 + n, 0), Some(30));
        assert_eq!(closes(|n| 10 + n.min(20), 0), Some(30), "it has risen in the 300 ms since the first sign");
        assert_eq!(closes(|_| 10, 0), None);
        assert_eq!(closes(|_| 9, 0), Some(30), "the window holds it");
        assert_eq!(closes(|_| 300, 300), Some(30), "no more owed requests may be in flight");
        let mut reach = Reach::new(AT(0));
        assert!(!reach.persists(AT(0), [10, 0, 9], || 0.1));
        assert!(!reach.persists(AT(700), [20, 0, 9], || 0.1), "the sign is of another crowd");
        reach.contended(AT(800));
        assert!(reach.persists(AT(800), [10, 0, 9], || 0.1), "the group is closed already");
    }

    #[test]
    fn a_doubt_closes_it_and_freedom_opens_it() {
        let mut reach = Reach::new(AT(0));
        reach.machines(1);
        assert!(reach.doubts(AT(10)) && !reach.is_open());
        assert!(reach.free(AT(20), 50));
        assert!(reach.is_open() && reach.size() == 50);
        assert_eq!(reach.contention(), (Contention::Unseen, AT(20)));
        assert!(!reach.has_been_free(AT(1019)) && reach.has_been_free(AT(1020)));
        assert!(!reach.doubts(AT(500)), "it was asked a moment ago");
        (0..100).for_each(|_| _ = reach.shows(false));
        assert!(reach.doubts(AT(4000)));
        assert_eq!(reach.shows(false), None, "it takes as many votes as at first");
    }
}
