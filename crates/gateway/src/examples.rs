//! Snapshots with every field set, for tests.

use std::time::Duration;

use weirgate_engine::{
    Achieved, ClassId, ClassSnapshot, Contention, DividedPoolSnapshot, Guarantee, LocalitySnapshot,
    MachineGroupSnapshot, Mode, Moved, NodeId, NodeSnapshot, NodeState, PartitionSnapshot, PrioritySnapshot,
    ResourceSnapshot, ResponseTime, RoundsSnapshot, ServiceSet, Snapshot, Statistic, SurplusSnapshot, Time, Why,
};

/// Returns an engine with one node.
pub(crate) fn snapshot() -> Snapshot {
    let moved = Moved { at: Time::from_millis(1_500), from: 1, to: 3, why: Why::NoLimit };
    Snapshot {
        now: Time::from_millis(2_250),
        discipline: "quorum".into(),
        window: None,
        outstanding: 3,
        waiting: 1,
        moved,
        groups: vec![MachineGroupSnapshot {
            resource: None,
            pools: vec!["web".into()],
            window: Some(12),
            outstanding: 3,
            surplus: Some(SurplusSnapshot { reach: None, outstanding: 1, stuck: 0, needed: 2.5, blocked: 0.75 }),
            contention: Some((Contention::Seen, Time::from_millis(1_250))),
            moved,
        }],
        classes: 2,
        nodes: vec![NodeSnapshot {
            node: NodeId(0),
            name: "web1".into(),
            pool: "web".into(),
            outstanding: 3,
            served: 100,
            failed: 2,
            state: NodeState::Ejected { until: Time::from_millis(3_000) },
            share: 0.5,
            workers: Some(8),
            room: true,
            group: 0,
            capacity: None,
            load: 1.5,
            set: Some(ServiceSet::TopStatic),
            available: [0.25, 1.0, 0.5, 1.0],
        }],
        divided_pools: vec![DividedPoolSnapshot {
            pool: "web".into(),
            moves: 4,
            partitions: vec![PartitionSnapshot {
                set: ServiceSet::TopStatic,
                nodes: 1,
                cpus: 2.0,
                load: 1.5,
                demand: 0.25,
            }],
        }],
        localities: vec![LocalitySnapshot { pool: "web".into(), keys: 7, max: 10, hits: 90, moves: 2, new: 8 }],
        priorities: vec![PrioritySnapshot { name: "premium".into(), waiting: 1 }],
        resources: vec![ResourceSnapshot { name: "cpu".into(), available: 0.25 }],
        rounds: vec![RoundsSnapshot { pool: "web".into(), begun: 9, turns: vec![ClassId(0), ClassId(1), ClassId(0)] }],
        demanded_capacity: Some(6.4),
        usable_capacity: None,
    }
}

/// Returns a class with a key that is not harmless.
pub(crate) fn class() -> ClassSnapshot {
    ClassSnapshot {
        class: ClassId(7),
        name: "tenant".into(),
        key: Some(b"a\x1b[2J\n\xff".to_vec()),
        guarantee: Guarantee {
            throughput: Some(50.0),
            response_time: Some(ResponseTime {
                statistic: Statistic::Percentile(99.9),
                limit: Duration::from_millis(200),
            }),
        },
        part: None,
        offered: 10,
        served: 7,
        failed: 1,
        cancelled: 0,
        shed: [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0],
        mode: Mode::Enforce,
        would_shed: [0; 13],
        retried: 1,
        unknown: 3,
        used: [1.5, 0.0, 0.25, 0.0],
        credit: None,
        tokens: Some(0.5),
        allowance: None,
        waiting: 0,
        outstanding: 1,
        share: 0.25,
        compute_time: Some(Duration::from_millis(41)),
        service_time: None,
        impossible: true,
        achieved: Achieved::default(),
    }
}
