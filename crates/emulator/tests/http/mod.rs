//! A plain HTTP/1.1 client for the tests of nodes. It sends one request at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weirgate_emulator::{Cluster, NodeSpec, clock};

/// Longer than any test may take. A reply that never comes fails the test instead of hanging it.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn connect(to: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

pub fn send(stream: &mut BufReader<TcpStream>, text: &str) {
    stream.get_mut().write_all(text.as_bytes()).unwrap();
}

/// Reads a reply: (status, headers in lower case, body).
pub fn reply(stream: &mut BufReader<TcpStream>) -> (u16, Vec<String>, Vec<u8>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the connection ended in a head: {lines:?}");
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_ascii_lowercase()),
        }
    }
    let length = lines.iter().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (lines[0].split(' ').nth(1).unwrap().parse().unwrap(), lines, body)
}

pub fn get(stream: &mut BufReader<TcpStream>, target: &str) -> u16 {
    send(stream, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
    reply(stream).0
}

pub fn one(spec: NodeSpec) -> (Cluster, SocketAddr) {
    let cluster = Cluster::start(vec![spec], 1).unwrap();
    let address = cluster.addresses()[0];
    (cluster, address)
}

/// Waits until `is_so` returns `true`.
pub fn wait_for(is_so: impl Fn() -> bool) {
    let start = clock::now();
    while !is_so() {
        assert!(Duration::from_nanos(clock::now() - start) < PATIENCE, "it never came to be so");
        std::thread::yield_now();
    }
}
