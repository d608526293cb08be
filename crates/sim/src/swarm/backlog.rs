//! The waiting and the releases of a run, read from its records, for disciplines that manage resources.
//!
//! Nothing here comes from the engine. The charge of a request is looked up in the policy. A request waits
//! from its arrival until it is released or ended.

use std::collections::BTreeSet;
use std::ops::Range;

use weirgate_engine::{LoadControl, Policy, Precedence};
use weirgate_experiment::{Experiment, Run, TrafficClass};

use super::resources::RESOURCES;

/// Classes with requests to the same machines. They compete for the same resources.
pub(super) struct Competitors {
    /// Indices into the policy's classes.
    pub(super) classes: Vec<usize>,
    /// Indices of its machines.
    pub(super) machines: Vec<usize>,
    /// The machines' amount of each resource in a horizon, in node-seconds.
    pub(super) whole: f64,
    /// The amount of the smallest machine.
    pub(super) smallest: f64,
    /// Sum of the weights of all classes.
    pub(super) weights: f64,
}

/// A request of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked {
    /// Nanoseconds from the start of the run.
    pub(super) arrived: u64,
    /// The instant at which it stops waiting.
    pub(super) until: u64,
    /// Whether it was released at that instant.
    pub(super) released: bool,
    /// Its stream.
    pub(super) traffic: usize,
}

/// An event in a request's waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Comes,
    Leaves,
    Released,
}

/// A run under a discipline that manages resources.
pub(super) struct Backlog {
    /// All groups of competing classes. No machine belongs to two of them.
    pub(super) competitors: Vec<Competitors>,
    /// Charge of a request per stream, for each resource, in node-seconds. 0 for an unmanaged resource.
    pub(super) charged: Vec<[f64; RESOURCES]>,
    /// Requests per class, in order of arrival.
    pub(super) asked: Vec<Vec<Asked>>,
    /// The horizon, in seconds.
    pub(super) horizon: f64,
    /// True under `drfq`, false under `mdrr`.
    pub(super) by_virtual_time: bool,
    /// Whether only one resource is managed.
    pub(super) is_single: bool,
}

fn machines_of(experiment: &Experiment, pool: usize) -> BTreeSet<usize> {
    let nodes = experiment.site.policy.nodes.iter().zip(&experiment.machine_of);
    nodes.filter(|(node, _)| node.pool == pool).map(|(_, machine)| *machine).collect()
}

/// Returns the groups of competing classes, or `None` if two pools share some but not all of their machines.
fn all_competitors(experiment: &Experiment, horizon: f64) -> Option<Vec<Competitors>> {
    let policy = &experiment.site.policy;
    let mut sets: Vec<BTreeSet<usize>> = Vec::new();
    for pool in 0..policy.pools.len() {
        let machines = machines_of(experiment, pool);
        if sets.contains(&machines) {
            continue;
        }
        if sets.iter().any(|other| !other.is_disjoint(&machines)) {
            return None;
        }
        sets.push(machines);
    }
    let weight = |machine: usize| {
        let nodes = policy.nodes.iter().zip(&experiment.machine_of).filter(|(_, of)| **of == machine);
        nodes.map(|(node, _)| node.weight).fold(0.0, f64::max) * horizon
    };
    let of_machines = |set: BTreeSet<usize>| {
        let in_flight = |class: &&usize| machines_of(experiment, policy.classes[**class].pool) == set;
        let all: Vec<usize> = (0..policy.classes.len()).collect();
        let classes: Vec<usize> = all.iter().filter(in_flight).copied().collect();
        let full: Vec<f64> = set.iter().map(|machine| weight(*machine)).collect();
        Competitors {
            weights: classes.iter().map(|class| policy.classes[*class].weight).sum(),
            classes,
            whole: full.iter().sum(),
            smallest: full.iter().copied().fold(f64::INFINITY, f64::min),
            machines: set.into_iter().collect(),
        }
    };
    Some(sets.into_iter().map(of_machines).collect())
}

/// Returns the charge of a request of stream `traffic` by the table in the policy file.
fn charged(experiment: &Experiment, traffic: usize, only: Option<usize>) -> [f64; RESOURCES] {
    let stream = &experiment.traffic[traffic];
    let path = stream.request.path.as_deref().unwrap_or_default();
    let routes = experiment.site.page_table.iter().flat_map(|table| &table.routes);
    let known = routes.into_iter().find(|route| route.pattern.to_string() == path).map(|route| route.demand);
    let class = stream.class.class(&experiment.site.policy);
    let shares: [f64; RESOURCES] = known.unwrap_or(class.demand).shares();
    std::array::from_fn(|resource| if only.is_none_or(|only| only == resource) { shares[resource] } else { 0.0 })
}

impl Backlog {
    /// Reads a run. `None` if its discipline does not manage resources, or if two pools share some but not
    /// all of their machines.
    pub(super) fn of(experiment: &Experiment, run: &Run) -> Option<Backlog> {
        let policy: &Policy = &experiment.site.policy;
        let LoadControl::ResourceAvailability(figures) = policy.discipline.load_control else { return None };
        let horizon = figures.horizon.as_secs_f64();
        let mut asked = vec![Vec::new(); policy.classes.len()];
        for record in &run.records {
            let traffic = record.traffic as usize;
            let TrafficClass::Class(class) = experiment.traffic[traffic].class else { continue };
            let released = record.released > 0;
            let until = if released { record.released.max(record.arrived) } else { record.ended };
            asked[class].push(Asked { arrived: record.arrived, until, released, traffic });
        }
        Some(Backlog {
            competitors: all_competitors(experiment, horizon)?,
            charged: (0..experiment.traffic.len()).map(|stream| charged(experiment, stream, figures.only)).collect(),
            asked,
            horizon,
            by_virtual_time: policy.discipline.precedence == Precedence::Drfq,
            is_single: figures.only.is_some(),
        })
    }

    /// Returns the largest charge of a stream's request over all resources.
    pub(super) fn dominant(&self, traffic: usize) -> f64 {
        self.charged[traffic].into_iter().fold(0.0, f64::max)
    }

    /// Returns the streams of a class with a request that arrived or waited in `span`.
    pub(super) fn streams(&self, class: usize, span: &Range<u64>) -> BTreeSet<usize> {
        let during = self.asked[class].iter().filter(|a| a.arrived < span.end && a.until >= span.start);
        during.map(|asked| asked.traffic).collect()
    }

    /// Returns the largest request of these streams.
    pub(super) fn largest(&self, class: usize, span: &Range<u64>) -> f64 {
        self.streams(class, span).into_iter().map(|stream| self.dominant(stream)).fold(0.0, f64::max)
    }

    /// Returns the charge of a class's requests released in `span`, per resource.
    pub(super) fn used(&self, class: usize, span: &Range<u64>) -> [f64; RESOURCES] {
        let mut used = [0.0; RESOURCES];
        for asked in self.asked[class].iter().filter(|asked| asked.released && span.contains(&asked.until)) {
            used.iter_mut().zip(self.charged[asked.traffic]).for_each(|(used, charged)| *used += charged);
        }
        used
    }

    /// Returns the times within `span` in which requests of a class wait. A release of one of its
    /// requests ends a time.
    pub(super) fn waits(&self, class: usize, span: &Range<u64>) -> Vec<Range<u64>> {
        // At one instant arrivals come first, then requests that leave, then releases.
        let mut turns: Vec<(u64, Turn)> = Vec::new();
        for asked in &self.asked[class] {
            turns.push((asked.arrived, Turn::Comes));
            turns.push((asked.until, if asked.released { Turn::Released } else { Turn::Leaves }));
        }
        turns.sort_unstable();
        let (mut waiting, mut since, mut all) = (0u64, 0, Vec::new());
        for (at, turn) in turns {
            if turn == Turn::Comes {
                since = if waiting == 0 { at } else { since };
                waiting += 1;
                continue;
            }
            waiting -= 1;
            if turn == Turn::Released || waiting == 0 {
                all.push(since..at);
                since = at;
            }
        }
        let cut = |wait: Range<u64>| wait.start.max(span.start)..wait.end.min(span.end);
        all.into_iter().map(cut).filter(|wait| wait.end > wait.start).collect()
    }

    /// Returns all releases of some classes in order, with their instants and largest charges.
    pub(super) fn releases(&self, classes: impl Iterator<Item = usize>) -> Vec<(u64, f64)> {
        let released = classes.flat_map(|class| &self.asked[class]).filter(|asked| asked.released);
        let mut all: Vec<(u64, f64)> = released.map(|asked| (asked.until, self.dominant(asked.traffic))).collect();
        all.sort_unstable_by_key(|one| one.0);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arrived: u64, until: u64, released: bool) -> Asked {
        Asked { arrived, until, released, traffic: 0 }
    }

    fn backlog(asked: Vec<Asked>) -> Backlog {
        Backlog {
            competitors: Vec::new(),
            charged: vec![[0.2, 0.1, 0.0]],
            asked: vec![asked],
            horizon: 1.0,
            by_virtual_time: false,
            is_single: false,
        }
    }

    #[test]
    fn a_wait_ends_with_a_release_or_with_the_last_waiting_request() {
        let one = backlog(vec![
            asked(0, 10, true),
            asked(5, 20, true),
            asked(12, 15, false),
            asked(25, 25, true),
            asked(30, 40, false),
        ]);
        assert_eq!(one.waits(0, &(0..100)), [0..10, 10..20, 30..40]);
        // A request is released on arrival while another one waits on.
        let both = backlog(vec![asked(0, 9, false), asked(4, 4, true)]);
        assert_eq!(both.waits(0, &(0..100)), [0..4, 4..9]);
        assert_eq!(one.waits(0, &(14..35)), [14..20, 30..35]);
        assert_eq!(one.used(0, &(0..20)).map(|used| (used * 10.0_f64).round()), [2.0, 1.0, 0.0]);
        assert_eq!(one.releases([0].into_iter()), [(10, 0.2), (20, 0.2), (25, 0.2)]);
    }
}
