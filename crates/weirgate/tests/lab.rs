//! The lab as its users see it: the real command, real sockets, a peer.
//!
//! The test plays Figure 9 of the paper in ten seconds. It asserts nothing that depends on the machine's
//! speed. It asserts that every request is accounted for, that both gateways saw the same traffic, and a
//! minimum difference between them.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

/// Allows one trial at a time, because two would disturb each other's measurements.
static TRIAL: Mutex<()> = Mutex::new(());

/// Returns a folder that is removed when the value is dropped, even after a panic. Real services may enter it, because
/// they give up their rights as root.
fn folder() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().expect("a directory")
}

fn weirgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weirgate")).args(arguments).output().expect("it starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn experiment() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/quorum-fig9.yaml").display().to_string()
}

/// A tenth of the figure's rates with requests ten times as long, and a twentieth of its length. The cluster is as
/// busy, and gateway, nodes and load generator are not, so a machine with other work can play it.
const SHORT: [&str; 20] = [
    "--compress",
    "20",
    "--set",
    "settle=500ms",
    "--set",
    "traffic.A.rate=[60/s, { at: 120s, rate: 240/s }, { at: 180s, rate: 60/s }]",
    "--set",
    "traffic.A.demand=85.7ms",
    "--set",
    "traffic.B.rate=50/s",
    "--set",
    "traffic.B.demand=85.7ms",
    "--set",
    "policy.classes.A.service_time=85.7ms",
    "--set",
    "policy.classes.B.service_time=85.7ms",
    "--set",
    "policy.classes.A.guarantee={ throughput: 90/s, response_time: { p95: 400ms } }",
    "--set",
    "policy.classes.B.guarantee={ throughput: 90/s, response_time: { p95: 400ms } }",
];

#[test]
fn fig_9_on_real_processes_beside_haproxy() {
    let _alone = TRIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let output = folder.path().display().to_string();
    let approaches = ["--approach", "weirgate", "--approach", "haproxy-leastconn"];
    let file = experiment();
    let run = [&["lab", "run", &file, "--output", &output], &SHORT[..], &approaches[..]].concat();
    let played = weirgate(&run);
    assert!(matches!(played.status.code(), Some(0 | 1)), "{}", text(&played));

    let directory = folder.path().join("quorum-fig9");
    let json = std::fs::read_to_string(directory.join("run.json")).expect("it was written");
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    let trials = json["trials"].as_array().expect("a list");
    assert_eq!(trials.len(), 2, "{}", text(&played));
    for trial in trials {
        let evidence = &trial["evidence"];
        for what in ["lost", "doubled", "phantom"] {
            assert_eq!(evidence[what]["count"], 0, "{what}: {evidence}");
        }
        assert_eq!(evidence["sent"], trials[0]["evidence"]["sent"], "the same traffic");
    }
    // A surges to four times its rate. Under Weirgate B is not affected, behind least connections it waits with A.
    let p95 = |trial: usize| {
        let surge = &trials[trial]["verdict"]["phases"][1]["classes"][1];
        assert_eq!(surge["class"], "B");
        surge["ceiling"]["value_ms"].as_f64().expect("B was served")
    };
    assert!(p95(0) < p95(1) / 2.0, "{} and {} ms", p95(0), p95(1));

    for file in ["index.html", "latency.csv", "experiment.yaml", "config/weirgate/policy.yaml"] {
        assert!(directory.join(file).exists(), "{file}");
    }
    let directory = directory.display().to_string();
    let again = weirgate(&["lab", "report", &directory]);
    assert!(again.stdout == played.stdout, "a report is the same when it is made again");
    let same = weirgate(&["lab", "compare", &directory, &directory]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same));

    let simulated = folder.path().join("sim.json").display().to_string();
    let sim = [&["sim", &file, "--format", "json", "--output", &simulated], &SHORT[..]].concat();
    assert_eq!(weirgate(&sim).status.code(), Some(0));
    let compared = weirgate(&["lab", "compare", &simulated, &directory]);
    assert!(matches!(compared.status.code(), Some(0 | 1)), "{}", text(&compared));
    assert!(text(&compared).contains("surge"), "{}", text(&compared));

    let refused = weirgate(&run);
    assert_eq!(refused.status.code(), Some(2), "a run is never overwritten");
    assert!(text(&refused).contains("already has a run"), "{}", text(&refused));
}

/// Four real Apache servers with PHP: a class that surges, and then costs five times as much, does not affect the
/// other class as it does behind HAProxy `leastconn`.
///
/// Whether every guarantee held depends on the machine: seconds without a CPU break any guarantee in so short a run.
/// The test therefore compares two figures of one run.
#[test]
fn a_class_on_real_servers_is_protected_from_another() {
    let _alone = TRIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let output = folder.path().display().to_string();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/real-servers.yaml").display().to_string();
    let short = ["--set", "settle=500ms", "--compress", "10"];
    let approaches = ["--approach", "weirgate", "--approach", "haproxy-leastconn"];
    let played = weirgate(&[&["lab", "run", &file, "--output", &output], &short[..], &approaches[..]].concat());
    if played.status.code() == Some(2) && text(&played).contains("not installed") {
        let reason = text(&played).trim_end().replace('\n', " ");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
        return;
    }
    assert!(matches!(played.status.code(), Some(0 | 1)), "{}", text(&played));
    let json = std::fs::read_to_string(folder.path().join("real-servers/run.json")).expect("it was written");
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    let trials = json["trials"].as_array().expect("a list");
    assert_eq!(trials.len(), 2, "{}", text(&played));
    for trial in trials {
        for what in ["lost", "doubled", "phantom"] {
            assert_eq!(trial["evidence"][what]["count"], 0, "{what}: {}", trial["evidence"]);
        }
    }
    // A's response time while B's requests are expensive. Behind HAProxy A waits with B.
    let p95 = |trial: usize| {
        let expensive = &trials[trial]["verdict"]["phases"][2]["classes"][0];
        assert_eq!(expensive["class"], "A");
        expensive["ceiling"]["value_ms"].as_f64()
    };
    let (weirgate, haproxy) = (p95(0).expect("A is served"), p95(1).unwrap_or(f64::INFINITY));
    assert!(weirgate < haproxy / 2.0, "{weirgate} and {haproxy} ms\n{}", text(&played));
}

/// The policy is replaced in the middle of a run. Weirgate plays it. A peer names the place in the file
/// that requires it.
#[test]
fn another_policy_is_loaded_in_the_middle() {
    let _alone = TRIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let output = folder.path().display().to_string();
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/other-promises.yaml").display().to_string();
    let short = ["--set", "settle=500ms", "--compress", "20"];
    let approaches = ["--approach", "weirgate", "--approach", "haproxy-leastconn"];
    let played = weirgate(&[&["lab", "run", &file, "--output", &output], &short[..], &approaches[..]].concat());
    let directory = folder.path().join("other-promises");
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect("it was written");
    let json: Value = serde_json::from_str(&read("run.json")).expect("it is JSON");
    let trials = json["trials"].as_array().expect("a list");
    assert_eq!(trials.len(), 1, "{}", text(&played));
    for what in ["lost", "doubled", "phantom"] {
        assert_eq!(trials[0]["evidence"][what]["count"], 0, "{what}");
    }
    let promised = |phase: usize| {
        let classes = trials[0]["verdict"]["phases"][phase]["classes"].as_array().expect("a list");
        classes.iter().map(|class| class["floor"]["guaranteed_per_s"].as_f64().expect("a floor")).collect::<Vec<_>>()
    };
    assert_eq!((promised(0), promised(1)), (vec![300.0, 100.0], vec![150.0, 250.0]));
    // The file that the gateway reads at the end is the second one.
    assert_eq!(read("config/weirgate/policy.yaml"), read("config/weirgate/policy-2.yaml"));
    assert_ne!(read("config/weirgate/policy-1.yaml"), read("config/weirgate/policy-2.yaml"));
    let note = json["notes"][0].as_str().expect("the peer was not played");
    assert!(note.contains("other-promises.yaml:21:") && note.contains("another policy is loaded at 3 s"), "{note}");
}

#[test]
fn what_cannot_be_played_is_said_before_anything_starts() {
    for (arguments, words) in [
        (&["--approach", "haproxi"][..], "there is no approach `haproxi`"),
        (&["--approach", "haproxy-tuned:maxcon=4"], "there is no knob `maxcon`"),
        (&["--compress", "1000"], "compress less"),
        (&["--set", "traffic.Z.rate=1/s"], "no item of the list is `Z`"),
    ] {
        let output = weirgate(&[&["lab", "run", experiment().as_str(), "--output", "/nowhere"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn cluster_reserves_survive_kills_of_everybody_on_real_control_groups() {
    let folder = folder();
    let output = folder.path().display().to_string();
    let kills = ["lab", "cluster-reserves", "--scenario", "kills", "--kills", "4", "--output", &output];
    let played = weirgate(&kills);
    let refused = ["cannot be made", "no cgroup", "cpu controller"].iter().any(|why| text(&played).contains(why));
    if played.status.code() == Some(2) && refused {
        // Unlike `println!`, this passes the output capture of the test runner.
        let reason = text(&played).trim_end().replace('\n', " ");
        let _ = writeln!(std::io::stderr(), "SKIPPED: no control groups here: {reason}");
        return;
    }
    assert!(matches!(played.status.code(), Some(0 | 1)), "{}", text(&played));
    let json = std::fs::read_to_string(folder.path().join("kills.json")).expect("it was written");
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    let found = json["kills"].as_array().expect("a list");
    assert_eq!(found.len(), 4);
    // The recovery time depends on the machine. That it recovered, and the shares that were kept, do not.
    assert!(found.iter().all(|kill| kill["kept"] == true && kill["recovered"].is_number()), "{json}");
    assert!(json["largest_sum"].as_f64().is_some_and(|sum| sum < 100.1), "{json}");
    assert_eq!(json["left"], Value::Array(Vec::new()), "{}", text(&played));
}

#[test]
fn table_1_is_the_papers() {
    let printed = weirgate(&["lab", "cluster-reserves-table1"]);
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed));
    assert_eq!(text(&printed).matches('✔').count(), 14, "seven calls are printed, of two nodes each");
}
