//! Tests of behaviour that all methods of load control share.

use core::time::Duration;

use super::*;
use crate::discipline::Discipline;
use crate::engine::Engine;
use crate::policy::{Class, Node, Pool, ResponseTime, Statistic};
use crate::request::{Arrival, Decision, Outcome};

/// A linear window drains the list of classes with traffic at every step. Under other methods nothing may
/// pile up either.
#[test]
fn classes_that_were_seen_do_not_pile_up() {
    let limit = ResponseTime { statistic: Statistic::Average, limit: Duration::from_millis(100) };
    let class = Class {
        guarantee: Guarantee { throughput: Some(10.0), response_time: Some(limit) },
        ..Class::best_effort("A", 0)
    };
    for discipline in [Discipline::weirgate(), Discipline::quorum(), Discipline::none()] {
        let policy = Policy::of_one_pool(discipline, Pool::new("web"), vec![Node::new("n", 0)], vec![class.clone()]);
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
