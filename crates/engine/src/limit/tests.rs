//! Tests of behaviour that all methods of load control share.

use core::time::Duration;

use super::*;
use crate::discipline::Discipline;
use crate::engine::Engine;
use crate::mode::Mode;
use crate::policy::{Class, Dispatch, Ejection, Node, Pool, QueueBounds, ResponseTime, RetryBudget, Statistic};
use crate::request::{Arrival, Decision, Outcome};

/// A linear window drains the list of classes with traffic at every step. Under other methods nothing may
/// pile up either.
#[test]
fn classes_that_were_seen_do_not_pile_up() {
    let limit = ResponseTime { statistic: Statistic::Average, limit: Duration::from_millis(100) };
    let class = Class {
        name: "A".into(),
        pool: 0,
        guarantee: Guarantee { throughput: Some(10.0), response_time: Some(limit) },
        content: crate::policy::Content::Dynamic,
        service_time: None,
        utility: 1.0,
        weight: 1.0,
        demand: crate::Demand::default(),
        priority: 0,
        fallback: None,
        queue: QueueBounds::default(),
        retry: RetryBudget::default(),
        mode: Mode::default(),
    };
    let node =
        Node { name: "n".into(), machine: "n".into(), pool: 0, weight: 1.0, capacity: None, max_outstanding: None };
    let pool = Pool {
        name: "web".into(),
        dispatch: Dispatch::LeastOutstanding,
        ejection: Ejection::default(),
        slow_start: Duration::ZERO,
    };
    for discipline in [Discipline::weirgate(), Discipline::quorum(), Discipline::none()] {
        let policy = Policy {
            discipline,
            pools: vec![pool.clone()],
            nodes: vec![node.clone()],
            classes: vec![class.clone()],
            templates: Vec::new(),
            max_waiting: 10,
            resources: Vec::new(),
            estimated: false,
        };
        let mut engine = Engine::new(Time::ZERO, policy, 1).expect("a valid policy");
        for second in 0..100 {
            let now = Time::from_millis(second * 1000);
            let arrival =
                Arrival { class: ClassId(0), flow: 0, demand: None, locality_key: None, position: 0, token: second };
            let Decision::Release { ticket, .. } = engine.arrive(now, arrival) else { panic!("it is idle") };
            engine.observe(now + Duration::from_millis(5), ticket, Outcome::LastByte { status: 200 });
            while engine.poll(now + Duration::from_millis(5)).is_some() {}
        }
        let seen = match &engine.limit.method {
            Method::Linear(method) => method.seen(),
            _ => 0,
        };
        assert!(seen <= 2, "{}: {seen}", engine.policy.discipline.name);
    }
}
