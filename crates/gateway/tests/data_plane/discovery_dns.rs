//! Nodes from the DNS, by a small name server of the test on the loopback.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use weirgate_wire::admin::Discovery;

use crate::stage::{Node, PLAIN, Stage, ok, wait_until};

/// Types of records (RFC 1035, 2782).
const A: u16 = 1;
const SRV: u16 = 33;

/// Codes of answers: no error, failure of the server, no such name.
const NO_ERROR: u8 = 0;
const SERV_FAIL: u8 = 2;
const NX_DOMAIN: u8 = 3;

/// What the server says to every query.
#[derive(Clone)]
struct Zone {
    code: u8,
    /// Type, time to live in seconds, and data of each record.
    records: Vec<(u16, u32, Vec<u8>)>,
    /// Whether it says nothing.
    silent: bool,
}

impl Zone {
    fn of(records: Vec<(u16, u32, Vec<u8>)>) -> Zone {
        Zone { code: NO_ERROR, records, silent: false }
    }

    fn failing(code: u8) -> Zone {
        Zone { code, records: Vec::new(), silent: false }
    }

    /// Records of these addresses without time to live, so that the least one of the policy holds.
    fn addresses(addresses: &[Ipv4Addr]) -> Zone {
        Zone::of(addresses.iter().map(|address| (A, 0, address.octets().to_vec())).collect())
    }

    /// Service records: priority, weight, port.
    fn services(services: &[(u16, u16, u16)]) -> Zone {
        let data = |(priority, weight, port): &(u16, u16, u16)| {
            let mut data = [*priority, *weight, *port].map(u16::to_be_bytes).concat();
            data.extend(b"\x09localhost\x00");
            (SRV, 0, data)
        };
        Zone::of(services.iter().map(data).collect())
    }

    /// Answers a query with one question.
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let name = query.get(12..)?.iter().position(|byte| *byte == 0)?;
        let question = query.get(12..12 + name + 5)?;
        let kind = u16::from_be_bytes([question[name + 1], question[name + 2]]);
        let records: Vec<_> = self.records.iter().filter(|record| record.0 == kind).collect();
        let mut answer = query.get(..2)?.to_vec();
        // A response with recursion, desired and available.
        answer.extend([0x81, 0x80 | self.code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        answer.extend(question);
        for (kind, ttl, data) in records {
            // The name is that of the question, at offset 12. The class is IN.
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1]);
            answer.extend(ttl.to_be_bytes());
            answer.extend((data.len() as u16).to_be_bytes());
            answer.extend(data);
        }
        Some(answer)
    }
}

/// A name server.
struct Server {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

impl Server {
    fn start(zone: Zone) -> Server {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let server = Server { address: socket.local_addr().expect("an address"), zone: Arc::new(Mutex::new(zone)) };
        let zone = Arc::clone(&server.zone);
        std::thread::spawn(move || {
            let mut query = [0; 4096];
            while let Ok((length, client)) = socket.recv_from(&mut query) {
                let zone = zone.lock().expect("no panic").clone();
                if let Some(answer) = zone.answer(&query[..length]).filter(|_| !zone.silent) {
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        server
    }

    fn say(&self, zone: Zone) {
        *self.zone.lock().expect("no panic") = zone;
    }

    fn policy(&self, source: &str) -> String {
        format!(
            "listen: 127.0.0.1:0\nadmin: off\nthreads: 2\nresolvers: {{ servers: \"{}\", timeout: 200ms, attempts: 1 }}\n\
             upstreams: {{ web: {{ discover: {{ {source}, min_ttl: 100ms }} }} }}\n{PLAIN}",
            self.address
        )
    }
}

fn source(stage: &Stage) -> Discovery {
    stage.gateway.discovery().pop().expect("the upstream discovers its nodes")
}

fn names(stage: &Stage) -> Vec<String> {
    stage.gateway.control().snapshot().nodes.into_iter().map(|node| node.name).collect()
}

/// Two addresses of the loopback. Only the first one has a node.
const FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn addresses_of_a_name_appear_and_leave() {
    let node = Node::scripted();
    let port = node.address.port();
    let server = Server::start(Zone::addresses(&[FIRST]));
    let stage = Stage::open(&server.policy(&format!("dns: \"web.test:{port}\"")));
    assert_eq!(names(&stage), [format!("{FIRST}:{port}")]);
    let mut in_flight = stage.client();
    in_flight.get("/in-flight");
    let call = node.call();
    server.say(Zone::addresses(&[SECOND, FIRST]));
    wait_until("both are there", || names(&stage) == [format!("{FIRST}:{port}"), format!("{SECOND}:{port}")]);
    server.say(Zone::addresses(&[SECOND]));
    wait_until("the first has left", || names(&stage) == [format!("{SECOND}:{port}")]);
    call.ok("from the one that left");
    assert_eq!(in_flight.answer().text(), "from the one that left");
    wait_until("all slots are free", || stage.is_empty());
    assert_eq!(source(&stage).source, format!("web.test:{port}"));
}

#[test]
fn a_name_server_that_fails_leaves_the_last_nodes() {
    let node = Node::answering(ok("x"));
    let port = node.address.port();
    let server = Server::start(Zone::addresses(&[FIRST]));
    let stage = Stage::open(&server.policy(&format!("dns: \"web.test:{port}\"")));
    let silent = Zone { silent: true, ..Zone::addresses(&[FIRST]) };
    for zone in [Zone::failing(SERV_FAIL), Zone::failing(NX_DOMAIN), Zone::of(Vec::new()), silent] {
        server.say(zone);
        wait_until("it fails", || source(&stage).error.is_some());
        assert_eq!(names(&stage), [format!("{FIRST}:{port}")]);
        assert_eq!(stage.ask("/").text(), "x");
        server.say(Zone::addresses(&[FIRST]));
        wait_until("it works", || source(&stage).error.is_none());
    }
    assert_eq!(source(&stage).changes, 1);
}

#[test]
fn a_record_is_not_asked_for_before_its_time() {
    let server = Server::start(Zone::of(vec![(A, 3600, FIRST.octets().to_vec())]));
    let stage = Stage::open(&server.policy("dns: \"web.test:80\", max_ttl: 1h"));
    server.say(Zone::failing(SERV_FAIL));
    let looked = source(&stage);
    // Another upstream has records with a shorter life, and sees the failure meanwhile.
    let other = Stage::open(&server.policy("dns: \"web.test:80\""));
    wait_until("the other has failed three times", || source(&other).failures >= 3);
    assert_eq!((source(&stage).failures, looked.failures), (0, 0));
    assert_eq!(names(&stage), ["127.0.0.1:80"]);
}

#[test]
fn services_of_the_lowest_priority_are_nodes() {
    let (first, second) = (Node::answering(ok("first")), Node::answering(ok("second")));
    let ports = [first.address.port(), second.address.port()];
    let server = Server::start(Zone::services(&[(10, 7, ports[0]), (20, 1, ports[1])]));
    let stage = Stage::open(&server.policy("srv: _http._tcp.web.test"));
    let ask = || stage.ask("/").text();
    assert_eq!(names(&stage), [format!("localhost:{}", ports[0])]);
    assert_eq!(stage.gateway.active_config().site.policy.nodes[0].weight, 7.0);
    assert_eq!(ask(), "first");
    server.say(Zone::services(&[(20, 1, ports[1])]));
    wait_until("the spare is used", || names(&stage) == [format!("localhost:{}", ports[1])]);
    assert_eq!(ask(), "second");
    server.say(Zone::services(&[(10, 0, ports[0]), (10, 2, ports[1])]));
    wait_until("both are used", || names(&stage).len() == 2);
    let mut weights: Vec<f64> = stage.gateway.active_config().site.policy.nodes.iter().map(|n| n.weight).collect();
    weights.sort_by(f64::total_cmp);
    assert_eq!(weights, [1.0, 2.0]);
}
