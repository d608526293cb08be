//! Tests of the admin JSON.

use std::time::Duration;

use serde_json::json;
use weirgate_engine as engine;

use super::*;
use crate::examples;

fn moved(from: u32, to: u32, why: engine::Why) -> engine::Moved {
    engine::Moved { at: engine::Time::from_millis(1_500), from, to, why }
}

fn name(class: engine::ClassId) -> String {
    ["BigCorp", "SmallCorp"][class.0 as usize].to_owned()
}

#[test]
fn the_reason_of_a_move_is_a_sentence() {
    let (class, compute, limit) = (engine::ClassId(1), Duration::from_micros(41_000), Duration::from_millis(200));
    let said = |from, to, reason| why(&moved(from, to, reason), name);
    assert_eq!(
        said(10, 12, engine::Why::BelowHalf { class, compute, limit }),
        "up 2: class SmallCorp computes in 41 ms, below half of its limit 200 ms"
    );
    assert_eq!(
        said(12, 10, engine::Why::AboveHalf { class, compute: limit, limit }),
        "down 2: class SmallCorp computes in 200 ms, above half of its limit 200 ms"
    );
    assert_eq!(said(0, 10, engine::Why::First), "first window: 10");
    assert_eq!(said(8, 6, engine::Why::Nodes { usable: 3, all: 4 }), "down 2: 3 of 4 nodes are usable");
    assert_eq!(
        said(9, 9, engine::Why::NotFull),
        "unchanged: compute times allow a larger window, but no request waited for it"
    );
    assert_eq!(
        said(9, 12, engine::Why::Contention),
        "up 3: from this window on, requests wait for one another in \
        flight"
    );
}

/// The reason never contradicts the direction in which the window moved.
#[test]
fn the_reason_fits_the_direction() {
    let (class, compute, limit) = (engine::ClassId(1), Duration::from_millis(180), Duration::from_millis(200));
    let said = |from, to, reason| why(&moved(from, to, reason), name);
    let endangered = engine::Why::Endangered { class, compute, limit };
    let danger = "class SmallCorp computes in 180 ms, too close to its limit 200 ms";
    assert_eq!(said(12, 10, endangered), format!("down 2: {danger}"));
    assert_eq!(said(10, 10, endangered), format!("unchanged: {danger}, but the guarantees need this window"));
    let trial = "as a trial, the window also bounds owed requests";
    assert_eq!(said(10, 12, engine::Why::Doubted { class, compute, limit }), format!("up 2: {danger}: {trial}"));
    for (from, to, elasticity, searching, verdict) in [
        (10, 20, 0.1, true, "the knee is far off"),
        (10, 11, 0.4, false, "a larger window raises throughput"),
        (11, 10, 0.9, false, "requests wait for one another in flight"),
        (10, 11, 1.2, false, "the guarantees need this window"),
        (10, 10, 1.2, true, "the knee is near, or the guarantees need this window"),
    ] {
        let text = said(from, to, engine::Why::Elasticity { elasticity, searching });
        assert!(text.ends_with(&format!("follow the window by {elasticity:.2}: {verdict}")), "{text}");
    }
}

#[test]
fn a_snapshot_has_base_units_and_no_nulls() {
    let engine = examples::snapshot();
    let form = whole(&engine, name);
    let shown = serde_json::to_value(&form).unwrap();
    assert_eq!(
        shown,
        json!({
            "now_seconds": 2.25,
            "discipline": "quorum",
            "outstanding": 3,
            "waiting": 1,
            "moved": { "at_seconds": 1.5, "from": 1, "to": 3, "why": "up 2: no class has a response-time limit" },
            "machine_groups": [{
                "pools": ["web"], "window": 12, "outstanding": 3,
                "surplus": { "outstanding": 1, "stuck": 0, "needed": 2.5, "blocked": 0.75 },
                "contention": { "state": "seen", "since_seconds": 1.25 },
                "moved": { "at_seconds": 1.5, "from": 1, "to": 3, "why": "up 2: no class has a response-time limit" },
            }],
            "classes": 2,
            "nodes": [{
                "name": "web1", "pool": "web", "state": "ejected", "ejected_until_seconds": 3.0,
                "outstanding": 3, "served": 100, "failed": 2, "share": 0.5, "workers": 8, "load": 1.5, "set": "top_static",
                "available": { "cpu": 0.25, "disk": 1.0, "bandwidth": 0.5 },
            }],
            "divided_pools": [{
                "pool": "web", "moves": 4,
                "partitions": [{ "set": "top_static", "nodes": 1, "cpus": 2.0, "load": 1.5, "demand": 0.25 }],
            }],
            "localities": [{ "pool": "web", "keys": 7, "max": 10, "hits": 90, "moves": 2, "new": 8 }],
            "priorities": [{ "name": "premium", "waiting": 1 }],
            "resources": [{ "name": "cpu", "available": 0.25 }],
            "rounds": [{
                "pool": "web", "begun": 9, "turns": { "cpu": name(engine::ClassId(0)), "disk": name(engine::ClassId(1)),
                "bandwidth": name(engine::ClassId(0)) },
            }],
            "demanded_capacity": 6.4,
        })
    );
    assert_eq!(serde_json::from_value::<Snapshot>(shown).unwrap(), form);
}

#[test]
fn a_class_shows_every_reason_and_a_harmless_key() {
    let engine = examples::class();
    let form = class(&engine);
    let shown = serde_json::to_value(&form).unwrap();
    assert_eq!(shown["key"], "a\\u{1b}[2J\\n\u{fffd}");
    assert_eq!(shown["guarantee"]["response_time"], json!({ "statistic": "p99.9", "seconds": 0.2 }));
    assert_eq!((&shown["tokens"], shown.get("allowance")), (&json!(0.5), None));
    assert_eq!(shown["compute_time_seconds"], 0.041);
    assert_eq!(shown["limit_impossible"], true);
    assert_eq!(shown.get("service_time_seconds"), None);
    assert_eq!(shown["used_node_seconds"], json!({ "cpu": 1.5, "disk": 0.0, "bandwidth": 0.25 }));
    assert_eq!((&shown["unknown_routes"], shown.get("credit_node_seconds")), (&json!(3), None));
    let reasons: Vec<&str> = form.shed.keys().map(String::as_str).collect();
    assert_eq!(reasons.len(), engine::ShedReason::ALL.len());
    assert_eq!((form.shed["deadline"], form.shed["queue_timeout"], form.shed["nodes_slow"]), (1, 2, 3));
    assert_eq!(serde_json::from_value::<Class>(shown).unwrap(), form);
}
