//! Shares of classes in the resources of their pools.

use crate::classify::Classes;
use crate::dispatch::Nodes;
use crate::index::{PartitionId, Table};
use crate::limit::Resources;
use crate::request::ClassId;

/// A class's share of its partition's resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) partition: PartitionId,
    /// The first of the partitions with the same machines.
    pub(crate) first: PartitionId,
    pub(crate) weight: f64,
    /// Sum of the weights of all classes of these partitions.
    pub(crate) weights: f64,
    /// Node-seconds that all their nodes provide in a horizon.
    pub(crate) whole: f64,
}

impl Share {
    /// Its quantum of each resource per round, in billionths of a node-second. The quanta of all classes add
    /// up to the capacity of the nodes.
    pub(super) fn quantum(self) -> i64 {
        (self.whole * 1e9 * self.weight / self.weights).round().max(1.0) as i64
    }
}

/// Sums of class weights and sizes of nodes, indexed by the first of the partitions with the same machines.
pub(super) struct Shares<'a> {
    whole: Table<PartitionId, (f64, f64)>,
    resources: &'a Resources,
}

impl<'a> Shares<'a> {
    pub(super) fn new(resources: &'a Resources, nodes: &Nodes, classes: &Classes) -> Shares<'a> {
        let mut whole: Table<PartitionId, (f64, f64)> =
            nodes.partitions.ids().map(|partition| (0.0, resources.whole(nodes, partition))).collect();
        for spec in &classes.specs {
            whole[resources.first_alike(nodes.partitions.of_class(spec))].0 += spec.weight;
        }
        Shares { whole, resources }
    }

    pub(super) fn of(&self, classes: &Classes, class: ClassId) -> Share {
        let partition = classes[class].partition;
        let first = self.resources.first_alike(partition);
        let ((weights, whole), weight) = (self.whole[first], classes.spec(class).weight);
        Share { partition, first, weight, weights, whole }
    }
}
