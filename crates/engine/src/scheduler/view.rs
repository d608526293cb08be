//! What every scheduler sees: queues, classes, nodes, and whether load control has room.

use crate::classify::Classes;
use crate::demand::{Demand, RESOURCES};
use crate::dispatch::Nodes;
use crate::limit::Limit;
use crate::policy::Policy;
use crate::queue::Queues;
use crate::request::ClassId;
use crate::ticket::{NONE, Tickets};
use crate::time::Time;

/// Is a request within what its class is guaranteed, or beyond it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Within, or the method does not tell.
    Owed,
    /// Within, and its class has less in flight than its guarantee needs. Only load control and dispatch tell it apart.
    Needed,
    /// Beyond.
    Surplus,
}

/// What a scheduler sees. The one thing it may do is [`SchedulerView::keep`].
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
    /// Have load control and a node of the pool room for a request of this sub-queue?
    pub(crate) fn room(&self, pool: usize, sub_queue: usize, standing: Standing) -> bool {
        self.limit.room(self.nodes, (pool, sub_queue), standing, None)
    }

    /// Is the class's next request needed for its guarantee, and has a node of the pool room for it?
    pub(crate) fn needs(&self, class: ClassId, sub_queue: usize) -> bool {
        self.limit.needs(self.classes, self.nodes, class)
            && self.room(self.classes[class].pool, sub_queue, Standing::Needed)
    }

    /// Has the class a guaranteed throughput?
    pub(crate) fn has_guarantee(&self, class: ClassId) -> bool {
        self.classes.spec(class).guarantee.throughput.is_some()
    }

    /// May a request of this class be released in this standing, if there is room?
    pub(crate) fn admits(&self, class: ClassId, sub_queue: usize, standing: Standing) -> bool {
        self.limit.admits(self.nodes, (self.classes[class].pool, sub_queue), class, standing)
    }

    /// Size of the first window: methods that partition one have one.
    pub(crate) fn window(&self) -> u32 {
        self.limit.windows()[0].size
    }

    /// Cost of the head of a class's sub-queue, as far as it is managed.
    pub(crate) fn head(&self, class: ClassId, sub_queue: usize) -> Option<Demand> {
        let head = self.classes[class].queue.sub_queues[sub_queue].head;
        (head != NONE).then(|| self.policy.managed(self.tickets[head].demand))
    }

    /// Has the pool a node that can take requests now, if they are small enough?
    pub(crate) fn ready(&self, pool: usize) -> bool {
        self.nodes.is_ready(pool)
    }

    /// Has a node that may serve the class enough for it, and nothing kept for others?
    pub(crate) fn fits(&self, class: ClassId, demand: Demand) -> bool {
        let resources = self.limit.resources();
        resources.is_none_or(|resources| resources.fits(self.nodes, self.classes[class].pool, demand))
    }

    /// What is left of each resource in the pools that have the same machines as this one, as a share.
    pub(crate) fn left(&self, pool: usize) -> [f64; RESOURCES] {
        self.limit.resources().map_or([1.0; RESOURCES], |resources| resources.left(self.nodes, Some(pool)))
    }

    /// The resources that keep the nodes that may serve the class from taking it.
    pub(crate) fn lacking(&self, class: ClassId, demand: Demand) -> [bool; RESOURCES] {
        let resources = self.limit.resources();
        resources
            .map_or([false; RESOURCES], |resources| resources.lacking(self.nodes, self.classes[class].pool, demand))
    }

    /// Keeps resources of the machines of `pool` for the head of a class, or for none. True if it fits now; then
    /// nothing is kept any more.
    pub(crate) fn keep(&mut self, pool: usize, head: Option<(ClassId, Demand)>) -> bool {
        let head = head.map(|(class, demand)| (self.classes[class].pool, demand));
        self.limit.resources_mut().is_none_or(|resources| resources.keep(self.nodes, pool, head))
    }
}
