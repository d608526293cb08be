//! Tests of `weirgate replay` and `weirgate policy diff`.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::{Scratch, run, run_with};

const POLICY: &str = "\
listen: 127.0.0.1:8080
upstreams: { web: { nodes: [{ address: 'n1:80', capacity: 2 }] } }
classes:
  - { name: gold, match: { path_prefix: /gold }, guarantee: { throughput: 50/s, response_time: { p95: 300ms } } }
  - { name: members, match: { cookie: plan } }
  - { name: rest }
";

/// Requests of 10 ms: 40 a second of gold, and 100 a second of others, for ten seconds.
fn log() -> String {
    let line = |n: u64, class: &str, path: &str| {
        let (second, ms) = (n / 1000, n % 1000);
        format!(
            "{{\"time\":\"2026-11-26T10:00:{second:02}.{ms:03}Z\",\"class\":\"{class}\",\"ending\":\"served\",\
             \"status\":200,\"method\":\"GET\",\"host\":\"a.test\",\"path\":\"{path}\",\"client\":\"192.0.2.7\",\
             \"scheme\":\"http\",\"node\":\"n1:80\",\"queue_wait_ms\":0.5,\"service_time_ms\":10.0,\
             \"total_ms\":10.6,\"policy_version\":1}}\n"
        )
    };
    let gold = (0..400).map(|n| (n * 25, "gold", "/gold/1"));
    let others = (0..1000).map(|n| (n * 10 + 3, if n % 4 == 0 { "members" } else { "rest" }, "/shop?a=1"));
    let mut all: Vec<_> = gold.chain(others).collect();
    all.sort_unstable();
    all.into_iter().map(|(at, class, path)| line(at, class, path)).collect()
}

#[test]
fn a_log_is_replayed_as_a_table() {
    let scratch = Scratch::new();
    let (policy, log) = (scratch.write("p.yaml", POLICY), scratch.write("a.log", &(log() + "broken\n")));
    let ended = run(&["replay", &log, "--policy", &policy]);
    let has = |text: &str| assert!(ended.out.contains(text), "{text} is not in {}{}", ended.out, ended.err);
    has("1400 requests in ");
    has("1 lines that are no request, the first is ");
    has("a.log:1401: expected value");
    has("2 at once on n1:80, as the policy declares");
    has("400 by the rules, 1000 by the log");
    has("whether 1000 requests are members depends on cookie plan, which is not in the log");
    has("every guarantee holds");
    has("there is no smaller cluster");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
}

#[test]
fn two_policies_are_compared_in_json_and_gzip_is_read() {
    let scratch = Scratch::new();
    let old = scratch.write("old.yaml", POLICY);
    let new = scratch.write("new.yaml", &POLICY.replace("{ name: rest }", "{ name: rest, limit: 30/s }"));
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(log().as_bytes()).expect("it is in memory");
    std::fs::write(scratch.path("a.log.gz"), packed.finish().expect("it is in memory")).expect("it is written");
    let log = scratch.path("a.log.gz").display().to_string();
    let args = ["replay", &log, "--policy", &new, "--against", &old, "--format", "json", "--no-machines"];
    let ended = run(&args);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ended.out).expect("JSON");
    let of = |policy: usize, class: &str| {
        let classes = report["policies"][policy]["outcome"]["classes"].as_array().expect("a list");
        classes.iter().find(|one| one["class"] == class).expect("it has the class").clone()
    };
    assert_eq!((of(0, "rest")["served"].clone(), of(0, "gold")["served"].clone()), (750.into(), 400.into()));
    let shed = of(1, "rest")["shed_by_reason"]["class_rate"].as_u64().expect("a number");
    assert!((400..450).contains(&shed), "75/s for ten seconds, of which 30/s and a burst pass: {shed}");
    assert_eq!(run(&args).out, ended.out, "the seed names the result");
}

#[test]
fn a_part_of_standard_input_is_drawn() {
    let scratch = Scratch::new();
    let (policy, figure) = (scratch.write("p.yaml", POLICY), scratch.path("r.svg").display().to_string());
    let mut args = vec!["replay", "-", "--policy", &policy, "--format", "svg", "--output", &figure];
    args.extend(["--from", "2026-11-26T10:00:02Z", "--to", "2026-11-26T10:00:08Z", "--capacity", "4"]);
    let ended = run_with(&args, &log());
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(0), "", ""));
    let svg = std::fs::read_to_string(&figure).expect("it was written");
    assert!(svg.starts_with("<svg ") && svg.contains("p.yaml</text>"), "{}", &svg[..300.min(svg.len())]);
}

#[test]
fn what_cannot_be_replayed_is_said() {
    let scratch = Scratch::new();
    let policy = scratch.write("p.yaml", POLICY);
    let fails = |args: &[&str], why: &str| {
        let ended = run(&[&["replay", "--policy", &policy], args].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.out);
        assert!(ended.err.contains(why), "{why} is not in {}", ended.err);
    };
    let empty = scratch.write("empty.log", "");
    fails(&[&empty], "there is no request to play in this part of the log");
    let other = scratch.write("nginx.log", "192.0.2.1 - - [26/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n");
    fails(&[&other], "nginx.log:1: this is no access log of Weirgate");
    fails(&["/nowhere/a.log"], "/nowhere/a.log cannot be read");
    let log = scratch.write("a.log", &log());
    fails(&[&log, "--from", "noon"], "write a date and a time, such as 2026-11-20T18:00:00Z");
    fails(&[&log, "--sample", "0"], "write a share, such as 10%");
    fails(&[&log, "--to", "2020-01-01T00:00:00Z"], "there is no request to play");
}

#[test]
fn policies_differ_in_sentences() {
    let scratch = Scratch::new();
    let old = scratch.write("old.yaml", POLICY);
    let same = run(&["policy", "diff", &old, &old]);
    assert_eq!(same.code, Some(0));
    assert!(same.out.contains("are the same policy"), "{}", same.out);
    let new = POLICY.replace("/gold", "/shop").replace("50/s", "60/s");
    let new = scratch.write("new.yaml", &new);
    let ended = run(&["policy", "diff", &old, &new]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(1), ""));
    assert_eq!(
        ended.out,
        "class gold: match was path below /gold and is path below /shop\n\
         class gold: guaranteed throughput was 50/s and is 60/s\n"
    );
    let log = scratch.write("a.log", &log());
    let ended = run(&["policy", "diff", &old, &new, "--log", &log]);
    let has = |text: &str| assert!(ended.out.contains(text), "{text} is not in {}{}", ended.out, ended.err);
    has("of 1400 requests, 1400 (100.0 %) change their class or upstream");
    has("750 from rest to gold");
    has("such as GET a.test/shop?a=1 from 192.0.2.7");
    assert_eq!(ended.code, Some(1));
    let json = run(&["policy", "diff", &old, &new, "--format", "json"]);
    let report: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(report["changes"][1]["new"], "60/s");
    assert_eq!(run(&["policy", "diff", &old, "/nowhere.yaml"]).code, Some(2));
}
