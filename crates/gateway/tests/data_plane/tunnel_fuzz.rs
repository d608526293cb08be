//! WebSocket traffic through reloads: every byte arrives once and in order, over both protocols on both sides.
//!
//! The seed is 1, or that of `WEIRGATE_SEED`. A failure prints it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::ext::Protocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weirgate_gateway::Ending;

use crate::draw::Draw;
use crate::http2::{request, websockets};
use crate::stage::{LIMIT, Stage, site, wait_until};

/// Number of tunnels for each of the four pairs of protocols.
const TUNNELS: usize = 4;

/// Number of messages that a client sends over each tunnel.
const MESSAGES: usize = 40;

impl Draw {
    /// A message as a client sends it (RFC 6455 Sec. 5.2): masked, of any kind and of one of the three forms of length.
    fn message(&mut self) -> Vec<u8> {
        let length = [self.below(126), 126 + self.below(1000), self.below(20_000)][self.below(3)];
        let mut bytes = vec![0x80 | [1, 2, 9, 10][self.below(4)]];
        match length {
            0..126 => bytes.push(0x80 | length as u8),
            _ => {
                bytes.push(0x80 | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
        }
        bytes.extend(self.next().to_be_bytes()[..4].iter());
        bytes.extend((0..length).map(|_| self.next() as u8));
        bytes
    }
}

/// Starts a node over HTTP/1.1. Its tunnels say hello, repeat each byte, and say bye.
async fn echoing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = head(&mut socket).await;
                let key = head.lines().find_map(|line| line.split_once("ey: ")).expect("a key").1;
                socket.write_all(format!("{}hello", websockets::grant(key)).as_bytes()).await.expect("a socket");
                let (mut read, mut write) = socket.split();
                tokio::io::copy(&mut read, &mut write).await.expect("a socket");
                write.write_all(b"bye").await.expect("a socket");
            });
        }
    });
    address
}

/// Reads a head byte by byte, so that nothing after it is lost.
async fn head(socket: &mut TcpStream) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(socket.read_u8().await.expect("a head")));
    }
    head
}

/// Sends `pieces` over a tunnel of HTTP/1.1, and returns what comes back.
async fn over_http1(gateway: SocketAddr, path: &str, pieces: Vec<Vec<u8>>, moved: &AtomicUsize) -> Vec<u8> {
    let mut socket = TcpStream::connect(gateway).await.expect("the gateway accepts");
    socket.write_all(websockets::ASK.replace("/chat", path).as_bytes()).await.expect("a socket");
    assert!(head(&mut socket).await.starts_with("HTTP/1.1 101 "));
    let (mut read, mut write) = socket.split();
    let sent = async {
        for piece in pieces {
            write.write_all(&piece).await.expect("the tunnel");
            moved.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
        write.shutdown().await.expect("the tunnel");
    };
    let mut got = Vec::new();
    let (_, read) = tokio::join!(sent, read.read_to_end(&mut got));
    read.expect("the tunnel");
    got
}

/// Sends `pieces` over a tunnel of HTTP/2, and returns what comes back.
async fn over_http2(
    client: h2::client::SendRequest<Bytes>,
    path: &str,
    pieces: Vec<Vec<u8>>,
    moved: &AtomicUsize,
) -> Vec<u8> {
    let ask = request("CONNECT", path).header("sec-websocket-version", "13");
    let ask = ask.extension(Protocol::from_static("websocket")).body(()).expect("it is sound");
    let (response, mut send) = client.ready().await.expect("another stream").send_request(ask, false).expect("it");
    let (head, mut incoming) = response.await.expect("a response").into_parts();
    assert_eq!(head.status, 200);
    let sent = async {
        for piece in pieces {
            let mut rest = Bytes::from(piece);
            while !rest.is_empty() {
                send.reserve_capacity(rest.len());
                let room = std::future::poll_fn(|cx| send.poll_capacity(cx)).await.expect("it").expect("the tunnel");
                send.send_data(rest.split_to(room.min(rest.len())), false).expect("the tunnel");
            }
            moved.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
        send.send_data(Bytes::new(), true).expect("the tunnel");
    };
    let received = async {
        let mut got = Vec::new();
        while let Some(piece) = incoming.data().await {
            let piece = piece.expect("the tunnel");
            incoming.flow_control().release_capacity(piece.len()).expect("it was received");
            got.extend_from_slice(&piece);
        }
        got
    };
    tokio::join!(sent, received).1
}

#[test]
fn every_byte_arrives_across_reloads() {
    let seed = Draw::seeded();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let new = websockets::node(true);
    let old = runtime.block_on(echoing());
    let policy = |new: &str, old: &str, classes: [&str; 2]| {
        format!(
            "listen: 127.0.0.1:0\nadmin: off\nthreads: 2\ndiscipline: none\nupstreams:\n  {new}\n  {old}\nclasses:\n  - \
             {{ name: {}, match: {{ path_prefix: /new }}, upstream: new }}\n  - {{ name: {}, upstream: old }}\n",
            classes[0], classes[1]
        )
    };
    // The second policy leads nowhere, and has other classes.
    let first = policy(
        &format!("new: {{ protocol: h2, nodes: \"{new}\" }}"),
        &format!("old: {{ nodes: \"{old}\" }}"),
        ["a", "b"],
    );
    let nowhere = crate::stage::Node::absent().address;
    let second =
        policy(&format!("new: {{ nodes: \"{nowhere}\" }}"), &format!("old: {{ nodes: \"{nowhere}\" }}"), ["b", "c"]);
    let stage = Stage::open(&first);
    let gateway = stage.address();
    let moved = AtomicUsize::new(0);
    runtime.block_on(async {
        let socket = TcpStream::connect(gateway).await.expect("the gateway accepts");
        let (client, connection) = h2::client::handshake(socket).await.expect("a connection");
        tokio::spawn(connection);
        let mut draw = seed.clone();
        let tunnels = (0..4 * TUNNELS).map(|nth| {
            let bytes: Vec<u8> = (0..MESSAGES).flat_map(|_| draw.message()).collect();
            let (pieces, client, moved) = (draw.pieces(&bytes), client.clone(), &moved);
            async move {
                let path = if nth % 2 == 0 { "/new/chat" } else { "/old/chat" };
                let got = match nth / 2 % 2 {
                    0 => over_http1(gateway, path, pieces, moved).await,
                    _ => over_http2(client, path, pieces, moved).await,
                };
                let expected = [&b"hello"[..], &bytes, b"bye"].concat();
                assert!(got == expected, "tunnel {nth}: {} bytes of {}", got.len(), expected.len());
            }
        });
        let tunnels: Vec<_> = tunnels.collect();
        let all = async {
            let mut running: Vec<_> = tunnels.into_iter().map(Box::pin).collect();
            std::future::poll_fn(|cx| {
                running.retain_mut(|tunnel| tunnel.as_mut().poll(cx).is_pending());
                if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        };
        let reloads = async {
            // All tunnels are open before their nodes leave the policy.
            while stage.gateway.counters().tunnels.load(Ordering::Relaxed) < 4 * TUNNELS as u64 {
                tokio::task::yield_now().await;
            }
            for round in 0..12 {
                let text = if round % 2 == 0 { &second } else { &first };
                stage.gateway.reload_site(site(text), text).expect("a good policy");
                // Bytes move under each of them, as long as there are any.
                let before = moved.load(Ordering::Relaxed);
                while moved.load(Ordering::Relaxed) < before + 20 && stage.gateway.tunnels().taken() > 0 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let both = weirgate_clock::within(3 * LIMIT, async { tokio::join!(all, reloads) });
        both.await.expect("within the limit");
    });
    assert!(stage.gateway.active_config().version > 10);
    wait_until("all tunnels are closed", || stage.gateway.tunnels().taken() == 0);
    // Each is counted for the class under which it was opened.
    let mut classes: Vec<String> = (0..4 * TUNNELS)
        .map(|_| {
            let record = stage.record();
            assert_eq!(record.ending, Ending::Tunnelled);
            record.class
        })
        .collect();
    classes.sort();
    assert_eq!(classes, [vec!["a"; 2 * TUNNELS], vec!["b"; 2 * TUNNELS]].concat());
}
