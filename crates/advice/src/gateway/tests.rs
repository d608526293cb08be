//! Tests of proposals from a running gateway.

use serde_json::json;
use weirgate_config::load;

use super::*;

fn class(number: u32, name: &str, key: Option<&str>, offered: u64, p95: f64) -> Class {
    let mut value = json!({
        "class": number, "name": name, "guarantee": {}, "offered": offered, "served": offered, "failed": 0, "cancelled": 0,
        "shed": {}, "retried": 0, "waiting": 0, "outstanding": 0, "share": 0.5, "service_time_seconds": 0.02,
        "achieved": {
            "window_seconds": 10.0, "offered_per_second": 1.0, "served_per_second": 1.0, "shed_per_second": 0.0, "p95_seconds": p95,
        },
    });
    if let Some(key) = key {
        value["key"] = json!(key);
    }
    serde_json::from_value(value).expect("a class")
}

fn policy() -> RunningPolicy {
    let class =
        |name: &str, guarantee: serde_json::Value| json!({ "name": name, "upstream": "web", "guarantee": guarantee });
    let promise = json!({ "throughput_per_second": 5.0 });
    serde_json::from_value(json!({
        "listen": ["127.0.0.1:8080", "127.0.0.1:0"],
        "upstreams": [{ "name": "web", "nodes": [{ "address": "10.0.0.1:80" }] }],
        "classes": [class("gold", promise.clone()), class("paid", promise.clone()), class("rest", json!({}))],
        "templates": [class("tenant", promise)],
        "rules": [
            { "when": "host gold.test and (path below /a or path below /b) and port 8080", "class": "gold" },
            { "when": "header x-plan = …", "class": "paid" },
            { "when": "anything matches", "class": "tenant", "keyed_by": "header x-tenant" },
            { "when": "anything matches", "class": "rest" },
        ],
    }))
    .expect("a policy")
}

#[test]
fn figures_are_those_that_the_gateway_observed() {
    let mut watch = Watch::default();
    // Each window has 400 requests of gold, 40 of each tenant, and some others.
    for n in 0..100u64 {
        let classes = [
            class(0, "gold", None, 400 * n, 0.05),
            class(1, "paid", None, n, 0.05),
            class(2, "tenant", Some("a"), 40 * n, 0.05),
            class(3, "tenant", Some("b"), 40 * n, 0.05),
            class(4, "rest", None, 7 * n, 0.05),
        ];
        watch.look(n as f64 * 10.0, &classes);
    }
    let proposal = watch.propose(&policy(), "127.0.0.1:9900").expect("a proposal");
    let yaml = proposal.yaml();
    let loaded = load("p.yaml", &yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
    let rate = |name: &str| {
        loaded.site.policy.classes.iter().find(|class| class.name == name).and_then(|class| class.guarantee.throughput)
    };
    // 40/s and a fifth, cut to the observed capacity: (40 + 0.1 + 8 + 0.7)/s of 20 ms.
    assert!(rate("gold").is_some_and(|rate| (38.0..=48.0).contains(&rate)), "{yaml}");
    assert_eq!(rate("rest"), None);
    let template = &loaded.site.policy.templates[0].class;
    assert!(
        template.guarantee.throughput.is_some_and(|rate| (3.0..=4.8).contains(&rate)),
        "for each tenant, not for all: {yaml}"
    );
    for part in [
        "match: { host: gold.test, path_prefix: [/a, /b], port: 8080 }",
        "per: { header: x-tenant }",
        "X-Weirgate-Condition-Not-Told: paid",
        "(header x-plan = …)",
        "service_time: 20ms",
        "response_time: { p95: 100ms }",
    ] {
        assert!(yaml.contains(part), "{part:?} is missing:\n{yaml}");
    }
}

#[test]
fn a_gateway_without_requests_or_restarted_is_told() {
    let mut watch = Watch::default();
    watch.look(10.0, &[class(0, "gold", None, 5, 0.0)]);
    watch.look(20.0, &[class(0, "gold", None, 5, 0.0)]);
    // Another process counts from zero.
    watch.look(1.0, &[class(0, "gold", None, 1, 0.0)]);
    assert!(watch.propose(&policy(), "it").unwrap_err().contains("no request in 10 s"));
}

#[test]
fn only_conditions_that_are_told_as_a_whole_are_taken() {
    let listen = ["0.0.0.0:80".to_owned()];
    for (when, wanted) in [
        ("host a.test", Some("{ host: a.test }")),
        ("host *.a.test or host b.test", Some("{ host: [\"*.a.test\", b.test] }")),
        ("method GET and path /x", Some("{ method: GET, path: /x }")),
        ("host a.test or path /x", None),
        ("host a.test and header x", None),
        ("not (host a.test)", None),
        ("port 81", None),
        ("path like /a.*", None),
        ("", None),
    ] {
        assert_eq!(told(when, &listen).as_deref(), wanted, "{when}");
    }
}
