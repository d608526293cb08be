//! Learning of costs, outside the path of requests. Each report of an agent is one learning step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use weirgate_config::PageTable;
use weirgate_engine::{Demand, Time};
use weirgate_pages::{Discovery, Index, Learned, Learner, OFTEN, Pattern, RESOURCES, Shares, Study};
use weirgate_wire::{LearnedRoute, MAX_LEARNED_ROUTES, RESOURCE_NAMES, Usage, admin as shape};

use super::{Cost, FinishedInterval, NO_ROUTE, Table};
use crate::active_config::ActiveConfig;

/// State of learning, and its inputs.
pub(super) struct Lessons {
    intervals: Receiver<FinishedInterval>,
    paths: Receiver<Box<str>>,
    /// The learner. Its routes have the same numbers as in the table.
    study: Option<Study>,
    discovery: Option<Discovery>,
    /// Maps each node to the id that represents its machine, for machines with several nodes: the id of one
    /// of them.
    machines: BTreeMap<u64, u64>,
    /// Whether there is a page table.
    exists: bool,
    /// Cost of each route as declared in the policy.
    given: Vec<Option<Shares>>,
    table: Arc<Table>,
}

impl Lessons {
    pub(super) fn new(intervals: Receiver<FinishedInterval>, paths: Receiver<Box<str>>) -> Lessons {
        Lessons {
            intervals,
            paths,
            study: None,
            discovery: None,
            machines: BTreeMap::new(),
            exists: false,
            given: Vec::new(),
            table: Arc::default(),
        }
    }

    /// Builds the table of `active_config`. Knowledge about routes that stay is kept.
    pub(super) fn follow(&mut self, active_config: &ActiveConfig) -> Arc<Table> {
        let site = active_config.site.page_table.as_ref();
        self.exists = site.is_some();
        let nothing = PageTable::default();
        let site = site.unwrap_or(&nothing);
        let discovers = site.learned && site.routes.is_empty();
        self.discovery = if discovers { Some(self.discovery.take().unwrap_or_default()) } else { None };
        let routes = site.routes.iter().map(|route| (route.pattern.clone(), Some(route.demand.shares())));
        let found = self.discovery.iter().flat_map(|d| d.found().iter().map(|pattern| (pattern.clone(), None)));
        let (patterns, given): (Vec<Pattern>, Vec<Option<Shares>>) = routes.chain(found).unzip();
        if site.learned {
            let before = self.table.index.patterns().iter().enumerate();
            let before: BTreeMap<&Pattern, usize> = before.map(|(number, pattern)| (pattern, number)).collect();
            let carried = patterns.iter().map(|pattern| before.get(pattern).copied()).zip(given.iter().copied());
            match &mut self.study {
                Some(study) => study.replace(carried),
                None => self.study = Some(Study::new(Learner::new(given.iter().copied()), site.capacity)),
            }
        } else {
            self.study = None;
        }
        self.given = given;
        self.follow_nodes(active_config, site.capacity);
        // Requests in flight keep their routes if the routes have the same numbers as before.
        let renumbered = patterns != self.table.index.patterns();
        self.rebuild(patterns, self.table.epoch + u32::from(renumbered))
    }

    /// Nodes of one machine share its resources and are learned as one.
    fn follow_nodes(&mut self, active_config: &ActiveConfig, capacity: [Option<f64>; RESOURCES]) {
        self.machines.clear();
        let Some(study) = &mut self.study else { return };
        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        let mut weights: BTreeMap<u64, f64> = BTreeMap::new();
        for (node, endpoint) in active_config.site.policy.nodes.iter().zip(&active_config.nodes) {
            let machine = *names.entry(&node.machine).or_insert(endpoint.id);
            self.machines.insert(endpoint.id, machine);
            let weight = weights.entry(machine).or_default();
            *weight = weight.max(node.weight);
        }
        study.set_capacity(capacity);
        study.follow(weights);
    }

    /// Builds a table of these patterns with the known costs.
    fn rebuild(&mut self, patterns: Vec<Pattern>, epoch: u32) -> Arc<Table> {
        let cost = |route: usize| match &self.study {
            Some(study) => study.learner.cost(route),
            None => self.given.get(route).copied().flatten(),
        };
        let demand = |route| cost(route).map(|shares| Demand::of_shares(&shares));
        self.table = Arc::new(Table {
            version: self.table.version + 1,
            epoch,
            costs: (0..patterns.len()).map(|route| Cost::new(demand(route))).collect(),
            learned: self.study.is_some(),
            discovers: self.discovery.is_some(),
            wide: self.discovery.iter().flat_map(|d| (0..patterns.len()).map(|route| d.is_wide(route))).collect(),
            index: Index::new(patterns),
        });
        Arc::clone(&self.table)
    }

    /// Notes that finished requests were lost.
    pub(super) fn spoil(&mut self) {
        self.study.iter_mut().for_each(Study::spoil);
    }

    /// Learns from a report. Returns a new table if routes were found.
    pub(super) fn reported(&mut self, node: u64, now: Time, usage: &Usage) -> Option<Arc<Table>> {
        let study = self.study.as_mut()?;
        // Take no more requests than there were, because others arrive meanwhile.
        for finished in self.intervals.try_iter().take(super::MAX_INTERVALS) {
            let Some(machine) = self.machines.get(&finished.node) else { continue };
            let route = (finished.epoch == self.table.epoch && finished.route != NO_ROUTE).then_some(finished.route);
            study.finished(
                *machine,
                route,
                (finished.from.as_secs_f64(), finished.until.as_secs_f64()),
                finished.whole,
            );
        }
        let machine = self.machines.get(&node).copied().unwrap_or(node);
        if study.reported(machine, node, now.as_secs_f64(), usage.used, usage.capacity) {
            for route in 0..self.table.costs.len() {
                self.table.set(route, study.learner.cost(route));
            }
        }
        self.discover(now)
    }

    /// Examines the paths that arrived since the last report. At most one idle route is replaced. The next
    /// one can be replaced after the next report.
    fn discover(&mut self, now: Time) -> Option<Arc<Table>> {
        let (discovery, study) = (self.discovery.as_mut()?, self.study.as_mut()?);
        let before = discovery.found().len();
        let mut idle = study.learner.idlest(now.as_secs_f64());
        let mut replaced = None;
        for path in self.paths.try_iter().take(super::MAX_LOOKS) {
            let full = discovery.is_full();
            if discovery.saw(&path, idle) && full {
                replaced = idle.take();
            }
        }
        let patterns = discovery.found().to_vec();
        if patterns.len() == before && replaced.is_none() {
            return None;
        }
        for _ in before..patterns.len() {
            study.learner.add(None);
            self.given.push(None);
        }
        if let Some(replaced) = replaced {
            study.replace((0..patterns.len()).map(|route| ((route != replaced).then_some(route), None)));
        }
        for route in (before..patterns.len()).chain(replaced) {
            study.learner.saw(route, f64::from(OFTEN), now.as_secs_f64());
        }
        // Adding routes leaves the numbers of existing routes unchanged.
        Some(self.rebuild(patterns, self.table.epoch + u32::from(replaced.is_some())))
    }

    /// Returns what was learned of routes until `now`, the most recent first.
    pub(super) fn learned(&self, now: Time) -> Vec<LearnedRoute> {
        let Some(study) = &self.study else { return Vec::new() };
        let joint = |route: usize| self.discovery.as_ref().is_some_and(|discovery| discovery.is_wide(route));
        let one = |(route, pattern): (usize, &Pattern)| {
            let learned = study.learner.learned(route)?;
            let known = RESOURCE_NAMES.iter().zip(learned.cost);
            Some(LearnedRoute {
                pattern: pattern.to_string(),
                joint: joint(route),
                age_seconds: (now.as_secs_f64() - learned.at).max(0.0),
                cost: known.filter_map(|(name, cost)| Some(((*name).to_owned(), cost?))).collect(),
            })
        };
        let mut routes: Vec<LearnedRoute> = self.table.index.patterns().iter().enumerate().filter_map(one).collect();
        routes.sort_by(|a, b| a.age_seconds.total_cmp(&b.age_seconds));
        routes.truncate(MAX_LEARNED_ROUTES);
        routes
    }

    /// Takes over what was learned elsewhere of the routes of this table, and of others if routes are discovered.
    /// Returns their number, and a new table if there are new routes.
    pub(super) fn begin_with(
        &mut self,
        routes: &[LearnedRoute],
        age: Duration,
        now: Time,
    ) -> (usize, Option<Arc<Table>>) {
        let Some(study) = &mut self.study else { return (0, None) };
        let table = Arc::clone(&self.table);
        // A gateway may follow another one every second, and a table may have thousands of routes.
        let numbers: BTreeMap<&Pattern, usize> = table.index.patterns().iter().zip(0..).collect();
        let (mut found, mut taken) = (Vec::new(), 0);
        let now = now.as_secs_f64();
        for known in routes.iter().take(MAX_LEARNED_ROUTES) {
            let Ok(pattern) = Pattern::parse(&known.pattern) else { continue };
            let cost = RESOURCE_NAMES.map(|name| known.cost.get(name).copied());
            let learned = Learned { cost, at: now - age.as_secs_f64() - known.age_seconds.max(0.0) };
            let mut find = |pattern: &Pattern| self.discovery.as_mut().is_some_and(|d| d.add(pattern, known.joint));
            let route = match numbers.get(&pattern) {
                Some(route) => *route,
                None if find(&pattern) => {
                    found.push(pattern);
                    self.given.push(None);
                    study.learner.add(None)
                }
                None => continue,
            };
            if study.learner.begin_with(route, learned, now) {
                table.set(route, study.learner.cost(route));
                taken += 1;
            }
        }
        if found.is_empty() {
            return (taken, None);
        }
        // Adding routes leaves the numbers of existing routes unchanged.
        let patterns = table.index.patterns().iter().cloned().chain(found).collect();
        (taken, Some(self.rebuild(patterns, table.epoch)))
    }

    /// Returns the state for operators.
    pub(super) fn view(&self, max: usize) -> Option<shape::PageTable> {
        if !self.exists {
            return None;
        }
        let patterns = self.table.index.patterns();
        let routes_total = patterns.len();
        let Some(study) = &self.study else {
            let known = patterns.iter().zip(&self.given).take(max);
            let route = |(pattern, given): (&Pattern, &Option<Shares>)| {
                shape::Route::new(&pattern.to_string(), given.unwrap_or_default()).with_table(*given)
            };
            return Some(shape::PageTable { routes: known.map(route).collect(), routes_total, ..Default::default() });
        };
        let mut known: Vec<_> = patterns.iter().zip(study.learner.estimates()).collect();
        known.sort_by(|(_, a), (_, b)| b.apart.cmp(&a.apart).then(b.requests.total_cmp(&a.requests)));
        let route = |(pattern, estimate): (&Pattern, weirgate_pages::Estimate)| shape::Route {
            apart: estimate.apart,
            requests: estimate.requests,
            windows: estimate.windows,
            ..shape::Route::new(&pattern.to_string(), estimate.cost)
                .with_table(estimate.table)
                .with_error(estimate.error)
        };
        let routes = known.into_iter().take(max).map(route).collect();
        let table = shape::PageTable { learned: true, routes, routes_total, ..Default::default() };
        Some(table.with_background(study.learner.background()).with_windows(|resource| study.outcomes.of(resource)))
    }
}
