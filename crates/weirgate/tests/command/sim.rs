//! Tests of `weirgate sim`.

use serde_json::{Value, json};

use crate::{Ended, Scratch, run};

/// Two nodes of two CPUs, 10 ms a request: 400/s. A sends 100/s of its 150/s, B sends `RATE` of its 200/s.
const EXPERIMENT: &str = "\
title: Two classes
policy:
  discipline: quorum
  upstreams:
    web: { nodes: [{ address: n1:80, capacity: 2 }, { address: n2:80, capacity: 2 }] }
  classes:
    - { name: A, service_time: 10ms, guarantee: { throughput: 150/s, response_time: { p95: 400ms } } }
    - { name: B, service_time: 10ms, guarantee: { throughput: 200/s, response_time: { p95: 400ms } } }
machines: { cpus: 2 }
traffic:
  - { class: A, rate: 100/s, demand: 10ms }
  - { class: B, rate: RATE, demand: 10ms }
settle: 2s
phases:
  - { name: first, until: 6s }
  - { name: second, until: 12s }
";

/// Runs the command on the experiment with B's `rate`.
fn sim(rate: &str, args: &[&str]) -> (Ended, Scratch) {
    let scratch = Scratch::new();
    let file = scratch.write("two.yaml", &EXPERIMENT.replace("RATE", rate));
    let mut all = vec!["sim", file.as_str()];
    all.extend_from_slice(args);
    (run(&all), scratch)
}

#[test]
fn a_table_says_what_held() {
    let (ended, _) = sim("120/s", &[]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let has = |text: &str| assert!(ended.out.contains(text), "{text} is not in {}", ended.out);
    has("two: Two classes\n");
    has("\nsecond  6–12 s\n  quorum: utilisation 0.5");
    has("\nquorum, seed 1: HELD: all 8 guarantees\n");
    assert!(!ended.out.contains('✘'), "{}", ended.out);
}

#[test]
fn what_is_missed_is_named_and_ends_with_1() {
    // Without control nearly all requests are in flight at once, and none ends.
    let (ended, _) = sim("1200/s", &["--discipline", "none", "--seeds", "2"]);
    assert_eq!(ended.code, Some(1));
    let has = |text: &str| assert!(ended.out.contains(text), "{text} is not in {}", ended.out);
    has("✘ 2/2");
    has("none, seeds 1–2: BROKEN: ");
    has("  second A: served ");
    has("/s owed (2 seeds, worst ");
}

#[test]
fn one_run_is_an_object_and_several_are_a_list() {
    let (ended, _) = sim("120/s", &["--format", "json", "--seed", "7"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let verdict: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((&verdict["experiment"], &verdict["seed"]), (&json!("two"), &json!(7)));
    assert_eq!((&verdict["verdict"], &verdict["violations"]), (&json!("held"), &json!([])));
    let phase = &verdict["phases"][1];
    assert_eq!((&phase["name"], &phase["from_s"], &phase["to_s"]), (&json!("second"), &json!(6.0), &json!(12.0)));
    let a = &phase["classes"][0];
    assert_eq!((&a["class"], &a["floor"]["guaranteed_per_s"]), (&json!("A"), &json!(150.0)));
    assert!(a["oracle_served_per_s"].is_null());

    let several = ["--format", "json", "--seeds", "2", "--discipline", "none", "--discipline", "quorum"];
    let (ended, _) = sim("120/s", &[&several[..], &["--against", "oracle"]].concat());
    let verdicts: Value = serde_json::from_str(&ended.out).expect("JSON");
    let of: Vec<(&str, u64)> = verdicts
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|v| Some((v["discipline"].as_str()?, v["seed"].as_u64()?)))
        .collect();
    assert_eq!(of, [("none", 1), ("none", 2), ("quorum", 1), ("quorum", 2)]);
    let oracle = &verdicts[0]["phases"][0]["classes"][1]["oracle_served_per_s"];
    assert!(oracle.as_f64().is_some_and(|rate| (100.0..140.0).contains(&rate)), "{oracle}");
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let args = ["--format", "json", "--seeds", "3"];
    assert_eq!(sim("500/s", &args).0.out, sim("500/s", &args).0.out);
}

#[test]
fn a_page_needs_nothing_else_and_goes_to_a_file() {
    let scratch = Scratch::new();
    let file = scratch.write("two.yaml", &EXPERIMENT.replace("RATE", "120/s"));
    let page = scratch.path("page.html");
    let ended = run(&["sim", &file, "--format", "html", "--output", &crate::text_of(&page), "--set", "title=<b>"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    let html = std::fs::read_to_string(page).expect("it was written");
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(
        html.contains("<svg") && html.contains("&lt;b&gt;") && !html.contains("<b>&") && html.contains("quorum: held")
    );
    for outside in ["src=", "href=", "<script", "@import", "url("] {
        assert!(!html.contains(outside), "the page asks for {outside}");
    }
}

#[test]
fn a_figure_is_of_one_run() {
    let (ended, _) = sim("120/s", &["--format", "svg"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.starts_with("<svg") && ended.out.ends_with("</svg>\n"), "{}", ended.out);
    let (ended, _) = sim("120/s", &["--format", "svg", "--discipline", "none", "--discipline", "quorum"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
}

#[test]
fn phases_with_a_place_on_an_axis_are_a_curve_of_all_seeds() {
    let points =
        ["--set", "axis=requests/s", "--set", "phases.first.x=10", "--set", "phases.second.x=20", "--seeds", "2"];
    let (ended, _) = sim("120/s", &points);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let has = |text: &str| assert!(ended.out.contains(text), "{text} is not in {}", ended.out);
    has("\nquorum over requests/s, medians\n  requests/s   A/s");
    has("\n          20  ");
    assert!(!ended.out.contains("6–12 s"), "{}", ended.out);
    let (ended, _) = sim("120/s", &[&points[..], &["--format", "svg"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.out.starts_with("<svg") && ended.out.contains("at 2 points from 10 to 20 requests/s"),
        "{}",
        ended.out
    );
}

#[test]
fn a_set_value_changes_the_experiment() {
    let (ended, _) = sim("120/s", &["--set", "traffic.B.rate=10/s", "--format", "json"]);
    let verdict: Value = serde_json::from_str(&ended.out).expect("JSON");
    let rate = verdict["phases"][1]["classes"][1]["offered_per_s"].as_f64();
    assert!(rate.is_some_and(|rate| rate < 20.0), "{rate:?}");
}

#[test]
fn what_cannot_be_run_is_told_with_its_place_and_ends_with_2() {
    let scratch = Scratch::new();
    let broken = scratch.write("broken.yaml", &EXPERIMENT.replace("RATE", "many").replace("cpus: 2", "cpus: 0"));
    let missing = crate::text_of(&scratch.path("missing.yaml"));
    let ended = run(&["sim", &broken, &missing]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    let has = |text: &str| assert!(ended.err.contains(text), "{text} is not in {}", ended.err);
    has(&format!("{broken}:9:"));
    has(&format!("{broken}:12:"));
    has(&format!("{missing}: cannot be read: No such file"));

    let (ended, _) = sim("120/s", &["--discipline", "qorum"]);
    assert!(ended.code == Some(2) && ended.err.contains("qorum"), "{ended:?}");
    let (ended, _) = sim("120/s", &["--set", "traffic.Z.rate=1/s"]);
    assert!(ended.code == Some(2) && ended.err.contains("traffic.Z"), "{ended:?}");
    let (ended, scratch) = sim("120/s", &["--output", "/dev/null/nowhere"]);
    assert!(ended.code == Some(2) && ended.err.contains("/dev/null/nowhere cannot be written"), "{ended:?}");
    drop(scratch);
    for wrong in [&["--seeds", "0"][..], &["--set", "traffic"], &["--format", "pdf"]] {
        assert_eq!(sim("120/s", wrong).0.code, Some(2), "{wrong:?}");
    }
}
