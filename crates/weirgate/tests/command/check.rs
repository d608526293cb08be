//! Tests of `weirgate check`.

use serde_json::{Value, json};

use crate::{POLICY, Scratch, run, run_with};

#[test]
fn a_sound_policy_is_said_to_be_sound() {
    let scratch = Scratch::new();
    let file = scratch.write("sound.yaml", POLICY);
    let ended = run(&["check", &file]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""));
    assert!(ended.err.ends_with(&format!("{file}: sound\n")), "{}", ended.err);
    assert!(ended.err.contains("pool web: guarantees need at least 0.4 slot-seconds/s"), "{}", ended.err);
}

#[test]
fn every_error_of_every_file_comes_at_once_with_its_place() {
    let scratch = Scratch::new();
    let sound = scratch.write("sound.yaml", POLICY);
    let broken = scratch.write("broken.yaml", &POLICY.replace("800/s", "many").replace("name: other", "nome: other"));
    let missing = format!("{sound}.missing");
    let ended = run(&["check", &sound, &broken, &missing]);
    assert_eq!(ended.code, Some(1));
    let has = |text: &str| assert!(ended.err.contains(text), "{text} is not in {}", ended.err);
    has(&format!("{broken}:6:"));
    has(&format!("{broken}:9:"));
    has(&format!("{missing}: cannot be read: No such file"));
    has(&format!("{sound}: sound"));
}

#[test]
fn programs_get_json() {
    let ended = run_with(&["check", "--format", "json", "-"], &POLICY.replace("800/s", "many"));
    assert_eq!((ended.code, ended.err.as_str()), (Some(1), ""));
    let reports: Value = serde_json::from_str(&ended.out).expect("JSON");
    let report = &reports[0];
    assert_eq!((&report["file"], &report["kind"]), (&json!("<stdin>"), &json!("policy")));
    assert_eq!(&report["sound"], &json!(false));
    assert_eq!(
        (&report["errors"][0]["line"], &report["errors"][0]["field"]),
        (&json!(6), &json!("classes[0].guarantee.throughput"))
    );

    let tight = POLICY.replace("[127.0.0.1:9001, 127.0.0.1:9002]", "[{ address: 127.0.0.1:9001, capacity: 0.2 }]");
    let ended = run_with(&["check", "--format", "json", "-"], &tight);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let reports: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((&reports[0]["sound"], &reports[0]["fits"]), (&json!(true), &json!(false)));
    let overflow = reports[0]["pools"][0]["overflow"][0].as_str().expect("a text");
    assert!(overflow.starts_with("class SmallCorp does not fit"), "{overflow}");
    assert!(reports[0]["warnings"][0]["what"].as_str().is_some_and(|w| w.contains("SmallCorp")), "{reports}");
}

#[test]
fn an_experiment_is_checked_as_one() {
    let experiment = "\
policy:
  upstreams: { web: { nodes: [{ address: web1:80, capacity: 2 }] } }
  classes: [{ name: gold, service_time: 10ms, guarantee: { throughput: 50/s } }]
traffic: [{ class: gold, rate: 40/s, demand: 10ms }]
phases: [{ name: steady, until: 10s }]
";
    let scratch = Scratch::new();
    let sound = scratch.write("sound.yaml", experiment);
    let broken = scratch.write("broken.yaml", &experiment.replace("class: gold", "class: silver"));
    let ended = run(&["check", &sound, &broken]);
    assert_eq!(ended.code, Some(1));
    let has = |text: &str| assert!(ended.err.contains(text), "{text} is not in {}", ended.err);
    has(&format!("{sound}: sound experiment\n"));
    has("pool web: guarantees need 0.5 of 2 slot-seconds/s (25 %): fits");
    has(&format!("{broken}:4:20: traffic[0].class: class `silver`"));
    has(&format!("{broken}: 1 error\n"));

    let ended = run_with(&["check", "--format", "json", "-", &broken], experiment);
    let reports: Value = serde_json::from_str(&ended.out).expect("JSON");
    let of = |n: usize| (&reports[n]["kind"], &reports[n]["sound"]);
    assert_eq!([of(0), of(1)], [(&json!("experiment"), &json!(true)), (&json!("experiment"), &json!(false))]);

    // The path of a policy is relative to the experiment's folder, not to the working directory.
    scratch.write("policy.yaml", POLICY);
    let apart = "policy: policy.yaml\ntraffic: [{ class: other, rate: 1/s, demand: 1ms }]\n\
                 phases: [{ name: steady, until: 10s }]\n";
    let ended = run(&["check", &scratch.write("apart.yaml", apart)]);
    assert!(ended.code == Some(0) && ended.err.contains("apart.yaml: sound experiment"), "{}", ended.err);
}
