//! Tests of `weirgate sim --swarm`.

use serde_json::Value;

use crate::{Scratch, run};

#[test]
fn a_swarm_is_a_table_with_a_row_per_family() {
    let ended = run(&[
        "sim", "--swarm", "2", "--seed", "54", "--family", "classic", "--discipline", "quorum", "--threads", "1",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let has = |text: &str| assert!(ended.out.contains(text), "{text} is not in {}", ended.out);
    has("discipline quorum: misses per 1,000 runs\n");
    has("\nsurge    ");
    has("\ncostly    ");
    has("\nall    ");
    // Seed 55 is a surge together with expensive requests, in which quorum misses a limit.
    has("repeat the worst: weirgate sim --swarm 1 --seed ");
}

#[test]
fn strict_makes_misses_fail() {
    // Quorum cannot tell waiting for a database from waiting for a CPU.
    let seed = ["--seed", "4", "--discipline", "quorum", "--format", "json"];
    let lenient = run(&[&["sim", "--swarm", "1"], &seed[..]].concat());
    let strict = run(&[&["sim", "--swarm", "1", "--strict"], &seed[..]].concat());
    assert_eq!((lenient.code, strict.code), (Some(0), Some(1)));
    assert_eq!(lenient.out, strict.out);
    let outcome: Value = serde_json::from_str(&lenient.out).expect("JSON");
    assert_eq!((outcome["seed"].as_u64(), outcome["family"].as_str()), (Some(4), Some("io-and-cpu")));
    assert!(outcome["misses"].as_array().is_some_and(|misses| !misses.is_empty()), "{outcome}");
}

#[test]
fn a_scenario_is_a_file_that_sim_plays() {
    let printed = run(&["sim", "--swarm-file", "1"]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let scratch = Scratch::new();
    let file = scratch.write("one.yaml", &printed.out);
    let played = run(&["sim", &file, "--format", "json"]);
    let verdict: Value = serde_json::from_str(&played.out).expect("JSON");
    assert_eq!(verdict["experiment"], "swarm-1");
}

#[test]
fn wrong_words_end_with_2() {
    for args in [
        &["sim", "--swarm", "0"][..],
        &["sim", "--swarm", "1", "x.yaml"],
        &["sim", "--swarm", "1", "--discipline", "quorun"],
        &["sim", "x.yaml", "--strict"],
    ] {
        let ended = run(args);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(!ended.err.is_empty(), "{args:?}");
    }
}
