//! Larger and smaller versions of an experiment: other numbers of machines and other sizes of guarantees.

use std::collections::HashMap;
use std::time::Duration;

use crate::{Experiment, Machine, Source};

/// Machines that are alike and serve the same pools, so they can replace one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Indices into [`Experiment::machines`], rising.
    pub machines: Vec<usize>,
    /// Names of the pools that they serve, in the order of the policy.
    pub pools: Vec<String>,
}

/// Groups of the machines of `experiment`, ordered by the first machine of each. A machine without a pool
/// is in no group.
pub fn groups(experiment: &Experiment) -> Vec<Group> {
    let policy = &experiment.site.policy;
    let pools_of = |machine: usize| {
        let nodes = policy.nodes.iter().zip(&experiment.machine_of).filter(|(_, m)| **m == machine);
        let mut pools: Vec<(usize, u64, Option<u64>)> =
            nodes.map(|(node, _)| (node.pool, node.weight.to_bits(), node.capacity.map(f64::to_bits))).collect();
        pools.sort_unstable();
        pools
    };
    let alike = |a: &Machine, b: &Machine| *a == Machine { name: a.name.clone(), ..b.clone() };
    let mut groups: Vec<Group> = Vec::new();
    for (index, machine) in experiment.machines.iter().enumerate() {
        let serves = pools_of(index);
        if serves.is_empty() {
            continue;
        }
        let same = |group: &&mut Group| {
            let first = group.machines[0];
            alike(&experiment.machines[first], machine) && pools_of(first) == serves
        };
        if let Some(group) = groups.iter_mut().find(same) {
            group.machines.push(index);
            continue;
        }
        let mut pools: Vec<String> = serves.iter().map(|(pool, ..)| policy.pools[*pool].name.clone()).collect();
        pools.dedup();
        groups.push(Group { machines: vec![index], pools });
    }
    groups
}

/// `experiment` with `counts[i]` ≥ 1 machines in group `i` of [`groups`].
///
/// Machines are added as copies of the last one of their group. They are removed from the end of their
/// group, first those without any fault. A plan that expects two machines to fail therefore keeps these
/// faults at every size of at least two.
pub fn scale_cluster(experiment: &Experiment, counts: &[usize]) -> Experiment {
    let groups = groups(experiment);
    let struck = |machine: usize| experiment.faults.iter().any(|fault| fault.machines.contains(&machine));
    // Old index of each new machine: first those that stay, in their order, then copies.
    let (mut kept, mut copies) = (Vec::new(), Vec::new());
    for (group, &count) in groups.iter().zip(counts) {
        let count = count.max(1);
        let mut by_worth = group.machines.clone();
        by_worth.sort_by_key(|&machine| (!struck(machine), machine));
        kept.extend(by_worth.into_iter().take(count));
        let last = group.machines[group.machines.len() - 1];
        copies.extend((group.machines.len()..count).map(|_| last));
    }
    kept.sort_unstable();
    let mut scaled = experiment.clone();
    scaled.machines = kept.iter().map(|&machine| experiment.machines[machine].clone()).collect();
    let place: HashMap<usize, usize> = kept.iter().enumerate().map(|(new, &old)| (old, new)).collect();
    let (policy, site_nodes) = (&experiment.site.policy, &experiment.site.nodes);
    let of_machine =
        |machine: usize| (0..policy.nodes.len()).filter(move |node| experiment.machine_of[*node] == machine);
    scaled.site.policy.nodes.clear();
    scaled.site.nodes.clear();
    scaled.machine_of.clear();
    for (node, machine) in experiment.machine_of.iter().enumerate() {
        if let Some(&new) = place.get(machine) {
            scaled.site.policy.nodes.push(policy.nodes[node].clone());
            scaled.site.nodes.push(site_nodes[node].clone());
            scaled.machine_of.push(new);
        }
    }
    for (number, old) in copies.into_iter().enumerate() {
        let machine = scaled.machines.len();
        let name = |of: &str| format!("{of}.{}", number + 2);
        let original = &experiment.machines[old];
        // A copy has its own shared servers.
        let shared = original.shared.iter().map(|server| name(server)).collect();
        scaled.machines.push(Machine { name: name(&original.name), shared, ..original.clone() });
        for node in of_machine(old) {
            let mut copy = policy.nodes[node].clone();
            (copy.name, copy.machine) = (name(&copy.name), name(&original.name));
            scaled.site.policy.nodes.push(copy);
            scaled.site.nodes.push(site_nodes[node].clone());
            scaled.machine_of.push(machine);
        }
    }
    // Every policy has the same nodes.
    for reload in &mut scaled.reloads {
        reload.policy.nodes.clone_from(&scaled.site.policy.nodes);
    }
    for fault in &mut scaled.faults {
        fault.machines = fault.machines.iter().filter_map(|machine| place.get(machine).copied()).collect();
    }
    // A fault without machines would apply to all of them.
    let mut whole = experiment.faults.iter().map(|fault| fault.machines.is_empty());
    scaled.faults.retain(|fault| whole.next() == Some(true) || !fault.machines.is_empty());
    scaled
}

/// `experiment` with `factor` times the throughput of every guarantee, and `factor` times the requests (or
/// users) of every class that has one. The load of best-effort classes stays. Pages scale as a whole if
/// they or their objects belong to a class with a guarantee: there are more pages, but not more objects in each.
pub fn scale_guarantees(experiment: &Experiment, factor: f64) -> Experiment {
    let mut scaled = experiment.clone();
    for policy in scaled.reloads.iter_mut().map(|reload| &mut reload.policy).chain([&mut scaled.site.policy]) {
        let shapes = policy.templates.iter_mut().map(|template| &mut template.class);
        for class in policy.classes.iter_mut().chain(shapes) {
            class.guarantee.throughput = class.guarantee.throughput.map(|rate| rate * factor);
        }
    }
    let policy = &scaled.site.policy;
    let is_promised = |index: usize| experiment.traffic[index].class.class(policy).guarantee.throughput.is_some();
    for (index, traffic) in scaled.traffic.iter_mut().enumerate() {
        if !is_promised(index) && !experiment.objects_of(index).is_some_and(is_promised) {
            continue;
        }
        match &mut traffic.source {
            Source::Open { rate: figure, .. } | Source::Users { users: figure, .. } => {
                figure.0.iter_mut().for_each(|knot| knot.value *= factor);
            }
            Source::Trace(instants) => {
                let (at, of): (Vec<Duration>, Vec<usize>) = denser(instants, factor).into_iter().unzip();
                *instants = at;
                if !traffic.traced.is_empty() {
                    traffic.traced = of.iter().map(|original| traffic.traced[*original]).collect();
                }
                if !traffic.senders.is_empty() {
                    traffic.senders = of.into_iter().map(|original| traffic.senders[original]).collect();
                }
            }
            Source::Objects { .. } | Source::Part { .. } => {}
        }
    }
    scaled
}

/// `factor` times as many instants. Some are left out, or more are spread evenly up to the next one. Each
/// comes with the index of the instant from which it was made.
fn denser(instants: &[Duration], factor: f64) -> Vec<(Duration, usize)> {
    let until = |index: usize| (index as f64 * factor) as u32;
    let mut all = Vec::with_capacity(until(instants.len()) as usize);
    for (index, &at) in instants.iter().enumerate() {
        let count = until(index + 1) - until(index);
        let gap = instants.get(index + 1).map_or(Duration::ZERO, |next| next.saturating_sub(at));
        all.extend((0..count).map(|part| (at + gap * part / count, index)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_becomes_denser_or_thinner_and_keeps_its_shape() {
        let instants: Vec<Duration> = (0..10).map(Duration::from_secs).collect();
        let of = |factor| denser(&instants, factor).into_iter().map(|(at, _)| at).collect::<Vec<_>>();
        let twice = of(2.0);
        assert_eq!(twice.len(), 20);
        assert_eq!(twice[..4], [0, 500, 1000, 1500].map(Duration::from_millis));
        assert_eq!(of(0.5), [1, 3, 5, 7, 9].map(Duration::from_secs));
        assert_eq!(of(1.0), instants);
        assert!(denser(&instants, 1.3).is_sorted());
        assert_eq!(denser(&instants, 0.5).iter().map(|(_, of)| *of).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    }

    #[test]
    fn there_are_more_pages_and_not_larger_ones() {
        let text = "policy:\n  upstreams: { web: { nodes: ['n1:80'] } }\n  classes: [{ name: page }, { name: other }, \
                    { name: object, service_time: 1ms, guarantee: { throughput: 100/s } }]\n\
                    traffic:\n  - { class: page, rate: 10/s, demand: 1ms, \
                    objects: { class: object, count: 5, demand: 1ms } }\n  \
                    - { class: other, rate: 10/s, demand: 1ms }\nphases: [{ name: all, until: 60s }]\n";
        let loaded = crate::load_experiment("test.yaml", text, std::path::Path::new(""), &[]);
        let experiment = loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment;
        let rates = |experiment: &Experiment| {
            let rate = |source: &Source| if let Source::Open { rate, .. } = source { rate.0[0].value } else { 0.0 };
            experiment.traffic.iter().map(|traffic| rate(&traffic.source)).collect::<Vec<_>>()
        };
        // The class of the pages has no guarantee, but the class of their objects has one.
        let scaled = scale_guarantees(&experiment, 3.0);
        assert_eq!((rates(&experiment), rates(&scaled)), (vec![10.0, 10.0, 0.0], vec![30.0, 10.0, 0.0]));
        assert_eq!(scaled.traffic[2].source, experiment.traffic[2].source);
        assert_eq!(scaled.site.policy.classes[2].guarantee.throughput, Some(300.0));
        let shorter = crate::compressed(&experiment, 2.0).expect("it is long enough");
        assert_eq!(shorter.traffic[2].source, experiment.traffic[2].source);
    }
}
