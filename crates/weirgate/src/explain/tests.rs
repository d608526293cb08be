//! The differential test of `weirgate explain`: random requests get the class that a running gateway gives them, over
//! HTTP/1.1 and HTTP/2, with TLS and without, and are refused for the same reasons.

mod client;
mod pki;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use client::Way;
use pki::Pki;
use tempfile::TempDir;
use weirgate_gateway::{AccessRecord, Ending, Gateway, Observer, ReloadSource};

use super::*;

/// Number of requests.
const REQUESTS: u64 = 4_000;

/// Time limit of every operation, longer than any of them needs.
const LIMIT: Duration = Duration::from_secs(10);

/// Every condition. 127.0.0.1 is a listed proxy, and other addresses of the loopback are not. The listeners have
/// different addresses, because listeners are told apart by the address in the policy.
const POLICY: &str = include_str!("tests/policy.yaml");

// Words that a class asks for stand several times, so that each class is chosen often.
const METHODS: &[&str] =
    &["GET", "GET", "GET", "GET", "GET", "POST", "POST", "POST", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"];
const HOSTS: &[&str] = &["a.test", "A.Test.", "b.shop.test", "shop.test", "x.y.shop.test:80", "[::1]", "a_b", "a..b"];
const STARTS: &[&str] =
    &["/a/b", "/a/b", "/c/7", "/t/1", "/t/1", "/net/2", "/shop.Cart/Add", "/shop.Cart/Add", "/open/x", "/d", ""];
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
    "X-Tenant: acme",
    "X-Tenant: north",
    "Connection: x-tenant",
    "Content-Type: application/grpc",
    "Content-Type: application/grpc",
    "Content-Type: application/grpc",
    "Content-Type: application/json",
    "Content-Type: application/vnd.api+json; charset=utf-8",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: application/x-www-form-urlencoded; charset=utf-8",
    "Content-Encoding: gzip",
    "X-Forwarded-For: 192.0.2.7",
    "X-Forwarded-For: 198.51.100.9, 10.0.0.1",
    "X-Forwarded-For: 203.0.113.5",
    "X-Forwarded-For: 203.0.113.5",
    "X-Forwarded-For: 203.0.113.77",
    "X-Forwarded-For: unknown",
    "Forwarded: for=192.0.2.7",
    "Forwarded: for=\"[2001:db8::7]\"",
    "Expect: 100-continue",
    "Expect: tea",
];

const BODIES: &[&str] = &[
    r#"{"method":"pay"}"#,
    r#"{"id":[1,{"x":"]"}],"method":"p\u0061y.now","y":2}"#,
    r#"{"padding":"0123456789012345678901234567","method":"pay"}"#,
    r#"{"method":"pay"#,
    "plan=gold",
    "plan=gold",
    "plan=gold&a=b",
    "a=b&pl%61n=gol%64&c",
    "padding=012345678901234567890123456789012&plan=gold",
    "urgent 123",
    "an <Order> of 7 things, 1234567890123456789012345 of them",
    "nothing",
];
const NAMES: &[&str] = &["a.test", "b.shop.test", "x.y.shop.test", "other.test"];

/// Random choices.
struct Random(weirgate_engine::Random);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// A request as `weirgate explain` takes it, and how it is sent. The listener with TLS is the second one.
fn request(random: &mut Random, pki: &Pki, ports: &[u16]) -> (Explain, Way) {
    let start = random.of(STARTS);
    let rest = if start.is_empty() { 1 + random.below(3) } else { random.below(2) };
    let path: String = std::iter::once(start).chain((0..rest).map(|_| random.of(PARTS))).collect();
    let host = random.of(HOSTS);
    let encrypted = random.below(4) == 0;
    let http2 = random.below(3) == 0;
    let scheme = if encrypted { "https" } else { "http" };
    let before = if random.below(10) == 0 { format!("{scheme}://{host}") } else { String::new() };
    let mut headers = vec![format!("Host: {host}"), "Connection: close".to_owned()];
    headers.extend((0..random.below(5)).map(|_| random.of(FIELDS).to_owned()));
    let certificate = [None, None, Some("alice"), Some("bob")][random.below(4)].filter(|_| encrypted);
    let args = Explain {
        visitor: None,
        file: "policy.yaml".into(),
        method: random.of(METHODS).to_owned(),
        url: format!("{before}{path}{}", random.of(QUERIES)),
        headers,
        client: Some(IpAddr::from([127, 0, 0, 1 + u8::try_from(random.below(3)).expect("it is small")])),
        sni: encrypted.then(|| random.of(NAMES).to_owned()),
        client_certificate: certificate.map(|name| pki.path(&format!("{name}.pem"))),
        port: Some(ports[usize::from(encrypted)]),
        body: (random.below(2) == 0).then(|| random.of(BODIES).to_owned()),
        all: false,
    };
    let tls = encrypted.then(|| pki.client(certificate));
    (args, Way { http2, chunked: random.below(2) == 0, tls })
}

/// The class that the command prints, or the reason for which it says the gateway refuses the request.
fn explained(args: &Explain, site: &Site) -> Result<String, String> {
    let text = match Asked::new(args, site) {
        Ok(asked) => explain(site, &asked, false).expect("the last class has no conditions"),
        Err(why) => {
            let reason = why.split("refuse this request with ").nth(1).and_then(|rest| rest.get(5..));
            return Err(reason.unwrap_or_else(|| panic!("{why}")).to_owned());
        }
    };
    let line = text.lines().find_map(|line| line.strip_prefix("class     ")).expect("a class");
    Ok(line.split(' ').next().unwrap_or_default().to_owned())
}

/// The class of a request, or the reason why it was refused.
type Done = Result<String, String>;

struct Tell(Sender<Done>);

impl Observer for Tell {
    fn observe(&self, record: &AccessRecord<'_>) {
        let found = match (record.class, record.ending) {
            (Some(_), _) => Ok(record.class_name.to_owned()),
            (None, Ending::Refused(why)) => Err(why.to_owned()),
            (None, other) => Err(format!("{other:?}")),
        };
        // The test may have ended.
        let _ = self.0.send(found);
    }
}

/// Starts a node that answers every request.
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

/// Reads requests with short bodies without an empty line, and answers each.
fn answer_all(mut stream: TcpStream) {
    let mut input = Vec::new();
    let mut read_to = |stream: &mut TcpStream, end: &dyn Fn(&[u8]) -> bool| {
        let mut byte = [0];
        input.clear();
        while !end(&input) {
            if !stream.read(&mut byte).is_ok_and(|bytes| bytes > 0) {
                return None;
            }
            input.push(byte[0]);
        }
        Some(String::from_utf8_lossy(&input).to_ascii_lowercase())
    };
    while let Some(head) = read_to(&mut stream, &|input| input.ends_with(b"\r\n\r\n")) {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().expect("a length"));
        let body = match head.contains("\r\ntransfer-encoding: chunked") {
            true => read_to(&mut stream, &|input| input.ends_with(b"0\r\n\r\n")),
            false => read_to(&mut stream, &|input| input.len() == length),
        };
        if body.is_none() || stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_err() {
            return;
        }
    }
}

fn next(records: &Receiver<Done>, about: &str) -> Done {
    records.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("no record of {about}"))
}

#[test]
fn it_agrees_with_a_running_gateway() {
    let folder = TempDir::new().expect("a folder");
    let pki = Pki::new(folder.path(), NAMES);
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, POLICY.replace("NODE", &node().to_string())).expect("a file");
    let mut site = weirgate_config::load_file(&policy).unwrap_or_else(|errors| panic!("{errors}")).site;
    let (sender, records) = channel();
    let observers: Vec<Box<dyn Observer>> = vec![Box::new(Tell(sender))];
    let gateway = Gateway::start(site.clone(), "", ReloadSource::Nowhere, observers).expect("the gateway starts");
    let addresses = gateway.addresses().to_vec();
    for (listener, address) in site.listeners.iter_mut().zip(&addresses) {
        listener.name.address = (*address).into();
    }
    let ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut random = Random(weirgate_engine::Random::new(20));
    let mut seen = std::collections::BTreeMap::<_, u64>::new();
    for at in 0..REQUESTS {
        let (args, way) = request(&mut random, &pki, &ports);
        let to = addresses[usize::from(args.sni.is_some())];
        let about = format!("request {at}, HTTP/2 {}: {args:?}", way.http2);
        let sent = weirgate_clock::within(LIMIT, client::send(&args, way, to));
        runtime.block_on(sent).unwrap_or_else(|| panic!("no answer to {about}"));
        let (said, done) = (explained(&args, &site), next(&records, &about));
        assert_eq!(said, done, "{about}");
        *seen.entry(done).or_default() += 1;
    }
    gateway.cut();
    gateway.join();
    // Each class is chosen often, so that the agreement says something about each condition.
    for class in site.policy.all_classes() {
        assert!(seen.get(&Ok(class.name.to_string())).is_some_and(|&n| n >= 10), "{}: {seen:?}", class.name);
    }
    // So is each reason for a refusal.
    let refusals = seen.iter().filter(|(done, count)| done.is_err() && **count >= 10).count();
    assert!(refusals >= 4, "{seen:?}");
}
