//! The learned state of a gateway outlives its process: a hand-over, a restart, and the failure of another gateway.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use tempfile::{TempDir, tempdir};
use weirgate_http_client::Address;

use crate::load::Load;
use crate::node::Node;
use crate::process::Process;
use crate::{admin, policy, write};

/// Writes the policy of a gateway that keeps its learned state. `more` are further fields of `learned_state`.
fn keeping(directory: &TempDir, node: &Node, admin: &str, more: &str) -> String {
    let text = policy(node, "127.0.0.1:0", admin);
    write(directory, &format!("{text}learned_state: {{ file: learned.json{more} }}\n"))
}

fn json(api: std::net::SocketAddr, path: &str) -> Value {
    let (status, text) = admin(&Address::Tcp(api.to_string()), path);
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Number of completions that the only class has in its estimates. It depends on the machine: the engine forgets most
/// of them when the times in flight change.
fn completions(learned: &Value) -> f64 {
    learned["classes"][0]["times"]["completions"].as_f64().unwrap_or(0.0)
}

#[test]
fn a_hand_over_passes_on_what_was_learned() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let mut process = Process::serving(&write(&directory, &policy(&node, "127.0.0.1:0", "127.0.0.1:0")));
    let (listen, api) = (process.address("listening on", 1), process.address("admin API on", 1));
    let load = Load::start(listen);
    load.wait_for(100);
    load.stop();
    assert!(completions(&json(api, "/learned")) > 0.0);
    let old = process.hand_over();
    process.line(&format!("took over what process {old} has learned: 1 class, 1 window, 1 node"), 1);
    let learned = json(api, "/learned");
    assert!(completions(&learned) > 0.0, "no request has come to the new process: {learned}");
    assert_eq!(learned["windows"][0]["upstreams"][0], "web");
    process.stop();
}

#[test]
fn a_restart_begins_with_the_file_and_never_fails_because_of_it() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let sound = keeping(&directory, &node, "127.0.0.1:0", "");
    let file = directory.path().join("learned.json");
    let process = Process::serving(&sound);
    let load = Load::start(process.address("listening on", 1));
    load.wait_for(100);
    load.stop();
    process.stop();
    let text = std::fs::read_to_string(&file).expect("it was written at the end");
    let kept = completions(&serde_json::from_str(&text).expect("JSON"));
    assert!(kept > 0.0, "{text}");
    let restarted = |expected: &str, completed: f64| {
        let process = Process::serving(&sound);
        process.line(expected, 1);
        let learned = json(process.address("admin API on", 1), "/learned");
        assert_eq!(completions(&learned), completed, "{expected}: {learned}");
        // Without another stop, the file stays as the test has written it.
        drop(process);
    };
    restarted("s old: took over 1 class, 1 window, 1 node", kept);
    let unix = |ahead: i64| {
        let now = weirgate_clock::calendar().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        format!("\"written_seconds\":{}.0", now.cast_signed() + ahead)
    };
    let dated = |ahead: i64| {
        let at = text.find("\"written_seconds\":").expect("its time");
        let end = at + text[at..].find(',').expect("more fields");
        [&text[..at], &unix(ahead), &text[end..]].concat()
    };
    let garbage: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (content, why) in [
        (dated(3600).into_bytes(), "in the future"),
        (dated(-3600).into_bytes(), "at most 600 s count"),
        (text.as_bytes()[..text.len() / 2].to_vec(), "EOF"),
        (garbage, "is not used"),
        (Vec::new(), "is not used"),
    ] {
        std::fs::write(&file, content).expect("written");
        restarted(why, 0.0);
    }
    let other = text.replace("\"web\"", "\"elsewhere\"");
    std::fs::write(&file, other).expect("written");
    restarted("took over nothing", 0.0);
}

/// Waits until a page of a gateway's admin API is as wanted.
fn until(api: std::net::SocketAddr, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let came = weirgate_clock::becomes_true(Duration::from_secs(60), || {
        last = json(api, path);
        wanted(&last)
    });
    assert!(came, "{path} stays {last}");
    last
}

#[test]
fn a_standby_knows_what_the_active_gateway_has_learned_when_that_is_killed() {
    let node = Node::start();
    let [first, second] = [(); 2].map(|()| tempdir().expect("a directory"));
    let socket = |directory: &TempDir| directory.path().join("admin.sock");
    let follow = |path: &Path| format!(", follow: \"unix:{}\"", path.display());
    // Each follows the other. The active one is not there yet when the standby starts.
    let active = keeping(&first, &node, &format!("\"unix:{}\"", socket(&first).display()), &follow(&socket(&second)));
    let standby = Process::serving(&keeping(&second, &node, "127.0.0.1:0", &follow(&socket(&first))));
    let api = standby.address("admin API on", 1);
    let active = Process::serving(&active);
    let load = Load::start(active.address("listening on", 1));
    standby.line("following the gateway at unix:", 1);
    load.wait_for(100);
    load.stop();
    until(api, "/learned", |learned| completions(learned) > 0.0);
    let ready = until(api, "/ready", |ready| ready["follows"]["age_seconds"].as_f64().is_some());
    assert_eq!(ready["ready"], true, "{ready}");
    let followed = &json(api, "/snapshot")["learned"]["follows"][0];
    assert!(followed["adopted_age_seconds"].is_f64() && followed["error"].is_null(), "{followed}");
    active.signal("KILL", active.current);
    drop(active);
    standby.line("cannot be followed", 1);
    let followed = until(api, "/snapshot", |page| page["learned"]["follows"][0]["error"].is_string());
    let followed = &followed["learned"]["follows"][0];
    assert!(followed["age_seconds"].as_f64().is_some_and(|age| age > 1.0), "{followed}");
    assert!(completions(&json(api, "/learned")) > 0.0, "it keeps what it knows");
    let load = Load::start(standby.address("listening on", 1));
    load.wait_for(20);
    load.stop();
    standby.stop();
    let kept = std::fs::read_to_string(second.path().join("learned.json")).expect("its file");
    assert!(kept.contains("\"other\""), "{kept}");
}
