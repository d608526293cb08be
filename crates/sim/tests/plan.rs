//! Compares plans with results computed by hand.

use std::path::Path;

use weirgate_experiment::scale::{groups, scale_cluster, scale_guarantees};
use weirgate_experiment::{Experiment, load_experiment};
use weirgate_sim::plan::{Plan, Question, plan};

/// 300 requests a second of 10 ms are the work of three CPUs.
fn one_class(machines: usize) -> Experiment {
    let nodes: String = (1..=machines).map(|n| format!("        - n{n}:80\n")).collect();
    let text = format!(
        "policy:
  upstreams:
    web:
      nodes:
{nodes}  classes:
    - {{ name: A, guarantee: {{ throughput: 300/s, response_time: {{ p95: 200ms }} }}, service_time: 10ms }}
    - {{ name: other }}
traffic:
  - {{ class: A, rate: 300/s, arrivals: even, demand: 10ms }}
phases:
  - {{ name: steady, until: 60s }}
"
    );
    loaded(&text)
}

fn loaded(text: &str) -> Experiment {
    load_experiment("test.yaml", text, Path::new(""), &[]).expect("the file is sound").experiment
}

fn planned(experiment: &Experiment) -> (Plan, usize) {
    let mut steps = 0;
    let question = Question { experiment, seeds: vec![1, 2], machine: None };
    let plan = plan(&question, |_| steps += 1).expect("no violation");
    (plan, steps)
}

#[test]
fn three_cpus_of_work_need_three_to_five_machines() {
    let (from_above, steps) = planned(&one_class(8));
    let needed = from_above.smallest.needed.clone().unwrap();
    assert!(needed.len() == 1 && (3..=5).contains(&needed[0]), "{needed:?}");
    assert_eq!(from_above.smallest.present, Ok(()));
    assert!(from_above.smallest.one_fewer.is_some());
    // Eight CPUs serve at most 800/s of 10 ms, and one request in a hundred may be missing. A run of a minute is long
    // enough that the requests which still wait at its end make no difference.
    let headroom = from_above.headroom;
    assert!((1.6..=2.7).contains(&headroom), "{headroom}");
    assert!(from_above.beyond.is_some() && steps < 16, "{steps} steps");

    let (from_below, _) = planned(&one_class(2));
    assert_eq!(from_below.smallest.needed, Some(needed));
    assert!(from_below.smallest.present.is_err());
    // Two CPUs serve at most 200/s.
    assert!((0.4..=0.68).contains(&from_below.headroom), "{}", from_below.headroom);
}

#[test]
fn a_promise_that_no_cluster_keeps_has_no_plan() {
    let mut experiment = one_class(1);
    let limit = experiment.site.policy.classes[0].guarantee.response_time.as_mut().unwrap();
    limit.limit = std::time::Duration::from_millis(5);
    let (plan, _) = planned(&experiment);
    assert_eq!((plan.smallest.needed, plan.headroom), (None, 0.0));
    assert!(plan.smallest.one_fewer.is_some() && plan.beyond.is_some());
}

const TWO_GROUPS: &str = "
policy:
  upstreams:
    web: { nodes: [a1:80, a2:80, a3:80, a4:80, { address: b1:80, name: b1-web, machine: b1 }] }
    shop: { nodes: [{ address: b1:81, name: b1-shop, machine: b1 }, c1:80] }
  classes:
    - { name: A, upstream: web, guarantee: { throughput: 100/s }, service_time: 10ms }
    - { name: B, upstream: shop }
    - { name: other, upstream: web }
machines:
  - { machine: [a1, a2, a3, a4], cpus: 2 }
  - { machine: [b1, c1], cpus: 4 }
traffic:
  - { class: A, rate: 100/s, demand: 10ms }
  - { class: B, rate: 10/s, demand: 10ms }
phases:
  - { name: steady, until: 20s }
faults:
  - { at: 5s, until: 10s, fault: crash, machines: [a1, b1] }
  - { at: 5s, fault: reload }
";

#[test]
fn clusters_grow_and_shrink_by_group() {
    let experiment = loaded(TWO_GROUPS);
    let groups = groups(&experiment);
    let shown: Vec<(usize, Vec<String>)> = groups.iter().map(|g| (g.machines.len(), g.pools.clone())).collect();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    assert_eq!(shown, [(4, names(&["web"])), (1, names(&["web", "shop"])), (1, names(&["shop"]))]);

    let larger = scale_cluster(&experiment, &[5, 2, 1]);
    assert_eq!((larger.machines.len(), larger.site.policy.nodes.len()), (8, 10));
    larger.site.policy.validate().unwrap();
    let mut unique: Vec<&str> = larger.machines.iter().map(|machine| machine.name.as_str()).collect();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 8);
    for (node, &machine) in larger.site.policy.nodes.iter().zip(&larger.machine_of) {
        assert_eq!(node.machine, larger.machines[machine].name);
    }

    // The faulty machine stays as long as one machine of its group does.
    let smaller = scale_cluster(&experiment, &[1, 1, 1]);
    let left: Vec<&str> = smaller.machines.iter().map(|machine| machine.name.as_str()).collect();
    let struck: Vec<&str> = smaller.faults[0].machines.iter().map(|&machine| left[machine]).collect();
    assert_eq!((left.len(), struck.len(), smaller.faults.len()), (3, 2, 2));
    assert!(struck[0].starts_with("a1") && struck[1].starts_with("b1"), "{struck:?}");
    assert_eq!(smaller.site.policy.nodes.len(), 4);
    let same = scale_cluster(&experiment, &[4, 1, 1]);
    assert_eq!(format!("{same:?}"), format!("{experiment:?}"));
}

#[test]
fn promises_grow_with_the_traffic_that_they_are_about() {
    let experiment = loaded(TWO_GROUPS);
    let grown = scale_guarantees(&experiment, 1.5);
    assert_eq!(grown.site.policy.classes[0].guarantee.throughput, Some(150.0));
    let rate = |index: usize| match &grown.traffic[index].source {
        weirgate_experiment::Source::Open { rate, .. } => rate.at(std::time::Duration::ZERO),
        _ => f64::NAN,
    };
    assert_eq!((rate(0), rate(1)), (150.0, 10.0));
}
