//! Shares of classes in the resources of their pools.

use crate::classify::Classes;
use crate::dispatch::Nodes;
use crate::limit::Resources;
use crate::request::ClassId;

/// A class's share of its pool's resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) pool: usize,
    /// The first of the pools with the same machines.
    pub(crate) first: usize,
    pub(crate) weight: f64,
    /// Sum of the weights of all classes of these pools.
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

/// Sums of class weights and sizes of nodes, indexed by the first of the pools with the same machines.
pub(super) struct Shares<'a> {
    whole: Vec<(f64, f64)>,
    resources: &'a Resources,
}

impl<'a> Shares<'a> {
    pub(super) fn new(resources: &'a Resources, nodes: &Nodes, classes: &Classes) -> Shares<'a> {
        let mut whole: Vec<(f64, f64)> =
            (0..nodes.sections.len()).map(|pool| (0.0, resources.whole(nodes, pool))).collect();
        for spec in &classes.specs {
            whole[resources.first_alike(nodes.sections.of_class(spec))].0 += spec.weight;
        }
        Shares { whole, resources }
    }

    pub(super) fn of(&self, classes: &Classes, class: ClassId) -> Share {
        let pool = classes[class].pool;
        let first = self.resources.first_alike(pool);
        let ((weights, whole), weight) = (self.whole[first], classes.spec(class).weight);
        Share { pool, first, weight, weights, whole }
    }
}
