//! The node behind the proxy under test. It records every byte stream as strict requests and answers each
//! with its number, so an answer shows which request it belongs to.
//!
//! Every client has an address of its own in 127.0.0.0/8 (its *lane*), and the proxy is told to send
//! requests from that address to the same address here. One listener on all addresses serves them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::message::{Form, Parsed, Request, parse};

/// The observations of one lane's node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Whole requests in the order in which they became whole. The index is the answer's number.
    pub(crate) requests: Vec<Request>,
    /// Requests that were cut off, with the body until then.
    pub(crate) cut: Vec<Request>,
    /// Bytes that were no request in normal form.
    pub(crate) violations: Vec<String>,
}

struct Lane {
    record: Record,
    connections: JoinSet<()>,
    /// True once the lane is finished. Its connections end then.
    finished: watch::Sender<bool>,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane { record: Record::default(), connections: JoinSet::new(), finished: watch::Sender::new(false) }
    }
}

type Lanes = Arc<Mutex<BTreeMap<Ipv4Addr, Lane>>>;

/// All nodes.
pub(crate) struct Recorder {
    /// The port on which every lane's node listens.
    pub(crate) port: u16,
    lanes: Lanes,
}

impl Recorder {
    /// Listens on a free port.
    pub(crate) async fn start() -> Recorder {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let lanes = Lanes::default();
        let accepting = lanes.clone();
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                // Accept only this machine, because the listener is also open to the network.
                if let (true, Ok(SocketAddr::V4(local))) = (peer.ip().is_loopback(), stream.local_addr()) {
                    let lane = *local.ip();
                    let mut lanes_now = lock(&accepting);
                    let entry = lanes_now.entry(lane).or_default();
                    let finished = entry.finished.subscribe();
                    entry.connections.spawn(serve(stream, lane, accepting.clone(), finished));
                }
            }
        });
        Recorder { port, lanes }
    }

    /// Ends the lane's connections and returns its node's record.
    pub(crate) async fn finish(&self, lane: Ipv4Addr) -> Record {
        let mut connections = {
            let mut lanes = lock(&self.lanes);
            let entry = lanes.entry(lane).or_default();
            entry.finished.send_replace(true);
            std::mem::take(&mut entry.connections)
        };
        while connections.join_next().await.is_some() {}
        self.record(lane)
    }

    /// Returns the record of the lane's node so far.
    pub(crate) fn record(&self, lane: Ipv4Addr) -> Record {
        lock(&self.lanes).entry(lane).or_default().record.clone()
    }
}

pub(crate) fn lane_of(address: SocketAddr) -> Option<Ipv4Addr> {
    match address.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

fn lock(lanes: &Lanes) -> MutexGuard<'_, BTreeMap<Ipv4Addr, Lane>> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one connection from the proxy.
async fn serve(mut stream: TcpStream, lane: Ipv4Addr, lanes: Lanes, mut finished: watch::Receiver<bool>) {
    let violation = |why: &str, bytes: &[u8]| {
        let text = format!("{why}: {}", bytes.escape_ascii());
        lock(&lanes).entry(lane).or_default().record.violations.push(text);
    };
    let mut bytes = Vec::new();
    let mut continued = false;
    loop {
        match parse(&bytes, Form::Normal) {
            Parsed::Whole { request, used } => {
                let number = {
                    let mut lanes = lock(&lanes);
                    let requests = &mut lanes.entry(lane).or_default().record.requests;
                    requests.push(request.clone());
                    requests.len() - 1
                };
                bytes.drain(..used);
                continued = false;
                if stream.write_all(&answer(number, &request)).await.is_err() || !request.persistent {
                    return;
                }
                continue;
            }
            Parsed::Part { head: Some(head) } if head.expects_continue() && !continued => {
                continued = true;
                if stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
                    return;
                }
            }
            Parsed::Part { .. } => {}
            Parsed::Malformed { why, .. } => {
                violation(&why, &bytes);
                return;
            }
        }
        let read = tokio::select! {
            read = stream.read_buf(&mut bytes) => read,
            _ = finished.wait_for(|finished| *finished) => Ok(0),
        };
        if read.unwrap_or(0) == 0 {
            match parse(&bytes, Form::Normal) {
                Parsed::Part { head: Some(head) } => lock(&lanes).entry(lane).or_default().record.cut.push(head),
                _ if !bytes.is_empty() => violation("half a head", &bytes),
                _ => {}
            }
            return;
        }
    }
}

/// Returns the answer to request `number`. Its body looks like an answer too: a client or proxy that
/// miscounts bytes reads the wrong number.
fn answer(number: usize, request: &Request) -> Vec<u8> {
    let body = if request.method == "HEAD" { "" } else { "HTTP/1.1 200 OK\r\nx-number: 999999\r\n\r\n" };
    let length = if request.method == "HEAD" { 36 } else { body.len() };
    format!("HTTP/1.1 200 OK\r\nx-number: {number}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}
