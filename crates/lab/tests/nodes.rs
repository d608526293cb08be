//! The machines of an experiment over real sockets, compared with their description in an experiment file.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use weirgate_emulator::clock;
use weirgate_experiment::{Condition, Experiment, Fate};
use weirgate_lab::nodes::Nodes;
use weirgate_lab::process::cpus;
use weirgate_lab::proof::{Attempt, Proof, Watch};
use weirgate_wire::{Active, Report};

/// More time than any test takes, so that a missing reply fails the test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns an experiment with three nodes on two machines: `slow`, used by two nodes at half speed, and
/// `pair`, two servers with a short queue.
fn experiment() -> Experiment {
    let text = "
policy:
  upstreams:
    left: { nodes: [{ address: 'slow:1', machine: slow }] }
    right: { nodes: [{ address: 'pair:1', machine: pair }, { address: 'slow:2', machine: slow }] }
  classes:
    - { name: A, upstream: left, match: { path: /a } }
    - { name: B, upstream: right }
machines:
  - { machine: slow, cpus: 2, speed: 0.5 }
  - { machine: pair, cpus: 1, servers: 2, concurrency: 1, backlog: 1 }
traffic: [{ class: A, rate: 1/s, demand: 1ms }]
phases: [{ name: all, until: 1s }]
";
    let loaded = weirgate_experiment::load_experiment("test", text, Path::new(""), &[]);
    loaded.unwrap_or_else(|e| panic!("{e}")).experiment
}

fn send(address: SocketAddr, target: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Reads the head of a reply and returns its status and the node that it names.
fn reply(stream: &mut BufReader<TcpStream>) -> (u16, String) {
    let mut lines = stream.lines().map(|line| line.unwrap()).take_while(|line| !line.is_empty());
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (status, lines.find_map(|line| line.strip_prefix("X-Node: ").map(str::to_owned)).unwrap())
}

fn wait_for(is_so: impl Fn() -> bool) {
    let start = clock::now();
    while !is_so() {
        assert!(Duration::from_nanos(clock::now() - start) < PATIENCE, "it never came to be so");
        std::thread::yield_now();
    }
}

#[test]
fn nodes_of_a_machine_share_it_and_it_works_at_its_speed() {
    let nodes = Nodes::start(&experiment(), 1, cpus().unwrap().first().copied()).unwrap();
    let [left, pair, right] = *nodes.addresses() else { panic!("three nodes") };
    let names = [left, pair, right].map(|address| reply(&mut send(address, "/")).1);
    assert_eq!(names, ["slow", "pair", "slow"]);
    let start = clock::now();
    let mut streams = [left, right, left, right].map(|address| send(address, "/?demand=20000us&io=0us"));
    assert!(streams.iter_mut().all(|stream| reply(stream).0 == 200));
    // The requests are 80 ms of work, on two CPUs at half speed.
    assert!(clock::now() - start >= 80_000_000);
    let done = nodes.done().unwrap();
    assert!((done[0][0] - 0.080).abs() < 1e-6 && done[1] == [0.0; 3], "{done:?}");
    let stats = nodes.stats().unwrap();
    assert_eq!((stats[0].busy.as_millis(), stats[0].name.as_str()), (160, "slow"));
    assert!(stats[0].lateness.len() >= 4);
}

fn report(address: SocketAddr) -> Active {
    let mut answer = String::new();
    let mut stream = send(address, "/weirgate/report");
    stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    Report::parse(body.as_bytes()).unwrap().active
}

#[test]
fn a_machine_reports_what_is_inside_it_by_content() {
    let nodes = Nodes::start(&experiment(), 1, None).unwrap();
    let [left, pair, right] = *nodes.addresses() else { panic!("three nodes") };
    let mut held = vec![send(left, "/?demand=600s&content=static"), send(right, "/?demand=600s")];
    held.push(send(right, "/?demand=600s&content=dynamic"));
    wait_for(|| nodes.stats().unwrap()[0].in_flight == 3);
    let busy = Active { static_content: 1, dynamic_content: 2 };
    assert_eq!((report(left), report(right)), (busy, busy), "both are on one machine");
    assert_eq!(report(pair), Active::default());
    // A reply in transmission counts as well. This one is larger than any socket's buffer.
    held.push(send(pair, "/?bytes=100000000&content=static"));
    wait_for(|| report(pair) == Active { static_content: 1, dynamic_content: 0 });
    assert_eq!(nodes.stats().unwrap()[1].in_flight, 0);
    drop(held);
    wait_for(|| [left, pair].map(report) == [Active::default(); 2]);
}

#[test]
fn servers_behind_a_node_are_full_one_by_one() {
    let nodes = Nodes::start(&experiment(), 1, None).unwrap();
    let pair = nodes.addresses()[1];
    let held: Vec<_> = (1..=4)
        .map(|n| {
            let stream = send(pair, "/?demand=600s");
            wait_for(|| nodes.stats().unwrap()[1].requests == n);
            stream
        })
        .collect();
    assert_eq!(reply(&mut send(pair, "/")).0, 503);
    let stats = &nodes.stats().unwrap()[1];
    assert_eq!((stats.in_flight, stats.waiting, stats.refused), (2, 2, 1));
    // The gateway closes the connections, and the machine drops the abandoned requests.
    drop(held);
    wait_for(|| nodes.stats().unwrap()[1].in_flight == 0);
    assert_eq!(reply(&mut send(pair, "/")).0, 200);
}

#[test]
fn conditions_come_together_and_go() {
    let nodes = Nodes::start(&experiment(), 1, None).unwrap();
    let [left, pair, right] = *nodes.addresses() else { panic!("three nodes") };
    let set = |condition| nodes.set_condition(0, condition).unwrap();

    set(Condition { removed: true, ..Condition::WELL });
    assert_eq!(reply(&mut send(left, "/")).0, 200, "it finishes what it has");

    set(Condition { speed: 0.5, fails: 1.0, ..Condition::WELL });
    assert_eq!(reply(&mut send(right, "/?demand=600s")).0, 500);

    set(Condition { speed: 0.5, ..Condition::WELL });
    let start = clock::now();
    assert_eq!(reply(&mut send(left, "/?demand=10000us")).0, 200);
    assert!(clock::now() - start >= 40_000_000);

    set(Condition { stalled: true, fails: 1.0, ..Condition::WELL });
    let mut held = [left, right].map(|address| send(address, "/?demand=1000us"));
    wait_for(|| nodes.stats().unwrap()[0].in_flight == 2);
    held[0].get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let silence = held[0].read(&mut [0]).unwrap_err();
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    held[0].get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    set(Condition::WELL);
    assert!(held.iter_mut().all(|stream| reply(stream).0 == 200), "a stall loses nothing");

    let mut lost = send(right, "/?demand=600s");
    wait_for(|| nodes.stats().unwrap()[0].in_flight == 1);
    set(Condition { crashed: true, stalled: true, ..Condition::WELL });
    assert_eq!(lost.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    for address in [left, right] {
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    assert_eq!(reply(&mut send(pair, "/")).0, 200, "the other machine is well");
    set(Condition::WELL);
    assert!([left, right].iter().all(|address| reply(&mut send(*address, "/")).0 == 200));

    let error = nodes.set_condition(2, Condition::WELL).unwrap_err();
    assert!(error.contains("machine 2"), "{error}");
    let error = nodes.set_condition(0, Condition { speed: 0.0, ..Condition::WELL }).unwrap_err();
    assert!(error.contains("machine 0 (slow)") && error.contains("speed"), "{error}");
}

#[test]
fn ids_tell_a_retry_from_doubled_work() {
    let nodes = Nodes::start(&experiment(), 1, None).unwrap();
    let [left, pair, right] = *nodes.addresses() else { panic!("three nodes") };
    nodes.set_condition(1, Condition { fails: 1.0, ..Condition::WELL }).unwrap();
    let ask = |address, id: &str| reply(&mut send(address, &format!("/?id={id}"))).0;
    assert_eq!((ask(pair, "retried"), ask(left, "retried")), (500, 200));
    assert_eq!((ask(left, "doubled"), ask(right, "doubled")), (200, 200));
    assert_eq!(ask(right, "unknown"), 200);
    let fates = [("retried", Fate::Served), ("doubled", Fate::Served), ("nowhere", Fate::Served)];
    let attempts = fates.map(|(id, fate)| Attempt { id, sent: Duration::ZERO, fate, from_node: true });
    let stats = nodes.stats().unwrap();
    let logs: Vec<_> = stats.iter().map(|stats| &stats.ids).collect();
    let proof = Proof::of(attempts, Watch { ended: PATIENCE, patience: PATIENCE }, &logs).unwrap();
    let first = [&proof.lost, &proof.doubled, &proof.phantom].map(|found| found.first.join(" "));
    assert_eq!(first, ["nowhere", "doubled", "unknown"]);
}

#[test]
fn experiments_that_cannot_be_played_are_refused() {
    let mut odd = experiment();
    odd.machine_of[1] = 0;
    let error = Nodes::start(&odd, 1, None).unwrap_err();
    assert!(error.contains("node pair: addresses"), "{error}");
    odd.machine_of = vec![0, 1, 7];
    let error = Nodes::start(&odd, 1, None).unwrap_err();
    assert!(error.contains("machine that the experiment does not have"), "{error}");
    assert!(Nodes::start(&experiment(), 1, Some(1000)).is_err(), "there are not so many CPUs");
}
