//! Whether the guarantees fit the nodes.
//!
//! A class needs throughput × service time slot-seconds per second (Blanquer et al., *Quorum*, NSDI 2005, Sec. 3.2:
//! expected cost × rate), and a pool has the sum of its nodes' capacities. If a number is not given, the report says
//! so instead of guessing. Pools that share machines are also checked together, with each machine counted once.
//!
//! If the policy has a page table and a discipline that uses it, slots are not the measure, because requests
//! for one resource do not compete with requests for another. The cost of every route is then known, but the
//! mix of requested routes is not. So the report gives two rates: guarantees up to the first fit even if all
//! requests are for the most expensive route, and guarantees above the second fit in no mix. (No mix uses
//! less of a resource than the route that uses least of it, nor less of all resources together than the route
//! that uses least in total. Both are bounds, so the cheapest possible mix may be slightly more expensive.)

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use weirgate_engine::Policy;
use weirgate_spanned_yaml::unit::number_text;
use weirgate_wire::RESOURCE_NAMES;

use crate::site::{PageTable, Site};

/// Maximum number of classes without a service time that the report lists, for each pool. A generated policy may have
/// thousands, all alike.
const MAX_LEARNED: usize = 20;

/// Whether the guarantees of a policy fit its nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Feasibility {
    /// Every pool, followed by every set of pools that share machines.
    pub pools: Vec<PoolDemand>,
}

/// Demand and capacity of a pool, in slot-seconds per second.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolDemand {
    /// Name of the pool, or several names joined with ` + ` if the pools share machines.
    pub pool: String,
    /// The known part of the demand.
    pub demanded: f64,
    /// Capacity of its machines. `None` if one of them has an unknown capacity.
    pub capacity: Option<f64>,
    /// Machines without a given capacity.
    pub unknown_machines: Vec<String>,
    /// Classes with a throughput, in the order of the policy.
    pub classes: Vec<ClassDemand>,
    /// Templates with a throughput: the demand of each of their live classes.
    pub templates: Vec<ClassDemand>,
    /// Rates that fit by the page table, if that is the measure and slots are not.
    pub routes: Option<RouteBounds>,
}

/// Requests per second that fit a pool by the page table, if all requests are for its routes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteBounds {
    /// Guaranteed requests per second.
    pub guaranteed: f64,
    /// Requests per second that fit in any mix of routes.
    pub always: f64,
    /// Requests per second above which no mix of routes fits. Infinite while no route is known.
    pub max: f64,
}

/// The demand of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassDemand {
    /// Index into the policy's classes or templates.
    pub class: usize,
    /// Its name.
    pub name: String,
    /// Guaranteed requests per second.
    pub throughput: f64,
    /// Slot-seconds per second. `None` if its service time is not given.
    pub demand: Option<f64>,
    /// Slot-seconds per second that the classes before it need.
    pub before: f64,
    /// Requests per second guaranteed to the classes before it.
    pub guaranteed_before: f64,
}

/// Checks every pool of `site`.
pub fn feasibility(site: &Site) -> Feasibility {
    let policy = &site.policy;
    let mut pools: Vec<PoolDemand> = Vec::new();
    let alone = (0..policy.pools.len()).map(|pool| BTreeSet::from([pool]));
    let nodes_of = Members::new(policy.pools.len(), policy.nodes.iter().map(|node| node.pool));
    let classes_of = Members::new(policy.pools.len(), policy.classes.iter().map(|class| class.pool));
    let together = sharing(site).into_iter().filter(|pools| pools.len() > 1);
    for members in alone.chain(together) {
        let mut machines: BTreeMap<&str, Option<f64>> = BTreeMap::new();
        for node in nodes_of.of(&members).map(|node| &policy.nodes[node]) {
            let known = machines.entry(&node.machine).or_default();
            *known = known.or(node.capacity);
        }
        let mut unknown_machines: Vec<String> =
            machines.iter().filter(|(_, c)| c.is_none()).map(|(name, _)| (*name).to_owned()).collect();
        let discovers = |pool: &usize| site.discover.get(*pool).is_some_and(Option::is_some);
        unknown_machines.extend(members.iter().filter(|pool| discovers(pool)).map(|_| "discovered nodes".to_owned()));
        let capacity = unknown_machines.is_empty().then(|| machines.values().flatten().sum());
        let (mut demanded, mut guaranteed) = (0.0, 0.0);
        let mut classes = Vec::new();
        for (class, it) in classes_of.of(&members).map(|class| (class, &policy.classes[class])) {
            let Some(throughput) = it.guarantee.throughput else { continue };
            let demand = it.service_time.map(|t| throughput * t.as_secs_f64());
            let (name, before) = (it.name.clone(), demanded);
            classes.push(ClassDemand { class, name, throughput, demand, before, guaranteed_before: guaranteed });
            demanded += demand.unwrap_or(0.0);
            guaranteed += throughput;
        }
        let templates = policy.templates.iter().map(|t| &t.class).enumerate();
        let templates = templates.filter(|(_, c)| members.contains(&c.pool)).filter_map(|(class, it)| {
            let throughput = it.guarantee.throughput?;
            let demand = it.service_time.map(|t| throughput * t.as_secs_f64());
            let (name, before) = (it.name.clone(), demanded);
            Some(ClassDemand { class, name, throughput, demand, before, guaranteed_before: guaranteed })
        });
        let templates = templates.collect();
        let names: Vec<&str> = members.iter().map(|&pool| policy.pools[pool].name.as_str()).collect();
        let pool = names.join(" + ");
        let table = site.page_table.as_ref().filter(|_| policy.is_priced());
        let routes = table.map(|table| route_bounds(table, nodes(policy, &members), guaranteed));
        pools.push(PoolDemand { pool, demanded, capacity, unknown_machines, classes, templates, routes });
    }
    Feasibility { pools }
}

/// The nodes or classes of each pool, by their indices, so that no pool looks at those of all others.
struct Members(Vec<Vec<usize>>);

impl Members {
    /// Builds the lists from the pool of each member.
    fn new(pools: usize, pool_of: impl Iterator<Item = usize>) -> Members {
        let mut members = vec![Vec::new(); pools];
        pool_of.enumerate().for_each(|(member, pool)| members[pool].push(member));
        Members(members)
    }

    /// Returns the members of some pools, in the order of the policy.
    fn of(&self, pools: &BTreeSet<usize>) -> impl Iterator<Item = usize> + use<> {
        let mut all: Vec<usize> = pools.iter().flat_map(|pool| &self.0[*pool]).copied().collect();
        all.sort_unstable();
        all.into_iter()
    }
}

/// Returns the capacity of the machines of some pools for every resource, in node-seconds per second.
fn nodes(policy: &Policy, pools: &BTreeSet<usize>) -> f64 {
    let mut machines: BTreeMap<&str, f64> = BTreeMap::new();
    for node in policy.nodes.iter().filter(|node| pools.contains(&node.pool)) {
        let weight = machines.entry(&node.machine).or_default();
        *weight = weight.max(node.weight);
    }
    machines.values().sum()
}

/// Returns the rates of requests for the routes that fit on `nodes` nodes.
fn route_bounds(table: &PageTable, nodes: f64, guaranteed: f64) -> RouteBounds {
    let shares: Vec<[f64; RESOURCE_NAMES.len()]> = table.routes.iter().map(|route| route.demand.shares()).collect();
    let min = |of: &dyn Fn(&[f64; RESOURCE_NAMES.len()]) -> f64| shares.iter().map(of).reduce(f64::min);
    let each = (0..RESOURCE_NAMES.len()).map(|resource| min(&|shares| shares[resource]));
    // A resource that no route uses does not add capacity for the others.
    let used = (0..RESOURCE_NAMES.len()).filter(|r| shares.iter().any(|shares| shares[*r] > 0.0)).count();
    let all = min(&|shares| shares.iter().sum::<f64>() / used.max(1) as f64);
    let cheapest = each.chain([all]).flatten().fold(0.0, f64::max);
    let costliest = shares.iter().flatten().copied().reduce(f64::max);
    // With `learned` alone there are no routes yet, so nothing is known.
    RouteBounds { guaranteed, always: costliest.map_or(0.0, |share| nodes / share), max: nodes / cheapest }
}

/// Returns the sets of pools that share machines.
fn sharing(site: &Site) -> Vec<BTreeSet<usize>> {
    let mut pools_of: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for node in &site.policy.nodes {
        pools_of.entry(&node.machine).or_default().insert(node.pool);
    }
    let mut sets: Vec<BTreeSet<usize>> = Vec::new();
    for mut set in pools_of.into_values().filter(|set| set.len() > 1) {
        let (touching, apart): (Vec<_>, Vec<_>) = sets.into_iter().partition(|s| !s.is_disjoint(&set));
        set.extend(touching.into_iter().flatten());
        sets = apart;
        sets.push(set);
    }
    sets
}

impl Feasibility {
    /// Returns `Some(false)` if something does not fit, `Some(true)` if everything is known and fits.
    pub fn fits(&self) -> Option<bool> {
        if self.pools.iter().any(|pool| pool.fits() == Some(false)) {
            return Some(false);
        }
        self.pools.iter().all(|pool| pool.fits() == Some(true)).then_some(true)
    }
}

impl PoolDemand {
    /// Whether nothing is known of the demand.
    fn is_unknown(&self) -> bool {
        self.demanded == 0.0 && self.classes.iter().any(|class| class.demand.is_none())
    }

    /// Formats the demand: `0.4`, `at least 0.4` or `an unknown number`.
    fn asked(&self) -> String {
        let some = self.classes.iter().any(|class| class.demand.is_none());
        match (self.is_unknown(), some) {
            (true, _) => "an unknown number".to_owned(),
            (false, true) => format!("at least {}", number_text(self.demanded)),
            (false, false) => number_text(self.demanded),
        }
    }

    /// Returns `Some(false)` if the known part alone does not fit, `Some(true)` if everything is known and fits.
    pub fn fits(&self) -> Option<bool> {
        if let Some(routes) = self.routes {
            return match routes.guaranteed {
                rate if exceeds(rate, routes.max) => Some(false),
                rate => (!exceeds(rate, routes.always) && self.templates.is_empty()).then_some(true),
            };
        }
        let capacity = self.capacity?;
        let unknown = self.classes.iter().any(|class| class.demand.is_none()) || !self.templates.is_empty();
        match self.demanded > capacity {
            true => Some(false),
            false => (!unknown).then_some(true),
        }
    }

    /// Returns the reason why `class` does not fit after the classes before it, or `None` if it fits or that
    /// is unknown.
    pub fn overflow(&self, class: &ClassDemand) -> Option<String> {
        if let Some(RouteBounds { max, .. }) = self.routes {
            return exceeds(class.guaranteed_before + class.throughput, max).then(|| {
                format!(
                    "class {} does not fit: whatever routes its {}/s are of, pool {} has {}/s left of at most {}/s by the \
                     page table",
                    class.name,
                    number_text(class.throughput),
                    self.pool,
                    number_text((max - class.guaranteed_before).max(0.0)),
                    number_text(max),
                )
            });
        }
        let (capacity, demand) = (self.capacity?, class.demand?);
        let over = class.before + demand - capacity;
        if !exceeds(class.before + demand, capacity) {
            return None;
        }
        let possible = class.throughput * ((capacity - class.before).max(0.0) / demand);
        Some(format!(
            "class {} does not fit: its {}/s need {} slot-seconds/s, and pool {} has {} left of {}: at most {}/s \
             fit ({} slot-seconds/s too much)",
            class.name,
            number_text(class.throughput),
            number_text(demand),
            self.pool,
            number_text((capacity - class.before).max(0.0)),
            number_text(capacity),
            number_text(possible),
            number_text(over),
        ))
    }
}

/// Whether `demand` exceeds `capacity`. A billionth counts as rounding.
fn exceeds(demand: f64, capacity: f64) -> bool {
    demand > capacity * (1.0 + 1e-9)
}

impl fmt::Display for RouteBounds {
    /// Formats the rates, without a line feed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (guaranteed, always, max) = (self.guaranteed, self.always, self.max);
        write!(f, "guarantees are {}/s; ", number_text(guaranteed))?;
        if max.is_infinite() {
            return write!(f, "the costs of requests are not known yet");
        }
        write!(
            f,
            "by the page table {}/s fit of any route, and never more than {}/s",
            number_text(always),
            number_text(max)
        )?;
        match guaranteed {
            rate if exceeds(rate, max) => write!(f, ": does not fit"),
            rate if exceeds(rate, always) => write!(f, ": it depends on the routes that are asked for"),
            _ => write!(f, ": fits"),
        }
    }
}

impl fmt::Display for Feasibility {
    /// Formats lines for the operator, each ended by a line feed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pool in &self.pools {
            write!(f, "{pool}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PoolDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, asked) = (&self.pool, self.asked());
        if self.classes.is_empty() && self.templates.is_empty() {
            return writeln!(f, "pool {name}: no throughput is guaranteed");
        }
        if let Some(routes) = &self.routes {
            writeln!(f, "pool {name}: {routes}")?;
            for what in self.classes.iter().filter_map(|class| self.overflow(class)) {
                writeln!(f, "  {what}")?;
            }
            for template in &self.templates {
                let (name, rate) = (&template.name, number_text(template.throughput));
                writeln!(f, "  template {name}: {rate}/s for each live class besides")?;
            }
            return Ok(());
        }
        match self.capacity {
            // Without a known demand there is no share to report.
            Some(capacity) if self.is_unknown() => {
                let capacity = number_text(capacity);
                writeln!(f, "pool {name}: guarantees need {asked} of the {capacity} slot-seconds/s")?;
            }
            Some(capacity) => {
                let share = number_text(self.demanded / capacity * 100.0);
                let capacity = number_text(capacity);
                let fits = match self.fits() {
                    Some(false) => "does not fit",
                    None if self.classes.iter().any(|class| class.demand.is_none()) => "fits as far as it is known",
                    _ => "fits",
                };
                writeln!(f, "pool {name}: guarantees need {asked} of {capacity} slot-seconds/s ({share} %): {fits}")?;
            }
            None => {
                let unknown = weirgate_spanned_yaml::errors::listed(self.unknown_machines.iter().map(String::as_str));
                let of = if self.is_unknown() { " of" } else { "" };
                writeln!(
                    f,
                    "pool {name}: guarantees need {asked}{of} slot-seconds/s; capacity of {unknown} is not given"
                )?;
            }
        }
        let mut learned = 0;
        for class in &self.classes {
            if let Some(what) = self.overflow(class) {
                writeln!(f, "  {what}")?;
            }
            learned += usize::from(class.demand.is_none());
            if class.demand.is_none() && learned <= MAX_LEARNED {
                let (name, rate) = (&class.name, number_text(class.throughput));
                writeln!(f, "  class {name}: {rate}/s, its service time is not given and will be learned")?;
            }
        }
        if learned > MAX_LEARNED {
            writeln!(f, "  and {} more classes: their service times will be learned", learned - MAX_LEARNED)?;
        }
        for template in &self.templates {
            let (name, rate) = (&template.name, number_text(template.throughput));
            write!(f, "  template {name}: {rate}/s for each live class")?;
            match (template.demand, self.capacity) {
                (Some(demand), Some(capacity)) => {
                    let room = ((capacity - self.demanded).max(0.0) / demand).floor();
                    writeln!(f, " need {}: room for {}", number_text(demand), number_text(room))?;
                }
                (Some(demand), None) => writeln!(f, " need {}", number_text(demand))?,
                (None, _) => writeln!(f, ", its service time is not given and will be learned")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/feasibility.rs"]
mod tests;
