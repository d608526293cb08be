//! The learned speed of machines, under adaptive load control.
//!
//! Machines get a *learned* weight: the same number of requests in flight takes longer on a slow machine,
//! and one slow machine would raise every percentile. The weight is the compute time on the machine,
//! relative to each class's own mean, to the power of −2. On saturated machines of capacity C this makes the
//! number in flight proportional to C^⅔: close to C, and still a proportional rule. (A rule that equalises
//! compute times starves machines that are slow even when idle, and winds up meanwhile.)

use super::Nodes;
use crate::discipline::Adaptive;
use crate::index::MachineGroupId;
use crate::request::NodeId;

/// Learned weights stay within this factor of the configured ones, because a machine without requests is not
/// measured.
const FARTHEST: f64 = 32.0;

impl Nodes {
    /// Requests in flight on a node's machine.
    pub(crate) fn on_machine(&self, node: NodeId) -> u32 {
        self.machines[self.nodes[node].machine].in_flight
    }

    /// Requests in flight on a group's machines beyond their bounds.
    pub(crate) fn beyond_bounds(&self, group: MachineGroupId) -> u32 {
        let machines = self.groups[group].machines.iter().map(|machine| &self.machines[*machine]);
        machines.map(|machine| machine.in_flight.saturating_sub(machine.max)).sum()
    }

    /// Records a compute time on a node, relative to its class's mean.
    pub(crate) fn computed(&mut self, node: NodeId, ratio: f64, figures: &Adaptive) {
        let ratios = &mut self.machines[self.nodes[node].machine].ratios;
        *ratios = (ratios.0 + ratio.min(figures.speed_longest), ratios.1 + 1);
    }

    /// Updates the learned weights of a group's machines.
    pub(crate) fn learn(&mut self, group: MachineGroupId, figures: &Adaptive) {
        let members = &self.groups[group].machines;
        if members.len() == 1 {
            return;
        }
        let (mut was, mut is) = (0.0, 0.0);
        for index in members {
            let machine = &mut self.machines[*index];
            let (sum, count) = core::mem::take(&mut machine.ratios);
            let count = f64::from(count);
            let new = if count > 0.0 { sum / count } else { 1.0 };
            let weight = if count > 0.0 { count / (count + figures.speed_completions) } else { figures.speed_forget };
            machine.ratio += (new - machine.ratio) * weight;
            let far = machine.ratio.max(1e-3).ln();
            let heard = far.signum() * (far.abs() - figures.speed_deaf).max(0.0);
            machine.learned = (-2.0 * heard).exp().clamp(1.0 / FARTHEST, FARTHEST);
            let weight = machine.weight(&self.nodes);
            was += weight;
            is += weight * machine.learned;
        }
        // Only ratios matter. The sum stays that of the configured weights.
        for at in 0..self.groups[group].machines.len() {
            let index = self.groups[group].machines[at];
            self.machines[index].learned *= was / is;
            self.place_all(index);
        }
    }

    /// Bounds the requests in flight on each machine of a group to `share` of an even spread of `window`, at
    /// least two.
    pub(crate) fn spread(&mut self, group: MachineGroupId, window: u32, share: f64) {
        let each = share * f64::from(window) / self.groups[group].weight.max(1e-9);
        for at in 0..self.groups[group].machines.len() {
            let index = self.groups[group].machines[at];
            let machine = &self.machines[index];
            let max = (each * machine.learned * machine.weight(&self.nodes)).ceil().clamp(2.0, 1e9) as u32;
            if max != machine.max {
                self.machines[index].max = max;
                self.place_all(index);
            }
        }
    }
}
