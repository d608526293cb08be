//! The policy's page table in virtual time. The cost of each stream's requests is looked up by their
//! address, as in the gateway, and learned from the machines' use if the policy says so.
//!
//! The learner is the gateway's (`weirgate_pages`). Machines count the same quantity as the agents of
//! `weirgate lab`: seconds for which CPUs, disks and links were occupied. Like real machines they are all
//! asked at the same instants, but their answers take no time. A crashed machine does not answer, and
//! neither does one with lost reports.
//!
//! Departures: the requests of a stream have one route. Marks in its path are not filled in, so a route
//! tells requests apart only where it has a `*`. If routes are found in the traffic, the routes of all
//! streams are found before the first request.

use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_config::PageTable;
use weirgate_engine::Demand;
use weirgate_experiment::{CostEstimate, Experiment};
use weirgate_pages::{Discovery, Index, Learner, Pattern, RESOURCES, Study};

use super::{Driver, Errand};

/// Number of times that a path is shown to the discovery before the first request. It exceeds the number
/// needed to make the path a route.
const SEEN: usize = 100;

/// The interval between two readings of the machines if their pools have no collectors: the default
/// interval of collectors where a table is learned.
const EVERY: Duration = Duration::from_secs(1);

/// The page table and its learner.
pub(super) struct Table {
    /// Per stream the route of its requests, and their present cost by the table.
    routes: Vec<Option<u32>>,
    costs: Vec<Option<Demand>>,
    /// The patterns of the streams' routes.
    patterns: BTreeMap<u32, String>,
    lessons: Option<Lessons>,
}

struct Lessons {
    study: Study,
    every: u64,
}

impl Table {
    /// Creates the table of the experiment's policy. A policy without a table gives an empty one.
    pub(super) fn of(experiment: &Experiment) -> Table {
        let nothing = PageTable::default();
        let site = experiment.site.page_table.as_ref().unwrap_or(&nothing);
        let streams = 0..experiment.traffic.len();
        let given = site.routes.iter().map(|route| (route.pattern.clone(), Some(route.demand)));
        let mut discovery = Discovery::default();
        if site.learned && site.routes.is_empty() {
            for stream in streams.clone() {
                // Repeat until the route is found. A path that is never found stays without a route.
                (0..SEEN).any(|_| discovery.saw(experiment.traffic[stream].address().0, None));
            }
        }
        let found = discovery.found().iter().map(|pattern| (pattern.clone(), None));
        let (patterns, demands): (Vec<Pattern>, Vec<Option<Demand>>) = given.chain(found).unzip();
        let index = Index::new(patterns);
        let route = |stream: usize| {
            let (path, query) = experiment.traffic[stream].address();
            index.find(path, query)
        };
        let routes: Vec<Option<usize>> = streams.map(route).collect();
        let lessons = site.learned.then(|| Lessons::new(experiment, site, &demands));
        let costs = routes.iter().map(|route| demands[(*route)?]).collect();
        let routes: Vec<Option<u32>> =
            routes.into_iter().map(|route| route.and_then(|route| u32::try_from(route).ok())).collect();
        let pattern = |route: &u32| (*route, index.patterns()[*route as usize].to_string());
        Table { costs, patterns: routes.iter().flatten().map(pattern).collect(), routes, lessons }
    }

    /// Returns the cost of a request of stream `traffic`, if the table has one.
    pub(super) fn cost_of(&self, traffic: u32) -> Option<Demand> {
        self.costs[traffic as usize]
    }

    /// A request of stream `traffic` was at `machine` from `from` to `until`. `whole` is false if it was
    /// cut off.
    pub(super) fn left(&mut self, machine: usize, traffic: u32, (from, until): (u64, u64), whole: bool) {
        let Some(Lessons { study, .. }) = &mut self.lessons else { return };
        study.finished(machine as u64, self.routes[traffic as usize], (seconds(from), seconds(until)), whole);
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Lessons {
    fn new(experiment: &Experiment, site: &PageTable, demands: &[Option<Demand>]) -> Lessons {
        let policy = &experiment.site.policy;
        let mut weights: BTreeMap<u64, f64> = BTreeMap::new();
        for (node, machine) in policy.nodes.iter().zip(&experiment.machine_of) {
            let weight = weights.entry(*machine as u64).or_default();
            *weight = weight.max(node.weight);
        }
        let mut study =
            Study::new(Learner::new(demands.iter().map(|demand| demand.map(|demand| demand.shares()))), site.capacity);
        study.follow(weights);
        let every = experiment.site.pools.iter().filter_map(|pool| Some(pool.collector.as_ref()?.every)).min();
        Lessons { study, every: super::nanos(every.unwrap_or(EVERY)) }
    }
}

impl Driver<'_> {
    /// Plans the next reading of the machines, if the table is learned.
    pub(super) fn plan_lesson(&mut self) {
        if let Some(every) = self.table.lessons.as_ref().map(|lessons| lessons.every) {
            self.errand(every, Errand::Lesson);
        }
    }

    /// Notes the present estimates, if the table is learned and a sample is due.
    pub(super) fn note_learned_costs(&mut self) {
        let Some(Lessons { study, .. }) = &self.table.lessons else { return };
        if !self.learned_costs.is_due(self.now) {
            return;
        }
        let estimates = study.learner.estimates();
        for (route, pattern) in &self.table.patterns {
            if let Some(estimate) = estimates.get(*route as usize) {
                self.learned_costs
                    .note(pattern, CostEstimate { at: self.now, cost: estimate.cost, error: estimate.error });
            }
        }
    }

    /// Reads the machines' use and updates the table.
    pub(super) fn learn(&mut self) {
        let Some(mut lessons) = self.table.lessons.take() else { return };
        for machine in 0..self.experiment.machines.len() {
            for server in self.machines.servers_of(machine) {
                self.machines.advance(self.now, server);
                self.touched(server);
            }
            if self.machines.condition(machine).crashed || self.is_mute(machine) {
                continue;
            }
            let form = &self.experiment.machines[machine];
            let servers = f64::from(form.servers);
            let capacity: [Option<f64>; RESOURCES] =
                [Some(f64::from(form.cpus) * servers), Some(servers), Some(servers)];
            let used = self.machines.occupied(machine).map(Some);
            lessons.study.reported(machine as u64, machine as u64, seconds(self.now), used, capacity);
        }
        let learner = &lessons.study.learner;
        for (route, cost) in self.table.routes.iter().zip(&mut self.table.costs) {
            let learned = route.and_then(|route| learner.cost(route as usize));
            *cost = learned.map(|shares| Demand::of_shares(&shares)).or(*cost);
        }
        self.table.lessons = Some(lessons);
        self.plan_lesson();
    }
}

#[cfg(test)]
mod tests;
