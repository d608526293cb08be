//! The behaviour of clients: ids, answers, patience, retries, users, ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};

use weirgate_emulator::{Health, NodeSpec, clock};
use weirgate_experiment::{Fate, Record};
use weirgate_lab::load::{Answer, Ended, Id, Template};

use super::{MS, check, experiment, node, play, start, until};

fn fates(records: &[Record]) -> BTreeMap<Fate, usize> {
    records.iter().fold(BTreeMap::new(), |mut all, record| {
        *all.entry(record.fate).or_default() += 1;
        all
    })
}

#[test]
fn every_request_is_answered_once_and_the_node_knows_them_all() {
    let experiment = experiment(
        "  - { class: A, rate: 1500/s, demand: { exponential: 1ms } }\n  \
           - { class: B, rate: 500/s, demand: { cpu: 500us, io: { exponential: 5ms } } }",
        1000,
    );
    let cluster = node(NodeSpec::new("a", 8));
    let sent = play(&experiment, &cluster);
    check(&sent);
    assert_eq!(sent.ended, Ended::Schedule);
    assert_eq!(fates(&sent.records).keys().collect::<Vec<_>>(), [&Fate::Served]);
    // Each request was in flight for at least its demand, less the rounding to microseconds.
    let in_flight = |r: &Record| (r.ended - r.released + MS / 100) as f64 / 1e9 >= f64::from(r.cpu) + r.beside_cpu();
    assert!(sent.records.iter().all(|r| r.released >= r.arrived && in_flight(r)));

    let stats = &cluster.stats().unwrap()[0];
    let logged: BTreeSet<Id> = stats.ids.received.iter().map(|id| id.parse().unwrap()).collect();
    assert_eq!(logged, sent.ids.iter().copied().collect());
    assert_eq!((stats.requests, stats.ids.received.len()), (sent.ids.len() as u64, logged.len()));

    // The demand in the records is the work that the node has done, to the microsecond of each request.
    let asked: f64 = sent.records.iter().map(|r| f64::from(r.cpu)).sum();
    let rounding = sent.records.len() as f64 * 0.5e-6 + asked * 1e-3;
    assert!((asked - stats.busy.as_secs_f64()).abs() < rounding, "{asked} s asked, {:?} done", stats.busy);
    // No request is faster than its demand.
    let min = |r: &Record| (f64::from(r.cpu + r.io) * 1e9) as u64;
    assert!(sent.records.iter().all(|r| r.ended - r.arrived + MS / 100 >= min(r)));

    for (traffic, class) in sent.traffic.iter().zip(&sent.histograms) {
        let count: u64 = traffic.answers.values().sum();
        assert_eq!(traffic.answers.keys().collect::<Vec<_>>(), [&Answer::Node(200)]);
        assert_eq!(class[0].len(), count);
    }
}

#[test]
fn what_comes_back_is_told_apart() {
    let experiment = experiment("  - { class: A, rate: 100/s, demand: 1us }", 200);
    for (health, fate, answer) in [
        (Health { crashed: true, ..Health::WELL }, Fate::Failed, Answer::NoConnection),
        (Health { fails: 1.0, ..Health::WELL }, Fate::Failed, Answer::Node(500)),
        (Health { garbles: true, ..Health::WELL }, Fate::Failed, Answer::Garbled),
    ] {
        let cluster = node(NodeSpec::new("a", 1));
        cluster.set_health(0, health.clone()).unwrap();
        let sent = play(&experiment, &cluster);
        check(&sent);
        assert_eq!(fates(&sent.records), BTreeMap::from([(fate, sent.records.len())]), "{health:?}");
        assert_eq!(sent.traffic[0].answers, BTreeMap::from([(answer, sent.records.len() as u64)]), "{health:?}");
        let released = sent.records.iter().all(|r| (r.released > 0) == matches!(answer, Answer::Node(_)));
        assert!(released, "{health:?}");
    }
}

/// A gateway that refuses every request with 503 and 429 in turn, each on a new connection.
#[test]
fn what_no_node_signed_is_shed() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let experiment = experiment("  - { class: A, rate: 1000/s, arrivals: even, demand: 1us }", 1000);
    const COUNT: u64 = 20;
    let gateway = std::thread::spawn(move || {
        for (stream, status) in listener.incoming().take(COUNT as usize).zip([503, 429].into_iter().cycle()) {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            assert!(head.contains(&"x-class: A".to_owned()), "{head:?}");
            write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        }
    });
    let sent = start(&experiment, address, |plan| plan.max_requests = COUNT).join().unwrap();
    gateway.join().unwrap();
    check(&sent);
    assert_eq!(sent.ended, Ended::Count);
    assert_eq!(fates(&sent.records), BTreeMap::from([(Fate::Shed, COUNT as usize)]));
    assert!(sent.records.iter().all(|r| r.released == 0));
    let answers = BTreeMap::from([(Answer::Unsigned(503), COUNT / 2), (Answer::Unsigned(429), COUNT / 2)]);
    assert_eq!((&sent.traffic[0].answers, sent.traffic[0].connections), (&answers, COUNT));
}

#[test]
fn the_impatient_leave_and_try_again() {
    // No request is ever answered. An exponential demand identifies each request, and retries keep it.
    let experiment = experiment(
        "  - { class: A, rate: [100/s, { at: 200ms, rate: 0/s }], demand: { exponential: 8ms }, patience: 50ms, \
           retries: 2, retry_after: 20ms }",
        1000,
    );
    let cluster = node(NodeSpec::new("a", 1));
    cluster.set_health(0, Health { stalled: true, ..Health::WELL }).unwrap();
    let sent = play(&experiment, &cluster);
    check(&sent);
    let mut clients: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
    for record in &sent.records {
        clients.entry(record.cpu.to_bits()).or_default().push(record);
    }
    assert!(!clients.is_empty());
    for attempts in clients.values() {
        assert_eq!(attempts.len(), 3);
        for attempt in attempts {
            assert_eq!((attempt.fate, attempt.released), (Fate::Left, 0));
            assert!(attempt.ended - attempt.arrived >= 50 * MS, "{attempt:?}");
        }
        assert!(attempts.windows(2).all(|pair| pair[1].arrived == pair[0].ended + 20 * MS));
    }
    // Each attempt left on a connection of its own, and the node received each.
    let stats = &cluster.stats().unwrap()[0];
    assert_eq!(stats.requests, sent.records.len() as u64);
    assert_eq!(sent.traffic[0].connections, sent.records.len() as u64);
}

#[test]
fn users_wait_for_the_reply_think_and_come_and_go() {
    let experiment = experiment(
        "  - { class: A, users: [6, { at: 500ms, users: 2 }], think: 10ms, demand: { cpu: 1us, io: 20ms } }",
        1000,
    );
    let cluster = node(NodeSpec::new("a", 1));
    let sent = play(&experiment, &cluster);
    check(&sent);
    assert_eq!(fates(&sent.records), BTreeMap::from([(Fate::Served, sent.records.len())]));
    let in_flight = |at: u64| sent.records.iter().filter(|r| r.arrived <= at && at < r.ended).count();
    assert_eq!(sent.records.iter().map(|r| in_flight(r.arrived)).max(), Some(6));
    // Users beyond the second leave when their next request would be due.
    let late = sent.records.iter().filter(|r| r.arrived >= 500 * MS).count();
    assert!((1..=2 * (500 / 30 + 1)).contains(&late), "{late}");
    // Except for the first requests, every user sends exactly when the think time after a reply is over.
    let replies: BTreeSet<u64> = sent.records.iter().map(|r| r.ended + 10 * MS).collect();
    assert!(sent.records.iter().filter(|r| r.arrived != 10 * MS).all(|r| replies.contains(&r.arrived)));
    assert_eq!(sent.records.iter().filter(|r| r.arrived == 10 * MS).count(), 6);
}

#[test]
fn users_without_think_time_do_not_hammer_a_dead_address() {
    let experiment = experiment("  - { class: A, users: 4, think: 1us, demand: 1us }", 100);
    let cluster = node(NodeSpec::new("a", 1));
    cluster.set_health(0, Health { crashed: true, ..Health::WELL }).unwrap();
    let sent = play(&experiment, &cluster);
    check(&sent);
    assert_eq!(sent.traffic[0].answers.keys().collect::<Vec<_>>(), [&Answer::NoConnection]);
    // Each attempt of a user takes at least 100 µs.
    assert!((4..=4 * 1001).contains(&sent.records.len()), "{}", sent.records.len());
}

#[test]
fn a_run_ends_when_it_should() {
    let long = experiment("  - { class: A, rate: 100/s, demand: { cpu: 1us, io: 1000s } }", 600_000);
    let cluster = node(NodeSpec::new("a", 1));
    let running = start(&long, cluster.addresses()[0], |_| {});
    until(|| running.progress().traffic[0].sent >= 5);
    assert!(!running.is_finished());
    running.stop();
    let sent = running.join().unwrap();
    check(&sent);
    assert_eq!((sent.ended, fates(&sent.records)), (Ended::Asked, BTreeMap::from([(Fate::Cut, sent.records.len())])));
    // Dropping it stops the run, which would take ten minutes otherwise.
    drop(start(&long, cluster.addresses()[0], |_| {}));

    // Requests in flight at the end may be answered after it.
    let short = experiment("  - { class: A, rate: 100/s, arrivals: even, demand: { cpu: 1us, io: 150ms } }", 100);
    let sent = play(&short, &cluster);
    assert_eq!(fates(&sent.records), BTreeMap::from([(Fate::Served, 10)]));
    assert!(sent.records.iter().all(|r| r.ended >= r.arrived + 150 * MS));
    assert!(sent.elapsed.as_millis() >= 100);
}

#[test]
fn plans_that_cannot_be_played_are_refused() {
    let experiment = experiment("  - { class: A, rate: 100/s, demand: 1us }", 100);
    let templates = [Template::emulated(&experiment, 0)];
    let sound = weirgate_lab::load::Plan {
        experiment: &experiment,
        seed: 1,
        target: (Ipv4Addr::LOCALHOST, 9).into(),
        templates: &templates,
        start: clock::now(),
        cpu: None,
        connections: 1,
        max_requests: 1,
    };
    for (plan, words) in [
        (weirgate_lab::load::Plan { templates: &[], ..sound }, "0 templates for 1 traffics"),
        (weirgate_lab::load::Plan { connections: 0, ..sound }, "at least 1"),
        (weirgate_lab::load::Plan { connections: 1 << 40, ..sound }, "open files"),
        (weirgate_lab::load::Plan { max_requests: u64::MAX, ..sound }, "requests 1 to"),
        (weirgate_lab::load::Plan { cpu: Some(1 << 20), ..sound }, "CPU 1048576"),
    ] {
        let error = weirgate_lab::load::start(&plan).map(drop).unwrap_err().to_string();
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    }
}
