//! Sites for unit tests.

use std::time::Duration;

use weirgate_config::{ClassSite, ClientTimeouts, Limits, NodeTimeouts, PoolSite, ShedReply, Site};
use weirgate_engine as engine;

/// A site with one class and no nodes, which believes proxies in `nets`.
pub(crate) fn site_trusting(nets: &[&str]) -> Site {
    let second = Duration::from_secs(1);
    Site {
        listeners: Vec::new(),
        trusted_proxies: nets.iter().map(|n| n.parse().expect("a network")).collect(),
        policy: engine::Policy {
            discipline: engine::Discipline::none(),
            pools: vec![engine::Pool {
                name: "web".into(),
                dispatch: engine::Dispatch::LeastOutstanding,
                ejection: engine::Ejection::default(),
            }],
            nodes: Vec::new(),
            classes: vec![engine::Class {
                name: "other".into(),
                pool: 0,
                guarantee: engine::Guarantee::default(),
                service_time: None,
                queue: engine::QueueBounds::default(),
                retry: engine::RetryBudget::default(),
            }],
            templates: Vec::new(),
            max_waiting: 10,
        },
        rules: Vec::new(),
        classes: vec![ClassSite {
            shed: ShedReply { status: 503, content_type: "text/plain".into(), body: "overloaded\n".into() },
            timeouts: NodeTimeouts { connect: second, first_byte: second, body_progress: second, total: second },
        }],
        templates: Vec::new(),
        pools: vec![PoolSite { health: None, idle_connections: 8, idle_timeout: second }],
        nodes: Vec::new(),
        limits: Limits {
            connections: 100,
            head_bytes: 65_536,
            headers: 100,
            body_bytes: None,
            buffer_per_request: 1 << 20,
            buffer_total: 1 << 26,
        },
        timeouts: ClientTimeouts { header: second, idle: second },
        admin: None,
        access_log: None,
        drain_deadline: second,
        threads: Some(1),
    }
}
