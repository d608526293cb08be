//! Who waited when, and what was released meanwhile: a run as its records tell it, where load control manages
//! resources.
//!
//! Nothing here is the engine's word. What a request is charged is looked up in the policy; who waits is who has
//! arrived and was neither released nor ended.

use std::collections::BTreeSet;
use std::ops::Range;

use weirgate_engine::{LoadControl, Policy, Precedence};
use weirgate_experiment::{Experiment, Run, TrafficClass};

use super::resources::RESOURCES;

/// Classes whose requests go to the same machines: they compete for the same resources.
pub(super) struct Domain {
    /// Indices into the policy's classes.
    pub(super) classes: Vec<usize>,
    /// Indices of its machines.
    pub(super) machines: Vec<usize>,
    /// What the machines have of each resource in a horizon, in node-seconds.
    pub(super) whole: f64,
    /// What the smallest of them has.
    pub(super) smallest: f64,
    /// Sum of the weights of all classes.
    pub(super) weights: f64,
}

/// A request of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked {
    /// Nanoseconds from the start of the run.
    pub(super) arrived: u64,
    /// It waits no more.
    pub(super) until: u64,
    /// It was released then.
    pub(super) released: bool,
    /// Its stream.
    pub(super) traffic: usize,
}

/// What happens to a request as far as waiting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Comes,
    Leaves,
    Released,
}

/// A run under a discipline that manages resources.
pub(super) struct Backlog {
    /// All of them; none has machines in common with another.
    pub(super) domains: Vec<Domain>,
    /// Per stream what its requests are charged of each resource, in node-seconds; what is not managed is 0.
    pub(super) charged: Vec<[f64; RESOURCES]>,
    /// Per class its requests, in order of arrival.
    pub(super) asked: Vec<Vec<Asked>>,
    /// The horizon, in seconds.
    pub(super) horizon: f64,
    /// `drfq`, or `mdrr`.
    pub(super) by_virtual_time: bool,
    /// One resource is managed alone.
    pub(super) is_single: bool,
}

/// The machines that serve `pool`.
fn machines_of(experiment: &Experiment, pool: usize) -> BTreeSet<usize> {
    let nodes = experiment.site.policy.nodes.iter().zip(&experiment.machine_of);
    nodes.filter(|(node, _)| node.pool == pool).map(|(_, machine)| *machine).collect()
}

/// The domains of a policy; `None` if pools share some of their machines and not all.
fn domains(experiment: &Experiment, horizon: f64) -> Option<Vec<Domain>> {
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
    let domain = |set: BTreeSet<usize>| {
        let inside = |class: &&usize| machines_of(experiment, policy.classes[**class].pool) == set;
        let all: Vec<usize> = (0..policy.classes.len()).collect();
        let classes: Vec<usize> = all.iter().filter(inside).copied().collect();
        let full: Vec<f64> = set.iter().map(|machine| weight(*machine)).collect();
        Domain {
            weights: classes.iter().map(|class| policy.classes[*class].weight).sum(),
            classes,
            whole: full.iter().sum(),
            smallest: full.iter().copied().fold(f64::INFINITY, f64::min),
            machines: set.into_iter().collect(),
        }
    };
    Some(sets.into_iter().map(domain).collect())
}

/// What a request of stream `traffic` is charged by the policy's table as it stands there.
fn charged(experiment: &Experiment, traffic: usize, only: Option<usize>) -> [f64; RESOURCES] {
    let stream = &experiment.traffic[traffic];
    let path = stream.request.path.as_deref().unwrap_or_default();
    let routes = experiment.site.page_table.iter().flat_map(|table| &table.routes);
    let known = routes.into_iter().find(|route| route.pattern.to_string() == path).map(|route| route.demand);
    let class = match stream.class {
        TrafficClass::Class(class) => &experiment.site.policy.classes[class],
        TrafficClass::Template { template, .. } => &experiment.site.policy.templates[template].class,
    };
    let shares: [f64; RESOURCES] = known.unwrap_or(class.demand).shares();
    std::array::from_fn(|resource| if only.is_none_or(|only| only == resource) { shares[resource] } else { 0.0 })
}

impl Backlog {
    /// Of a run; `None` if its discipline does not manage resources, or pools share some of their machines and not all.
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
            domains: domains(experiment, horizon)?,
            charged: (0..experiment.traffic.len()).map(|stream| charged(experiment, stream, figures.only)).collect(),
            asked,
            horizon,
            by_virtual_time: policy.discipline.precedence == Precedence::Drfq,
            is_single: figures.only.is_some(),
        })
    }

    /// What a request of a stream is charged of the resource of which it takes most.
    pub(super) fn dominant(&self, traffic: usize) -> f64 {
        self.charged[traffic].into_iter().fold(0.0, f64::max)
    }

    /// The streams of which a class asked for something in a stretch, or had something waiting.
    pub(super) fn streams(&self, class: usize, stretch: &Range<u64>) -> BTreeSet<usize> {
        let during = self.asked[class].iter().filter(|a| a.arrived < stretch.end && a.until >= stretch.start);
        during.map(|asked| asked.traffic).collect()
    }

    /// The largest request among them.
    pub(super) fn largest(&self, class: usize, stretch: &Range<u64>) -> f64 {
        self.streams(class, stretch).into_iter().map(|stream| self.dominant(stream)).fold(0.0, f64::max)
    }

    /// What was released of a class in a stretch, per resource.
    pub(super) fn used(&self, class: usize, stretch: &Range<u64>) -> [f64; RESOURCES] {
        let mut used = [0.0; RESOURCES];
        for asked in self.asked[class].iter().filter(|asked| asked.released && stretch.contains(&asked.until)) {
            used.iter_mut().zip(self.charged[asked.traffic]).for_each(|(used, charged)| *used += charged);
        }
        used
    }

    /// The times within a stretch in which something of a class waits; each ends where something of it is released.
    pub(super) fn waits(&self, class: usize, stretch: &Range<u64>) -> Vec<Range<u64>> {
        // At one instant those who come, then those who leave, then those who are released.
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
        let cut = |wait: Range<u64>| wait.start.max(stretch.start)..wait.end.min(stretch.end);
        all.into_iter().map(cut).filter(|wait| wait.end > wait.start).collect()
    }

    /// Everything that was released of some classes, in order: when, and what it was charged of what it takes most.
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
            domains: Vec::new(),
            charged: vec![[0.2, 0.1, 0.0]],
            asked: vec![asked],
            horizon: 1.0,
            by_virtual_time: false,
            is_single: false,
        }
    }

    #[test]
    fn a_wait_ends_with_a_release_or_when_nobody_waits_any_more() {
        let one = backlog(vec![
            asked(0, 10, true),
            asked(5, 20, true),
            asked(12, 15, false),
            asked(25, 25, true),
            asked(30, 40, false),
        ]);
        assert_eq!(one.waits(0, &(0..100)), [0..10, 10..20, 30..40]);
        // Who is released at once is released, and another one goes on waiting.
        let both = backlog(vec![asked(0, 9, false), asked(4, 4, true)]);
        assert_eq!(both.waits(0, &(0..100)), [0..4, 4..9]);
        assert_eq!(one.waits(0, &(14..35)), [14..20, 30..35]);
        assert_eq!(one.used(0, &(0..20)).map(|used| (used * 10.0_f64).round()), [2.0, 1.0, 0.0]);
        assert_eq!(one.releases([0].into_iter()), [(10, 0.2), (20, 0.2), (25, 0.2)]);
    }
}
