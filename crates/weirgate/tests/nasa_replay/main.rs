//! A day of real requests, 500 times as fast, through the gateway and directly. Each gets the same reply
//! both ways, and each reaches the origin exactly once.
//!
//! The log is that of NASA's Kennedy Space Center, 1 August 1995, 30,969 requests in 12 h 52 min. The
//! origin is nginx with files of the logged sizes. It produces the logged statuses: 200 with a file, 304
//! with a file and `If-Modified-Since`, 404 without a file, 302 with a redirect. Every request carries its
//! number, which nginx logs. The logs are compared with the clients' replies.
//!
//! One request asks for `/\yahoo.com`. It reaches the origin as it is.
//!
//! The whole log takes 93 s at this speed, almost all of it waiting, so the whole log is replayed.

mod client;
mod log;
mod origin;
#[path = "../processes/mod.rs"]
mod processes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weirgate_clock::Clock;

use client::{Clients, Reply};
use log::Entry;
use origin::{Line, Origin};
use processes::{Directory, Process, free_address, say};

/// Speed of the replay over that of the log.
const SPEED: u32 = 500;

/// Both replies to one entry.
type Pair = (Result<Reply, String>, Result<Reply, String>);

/// Two classes, so that requests pass the whole engine. Limits and queues are so wide that nothing is shed
/// even if the machine stalls for seconds, because the test is about unchanged passing.
fn policy(listen: SocketAddr, origin: SocketAddr) -> String {
    let queue = "queue: { max_waiting: 50000, max_waiting_per_source: 50000, max_wait: 2min }";
    format!(
        "listen: {listen}\nadmin: off\nupstreams:\n  origin: {{ nodes: [\"{origin}\"] }}\n\
         discipline: {{ quorum: {{ first_window: 200, min_window: 100 }} }}\nclasses:\n  \
         - {{ name: images, match: {{ path_prefix: /images }}, {queue}, \
         guarantee: {{ throughput: 100/s, response_time: {{ p95: 2min }} }} }}\n  \
         - {{ name: other, {queue}, guarantee: {{ throughput: 100/s }} }}\n"
    )
}

/// Sends every entry both ways at its time. Also returns the largest delay.
async fn replay(entries: &Arc<Vec<Entry>>, direct: SocketAddr, gateway: SocketAddr) -> (Vec<Pair>, Duration) {
    let (direct, gateway) = (Arc::new(Clients::new(direct)), Arc::new(Clients::new(gateway)));
    let clock = Clock::start();
    let (mut running, mut late) = (Vec::with_capacity(entries.len()), Duration::ZERO);
    for id in 0..entries.len() {
        let due = entries[id].at / SPEED;
        clock.reach(due).await;
        late = late.max(clock.now() - due);
        let send = |clients: &Arc<Clients>| {
            let (clients, entries) = (clients.clone(), entries.clone());
            tokio::spawn(async move { clients.fetch(id, &entries[id]).await })
        };
        running.push((send(&direct), send(&gateway)));
    }
    let mut pairs = Vec::with_capacity(running.len());
    for (direct, gateway) in running {
        pairs.push((direct.await.expect("a client does not panic"), gateway.await.expect("a client does not panic")));
    }
    (pairs, late)
}

/// Returns the fault of entry `id`, if there is one.
fn fault(entry: &Entry, (direct, gateway): &Pair, at_origin: [Option<&Vec<Line>>; 2]) -> Option<String> {
    let (direct, gateway) = match (direct, gateway) {
        (Ok(direct), Ok(gateway)) => (direct, gateway),
        other => return Some(format!("no reply: {other:?}")),
    };
    if direct.status != entry.status || (entry.status == 200 && entry.method != "HEAD" && direct.bytes != entry.size) {
        return Some(format!("the origin does not answer as logged: {direct:?}"));
    }
    if direct != gateway {
        return Some(format!("directly {direct:?}, through the gateway {gateway:?}"));
    }
    for lines in at_origin {
        let line = Line { method: entry.method.clone(), status: gateway.status, bytes: gateway.bytes };
        if lines.is_none_or(|lines| *lines != [line]) {
            return Some(format!("the origin logged {lines:?}"));
        }
    }
    None
}

#[tokio::test]
async fn a_day_of_requests_passes_unchanged() {
    let Some(entries) = log::load().map(Arc::new) else {
        say("SKIPPED: ../shared/data/nasa_19950801.tsv.gz is not there");
        return;
    };
    let Some(origin) = Origin::start(&entries) else { return };
    let listen = free_address();
    let directory = Directory::new();
    let file = directory.write("policy.yaml", &policy(listen, origin.behind));
    let mut gateway = Process::start(processes::weirgate(&file), &directory, listen);

    let (pairs, late) = replay(&entries, origin.direct, listen).await;

    let stopped = gateway.stop("TERM");
    assert!(stopped.success(), "the gateway ended with {stopped}: {}", gateway.output());
    let (direct, behind) = origin.finish();
    let mut faults = Vec::new();
    for (id, (entry, pair)) in entries.iter().zip(&pairs).enumerate() {
        if let Some(fault) = fault(entry, pair, [direct.get(&id), behind.get(&id)]) {
            faults.push(format!("{id} {} {}: {fault}", entry.method, entry.url));
        }
    }
    let bytes: u64 = pairs.iter().filter_map(|(_, gateway)| gateway.as_ref().ok()).map(|reply| reply.bytes).sum();
    let logged: usize = behind.values().map(Vec::len).sum();
    say(&format!(
        "NASA log at {SPEED}x: {} requests, {bytes} body bytes through the gateway, {logged} reached the origin, \
         {} differ; sent at most {} ms late",
        entries.len(),
        faults.len(),
        late.as_millis()
    ));
    assert_eq!(logged, entries.len(), "requests at the origin");
    assert!(faults.is_empty(), "{} requests differ, the first: {:#?}", faults.len(), &faults[..faults.len().min(10)]);
}
