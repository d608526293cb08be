//! Behaviour of a node with several CPUs, computers, ports and faults, over real sockets. Times are
//! compared with one another or bounded from below, so a busy machine does no harm.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod http;

use std::net::SocketAddr;
use std::time::Duration;

use http::{connect, get, one, reply, send, wait_for};
use weirgate_emulator::{Cluster, Disk, Health, NodeSpec, NodeStats, clock};

fn stats(cluster: &Cluster) -> NodeStats {
    cluster.stats().unwrap().swap_remove(0)
}

/// Sends each request over its own connection, and returns the statuses in the order of sending.
fn all(targets: impl IntoIterator<Item = (SocketAddr, String)>) -> Vec<u16> {
    let sent: Vec<_> = targets
        .into_iter()
        .map(|(address, target)| {
            let mut stream = connect(address);
            send(&mut stream, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
            stream
        })
        .collect();
    sent.into_iter().map(|mut stream| reply(&mut stream).0).collect()
}

#[test]
fn half_the_speed_takes_twice_the_cpu_time_for_the_same_work() {
    for (speed, busy) in [(1.0, 120), (0.5, 240), (2.0, 60)] {
        let (cluster, address) = one(NodeSpec { speed, ..NodeSpec::new("a", 2) });
        let start = clock::now();
        assert_eq!(all((0..4).map(|_| (address, "/?demand=30ms".into()))), [200; 4]);
        let took = clock::now() - start;
        let stats = stats(&cluster);
        assert_eq!((stats.done.as_millis(), stats.busy.as_millis()), (120, busy));
        // Two CPUs cannot have been busy for longer than twice the time that has passed.
        assert!(took * 2 >= stats.busy.as_nanos() as u64, "{took} ns");
    }
}

#[test]
fn ports_of_a_machine_share_its_cpus_and_servers_behind_a_port_do_not() {
    let local: SocketAddr = ([127, 0, 0, 1], 0).into();
    let (cluster, _) = one(NodeSpec { addresses: vec![local; 2], ..NodeSpec::new("a", 1) });
    let [left, right] = *cluster.addresses() else { panic!("two ports") };
    let targets = [(left, "/?demand=40ms".into()), (right, "/?demand=40ms".into())];
    let start = clock::now();
    assert_eq!(all(targets), [200; 2]);
    // One CPU did it all.
    assert!(clock::now() - start >= 80_000_000);
    assert_eq!((stats(&cluster).requests, stats(&cluster).busy.as_millis()), (2, 80));

    let (cluster, address) = one(NodeSpec { servers: 2, concurrency: Some(1), ..NodeSpec::new("a", 1) });
    let in_flight = |n: usize| wait_for(|| stats(&cluster).in_flight + stats(&cluster).waiting == n);
    cluster.set_health(0, Health { stalled: true, ..Health::WELL }).unwrap();
    let mut streams = Vec::new();
    for n in 1..=4 {
        let mut stream = connect(address);
        send(&mut stream, "GET /?demand=1ms HTTP/1.1\r\nHost: x\r\n\r\n");
        in_flight(n);
        streams.push(stream);
    }
    assert_eq!((stats(&cluster).in_flight, stats(&cluster).waiting), (2, 2), "each has a queue of its own");
    cluster.set_health(0, Health::WELL).unwrap();
    assert!(streams.iter_mut().all(|stream| reply(stream).0 == 200));
}

#[test]
fn a_full_queue_answers_503_and_a_stalled_one_holds() {
    let (cluster, address) = one(NodeSpec { concurrency: Some(1), backlog: Some(2), ..NodeSpec::new("a", 1) });
    let mut streams = Vec::new();
    for n in 1..=3 {
        let mut stream = connect(address);
        send(&mut stream, "GET /?demand=600s HTTP/1.1\r\nHost: x\r\n\r\n");
        wait_for(|| stats(&cluster).in_flight + stats(&cluster).waiting == n);
        streams.push(stream);
    }
    let mut fourth = connect(address);
    assert_eq!(get(&mut fourth, "/?demand=1ms&id=fourth"), 503);
    cluster.set_health(0, Health { stalled: true, ..Health::WELL }).unwrap();
    send(&mut fourth, "GET /?demand=1ms HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(|| stats(&cluster).waiting == 3);
    let stats = stats(&cluster);
    assert_eq!((stats.refused, stats.requests, stats.replies), (1, 5, 1));
    assert_eq!((stats.ids.received.len(), stats.ids.answered.len(), stats.ids.unlogged), (0, 0, 1));
}

#[test]
fn a_share_of_requests_fails_fast_and_says_so() {
    let (cluster, address) = one(NodeSpec { log: 1000, ..NodeSpec::new("a", 1) });
    cluster.set_health(0, Health { fails: 0.5, ..Health::WELL }).unwrap();
    let mut stream = connect(address);
    let start = clock::now();
    let statuses: Vec<u16> = (0..200).map(|id| get(&mut stream, &format!("/?id={id}"))).collect();
    let failed = statuses.iter().filter(|status| **status == 500).count();
    assert!(clock::now() - start >= failed as u64 * 1_000_000, "each takes a millisecond");
    assert!(statuses.iter().all(|status| [200, 500].contains(status)));
    // Four standard deviations of a binomial count are 28.
    assert!(failed.abs_diff(100) <= 28, "{failed}");
    let stats = stats(&cluster);
    assert_eq!((stats.failed, stats.replies, stats.done), (failed as u64, 200, Duration::ZERO));
    assert_eq!((stats.ids.received.len(), stats.ids.answered.len()), (200, 200 - failed));
}

#[test]
fn a_crash_forgets_everything_keeps_the_port_and_ends() {
    let spec = NodeSpec { log: 10, drops_abandoned: true, ..NodeSpec::new("a", 1) };
    let (cluster, address) = one(spec);
    let mut in_flight = connect(address);
    send(&mut in_flight, "GET /?demand=600s&id=lost HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(|| stats(&cluster).in_flight == 1);
    for _ in 0..3 {
        // A slow, failing node that crashes must be gone like any other.
        cluster.set_health(0, Health { crashed: true, speed: 0.5, fails: 0.5, ..Health::WELL }).unwrap();
        assert_eq!(std::net::TcpStream::connect(address).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        // The port is not free for an outgoing connection, which binds without `SO_REUSEADDR`.
        let other = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        assert_eq!(rustix::net::bind(other.unwrap(), &address).unwrap_err(), rustix::io::Errno::ADDRINUSE);
        cluster.set_health(0, Health::WELL).unwrap();
        assert_eq!(get(&mut connect(address), "/?id=served"), 200);
    }
    let stats = stats(&cluster);
    assert_eq!((stats.requests, stats.replies, stats.unwanted, stats.in_flight), (4, 3, 0, 0));
    assert_eq!(stats.ids.received.iter().map(|id| &**id).collect::<Vec<_>>(), ["lost", "served", "served", "served"]);
    assert_eq!(stats.ids.answered.len(), 3);
}

#[test]
fn a_node_that_looks_at_its_connections_drops_abandoned_requests() {
    let (cluster, address) = one(NodeSpec { drops_abandoned: true, ..NodeSpec::new("a", 1) });
    let mut impatient = connect(address);
    send(&mut impatient, "GET /?demand=600s HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for(|| stats(&cluster).in_flight == 1);
    drop(impatient);
    wait_for(|| stats(&cluster).in_flight == 0);
    assert_eq!(get(&mut connect(address), "/?demand=1ms"), 200);
    let stats = stats(&cluster);
    assert_eq!((stats.requests, stats.replies, stats.unwanted), (2, 1, 1));
    assert!(stats.done < Duration::from_secs(600));
}

#[test]
fn objects_are_read_once_while_they_fit_into_memory() {
    let disk = Disk { access: Duration::from_millis(10), bytes_per_s: 1e6, cache: 20_000 };
    let (cluster, address) = one(NodeSpec { disk: Some(disk), ..NodeSpec::new("a", 1) });
    let mut stream = connect(address);
    let mut fetch = |object: u32| {
        let start = clock::now();
        assert_eq!(get(&mut stream, &format!("/?object={object}&bytes=10000")), 200);
        clock::now() - start
    };
    // A miss takes 10 ms of seeking and 10 ms of reading.
    assert!(fetch(1) >= 20_000_000 && fetch(2) >= 20_000_000);
    let account = |stats: &NodeStats| (stats.hits, stats.misses, stats.disk_busy.as_millis());
    fetch(1);
    fetch(2);
    assert_eq!(account(&stats(&cluster)), (2, 2, 40));
    fetch(3);
    fetch(2);
    fetch(1);
    // 3 evicted 1, which was used before 2.
    assert_eq!(account(&stats(&cluster)), (3, 4, 80));
    cluster.set_health(0, Health { crashed: true, ..Health::WELL }).unwrap();
    cluster.set_health(0, Health::WELL).unwrap();
    assert_eq!(get(&mut connect(address), "/?object=1&bytes=10000"), 200);
    assert_eq!(account(&stats(&cluster)), (3, 5, 100), "memory is lost in a crash");
}

#[test]
fn replies_share_the_bandwidth() {
    let (cluster, address) = one(NodeSpec { bandwidth: Some(1e6), ..NodeSpec::new("a", 4) });
    let start = clock::now();
    assert_eq!(all((0..3).map(|_| (address, "/?bytes=20000".into()))), [200; 3]);
    assert!(clock::now() - start >= 60_000_000);
    let stats = stats(&cluster);
    assert_eq!((stats.link_busy.as_millis(), stats.busy), (60, Duration::ZERO));
}
