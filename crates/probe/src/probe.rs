//! The whole probe: crawl, request profiling, server profiling, and the table.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;
use weirgate_config::USAGE_RESOURCES;

use crate::capacity::{Capacity, Ramp, capacities, heaviest};
use crate::client::Target;
use crate::clock::{self, Clock};
use crate::crawl::{self, Visit};
use crate::fold::{Route, fold};
use crate::frontier::{Bounds, route};
use crate::linear::LEAST_FIT;
use crate::load::Load;
use crate::monitor::{Monitor, Used};
use crate::profile::{Effort, profile};
use crate::state::{Profile, State};
use crate::table::{Table, amount, percent};

/// Questions that tell what one costs.
const QUESTIONS: u32 = 20;

/// How long the idle server is watched.
const IDLE: Duration = Duration::from_secs(2);

/// Part of the time in which the crawl must end, and in which profiling must.
const CRAWL_BY: f64 = 0.25;
const PROFILE_BY: f64 = 0.8;

/// A resource matters for a page if its share is so much of the page's largest one. A small share may be noise, which
/// says nothing against the page.
const MATTERS: f64 = 0.2;

/// What is to be probed, and how much.
#[derive(Clone, Debug)]
pub struct Options {
    /// The home page.
    pub home: Url,
    /// The node that is asked.
    pub target: Target,
    /// Its agent.
    pub monitor: Monitor,
    /// Bounds of the crawl.
    pub bounds: Bounds,
    /// How much each page is requested.
    pub effort: Effort,
    /// Most requests at once when the server is saturated.
    pub saturate: u32,
    /// Longest time for all.
    pub time: Duration,
    /// Where the state is kept; `None` keeps none.
    pub state: Option<PathBuf>,
}

/// What is worth showing.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A part begins, with so many steps if that is known.
    Part(&'a str, Option<u64>),
    /// A step begins.
    Step(String),
    /// A step is done.
    Done,
    /// A line to keep.
    Line(String),
}

/// A probe under way.
pub struct Probe<'a> {
    options: Options,
    state: State,
    load: Load,
    clock: Clock,
    show: &'a dyn Fn(Progress<'_>),
}

impl std::fmt::Debug for Probe<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<'a> Probe<'a> {
    /// Goes on from `state`. Whoever wants a new probe gives a [`State::new`].
    #[must_use]
    pub fn new(options: Options, state: State, show: &'a dyn Fn(Progress<'_>)) -> Probe<'a> {
        let load = Load::new(options.target.clone(), options.monitor.clone());
        Probe { options, state, load, clock: Clock::start(), show }
    }

    /// Visits the site. What it found is in the answer and stays in the state.
    ///
    /// # Errors
    /// There is no page, or what is known cannot be kept.
    pub async fn crawl(&mut self) -> Result<&State, String> {
        if self.state.is_crawled {
            return Ok(&self.state);
        }
        (self.show)(Progress::Part("crawling", None));
        let robots = crawl::robots(&mut self.load, &self.options.home).await?;
        let (home, bounds) = (self.options.home.clone(), self.options.bounds);
        self.state.frontier.offer(&home, 0, &home.origin(), &robots, bounds);
        while let Some((path, depth)) = self.state.frontier.take() {
            if self.is_past(CRAWL_BY) {
                self.state.frontier.put_back(path, depth);
                (self.show)(Progress::Line(format!(
                    "the time for the crawl is over: {} pages were not visited",
                    self.state.frontier.waiting()
                )));
                break;
            }
            (self.show)(Progress::Step(path.clone()));
            let page = (path.as_str(), depth);
            match crawl::visit(&mut self.load, page, &home, &robots, bounds, &mut self.state.frontier).await {
                Visit::Page => self.state.pages.push(path),
                Visit::Bad(why) => self.state.left_out.push((path, why)),
            }
            self.keep()?;
            (self.show)(Progress::Done);
        }
        for (left, count) in self.state.frontier.left() {
            (self.show)(Progress::Line(format!(
                "left alone: {count} link{} {}",
                if *count == 1 { "" } else { "s" },
                left.why()
            )));
        }
        if self.state.pages.is_empty() {
            let why = self.state.left_out.first().map(|(path, why)| format!("{path}: {why}"));
            return Err(why.unwrap_or_else(|| "robots.txt closes the home page".to_owned()));
        }
        self.state.is_crawled = true;
        self.keep()?;
        Ok(&self.state)
    }

    /// The whole probe, with what is known already.
    ///
    /// # Errors
    /// It cannot go on: what is known is kept.
    pub async fn run(mut self) -> Result<Table, String> {
        // Before anything is asked of the server: without a monitor there is nothing to learn.
        let told = self.options.monitor.read().await?;
        self.crawl().await?;
        (self.show)(Progress::Part("watching the idle server", None));
        let idle = self.load.learn_idle(QUESTIONS, IDLE).await?;
        let [cpu, disk, bandwidth] = [0, 1, 2].map(|at| use_of(at, idle.second[at]));
        (self.show)(Progress::Line(format!(
            "a second without requests: cpu {cpu}, disk {disk}, bandwidth {bandwidth}"
        )));
        self.profile_pages().await?;
        self.saturate(told.capacity).await?;
        Ok(self.table(told.capacity))
    }

    async fn profile_pages(&mut self) -> Result<(), String> {
        let pages: Vec<String> = self.unknown().map(str::to_owned).collect();
        (self.show)(Progress::Part("profiling", Some(pages.len() as u64)));
        for path in pages {
            if self.is_past(PROFILE_BY) {
                (self.show)(Progress::Line("the time for profiling is over".to_owned()));
                break;
            }
            (self.show)(Progress::Step(path.clone()));
            match profile(&mut self.load, &path, self.options.effort).await {
                Ok(profile) => {
                    (self.show)(Progress::Line(told(&profile)));
                    self.state.profiles.push(profile);
                }
                Err(why) => {
                    // A monitor that has gone would take every page with it.
                    self.options.monitor.read().await?;
                    (self.show)(Progress::Line(format!("{path}: left out: {why}")));
                    self.state.left_out.push((path, why));
                }
            }
            self.keep()?;
            (self.show)(Progress::Done);
        }
        Ok(())
    }

    /// Saturates each resource with the page that uses most of it, and those that something else held up once more
    /// with the page that uses least else.
    async fn saturate(&mut self, told: [Option<f64>; 3]) -> Result<(), String> {
        (self.show)(Progress::Part("saturating the server", None));
        for again in [false, true] {
            for resource in 0..3 {
                let known = again.then(|| capacities(&self.state.peaks, told));
                let reached = |known: &[Option<Capacity>; 3]| {
                    known[resource].is_none_or(|capacity| capacity.is_reached && !capacity.is_told)
                };
                if known.as_ref().is_some_and(reached) {
                    continue;
                }
                let pages: Vec<(&str, Used)> =
                    sound(&self.state).map(|profile| (profile.target.as_str(), profile.used)).collect();
                let Some(path) = heaviest(&pages, resource, known.as_ref()).map(str::to_owned) else { continue };
                if self.state.peaks.iter().any(|peak| peak.target == path && peak.resource == resource)
                    || self.is_past(1.0)
                {
                    continue;
                }
                self.bring_to_peak(&path, resource).await?;
            }
        }
        Ok(())
    }

    async fn bring_to_peak(&mut self, path: &str, resource: usize) -> Result<(), String> {
        let mut ramp = Ramp::new(path, resource, self.options.saturate);
        while let Some(at_once) = ramp.next() {
            (self.show)(Progress::Step(format!("{} with {path}, {at_once} at once", USAGE_RESOURCES[resource])));
            match self.load.sustained(path, at_once).await {
                Ok((rate, own)) => ramp.add(rate, own),
                Err(why) => {
                    self.options.monitor.read().await?;
                    (self.show)(Progress::Line(format!("{path}: {why}")));
                    break;
                }
            }
            (self.show)(Progress::Done);
        }
        let peak = ramp.peak();
        let rate = amount(resource, peak.rate[resource]);
        (self.show)(Progress::Line(format!(
            "{path} uses at most {rate} of {} a second, with {} at once",
            USAGE_RESOURCES[resource], peak.concurrency
        )));
        self.state.peaks.push(peak);
        self.keep()
    }

    fn table(&self, told: [Option<f64>; 3]) -> Table {
        let capacity = capacities(&self.state.peaks, told);
        let mut left_out = self.state.left_out.clone();
        let mut routes = Vec::new();
        for profile in &self.state.profiles {
            match judged(profile, &capacity) {
                Ok(route) => routes.push(route),
                Err(why) => left_out.push((profile.target.clone(), why)),
            }
        }
        left_out
            .extend(self.unknown().map(|path| (path.to_owned(), "no time left; give more with --max-time".to_owned())));
        left_out.sort();
        let server = self.options.home.origin().ascii_serialization();
        Table { probed: clock::calendar(), server, capacity, routes: fold(routes), left_out }
    }

    /// Pages of which it is not known what they cost, nor why they cannot be known.
    fn unknown(&self) -> impl Iterator<Item = &str> {
        let known: BTreeSet<&str> = self
            .state
            .profiles
            .iter()
            .map(|profile| profile.target.as_str())
            .chain(self.state.left_out.iter().map(|(path, _)| path.as_str()))
            .collect();
        self.state.pages.iter().map(String::as_str).filter(move |path| !known.contains(path))
    }

    fn is_past(&self, part: f64) -> bool {
        self.clock.now() > self.options.time.mul_f64(part)
    }

    fn keep(&self) -> Result<(), String> {
        self.options.state.as_ref().map_or(Ok(()), |path| self.state.save(path))
    }
}

/// Profiles whose use of something is proportional to the requests: others saturate nothing.
fn sound(state: &State) -> impl Iterator<Item = &Profile> {
    state.profiles.iter().filter(|profile| profile.lines.iter().flatten().any(|line| line.fit >= LEAST_FIT))
}

/// The route of a page, if what was measured makes sense.
///
/// # Errors
/// Why it does not.
fn judged(profile: &Profile, capacity: &[Option<Capacity>; 3]) -> Result<Route, String> {
    let share = [0, 1, 2].map(|at| match (capacity[at], profile.lines[at]) {
        (Some(capacity), Some(_)) => profile.used[at].max(0.0) / capacity.amount,
        _ => 0.0,
    });
    let largest = share.into_iter().fold(0.0, f64::max);
    if largest <= 0.0 {
        return Err("costs too little to be measured".to_owned());
    }
    let mut confidence = 1.0f64;
    for (at, line) in profile.lines.iter().enumerate() {
        let Some(line) = line.filter(|_| share[at] >= MATTERS * largest) else { continue };
        if line.fit < LEAST_FIT {
            return Err(format!(
                "its use of {} ({} a request) does not grow with the number of requests (fit {:.2}, at least {LEAST_FIT} is \
                 asked for)",
                USAGE_RESOURCES[at],
                percent(share[at]),
                line.fit
            ));
        }
        confidence = confidence.min(line.fit);
    }
    let route = route(&profile.target).ok_or("no route could name it")?;
    Ok(Route::of(&route, share, confidence, profile.requests))
}

/// What a page costs, in a line for people.
fn told(profile: &Profile) -> String {
    let resources = USAGE_RESOURCES.iter().zip(profile.used).zip(profile.lines).enumerate();
    let told = resources.filter_map(|(at, ((name, used), line))| {
        let line = line?;
        Some(format!("{name} {} (slope {}, fit {:.3})", use_of(at, used), use_of(at, line.slope), line.fit))
    });
    format!("{}: {}, {} requests", profile.target, told.collect::<Vec<_>>().join(", "), profile.requests)
}

/// A use in a unit for people: CPU time in milliseconds, or bytes.
fn use_of(resource: usize, used: f64) -> String {
    if resource == 0 { format!("{:.2} ms", used * 1e3) } else { amount(resource, used) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::Line;

    fn capacity(amount: f64) -> Option<Capacity> {
        Some(Capacity { amount, is_reached: true, is_told: false, missed: None })
    }

    fn page(used: Used, fits: [Option<f64>; 3]) -> Profile {
        let lines = [0, 1, 2].map(|at| fits[at].map(|fit| Line { slope: used[at], fit }));
        Profile { target: "/a?b=1".to_owned(), used, requests: 90, lines }
    }

    #[test]
    fn a_cost_is_a_share_of_the_capacity() {
        let all = [capacity(0.5), capacity(20e6), None];
        let route = judged(&page([0.01, 600e3, 300.0], [Some(0.99), Some(0.97), Some(1.0)]), &all).expect("sound");
        assert_eq!((route.share, route.confidence, route.tendency()), ([0.02, 0.03, 0.0], 0.97, 1));
    }

    #[test]
    fn nonsense_is_refused_where_it_matters() {
        let all = [capacity(0.5), capacity(20e6), capacity(1e6)];
        let why = judged(&page([0.01, 0.0, 300.0], [Some(0.62), None, Some(1.0)]), &all).expect_err("no proportion");
        assert!(why.contains("use of cpu (2% a request) does not grow") && why.contains("fit 0.62"), "{why}");
        let noise = page([0.01, 3e3, 300.0], [Some(0.99), Some(-5.0), Some(1.0)]);
        assert_eq!(judged(&noise, &all).expect("the disk does not matter").confidence, 0.99);
        for nothing in [page([0.0; 3], [None; 3]), page([-1.0, -1.0, -1.0], [Some(1.0); 3])] {
            assert!(judged(&nothing, &all).expect_err("nothing").contains("too little"));
        }
    }

    #[test]
    fn a_line_for_people_has_slope_and_fit() {
        let line = told(&page([0.0123, 0.0, 2048.0], [Some(0.987), None, Some(1.0)]));
        assert_eq!(
            line,
            "/a?b=1: cpu 12.30 ms (slope 12.30 ms, fit 0.987), bandwidth 2KiB (slope 2KiB, fit 1.000), 90 requests"
        );
    }
}
