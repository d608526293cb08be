//! What is going on, worked out of the clients' points and the gateway's snapshots: the same for the
//! terminal view and for plain lines.

use std::time::Duration;

use weirgate_emulator::client::Point;
use weirgate_engine::{ClassSnapshot, Snapshot};

use super::scenario::Scenario;
use super::stage::Stage;

/// Points kept for the charts: two minutes of half seconds.
const MOST_POINTS: usize = 240;

/// The live marks look back so long: short enough to follow, long enough for a p95.
const LOOK_BACK: Duration = Duration::from_secs(3);

/// As the verdict: one in a hundred may be lost to the grain of counting.
const ENOUGH: f64 = 0.99;

/// The state of the demo.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The last points.
    pub(crate) points: Vec<Point>,
    /// Points seen so far.
    seen: usize,
    /// The gateway as a whole.
    pub(crate) gateway: Snapshot,
    /// Its classes.
    pub(crate) classes: Vec<ClassSnapshot>,
}

/// How one class is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Doing {
    /// Requests per second.
    pub(crate) asked: f64,
    /// Served per second.
    pub(crate) served: f64,
    /// Turned away per second.
    pub(crate) shed: f64,
    /// Failed per second.
    pub(crate) failed: f64,
    /// The guaranteed statistic, or p95, over the last tick.
    pub(crate) response: Option<Duration>,
    /// Enough was served, over the last three seconds; `None` without a guarantee.
    pub(crate) floor_held: Option<bool>,
    /// All ticks of the last three seconds were within the limit; `None` without one, or without replies.
    pub(crate) ceiling_held: Option<bool>,
}

impl Progress {
    /// The state at the start.
    pub(crate) fn new((gateway, classes): (Snapshot, Vec<ClassSnapshot>)) -> Progress {
        Progress { points: Vec::new(), seen: 0, gateway, classes }
    }

    /// Looks again. Is there anything new?
    pub(crate) fn look(&mut self, scenario: &Scenario, stage: &Stage) -> bool {
        (self.gateway, self.classes) = stage.snapshot();
        self.add(stage.clients().points(self.seen), scenario.plan.length())
    }

    /// Takes new points, but for those after the end, in which the last replies come in.
    fn add(&mut self, new: Vec<Point>, length: Duration) -> bool {
        self.seen += new.len();
        let before = self.points.len();
        self.points.extend(new.into_iter().filter(|p| p.at < length + p.length / 2));
        let any = self.points.len() > before;
        self.points.drain(..self.points.len().saturating_sub(MOST_POINTS));
        any
    }

    /// The time that has passed, as of the last point.
    pub(crate) fn at(&self) -> Duration {
        self.points.last().map_or(Duration::ZERO, |p| p.at)
    }

    /// The phase of the last point.
    pub(crate) fn phase(&self) -> usize {
        self.points.last().map_or(0, |p| p.phase)
    }

    /// How class number `class` is doing.
    pub(crate) fn doing(&self, scenario: &Scenario, class: usize) -> Doing {
        let guarantee = &scenario.plan.classes[class].guarantee;
        let Some(last) = self.points.last() else { return Doing::default() };
        let now = last.classes[class];
        let per_second = |n: u64| n as f64 / last.length.as_secs_f64();
        let recent = self.points.iter().rev().take_while(|p| p.at + LOOK_BACK > last.at);
        let (mut owed, mut served, mut over) = (0.0, 0.0, None);
        let mut before = 0;
        for point in recent {
            let of = point.classes[class];
            if let Some(rate) = guarantee.throughput {
                let cost = scenario.cost(class, point.phase).as_secs_f64();
                let dear = guarantee.cost.map_or(1.0, |agreed| (agreed.as_secs_f64() / cost).min(1.0));
                owed += (of.arrivals as f64).min(rate * point.length.as_secs_f64()) * dear;
            }
            served += of.served as f64;
            if let (Some((_, limit)), Some(response)) = (guarantee.response_time, of.response) {
                over = Some(over.unwrap_or(false) || response > limit);
            }
            // What was under way at the end of the tick before the first one that counts.
            before = (of.under_way + of.served + of.shed + of.failed).saturating_sub(of.arrivals);
        }
        // A request that is still under way is neither served nor lost.
        let pending = (now.under_way as f64 - before as f64).max(0.0);
        Doing {
            asked: per_second(now.arrivals),
            served: per_second(now.served),
            shed: per_second(now.shed),
            failed: per_second(now.failed),
            response: now.response,
            floor_held: guarantee.throughput.map(|_| served + pending >= ENOUGH * owed),
            ceiling_held: over.map(|over| !over),
        }
    }

    /// Why the window moved last, in words.
    pub(crate) fn why(&self) -> String {
        let name = |id: weirgate_engine::ClassId| {
            self.classes.iter().find(|c| c.class == id).map_or("a class".to_owned(), |c| c.name.clone())
        };
        weirgate_gateway::admin::why(&self.gateway.moved, name)
    }
}

/// `7 ms`, `1234 ms`.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::demo::Control;
    use weirgate_emulator::client::ClassPoint;
    use weirgate_engine::{Engine, Time};

    /// Later than anything here.
    const END: Duration = Duration::from_secs(10_000);

    /// The scenario, and a state in which nothing has happened yet.
    pub(crate) fn at_start() -> (Scenario, Progress) {
        let scenario = Scenario::new(40, 1, Control::Weirgate, Duration::from_secs(1)).unwrap();
        let engine = Engine::new(Time::ZERO, scenario.site.policy.clone(), 1).unwrap();
        let classes = engine.classes(Time::ZERO, weirgate_engine::ClassId(0), 64);
        let progress = Progress::new((engine.snapshot(Time::ZERO), classes));
        (scenario, progress)
    }

    /// Second number `second` of phase `phase`, with `gold` in the place of the first class.
    pub(crate) fn second(second: u64, phase: usize, gold: ClassPoint) -> Point {
        let classes = vec![gold, ClassPoint::default(), ClassPoint::default()];
        Point { at: Duration::from_secs(second), length: Duration::from_secs(1), phase, classes }
    }

    fn gold(arrivals: u64, served: u64, under_way: u64, response: u64) -> ClassPoint {
        let response = Some(Duration::from_millis(response));
        ClassPoint { arrivals, served, shed: arrivals - served, under_way, response, ..ClassPoint::default() }
    }

    #[test]
    fn live_marks_follow_the_last_three_seconds() {
        let (scenario, mut progress) = at_start();
        assert_eq!(progress.doing(&scenario, 0), Doing::default());
        progress.add((1..=3).map(|s| second(s, 0, gold(240, 240, 5, 40))).collect(), END);
        let doing = progress.doing(&scenario, 0);
        assert_eq!((doing.floor_held, doing.ceiling_held), (Some(true), Some(true)));
        assert_eq!((doing.asked, doing.served, doing.shed), (240.0, 240.0, 0.0));
        progress.add(vec![second(4, 1, gold(240, 220, 5, 301))], END);
        let doing = progress.doing(&scenario, 0);
        assert_eq!((doing.floor_held, doing.ceiling_held), (Some(false), Some(false)));
        progress.add((5..=7).map(|s| second(s, 1, gold(240, 240, 5, 300))).collect(), END);
        let doing = progress.doing(&scenario, 0);
        assert_eq!((doing.floor_held, doing.ceiling_held), (Some(true), Some(true)));
    }

    #[test]
    fn what_is_under_way_is_not_lost_yet() {
        let (scenario, mut progress) = at_start();
        let slower = ClassPoint { arrivals: 240, served: 200, under_way: 40, ..ClassPoint::default() };
        progress.add(vec![second(1, 0, slower)], END);
        assert_eq!(progress.doing(&scenario, 0).floor_held, Some(true));
        let no_more = ClassPoint { arrivals: 240, served: 200, failed: 40, under_way: 40, ..ClassPoint::default() };
        progress.add((2..=5).map(|s| second(s, 0, no_more)).collect(), END);
        assert_eq!(progress.doing(&scenario, 0).floor_held, Some(false));
    }

    #[test]
    fn best_effort_has_no_marks() {
        let (scenario, mut progress) = at_start();
        progress.add(vec![second(1, 0, gold(240, 240, 5, 40))], END);
        let doing = progress.doing(&scenario, 2);
        assert_eq!((doing.floor_held, doing.ceiling_held), (None, None));
    }

    #[test]
    fn the_points_are_bounded() {
        let (_, mut progress) = at_start();
        progress.add((1..=1000).map(|s| second(s, 0, gold(1, 1, 0, 1))).collect(), END);
        assert_eq!((progress.points.len(), progress.seen), (MOST_POINTS, 1000));
        assert_eq!(progress.at(), Duration::from_secs(1000));
        let (last, after) = (Duration::from_secs(1001), vec![second(1002, 0, gold(0, 0, 0, 1))]);
        assert!(progress.add(vec![second(1001, 0, gold(1, 1, 0, 1))], last) && !progress.add(after, last));
    }
}
