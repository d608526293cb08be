//! Conformance: raw requests of other projects go through the gateway to a recording node, many at a time,
//! and none desynchronises, smuggles or kills it.
//!
//! Each payload is sent twice from two addresses of its own: alone, and with a marker request behind it in
//! the same write. Two markers on a new connection follow. [`judge`] decides whether it was safe. It compares the
//! requests at the node with those that a strict reading finds in the payload.
//!
//! The same judge checks a proxy with the classic mistakes, to show that it finds them, and nginx and
//! HAProxy, to compare its strictness. They accept more than the gateway by design, such as lines that end
//! in a bare LF, which the gateway refuses.

mod client;
mod judge;
mod message;
mod naive;
mod payloads;
#[path = "../processes/mod.rs"]
mod processes;
mod proxies;
mod reading;
mod recorder;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use client::{Follow, MARKER, Target, exchange};
use payloads::Payload;
use processes::say;
use proxies::Kind;
use recorder::Recorder;

/// Time limit of every step of a peer: ten times the time that a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The same for proxies that are not under test and are known to keep doubtful connections open.
const HASTE: Duration = Duration::from_secs(1);

/// Time for which a connection is watched for an answer that must not come.
const SILENCE: Duration = Duration::from_millis(300);

/// Number of payloads under way at once: many, but few enough for a limit of 1,024 open files.
const AT_ONCE: usize = 100;

/// The files and their numbers of payloads, so that the test notices a changed file.
const FILES: [(&str, usize); 2] = [("garden", 102), ("llhttp", 248)];

/// Requests of our own with one mistake each, which the naive proxy passes on.
const MISTAKES: [(&str, &str); 4] = [
    (
        "length-and-coding",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
    ),
    (
        "chunked-only",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1e\r\nGET /b HTTP/1.1\r\nHost: aaa\r\n\r\n\r\n0\r\n\r\n",
    ),
    ("bare-line-feed", "GET /a HTTP/1.1\nHost: a\n\n"),
    ("two-hosts", "GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
];

/// Returns the address of payload `index` in its first (`pass` 1) or second (2) sending.
fn lane(index: usize, pass: u8) -> Ipv4Addr {
    let [high, low] = u16::try_from(index + 1).expect("few payloads").to_be_bytes();
    Ipv4Addr::new(127, pass, high, low)
}

fn lanes(payloads: usize) -> Vec<Ipv4Addr> {
    (1..=2).flat_map(|pass| (0..payloads).map(move |index| lane(index, pass))).collect()
}

#[derive(Debug, Default)]
struct Outcome {
    faults: Vec<String>,
    /// Number of its requests that the node answered, in both sendings.
    served: usize,
}

/// Sends every payload both ways and returns their outcomes in order.
async fn run(proxy: Target, recorder: &Arc<Recorder>, payloads: &[Payload]) -> Vec<Outcome> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        let (payload, recorder, places) = (payload.clone(), recorder.clone(), places.clone());
        running.push(tokio::spawn(async move {
            let _place = places.acquire().await.expect("nobody closes it");
            let mut outcome = Outcome::default();
            for (pass, follow) in [(1, Follow::WhenIdle), (2, Follow::AtOnce)] {
                let lane = lane(index, pass);
                let seen = exchange(proxy, lane, &payload.bytes, follow).await;
                let markers = exchange(proxy, lane, MARKER, Follow::WhenIdle).await;
                let record = recorder.finish(lane).await;
                let faults = judge::judge(&seen, &markers, &record).into_iter().map(|f| format!("{follow:?}: {f}"));
                outcome.faults.extend(faults);
                outcome.served += seen.answers.iter().filter(|answer| answer.number.is_some()).count();
            }
            outcome
        }));
    }
    let mut all = Vec::new();
    for task in running {
        all.push(task.await.expect("a payload's task does not panic"));
    }
    all
}

/// Prints `name safe/all`, the number of requests served, and, for the gateway, the faults of each unsafe
/// payload.
fn report(kind: Kind, file: &str, payloads: &[Payload], outcomes: &[Outcome]) -> usize {
    let safe = outcomes.iter().filter(|o| o.faults.is_empty()).count();
    let served: usize = outcomes.iter().map(|o| o.served).sum();
    say(&format!("{kind:?}: {file} {safe}/{} safe; {served} requests served", payloads.len()));
    // A proxy that refuses everything is safe and useless.
    assert!(served > payloads.len() / 4, "{kind:?} refuses what is right");
    for (payload, outcome) in payloads.iter().zip(outcomes).filter(|_| kind == Kind::Weirgate) {
        for fault in &outcome.faults {
            println!("  {} {fault}", payload.id);
        }
        if !outcome.faults.is_empty() {
            println!("    sent: {}", payload.bytes.escape_ascii());
        }
    }
    payloads.len() - safe
}

/// Returns the payloads of every file. If they are missing, prints so and returns `None`.
fn corpora() -> Option<Vec<(&'static str, Vec<Payload>)>> {
    let mut all = Vec::new();
    for (name, count) in FILES {
        let Some(payloads) = payloads::load(name) else {
            say(&format!("SKIPPED: ../shared/conformance/{name}.json is not there"));
            return None;
        };
        assert_eq!(payloads.len(), count, "payloads in {name}.json");
        all.push((name, payloads));
    }
    Some(all)
}

/// Sends every file through one process of `kind` and returns the number of unsafe payloads.
async fn through(kind: Kind, corpora: &[(&'static str, Vec<Payload>)]) -> Option<usize> {
    let recorder = Arc::new(Recorder::start().await);
    let payloads: Vec<Payload> = corpora.iter().flat_map(|(_, payloads)| payloads.clone()).collect();
    let mut proxy = proxies::start(kind, &lanes(payloads.len()), recorder.port)?;
    let patience = if kind == Kind::Weirgate { PATIENCE } else { HASTE };
    let outcomes = run(Target { address: proxy.address, patience }, &recorder, &payloads).await;
    let (mut wrong, mut start) = (0, 0);
    for (name, payloads) in corpora {
        wrong += report(kind, name, payloads, &outcomes[start..start + payloads.len()]);
        start += payloads.len();
    }
    assert!(proxy.process.alive(), "{kind:?} died: {}", proxy.process.output());
    let stopped = proxy.process.stop("TERM");
    let graceful = stopped.success() || kind != Kind::Weirgate;
    assert!(graceful, "{kind:?} ended with {stopped}: {}", proxy.process.output());
    Some(wrong)
}

#[tokio::test]
async fn every_payload_is_safe_behind_the_gateway() {
    let Some(corpora) = corpora() else { return };
    assert_eq!(through(Kind::Weirgate, &corpora).await, Some(0), "unsafe payloads, listed above");
}

#[tokio::test]
async fn established_proxies_are_mostly_safe() {
    let Some(corpora) = corpora() else { return };
    for kind in [Kind::Nginx, Kind::Haproxy] {
        if let Some(wrong) = through(kind, &corpora).await {
            let all: usize = FILES.iter().map(|(_, count)| count).sum();
            assert!(wrong * 2 < all, "the judge calls most of {kind:?}'s work unsafe: it is too strict");
        }
    }
}

#[tokio::test]
async fn a_naive_proxy_is_found_unsafe() {
    let recorder = Arc::new(Recorder::start().await);
    let address = naive::start(recorder.port).await;
    let payload = |(id, text): &(&str, &str)| Payload { id: (*id).into(), bytes: text.as_bytes().to_vec() };
    let mut payloads: Vec<Payload> = MISTAKES.iter().map(payload).collect();
    payloads.push(payload(&(
        "plain",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
    )));
    let outcomes = run(Target { address, patience: HASTE }, &recorder, &payloads).await;
    let found: Vec<bool> = outcomes.iter().map(|o| !o.faults.is_empty()).collect();
    assert_eq!(found, [true, true, true, true, false], "every mistake is found, and only mistakes: {outcomes:#?}");
}
