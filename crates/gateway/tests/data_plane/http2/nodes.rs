//! Nodes that speak HTTP/2, and gRPC from end to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use weirgate_gateway::Ending;

use super::{Client, get, request};
use crate::pki::Pki;
use crate::stage::{Node, Stage, policy, wait_until, windowed};

/// A request as a node received it.
pub(super) struct Call {
    pub(super) head: Request<()>,
    pub(super) body: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// Number of the connection, from 0.
    connection: usize,
}

/// What a node does with a request.
pub(super) enum Act {
    Answer(Box<Response<()>>, Vec<u8>, Option<HeaderMap>),
    Reset(Reason),
}

pub(super) fn answer(body: impl Into<Vec<u8>>) -> Act {
    Act::Answer(Box::new(Response::new(())), body.into(), None)
}

pub(super) fn fields(of: &[(&'static str, &'static str)]) -> HeaderMap {
    of.iter().map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

/// Starts a node. To paths that end with `/Talks` it says hello, and then repeats each piece of the request.
pub(super) fn node(act: impl Fn(Call) -> Act + Send + Sync + 'static) -> SocketAddr {
    node_over(None, act)
}

/// The same over TLS, if settings for it are given.
pub(super) fn node_over(tls: Option<ServerConfig>, act: impl Fn(Call) -> Act + Send + Sync + 'static) -> SocketAddr {
    let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let act = Arc::new(act);
    std::thread::spawn(move || {
        runtime.block_on(async {
            for connection in 0.. {
                let Ok((socket, _)) = listener.accept().await else { return };
                let (tls, act) = (tls.clone(), Arc::clone(&act));
                tokio::spawn(async move {
                    let Some(tls) = tls else { return serve(socket, connection, act).await };
                    if let Ok(socket) = tls.accept(socket).await {
                        serve(socket, connection, act).await;
                    }
                });
            }
        });
    });
    address
}

async fn serve<F: Fn(Call) -> Act + Send + Sync + 'static>(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: usize,
    act: Arc<F>,
) {
    let Ok(mut streams) = h2::server::handshake(socket).await else { return };
    while let Some(Ok((request, mut respond))) = streams.accept().await {
        if request.uri().path() == "/goaway" {
            streams.graceful_shutdown();
        }
        let act = Arc::clone(&act);
        tokio::spawn(async move {
            let (parts, mut incoming) = request.into_parts();
            if parts.uri.path().ends_with("/Talks") {
                let mut send = respond.send_response(Response::new(()), false).expect("it is open");
                send.send_data(Bytes::from("hello"), false).expect("it is open");
                while let Some(Ok(piece)) = incoming.data().await {
                    let _ = incoming.flow_control().release_capacity(piece.len());
                    send.send_data(piece, false).expect("it is open");
                }
                send.send_data(Bytes::new(), true).expect("it is open");
                return;
            }
            if parts.uri.path() == "/hints" {
                let mut hints = Response::new(());
                *hints.status_mut() = http::StatusCode::EARLY_HINTS;
                hints.headers_mut().insert("link", HeaderValue::from_static("</a.css>"));
                respond.send_informational(hints).expect("it is open");
            }
            let mut body = Vec::new();
            while let Some(Ok(piece)) = incoming.data().await {
                let _ = incoming.flow_control().release_capacity(piece.len());
                body.extend_from_slice(&piece);
            }
            let trailers = incoming.trailers().await.ok().flatten();
            match act(Call { head: Request::from_parts(parts, ()), body, trailers, connection }) {
                Act::Answer(head, body, trailers) => {
                    let ended = body.is_empty() && trailers.is_none();
                    let Ok(mut send) = respond.send_response(*head, ended) else { return };
                    if !body.is_empty() {
                        let _ = send.send_data(Bytes::from(body), trailers.is_none());
                    }
                    if let Some(trailers) = trailers {
                        let _ = send.send_trailers(trailers);
                    }
                }
                Act::Reset(reason) => respond.send_reset(reason),
            }
        });
    }
}

fn stage(node: SocketAddr, rest: &str) -> Stage {
    let text = policy(&[&Node::absent()], rest);
    let (before, after) = text.split_once("nodes: [").expect("nodes");
    let (_, after) = after.split_once(']').expect("nodes");
    Stage::open(&format!("{before}protocol: h2, nodes: [{node}]{after}"))
}

#[test]
fn requests_pass_over_tls() {
    let pki = Pki::new();
    let mut config = pki.server(&["127.0.0.1"], false);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let address = node_over(Some(config), |call| {
        let uri = call.head.uri();
        answer(format!("{} {} {} {}", uri.scheme_str().unwrap_or("-"), uri.path(), call.connection, call.body.len()))
    });
    let tls = format!("tls: {{ ca: {} }}", pki.path("ca.pem").display());
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\nupstreams: {{ web: {{ protocol: h2, nodes: \"{address}\", {tls} \
         }} }}\n{}",
        windowed(10)
    );
    let stage = Stage::open(&text);
    let mut client = Client::connect(stage.address());
    for _ in 0..3 {
        assert_eq!(client.ask(get("/a")).expect("a response").text(), "https /a 0 0");
    }
    let mut old = stage.client();
    old.send("POST /b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\n");
    assert_eq!(old.exchange(vec![b'x'; 100_000]).text(), "https /b 0 100000");
}

#[test]
fn a_node_over_tls_has_to_agree_on_http2() {
    for protocols in [vec![], vec![b"http/1.1".to_vec()]] {
        let pki = Pki::new();
        let mut config = pki.server(&["127.0.0.1"], false);
        config.alpn_protocols = protocols;
        let address = node_over(Some(config), |_| answer("HTTP/2 all the same"));
        let tls = format!("tls: {{ ca: {} }}", pki.path("ca.pem").display());
        let stage = Stage::open(&format!(
            "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\nupstreams: {{ web: {{ protocol: h2, nodes: \"{address}\", \
             {tls} }} }}\n{}",
            windowed(10)
        ));
        let answer = stage.ask("/");
        // A server that has other protocols ends the handshake itself.
        let why = answer.header("proxy-status").unwrap_or_default();
        assert!(answer.status == 502 && why.contains("error=tls_"), "{} {why}", answer.status);
    }
}

#[test]
fn requests_share_a_connection() {
    let address = node(|call| {
        let te = call.head.headers().get("te").and_then(|te| te.to_str().ok()).unwrap_or("-").to_owned();
        let authority = call.head.uri().authority().map_or("-", |a| a.as_str()).to_owned();
        let via = call.head.headers().get("via").and_then(|via| via.to_str().ok()).unwrap_or("-").to_owned();
        answer(format!("{} {authority} {} {te} {via} {}", call.head.method(), call.head.uri().path(), call.connection))
    });
    let stage = stage(address, &windowed(10));
    let mut client = Client::connect(stage.address());
    for _ in 0..10 {
        let request = request("GET", "/a//b").header("te", "trailers").body(()).expect("it is sound");
        assert_eq!(client.ask(request).expect("a response").text(), "GET a.test /a//b trailers 2.0 weirgate 0");
    }
    assert_eq!(stage.gateway.counters().connects.load(Ordering::Relaxed), 1);
    // So do those of clients that speak HTTP/1.1, on any thread.
    let text = stage.ask("/x").text();
    assert!(text.starts_with("GET a.test /x - 1.1 weirgate "), "{text}");
}

#[test]
fn bodies_and_trailers_pass() {
    let address = node(|call| {
        let sum = call.trailers.as_ref().and_then(|t| t.get("x-sum")).map_or("none", |v| v.to_str().expect("ASCII"));
        let body = format!("{} {sum}", call.body.len());
        Act::Answer(Box::new(Response::new(())), body.into_bytes(), Some(fields(&[("x-end", "here")])))
    });
    let stage = stage(address, &windowed(10));
    let mut client = Client::connect(stage.address());
    for length in [0, 10, 70_000, 2_000_000] {
        let (response, mut send) = client.begin(request("POST", "/").body(()).expect("it is sound"), false);
        send.send_data(Bytes::from(vec![b'x'; length]), false).expect("it is open");
        send.send_trailers(fields(&[("x-sum", "7")])).expect("it is open");
        let whole = client.finish(response).expect("a response");
        assert_eq!(whole.text(), format!("{length} 7"));
        assert_eq!(whole.trailers, Some(fields(&[("x-end", "here")])));
    }
    assert_eq!(
        stage.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").text(),
        "3 nonex-end: here\n"
    );
}

#[test]
fn large_responses_and_heads_alone_pass() {
    let body = "0123456789abcdef".repeat(100_000);
    let sent = body.clone();
    let address = node(move |call| match call.head.uri().path() {
        "/large" => answer(sent.clone()),
        "/204" => {
            let mut head = Response::new(());
            *head.status_mut() = http::StatusCode::NO_CONTENT;
            Act::Answer(Box::new(head), Vec::new(), None)
        }
        _ => answer(""),
    });
    let stage = stage(address, &windowed(10));
    let mut client = Client::connect(stage.address());
    assert!(client.get("/large").expect("a response").text() == body, "another body");
    assert_eq!(client.get("/204").expect("a response").head.status(), 204);
    assert_eq!(client.get("/empty").expect("a response").text(), "");
    let head = client.ask(request("HEAD", "/x").body(()).expect("it is sound")).expect("a response");
    assert_eq!((head.head.status().as_u16(), head.body.len()), (200, 0));
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn interim_responses_and_priorities_pass() {
    let address = node(|call| {
        let mut head = Response::new(());
        let urgency = call.head.headers().get("priority").cloned().expect("a priority");
        head.headers_mut().insert("x-asked", urgency);
        head.headers_mut().insert("priority", HeaderValue::from_static("u=1"));
        Act::Answer(Box::new(head), b"x".to_vec(), None)
    });
    let stage = stage(address, &windowed(10));
    let mut client = Client::connect(stage.address());
    let head = request("GET", "/hints").header("priority", "u=5, i").body(()).expect("it is sound");
    let (mut response, _) = client.begin(head, true);
    let hints = client.wait(std::future::poll_fn(|cx| response.poll_informational(cx)));
    let hints = hints.expect("an interim response").expect("it is sound");
    assert_eq!((hints.status().as_u16(), hints.headers().get("link").is_some()), (103, true));
    let whole = client.finish(response).expect("a response");
    assert_eq!(
        (whole.header("x-asked"), whole.header("priority"), &whole.text()[..]),
        (Some("u=5, i"), Some("u=1"), "x")
    );
    let mut old = stage.client();
    old.send("GET /hints HTTP/1.1\r\nHost: a\r\nPriority: u=0\r\n\r\n");
    let hints = old.head_answer();
    assert_eq!((hints.status, hints.header("link").as_deref()), (103, Some("</a.css>")));
    let answer = old.answer();
    assert_eq!((answer.header("x-asked").as_deref(), answer.header("priority").as_deref()), (Some("u=0"), Some("u=1")));
}

#[test]
fn only_streams_that_were_not_processed_are_sent_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let address = node(move |call| {
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        match (call.head.uri().path(), call.connection) {
            ("/refused", 0) => Act::Reset(Reason::REFUSED_STREAM),
            ("/failed", _) => Act::Reset(Reason::INTERNAL_ERROR),
            _ => answer(format!("{nth}")),
        }
    });
    let stage = stage(address, &windowed(10));
    let mut client = Client::connect(stage.address());
    let mut post = |path: &str| {
        let head = request("POST", path).header("content-length", 3).body(()).expect("it is sound");
        let (response, mut send) = client.begin(head, false);
        send.send_data(Bytes::from("abc"), true).expect("it is open");
        client.finish(response).expect("a response").head.status().as_u16()
    };
    assert_eq!(post("/first"), 200);
    // Refused on the connection that is there, and sent again on a new one, although a POST is not repeatable.
    let before = calls.load(Ordering::SeqCst);
    assert_eq!(post("/refused"), 200);
    assert_eq!(calls.load(Ordering::SeqCst), before + 2);
    // Processed perhaps.
    let before = calls.load(Ordering::SeqCst);
    assert_eq!(post("/failed"), 502);
    assert_eq!(calls.load(Ordering::SeqCst), before + 1);
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn a_connection_that_ended_is_replaced() {
    let address = node(|call| answer(call.connection.to_string()));
    let stage = stage(address, &windowed(10));
    let mut client = Client::connect(stage.address());
    assert_eq!(client.get("/").expect("a response").text(), "0");
    // The node answers, and ends the connection with a GOAWAY.
    assert_eq!(client.get("/goaway").expect("a response").text(), "0");
    wait_until("another connection is used", || client.get("/").expect("a response").text() == "1");
}

fn grpc(path: &str) -> http::request::Builder {
    request("POST", path).header("content-type", "application/grpc").header("te", "trailers")
}

#[test]
fn calls_of_grpc_pass_from_end_to_end() {
    let address = node(|call| {
        assert_eq!(call.head.headers().get("te"), Some(&HeaderValue::from_static("trailers")));
        let mut head = Response::new(());
        head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        match call.head.uri().path() {
            "/a.B/Fails" => {
                head.headers_mut().insert("grpc-status", HeaderValue::from_static("5"));
                Act::Answer(Box::new(head), Vec::new(), None)
            }
            _ => Act::Answer(Box::new(head), call.body, Some(fields(&[("grpc-status", "0")]))),
        }
    });
    let stage = stage(address, &windowed(10));
    let mut client = Client::connect(stage.address());
    let (response, mut send) = client.begin(grpc("/a.B/Echo").body(()).expect("it is sound"), false);
    send.send_data(Bytes::from_static(b"\0\0\0\0\x03abc"), true).expect("it is open");
    let whole = client.finish(response).expect("a response");
    assert_eq!((&whole.body[..], whole.trailers), (&b"\0\0\0\0\x03abc"[..], Some(fields(&[("grpc-status", "0")]))));
    let (response, mut send) = client.begin(grpc("/a.B/Fails").body(()).expect("it is sound"), false);
    send.send_data(Bytes::from_static(b"\0\0\0\0\0"), true).expect("it is open");
    let whole = client.finish(response).expect("a response");
    assert_eq!((whole.header("grpc-status"), whole.body.len()), (Some("5"), 0));
}

#[test]
fn the_server_of_a_call_may_speak_first_and_the_client_be_silent() {
    let address = node(|_| answer(""));
    let stage = stage(address, &format!("{}timeouts: {{ body: 1s }}\n", windowed(10)));
    let mut client = Client::connect(stage.address());
    let (response, mut send) = client.begin(grpc("/a.B/Talks").body(()).expect("it is sound"), false);
    let mut incoming = client.head(response).expect("a head").into_body();
    assert_eq!(client.wait(incoming.data()).expect("not the end").expect("a piece"), "hello");
    // Longer than the time for the bodies of other requests.
    std::thread::park_timeout(Duration::from_millis(1500));
    for word in ["one", "two"] {
        send.send_data(Bytes::from(word), false).expect("it is open");
        assert_eq!(client.wait(incoming.data()).expect("not the end").expect("a piece"), word);
    }
    send.send_data(Bytes::new(), true).expect("it is open");
    // The end may come as an empty piece.
    assert!(client.wait(incoming.data()).is_none_or(|piece| piece.expect("not an error").is_empty()));
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn refusals_of_calls_are_trailers_alone() {
    let rest = windowed(1).replace("name: all", "name: all, queue: { max_waiting: 1 }");
    let (node, stage) = Stage::of(Node::scripted(), &rest);
    let mut client = Client::connect(stage.address());
    let (first, _) = client.begin(get("/1"), true);
    let in_flight = node.call();
    // One call waits, until its deadline.
    let waiting = grpc("/a.B/Waits").header("grpc-timeout", "300m").body(()).expect("it is sound");
    let (waiting, _) = client.begin(waiting, true);
    wait_until("one waits", || stage.waiting() == 1);
    let shed = client.ask(grpc("/a.B/Shed").body(()).expect("it is sound")).expect("a response");
    assert_eq!((shed.head.status().as_u16(), shed.header("grpc-status")), (200, Some("14")));
    assert_eq!((shed.header("grpc-message"), shed.body.len()), (Some("queue_full"), 0));
    let pushback: u64 = shed.header("grpc-retry-pushback-ms").and_then(|ms| ms.parse().ok()).expect("a time");
    assert!(pushback >= 1000);
    assert_eq!(stage.record().ending, Ending::Shed(weirgate_engine::ShedReason::QueueFull));
    let late = client.finish(waiting).expect("a response");
    assert_eq!((late.header("grpc-status"), late.header("grpc-message")), (Some("4"), Some("deadline_exceeded")));
    let record = stage.record();
    assert_eq!(record.ending, Ending::Failed("deadline_exceeded"));
    assert!(record.total >= Duration::from_millis(280), "{record:?}");
    in_flight.ok("1");
    assert_eq!(client.finish(first).expect("a response").text(), "1");
    wait_until("all slots are free", || stage.is_empty());
    // Nodes fail, and rules are broken, in the same form.
    drop(node);
    let broken = client.ask(grpc("/%00").body(()).expect("it is sound")).expect("a response");
    assert_eq!(broken.header("grpc-status"), Some("13"));
}
