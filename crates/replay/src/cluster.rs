//! Machines for the nodes of a policy.
//!
//! A machine has as many CPUs of nominal speed as it has slots, and no limit of its own. A fractional number of slots
//! becomes a whole number of CPUs at a speed such that their product is the same.

use std::collections::BTreeMap;

use weirgate_config::{NodeSite, Site};
use weirgate_engine::{Node, Policy};
use weirgate_experiment::Machine;

use crate::costs::{Load, Origin, Slots, Stay, beside, estimate, stays};
use crate::outages::{Outage, outages};
use crate::requests::{NO_NODE, Requests};
use crate::side::{Assigned, Side};

/// Slots of machines by name, and of machines that the log does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacities {
    /// Slots of each machine of the log.
    pub known: BTreeMap<String, Slots>,
    /// Slots of machines without a capacity that the log does not know.
    pub other: Slots,
}

/// Returns the machine of each node of the log: that of the node in `policy`, or else the node itself.
fn machines_of_log(requests: &Requests, policy: &Policy) -> (Vec<String>, Vec<u32>) {
    let mut names: Vec<String> = Vec::new();
    let mut number = |name: &str| match names.iter().position(|known| known == name) {
        Some(number) => number as u32,
        None => {
            names.push(name.to_owned());
            names.len() as u32 - 1
        }
    };
    let nodes = requests.nodes().iter();
    let of: Vec<u32> = nodes
        .map(|name| {
            let node = policy.nodes.iter().find(|node| node.name == *name);
            number(node.map_or(name.as_str(), |node| node.machine.as_str()))
        })
        .collect();
    (names, of)
}

/// Returns the capacity of a machine that `policy` declares.
fn declared(policy: &Policy, machine: &str) -> Option<f64> {
    let nodes = policy.nodes.iter().filter(|node| node.machine == machine);
    nodes.filter_map(|node| node.capacity).reduce(f64::max)
}

/// What the log tells about machines and costs.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Slots of all machines.
    pub capacities: Capacities,
    /// The cost of each request in nanoseconds on a quiet node.
    pub costs: Vec<u64>,
    /// Time of each request at a node for which it holds no slot, in nanoseconds, in addition to its cost.
    pub beside: u64,
    /// Number of costs that were drawn, because the request was not served.
    pub drawn: u64,
    /// Times in which machines were out.
    pub outages: Vec<Outage>,
}

/// Returns what the log tells about machines and costs. `recorded` is the policy of the log, as far as it is known.
/// Every machine has `given` slots, if that is given.
///
/// # Errors
/// No request was served.
pub fn measure(requests: &Requests, recorded: &Policy, given: Option<f64>, seed: u64) -> Result<Measured, String> {
    let (names, machine_of) = machines_of_log(requests, recorded);
    let (stays, whose) = stays(requests, &machine_of);
    let sample = requests.sample();
    let given = given.map(|slots| Slots { slots, origin: Origin::Given });
    let of = |name: &String| {
        given.or_else(|| declared(recorded, name).map(|slots| Slots { slots, origin: Origin::Declared }))
    };
    let mut slots: Vec<Option<Slots>> = names.iter().map(of).collect();
    let unknown: Vec<bool> = slots.iter().map(Option::is_none).collect();
    let mut other = given;
    if unknown.contains(&true) {
        let lacks = |machine: u32| unknown.get(machine as usize) == Some(&true);
        let (some, classes): (Vec<_>, Vec<_>) = stays
            .iter()
            .zip(&whose)
            .filter(|(stay, _)| lacks(stay.machine))
            .map(|(stay, number)| (*stay, requests.all[*number as usize].class))
            .unzip();
        let estimated = estimate(&Load::new(&some, sample), &some, &classes);
        other = other.or(estimated);
        slots.iter_mut().for_each(|slots| *slots = slots.or(estimated));
    }
    let least = Slots { slots: 1.0, origin: Origin::AtLeast };
    let slots: Vec<Slots> = slots.into_iter().map(|slots| slots.unwrap_or(least)).collect();
    // Machines that are new and declare nothing are taken to be like the smallest of the others.
    let smallest = slots.iter().copied().reduce(|a, b| if b.slots < a.slots { b } else { a });
    let other = other.or(smallest).unwrap_or(least);
    let numbers: Vec<f64> = slots.iter().map(|slots| slots.slots).collect();
    // Slots that are estimated already make work alike at quiet and at busy times, and a sample does not tell enough.
    let known = slots.iter().all(|slots| matches!(slots.origin, Origin::Given | Origin::Declared));
    let classes: Vec<u32> = whose.iter().map(|number| requests.all[*number as usize].class).collect();
    let beside = if known && sample >= 1.0 { beside(&stays, &classes, &numbers) } else { 0 };
    let working: Vec<Stay> = stays.iter().map(|stay| stay.without(beside)).collect();
    let work = Load::new(&working, sample).work(&working, |machine| numbers[machine as usize]);
    let (costs, drawn) = crate::costs::costs(requests, &whose, &work, seed)?;
    let outages = outages(&stays, &names, recorded, requests.span().unwrap_or_default());
    let capacities = Capacities { known: names.into_iter().zip(slots).collect(), other };
    Ok(Measured { capacities, costs, beside, drawn, outages })
}

impl Capacities {
    /// Returns the slots of a machine under `policy`.
    pub fn of(&self, policy: &Policy, machine: &str) -> Slots {
        if self.other.origin == Origin::Given {
            return self.other;
        }
        let declared = declared(policy, machine).map(|slots| Slots { slots, origin: Origin::Declared });
        declared.or_else(|| self.known.get(machine).copied()).unwrap_or(self.other)
    }
}

/// Returns the machines of `site`, and the machine of each of its nodes.
pub fn machines(site: &Site, capacities: &Capacities) -> (Vec<Machine>, Vec<usize>) {
    let mut machines: Vec<Machine> = Vec::new();
    let mut machine_of = Vec::new();
    for node in &site.policy.nodes {
        let known = machines.iter().position(|machine| machine.name == node.machine);
        machine_of.push(known.unwrap_or(machines.len()));
        if known.is_none() {
            let slots = capacities.of(&site.policy, &node.machine).slots;
            let cpus = slots.round().clamp(1.0, f64::from(u32::MAX)) as u32;
            machines.push(Machine { speed: slots / f64::from(cpus), ..Machine::nominal(&node.machine, cpus) });
        }
    }
    (machines, machine_of)
}

/// Adds the nodes that discovery found while the log was written to upstreams that name none.
///
/// # Errors
/// The log has no node of such an upstream.
pub fn add_discovered(side: &mut Side, requests: &Requests, assigned: &[Assigned]) -> Result<(), String> {
    let policy = &side.site.policy;
    let lacks: Vec<usize> =
        (0..policy.pools.len()).filter(|pool| policy.nodes.iter().all(|node| node.pool != *pool)).collect();
    if lacks.is_empty() {
        return Ok(());
    }
    let templates = policy.templates.iter().map(|template| template.class.pool);
    let pools: Vec<usize> = policy.classes.iter().map(|class| class.pool).chain(templates).collect();
    let mut found: BTreeMap<(usize, u32), ()> = BTreeMap::new();
    for (request, assigned) in requests.all.iter().zip(assigned).filter(|(request, _)| request.node != NO_NODE) {
        let pool = pools[assigned.spec as usize];
        if lacks.contains(&pool) {
            found.insert((pool, request.node), ());
        }
    }
    for pool in lacks {
        let nodes: Vec<u32> = found.keys().filter(|(of, _)| *of == pool).map(|(_, node)| *node).collect();
        if nodes.is_empty() {
            return Err(format!(
                "{}: upstream {} finds its nodes by discovery, and the log has no request at one of them; write them as \
                 `nodes:` for the replay",
                side.name, side.site.policy.pools[pool].name
            ));
        }
        for node in nodes {
            let name = &requests.nodes()[node as usize];
            side.site.nodes.push(NodeSite { address: name.clone() });
            side.site.policy.nodes.push(Node::new(name, pool));
        }
    }
    Ok(())
}
