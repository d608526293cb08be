//! Tests of page tables that are learned in virtual time, against the true demands of the experiments'
//! requests.

use std::path::Path;

use weirgate_experiment::IdleMeter;
use weirgate_pages::Shares;

use super::*;
use crate::driver::Driver;

fn experiment(name: &str, changes: &[&str]) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/{name}.yaml"));
    let changes: Vec<_> = changes.iter().map(|text| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))).collect();
    weirgate_experiment::load_experiment_file(&path, &changes).unwrap_or_else(|errors| panic!("{errors}")).experiment
}

/// Cost per kind of page (math, album, formula) by the table after the first `phases`.
fn costs(changes: &[&str], phases: usize) -> [Shares; 3] {
    let mut experiment = experiment("mqos-learned", changes);
    experiment.phases.truncate(phases);
    let mut driver = Driver::new(&experiment, 1, IdleMeter::new(&experiment)).expect("it is sound");
    driver.go(|_| ());
    std::array::from_fn(|stream| driver.table.cost_of(stream as u32).expect("its route is known").shares())
}

#[track_caller]
fn near(found: [Shares; 3], math: f64, band: f64) {
    let actual = [[math, 0.002, 0.002], [0.002, 0.006, 0.002], [0.002, 0.002, 0.006]];
    for (found, actual) in found.iter().flatten().zip(actual.iter().flatten()) {
        assert!((found / actual - 1.0).abs() < band, "{found} is not {actual}");
    }
}

#[test]
fn a_page_that_gets_three_times_dearer_is_known_after_a_minute() {
    near(costs(&[], 1), 0.006, 0.15);
    near(costs(&[], 2), 0.018, 0.2);
    near(costs(&["policy.page_table.learned=false"], 2), 0.006, 1e-6);
}

#[test]
fn a_table_is_learned_from_nothing() {
    near(costs(&["policy.page_table=learned"], 1), 0.006, 0.3);
}

/// Costs learned on `nodes` nodes that are always full, with the experiment `mqos-utilisation` and a
/// learned table. From 120 s on the requests of one kind of page have another demand. Returns the table a
/// minute later, by stream.
fn full(nodes: usize, kind: usize, before: &str, after: &str) -> [Shares; 3] {
    let demand = format!("[{{ {before} }}, {{ at: 120s, demand: {{ {after} }} }}]");
    let names: Vec<String> = (0..nodes).map(|node| format!("s{node}:80")).collect();
    let mut changes: Vec<String> =
        (0..3).map(|class| format!("traffic.{}.demand={demand}", 3 * class + kind)).collect();
    changes.push(format!("policy.upstreams.web.nodes=[{}]", names.join(", ")));
    changes.push("policy.page_table.learned=true".into());
    changes.push("policy.discipline={ mqos: { horizon: 200ms } }".into());
    changes.push("phases.heavy.until=180s".into());
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let experiment = experiment("mqos-utilisation", &changes);
    let mut driver = Driver::new(&experiment, 1, IdleMeter::new(&experiment)).expect("it is sound");
    driver.go(|_| ());
    std::array::from_fn(|stream| driver.table.cost_of(stream as u32).expect("its route is known").shares())
}

const LONG: &str = "lognormal: { median: 5.88ms, sigma: 0.2, max: 60ms }";
const LONGER: &str = "lognormal: { median: 17.64ms, sigma: 0.2, max: 180ms }";

#[test]
fn a_page_that_gets_three_times_dearer_on_full_nodes_is_known_after_a_minute() {
    for nodes in [1, 4] {
        let math = |cpu: &str| format!("cpu: {{ {cpu} }}, disk: 2ms, link: 2ms");
        near(full(nodes, 0, &math(LONG), &math(LONG)), 0.006, 0.05);
        let found = full(nodes, 0, &math(LONG), &math(LONGER));
        assert!((found[0][0] / 0.018 - 1.0).abs() < 0.25, "the busiest page, {nodes} nodes: {found:.4?}");
        let formula = |cpu: &str| format!("cpu: {cpu}, disk: 2ms, link: {{ {LONG} }}");
        let found = full(nodes, 2, &formula("2ms"), &formula("6ms"));
        assert!((found[2][0] / 0.006 - 1.0).abs() < 0.25, "another page, {nodes} nodes: {found:.4?}");
        assert!((found[0][0] / 0.006 - 1.0).abs() < 0.1, "which is not the busiest, {nodes} nodes: {found:.4?}");
    }
}
