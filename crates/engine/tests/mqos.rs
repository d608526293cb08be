//! mQoS: the strict rule against exact sequences, and its invariants.

#[path = "support/resources.rs"]
mod resources;

use std::collections::BTreeMap;

use resources::{Site, arrival};
use serde_json::Value;
use weirgate_engine::*;

/// Exact sequences: the order of releases, and every counter after each step.
#[test]
fn every_vector_is_met() {
    let vectors: Value = serde_json::from_str(include_str!("vectors/mqos.json")).expect("the vectors are JSON");
    let tolerance = number(&vectors["tolerance"]) / 100.0;
    let scenarios = vectors["scenarios"].as_array().expect("a list");
    assert_eq!(scenarios.len(), 7);
    for scenario in scenarios {
        let name = scenario["name"].as_str().expect("a name");
        let site = Site { weights: numbers(&scenario["quanta"]), resources: 3, nodes: vec![1.0], ..Site::default() };
        let mut engine = site.engine(Discipline::mqos());
        begin(&mut engine, &scenario["initial"], name);
        let mut tickets: BTreeMap<String, Ticket> = BTreeMap::new();
        let mut names: Vec<String> = Vec::new();
        for (number, step) in scenario["steps"].as_array().expect("a list").iter().enumerate() {
            let at = format!("{name}, step {number}");
            match step["op"].as_str().expect("an operation") {
                "arrive" => {
                    let class = step["cls"].as_u64().expect("a class") as u32;
                    let shares: Vec<f64> = numbers(&step["RR"]).iter().map(|share| share / 100.0).collect();
                    names.push(step["id"].as_str().expect("a name").to_owned());
                    let request = arrival(class, Demand::of_shares(&shares), names.len() as u64 - 1);
                    let decision = engine.arrive(Time::ZERO, request);
                    match step["accepted"].as_bool().expect("a truth value") {
                        true => assert!(matches!(decision, Decision::Wait { .. }), "{at}: {decision:?}"),
                        false => assert!(
                            matches!(decision, Decision::Shed(Shed { reason: ShedReason::TooLarge, .. })),
                            "{at}: {decision:?}"
                        ),
                    }
                }
                "dispatch" => {
                    let released = engine.poll(Time::ZERO).map(|action| take(&action, &names, &mut tickets));
                    assert_eq!(released.as_deref(), step["expect"].as_str(), "{at}");
                }
                "drain" => {
                    let all = std::iter::from_fn(|| engine.poll(Time::ZERO));
                    let released: Vec<String> = all.map(|action| take(&action, &names, &mut tickets)).collect();
                    let expected: Vec<&str> =
                        step["expect"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
                    assert_eq!(released, expected, "{at}");
                }
                "response" => {
                    let ticket = tickets[step["id"].as_str().expect("a name")];
                    engine.observe(Time::ZERO, ticket, Outcome::LastByte { status: 200 });
                }
                other => panic!("{at}: {other}"),
            }
            if let Some(after) = step.get("after") {
                compare(&engine, after, tolerance, &at);
            }
        }
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(number).collect()
}

/// Remembers the ticket of a release and returns the request's name.
fn take(action: &Action, names: &[String], tickets: &mut BTreeMap<String, Ticket>) -> String {
    let Action::Release { ticket, token, .. } = action else { panic!("{action:?} is no release") };
    let name = names[*token as usize].clone();
    tickets.insert(name.clone(), *ticket);
    name
}

/// Sets the initial state. Most vectors begin with full counters. One begins where the published rule is
/// stuck. The test reaches that state through releases that are answered at once and change only the credits.
fn begin(engine: &mut Engine, initial: &Value, name: &str) {
    assert_eq!(numbers(&initial["RAC"]), [100.0; 3], "{name}");
    let credits = initial["DC"].as_array().expect("a list");
    // The first class comes last, so that every pointer is at it again.
    for class in (0..3).rev() {
        let quantum = engine.classes(Time::ZERO, ClassId(class as u32), 1)[0].credit.expect("it has credit")[0];
        for (resource, credit) in credits.iter().enumerate() {
            let spent = quantum - numbers(credit)[class] / 100.0;
            assert!(spent >= -1e-12, "{name}: credit is only spent: {spent}");
            if spent < 1e-9 {
                continue;
            }
            let mut shares = [0.0; 3];
            shares[resource] = spent;
            let decision = engine.arrive(Time::ZERO, arrival(class as u32, Demand::of_shares(&shares), 0));
            assert!(matches!(decision, Decision::Wait { .. }));
            let Some(Action::Release { ticket, .. }) = engine.poll(Time::ZERO) else { panic!("{name}: it has credit") };
            engine.observe(Time::ZERO, ticket, Outcome::LastByte { status: 200 });
        }
    }
}

fn compare(engine: &Engine, after: &Value, tolerance: f64, at: &str) {
    let snapshot = engine.snapshot(Time::ZERO);
    for (resource, expected) in snapshot.resources.iter().zip(numbers(&after["RAC"])) {
        assert!((resource.available - expected / 100.0).abs() <= tolerance, "{at}: {resource:?} for {expected}");
    }
    for (resource, expected) in after["DC"].as_array().expect("a list").iter().enumerate() {
        for (class, expected) in numbers(expected).into_iter().enumerate() {
            let credit = engine.classes(Time::ZERO, ClassId(class as u32), 1)[0].credit.expect("it has credit");
            let off = (credit[resource] - expected / 100.0).abs();
            assert!(
                off <= tolerance,
                "{at}: class {class} has {} of resource {resource}, not {expected}",
                credit[resource]
            );
        }
    }
    let turns: Vec<f64> = snapshot.rounds[0].turns.iter().map(|class| f64::from(class.0)).collect();
    assert_eq!(turns, numbers(&after["RRP"]), "{at}: pointers");
    assert_eq!(Some(snapshot.rounds[0].begun), after["rounds"].as_u64(), "{at}: rounds");
}
