//! The account of the machines' resources that requests take, if load control manages resources.
//!
//! All values are whole billionths of a node-second, as in the engine, so both must agree exactly.

use weirgate_engine::{Demand, LoadControl, NodeId, Policy, RESOURCES, Snapshot};

/// The resources of every machine, and the amounts taken.
#[derive(Clone, Debug)]
pub(super) struct Resources {
    /// The only managed resource. `None` if all are managed.
    only: Option<usize>,
    /// The machine of each node.
    machine_of: Vec<usize>,
    /// The amount of each resource on each machine.
    full: Vec<u64>,
    taken: Vec<[u64; RESOURCES]>,
    /// Cost of a request with an unknown route, per class and then per template.
    unknown: Vec<Demand>,
    /// Maximum cost that a request counts as, per class, if costs are estimated.
    max: Vec<u64>,
    /// The largest cost of all requests so far, per resource.
    largest: [u64; RESOURCES],
}

impl Resources {
    /// Creates an empty account. `None` if load control does not manage resources.
    pub(super) fn of(policy: &Policy) -> Option<Resources> {
        let LoadControl::ResourceAvailability(figures) = policy.discipline.load_control else { return None };
        let mut names: Vec<&str> = Vec::new();
        let (mut machine_of, mut weights): (Vec<usize>, Vec<f64>) = (Vec::new(), Vec::new());
        for node in &policy.nodes {
            let machine = names.iter().position(|name| **name == *node.machine).unwrap_or_else(|| {
                names.push(&node.machine);
                weights.push(0.0);
                names.len() - 1
            });
            weights[machine] = weights[machine].max(node.weight);
            machine_of.push(machine);
        }
        let horizon = figures.horizon.as_nanos() as f64;
        Some(Resources {
            only: figures.only,
            machine_of,
            full: weights.iter().map(|weight| (horizon * weight).round().max(1.0) as u64).collect(),
            taken: vec![[0; RESOURCES]; weights.len()],
            unknown: policy.all_classes().map(|class| class.demand).collect(),
            max: match policy.estimated {
                true => policy.all_classes().map(|class| policy.largest(class.pool).unwrap_or(u64::MAX)).collect(),
                false => Vec::new(),
            },
            largest: [0; RESOURCES],
        })
    }

    /// Returns the cost of a class's request in the managed resources.
    fn managed(&self, class: usize, demand: Option<Demand>) -> [u64; RESOURCES] {
        let demand = demand.or_else(|| self.unknown.get(class).copied()).unwrap_or_default();
        let demand = self.max.get(class).map_or(demand, |max| demand.at_most(*max));
        std::array::from_fn(|resource| match self.only {
            Some(only) if only != resource => 0,
            _ => u64::from(demand.0[resource]),
        })
    }

    /// A request waits. From now on, room for any request includes room for this one.
    pub(super) fn waits(&mut self, class: usize, demand: Option<Demand>) {
        let demand = self.managed(class, demand);
        self.largest.iter_mut().zip(demand).for_each(|(largest, demand)| *largest = demand.max(*largest));
    }

    /// A request starts at a node. Returns an error text if the node did not have enough left for it.
    pub(super) fn enters(&mut self, node: NodeId, class: usize, demand: Option<Demand>) -> Option<String> {
        let demand = self.managed(class, demand);
        let machine = *self.machine_of.get(node.0 as usize)?;
        let (taken, full) = (&mut self.taken[machine], self.full[machine]);
        taken.iter_mut().zip(demand).for_each(|(taken, demand)| *taken += demand);
        let over = taken.iter().any(|taken| *taken > full);
        over.then(|| format!("{taken:?} of {full} are taken of {node:?}"))
    }

    /// A request ends at a node.
    pub(super) fn exits(&mut self, node: NodeId, class: usize, demand: Option<Demand>) {
        let demand = self.managed(class, demand);
        if let Some(machine) = self.machine_of.get(node.0 as usize) {
            self.taken[*machine]
                .iter_mut()
                .zip(demand)
                .for_each(|(taken, demand)| *taken = taken.saturating_sub(demand));
        }
    }

    /// Returns the first difference from the engine's account.
    pub(super) fn differs(&self, snapshot: &Snapshot) -> Option<String> {
        let differs = |(index, seen): (usize, &weirgate_engine::NodeSnapshot)| {
            let machine = *self.machine_of.get(index)?;
            let full = self.full[machine] as f64;
            let left = self.taken[machine].map(|taken| (full - taken as f64).max(0.0) / full);
            let far = left.iter().zip(seen.available).any(|(ours, theirs)| (ours - theirs).abs() > 1e-9);
            far.then(|| format!("of {} the engine has {:?} left, the driver {left:?}", seen.name, seen.available))
        };
        snapshot.nodes.iter().enumerate().find_map(differs)
    }

    /// Returns whether a node has enough left for the largest request so far.
    pub(super) fn has_room_for_any(&self, node: usize) -> bool {
        let Some(machine) = self.machine_of.get(node) else { return false };
        let full = self.full[*machine];
        self.taken[*machine].iter().zip(self.largest).all(|(taken, largest)| taken + largest <= full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two servers, the second twice as large, with 100 ms of every resource per unit of weight.
    fn resources(discipline: &str) -> Resources {
        let text = format!(
            "listen: 127.0.0.1:0\ndiscipline: {discipline}\npage_table: learned\nupstreams:\n  web:\n    nodes: \
             [{{ address: '127.0.0.1:1' }}, {{ address: '127.0.0.1:2', weight: 2 }}]\nclasses: [{{ name: A }}]"
        );
        let site = weirgate_config::load("test", &text).unwrap_or_else(|e| panic!("{e}")).site;
        Resources::of(&site.policy).expect("resources are managed")
    }

    #[test]
    fn what_is_taken_is_counted_by_machine_and_what_is_too_much_is_told() {
        let mut resources = resources("{ mqos: { horizon: 100ms } }");
        let demand = Some(Demand::of_shares(&[0.06, 0.02, 0.02]));
        resources.waits(0, demand);
        assert!(resources.has_room_for_any(0) && resources.has_room_for_any(1));
        assert_eq!(resources.enters(NodeId(0), 0, demand), None);
        assert!(!resources.has_room_for_any(0), "40 ms of 100 are left, and 60 would be needed");
        let told = resources.enters(NodeId(0), 0, demand).expect("120 ms of 100");
        assert!(told.starts_with("[120000000, 40000000, 40000000, 0] of 100000000"), "{told}");
        for _ in 0..3 {
            assert_eq!(resources.enters(NodeId(1), 0, demand), None, "it has 200");
        }
        resources.exits(NodeId(0), 0, demand);
        resources.exits(NodeId(0), 0, demand);
        assert!(resources.has_room_for_any(0));
    }

    #[test]
    fn one_resource_alone_is_managed_and_unknown_routes_are_charged() {
        let mut resources = resources("{ sqos: { resource: disk, horizon: 100ms } }");
        let demand = Some(Demand::of_shares(&[0.5, 0.01, 0.5]));
        assert_eq!(resources.enters(NodeId(0), 0, demand), None);
        // An unknown route costs a hundredth of everything by default.
        let told: Vec<Option<String>> = (0..10).map(|_| resources.enters(NodeId(0), 0, None)).collect();
        assert!(told[..9].iter().all(Option::is_none) && told[9].is_some(), "{told:?}");
    }
}
