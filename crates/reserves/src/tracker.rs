//! The node's side: what each class used, whether that was all that it was given, and when to ask for new shares.
//!
//! Source: Cluster Reserves, Sec. 4 (the tracker) and Sec. 5.4 (when a node asks). Departures:
//!
//! - The paper's tracker reports a weighted mean of past and present use. Ours reports the present [`WINDOW`] alone,
//!   and begins a new one whenever shares change: a mean carries the use under the old shares into the next run of the
//!   manager, which then takes shares from a class that has just been given them.
//! - The paper lets a node ask when it *stops* being a sink for a class. Ours asks as well when it begins to be one:
//!   that is the moment at which a request has reached a node where its class has little.
//! - A class that asked says nothing more until it is no longer what it asked about, so that one event asks once. A
//!   fall that a smaller share brings about is none.
//!
//! Sans-IO: time and counters are passed in. Counters are CPU time since some beginning; one that goes backwards is
//! that of a group which was made anew.

use std::time::Duration;

use crate::is_sink;

/// How long use is measured (Sec. 5.4). Shorter, and the time slices of the kernel (some milliseconds) show; longer,
/// and a class waits longer for what it is owed.
pub const WINDOW: Duration = Duration::from_millis(250);

/// A use that is below this part of the last one has fallen (Sec. 5.4: by more than 20 %).
const FALLEN: f64 = 0.8;

/// Part of a node that is taken for its classes' however much went elsewhere: a window in which they were hardly let in
/// says nothing of them.
const LEAST_NODE: f64 = 0.1;

/// Uses below this do not fall, in percent of the node: it is the smallest share that there is, and 20 % of less is
/// less than a time slice in a window.
const LEAST_USE: f64 = 1.0;

/// Why a node asks for new shares. Classes are indices in the policy's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The class began to use all that it is given.
    SinkBegan {
        /// Which.
        class: usize,
    },
    /// The class no longer uses all that it is given.
    SinkEnded {
        /// Which.
        class: usize,
    },
    /// The class uses a fifth less than before.
    Fell {
        /// Which.
        class: usize,
    },
}

/// A window that is over. Lists have one figure per class.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The run whose shares were in force all the time; 0 if there was none yet.
    pub run: u64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// The shares that were in force, in percent of the node.
    pub allocation: Vec<f64>,
    /// CPU time used, in percent of what the node had for its classes; 100 at most.
    pub usage: Vec<f64>,
    /// The class used all that it was given.
    pub sink: Vec<bool>,
    /// The node asks for new shares: the first class that has a reason.
    pub wants: Option<Trigger>,
}

/// Measures the classes of one node.
#[derive(Clone, Debug)]
pub struct Tracker {
    cpus: f64,
    run: u64,
    began: Duration,
    /// CPU time that went elsewhere in the window, in nanoseconds.
    elsewhere: u64,
    classes: Vec<Class>,
}

#[derive(Clone, Debug, Default)]
struct Class {
    allocation: f64,
    /// CPU time at the beginning of the window, in nanoseconds.
    counter: u64,
    /// What was seen in the last window.
    last: Option<Seen>,
    /// What it last asked about, as long as that is what is seen.
    asked: Option<Seen>,
}

/// A class in one window.
#[derive(Clone, Copy, Debug)]
struct Seen {
    usage: f64,
    sink: bool,
}

impl Tracker {
    /// Begins at `now` on a node of `cpus` CPUs, with the shares that are in force there, in percent of the node, and
    /// the CPU time of each class in nanoseconds. A class without a counter has used nothing.
    #[must_use]
    pub fn new(now: Duration, cpus: f64, shares: &[f64], counters: &[u64]) -> Tracker {
        let classes = vec![Class::default(); shares.len()];
        let mut tracker = Tracker { cpus, run: 0, began: now, elsewhere: 0, classes };
        tracker.apply(now, 0, shares, counters);
        tracker
    }

    /// The shares of `run` are in force from `now` on, when the counters were `counters`. The window begins anew.
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

    /// So much CPU time of the window, in nanoseconds, went to work outside all classes: their shares are of what that
    /// leaves. Holds for the window that is under way.
    pub fn went_elsewhere(&mut self, nanos: u64) {
        self.elsewhere = nanos;
    }

    /// When the present window will be over.
    #[must_use]
    pub fn due(&self) -> Duration {
        self.began + WINDOW
    }

    /// What was used in the window, if it is over at `now`, when the counters are `counters`. The next one begins.
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
        let node = (whole - self.elsewhere as f64).max(whole * LEAST_NODE);
        let counters_or_same = counters.iter().copied().map(Some).chain(std::iter::repeat(None));
        for (index, (class, counter)) in self.classes.iter_mut().zip(counters_or_same).enumerate() {
            let used = spent(class.counter, counter.unwrap_or(class.counter));
            // Clock and counters are read one after the other, which must not make more of a node than there is.
            let usage = (100.0 * used as f64 / node).min(100.0);
            let seen = Seen { usage, sink: is_sink(class.allocation, usage) };
            measured.usage.push(seen.usage);
            measured.sink.push(seen.sink);
            // Every class is told what it was, so that those behind the first do not ask again.
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

/// What was used between two readings of a counter.
///
/// A counter that went backwards began anew in between: all that it shows was used since.
#[must_use]
pub fn spent(before: u64, after: u64) -> u64 {
    after.checked_sub(before).unwrap_or(after)
}

impl Class {
    /// Takes note of a window. Tells the class's reason to ask, if it has one.
    fn see(&mut self, class: usize, seen: Seen) -> Option<Trigger> {
        self.asked = self.asked.filter(|asked| asked.is_like(seen));
        let last = self.last.replace(seen)?;
        if self.asked.is_some() {
            return None;
        }
        let trigger = match (last.sink, seen.sink) {
            (false, true) => Trigger::SinkBegan { class },
            (true, false) => Trigger::SinkEnded { class },
            _ if last.usage >= LEAST_USE && seen.usage < FALLEN * last.usage => Trigger::Fell { class },
            _ => return None,
        };
        self.asked = Some(seen);
        Some(trigger)
    }
}

impl Seen {
    /// Whether a class that asked when it was `self` has nothing new to ask about when it is `seen`.
    fn is_like(self, seen: Seen) -> bool {
        let (low, high) = (FALLEN * self.usage, self.usage / FALLEN);
        self.sink == seen.sink && (low..=high).contains(&seen.usage)
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
