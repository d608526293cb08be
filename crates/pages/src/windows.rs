//! One node's windows: between two reports of its agent, what it used and which requests worked there meanwhile.
//!
//! A request counts where it worked. It is known from when to when it was inside, not when the node worked for it, so it
//! counts in every window for the part of its stay that falls there. Counted whole where it ended, as is simplest, a
//! request of two seconds puts its work into a window that had half of it at most, and the windows around a burst say
//! that requests are cheap first and dear then. Since that part is known only when the request has ended, a window is
//! kept for [`KEPT`] more before it is learned. What a longer request did before that counts in the oldest window that is
//! kept: every request counts once in all.
//!
//! A window says nothing of a resource whose counter was not reported at both ends, or fell, as it does when an agent
//! begins anew; and nothing at all if it is longer than [`LONGEST`].

use std::collections::{BTreeMap, VecDeque};

use crate::learner::{RESOURCES, Window};

/// Windows that wait for requests that are still inside. Under load control most requests stay for less than a second, so
/// a few windows hold nearly all; each delays what is learned by a second.
pub const KEPT: usize = 3;

/// Longest window that is learned, in seconds: reports that fail for longer leave more behind than a mix that was even.
pub const LONGEST: f64 = 10.0;

/// Shortest window, in seconds. The kernel's counters advance in steps of 10 ms, which are 10 % of it.
pub const SHORTEST: f64 = 0.1;

/// Shortest stay, in seconds: what came and went at once was there for a moment.
const MOMENT: f64 = 1e-6;

/// Part of a request that is an error of rounding.
const ROUNDING: f64 = 1e-9;

/// Most routes in one window apart from those that were there first. More are counted as of no route.
const MOST_ROUTES: usize = 4096;

/// Counters of a node and what 100 % of each is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Since whenever, in any unit. They grow, or begin anew.
    pub used: [Option<f64>; RESOURCES],
    /// Units that a node of weight 1 has in a second.
    pub capacity: [Option<f64>; RESOURCES],
}

/// The windows of one node.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    last: Option<(f64, Counters)>,
    /// The oldest first; the last one goes on.
    open: VecDeque<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    from: f64,
    /// When it ended and what was used.
    closed: Option<(f64, [Option<f64>; RESOURCES])>,
    requests: BTreeMap<Option<u32>, f64>,
    spoilt: bool,
}

impl Open {
    fn new(from: f64) -> Open {
        Open { from, closed: None, requests: BTreeMap::new(), spoilt: false }
    }

    fn count(&mut self, route: Option<u32>, part: f64) {
        let full = self.requests.len() >= MOST_ROUTES && !self.requests.contains_key(&route);
        *self.requests.entry(if full { None } else { route }).or_default() += part;
    }
}

impl Windows {
    /// A request was inside from `from` to `until`, in seconds, and did `done` of its work: 1 is all.
    pub fn finished(&mut self, route: Option<u32>, from: f64, until: f64, done: f64) {
        let stay = (until - from).max(MOMENT);
        let from = until - stay;
        let mut left = 1.0;
        for open in self.open.iter_mut().rev() {
            let end = open.closed.map_or(until, |(end, _)| end.min(until));
            let part = ((end - open.from.max(from)) / stay).min(left);
            if part > 0.0 {
                open.count(route, part * done);
                left -= part;
            }
        }
        if left > ROUNDING
            && let Some(oldest) = self.open.front_mut()
        {
            oldest.count(route, left * done);
        }
    }

    /// Requests were lost: the windows that are open say nothing.
    pub fn spoil(&mut self) {
        for open in &mut self.open {
            open.spoilt = true;
        }
    }

    /// The node's agent said so at `at`. Returns a window that is complete.
    pub fn reported(&mut self, at: f64, counters: Counters) -> Option<Window> {
        let Some((before, last)) = self.last else {
            self.last = Some((at, counters));
            self.open.push_back(Open::new(at));
            return None;
        };
        if at - before < SHORTEST {
            return None;
        }
        let used = std::array::from_fn(|resource| {
            let grown = counters.used[resource]? - last.used[resource]?;
            let capacity = counters.capacity[resource].filter(|capacity| *capacity > 0.0)?;
            Some(grown / capacity).filter(|used| used.is_finite() && *used >= 0.0 && at - before <= LONGEST)
        });
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
        let used = if done.spoilt { [None; RESOURCES] } else { used };
        Some(Window { until, seconds: until - done.from, used, requests: done.requests.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpu(used: f64) -> Counters {
        Counters { used: [Some(used), None, None], capacity: [Some(2.0), Some(1.0), None] }
    }

    /// Reports at `times` with a node that is half busy; the windows that are complete then.
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
        assert_eq!(done[0].used, [Some(0.5), None, None], "one CPU of two; no counter; no capacity");
    }

    #[test]
    fn odd_windows_say_nothing() {
        let mut windows = Windows::default();
        let counters = [(0.0, 5.0), (1.0, 6.0), (1.01, 6.0), (2.0, 0.5), (3.0, 1.5), (20.0, 3.0), (21.0, 4.0)];
        let more = (22..26).map(|at| (f64::from(at), f64::from(at - 17)));
        let done: Vec<Window> =
            counters.into_iter().chain(more).filter_map(|(at, used)| windows.reported(at, cpu(used))).collect();
        let used: Vec<Option<f64>> = done.iter().map(|window| window.used[0]).collect();
        assert_eq!(used[..5], [Some(0.5), None, Some(0.5), None, Some(0.5)], "a fall, and a gap");
        windows.spoil();
        assert!(windows.reported(26.0, cpu(9.0)).is_some_and(|window| window.used == [None; RESOURCES]));
    }

    proptest! {
        /// Whatever the order of requests and reports, each request that ends while windows are open counts once.
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
                    Some((route, stay)) => {
                        windows.finished(Some(route), now - stay, now, 1.0);
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
