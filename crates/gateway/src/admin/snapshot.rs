//! The engine's snapshots as the JSON forms of [`weirgate_wire::admin`], in base units.
//!
//! The engine does not depend on JSON, and the JSON forms do not depend on the engine, because agents and other readers
//! use them too. Only the gateway depends on both.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_engine as engine;
use weirgate_spanned_yaml::unit::span_text;
use weirgate_wire::RESOURCE_NAMES;
use weirgate_wire::admin::{
    Achieved, Class, Contention, ContentionState, DividedPool, Guarantee, Locality, MachineGroup, Moved, Node,
    NodeState, Partition, Priority, Resource, Rounds, Snapshot, Statistic, Surplus, by_name, key_text,
};

fn seconds(span: Option<Duration>) -> Option<f64> {
    span.map(|s| s.as_secs_f64())
}

/// Returns the whole engine. `class_name` returns the name of a class for the reasons of moves.
pub(crate) fn whole(snapshot: &engine::Snapshot, class_name: impl Fn(engine::ClassId) -> String) -> Snapshot {
    Snapshot {
        now_seconds: snapshot.now.as_secs_f64(),
        discipline: snapshot.discipline.clone(),
        window: snapshot.window,
        outstanding: snapshot.outstanding,
        waiting: snapshot.waiting,
        moved: moved(&snapshot.moved, &class_name),
        machine_groups: snapshot.groups.iter().map(|known| group(known, &class_name)).collect(),
        classes: snapshot.classes,
        nodes: snapshot.nodes.iter().map(node).collect(),
        divided_pools: snapshot.divided_pools.iter().map(divided_pool).collect(),
        localities: snapshot.localities.iter().map(locality).collect(),
        resources: snapshot.resources.iter().map(resource).collect(),
        rounds: snapshot.rounds.iter().map(|known| rounds(known, &class_name)).collect(),
        priorities: snapshot.priorities.iter().map(|t| Priority { name: t.name.clone(), waiting: t.waiting }).collect(),
        demanded_capacity: snapshot.demanded_capacity,
        usable_capacity: snapshot.usable_capacity,
    }
}

/// Returns a node, without its collector, which the engine does not know.
pub(crate) fn node(node: &engine::NodeSnapshot) -> Node {
    let (state, until) = match node.state {
        engine::NodeState::Up => (NodeState::Up, None),
        engine::NodeState::Down => (NodeState::Down, None),
        engine::NodeState::Draining => (NodeState::Draining, None),
        engine::NodeState::Ejected { until } => (NodeState::Ejected, Some(until.as_secs_f64())),
    };
    Node {
        name: node.name.clone(),
        pool: node.pool.clone(),
        state,
        ejected_until_seconds: until,
        outstanding: node.outstanding,
        served: node.served,
        failed: node.failed,
        share: (node.share < 1.0).then_some(node.share),
        workers: node.workers,
        capacity: node.capacity,
        collector: None,
        load: node.load,
        set: node.set.map(|set| set.as_str().to_owned()),
        // The engine reports 1 for a resource that it does not watch.
        available: match node.available.iter().all(|left| *left >= 1.0) {
            true => BTreeMap::new(),
            false => by_name(&node.available),
        },
    }
}

fn divided_pool(divided: &engine::DividedPoolSnapshot) -> DividedPool {
    let partitions = divided.partitions.iter().map(|partition| Partition {
        set: partition.set.as_str().to_owned(),
        nodes: partition.nodes,
        cpus: partition.cpus,
        load: partition.load,
        demand: partition.demand,
    });
    DividedPool { pool: divided.pool.clone(), moves: divided.moves, partitions: partitions.collect() }
}

fn locality(known: &engine::LocalitySnapshot) -> Locality {
    let engine::LocalitySnapshot { pool, keys, max, hits, moves, new } = known;
    Locality { pool: pool.clone(), keys: *keys, max: *max, hits: *hits, moves: *moves, new: *new }
}

fn resource(resource: &engine::ResourceSnapshot) -> Resource {
    Resource { name: resource.name.clone(), available: resource.available }
}

fn rounds(rounds: &engine::RoundsSnapshot, class_name: impl Fn(engine::ClassId) -> String) -> Rounds {
    let turns = RESOURCE_NAMES.iter().zip(&rounds.turns);
    Rounds {
        pool: rounds.pool.clone(),
        begun: rounds.begun,
        turns: turns.map(|(name, class)| ((*name).to_owned(), class_name(*class))).collect(),
    }
}

/// Returns a class.
pub(crate) fn class(class: &engine::ClassSnapshot) -> Class {
    let by_reason = |counts: [u64; engine::ShedReason::ALL.len()]| {
        let all = engine::ShedReason::ALL.iter().zip(counts);
        all.map(|(reason, count)| (reason.as_str().to_owned(), count)).collect()
    };
    let observes = class.mode != engine::Mode::Enforce || class.would_shed.iter().any(|count| *count > 0);
    Class {
        class: class.class.0,
        name: class.name.clone(),
        key: class.key.as_deref().map(key_text),
        guarantee: guarantee(&class.guarantee),
        part_per_second: class.part,
        offered: class.offered,
        served: class.served,
        failed: class.failed,
        cancelled: class.cancelled,
        shed: by_reason(class.shed),
        enforced_share: class.mode.share(),
        would_shed: if observes { by_reason(class.would_shed) } else { BTreeMap::new() },
        retried: class.retried,
        waiting: class.waiting,
        outstanding: class.outstanding,
        share: class.share,
        unknown_routes: class.unknown,
        used_node_seconds: match class.used.iter().all(|used| *used == 0.0) {
            true => BTreeMap::new(),
            false => by_name(&class.used),
        },
        credit_node_seconds: class.credit.map(|credit| by_name(&credit)).unwrap_or_default(),
        tokens: class.tokens,
        allowance: class.allowance,
        compute_time_seconds: seconds(class.compute_time),
        service_time_seconds: seconds(class.service_time),
        limit_impossible: class.impossible,
        achieved: achieved(&class.achieved),
    }
}

/// Returns a guarantee.
pub(crate) fn guarantee(guarantee: &engine::Guarantee) -> Guarantee {
    let statistic =
        |r: engine::ResponseTime| Statistic { statistic: r.statistic.to_string(), seconds: r.limit.as_secs_f64() };
    Guarantee { throughput_per_second: guarantee.throughput, response_time: guarantee.response_time.map(statistic) }
}

fn achieved(achieved: &engine::Achieved) -> Achieved {
    Achieved {
        window_seconds: achieved.seconds,
        offered_per_second: achieved.offered_per_s,
        served_per_second: achieved.served_per_s,
        shed_per_second: achieved.shed_per_s,
        would_shed_per_second: achieved.would_shed_per_s,
        mean_seconds: seconds(achieved.mean),
        p50_seconds: seconds(achieved.p50),
        p95_seconds: seconds(achieved.p95),
        p99_seconds: seconds(achieved.p99),
        limited: achieved
            .limited
            .map(|(s, value)| Statistic { statistic: s.to_string(), seconds: value.as_secs_f64() }),
        throughput_held: achieved.throughput_held,
        response_time_held: achieved.response_time_held,
    }
}

fn group(group: &engine::MachineGroupSnapshot, class_name: impl Fn(engine::ClassId) -> String) -> MachineGroup {
    MachineGroup {
        resource: group.resource.clone(),
        pools: group.pools.clone(),
        window: group.window,
        outstanding: group.outstanding,
        surplus: group.surplus.map(surplus),
        contention: group.contention.map(contention),
        moved: moved(&group.moved, class_name),
    }
}

fn surplus(surplus: engine::SurplusSnapshot) -> Surplus {
    let engine::SurplusSnapshot { reach, outstanding, stuck, needed, blocked } = surplus;
    Surplus { reach, outstanding, stuck, needed, blocked }
}

fn contention((state, since): (engine::Contention, engine::Time)) -> Contention {
    let state = match state {
        engine::Contention::Unseen => ContentionState::Unseen,
        engine::Contention::Trial => ContentionState::Trial,
        engine::Contention::Seen => ContentionState::Seen,
    };
    Contention { state, since_seconds: since.as_secs_f64() }
}

fn moved(moved: &engine::Moved, class_name: impl Fn(engine::ClassId) -> String) -> Moved {
    Moved { at_seconds: moved.at.as_secs_f64(), from: moved.from, to: moved.to, why: why(moved, class_name) }
}

/// Returns the reason of a move in words: `up 2: class SmallCorp computes in 41 ms, below half of its limit 200 ms`.
pub fn why(moved: &engine::Moved, class_name: impl Fn(engine::ClassId) -> String) -> String {
    let compared = |class, compute, limit, relation| {
        let (name, compute, limit) = (class_name(class), span_text(compute), span_text(limit));
        format!("class {name} computes in {compute}, {relation} half of its limit {limit}")
    };
    let too_much = |class, compute, limit| {
        let (name, compute, limit) = (class_name(class), span_text(compute), span_text(limit));
        format!("class {name} computes in {compute}, too close to its limit {limit}")
    };
    let reason = match moved.why {
        engine::Why::First => return format!("first window: {}", moved.to),
        engine::Why::Nodes { usable, all } => format!("{usable} of {all} nodes are usable"),
        engine::Why::BelowHalf { class, compute, limit } => compared(class, compute, limit, "below"),
        engine::Why::AboveHalf { class, compute, limit } => compared(class, compute, limit, "above"),
        engine::Why::NoLimit => "no class has a response-time limit".to_owned(),
        engine::Why::NotFull => "compute times allow a larger window, but no request waited for it".to_owned(),
        engine::Why::Adopted => "taken over from another process".to_owned(),
        engine::Why::Reconfigured => "set by a new policy".to_owned(),
        engine::Why::Elasticity { elasticity, searching } => {
            // The need of the guarantees may keep a window large, whatever its elasticity.
            let verdict = match moved.to.cmp(&moved.from) {
                Ordering::Greater if searching => "the knee is far off",
                Ordering::Greater if elasticity < 1.0 => "a larger window raises throughput",
                Ordering::Less => "requests wait for one another in flight",
                Ordering::Greater => "the guarantees need this window",
                Ordering::Equal => "the knee is near, or the guarantees need this window",
            };
            format!("times in flight follow the window by {elasticity:.2}: {verdict}")
        }
        engine::Why::Answered => "this many were answered without contention".to_owned(),
        engine::Why::Contention => "from this window on, requests wait for one another in flight".to_owned(),
        engine::Why::Doubted { class, compute, limit } => {
            let in_danger = too_much(class, compute, limit);
            format!("{in_danger}: as a trial, the window also bounds owed requests")
        }
        engine::Why::Gradient { gradient } => format!("long-term over short-term response times give {gradient:.2}"),
        engine::Why::InTime => "answers come in time while the window is in use".to_owned(),
        engine::Why::Late => "an answer was late or a request failed".to_owned(),
        engine::Why::Endangered { class, compute, limit } => {
            let in_danger = too_much(class, compute, limit);
            match moved.to.cmp(&moved.from) {
                Ordering::Less => in_danger,
                _ => format!("{in_danger}, but the guarantees need this window"),
            }
        }
    };
    match (moved.from, moved.to) {
        (from, to) if to > from => format!("up {}: {reason}", to - from),
        (from, to) if to < from => format!("down {}: {reason}", from - to),
        _ => format!("unchanged: {reason}"),
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
