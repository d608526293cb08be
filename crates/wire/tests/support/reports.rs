//! Agents that report arbitrary data, and a learner that uses it: invariants of costs for any report. The
//! test `reports.rs` draws from seeds, the fuzzer from its bytes.

use weirgate_pages::{Learner, RESOURCES, Study};
use weirgate_wire::{Active, MAX_REPORT_BYTES, Report, Usage};

/// Source of numbers: a seed in tests, bytes in the fuzzer.
pub trait Source {
    /// Returns a number below `n`, or `None` at the end.
    fn below(&mut self, n: u64) -> Option<u64>;
}

/// Number of nodes that are learned from. The agent of one further node reports too.
const NODES: u64 = 3;

/// Number of routes in the table, some with costs and some without. There are more than can be learned separately.
const ROUTES: u32 = 80;

/// Maximum cost of a request. Also the maximum factor over the table's cost for routes that are not learned
/// separately, as in `docs/guide/page-table.md`, with room for rounding.
const MAX: f64 = 4.29 + 1e-9;

/// Maximum number of requests that end in one step, which allows hundreds in a window.
const MAX_REQUESTS: u64 = 40;

/// A study and the reports that it received.
pub struct Model {
    study: Study,
    /// Seconds since the start.
    now: f64,
    /// Last report of each agent.
    last: [Usage; NODES as usize + 1],
    /// Number of complete windows.
    pub windows: u64,
}

impl Model {
    /// Creates a study that knows only the table.
    pub fn new() -> Model {
        let cost = |route: u32| (!route.is_multiple_of(3)).then_some([0.001 * f64::from(route), 0.0, 4.29]);
        let mut study = Study::new(Learner::new((0..ROUTES).map(cost)), [None; RESOURCES]);
        study.follow((0..NODES).map(|node| (node, 1.0 + node as f64)));
        Model { study, now: 0.0, last: [Usage::default(); NODES as usize + 1], windows: 0 }
    }

    /// Runs one random step. Returns `None` when the source is exhausted.
    pub fn step(&mut self, source: &mut impl Source) -> Option<()> {
        match source.below(12)? {
            0..6 => self.report(source)?,
            6..9 => self.requests(source)?,
            9 => self.now += amount(source)?.min(1e6),
            10 => self.study.spoil(),
            _ => self.reload(source)?,
        }
        self.now += source.below(1000)? as f64 / 500.0;
        Some(())
    }

    /// An agent sends a report, either a valid one or a corrupted text.
    fn report(&mut self, source: &mut impl Source) -> Option<()> {
        let node = source.below(NODES + 1)?;
        let usage = self.usage(node as usize, source)?;
        let report = Report { active: Active { static_content: 3, dynamic_content: u32::MAX }, usage };
        let mut text = report.to_json().into_bytes();
        if source.below(4)? == 0 {
            mutilate(&mut text, source)?;
        }
        if let Some(Report { usage: Some(usage), .. }) = parsed(&text) {
            self.last[node as usize] = usage;
            let complete = self.study.reported(node, node, self.now, usage.used, usage.capacity);
            self.windows += u64::from(complete);
            self.check();
        }
        Some(())
    }

    /// Returns an agent's next report, with counters that grow a little, stand still, fall, are lost, or are
    /// arbitrary.
    fn usage(&self, node: usize, source: &mut impl Source) -> Option<Option<Usage>> {
        let mut usage = self.last[node];
        for (used, capacity) in usage.used.iter_mut().zip(&mut usage.capacity) {
            *used = match source.below(8)? {
                0 => None,
                1 => *used,
                2 => Some(amount(source)?),
                3 => used.map(|used| used / 2.0),
                _ => Some(used.unwrap_or(0.0) + source.below(2000)? as f64 / 1000.0),
            };
            *capacity = match source.below(18)? {
                0 => None,
                1 | 2 => Some(amount(source)?).filter(|capacity| *capacity > 0.0),
                _ => capacity.or(Some(2.0)),
            };
        }
        Some((source.below(16)? > 0).then_some(usage))
    }

    /// Requests end after no time in flight, after some time, or after starting before the study did.
    fn requests(&mut self, source: &mut impl Source) -> Option<()> {
        for _ in 0..source.below(MAX_REQUESTS)? {
            // In addition to the table's routes, some requests have no route, and some have one that does not exist.
            let route = source.below(u64::from(ROUTES) + 2)?.checked_sub(1).map(|route| route as u32);
            let stay = if source.below(20)? == 0 { amount(source)? } else { source.below(3000)? as f64 / 1000.0 };
            let whole = source.below(5)? > 0;
            self.study.finished(source.below(NODES + 1)?, route, (self.now - stay, self.now), whole);
        }
        Some(())
    }

    /// Changes the table, the nodes, or the quantities that equal 100 %.
    fn reload(&mut self, source: &mut impl Source) -> Option<()> {
        match source.below(3)? {
            0 => {
                let shift = source.below(3)? as usize;
                let table = (source.below(2)? > 0).then_some([0.01; RESOURCES]);
                self.study.replace((0..ROUTES as usize).map(|route| (Some(route + shift), table)));
            }
            1 => {
                let weight = 0.5 + source.below(4)? as f64;
                let count = 1 + source.below(NODES)?;
                self.study.follow((0..count).map(|node| (node, weight)));
            }
            _ => self.study.set_capacity([(source.below(2)? > 0).then_some(1.0), None, None]),
        }
        self.check();
        Some(())
    }

    /// Checks that costs and errors are numbers within their bounds, and that every window is accounted for.
    fn check(&self) {
        for (route, estimate) in self.study.learner.estimates().iter().enumerate() {
            let max = if estimate.apart { MAX } else { MAX * MAX };
            for (cost, error) in estimate.cost.iter().zip(estimate.error) {
                assert!((0.0..=max).contains(cost), "route {route}: {estimate:?}");
                assert!(error.is_none_or(|error| error >= 0.0 && error.is_finite()), "route {route}: {estimate:?}");
            }
            assert!(estimate.requests >= 0.0 && estimate.requests.is_finite(), "route {route}: {estimate:?}");
        }
        let background = self.study.learner.background();
        assert!(background.iter().all(|cost| (0.0..=MAX).contains(cost)), "{background:?}");
        for resource in 0..RESOURCES {
            let counted: u64 = self.study.outcomes.of(resource).map(|(_, count)| count).sum();
            assert_eq!(counted, self.windows, "resource {resource}");
        }
    }
}

/// Reads a report, and checks that it is written as it was read.
pub fn parsed(text: &[u8]) -> Option<Report> {
    let report = match Report::parse(text) {
        Ok(report) => report,
        Err(why) => {
            assert!(!why.is_empty() && why.len() < 300, "a message of a line: {why}");
            return None;
        }
    };
    for (used, capacity) in report.usage.iter().flat_map(|usage| usage.used.into_iter().zip(usage.capacity)) {
        assert!(used.is_none_or(|used| used >= 0.0 && used.is_finite()), "{report:?}");
        assert!(capacity.is_none_or(|capacity| capacity > 0.0 && capacity.is_finite()), "{report:?}");
    }
    let again = report.to_json();
    assert!(again.len() <= MAX_REPORT_BYTES);
    let read = Report::parse(again.as_bytes()).unwrap_or_else(|why| panic!("{why}: {again}"));
    let figures = |report: &Report| report.usage.map(|usage| usage.used.map(Option::unwrap_or_default));
    for (before, after) in figures(&report).into_iter().flatten().zip(figures(&read).into_iter().flatten()) {
        // The reader of numbers may be off in their last digit.
        assert!((before - after).abs() <= f64::EPSILON * 2.0 * before, "{before} is read as {after}");
    }
    assert_eq!(read.active, report.active);
    Some(report)
}

/// Returns a number of any size that a report may hold: 0, or from the smallest positive number to 2^64.
fn amount(source: &mut impl Source) -> Option<f64> {
    let digits = 1.0 + source.below(1 << 20)? as f64 / f64::from(1 << 20);
    Some(match source.below(6)? {
        0 => 0.0,
        1 => f64::MIN_POSITIVE * digits,
        2 => 2f64.powi(64),
        _ => digits * 2f64.powi(source.below(120)? as i32 - 57),
    })
}

/// Corrupts the text: changes a byte, cuts off the end, or inserts something that JSON cannot represent.
fn mutilate(text: &mut Vec<u8>, source: &mut impl Source) -> Option<()> {
    const SIGNS: &[u8] = b"0123456789.eE+-\"{}[],:";
    const WORDS: [&[u8]; 7] = [b"1e999", b"-1", b"NaN", b"1e-400", b"18446744073709551616", b"[[[[", b"null"];
    let at = source.below(text.len() as u64)? as usize;
    match source.below(4)? {
        0 => text[at] = source.below(256)? as u8,
        1 => text.truncate(at),
        2 => text.insert(at, SIGNS[source.below(SIGNS.len() as u64)? as usize]),
        _ => drop(text.splice(at..at, WORDS[source.below(WORDS.len() as u64)? as usize].iter().copied())),
    }
    Some(())
}
