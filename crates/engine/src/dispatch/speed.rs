//! The learned speed of machines, under adaptive load control.
//!
//! Machines get a *learned* weight: the same number of requests in flight takes longer on a slow machine,
//! and one slow machine would raise every percentile. The weight is the compute time on the machine,
//! relative to each class's own mean, to the power of −2. On saturated machines of capacity C this makes the
//! number in flight proportional to C^⅔: close to C, and still a proportional rule. (A rule that equalises
//! compute times starves machines that are slow even when idle, and winds up meanwhile.)

use super::{Machine, NodeInfo, Nodes};
use crate::discipline::Adaptive;
use crate::index::{MachineGroupId, MachineId};
use crate::request::NodeId;

/// Learned weights stay within this factor of the configured ones, because a machine without requests is not
/// measured.
pub(super) const FARTHEST: f64 = 32.0;

/// The smallest and the largest bound of a machine.
const MIN_BOUND: f64 = 2.0;
const MAX_BOUND: f64 = 1e9;

/// The spreads, in requests for each unit of weight, between which the bound of no machine changes. A window moves with
/// nearly every answer, and the bounds of a thousand machines do not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    above: f64,
    below: f64,
}

impl Default for Settled {
    fn default() -> Settled {
        Settled::NEVER
    }
}

impl Settled {
    pub(super) const NEVER: Settled = Settled { above: f64::INFINITY, below: 0.0 };
    const ALWAYS: Settled = Settled { above: f64::NEG_INFINITY, below: f64::INFINITY };

    /// Relative distance from a step that counts as the step, far more than rounding.
    const MARGIN: f64 = 1e-9;

    /// Excludes the spreads with which a machine of this weight would have another bound.
    fn keep(&mut self, max: u32, weight: f64) {
        let max = f64::from(max);
        if max < MAX_BOUND {
            self.below = self.below.min(max / weight * (1.0 - Settled::MARGIN));
        }
        if max > MIN_BOUND {
            self.above = self.above.max((max - 1.0) / weight * (1.0 + Settled::MARGIN));
        }
    }

    fn contains(self, each: f64) -> bool {
        self.above < each && each < self.below
    }
}

impl Machine {
    /// Returns the bound on its requests in flight with a spread of `each` for each unit of weight.
    fn bound(&self, each: f64) -> u32 {
        let bound = each * self.learned * self.weight;
        // Rounding up calls a function, and most machines of a large group have the smallest bound.
        if bound <= MIN_BOUND { MIN_BOUND as u32 } else { bound.ceil().clamp(MIN_BOUND, MAX_BOUND) as u32 }
    }
}

impl Nodes {
    /// Requests in flight on a node's machine.
    pub(crate) fn on_machine(&self, node: NodeId) -> u32 {
        self.on(self.nodes[node].machine)
    }

    /// Requests in flight on a group's machines beyond their bounds.
    pub(crate) fn beyond_bounds(&self, group: MachineGroupId) -> u32 {
        self.groups[group].beyond
    }

    /// Records a compute time on a node, relative to its class's mean.
    pub(crate) fn computed(&mut self, node: NodeId, ratio: f64, figures: &Adaptive) {
        let ratios = &mut self.machines[self.nodes[node].machine].ratios;
        *ratios = (ratios.0 + ratio.min(figures.speed_longest), ratios.1 + 1);
    }

    /// Takes over the speed of a node's machine that another engine has learned.
    pub(super) fn adopt_speed(&mut self, node: NodeId, slowness: f64) {
        let machine = &mut self.machines[self.nodes[node].machine];
        (machine.ratio, machine.ratios) = (slowness, (0.0, 0));
    }

    /// Mean compute time on a node's machine, relative to the means of the classes.
    pub(super) fn slowness(&self, node: &NodeInfo) -> f64 {
        self.machines[node.machine].ratio
    }

    /// Updates the learned weights of a group's machines.
    pub(crate) fn learn(&mut self, group: MachineGroupId, figures: &Adaptive) {
        let members = &self.groups[group].machines;
        if members.len() == 1 {
            return;
        }
        let (mut was, mut is) = (0.0, 0.0);
        // Ratios with a logarithm that is certainly too small to be heard. Most are, and a logarithm is slow.
        let quiet = (figures.speed_deaf * (1.0 - Settled::MARGIN)).exp();
        let ordinary = 1.0 / quiet..quiet;
        for index in members {
            let machine = &mut self.machines[*index];
            let (sum, count) = core::mem::take(&mut machine.ratios);
            let count = f64::from(count);
            let new = if count > 0.0 { sum / count } else { 1.0 };
            let weight = if count > 0.0 { count / (count + figures.speed_completions) } else { figures.speed_forget };
            machine.ratio += (new - machine.ratio) * weight;
            machine.learned = if ordinary.contains(&machine.ratio) {
                1.0
            } else {
                let far = machine.ratio.max(1e-3).ln();
                let heard = far.signum() * (far.abs() - figures.speed_deaf).max(0.0);
                (-2.0 * heard).exp().clamp(1.0 / FARTHEST, FARTHEST)
            };
            let weight = machine.weight;
            was += weight;
            is += weight * machine.learned;
        }
        self.groups[group].settled = Settled::NEVER;
        // Only ratios matter. The sum stays that of the configured weights.
        for index in &self.groups[group].machines {
            self.machines[*index].learned *= was / is;
        }
        self.place_group(group);
    }

    /// Bounds the requests in flight on each machine of a group to `share` of an even spread of `window`, at
    /// least two.
    pub(crate) fn spread(&mut self, group: MachineGroupId, window: u32, share: f64) {
        let each = share * f64::from(window) / self.groups[group].weight.max(1e-9);
        if self.groups[group].settled.contains(each) {
            return;
        }
        let mut settled = Settled::ALWAYS;
        for at in 0..self.groups[group].machines.len() {
            let index = self.groups[group].machines[at];
            let machine = &mut self.machines[index];
            let max = machine.bound(each).min(machine.workers.bound());
            settled.keep(max, machine.learned * machine.weight);
            if max != machine.max {
                self.bound_machine(index, max);
            }
        }
        self.groups[group].settled = settled;
    }

    /// Sets the bound on the requests in flight on a machine.
    pub(super) fn bound_machine(&mut self, index: MachineId, max: u32) {
        let machine = &mut self.machines[index];
        let beyond = machine.beyond();
        machine.max = max;
        let group = &mut self.groups[machine.group];
        group.beyond = group.beyond - beyond + machine.beyond();
        self.place_all(index);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::discipline::Discipline;
    use crate::index::Id as _;
    use crate::policy::{Content, Node, Policy, Pool};

    const GROUP: MachineGroupId = MachineGroupId(0);

    /// Nodes with these weights, two on each machine.
    fn nodes(weights: &[u8]) -> Nodes {
        let node = |(index, weight): (usize, &u8)| Node {
            machine: format!("m{}", index / 2),
            weight: f64::from(*weight) / 3.0,
            ..Node::new(format!("n{index}"), 0)
        };
        let nodes = weights.iter().enumerate().map(node).collect();
        Nodes::new(&Policy::of_one_pool(Discipline::weirgate(), Pool::new("web"), nodes, Vec::new()))
    }

    fn adaptive() -> Adaptive {
        match Discipline::weirgate().load_control {
            crate::LoadControl::WindowAdaptive(figures) => figures,
            other => panic!("{other:?} is not adaptive"),
        }
    }

    /// The learned weights by the rule as it is written above, and each node put in its place alone.
    fn learn_one_by_one(nodes: &mut Nodes, figures: &Adaptive) {
        let members = nodes.groups[GROUP].machines.clone();
        if members.len() == 1 {
            return;
        }
        let (mut was, mut is) = (0.0, 0.0);
        for index in &members {
            let machine = &mut nodes.machines[*index];
            let (sum, count) = core::mem::take(&mut machine.ratios);
            let count = f64::from(count);
            let new = if count > 0.0 { sum / count } else { 1.0 };
            let weight = if count > 0.0 { count / (count + figures.speed_completions) } else { figures.speed_forget };
            machine.ratio += (new - machine.ratio) * weight;
            let far = machine.ratio.max(1e-3).ln();
            let heard = far.signum() * (far.abs() - figures.speed_deaf).max(0.0);
            machine.learned = (-2.0 * heard).exp().clamp(1.0 / FARTHEST, FARTHEST);
            was += machine.weight;
            is += machine.weight * machine.learned;
        }
        for index in members {
            nodes.machines[index].learned *= was / is;
            nodes.place_all(index);
        }
        nodes.groups[GROUP].settled = Settled::NEVER;
    }

    proptest! {
        /// Compares the bounds, the learned weights and the order in which nodes are chosen with those of steps that
        /// look at every machine and put each node in its place alone. The count of requests beyond the bounds is
        /// compared with a scan.
        #[test]
        fn shortcuts_choose_the_nodes_that_a_look_at_each_machine_chooses(
            weights in prop::collection::vec(1u8..9, 1..12),
            steps in prop::collection::vec((0u8..4, 0u32..40, 0.1f64..4.0), 1..120),
        ) {
            let (mut tested, mut oracle) = (nodes(&weights), nodes(&weights));
            let mut in_flight: Vec<NodeId> = Vec::new();
            let figures = adaptive();
            for (step, number, ratio) in steps {
                let node = NodeId::of(number as usize % weights.len());
                for (nodes, skips) in [(&mut tested, true), (&mut oracle, false)] {
                    nodes.turns += 1;
                    match step {
                        0 => {
                            if !skips {
                                nodes.groups[GROUP].settled = Settled::NEVER;
                            }
                            nodes.spread(GROUP, number, 1.5);
                        }
                        1 => nodes.count(node, Content::Dynamic, true),
                        2 => in_flight.last().iter().for_each(|node| nodes.count(**node, Content::Dynamic, false)),
                        _ => {
                            nodes.computed(node, ratio, &figures);
                            match skips {
                                true => nodes.learn(GROUP, &figures),
                                false => learn_one_by_one(nodes, &figures),
                            }
                        }
                    }
                }
                match step {
                    1 => in_flight.push(node),
                    2 => drop(in_flight.pop()),
                    _ => {}
                }
                let max = |nodes: &Nodes| nodes.machines.iter().map(|machine| machine.max).collect::<Vec<_>>();
                prop_assert_eq!(max(&tested), max(&oracle));
                let order = |nodes: &Nodes| nodes.ready.first::<32>(0).collect::<Vec<_>>();
                prop_assert_eq!(order(&tested), order(&oracle));
                let learned = |nodes: &Nodes| nodes.machines.iter().map(|machine| machine.learned).collect::<Vec<_>>();
                prop_assert_eq!(learned(&tested), learned(&oracle));
                prop_assert_eq!(tested.beyond_bounds(GROUP), tested.machines.iter().map(Machine::beyond).sum::<u32>());
            }
        }
    }

    #[test]
    fn a_window_that_hardly_moves_leaves_the_machines_alone() {
        let mut nodes = nodes(&[3; 2000]);
        nodes.spread(GROUP, 60_001, 1.5);
        let passes = (60_001..61_000).filter(|window| {
            let each = 1.5 * f64::from(*window) / nodes.groups[GROUP].weight;
            let skipped = nodes.groups[GROUP].settled.contains(each);
            nodes.spread(GROUP, *window, 1.5);
            !skipped
        });
        assert_eq!(passes.count(), 1, "the bounds of a thousand equal machines grow by one, once");
    }
}
