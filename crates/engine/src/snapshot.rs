//! What an operator may ask, and why things are as they are.
//!
//! Plain data, copied out under the driver's lock: the whole in [`Snapshot`], classes in pages of
//! [`ClassSnapshot`] so that a hundred thousand tenants never hold the lock for long.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::demand::RESOURCES;
use crate::dispatch::ServiceSet;
use crate::engine::Engine;
use crate::policy::{Guarantee, ResponseTime, Statistic};
use crate::request::{ClassId, Contention, Moved, NodeId, ShedReason};
use crate::time::Time;

/// The engine as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When it was taken.
    pub now: Time,
    /// The discipline's name.
    pub discipline: String,
    /// Requests that may be inside, all windows together; `None` is no limit.
    pub window: Option<u32>,
    /// Requests inside.
    pub outstanding: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// Why the window that moved last did so.
    pub moved: Moved,
    /// Every window; at least one.
    pub groups: Vec<GroupSnapshot>,
    /// Live classes, for paging.
    pub classes: u32,
    /// Every node.
    pub nodes: Vec<NodeSnapshot>,
    /// Pools that are divided over sets of services.
    pub partitions: Vec<PartitionSnapshot>,
    /// Pools whose requests go where their targets are.
    pub localities: Vec<LocalitySnapshot>,
    /// Waiting requests by tag, in the order of the table; empty where the discipline has none.
    pub tags: Vec<TagSnapshot>,
    /// What is available of each of [`crate::Policy::resources`]; empty where nobody manages them.
    pub resources: Vec<ResourceSnapshot>,
    /// Under [`crate::Precedence::Mdrr`] the rounds of every pool.
    pub rounds: Vec<RoundsSnapshot>,
    /// Slot-seconds per second that the guarantees need (Σ throughput × service time); a class of which
    /// no service time is known counts with the others' mean. `None` if none is known of any class.
    pub demanded_capacity: Option<f64>,
    /// Slot-seconds per second of the usable nodes, if every one of them is known.
    pub usable_capacity: Option<f64>,
}

/// A group of nodes that serve the same pools, and its window. Methods with one window have one group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSnapshot {
    /// The resource that its requests take most of, where the group has a window for each.
    pub resource: Option<String>,
    /// The pools' names.
    pub pools: Vec<String>,
    /// Requests that may be inside; `None` is no limit.
    pub window: Option<u32>,
    /// Requests inside.
    pub outstanding: u32,
    /// What bounds surplus beside the window, where load control tells it from what is owed.
    pub surplus: Option<SurplusSnapshot>,
    /// Whether requests have been seen to wait for one another in flight, and since when. `None` if load control does
    /// not look for it.
    pub contention: Option<(Contention, Time)>,
    /// Why the window moved last.
    pub moved: Moved,
}

/// What bounds surplus and what is owed in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurplusSnapshot {
    /// Owed requests that may be in flight, whatever the window. `None` once contention has been seen: then the window
    /// bounds them as well.
    pub reach: Option<u32>,
    /// Requests in flight that were released as surplus.
    pub outstanding: u32,
    /// Requests in flight beyond the bounds of their machines, which hang or were bounded since. The window does not
    /// count them.
    pub stuck: u32,
    /// Slots that the classes with a guaranteed throughput need now.
    pub needed: f64,
    /// Slots that what is in flight keeps from them for longer than their limits allow.
    pub blocked: f64,
}

/// One resource of the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSnapshot {
    /// Its name.
    pub name: String,
    /// What is left of it on the usable nodes, as a share of what they have; 0 to 1. Nothing is left of a resource that
    /// is overdrawn, as after a node was lost whose requests are still inside.
    pub available: f64,
}

/// The rounds in which a pool's resources are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundsSnapshot {
    /// The pool's name; of pools that have the same machines the first's, since they share their rounds as well.
    pub pool: String,
    /// Rounds begun since the start, or the last new policy, after the first.
    pub begun: u64,
    /// Per resource the class whose turn it is.
    pub turns: Vec<ClassId>,
}

/// One tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagSnapshot {
    /// Its name.
    pub name: String,
    /// Requests that wait with it.
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
    /// Requests inside it.
    pub outstanding: u32,
    /// Requests that it finished.
    pub served: u64,
    /// Failures.
    pub failed: u64,
    /// May it get requests.
    pub state: NodeState,
    /// Could it take one more now, as far as its own and its machine's bounds go. Windows are not looked at.
    pub room: bool,
    /// Index into [`Snapshot::groups`].
    pub group: u32,
    /// Slot-seconds per second, if known.
    pub capacity: Option<f64>,
    /// `(static + ω·dynamic) / CPUs` of the requests inside, or of those that its collector counted last.
    pub load: f64,
    /// The set of services that it serves, if its pool is divided.
    pub set: Option<ServiceSet>,
    /// What is left of each resource, as a share of what it has; 1 where nobody manages it.
    pub available: [f64; RESOURCES],
}

/// A pool whose nodes are divided over sets of services.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionSnapshot {
    /// The pool's name.
    pub pool: String,
    /// Nodes that have changed their set since the start, or the last new policy with other sets.
    pub moves: u64,
    /// Its sets.
    pub sets: Vec<SetSnapshot>,
}

/// One set and its part of the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct SetSnapshot {
    /// Which.
    pub set: ServiceSet,
    /// Its usable nodes.
    pub nodes: u32,
    /// Their CPUs.
    pub cpus: f64,
    /// Their load per CPU.
    pub load: f64,
    /// CPUs that were asked for in the last period, refused requests included; before that, and under a static
    /// partition, what its size was taken from.
    pub demand: f64,
}

/// A pool under [`crate::Dispatch::Lard`]. Counts are since the start; a retry counts as a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalitySnapshot {
    /// The pool's name.
    pub pool: String,
    /// Targets that are mapped now.
    pub targets: u32,
    /// Most that may be.
    pub most: u32,
    /// Requests that went where their target was mapped.
    pub hits: u64,
    /// Requests whose target was mapped to another usable node, and is mapped anew.
    pub moves: u64,
    /// Requests whose target was not mapped.
    pub new: u64,
}

/// May a node get requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// Yes.
    Up,
    /// No: its health checks fail.
    Down,
    /// No: it is being drained.
    Draining,
    /// No: it failed too often in a row.
    Ejected {
        /// Until then.
        until: Time,
    },
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSnapshot {
    /// Its id.
    pub class: ClassId,
    /// Its name, or its template's; classes of one template and its overflow class share it.
    pub name: String,
    /// The key it was made for; `None` for classes that the policy names and for overflow classes,
    /// which also keep the counts of classes that made room.
    pub key: Option<Vec<u8>>,
    /// What it is promised.
    pub guarantee: Guarantee,
    /// Arrivals since the start.
    pub offered: u64,
    /// Completions since the start.
    pub served: u64,
    /// Failures since the start (retried ones count once each).
    pub failed: u64,
    /// Left or cut off by the client, since the start.
    pub cancelled: u64,
    /// Turned away since the start, by [`ShedReason::ALL`].
    pub shed: [u64; ShedReason::ALL.len()],
    /// Retries since the start.
    pub retried: u64,
    /// Arrivals since the start whose route nobody knew.
    pub unknown: u64,
    /// What its requests took of each resource that were answered, in node-seconds since the start.
    pub used: [f64; RESOURCES],
    /// Under [`crate::Precedence::Mdrr`] what it may still take of each resource in this round, in node-seconds.
    pub credit: Option<[f64; RESOURCES]>,
    /// What it had left of its guaranteed rate at the engine's last call, in requests, where the discipline counts
    /// that. With a whole one the class is owed its next request; below one that is surplus.
    pub tokens: Option<f64>,
    /// Requests that it may have in flight whatever the window says, as long as they are owed. `None` where load control
    /// does not say so, or not yet.
    pub allowance: Option<f64>,
    /// Waiting now.
    pub waiting: u32,
    /// Inside now.
    pub outstanding: u32,
    /// Its share of the window if every class with a claim used it, 0 to 1.
    pub share: f64,
    /// Estimate of its compute time (release to last byte), if there is one.
    pub compute_time: Option<Duration>,
    /// Agreed or learned service time on an unloaded node.
    pub service_time: Option<Duration>,
    /// Its response-time limit is impossible by itself: shorter than its service time, so that no load control can keep
    /// it.
    pub impossible: bool,
    /// Over the sliding window.
    pub achieved: Achieved,
}

/// A response-time limit that is impossible by itself: shorter than the service time of its class.
#[derive(Clone, Debug, PartialEq)]
pub struct ImpossibleLimit {
    /// The class.
    pub class: ClassId,
    /// Its name, or its template's.
    pub name: String,
    /// The key it was made for; `None` for classes that the policy names.
    pub key: Option<Vec<u8>>,
    /// The limit.
    pub response_time: ResponseTime,
    /// Time of a request on an unloaded node.
    pub service_time: Duration,
}

/// What a class got over the sliding window.
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
    /// Throughput guarantee held: 99 % of what arrived within the guaranteed rate is served. What waits or is in flight
    /// for longer than a request of the class may is not. `None` without a guarantee.
    pub throughput_held: Option<bool>,
    /// Response-time guarantee held. `None` without one or without completions.
    pub response_time_held: Option<bool>,
}

impl Engine {
    /// The engine as a whole. Copies one line per node.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let (resources, windows) = (self.limit.resources(), self.limit.windows());
        let nodes = self.policy.nodes.iter().zip(self.nodes.nodes.pairs());
        let nodes: Vec<NodeSnapshot> = nodes
            .map(|(policy, (index, node))| NodeSnapshot {
                node: index,
                name: policy.name.clone(),
                pool: self.policy.pools[policy.pool].name.clone(),
                outstanding: node.in_flight,
                served: node.served,
                failed: node.failed,
                state: node.state(),
                room: self.nodes.can_take(index),
                group: self.nodes.group_of(index).0,
                capacity: node.capacity,
                load: self.nodes.node_load(node),
                set: self.nodes.sections.sets[node.pool],
                available: resources.map_or([1.0; RESOURCES], |resources| resources.left_of(&self.nodes, index)),
            })
            .collect();
        // Nodes of one machine share its capacity.
        let usable = self.policy.nodes.iter().zip(&self.nodes.nodes).filter(|(_, node)| node.usable());
        let machines: BTreeMap<&str, Option<f64>> =
            usable.map(|(policy, node)| (policy.machine.as_str(), node.capacity)).collect();
        let divided = windows.len() > self.nodes.groups.len();
        Snapshot {
            now: now.max(self.now),
            discipline: self.policy.discipline.name.clone(),
            window: windows.iter().map(|w| w.limit()).try_fold(0u32, |sum, w| Some(sum.saturating_add(w?))),
            outstanding: windows.iter().map(|w| w.in_flight).sum(),
            waiting: self.queues.waiting,
            moved: windows.iter().map(|w| w.moved).max_by_key(|m| m.at).unwrap_or(windows[0].moved),
            groups: windows
                .iter()
                .zip(self.nodes.groups.iter().cycle())
                .enumerate()
                .map(|(index, (window, group))| GroupSnapshot {
                    resource: self.policy.resources.get(index / self.nodes.groups.len()).filter(|_| divided).cloned(),
                    pools: {
                        let mut pools: Vec<usize> =
                            group.pools.iter().map(|section| self.nodes.sections.pools[*section]).collect();
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
            partitions: self.nodes.partitions.iter().map(|p| self.partition_snapshot(p)).collect(),
            localities: self.nodes.localities(&self.policy),
            tags: self.tag_snapshots(),
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
        let pools = self.nodes.sections.pools.iter().enumerate();
        let Some(resources) = self.limit.resources() else { return Vec::new() };
        let pools = pools.filter(|(section, _)| resources.first_alike(*section) == *section);
        let rounds = pools.filter_map(|(section, pool)| {
            let (begun, turns) = self.scheduler.rounds(section)?;
            Some(RoundsSnapshot { pool: self.policy.pools[*pool].name.clone(), begun, turns })
        });
        rounds.collect()
    }

    fn tag_snapshots(&self) -> Vec<TagSnapshot> {
        let waiting =
            |code: usize| (0..self.nodes.sections.len()).map(|section| self.queues.tagged(section)[code]).sum();
        let tags = self.policy.discipline.tags.iter().enumerate();
        tags.map(|(code, tag)| TagSnapshot { name: tag.name.clone(), waiting: waiting(code) }).collect()
    }

    /// Up to `most` live classes with ids from `from` on, in order of their ids.
    #[must_use]
    pub fn classes(&self, now: Time, from: ClassId, most: usize) -> Vec<ClassSnapshot> {
        let now = now.max(self.now);
        let ids = self.classes.all.ids().skip(from.0 as usize).filter(|id| self.classes[*id].live);
        ids.take(most).map(|id| self.class_snapshot(now, id)).collect()
    }

    /// The impossible limits among `most` classes with ids from `from` on, and the id of the class behind them, if
    /// there is one.
    #[must_use]
    pub fn impossible_limits(&self, from: ClassId, most: u32) -> (Vec<ImpossibleLimit>, Option<ClassId>) {
        let mut ids = self.classes.all.ids().skip(from.0 as usize);
        let page = ids.by_ref().take(most as usize);
        let impossible = page.filter(|id| self.classes[*id].live && self.classes.is_impossible(*id));
        let limit = |class: ClassId| {
            let spec = self.classes.spec(class);
            Some(ImpossibleLimit {
                class,
                name: spec.name.clone(),
                key: self.classes[class].made.as_ref().map(|made| made.key.to_vec()),
                response_time: spec.guarantee.response_time?,
                service_time: self.classes.service_time(class).and_then(|s| Duration::try_from_secs_f64(s).ok())?,
            })
        };
        (impossible.filter_map(limit).collect(), ids.next())
    }

    fn class_snapshot(&self, now: Time, id: ClassId) -> ClassSnapshot {
        let (state, spec) = (&self.classes[id], self.classes.spec(id));
        let counts = &state.observed.counts;
        let seconds = |s: f64| Duration::try_from_secs_f64(s).ok();
        ClassSnapshot {
            class: id,
            name: spec.name.clone(),
            key: state.made.as_ref().map(|made| made.key.to_vec()),
            guarantee: spec.guarantee,
            offered: counts.offered,
            served: counts.served,
            failed: counts.failed,
            cancelled: counts.cancelled,
            shed: counts.shed,
            retried: counts.retried,
            unknown: counts.unknown,
            used: counts.used.map(|used| used as f64 / 1e9),
            credit: self.scheduler.credit(id).map(|credit| credit.map(|left| left as f64 / 1e9)),
            tokens: self.scheduler.tokens(self.now, &self.classes, id),
            allowance: self.limit.allowance(id),
            waiting: state.queue.len,
            outstanding: state.in_flight,
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
