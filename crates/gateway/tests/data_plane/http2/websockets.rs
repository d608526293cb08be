//! WebSockets over HTTP/2 (RFC 8441), with a client or a node or both that speak it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use bytes::Bytes;
use h2::ext::Protocol as Named;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::net::TcpListener;
use weirgate_gateway::{Ending, Protocol};

use super::{Client, Whole, get, request};
use crate::stage::{Node, Stage, ok, policy, wait_until, windowed};

pub(crate) const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Answers a key as RFC 6455 Sec. 1.3 demands.
fn accept(key: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash)
}

pub(crate) fn grant(key: &str) -> String {
    let accept = accept(key);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: \
         {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}

/// Starts a node that speaks HTTP/2. If it `tunnels`, it takes extended CONNECTs, and a tunnel says hello and then
/// repeats each piece. Other requests get their method and path.
pub(crate) fn node(tunnels: bool) -> SocketAddr {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        runtime.block_on(async {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut builder = h2::server::Builder::new();
                    if tunnels {
                        builder.enable_connect_protocol();
                    }
                    let mut streams = builder.handshake::<_, Bytes>(socket).await.expect("a connection");
                    while let Some(Ok((request, mut respond))) = streams.accept().await {
                        let path = request.uri().path();
                        if request.extensions().get::<Named>().is_none() || path == "/no" {
                            let mut response = Response::new(());
                            if path == "/no" {
                                *response.status_mut() = StatusCode::NOT_FOUND;
                            }
                            let text = format!("{} {path}", request.method());
                            let mut send = respond.send_response(response, false).expect("it is open");
                            send.send_data(Bytes::from(text), true).expect("it is open");
                            continue;
                        }
                        let echoed = echo(request, respond);
                        tokio::spawn(echoed);
                    }
                });
            }
        });
    });
    address
}

async fn echo(request: Request<RecvStream>, mut respond: h2::server::SendResponse<Bytes>) {
    let head = request.headers();
    assert!(head.get("sec-websocket-key").is_none() && head.get("sec-websocket-version").is_some());
    assert_eq!((request.uri().scheme_str(), request.uri().path().ends_with("/chat")), (Some("http"), true));
    let mut response = Response::new(());
    response.headers_mut().insert("sec-websocket-protocol", http::HeaderValue::from_static("chat"));
    let mut send = respond.send_response(response, false).expect("it is open");
    send.send_data(Bytes::from("hello"), false).expect("it is open");
    let mut incoming = request.into_body();
    while let Some(Ok(piece)) = incoming.data().await {
        let _ = incoming.flow_control().release_capacity(piece.len());
        if send.send_data(piece, false).is_err() {
            return;
        }
    }
    let _ = send.send_data(Bytes::from("bye"), true);
}

fn stage(node: SocketAddr) -> Stage {
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\nupstreams: {{ web: {{ protocol: h2, nodes: \"{node}\" }} }}\n{}",
        windowed(1)
    );
    Stage::open(&text)
}

fn ask(path: &str, protocol: &'static str) -> Request<()> {
    let request = request("CONNECT", path).header("sec-websocket-version", "13").header("origin", "http://a.test");
    request.extension(Named::from_static(protocol)).body(()).expect("it is sound")
}

/// A client's side of a tunnel.
struct Tunnel {
    fields: HeaderMap,
    incoming: RecvStream,
    send: SendStream<Bytes>,
}

impl Tunnel {
    fn open(client: &mut Client) -> Tunnel {
        let (response, send) = client.begin(ask("/chat", "websocket"), false);
        Tunnel::granted(client, response, send)
    }

    fn granted(client: &Client, response: h2::client::ResponseFuture, send: SendStream<Bytes>) -> Tunnel {
        let (head, incoming) = client.head(response).expect("a response").into_parts();
        assert_eq!(head.status, 200);
        Tunnel { fields: head.headers, incoming, send }
    }

    /// Reads until `count` bytes have come, or the end.
    fn read(&mut self, client: &Client, count: usize) -> Result<String, h2::Error> {
        let mut all = Vec::new();
        while all.len() < count {
            let Some(piece) = client.wait(self.incoming.data()) else { break };
            let piece = piece?;
            self.incoming.flow_control().release_capacity(piece.len())?;
            all.extend_from_slice(&piece);
        }
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}

fn refused(whole: &Whole) -> (u16, Option<&str>) {
    (whole.head.status().as_u16(), whole.header("proxy-status"))
}

#[test]
fn a_stream_becomes_a_tunnel_to_a_node_over_http1() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let mut client = Client::connect(stage.address());
    let (response, mut send) = client.begin(ask("/chat?room=1", "websocket"), false);
    // Before it is known whether there is a tunnel.
    send.send_data(Bytes::from("first"), false).expect("it is open");
    let call = node.call();
    assert_eq!(call.line(), "GET /chat?room=1 HTTP/1.1");
    for (name, value) in [
        ("host", Some("a.test")),
        ("upgrade", Some("websocket")),
        ("connection", Some("upgrade")),
        ("sec-websocket-version", Some("13")),
        ("origin", Some("http://a.test")),
        ("transfer-encoding", None),
        ("content-length", None),
        ("via", Some("2.0 weirgate")),
    ] {
        assert_eq!(call.header(name).as_deref(), value, "{name}");
    }
    let key = call.header("sec-websocket-key").expect("a key");
    call.write(format!("{}hello", grant(&key)));
    let mut tunnel = Tunnel::granted(&client, response, send);
    let field = |name: &str| tunnel.fields.get(name).map(|value| value.to_str().expect("ASCII").to_owned());
    assert_eq!((field("sec-websocket-protocol").as_deref(), field("sec-websocket-accept")), (Some("chat"), None));
    assert_eq!((field("upgrade"), field("connection")), (None, None));
    assert_eq!(tunnel.read(&client, 5).expect("bytes"), "hello");
    let mut got = [0; 5];
    (&call.stream).read_exact(&mut got).expect("the tunnel");
    assert_eq!(&got, b"first");
    // It holds no slot, and other streams of the connection go on.
    wait_until("the slot is free", || stage.is_empty());
    let (other, _) = client.begin(get("/other"), true);
    node.call().ok("x");
    assert_eq!(client.finish(other).expect("a response").text(), "x");
    // Each side ends its direction on its own.
    tunnel.send.send_data(Bytes::from("last!"), true).expect("it is open");
    let mut rest = Vec::new();
    (&call.stream).read_to_end(&mut rest).expect("the end");
    assert_eq!(rest, b"last!");
    call.write("after");
    call.stream.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(tunnel.read(&client, usize::MAX).expect("the end"), "after");
    let mut records = [stage.record(), stage.record()];
    records.sort_by_key(|record| record.bytes_in);
    let [_, record] = &records;
    assert_eq!((record.ending, record.status, record.protocol), (Ending::Tunnelled, 200, Protocol::Http2));
    assert_eq!((record.bytes_in, record.bytes_out, record.path.as_str()), (10, 10, "/chat?room=1"));
}

#[test]
fn resets_pass_in_both_directions() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let mut client = Client::connect(stage.address());
    let (response, send) = client.begin(ask("/chat", "websocket"), false);
    let call = node.call();
    call.write(grant(&call.header("sec-websocket-key").expect("a key")));
    let mut tunnel = Tunnel::granted(&client, response, send);
    tunnel.send.send_reset(Reason::CANCEL);
    assert_eq!((&call.stream).read(&mut [0]).unwrap_or(0), 0, "the node's side is closed");
    // A node that resets its connection once the tunnel has moved a byte.
    let node = Node::raw(|_, mut stream| {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(char::from(byte[0]));
        }
        let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).expect("a key");
        stream.write_all(grant(key).as_bytes())?;
        stream.read_exact(&mut [0])?;
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))
    });
    let stage = Stage::open(&policy(&[&node], &windowed(1)));
    let mut client = Client::connect(stage.address());
    let mut tunnel = Tunnel::open(&mut client);
    tunnel.send.send_data(Bytes::from("x"), false).expect("it is open");
    assert_eq!(tunnel.read(&client, 1).expect_err("a reset").reason(), Some(Reason::CANCEL));
}

#[test]
fn an_answer_without_a_tunnel_is_none() {
    let node = Node::replying(|head, _| match head.split(' ').nth(1) {
        Some("/page") => ok("a page"),
        Some("/stranger") => grant("another key").into_bytes(),
        _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_vec(),
    });
    let stage = Stage::open(&policy(&[&node], &windowed(1)));
    let mut client = Client::connect(stage.address());
    let mut answer = |request: Request<()>| {
        let (response, _send) = client.begin(request, false);
        client.finish(response).expect("a response")
    };
    let upgrade = Some("weirgate; error=http_upgrade_failed");
    // A success would be a tunnel for the client. It is no failure of the node.
    for _ in 0..10 {
        assert_eq!(refused(&answer(ask("/page", "websocket"))), (502, upgrade));
    }
    assert_eq!(stage.gateway.control().snapshot().nodes[0].failed, 0);
    assert_eq!(answer(ask("/none", "websocket")).text(), "none");
    assert_eq!(refused(&answer(ask("/stranger", "websocket"))), (502, upgrade));
    assert_eq!(refused(&answer(ask("/chat", "connect-udp"))).0, 501);
    let plain = Request::builder().method("CONNECT").uri("a.test:443").body(()).expect("it is sound");
    assert_eq!(refused(&answer(plain)).0, 405);
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn a_client_over_http1_reaches_a_node_over_http2() {
    let stage = stage(node(true));
    let mut client = stage.client();
    client.send(format!("{ASK}first"));
    let answer = client.head_answer();
    assert_eq!(answer.status, 101);
    for (name, value) in [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ("sec-websocket-protocol", "chat"),
    ] {
        assert_eq!(answer.header(name).as_deref(), Some(value), "{name}");
    }
    wait_until("the slot is free", || stage.is_empty());
    client.send("second");
    client.stream().shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(String::from_utf8_lossy(&client.rest()), "hellofirstsecondbye");
    let record = stage.record();
    assert_eq!((record.ending, record.status, record.bytes_in, record.bytes_out), (Ending::Tunnelled, 101, 11, 19));
    // An answer that is none is passed on.
    let mut client = stage.client();
    client.send(ASK.replace("/chat", "/no"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str()), (404, "CONNECT /no"));
}

#[test]
fn both_sides_may_speak_http2() {
    let stage = stage(node(true));
    let mut client = Client::connect(stage.address());
    let mut tunnels: Vec<Tunnel> = (0..5).map(|_| Tunnel::open(&mut client)).collect();
    for (nth, tunnel) in tunnels.iter_mut().enumerate() {
        let text = format!("{nth}").repeat(100_000);
        assert_eq!(tunnel.fields.get("sec-websocket-protocol").map(http::HeaderValue::as_bytes), Some(&b"chat"[..]));
        tunnel.send.send_data(Bytes::from(text.clone()), true).expect("it is open");
        assert_eq!(tunnel.read(&client, usize::MAX).expect("bytes"), format!("hello{text}bye"));
    }
    wait_until("all slots are free", || stage.is_empty());
    // Ordinary requests share the connections.
    assert_eq!(client.get("/x").expect("a response").text(), "GET /x");
}

#[test]
fn a_node_that_takes_no_tunnels_gets_an_ordinary_request() {
    let stage = stage(node(false));
    let mut old = stage.client();
    old.send(ASK);
    let answer = old.answer();
    assert_eq!((answer.status, answer.text().as_str()), (200, "GET /chat"));
    let mut client = Client::connect(stage.address());
    let (response, _send) = client.begin(ask("/chat", "websocket"), false);
    let whole = client.finish(response).expect("a response");
    assert_eq!(refused(&whole), (502, Some("weirgate; error=http_upgrade_failed")));
    assert_eq!(stage.gateway.control().snapshot().nodes[0].failed, 0);
}
