//! Tests of the alert rules and of the dashboard: the gateway has every metric that they name.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Start, node};

fn packaging(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Names of metrics in `text`. Those of recording rules have a colon.
fn named(text: &str) -> BTreeSet<&str> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let names = text.split(|c| !in_name(c)).filter(|name| name.starts_with("weirgate_"));
    names.filter(|name| !name.contains(':')).collect()
}

/// Names of the series that `page` describes, also of those without a value at present.
fn described(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .flat_map(|(name, kind)| {
            let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
        })
        .collect()
}

#[test]
fn the_gateway_has_every_metric_of_the_rules_and_of_the_dashboard() {
    let running = Start::default().before(node());
    // Sources of nodes are described only if there is one.
    let text = std::fs::read_to_string(&running.file).expect("the policy");
    let text = text.replacen("upstreams: {", "upstreams: { found: { discover: { file: nodes.json } },", 1);
    let text = text.replace("{ name: other }", "{ name: other, upstream: found }");
    let text = text.replace("{ name: gold,", "{ name: gold, upstream: web,");
    std::fs::write(&running.file, text).expect("written");
    let reloaded = running.post("/reload", &[]);
    assert_eq!(reloaded.status, 200, "{}", reloaded.body);
    let described = described(&running.get("/metrics").body);
    for file in ["prometheus/alerts.yaml", "prometheus/alerts_test.yaml", "grafana/weirgate.json"] {
        let text = packaging(file);
        let names = named(&text);
        assert!(names.len() > 4, "{file}: {names:?}");
        for name in names {
            assert!(described.contains(name), "{file} names {name}, which the gateway does not have");
        }
    }
}

#[test]
fn the_dashboard_is_whole() {
    let dashboard: serde_json::Value = serde_json::from_str(&packaging("grafana/weirgate.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let expressions = panel["targets"].as_array().expect("targets").iter();
        for expression in expressions.map(|target| target["expr"].as_str().expect("a query")) {
            assert!(expression.contains("job=~\"$job\", instance=~\"$instance\""), "{expression} ignores the choice");
        }
    }
}
