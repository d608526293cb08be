//! The view of every scheduler: queues, classes, nodes, and whether load control has room.

use crate::classify::Classes;
use crate::demand::{Demand, RESOURCES};
use crate::dispatch::Nodes;
use crate::index::PartitionId;
use crate::limit::Limit;
use crate::policy::Policy;
use crate::queue::Queues;
use crate::request::ClassId;
use crate::ticket::{NONE, Tickets};
use crate::time::Time;

/// Whether a request is within the guarantee of its class or beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Within the guarantee, or the method does not distinguish.
    Owed,
    /// It may exceed the window, because the guarantee of its class needs it, or best effort has earned it. Only load
    /// control and dispatch distinguish it.
    Needed,
    /// Beyond the guarantee.
    Surplus,
}

/// The view of a scheduler. [`SchedulerView::keep`] is its only way to change state.
pub(crate) struct SchedulerView<'a> {
    pub(crate) now: Time,
    pub(crate) policy: &'a Policy,
    pub(crate) classes: &'a Classes,
    pub(crate) tickets: &'a Tickets,
    pub(crate) queues: &'a Queues,
    pub(crate) nodes: &'a Nodes,
    pub(crate) limit: &'a mut Limit,
}

impl SchedulerView<'_> {
    /// Whether load control and a node of the partition have room for a request of this sub-queue.
    pub(crate) fn room(&self, partition: PartitionId, sub_queue: usize, standing: Standing) -> bool {
        self.limit.room(self.nodes, (partition, sub_queue), standing, None)
    }

    /// Whether the class's next request finds room whatever the window, and a node of the partition has room for it.
    pub(crate) fn may_exceed(&self, class: ClassId, sub_queue: usize, standing: Standing) -> bool {
        self.limit.may_exceed(self.classes, self.nodes, class, standing)
            && self.room(self.classes[class].partition, sub_queue, Standing::Needed)
    }

    /// Whether the class has a guaranteed throughput.
    pub(crate) fn has_guarantee(&self, class: ClassId) -> bool {
        self.classes.spec(class).guarantee.throughput.is_some()
    }

    /// Whether load control admits a request of this class in this standing, if there is room.
    pub(crate) fn admits(&self, class: ClassId, sub_queue: usize, standing: Standing) -> bool {
        self.limit.admits(self.nodes, (self.classes[class].partition, sub_queue), class, standing)
    }

    /// Size of the first window. Methods that partition a window have only one.
    pub(crate) fn window(&self) -> u32 {
        self.limit.windows()[0].size
    }

    /// Cost of the head of a class's sub-queue on the managed resources.
    pub(crate) fn head(&self, class: ClassId, sub_queue: usize) -> Option<Demand> {
        let head = self.classes[class].queue.head(sub_queue, self.queues.has_late());
        (head != NONE).then(|| self.policy.managed(self.tickets[head].demand))
    }

    /// Whether the partition has a node that can take requests now, if they are small enough.
    pub(crate) fn ready(&self, partition: PartitionId) -> bool {
        self.nodes.is_ready(partition)
    }

    /// Whether a node that may serve the class has enough for the request that is not reserved for others.
    pub(crate) fn fits(&self, class: ClassId, demand: Demand) -> bool {
        let resources = self.limit.resources();
        resources.is_none_or(|resources| resources.fits(self.nodes, self.classes[class].partition, demand))
    }

    /// Remaining share of each resource in the partitions that have the same machines as this one.
    pub(crate) fn left(&self, partition: PartitionId) -> [f64; RESOURCES] {
        self.limit.resources().map_or([1.0; RESOURCES], |resources| resources.left(self.nodes, Some(partition)))
    }

    /// The resources that are missing for the request on the nodes that may serve the class.
    pub(crate) fn lacking(&self, class: ClassId, demand: Demand) -> [bool; RESOURCES] {
        let resources = self.limit.resources();
        resources.map_or([false; RESOURCES], |resources| {
            resources.lacking(self.nodes, self.classes[class].partition, demand)
        })
    }

    /// Reserves resources on the machines of `partition` for the head of a class, or for none. Returns true if
    /// the head fits now: then nothing is reserved any more.
    pub(crate) fn keep(&mut self, partition: PartitionId, head: Option<(ClassId, Demand)>) -> bool {
        let head = head.map(|(class, demand)| (self.classes[class].partition, demand));
        self.limit.resources_mut().is_none_or(|resources| resources.keep(self.nodes, partition, head))
    }
}
