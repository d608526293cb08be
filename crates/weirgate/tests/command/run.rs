//! Tests of `weirgate run`: its start, signals, its end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Answer, Limits, Request};

use crate::spoken::Process;
use crate::{Scratch, run, weirgate};

/// Limits of a request, far above any actual answer.
const LIMITS: Limits = Limits::new(Duration::from_secs(20), 4 << 20);

fn start(file: &str) -> Process {
    process(&["run", file])
}

/// Starts a gateway. Returns it when it is ready, with its addresses for clients and of the admin API.
pub(crate) fn serving(file: &str) -> (Process, SocketAddr, SocketAddr) {
    let mut process = start(file);
    let (listen, admin) = (process.next_address("listening on"), process.next_address("admin API on"));
    process.next("ready");
    (process, listen, admin)
}

/// Starts the command with these arguments.
pub(crate) fn process(args: &[&str]) -> Process {
    Process::start(weirgate(args))
}

fn policy(node: SocketAddr, rest: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nthreads: 1\nupstreams: {{ web: {{ nodes: [{node}] }} }}\n\
         classes: [{{ name: gold, match: {{ host: gold.test }} }}, {{ name: other }}]\n{rest}"
    )
}

/// Starts a node that answers `ok`. For the path `/slow` it does not answer until the connection ends.
pub(crate) fn node() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    head.push(byte[0]);
                }
                if head.starts_with(b"GET /slow") {
                    let _ = std::io::copy(&mut stream, &mut std::io::sink());
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            });
        }
    });
    address
}

/// Sends a request on its own connection and returns the answer.
pub(crate) fn ask(address: SocketAddr, request: Request) -> Answer {
    exchange(&Address::Tcp(address.to_string()), request, &LIMITS).expect("it answers")
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, Request::get("localhost", path))
}

#[test]
fn it_says_what_it_does_serves_and_ends_on_sigterm() {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", &policy(node(), ""));
    let mut process = start(&file);
    assert!(process.next("version").contains(&file));
    assert_eq!(process.next("discipline"), "weirgate: discipline weirgate: 2 classes over 1 node in 1 upstream");
    let listen = process.next_address("listening on");
    let admin = process.next_address("admin API on");
    process.next("ready");
    assert!(get(listen, "/").text() == "ok");
    assert_eq!(get(admin, "/ready").status, 200);
    process.tell("TERM");
    let (code, rest) = process.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(
        rest.contains("told to stop: accepting no new requests") && rest.ends_with("weirgate: stopped\n"),
        "{rest}"
    );
}

#[test]
fn sighup_swaps_a_sound_policy_and_keeps_the_old_one_otherwise() {
    let scratch = Scratch::new();
    let first = policy(node(), "");
    let file = scratch.write("policy.yaml", &first);
    let (mut process, _, admin) = serving(&file);

    scratch.write("policy.yaml", &first.replace("gold", "silver").replace("threads: 1", "threads: 2"));
    process.tell("HUP");
    assert!(process.next("SIGHUP").contains("is in force: version 2"));
    assert!(process.next("threads").contains("next start"));
    assert!(get(admin, "/policy").text().contains("\"silver\""));

    scratch.write("policy.yaml", "listen: nowhere\n");
    process.tell("HUP");
    process.next(&format!("{file}:1:9: listen"));
    assert!(process.next("SIGHUP").contains("version 2 of"));
    assert!(get(admin, "/policy").text().contains("\"silver\""));

    process.tell("INT");
    let (code, rest) = process.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("told to stop: accepting no new requests"), "{rest}");
}

/// Scripts send SIGHUP as soon as a client can connect, which is before the start has ended.
#[test]
fn a_signal_during_the_start_waits_for_its_end() {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", &policy(node(), ""));
    let mut process = start(&file);
    process.next("version 0.");
    process.tell("HUP");
    process.next("ready");
    process.next("SIGHUP");
    process.tell("TERM");
    assert_eq!(process.end().0, Some(0));
}

#[test]
fn a_second_signal_does_not_wait_for_what_is_inside() {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", &policy(node(), "drain_deadline: 5min\n"));
    let (mut process, listen, admin) = serving(&file);
    let mut slow = TcpStream::connect(listen).expect("it accepts");
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("it reads");
    while !get(admin, "/metrics").text().contains("weirgate_outstanding 1") {
        std::thread::yield_now();
    }
    process.tell("TERM");
    assert!(process.next("told to stop").contains("1 in flight and 0 waiting have 300 s"));
    process.tell("TERM");
    let (code, rest) = process.end();
    assert_eq!(code, Some(1), "{rest}");
    assert!(rest.contains("told to stop again: stopping at once"), "{rest}");
}

#[test]
fn a_drain_over_the_admin_api_ends_it() {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", &policy(node(), ""));
    let (process, _, admin) = serving(&file);
    let order = Request::post("localhost", "/drain", "").field("content-type", "application/json");
    assert_eq!(ask(admin, order).status, 202);
    let (code, rest) = process.end();
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn an_impossible_limit_is_told() {
    let scratch = Scratch::new();
    let guarantee = "guarantee: { throughput: 100/s, response_time: { p95: 1us } }";
    let text = policy(node(), "").replace("{ name: gold,", &format!("{{ name: gold, {guarantee},"));
    let file = scratch.write("policy.yaml", &text);
    let (mut process, listen, _) = serving(&file);
    // No answer over a network takes a microsecond. A whole sample of answers must show it.
    for _ in 0..100 {
        ask(listen, Request::get("gold.test", "/"));
    }
    let told = process.next("impossible");
    assert!(told.starts_with("weirgate: class gold: its limit p95 <= 1µs is impossible: "), "{told}");
}

#[test]
fn the_access_log_is_opened_again_at_sighup() {
    let scratch = Scratch::new();
    let log = scratch.path("access.log");
    let file = scratch.write("policy.yaml", &policy(node(), &format!("access_log: {{ file: {} }}\n", log.display())));
    let (mut process, listen, _) = serving(&file);
    get(listen, "/first");
    let old = scratch.path("access.log.1");
    std::fs::rename(&log, &old).expect("the log is there");
    process.tell("HUP");
    process.next("SIGHUP");
    while !log.exists() {
        std::thread::yield_now();
    }
    get(listen, "/second");
    process.tell("TERM");
    assert_eq!(process.end().0, Some(0));
    let read = |path| std::fs::read_to_string(path).expect("a log");
    assert!(read(&old).contains("/first") && !read(&old).contains("/second"));
    assert!(read(&log).contains("/second"));
}

#[test]
fn a_failed_start_is_reported_with_a_hint() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("an address");
    let sound = policy(taken, "");
    let (listen, admin) = ("listen: 127.0.0.1:0", "admin: 127.0.0.1:0");
    for (text, why) in [
        (sound.replace(admin, "admin: 0.0.0.0:0"), "weirgate pki"),
        (
            sound.replace(admin, "admin: { address: \"127.0.0.1:0\", token_file: /nonexistent/token }"),
            "/nonexistent/token",
        ),
        (sound.replace(listen, "listen: 192.0.2.1:80"), "192.0.2.1:80"),
        (sound.replace("classes", "klasses"), "policy.yaml:"),
        (format!("{sound}access_log: {{ file: /nonexistent/log }}\n"), "access log /nonexistent/log"),
    ] {
        let file = scratch.write("policy.yaml", &text);
        let ended = run(&["run", &file]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
        assert!(ended.err.contains(why), "{why}: {}", ended.err);
    }
    let ended = run(&["run", "/nonexistent/policy.yaml"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("/nonexistent/policy.yaml: cannot be read"), "{}", ended.err);
}

#[test]
fn a_port_in_use_is_reported_with_a_hint() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let sound = policy(node(), "");
    for field in ["listen", "admin"] {
        let text = sound.replace(&format!("{field}: 127.0.0.1:0"), &format!("{field}: {address}"));
        let ended = run(&["run", &scratch.write("policy.yaml", &text)]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains(&address) && ended.err.contains("stop "), "{}", ended.err);
    }
}

#[test]
fn a2_a_token_cannot_be_given_on_the_command_line() {
    for flag in ["--token", "--admin-token"] {
        let ended = run(&["run", "policy.yaml", flag, "9f86d081884c7d659a2feaa0c55ad015"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
    }
}
