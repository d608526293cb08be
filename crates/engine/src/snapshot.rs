//! The state of the engine as an operator sees it, with reasons.
//!
//! Plain data, copied out under the driver's lock: the engine as a whole in [`Snapshot`], and classes in
//! pages of [`ClassSnapshot`], so that a hundred thousand tenants never hold the lock for long.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::demand::RESOURCES;
use crate::dispatch::ServiceSet;
use crate::engine::Engine;
use crate::mode::Mode;
use crate::policy::{Guarantee, Statistic};
use crate::request::{ClassId, Contention, Moved, NodeId, ShedReason};
use crate::time::Time;

/// The engine as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Time of the snapshot.
    pub now: Time,
    /// Name of the discipline.
    pub discipline: String,
    /// Maximum number of requests in flight, summed over all windows. `None` is no limit.
    pub window: Option<u32>,
    /// Requests in flight, including those that passed because their class is observed. No window counts these.
    pub outstanding: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// The latest move of any window.
    pub moved: Moved,
    /// Every window, at least one.
    pub groups: Vec<MachineGroupSnapshot>,
    /// Number of live classes, for paging.
    pub classes: u32,
    /// Every node.
    pub nodes: Vec<NodeSnapshot>,
    /// Pools that are divided among sets of services.
    pub divided_pools: Vec<DividedPoolSnapshot>,
    /// Pools that send requests to the node of their target.
    pub localities: Vec<LocalitySnapshot>,
    /// Waiting requests by SEDA priority, in the order of the table. Empty if the discipline has none.
    pub priorities: Vec<PrioritySnapshot>,
    /// Available share of each of [`crate::Policy::resources`]. Empty if resources are not managed.
    pub resources: Vec<ResourceSnapshot>,
    /// Rounds of every pool under [`crate::Precedence::Mdrr`].
    pub rounds: Vec<RoundsSnapshot>,
    /// Slot-seconds per second that the guarantees need (Σ throughput × service time). A class without a
    /// known service time counts with the mean of the others. `None` if no service time is known.
    pub demanded_capacity: Option<f64>,
    /// Slot-seconds per second of the usable nodes, if the capacity of every one of them is known.
    pub usable_capacity: Option<f64>,
}

/// A group of nodes that serve the same pools, and its window. Methods with one window have one group.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineGroupSnapshot {
    /// The dominant resource of its requests, if the group has a window for each resource.
    pub resource: Option<String>,
    /// The pools' names.
    pub pools: Vec<String>,
    /// Maximum number of requests in flight. `None` is no limit.
    pub window: Option<u32>,
    /// Requests in flight.
    pub outstanding: u32,
    /// Further bounds on surplus, if load control distinguishes it from owed requests.
    pub surplus: Option<SurplusSnapshot>,
    /// Whether requests have been seen to wait for one another in flight, and since when. `None` if load
    /// control does not test for it.
    pub contention: Option<(Contention, Time)>,
    /// The latest move of the window.
    pub moved: Moved,
}

/// Bounds on surplus and on owed requests in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurplusSnapshot {
    /// Number of owed requests that may be in flight, whatever the window. `None` once contention has been
    /// seen: then the window bounds them as well.
    pub reach: Option<u32>,
    /// Requests in flight that were released as surplus.
    pub outstanding: u32,
    /// Requests in flight beyond the bounds of their machines, because the machines hang or were bounded
    /// later. The window does not count them.
    pub stuck: u32,
    /// Slots that the classes with a guaranteed throughput need now.
    pub needed: f64,
    /// Slots that requests in flight keep from those classes for longer than their limits allow.
    pub blocked: f64,
}

/// One resource of the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSnapshot {
    /// Its name.
    pub name: String,
    /// Remaining share of it on the usable nodes, from 0 to 1. The share is 0 for an overdrawn resource, for
    /// example after the loss of a node with requests in flight.
    pub available: f64,
}

/// The rounds in which the resources of a pool are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundsSnapshot {
    /// Name of the pool. Pools with the same machines share their rounds and appear under the name of the
    /// first one.
    pub pool: String,
    /// Rounds begun after the first one, since the start or the last new policy.
    pub begun: u64,
    /// The class that has the turn, per resource.
    pub turns: Vec<ClassId>,
}

/// One SEDA priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrioritySnapshot {
    /// Its name.
    pub name: String,
    /// Waiting requests with this priority.
    pub waiting: u32,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSnapshot {
    /// Its id.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its pool's name.
    pub pool: String,
    /// Requests in flight on it.
    pub outstanding: u32,
    /// Requests that it finished.
    pub served: u64,
    /// Failures.
    pub failed: u64,
    /// Whether it may get requests, with the reason.
    pub state: NodeState,
    /// Share of its weight that it has during a slow start, from 0.1 on, and 1 otherwise.
    pub share: f64,
    /// Whether it could take one more request now, by its own bounds and those of its machine. Windows are
    /// ignored.
    pub room: bool,
    /// Workers of its machine, if adaptive load control has found their number.
    pub workers: Option<u32>,
    /// Index into [`Snapshot::groups`].
    pub group: u32,
    /// Slot-seconds per second, if known.
    pub capacity: Option<f64>,
    /// `(static + ω·dynamic) / CPUs` of the requests in flight, or of the latest counts of its collector.
    pub load: f64,
    /// The set of services that it serves, if its pool is divided.
    pub set: Option<ServiceSet>,
    /// Remaining share of each resource; 1 if resources are not managed.
    pub available: [f64; RESOURCES],
}

/// A pool with nodes divided among sets of services.
#[derive(Clone, Debug, PartialEq)]
pub struct DividedPoolSnapshot {
    /// The pool's name.
    pub pool: String,
    /// Number of node moves between sets, since the start or since the last new policy with other sets.
    pub moves: u64,
    /// Its partitions, one per set.
    pub partitions: Vec<PartitionSnapshot>,
}

/// A partition of a pool: the nodes for one set of services.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionSnapshot {
    /// Its set.
    pub set: ServiceSet,
    /// Number of its usable nodes.
    pub nodes: u32,
    /// Their CPUs.
    pub cpus: f64,
    /// Their load per CPU.
    pub load: f64,
    /// CPUs demanded in the last period, including refused requests. Before the first period, and under a
    /// static partition, the value from which its size was computed.
    pub demand: f64,
}

/// A pool under [`crate::Dispatch::Lard`]. Counts are since the start, and a retry counts as a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalitySnapshot {
    /// The pool's name.
    pub pool: String,
    /// Targets that are mapped now.
    pub keys: u32,
    /// Maximum number of mapped targets.
    pub max: u32,
    /// Requests that went to the node of their target.
    pub hits: u64,
    /// Requests for targets that were mapped to another usable node and were mapped again.
    pub moves: u64,
    /// Requests for targets that were not mapped.
    pub new: u64,
}

/// Whether a node may get requests, and the reason if not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It may get requests.
    Up,
    /// No requests: its health checks fail.
    Down,
    /// No requests: it is being drained.
    Draining,
    /// No requests: it failed too often in a row.
    Ejected {
        /// End of the ejection.
        until: Time,
    },
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSnapshot {
    /// Its id.
    pub class: ClassId,
    /// Its name, or the name of its template, which all classes of the template and its overflow class
    /// share.
    pub name: String,
    /// The key it was made for. `None` for classes that the policy names and for overflow classes, which
    /// also keep the counts of evicted classes.
    pub key: Option<Vec<u8>>,
    /// Its guarantee, as the policy promises it.
    pub guarantee: Guarantee,
    /// This engine's part of the guaranteed throughput now, in requests a second, if several engines promise it
    /// together. The results are judged by it.
    pub part: Option<f64>,
    /// Arrivals since the start.
    pub offered: u64,
    /// Completions since the start.
    pub served: u64,
    /// Failures since the start. Each failed attempt counts once.
    pub failed: u64,
    /// Requests that the client cancelled or cut off, since the start.
    pub cancelled: u64,
    /// Refused requests since the start, in the order of [`ShedReason::ALL`].
    pub shed: [u64; ShedReason::ALL.len()],
    /// Whether it is enforced or only observed.
    pub mode: Mode,
    /// Requests since the start that passed, and would have been refused, in the order of [`ShedReason::ALL`].
    pub would_shed: [u64; ShedReason::ALL.len()],
    /// Retries since the start.
    pub retried: u64,
    /// Arrivals since the start with an unknown route.
    pub unknown: u64,
    /// Cost of its answered requests per resource, in node-seconds since the start.
    pub used: [f64; RESOURCES],
    /// Remaining credit for each resource in this round under [`crate::Precedence::Mdrr`], in node-seconds.
    pub credit: Option<[f64; RESOURCES]>,
    /// Tokens left of its guaranteed rate at the engine's last call, in requests, if the discipline counts
    /// them. With at least one token the next request of the class is owed. With less it is surplus.
    pub tokens: Option<f64>,
    /// Number of owed requests that it may have in flight whatever the window. `None` if load control does
    /// not define it, or not yet.
    pub allowance: Option<f64>,
    /// Requests waiting now.
    pub waiting: u32,
    /// Requests in flight now.
    pub outstanding: u32,
    /// Its share of the window if every class with a claim used its own, from 0 to 1.
    pub share: f64,
    /// Estimate of its compute time (release to last byte), if there is one.
    pub compute_time: Option<Duration>,
    /// Declared or learned service time on an unloaded node.
    pub service_time: Option<Duration>,
    /// Whether its response-time limit is shorter than its service time, so that no load control can keep
    /// it.
    pub impossible: bool,
    /// Measurements over the sliding window.
    pub achieved: Achieved,
}

/// Measurements of a class over the sliding window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Achieved {
    /// Length of the window in seconds (shorter after a start).
    pub seconds: f64,
    /// Arrivals per second.
    pub offered_per_s: f64,
    /// Completions per second.
    pub served_per_s: f64,
    /// Sheds per second.
    pub shed_per_s: f64,
    /// Requests per second that passed, and would have been refused.
    pub would_shed_per_s: f64,
    /// Mean response time.
    pub mean: Option<Duration>,
    /// 50th, 95th and 99th percentile of the response time.
    pub p50: Option<Duration>,
    /// See `p50`.
    pub p95: Option<Duration>,
    /// See `p50`.
    pub p99: Option<Duration>,
    /// The guaranteed statistic.
    pub limited: Option<(Statistic, Duration)>,
    /// Whether the throughput guarantee is held: 99 % of the arrivals within the guaranteed rate are served.
    /// A request that waits or is in flight for longer than the class allows counts as not served. `None`
    /// without a guarantee.
    pub throughput_held: Option<bool>,
    /// Whether the response-time guarantee is held. `None` without one or without completions.
    pub response_time_held: Option<bool>,
}

impl Engine {
    /// The engine as a whole. Copies one entry per node.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let (resources, windows) = (self.limit.resources(), self.limit.windows());
        let nodes = self.policy.nodes.iter().zip(self.nodes.nodes.pairs());
        let nodes: Vec<NodeSnapshot> = nodes
            .map(|(policy, (index, node))| NodeSnapshot {
                node: index,
                name: policy.name.clone(),
                pool: self.policy.pools[policy.pool].name.clone(),
                outstanding: node.in_flight + node.passing,
                served: node.served,
                failed: node.failed,
                state: node.state(),
                share: self.nodes.share_of_weight(index),
                workers: self.nodes.workers(index),
                room: self.nodes.can_take(index),
                group: self.nodes.group_of(index).0,
                capacity: node.capacity,
                load: self.nodes.node_load(node),
                set: self.nodes.partitions.sets[node.partition],
                available: resources.map_or([1.0; RESOURCES], |resources| resources.left_of(&self.nodes, index)),
            })
            .collect();
        // Nodes of one machine share its capacity.
        let usable = self.policy.nodes.iter().zip(&self.nodes.nodes).filter(|(_, node)| node.usable());
        let machines: BTreeMap<&str, Option<f64>> =
            usable.map(|(policy, node)| (policy.machine.as_str(), node.capacity)).collect();
        let divided = windows.len() > self.nodes.groups.len();
        let passing: u32 = self.classes.all.iter().map(|class| class.passing).sum();
        Snapshot {
            now: now.max(self.now),
            discipline: self.policy.discipline.name.clone(),
            window: windows.iter().map(|w| w.limit()).try_fold(0u32, |sum, w| Some(sum.saturating_add(w?))),
            outstanding: windows.iter().map(|w| w.in_flight).sum::<u32>() + passing,
            waiting: self.queues.waiting,
            moved: windows.iter().map(|w| w.moved).max_by_key(|m| m.at).unwrap_or(windows[0].moved),
            groups: windows
                .iter()
                .zip(self.nodes.groups.iter().cycle())
                .enumerate()
                .map(|(index, (window, group))| MachineGroupSnapshot {
                    resource: self.policy.resources.get(index / self.nodes.groups.len()).filter(|_| divided).cloned(),
                    pools: {
                        let mut pools: Vec<usize> =
                            group.partitions.iter().map(|partition| self.nodes.partitions.pools[*partition]).collect();
                        pools.dedup();
                        pools.into_iter().map(|pool| self.policy.pools[pool].name.clone()).collect()
                    },
                    window: window.limit(),
                    outstanding: window.in_flight,
                    surplus: self.limit.surplus(index),
                    contention: self.limit.contention(index),
                    moved: window.moved,
                })
                .collect(),
            classes: self.classes.all.iter().filter(|c| c.live).count() as u32,
            usable_capacity: machines.values().copied().sum(),
            demanded_capacity: self.classes.demanded(self.policy.is_priced()),
            divided_pools: self.nodes.divided_pools.iter().map(|divided| self.divided_pool_snapshot(divided)).collect(),
            localities: self.nodes.localities(&self.policy),
            priorities: self.priority_snapshots(),
            resources: self.resource_snapshots(),
            rounds: self.rounds_snapshots(),
            nodes,
        }
    }

    fn resource_snapshots(&self) -> Vec<ResourceSnapshot> {
        let Some(resources) = self.limit.resources() else { return Vec::new() };
        let names = self.policy.resources.iter().zip(resources.left(&self.nodes, None));
        names.map(|(name, available)| ResourceSnapshot { name: name.clone(), available }).collect()
    }

    fn rounds_snapshots(&self) -> Vec<RoundsSnapshot> {
        let Some(resources) = self.limit.resources() else { return Vec::new() };
        let partitions = self.nodes.partitions.pools.pairs();
        let first = partitions.filter(|(partition, _)| resources.first_alike(*partition) == *partition);
        let rounds = first.filter_map(|(partition, pool)| {
            let (begun, turns) = self.scheduler.rounds(partition)?;
            Some(RoundsSnapshot { pool: self.policy.pools[*pool].name.clone(), begun, turns })
        });
        rounds.collect()
    }

    fn priority_snapshots(&self) -> Vec<PrioritySnapshot> {
        let waiting =
            |code: usize| self.nodes.partitions.ids().map(|partition| self.queues.by_priority(partition)[code]).sum();
        let priorities = self.policy.discipline.priorities.iter().enumerate();
        priorities
            .map(|(code, priority)| PrioritySnapshot { name: priority.name.clone(), waiting: waiting(code) })
            .collect()
    }

    /// Up to `max` live classes with ids from `from` on, in order of their ids.
    pub fn classes(&self, now: Time, from: ClassId, max: usize) -> Vec<ClassSnapshot> {
        let now = now.max(self.now);
        let ids = self.classes.all.ids().skip(from.0 as usize).filter(|id| self.classes[*id].live);
        ids.take(max).map(|id| self.class_snapshot(now, id)).collect()
    }

    fn class_snapshot(&self, now: Time, id: ClassId) -> ClassSnapshot {
        let (state, spec) = (&self.classes[id], self.classes.spec(id));
        let promised = self.policy.classes.get(id.0 as usize);
        let counts = &state.observed.counts;
        let seconds = |s: f64| Duration::try_from_secs_f64(s).ok();
        ClassSnapshot {
            class: id,
            name: spec.name.clone(),
            key: state.made.as_ref().map(|made| made.key.to_vec()),
            guarantee: promised.map_or(spec.guarantee, |class| class.guarantee),
            part: spec.guarantee.throughput.filter(|_| self.parts.keeps(id)),
            offered: counts.offered,
            served: counts.served,
            failed: counts.failed,
            cancelled: counts.cancelled,
            shed: counts.shed,
            mode: spec.mode,
            would_shed: state.observed.would.as_ref().map_or([0; ShedReason::ALL.len()], |would| would.shed),
            retried: counts.retried,
            unknown: counts.unknown,
            used: counts.used.map(|used| used as f64 / 1e9),
            credit: self.scheduler.credit(id).map(|credit| credit.map(|left| left as f64 / 1e9)),
            tokens: self.scheduler.tokens(self.now, &self.classes, id),
            allowance: self.limit.allowance(id),
            waiting: state.queue.len,
            outstanding: state.in_flight + state.passing,
            share: if self.classes.total_weight == 0 {
                0.0
            } else {
                state.weight as f64 / self.classes.total_weight as f64
            },
            compute_time: state.expected.seconds().and_then(seconds),
            service_time: self.classes.service_time(id).and_then(seconds),
            impossible: self.classes.is_impossible(id),
            achieved: state.observed.achieved(now, &spec.guarantee, self.classes.service_time(id)),
        }
    }
}
