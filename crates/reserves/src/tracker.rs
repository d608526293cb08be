//! The node's side: measures the use of each class, whether it was the whole share, and when to ask for new
//! shares.
//!
//! Source: Cluster Reserves, Sec. 4 (the tracker) and Sec. 5.4 (when a node asks). Departures:
//!
//! - The paper's tracker reports a weighted mean of past and present use. This one reports the present
//!   [`WINDOW`] alone and begins a new one whenever shares change. A mean carries the use under the old
//!   shares into the coordinator's next run, which then takes shares from a class that has just been given them.
//! - In the paper a node asks when it *stops* being a sink for a class. Here a node also asks when it becomes
//!   one: at that moment a request has reached a node where its class has a small share.
//! - After a class has asked, it does not ask again until its state has changed, so that one event asks once.
//!   A fall that is caused by a smaller share does not count.
//!
//! Sans-IO: time and counters are passed in. Counters are CPU time since some beginning. A counter that goes
//! backwards belongs to a group that was created anew.

use std::time::Duration;

use weirgate_wire::{Measured, Trigger};

use crate::is_sink;

/// Length of a measurement (Sec. 5.4). With a shorter one the kernel's time slices (some milliseconds)
/// distort the use. With a longer one a class waits longer for its share.
pub const WINDOW: Duration = Duration::from_millis(250);

/// A use below this part of the last one has fallen (Sec. 5.4: by more than 20 %).
const FALLEN: f64 = 0.8;

/// Minimum part of a node that counts as available to its classes, however much CPU time went elsewhere. A
/// window in which the classes hardly ran says nothing about them.
const MIN_NODE: f64 = 0.1;

/// Uses below this cannot fall, in percent of the node. It is the minimum share, and 20 % of less is shorter
/// than a time slice in a window.
const MIN_USE: f64 = 1.0;

/// Measures the classes of one node.
#[derive(Clone, Debug)]
pub struct Tracker {
    cpus: f64,
    run: u64,
    began: Duration,
    /// CPU time of the window used outside all classes, in nanoseconds.
    elsewhere: u64,
    classes: Vec<Class>,
}

#[derive(Clone, Debug, Default)]
struct Class {
    allocation: f64,
    /// CPU time at the beginning of the window, in nanoseconds.
    counter: u64,
    /// State in the last window.
    last: Option<Seen>,
    /// State for which the class last asked, until the state changes.
    asked: Option<Seen>,
}

/// State of a class in one window.
#[derive(Clone, Copy, Debug)]
struct Seen {
    usage: f64,
    sink: bool,
}

impl Tracker {
    /// Starts at `now` on a node of `cpus` CPUs. `shares` are in force there, in percent of the node, and
    /// `counters` hold the CPU time of each class in nanoseconds. A class without a counter has used nothing.
    pub fn new(now: Duration, cpus: f64, shares: &[f64], counters: &[u64]) -> Tracker {
        let classes = vec![Class::default(); shares.len()];
        let mut tracker = Tracker { cpus, run: 0, began: now, elsewhere: 0, classes };
        tracker.apply(now, 0, shares, counters);
        tracker
    }

    /// Records that the shares of `run` are in force from `now` on, with the present `counters`. A new window
    /// begins.
    pub fn apply(&mut self, now: Duration, run: u64, shares: &[f64], counters: &[u64]) {
        self.run = run;
        for (class, &share) in self.classes.iter_mut().zip(shares) {
            class.allocation = share;
            if let Some(last) = &mut class.last {
                last.usage = last.usage.min(share);
            }
        }
        self.begin(now, counters);
    }

    /// Sets the CPU time of the current window, in nanoseconds, that was used outside all classes. Shares are
    /// of the remaining time.
    pub fn went_elsewhere(&mut self, nanos: u64) {
        self.elsewhere = nanos;
    }

    /// Returns the end of the current window.
    pub fn due(&self) -> Duration {
        self.began + WINDOW
    }

    /// Returns the use in the window if it is over at `now`, and begins the next one. `counters` are the
    /// present counters.
    pub fn measure(&mut self, now: Duration, counters: &[u64]) -> Option<Measured> {
        if now < self.due() {
            return None;
        }
        let span = now - self.began;
        let mut measured = Measured {
            run: self.run,
            seconds: span.as_secs_f64(),
            allocation: self.classes.iter().map(|class| class.allocation).collect(),
            usage: Vec::with_capacity(self.classes.len()),
            sink: Vec::with_capacity(self.classes.len()),
            wants: None,
        };
        let whole = self.cpus * span.as_nanos() as f64;
        let node = (whole - self.elsewhere as f64).max(whole * MIN_NODE);
        let counters_or_same = counters.iter().copied().map(Some).chain(std::iter::repeat(None));
        for (index, (class, counter)) in self.classes.iter_mut().zip(counters_or_same).enumerate() {
            let used = spent(class.counter, counter.unwrap_or(class.counter));
            // Clock and counters are read one after the other, which must not make a node larger than it is.
            let usage = (100.0 * used as f64 / node).min(100.0);
            let seen = Seen { usage, sink: is_sink(class.allocation, usage) };
            measured.usage.push(seen.usage);
            measured.sink.push(seen.sink);
            // Every class is updated, so that those after the first do not ask again.
            let trigger = class.see(index, seen);
            measured.wants = measured.wants.or(trigger);
        }
        self.begin(now, counters);
        Some(measured)
    }

    fn begin(&mut self, now: Duration, counters: &[u64]) {
        self.began = now;
        self.elsewhere = 0;
        self.classes.iter_mut().zip(counters).for_each(|(class, &counter)| class.counter = counter);
    }
}

/// Returns the CPU time used between two readings of a counter.
///
/// A counter that went backwards was reset in between, so its whole value was used since.
pub fn spent(before: u64, after: u64) -> u64 {
    after.checked_sub(before).unwrap_or(after)
}

impl Class {
    /// Records a window. Returns the class's reason to ask, if it has one.
    fn see(&mut self, class: usize, seen: Seen) -> Option<Trigger> {
        self.asked = self.asked.filter(|asked| asked.is_like(seen));
        let last = self.last.replace(seen)?;
        if self.asked.is_some() {
            return None;
        }
        let trigger = match (last.sink, seen.sink) {
            (false, true) => Trigger::SinkBegan { class },
            (true, false) => Trigger::SinkEnded { class },
            _ if last.usage >= MIN_USE && seen.usage < FALLEN * last.usage => Trigger::Fell { class },
            _ => return None,
        };
        self.asked = Some(seen);
        Some(trigger)
    }
}

impl Seen {
    /// Returns whether a class that asked in the state `self` has nothing new to ask about in the state
    /// `seen`.
    fn is_like(self, seen: Seen) -> bool {
        let (low, high) = (FALLEN * self.usage, self.usage / FALLEN);
        self.sink == seen.sink && (low..=high).contains(&seen.usage)
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
