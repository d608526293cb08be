//! The whole probe: crawl, request profiling, server profiling, and the table.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use url::Url;
use weirgate_clock::{self as clock, Clock};
use weirgate_wire::RESOURCE_NAMES;

use crate::capacity::{Capacity, Ramp, capacities, heaviest};
use crate::client::Target;
use crate::crawl::{self, Visit};
use crate::fold::fold;
use crate::frontier::{self, Bounds};
use crate::load::Load;
use crate::monitor::{Monitor, Used};
use crate::profile::{Effort, Look, look};
use crate::sample::Series;
use crate::state::{Profile, State};
use crate::table::{Table, amount};
use crate::verdict::{Cost, use_of};

/// Number of readings used to measure the cost of one.
const QUESTIONS: u32 = 20;

/// Duration of the measurement of the idle server.
const IDLE: Duration = Duration::from_secs(2);

/// Fraction of the total time by which the crawl must end, and by which the first look at all pages must end.
/// The second look takes at most as long, and the server is saturated between the looks.
const CRAWL_BY: f64 = 0.25;
const FIRST_LOOK_BY: f64 = 0.6;

/// Minimum status that indicates a problem of the server and not of a page.
const TROUBLE: u16 = 500;

/// Subject and extent of a probe.
#[derive(Clone, Debug)]
pub struct Options {
    /// The home page.
    pub home: Url,
    /// The node to send requests to.
    pub target: Target,
    /// The node's agent.
    pub monitor: Monitor,
    /// Limits of the crawl.
    pub bounds: Bounds,
    /// Extent of the requests for each page.
    pub effort: Effort,
    /// Maximum number of concurrent requests when the server is saturated.
    pub saturate: u32,
    /// Maximum total time.
    pub time: Duration,
    /// File for the state. With `None` no state is kept.
    pub state: Option<PathBuf>,
}

/// Progress to be displayed.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A part begins. Includes the number of its steps, if known.
    Part(&'a str, Option<u64>),
    /// A step begins.
    Step(String),
    /// A step is done.
    Done,
    /// A permanent line of output.
    Line(String),
}

/// A running probe.
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
    /// Continues from `state`. Pass a [`State::new`] to start a new probe.
    pub fn new(options: Options, state: State, show: &'a dyn Fn(Progress<'_>)) -> Probe<'a> {
        let load = Load::new(options.target.clone(), options.monitor.clone());
        Probe { options, state, load, clock: Clock::start(), show }
    }

    /// Visits the site. The pages found are in the returned state, which is kept.
    ///
    /// # Errors
    /// There is no page, or the state cannot be saved.
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
                    "the time for the crawl has run out: {} pages were not visited",
                    self.state.frontier.waiting()
                )));
                break;
            }
            (self.show)(Progress::Step(path.clone()));
            let page = (path.as_str(), depth);
            match crawl::visit(&mut self.load, page, &home, &robots, bounds, &mut self.state.frontier).await {
                Visit::Page => self.state.pages.push(path),
                Visit::Bad(why) => self.state.left_out.push((path, why)),
                Visit::Unanswered(why) => {
                    if let Err(trouble) = self.is_up().await {
                        self.state.frontier.put_back(path, depth);
                        return Err(trouble);
                    }
                    self.state.left_out.push((path, why));
                }
            }
            self.keep()?;
            (self.show)(Progress::Done);
        }
        for (left, count) in self.state.frontier.left() {
            (self.show)(Progress::Line(format!(
                "skipped: {count} link{} {}",
                if *count == 1 { "" } else { "s" },
                left.why()
            )));
        }
        if self.state.pages.is_empty() {
            let why = self.state.left_out.first().map(|(path, why)| format!("{path}: {why}"));
            let left = self.state.frontier.left().keys().next().map_or("not to be visited", |left| left.of_page());
            return Err(why.unwrap_or_else(|| format!("the home page is {left}")));
        }
        self.state.is_crawled = true;
        self.keep()?;
        Ok(&self.state)
    }

    /// Runs the whole probe, using the results known already.
    ///
    /// # Errors
    /// The probe cannot continue. Its results so far are kept.
    pub async fn run(mut self) -> Result<Table, String> {
        // Before any request to the server, because nothing can be learned without a monitor.
        let told = self.options.monitor.read().await?;
        self.crawl().await?;
        (self.show)(Progress::Part("watching the idle server", None));
        let idle = self.load.learn_idle(QUESTIONS, IDLE).await?;
        let [cpu, disk, bandwidth] = [0, 1, 2].map(|at| use_of(at, idle.second[at]));
        (self.show)(Progress::Line(format!(
            "a second without requests: cpu {cpu}, disk {disk}, bandwidth {bandwidth}"
        )));
        self.profile_pages().await?;
        let mut hindered = self.saturate(told.capacity).await?;
        let capacity = capacities(&self.state.peaks, told.capacity);
        if let Some((path, resource)) = self.without_capacity(&capacity) {
            let why = hindered[resource].take();
            let why =
                why.unwrap_or_else(|| "time ran out before this was measured; give more with --max-time".to_owned());
            let name = RESOURCE_NAMES[resource];
            return Err(format!("the capacity of {name} is unknown, and {path} uses it: {why}"));
        }
        // The effects of saturation may not have ended.
        self.load.learn_idle(QUESTIONS, IDLE).await?;
        self.confirm(&capacity).await?;
        Ok(self.table(capacity))
    }

    /// Returns a page that uses a resource of unknown capacity, and that resource. A resource that the server
    /// could not be made to use at all counts as unused.
    fn without_capacity(&self, capacity: &[Option<Capacity>; 3]) -> Option<(&str, usize)> {
        let is_known = |at: usize| capacity[at].is_some() || self.state.peaks.iter().any(|peak| peak.resource == at);
        let unknown = [0, 1, 2].map(|at| !is_known(at));
        let costs = self.state.profiles.iter().map(Cost::of).filter(Cost::is_sound);
        costs
            .filter_map(|cost| Some((cost.target, (0..3).find(|at| unknown[*at] && cost.lines[*at].is_some())?)))
            .next()
    }

    /// Checks after a failed request whether the agent and the server still answer. If they do not, every
    /// page would fail, and the pages are not the cause.
    ///
    /// # Errors
    /// Names the one that does not answer.
    async fn is_up(&mut self) -> Result<(), String> {
        self.options.monitor.read().await?;
        let home = frontier::target(&self.options.home);
        let mut connection = self.load.connection();
        let answer = connection.get(&home, false).await;
        self.load.give_back(connection);
        let why = match answer {
            Ok(answer) if answer.status < TROUBLE => return Ok(()),
            Ok(answer) => format!("answered {}", answer.status),
            Err(why) => why,
        };
        Err(format!("the server has a problem: its home page fails as well ({why})"))
    }

    async fn profile_pages(&mut self) -> Result<(), String> {
        let pages: Vec<String> = self.unknown().map(str::to_owned).collect();
        (self.show)(Progress::Part("profiling", Some(pages.len() as u64)));
        for path in pages {
            if self.is_past(FIRST_LOOK_BY) {
                (self.show)(Progress::Line("the time for profiling has run out".to_owned()));
                break;
            }
            (self.show)(Progress::Step(path.clone()));
            let mut series = Series::default();
            match look(&mut self.load, &path, self.options.effort, Look::First, &mut series).await {
                Ok(()) => {
                    let profile = Profile { target: path, series, is_confirmed: false };
                    (self.show)(Progress::Line(Cost::of(&profile).told()));
                    self.state.profiles.push(profile);
                }
                Err(why) => {
                    self.is_up().await?;
                    self.leave_out(path, why);
                }
            }
            self.keep()?;
            (self.show)(Progress::Done);
        }
        Ok(())
    }

    /// Takes the second look at each page, minutes after the first. Other load on the machine is then likely
    /// to have changed, and the relevant resources are known by now.
    async fn confirm(&mut self, capacity: &[Option<Capacity>; 3]) -> Result<(), String> {
        let open = |profile: &&Profile| !profile.is_confirmed;
        let pages: Vec<Profile> = self.state.profiles.iter().filter(open).cloned().collect();
        (self.show)(Progress::Part("profiling again", Some(pages.len() as u64)));
        for mut profile in pages {
            if self.is_past(1.0) {
                (self.show)(Progress::Line("there is no time to profile all pages again".to_owned()));
                break;
            }
            (self.show)(Progress::Step(profile.target.clone()));
            let (effort, which) = (self.options.effort, Look::Second(Cost::of(&profile).worth_knowing(capacity)));
            let looked = look(&mut self.load, &profile.target, effort, which, &mut profile.series).await;
            if looked.is_err() {
                self.is_up().await?;
            }
            let at = self.state.profiles.iter().position(|known| known.target == profile.target);
            let known = at.and_then(|at| self.state.profiles.get_mut(at).map(|known| (at, known)));
            match (looked, known) {
                (Ok(()), Some((_, known))) => {
                    profile.is_confirmed = true;
                    (self.show)(Progress::Line(Cost::of(&profile).told()));
                    *known = profile;
                }
                (Err(why), Some((at, _))) => {
                    self.state.profiles.remove(at);
                    self.leave_out(profile.target, why);
                }
                (_, None) => {}
            }
            self.keep()?;
            (self.show)(Progress::Done);
        }
        Ok(())
    }

    fn leave_out(&mut self, path: String, why: String) {
        (self.show)(Progress::Line(format!("{path}: left out: {why}")));
        self.state.left_out.push((path, why));
    }

    /// Saturates each resource with the page that uses the most of it. If the result is doubtful, tries again
    /// with the page that uses the least of other resources. Returns the obstacle for each resource, if there
    /// was one.
    async fn saturate(&mut self, told: [Option<f64>; 3]) -> Result<[Option<String>; 3], String> {
        (self.show)(Progress::Part("saturating the server", None));
        let mut hindered = [None, None, None];
        for again in [false, true] {
            for resource in 0..3 {
                let known = again.then(|| capacities(&self.state.peaks, told));
                let found = known.as_ref().and_then(|known| known[resource]);
                if again && !found.is_some_and(|capacity| capacity.is_doubtful()) {
                    continue;
                }
                let costs = self.state.profiles.iter().map(Cost::of).filter(Cost::is_sound);
                let pages: Vec<(&str, Used)> = costs.map(|cost| (cost.target, cost.used)).collect();
                let Some(path) = heaviest(&pages, resource, known.as_ref()).map(str::to_owned) else { continue };
                let was_tried = self.state.peaks.iter().any(|peak| peak.target == path && peak.resource == resource);
                // If the agent's figure is much larger, other work may have used the machine, so the same
                // page may be tried again.
                let is_missed = found.is_some_and(|capacity| capacity.missed.is_some());
                if (was_tried && !is_missed) || self.is_past(1.0) {
                    continue;
                }
                hindered[resource] = self.bring_to_peak(&path, resource).await?;
            }
        }
        Ok(hindered)
    }

    /// Saturates a resource with a page. Returns the reason if that is not possible.
    async fn bring_to_peak(&mut self, path: &str, resource: usize) -> Result<Option<String>, String> {
        let mut ramp = Ramp::new(path, resource, self.options.saturate);
        let mut hindered = None;
        while let Some(at_once) = ramp.next() {
            (self.show)(Progress::Step(format!("{} with {path}, {at_once} at once", RESOURCE_NAMES[resource])));
            match self.load.sustained(path, at_once).await {
                Ok((rate, own)) => ramp.add(rate, own),
                Err(why) => {
                    self.is_up().await?;
                    hindered = Some(format!("{path}: {why}"));
                    (self.show)(Progress::Line(format!("{path}: {why}")));
                    break;
                }
            }
            (self.show)(Progress::Done);
        }
        let peak = ramp.peak();
        if peak.concurrency == 0 && hindered.is_some() {
            return Ok(hindered);
        }
        let rate = amount(resource, peak.rate[resource]);
        (self.show)(Progress::Line(format!(
            "{path} uses at most {rate} of {} a second, with {} at once",
            RESOURCE_NAMES[resource], peak.concurrency
        )));
        self.state.peaks.push(peak);
        self.keep()?;
        Ok(None)
    }

    fn table(&self, capacity: [Option<Capacity>; 3]) -> Table {
        let mut left_out = self.state.left_out.clone();
        let mut routes = Vec::new();
        for profile in &self.state.profiles {
            match Cost::of(profile).judged(&capacity) {
                Ok(route) => routes.push(route),
                Err(why) => left_out.push((profile.target.clone(), why)),
            }
        }
        left_out
            .extend(self.unknown().map(|path| (path.to_owned(), "no time left; give more with --max-time".to_owned())));
        left_out.sort();
        let server = self.options.home.origin().ascii_serialization();
        let now = clock::calendar().duration_since(SystemTime::UNIX_EPOCH);
        let probed = now.map_or(0, |since| since.as_secs());
        Table { probed, server, capacity, routes: fold(routes), left_out }
    }

    /// Returns the pages with neither a known cost nor a known reason for having none.
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
