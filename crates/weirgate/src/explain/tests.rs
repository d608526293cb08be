//! The differential test of `weirgate explain`: random requests get the class that a running gateway gives them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use weirgate_gateway::{AccessRecord, Gateway, Observer, ReloadSource};

use super::*;

/// Number of requests.
const REQUESTS: u64 = 4_000;

/// Time limit of every operation, longer than any of them needs.
const LIMIT: Duration = Duration::from_secs(10);

/// Every condition that needs no TLS. 127.0.0.1 is a listed proxy, and other addresses of the loopback are not.
const POLICY: &str = r"
listen: 127.0.0.1:0
admin: off
threads: 1
trusted_proxies: [127.0.0.1, 10.0.0.0/8]
upstreams: { web: { nodes: NODE } }
discipline: none
classes:
  - { name: staff, match: { all: [{ source: 192.0.2.0/24 }, { not: { path_prefix: /open } }] } }
  - { name: near, match: { source: 203.0.113.0/24 } , per: { header: X-Tenant }, max_live: 50 }
  - { name: tenants, match: { path_prefix: /t }, per: { header: X-Tenant }, max_live: 50 }
  - { name: gold, match: { any: [{ cookie: { tier: gold } }, { query: { tier: gold } }] } }
  - { name: write, match: { any: [{ method: POST }, { method: DELETE }] } }
  - { name: shop, match: { all: [{ host: '*.shop.test' }, { path_pattern: '/[a-c](/.*)?' }] } }
  - { name: calls, match: { all: [{ path_prefix: /shop.Cart }, { header: { content-type: application/grpc } }] } }
  - { name: exact, match: { all: [{ host: a.test }, { path: /a/b }] } }
  - { name: networks, match: { path_prefix: /net }, per: { source: /24 }, max_live: 50 }
  - { name: other }
";

const METHODS: &[&str] = &["GET", "GET", "GET", "GET", "GET", "POST", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"];
const HOSTS: &[&str] = &["a.test", "A.Test.", "b.shop.test", "shop.test", "x.y.shop.test:80", "[::1]", "a_b", "a..b"];
const STARTS: &[&str] = &["/a/b", "/c/7", "/t/1", "/net/2", "/shop.Cart/Add", "/open/x", "/d", ""];
const PARTS: &[&str] =
    &["/a", "/b", "/%61", "/%2f", "//", "/.", "/..", "/open", "/t", "/T", "/net", "/shop.Cart", "/7", "/%00", "/\\"];
const QUERIES: &[&str] =
    &["", "", "", "", "", "", "", "?", "?tier=gold", "?tier=%67old", "?Tier=gold", "?a=1&tier=gold", "?tier=gold+"];
const FIELDS: &[&str] = &[
    "X-Tenant: acme",
    "Cookie: tier=gold",
    "Cookie: a=b; tier=\"gold\"",
    "Cookie: tier=silver",
    "X-Tenant: acme",
    "x-tenant: other",
    "Connection: x-tenant",
    "Content-Type: application/grpc",
    "X-Forwarded-For: 192.0.2.7",
    "X-Forwarded-For: 198.51.100.9, 10.0.0.1",
    "X-Forwarded-For: 203.0.113.5",
    "X-Forwarded-For: unknown",
    "Forwarded: for=192.0.2.7",
    "Forwarded: for=\"[2001:db8::7]\"",
    "Expect: 100-continue",
    "Expect: tea",
];

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).expect("it is smaller than the bound")
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// A request as `weirgate explain` takes it.
fn request(random: &mut Random, file: &str, port: u16) -> Explain {
    let start = random.of(STARTS);
    let rest = if start.is_empty() { 1 + random.below(3) } else { random.below(2) };
    let path: String = std::iter::once(start).chain((0..rest).map(|_| random.of(PARTS))).collect();
    let host = random.of(HOSTS);
    let before = if random.below(10) == 0 { format!("http://{host}") } else { String::new() };
    let mut headers = vec![format!("Host: {host}"), "Connection: close".to_owned()];
    headers.extend((0..random.below(5)).map(|_| random.of(FIELDS).to_owned()));
    Explain {
        file: file.into(),
        method: random.of(METHODS).to_owned(),
        url: format!("{before}{path}{}", random.of(QUERIES)),
        headers,
        client: IpAddr::from([127, 0, 0, 1 + u8::try_from(random.below(3)).expect("it is small")]),
        sni: None,
        client_certificate: None,
        port: Some(port),
        body: None,
        all: false,
    }
}

/// The class that the command prints, or the status with which it says the gateway refuses the request.
fn explained(args: &Explain, site: &Site) -> Result<String, u16> {
    let text = match Asked::new(args, site) {
        Ok(asked) => explain(site, &asked, false).expect("the last class has no conditions"),
        Err(why) => {
            let status = why.split("refuse this request with ").nth(1).and_then(|rest| rest.get(..3));
            return Err(status.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{why}")));
        }
    };
    let line = text.lines().find_map(|line| line.strip_prefix("class     ")).expect("a class");
    Ok(line.split(' ').next().unwrap_or_default().to_owned())
}

struct Tell(Sender<Result<String, u16>>);

impl Observer for Tell {
    fn observe(&self, record: &AccessRecord<'_>) {
        let found = if record.class.is_some() { Ok(record.class_name.to_owned()) } else { Err(record.status) };
        // The test may have ended.
        let _ = self.0.send(found);
    }
}

/// Starts a node that answers every head.
fn node() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_all(stream));
        }
    });
    address
}

fn answer_all(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|bytes| bytes > 0) {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            if stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_err() {
                return;
            }
        }
    }
}

/// Sends a request from its client's address, and waits until the connection ends.
fn send(args: &Explain, gateway: SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(args.client, 0).into()).expect("an address of the loopback");
    socket.connect(&gateway.into()).expect("the gateway accepts");
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    let head = format!("{} {} HTTP/1.1\r\n{}\r\n\r\n", args.method, args.url, args.headers.join("\r\n"));
    stream.write_all(head.as_bytes()).expect("the gateway reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("the gateway answers and closes");
}

fn next(records: &Receiver<Result<String, u16>>) -> Result<String, u16> {
    records.recv_timeout(LIMIT).expect("a record")
}

#[test]
fn it_agrees_with_a_running_gateway() {
    let text = POLICY.replace("NODE", &node().to_string());
    let site = weirgate_config::load("policy.yaml", &text, false).unwrap_or_else(|errors| panic!("{errors}")).site;
    let (sender, records) = channel();
    let observers: Vec<Box<dyn Observer>> = vec![Box::new(Tell(sender))];
    let gateway = Gateway::start(site.clone(), &text, ReloadSource::Nowhere, observers).expect("the gateway starts");
    let address = gateway.addresses()[0];
    let mut random = Random(20);
    let mut seen = std::collections::BTreeMap::<_, u64>::new();
    for at in 0..REQUESTS {
        let args = request(&mut random, "policy.yaml", address.port());
        send(&args, address);
        let (said, done) = (explained(&args, &site), next(&records));
        assert_eq!(said, done, "request {at}: {args:?}");
        *seen.entry(done).or_default() += 1;
    }
    gateway.cut();
    gateway.join();
    // Each class is chosen often, so that the agreement says something about each condition.
    for class in &site.policy.classes {
        assert!(seen.get(&Ok(class.name.to_string())).is_some_and(|&n| n >= 10), "{}: {seen:?}", class.name);
    }
    for template in &site.policy.templates {
        let name = template.class.name.to_string();
        assert!(seen.get(&Ok(name)).is_some_and(|&n| n >= 10), "{}: {seen:?}", template.class.name);
    }
    for status in [400, 405, 417] {
        assert!(seen.get(&Err(status)).is_some_and(|&n| n >= 10), "{status}: {seen:?}");
    }
}
