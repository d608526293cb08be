//! Change of the policy at run time: waiting requests keep their order, and requests in flight finish.
//!
//! Classes are the same if their names are, and nodes are the same if pool and name are. The waiting
//! requests of a removed class move to the policy's last class, in order of arrival. Its requests in flight
//! finish there, and their times do not count. Removed nodes finish their requests. New
//! nodes may start slowly. All state that follows
//! from the requests (queues, counts, shares) is rebuilt in one place, so that no sequence of changes can
//! leave it wrong. The cost is O(classes + requests). This is not a hot path.

use std::collections::BTreeMap;

use crate::admission::Admission;
use crate::classify::Classes;
use crate::demand::{Costs, Demand};
use crate::dispatch::Nodes;
use crate::engine::Engine;
use crate::index::{Id, MachineGroupId, Table};
use crate::limit::Limit;
use crate::policy::{InvalidPolicy, Policy};
use crate::queue::{Queue, Queues};
use crate::request::{ClassId, NodeId, TemplateId};
use crate::scheduler::Scheduler;
use crate::source_rate::SourceRates;
use crate::ticket::State;
use crate::time::Time;

/// Classes that a new policy keeps: the old id and the new one.
type Kept = Vec<(ClassId, ClassId)>;

impl Engine {
    /// Puts a new policy in force. Tickets stay valid. From now on class, template and node ids are those of
    /// the new policy. Call [`Engine::poll`] afterwards.
    ///
    /// # Errors
    /// If the policy is not valid. The old policy then stays in force.
    pub fn reconfigure(&mut self, now: Time, policy: Policy) -> Result<(), InvalidPolicy> {
        policy.validate()?;
        let now = self.advance(now);
        let shadow = self.shadow_for(now, &policy);
        self.settle_parts(now);
        let (mut classes, class_of, kept) = self.carry_classes(now, &policy);
        let parts = self.carry_parts(&policy, &kept);
        for (class, rate) in parts.rates(now) {
            classes.set_throughput(class, rate);
        }
        let (mut nodes, node_of) = self.carry_nodes(now, &policy);
        nodes.begin(now);
        self.carry_partitions(&mut nodes, &policy, &node_of);
        let mut limit = Limit::new(now, &policy, &nodes, classes.all.len());
        limit.carry(now, &self.limit, (&self.policy, &self.nodes), (&policy, &nodes));
        limit.carry_classes(&self.limit, &kept);
        for entry in &mut self.tickets.entries {
            if entry.state == State::Free {
                continue;
            }
            let (class, kept) = class_of[entry.class];
            entry.class = class;
            entry.adopted |= !kept;
            if self.policy.resources != policy.resources {
                // Its cost refers to other resources, or there is none.
                let known = policy.costs() != Costs::Unknown;
                entry.demand = if known { classes.spec(class).demand } else { Demand::default() };
            }
            entry.demand = limit.cost(classes[class].partition, entry.demand);
            if entry.node != NodeId::NONE {
                entry.node = node_of[entry.node];
            }
            // A request on a removed node counts in the first group, so that the sum stays right.
            let group = if entry.node == NodeId::NONE { MachineGroupId(0) } else { nodes.group_of(entry.node) };
            let sub_queue = policy.sub_queue_of(entry.demand);
            entry.sub_queue = sub_queue as u8;
            if !entry.has_passed() {
                entry.window = limit.window_of(sub_queue, group);
            }
        }
        self.limit = limit;
        self.classes = classes;
        self.nodes = nodes;
        self.policy = policy;
        self.parts = parts;
        self.rebuild(now, &kept);
        if let Some(shadow) = shadow {
            self.resume_shadow(now, shadow);
        }
        Ok(())
    }

    /// The new classes, and for each old one its new id and whether it was kept.
    fn carry_classes(&mut self, now: Time, policy: &Policy) -> (Classes, Table<ClassId, (ClassId, bool)>, Kept) {
        let mut classes = Classes::new(now, policy);
        let by_name: BTreeMap<&str, ClassId> =
            (0..).map(ClassId).zip(&policy.classes).map(|(i, c)| (c.name.as_str(), i)).collect();
        let templates: BTreeMap<&str, TemplateId> =
            (0..).map(TemplateId).zip(&policy.templates).map(|(i, t)| (t.class.name.as_str(), i)).collect();
        let named = self.policy.classes.len();
        let (mut class_of, mut kept) = (Table::new(), Vec::new());
        for (from, old) in self.classes.all.pairs() {
            let name = self.classes.specs[old.spec as usize].name.as_str();
            let new = if from.row() < named {
                by_name.get(name).copied()
            } else if let Some(template) = templates.get(name).copied() {
                match &old.made {
                    Some(made) if old.live => Some(classes.intern(now, template, &made.key).0),
                    Some(_) | None => Some(ClassId(policy.classes.len() as u32 + template.0)),
                }
            } else {
                None
            };
            class_of.push((new.unwrap_or(classes.default_class()), new.is_some()));
            let Some(new) = new.filter(|_| old.live) else { continue };
            let state = &mut classes[new];
            if old.made.is_some() == state.made.is_some() {
                state.expected = old.expected.clone();
                kept.push((from, new));
                state.observed = old.observed.clone();
                state.retry = old.retry;
                if policy.costs() == Costs::Shared {
                    classes.carry_cost(&self.classes, from, new);
                }
            } else {
                // A smaller `max_live` moved it to the overflow class.
                state.observed.counts.add(&old.observed.counts);
                state.observed.add_would(old.observed.would.as_deref());
            }
        }
        (classes, class_of, kept)
    }

    /// The new nodes, and for each old one its new id or [`NodeId::NONE`].
    fn carry_nodes(&self, now: Time, policy: &Policy) -> (Nodes, Table<NodeId, NodeId>) {
        let mut nodes = Nodes::new(policy);
        fn name(policy: &Policy, index: usize) -> (&str, &str) {
            let node = &policy.nodes[index];
            (&policy.pools[node.pool].name, &node.name)
        }
        let known: BTreeMap<(&str, &str), NodeId> =
            (0..policy.nodes.len()).map(|index| (name(policy, index), NodeId(index as u32))).collect();
        let mut pools: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, pool) in self.policy.pools.iter().enumerate() {
            pools.entry(&pool.name).or_insert(index);
        }
        let node_of = (0..self.policy.nodes.len())
            .map(|old| {
                let Some(new) = known.get(&name(&self.policy, old)).copied() else { return NodeId::NONE };
                nodes.inherit(new, &self.nodes, NodeId(old as u32));
                new
            })
            .collect::<Table<NodeId, NodeId>>();
        let kept: Vec<NodeId> = node_of.iter().copied().filter(|node| *node != NodeId::NONE).collect();
        nodes.inherited(now, &kept);
        for (to, pool) in policy.pools.iter().enumerate() {
            if let Some(from) = pools.get(pool.name.as_str()).copied() {
                nodes.inherit_localities(to, &self.nodes, from, &node_of);
            }
        }
        (nodes, node_of)
    }

    /// Rebuilds all state that follows from the requests.
    fn rebuild(&mut self, now: Time, kept: &[(ClassId, ClassId)]) {
        let live = self.classes.all.len();
        let scheduler = Scheduler::new(now, &self.policy, &self.classes, &self.nodes, &self.limit);
        let old = core::mem::replace(&mut self.scheduler, scheduler);
        self.scheduler.carry(&old, kept);
        let admission = Admission::new(now, &self.policy, live);
        let old = core::mem::replace(&mut self.admission, admission);
        self.admission.carry(&old, kept);
        // Classes may have other numbers now.
        self.rates = SourceRates::default();
        self.queues = Queues::new(&self.policy, self.nodes.partitions.len(), live);
        self.limit.clear();
        for class in &mut self.classes.all {
            class.queue = Queue::EMPTY;
            (class.in_flight, class.passing) = (0, 0);
        }
        self.nodes.recount(&self.tickets, &self.classes);
        let mut waiting: Vec<u32> = Vec::new();
        for index in 0..self.tickets.entries.len() as u32 {
            let entry = &self.tickets[index];
            match entry.state {
                State::Free => continue,
                State::Waiting => waiting.push(index),
                State::InFlight if entry.has_passed() => {}
                State::InFlight => {
                    let demand = self.policy.managed(entry.demand);
                    self.limit.recount(&entry.slot(demand), &self.nodes);
                }
            }
            let (class, in_flight) = (entry.class, entry.state == State::InFlight);
            let passing = in_flight && entry.has_passed();
            if !self.classes[class].in_use() {
                self.classes.leave_idle(class);
            }
            let state = &mut self.classes[class];
            // Waiting requests are counted when they are queued below. A count here only marks the class
            // active.
            state.in_flight += u32::from(in_flight && !passing);
            state.passing += u32::from(passing);
            state.queue.len += u32::from(!in_flight);
        }
        for class in &mut self.classes.all {
            class.queue = Queue::EMPTY;
        }
        waiting.sort_unstable_by_key(|index| self.tickets[*index].sequence);
        for index in waiting {
            let class = self.tickets[index].class;
            // The new table of priorities may differ.
            self.tickets[index].code = self.classes.spec(class).priority;
            let bounds = self.bounds(class);
            let source = self.queues.source(class, self.tickets[index].flow);
            let queue = &mut self.classes[class].queue;
            if self.queues.push(&mut self.tickets, queue, (index, source), bounds) {
                let (arrived, sub_queue) = (self.tickets[index].arrived, usize::from(self.tickets[index].sub_queue));
                self.admission.waits(class, sub_queue, arrived);
            }
        }
        self.classes.weigh();
        for class in self.classes.all.ids() {
            if self.classes[class].active() {
                self.scheduler.claims(&self.classes, class);
                self.limit.resumes(now, class, self.classes.spec(class).guarantee);
                self.rank(class);
            }
        }
        self.nodes_changed();
    }
}
