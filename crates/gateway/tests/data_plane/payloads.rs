//! Classes by the first bytes of a body.

use bytes::Bytes;
use weirgate_gateway::Ending;

use super::http2;
use super::stage::{Client, Node, Stage, ok, policy};

/// A class by JSON, one by a form, one by a text. Requests below /fast have a class before their body.
const RULES: &str = "
limits: { body_prefix: 64B }
timeouts: { body: 1s }
discipline: none
classes:
  - { name: fast, match: { path_prefix: /fast } }
  - { name: pay, match: { path: /rpc, body: { json: { /method: pay, /params/0: { prefix: a } } } } }
  - { name: gold, match: { body: { form: { plan: gold } } } }
  - { name: marked, match: { method: POST, body: { contains: 'urgent (1)' } } }
  - { name: plain, match: { not: { body: { pattern: '[0-9]+' } } } }
  - { name: rest }
";

fn stage(node: &Node) -> Stage {
    Stage::open(&policy(&[node], RULES))
}

fn post(path: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const CALL: &str = r#"{"method":"pay","params":["abc"]}"#;

#[test]
fn the_first_bytes_decide_and_the_node_gets_the_whole_body() {
    let node = Node::replying(|_, body| ok(&body.len().to_string()));
    let stage = stage(&node);
    let mut client = stage.client();
    let late = format!("{}plan=gold", "padding&".repeat(10));
    for (request, class, length) in [
        (post("/rpc", JSON, CALL), "pay", CALL.len()),
        (post("/rpc", "application/x+json; charset=utf-8", CALL), "pay", CALL.len()),
        (post("/other", JSON, CALL), "plain", CALL.len()),
        (post("/rpc", "text/plain", CALL), "plain", CALL.len()),
        (post("/", FORM, "a=1&pl%61n=gold"), "gold", 15),
        // What comes after the prefix, or is cut by it, is not seen.
        (post("/", FORM, &late), "plain", late.len()),
        (post("/", FORM, &format!("{}&plan=gold", "x".repeat(60))), "plain", 70),
        (post("/", "text/plain", "an urgent (1) message"), "marked", 21),
        (post("/", "text/plain", "an urgent 1 message"), "rest", 19),
        (post("/", "text/plain", &"a7".repeat(50_000)), "rest", 100_000),
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "plain", 0),
        (post("/", "text/plain", "urgent (1)").replace("Host", "Content-Encoding: gzip\r\nHost"), "plain", 10),
        (post("/", "text/plain", "urgent (1)").replace("Host", "Content-Encoding: identity\r\nHost"), "marked", 10),
    ] {
        client.send(&request);
        assert_eq!((client.answer().text(), stage.record().class), (length.to_string(), class.to_owned()), "{request}");
    }
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nurgent \r\n");
    client.send("3\r\n(1)\r\n0\r\n\r\n");
    assert_eq!((client.answer().text().as_str(), stage.record().class.as_str()), ("10", "marked"));
}

#[test]
fn a_class_that_needs_no_body_waits_for_none() {
    let node = Node::replying(|_, body| ok(&body.len().to_string()));
    let stage = stage(&node);
    // A large body with its first byte is forwarded at once. The prefix of 64 bytes is not waited for.
    let mut client = stage.client();
    client.send("POST /fast HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nx");
    super::stage::wait_until("a connection to the node", || {
        stage.gateway.counters().connects.load(std::sync::atomic::Ordering::Relaxed) == 1
    });
    client.send(vec![b'x'; 99_999]);
    assert_eq!((client.answer().text().as_str(), stage.record().class.as_str()), ("100000", "fast"));
    assert_eq!(node.call().body.len(), 100_000);
}

#[test]
fn a_client_that_waits_is_invited_and_a_slow_one_is_refused() {
    let node = Node::replying(|_, body| ok(&body.len().to_string()));
    let stage = stage(&node);
    let mut client = stage.client();
    assert_eq!(
        client.exchange("POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n").status,
        100
    );
    client.send("urgent (1)");
    assert_eq!((client.answer().text().as_str(), stage.record().class.as_str()), ("10", "marked"));

    let mut slow = Client::connect(stage.address());
    let answer = slow.exchange("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nxxxx");
    let record = stage.record();
    assert_eq!((answer.status, record.class.as_str()), (408, "-"), "{:?}", record.ending);
    assert!(matches!(record.ending, Ending::Refused(_)) && stage.is_empty());
    // One that leaves meanwhile leaves nothing behind.
    let mut gone = Client::connect(stage.address());
    gone.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nxxxx");
    drop(gone);
    assert_eq!(stage.record().ending, Ending::Left);
}

#[test]
fn streams_of_http2_are_read_as_well() {
    let node = Node::replying(|_, body| ok(&body.len().to_string()));
    let stage = stage(&node);
    let mut client = http2::Client::connect(stage.address());
    let mut ask = |kind: &str, pieces: &[&str]| {
        let request = http2::request("POST", "/rpc").header("content-type", kind).body(()).expect("it is sound");
        let (response, mut send) = client.begin(request, false);
        for (at, piece) in pieces.iter().enumerate() {
            send.send_data(Bytes::copy_from_slice(piece.as_bytes()), at + 1 == pieces.len()).expect("it is open");
        }
        (client.finish(response).expect("a response").text(), stage.record().class)
    };
    let (first, second) = CALL.split_at(12);
    assert_eq!(ask(JSON, &[first, second]), (CALL.len().to_string(), "pay".to_owned()));
    assert_eq!(ask(FORM, &["plan=", "gold"]), ("9".to_owned(), "gold".to_owned()));
    assert_eq!(ask(FORM, &[&"1".repeat(70_000)]), ("70000".to_owned(), "rest".to_owned()));
    // The messages of a call are not waited for.
    assert_eq!(ask("application/grpc", &["urgent (1)"]), ("10".to_owned(), "plain".to_owned()));
}
