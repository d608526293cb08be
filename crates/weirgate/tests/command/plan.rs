//! Tests of `weirgate plan`.

use serde_json::Value;

use crate::{Ended, Scratch, run};

/// 300/s of 10 ms on one-CPU machines.
const EXPERIMENT: &str = "\
policy:
  upstreams:
    web: { nodes: [NODES] }
  classes:
    - { name: A, service_time: 10ms, guarantee: { throughput: 300/s, response_time: { p95: 200ms } } }
    - { name: other }
traffic:
  - { class: A, rate: 300/s, demand: 10ms }
settle: 2s
phases:
  - { name: steady, until: 12s }
";

fn plan(nodes: &str, args: &[&str]) -> Ended {
    let scratch = Scratch::new();
    let file = scratch.write("shop.yaml", &EXPERIMENT.replace("NODES", nodes));
    run(&[&["plan", file.as_str(), "--seeds", "1"], args].concat())
}

#[test]
fn a_plan_says_what_is_needed_and_what_goes_first() {
    let ended = plan("n1:80, n2:80, n3:80, n4:80, n5:80, n6:80, n7:80, n8:80", &["--discipline", "quorum"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let has = |text: &str| assert!(ended.out.contains(text), "{text} is not in {}", ended.out);
    has("shop under quorum, 1 seed\n  present   8 machines: every guarantee holds\n  needed    ");
    has("\n            with one machine fewer: A ");
    has("\n  headroom  ");
    has("\n            above that: A ");
}

#[test]
fn a_cluster_that_is_too_small_grows() {
    let ended = plan("n1:80, n2:80", &["--format", "json", "--machine", "n2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let plan: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(plan["present"]["machines"], 2);
    assert_eq!(plan["present"]["breaks"]["class"], "A");
    assert!(plan["needed"]["machines"].as_u64().is_some_and(|n| (3..=5).contains(&n)), "{plan}");
    assert_eq!(plan["needed"]["groups"][0]["like"], "n1:80");
    assert!(plan["headroom"]["factor"].as_f64().is_some_and(|factor| (0.3..0.7).contains(&factor)), "{plan}");
}

#[test]
fn what_cannot_be_planned_ends_with_1_and_says_why() {
    let ended = plan("n1:80", &["--machine", "db1"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert_eq!(ended.err, "weirgate: there is no machine `db1`; there is n1:80\n");
    let ended = plan("n1:80", &["--set", "traffic.A.demand=300ms"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.out.contains("needed    16 machines are not enough\n"), "{}", ended.out);
    assert!(ended.out.contains("headroom  none: not even 1/16"), "{}", ended.out);
}
