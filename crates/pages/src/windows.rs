//! The windows of one node: its use between two reports of its agent, and the requests in flight meanwhile.
//!
//! A request counts where it did its work. The gateway knows when it was in flight, but not when the node worked on it.
//! It therefore counts in every window in proportion to the part of its time in flight that falls there. A simpler rule
//! counts a whole request where it ended. A request of two seconds then puts all its work into a window in which at
//! most half of it was done, and the windows around a burst make requests look cheap at first and expensive later. The
//! proportions are known only when the request has ended, so a window is kept for [`KEPT`] more windows before it is
//! learned. Work of longer requests from before then counts in the oldest window that is kept, so every request counts
//! exactly once in total.
//!
//! A window may give no information about a resource for one of the reasons in [`Mute`]. These are counted
//! ([`Outcomes`]), because a table that cannot learn looks like one that has nothing to learn.

use std::collections::{BTreeMap, VecDeque};

use crate::learner::{RESOURCES, Window};

/// Number of windows that wait for requests still in flight. Under load control most requests take less than
/// a second, so a few windows contain nearly all of them. Each kept window delays learning by a second.
pub const KEPT: usize = 3;

/// Maximum length of a window that is learned, in seconds. If reports are missing for longer, the mix of
/// requests may have changed meanwhile.
pub const LONGEST: f64 = 10.0;

/// Minimum length of a window, in seconds. The kernel's counters advance in steps of 10 ms, which are 10 % of
/// it.
pub const SHORTEST: f64 = 0.1;

/// Minimum time in flight, in seconds, for requests that ended at once.
const MOMENT: f64 = 1e-6;

/// Time constant of the request mix before a window, in seconds. It reduces the random variation of single
/// windows to a fifth.
const MIX: f64 = 20.0;

/// Request rate per second that counts as zero.
const NEXT_TO_NOTHING: f64 = 1e-6;

/// Part of a request that is a rounding error.
const ROUNDING: f64 = 1e-9;

/// Maximum number of routes in one window. Requests of further routes count as requests of no route.
const MAX_ROUTES: usize = 4096;

/// Maximum use of a node as a multiple of its capacity. A counter may exceed the capacity by a half, for
/// example on a disk that was measured with larger reads, and is then learned as it is. More than twice the
/// capacity indicates a different counter, for example an agent that restarted with other groups or another
/// unit. One such window would hide the information of all others for minutes.
pub const MAX_USED: f64 = 2.0;

/// Reason why a window gives no information about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mute {
    /// Requests in the window were lost because more ended between two reports than are kept.
    RequestsLost,
    /// The window is longer than [`LONGEST`] because reports were missing.
    TooLong,
    /// The report at one of its ends lacks the counter.
    NoCounter,
    /// The node's capacity of the resource is unknown.
    NoCapacity,
    /// The counter fell because the agent restarted.
    CounterFell,
    /// The use exceeds [`MAX_USED`]: counter and capacity are not in the same unit.
    BeyondCapacity,
}

impl Mute {
    /// All reasons.
    pub const ALL: [Mute; 6] =
        [Mute::RequestsLost, Mute::TooLong, Mute::NoCounter, Mute::NoCapacity, Mute::CounterFell, Mute::BeyondCapacity];

    /// Returns the reason's word in metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Mute::RequestsLost => "requests_lost",
            Mute::TooLong => "too_long",
            Mute::NoCounter => "no_counter",
            Mute::NoCapacity => "no_capacity",
            Mute::CounterFell => "counter_fell",
            Mute::BeyondCapacity => "beyond_capacity",
        }
    }
}

/// Number of windows by outcome, per resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Windows from which the resource was learned.
    learned: [u64; RESOURCES],
    /// Windows without information, in the order of [`Mute::ALL`].
    mute: [[u64; Mute::ALL.len()]; RESOURCES],
}

impl Outcomes {
    pub(crate) fn count(&mut self, window: &Window) {
        for (resource, used) in window.used.iter().enumerate() {
            match used {
                Ok(_) => self.learned[resource] += 1,
                Err(why) => self.mute[resource][*why as usize] += 1,
            }
        }
    }

    /// Returns each outcome of a resource, `learned` or a word of [`Mute`], with its number of windows.
    pub fn of(&self, resource: usize) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mute = Mute::ALL.into_iter().zip(self.mute[resource]).map(|(why, count)| (why.as_str(), count));
        std::iter::once(("learned", self.learned[resource])).chain(mute)
    }
}

/// Counters of a node and their capacities.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Use since an arbitrary start, in any unit. Counters grow, or restart.
    pub used: [Option<f64>; RESOURCES],
    /// Capacity per second of a node of weight 1, in the same units.
    pub capacity: [Option<f64>; RESOURCES],
    /// Weight of this node: its capacity as a multiple of that of a node of weight 1.
    pub weight: f64,
}

/// The windows of one node.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    last: Option<(f64, Counters)>,
    /// Open windows, oldest first. The last one is still running.
    open: VecDeque<Open>,
    /// Requests per second in complete windows, with the most weight on recent ones.
    mix: BTreeMap<Option<u32>, f64>,
}

#[derive(Clone, Debug)]
struct Open {
    from: f64,
    /// End of the window, and its use.
    closed: Option<(f64, [Result<f64, Mute>; RESOURCES])>,
    requests: BTreeMap<Option<u32>, Share>,
    spoilt: bool,
}

/// Requests of a route in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    requests: f64,
    /// Seconds in flight, summed over the requests.
    in_flight: f64,
}

impl Open {
    fn new(from: f64) -> Open {
        Open { from, closed: None, requests: BTreeMap::new(), spoilt: false }
    }

    fn count(&mut self, route: Option<u32>, requests: f64, in_flight: f64) {
        let full = self.requests.len() >= MAX_ROUTES && !self.requests.contains_key(&route);
        let share = self.requests.entry(if full { None } else { route }).or_default();
        share.requests += requests;
        share.in_flight += in_flight;
    }
}

impl Windows {
    /// Records a request that was in flight from `from` to `until`, in seconds, and did the part `done` of
    /// its work.
    pub fn finished(&mut self, route: Option<u32>, from: f64, until: f64, done: f64) {
        let interval = (until - from).max(MOMENT);
        let from = until - interval;
        let mut left = 1.0;
        for open in self.open.iter_mut().rev() {
            let end = open.closed.map_or(until, |(end, _)| end.min(until));
            let part = ((end - open.from.max(from)) / interval).min(left);
            if part > 0.0 {
                open.count(route, part * done, part * interval);
                left -= part;
            }
        }
        if left > ROUNDING
            && let Some(oldest) = self.open.front_mut()
        {
            oldest.count(route, left * done, left * interval);
        }
    }

    /// Restarts the windows because the counters come from another agent.
    pub fn restart(&mut self) {
        self.last = None;
        self.open.clear();
    }

    /// Prevents learning from the open windows, because requests were lost.
    pub fn spoil(&mut self) {
        for open in &mut self.open {
            open.spoilt = true;
        }
    }

    /// Takes a report of the node's agent at `at`. Returns a window that is complete.
    pub fn reported(&mut self, at: f64, counters: Counters) -> Option<Window> {
        let Some((before, last)) = self.last else {
            self.last = Some((at, counters));
            self.open.push_back(Open::new(at));
            return None;
        };
        if at - before < SHORTEST {
            return None;
        }
        let used = std::array::from_fn(|resource| used(resource, &last, &counters, at - before));
        self.last = Some((at, counters));
        if let Some(open) = self.open.back_mut() {
            open.closed = Some((at, used));
        }
        self.open.push_back(Open::new(at));
        if self.open.len() <= KEPT + 1 {
            return None;
        }
        let done = self.open.pop_front()?;
        let (until, used) = done.closed?;
        let used = if done.spoilt { [Err(Mute::RequestsLost); RESOURCES] } else { used };
        let seconds = until - done.from;
        let requests: Vec<_> = done.requests.iter().map(|(route, share)| (*route, share.requests)).collect();
        let before = self.mix.iter().map(|(route, rate)| (*route, *rate)).collect();
        self.remember(&requests, seconds);
        let in_flight = done.requests.values().map(|share| share.in_flight).collect();
        Some(Window { until, seconds, weight: counters.weight, used, requests, in_flight, before })
    }

    /// Adds a complete window to the request mix.
    fn remember(&mut self, requests: &[(Option<u32>, f64)], seconds: f64) {
        let kept = (-seconds / MIX).exp();
        self.mix.values_mut().for_each(|rate| *rate *= kept);
        for (route, count) in requests {
            *self.mix.entry(*route).or_default() += (1.0 - kept) * count / seconds;
        }
        self.mix.retain(|_, rate| *rate > NEXT_TO_NOTHING);
    }
}

/// Returns the use of a resource in the `seconds` between two reports, in seconds of a node of weight 1.
fn used(resource: usize, last: &Counters, now: &Counters, seconds: f64) -> Result<f64, Mute> {
    if seconds > LONGEST {
        return Err(Mute::TooLong);
    }
    let (Some(before), Some(after)) = (last.used[resource], now.used[resource]) else { return Err(Mute::NoCounter) };
    let capacity = now.capacity[resource].filter(|capacity| *capacity > 0.0).ok_or(Mute::NoCapacity)?;
    match (after - before) / capacity {
        used if used < 0.0 => Err(Mute::CounterFell),
        // The comparison is also false for NaN.
        used if used <= MAX_USED * now.weight * seconds => Ok(used),
        _ => Err(Mute::BeyondCapacity),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpu(used: f64) -> Counters {
        Counters { used: [Some(used), None, None], capacity: [Some(2.0), Some(1.0), None], weight: 1.0 }
    }

    /// Reports at `times` from a node that is half busy. Returns the windows that are complete then.
    fn reports(windows: &mut Windows, times: impl IntoIterator<Item = f64>) -> Vec<Window> {
        times.into_iter().filter_map(|at| windows.reported(at, cpu(at))).collect()
    }

    #[test]
    fn a_request_counts_where_it_worked() {
        let mut windows = Windows::default();
        assert_eq!(reports(&mut windows, [0.0, 1.0, 2.0]), []);
        windows.finished(Some(7), 0.5, 2.5, 1.0);
        windows.finished(None, 2.5, 2.5, 1.0);
        let done = reports(&mut windows, [3.0, 4.0, 5.0, 6.0]);
        let ended: Vec<f64> = done.iter().map(|window| window.until).collect();
        assert_eq!(ended, [1.0, 2.0, 3.0]);
        assert_eq!(done[0].requests, [(Some(7), 0.25)]);
        assert_eq!(done[1].requests, [(Some(7), 0.5)]);
        assert_eq!(done[2].requests, [(None, 1.0), (Some(7), 0.25)]);
        assert_eq!(done[0].used, [Ok(0.5), Err(Mute::NoCounter), Err(Mute::NoCounter)], "one CPU of two");
    }

    #[test]
    fn odd_windows_say_nothing() {
        let mut windows = Windows::default();
        let counters = [(0.0, 5.0), (1.0, 6.0), (1.01, 6.0), (2.0, 0.5), (3.0, 1.5), (20.0, 3.0), (21.0, 4.0)];
        let more = (22..26).map(|at| (f64::from(at), f64::from(at - 17)));
        let done: Vec<Window> =
            counters.into_iter().chain(more).filter_map(|(at, used)| windows.reported(at, cpu(used))).collect();
        let used: Vec<Result<f64, Mute>> = done.iter().map(|window| window.used[0]).collect();
        assert_eq!(used[..5], [Ok(0.5), Err(Mute::CounterFell), Ok(0.5), Err(Mute::TooLong), Ok(0.5)]);
        windows.spoil();
        let lost = windows.reported(26.0, cpu(9.0)).expect("it is complete");
        assert_eq!(lost.used, [Err(Mute::RequestsLost); RESOURCES]);
    }

    #[test]
    fn every_reason_has_its_window_and_is_counted() {
        let report = |cpu: Option<f64>, capacity: Option<f64>| Counters {
            used: [cpu, Some(1.0), Some(1.0)],
            capacity: [capacity, Some(1.0), None],
            weight: 1.0,
        };
        let mut windows = Windows::default();
        let mut outcomes = Outcomes::default();
        let reports = [
            (0.0, report(Some(0.0), Some(2.0))),
            (1.0, report(Some(1.0), Some(2.0))),
            (2.0, report(None, Some(2.0))),
            (3.0, report(Some(1.0), Some(2.0))),
            (4.0, report(Some(1.5), None)),
            (5.0, report(Some(1.0), Some(2.0))),
            (6.0, report(Some(5.1), Some(2.0))),
            (7.0, report(Some(6.1), Some(f64::MIN_POSITIVE))),
            (27.0, report(Some(7.1), Some(2.0))),
        ];
        let idle = (28..28 + KEPT).map(|at| (at as f64, report(Some(7.1), Some(2.0))));
        for (at, counters) in reports.into_iter().chain(idle) {
            windows.reported(at, counters).iter().for_each(|window| outcomes.count(window));
        }
        let counts = |resource| outcomes.of(resource).filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        let cpu = [
            ("learned", 1),
            ("too_long", 1),
            ("no_counter", 2),
            ("no_capacity", 1),
            ("counter_fell", 1),
            ("beyond_capacity", 2),
        ];
        assert_eq!(counts(0), cpu);
        assert_eq!(counts(1), [("learned", 7), ("too_long", 1)], "an idle disk is known to be one");
        assert_eq!(counts(2), [("too_long", 1), ("no_capacity", 7)]);
    }

    #[test]
    fn reasons_stand_in_the_order_in_which_they_are_counted() {
        assert!(Mute::ALL.into_iter().enumerate().all(|(place, why)| why as usize == place));
    }

    proptest! {
        /// Whatever the order of requests and reports, each request that ends while windows are open counts
        /// once.
        #[test]
        fn every_request_counts_once(
            events in proptest::collection::vec((0.2f64..2.0, proptest::option::of((0u32..3, 0.0f64..8.0))), 1..60),
        ) {
            let mut windows = Windows::default();
            let mut now = 0.0;
            let (mut sent, mut counted) = (0.0, 0.0);
            windows.reported(now, cpu(now));
            for (wait, request) in events {
                now += wait;
                let done = match request {
                    Some((route, interval)) => {
                        windows.finished(Some(route), now - interval, now, 1.0);
                        sent += 1.0;
                        None
                    }
                    None => windows.reported(now, cpu(now)),
                };
                if let Some(window) = done {
                    prop_assert!(window.requests.iter().all(|(_, part)| *part >= 0.0));
                    counted += window.requests.iter().map(|(_, part)| part).sum::<f64>();
                }
            }
            for more in 1..=KEPT + 1 {
                let window = windows.reported(now + more as f64, cpu(now));
                counted += window.map_or(0.0, |window| window.requests.iter().map(|(_, part)| part).sum());
            }
            prop_assert!((sent - counted).abs() < 1e-6, "{sent} {counted}");
        }
    }
}
