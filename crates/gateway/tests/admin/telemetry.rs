//! Export of traces and metrics to a receiver that keeps to the specification of OTLP's JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

use tokio_rustls::rustls;

use crate::{PATIENCE, Scratch, Start, exchange, node};

/// A request to the receiver: its path and its body.
type Export = (String, Value);

/// Starts a receiver that answers with `answers`, and then with 200 and no refusal.
fn receiver(answers: &'static [(u16, &'static str)]) -> (SocketAddr, Receiver<Export>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (sender, exports) = channel();
    std::thread::spawn(move || {
        let mut answers = answers.iter().copied().chain(std::iter::repeat((200, "{}")));
        for stream in listener.incoming().flatten() {
            let (status, body) = answers.next().expect("endless");
            if take(stream, &sender, status, body).is_none() {
                return;
            }
        }
    });
    (address, exports)
}

/// Starts a receiver over TLS that checks the key `key`. Returns the certificate, too.
fn secret_receiver() -> (SocketAddr, String, Receiver<Export>) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let config = rustls::ServerConfig::builder_with_provider(weirgate_tls::provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], own.signing_key.into())
        .map(std::sync::Arc::new)
        .expect("a configuration");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (sender, exports) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = rustls::ServerConnection::new(std::sync::Arc::clone(&config)).expect("a session");
            // A client that does not know the certificate breaks off.
            let _ = take(rustls::StreamOwned::new(session, stream), &sender, 200, "{}");
        }
    });
    (address, own.cert.pem(), exports)
}

fn take(mut stream: impl Read + Write, exports: &Sender<Export>, status: u16, answer: &str) -> Option<()> {
    let mut reader = BufReader::new(&mut stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|count| *count > 0)?;
    }
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!(field("content-type:"), Some("application/json"));
    let mut body = vec![0; field("content-length:").and_then(|length| length.parse().ok()).expect("a length")];
    reader.read_exact(&mut body).ok()?;
    let mut path = head.split(' ').nth(1).expect("a path").to_owned();
    if field("content-encoding:") == Some("gzip") {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).expect("gzip");
        assert!(body.len() < plain.len());
        body = plain;
    }
    if let Some(key) = field("x-key:") {
        path = format!("{key} {path}");
    }
    let json: Value = serde_json::from_slice(&body).expect("JSON");
    keeps_the_rules("", &json);
    let text = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}", answer.len());
    stream.write_all(text.as_bytes()).ok()?;
    exports.send((path, json)).ok()
}

/// Checks the rules of OTLP's JSON: ids in hexadecimal digits, 64-bit integers as strings, enumerations as numbers,
/// names in camel case.
fn keeps_the_rules(key: &str, value: &Value) {
    let is = |digits: usize, radix| {
        value.as_str().is_some_and(|text| {
            (digits == 0 || text.len() == digits) && !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
        })
    };
    match key {
        "traceId" => assert!(is(32, 16), "{value}"),
        "spanId" | "parentSpanId" => assert!(is(16, 16), "{value}"),
        "intValue" | "asInt" | "count" | "startTimeUnixNano" | "endTimeUnixNano" | "timeUnixNano" => {
            assert!(is(0, 10), "{key} {value}");
        }
        "bucketCounts" => assert!(value.as_array().expect("a list").iter().all(Value::is_string)),
        "kind" | "code" | "aggregationTemporality" | "flags" => assert!(value.is_u64(), "{key} {value}"),
        _ => {}
    }
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            assert!(!key.contains('_') && key.starts_with(|c: char| c.is_ascii_lowercase()), "{key}");
            keeps_the_rules(key, value);
        }),
        Value::Array(all) => all.iter().for_each(|value| keeps_the_rules("", value)),
        _ => {}
    }
}

fn policy(receiver: SocketAddr, path: &str) -> String {
    format!(
        "telemetry: {{ otlp: 'http://{receiver}{path}', traces: 100%, metrics_every: 1s, service: shop }}\n\
         classes: [{{ name: gold, match: {{ host: gold.test }} }}, {{ name: other }}]\n"
    )
}

/// Waits for the spans of the next export of traces below `path`.
fn spans(exports: &Receiver<Export>, path: &str) -> Vec<Value> {
    loop {
        let (at, body) = exports.recv_timeout(PATIENCE).expect("an export");
        if at == format!("{path}/v1/traces") {
            let resource = &body["resourceSpans"][0];
            let named = json!({ "key": "service.name", "value": { "stringValue": "shop" } });
            assert_eq!(resource["resource"]["attributes"][0], named);
            return resource["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
        }
        assert_eq!(at, format!("{path}/v1/metrics"));
    }
}

/// Returns the value of an attribute without its type.
fn attribute<'v>(of: &'v Value, key: &str) -> Option<&'v Value> {
    let all = of["attributes"].as_array()?;
    let value = &all.iter().find(|attribute| attribute["key"] == key)?["value"];
    value.as_object()?.values().next()
}

#[test]
fn spans_of_requests_reach_a_collector() {
    let (address, exports) = receiver(&[]);
    let running = Start { policy: &policy(address, "/otlp/"), ..Start::default() }.before(node());
    let request = "GET /cart?a=1&sig=secret HTTP/1.1\r\nHost: gold.test\r\nUser-Agent: test\r\n\
                   traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(running.address(), request.as_bytes()).status, 200);
    let span = spans(&exports, "/otlp").remove(0);
    assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!((&span["parentSpanId"], &span["name"]), (&json!("00f067aa0ba902b7"), &json!("GET")));
    assert_eq!((&span["kind"], &span["flags"], &span["status"]), (&json!(2), &json!(0x301), &json!({})));
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/cart"),
        ("url.query", "a=1&sig=REDACTED"),
        ("url.scheme", "http"),
        ("http.response.status_code", "200"),
        ("server.address", "gold.test"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test"),
        ("http.response.body.size", "2"),
        ("weirgate.class", "gold"),
        ("weirgate.ending", "served"),
        ("weirgate.retries", "0"),
    ] {
        assert_eq!(attribute(&span, key), Some(&json!(value)), "{key} in {span}");
    }
    assert!(attribute(&span, "weirgate.queue_wait_ms").is_some_and(Value::is_number));
    assert_eq!(attribute(&span, "error.type"), None);
    let time = |of: &Value| of.as_str().and_then(|nanos| nanos.parse::<u64>().ok()).expect("a time");
    let events = span["events"].as_array().expect("events");
    let times =
        [&span["startTimeUnixNano"], &events[0]["timeUnixNano"], &events[1]["timeUnixNano"], &span["endTimeUnixNano"]];
    assert!(times.map(time).is_sorted(), "{span}");
    // The record reaches one observer after the other.
    let exemplar = loop {
        let page = running.ask("GET", "/metrics", &["Accept: application/openmetrics-text; version=1.0.0"]).body;
        let mut buckets = page.lines().filter(|line| line.starts_with("weirgate_response_time_seconds_bucket{"));
        if let Some(line) = buckets.find(|line| line.contains(" # {")) {
            assert!(line.contains("class=\"gold\""), "{line}");
            break line.split_once(" # ").map(|(_, exemplar)| exemplar.to_owned()).unwrap_or_default();
        }
        std::thread::yield_now();
    };
    let ids = format!("{{trace_id={},span_id={}}} ", span["traceId"], span["spanId"]);
    assert!(exemplar.starts_with(&ids), "{exemplar} is not of {ids}");
    assert!(!running.get("/metrics").body.contains(" # {"), "the older format has none");
}

#[test]
fn a_distant_collector_is_reached_over_tls_with_a_key() {
    let (address, certificate, exports) = secret_receiver();
    let files = Scratch(tempfile::tempdir().expect("a folder"));
    let ca = files.write("ca.pem", &certificate);
    let keys = files.write("keys", "X-Key: one\n");
    let text = policy(address, "")
        .replace("http://", "https://")
        .replace("traces: 100%", &format!("traces: 100%, ca: {}, headers_file: {}", ca.display(), keys.display()));
    let running = Start { policy: &text, ..Start::default() }.before(node());
    let request = b"GET / HTTP/1.1\r\nHost: gold.test\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(running.address(), request).status, 200);
    let taken = |key: &str| loop {
        let (path, _) = exports.recv_timeout(PATIENCE).expect("an export");
        if path == format!("{key} /v1/traces") {
            break;
        }
    };
    taken("one");
    // A key is changed without a reload.
    files.write("keys", "# a new one\nX-Key: two\n");
    assert_eq!(exchange(running.address(), request).status, 200);
    taken("two");
    assert_eq!(running.telemetry.failures(), 0);
    files.write("keys", "X-Key\n");
    while running.telemetry.failures() == 0 {
        std::thread::yield_now();
    }
    // A certificate of another authority is not trusted. The file is read again after each failure.
    drop(running);
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    files.write("keys", "X-Key: three\n");
    files.write("ca.pem", &other.cert.pem());
    let running = Start { policy: &text, ..Start::default() }.before(node());
    assert_eq!(exchange(running.address(), request).status, 200);
    while running.telemetry.failures() == 0 {
        std::thread::yield_now();
    }
    assert!(exports.try_iter().all(|(path, _)| !path.starts_with("three")), "nothing is sent to another one");
    files.write("ca.pem", &certificate);
    taken("three");
}

#[test]
fn failures_are_errors_and_metrics_are_those_of_the_page() {
    let (address, exports) = receiver(&[]);
    let running = Start { policy: &policy(address, ""), ..Start::default() }.before(closed());
    let request = b"BREW / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(running.address(), request).status, 502);
    let span = spans(&exports, "").remove(0);
    assert_eq!((&span["status"]["code"], &span["name"]), (&json!(2), &json!("HTTP")));
    assert_eq!(attribute(&span, "http.request.method_original"), Some(&json!("BREW")));
    assert_eq!(attribute(&span, "error.type"), Some(&json!("connection_refused")));
    assert_eq!(span["parentSpanId"], Value::Null);
    // The next export of metrics is made after the request.
    let metrics = loop {
        let (path, body) = exports.recv_timeout(PATIENCE).expect("an export");
        if path == "/v1/metrics" {
            break body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics").clone();
        }
    };
    let metric = |name: &str| metrics.iter().find(|metric| metric["name"] == name).expect(name);
    let point = |points: &Value, class: &str| {
        let mut all = points["dataPoints"].as_array().expect("points").iter();
        all.find(|point| attribute(point, "class") == Some(&json!(class))).expect(class).clone()
    };
    let failed = &metric("weirgate_failed")["sum"];
    assert_eq!((&failed["isMonotonic"], &failed["dataPoints"][0]["asInt"]), (&json!(true), &json!("1")));
    let wait = metric("weirgate_queue_wait_seconds");
    let waits = point(&wait["histogram"], "other");
    assert_eq!((&wait["unit"], &waits["count"]), (&json!("s"), &json!("1")));
    let lengths = ["bucketCounts", "explicitBounds"].map(|list| waits[list].as_array().expect("a list").len());
    assert_eq!(lengths, [15, 14]);
    assert!(metric("weirgate_window")["gauge"]["dataPoints"][0]["timeUnixNano"].is_string());
    assert!(metrics.len() > 50, "{}", metrics.len());
}

#[test]
fn spans_that_a_collector_does_not_take_are_sent_again_or_counted() {
    const REFUSAL: &str = r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"odd"}}"#;
    let (address, exports) = receiver(&[(503, ""), (200, REFUSAL), (400, "")]);
    let without_metrics = policy(address, "").replace("metrics_every: 1s", "metrics_every: off");
    let running = Start { policy: &without_metrics, ..Start::default() }.before(node());
    let request = b"GET / HTTP/1.1\r\nHost: gold.test\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(running.address(), request).status, 200);
    let first = spans(&exports, "");
    assert_eq!(spans(&exports, ""), first, "sent again after 503");
    assert_eq!(exchange(running.address(), request).status, 200);
    assert_ne!(spans(&exports, ""), first, "a partial success is not sent again");
    assert_eq!(exchange(running.address(), request).status, 200);
    spans(&exports, "");
    // Counted after the answer, so the end of the exporter is waited for.
    running.telemetry.close();
    let telemetry = &running.telemetry;
    assert_eq!((telemetry.exported(), telemetry.lost(), telemetry.failures()), (1, 2, 3));
}

/// Returns an address at which nothing listens.
fn closed() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}
