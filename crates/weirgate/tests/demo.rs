//! The demo as a process: its output, its exit code, its end.
//!
//! Whether guarantees hold depends on the machine as well. The tests therefore assert that the figures
//! agree with each other and with the exit code, and that control is better than none.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.arg("demo").args(args).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// Runs the demo to its end. Returns its output and its exit code.
fn run(args: &[&str]) -> (String, i32) {
    let output = start(args).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}");
    (text, output.status.code().unwrap())
}

/// Returns the number after `word` in the line that starts with `start`.
fn number(text: &str, start: &str, word: &str) -> u64 {
    let line = text.lines().rfind(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no line {start:?}"));
    let after = line.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {line:?}")).1;
    let digits = after.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("no number after {word:?} in {line:?}"))
}

/// Checks the properties of every complete run, and returns gold's p95 in the costly phase in ms, if it was
/// served at all.
fn check(text: &str, code: i32) -> Option<u64> {
    let held = text.contains("HELD: all");
    assert_eq!(code, i32::from(!held), "the exit code is the verdict");
    assert_eq!(held, !text.lines().any(|line| line.contains('✘')), "and both are the table's");
    assert!(
        text.lines().filter(|line| line.contains("/6 s ")).count() >= 3,
        "a line per second, but for hiccups of the machine"
    );
    for class in ["gold", "silver", "other"] {
        let count = |word| number(text, &format!("{class:<8} asked"), word);
        assert_eq!(count("asked"), count("served") + count("shed") + count("failed"), "{class}");
        assert!(count("asked") > 300, "{class}");
    }
    let costly = text.lines().find(|line| line.starts_with("gold     costly")).unwrap();
    let (_, p95) = costly.split_once("p95")?;
    Some(p95.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn control_keeps_what_no_control_breaks() {
    let (with, code) = run(&["--seconds", "6", "--plain"]);
    let with_control = check(&with, code).expect("gold is served under control");
    let served: u64 =
        ["gold", "silver", "other"].map(|c| number(&with, &format!("{c:<8} asked"), "served")).iter().sum();
    let failed: u64 =
        ["gold", "silver", "other"].map(|c| number(&with, &format!("{c:<8} asked"), "failed")).iter().sum();
    let received = number(&with, "nodes", "received");
    assert!((served..=served + failed).contains(&received), "lost or doubled: {received} for {served} served");

    let (without, code) = run(&["--seconds", "6", "--plain", "--discipline", "none"]);
    let without_control = check(&without, code);
    assert_eq!(code, 1, "twice the capacity without control breaks guarantees on any machine");
    assert!(without_control.is_none_or(|p95| p95 > with_control), "{without_control:?} ms against {with_control} ms");
}

#[test]
fn it_can_be_watched_and_ended_early() {
    let mut demo = start(&["--seconds", "600", "--plain"]);
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let admin = lines.by_ref().find(|line| line.starts_with("Admin")).unwrap();
    let address = admin.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    lines.by_ref().find(|line| line.contains(" 1/600 s ")).unwrap();

    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("weirgate_"), "{page}");

    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.starts_with("Ended early")), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("cut off at the end") || line.contains("failed 0")), "{rest:?}");
    assert_eq!(demo.wait().unwrap().code(), Some(1), "nothing was judged yet");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for args in [["--seconds", "5"], ["--seconds", "4000"], ["--discipline", "magic"]] {
        let status = start(&args).wait().unwrap();
        assert_eq!(status.code(), Some(2), "{args:?}");
    }
}
