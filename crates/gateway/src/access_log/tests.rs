//! Tests of the content of log lines, and of a log that cannot be written: it must delay nothing.

use std::sync::mpsc;

use weirgate_config::{AccessField, AccessFormat};
use weirgate_engine::{ShedReason, Would};

use super::*;
use crate::request::Request;
use crate::trace::{Trace, TraceIds};

fn record(target: &str) -> AccessRecord<'static> {
    let head = format!(
        "GET {target} HTTP/1.1\r\nHost: a.test\r\n\
         traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"
    );
    // A record borrows. Tests are short.
    let request: &'static Request = Box::leak(Box::new(Request::parse(head.as_bytes()).unwrap()));
    let trace: &'static Trace = Box::leak(Box::new(TraceIds::new().of(request, 0.0, false)));
    AccessRecord {
        version: 3,
        node: Some("n1"),
        queue_wait: Duration::from_micros(1500),
        service_time: Duration::from_millis(8),
        total: Duration::from_millis(10),
        bytes_in: 1,
        bytes_out: 2,
        trace_id: Some(&trace.id),
        ..AccessRecord::served(request, "gold")
    }
}

fn config(file: Option<&Path>, sample: f64) -> Config {
    Config { file: file.map(Path::to_owned), sample, format: AccessFormat::Json, fields: AccessField::USUAL.to_vec() }
}

/// A file for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("weirgate-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Scratch(path)
    }

    fn lines(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&self.0).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A sink that reports each write and blocks until the test lets it go on.
struct Gate {
    entered: mpsc::Sender<usize>,
    go: mpsc::Receiver<()>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.entered.send(bytes.len());
        // An error means that the test has ended.
        let _ = self.go.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_line_tells_everything_about_a_request() {
    let file = Scratch::new("fields");
    let log = Arc::new(AccessLog::start(Some(&config(Some(&file.0), 1.0))).unwrap());
    log.observe(&record("/x?q=1"));
    let shed = AccessRecord { ending: Ending::Shed(ShedReason::QueueFull), status: 503, node: None, ..record("/") };
    log.observe(&shed);
    let identity = Some(weirgate_tls::Identity { subject: "CN=\"a\"".to_owned(), ..Default::default() });
    let tls = crate::ClientTls { version: "1.3", sni: None, identity };
    log.observe(&AccessRecord { tls: Some(&tls), ..record("/") });
    log.observe(&AccessRecord { would: Some(Would::Shed(ShedReason::Overload)), ..record("/") });
    drop(log);
    let lines = file.lines();
    assert_eq!(lines.len(), 4);
    let expected = serde_json::json!({
        "class": "gold", "ending": "served", "status": 200, "protocol": "HTTP/1.1", "method": "GET", "host": "a.test", "path": "/x?q=1",
        "client": "192.0.2.1", "scheme": "http", "node": "n1", "retries": 0, "queue_wait_ms": 1.5, "service_time_ms": 8.0,
        "total_ms": 10.0, "bytes_in": 1, "bytes_out": 2, "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "policy_version": 3, "time": lines[0]["time"],
    });
    assert_eq!(lines[0], expected);
    assert_eq!((&lines[1]["ending"], &lines[1]["reason"]), (&"shed".into(), &"queue_full".into()));
    let text = std::fs::read_to_string(&file.0).unwrap();
    for (line, value) in text.lines().zip(&lines) {
        let read: weirgate_wire::access_log::LoggedRequest<'_> = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), *value, "the readers' type has every field");
    }
    assert_eq!((&lines[3]["would"], &lines[3]["would_reason"]), (&"shed".into(), &"overload".into()));
    let encrypted = ["scheme", "tls_version", "client_certificate"].map(|field| lines[2][field].as_str());
    assert_eq!(encrypted, [Some("https"), Some("1.3"), Some("CN=\"a\"")]);
}

#[test]
fn l1_text_is_escaped_and_cut_and_stays_one_line() {
    let file = Scratch::new("escape");
    let log = Arc::new(AccessLog::start(Some(&config(Some(&file.0), 1.0))).unwrap());
    let evil = "/\r\n{\"class\":\"x\"}\u{1b}[2J\u{9b}\u{7f}\u{2028}\\\"\u{0}é";
    log.observe(&AccessRecord { class_name: evil, ..record("/\\\"<>?\"\\") });
    let long = "é".repeat(2000);
    log.observe(&AccessRecord { class_name: &long, ..record(&format!("/{}?{}", "x".repeat(900), "y".repeat(900))) });
    drop(log);
    let raw = std::fs::read(&file.0).unwrap();
    assert_eq!(raw.iter().filter(|&&b| b == b'\n').count(), 2);
    assert!(raw.iter().all(|&b| b == b'\n' || (b >= 0x20 && b != 0x7f)));
    let lines = file.lines();
    assert_eq!((&lines[0]["class"], &lines[0]["path"]), (&evil.into(), &"/%5C%22%3C%3E?\"\\".into()));
    assert_eq!(lines[1]["path"].as_str().unwrap(), format!("/{}?{}…", "x".repeat(900), "y".repeat(122)));
    let cut = lines[1]["class"].as_str().unwrap();
    assert!(cut.len() <= 1024 + '…'.len_utf8() && cut.ends_with("é…"), "{} bytes", cut.len());
}

#[test]
fn l2_a_stopped_reader_costs_lines_and_never_blocks() {
    let (entered, writing) = mpsc::channel();
    let (go, gate) = mpsc::channel();
    let log = AccessLog::with(Box::new(Gate { entered, go: gate }), Some(&config(None, 1.0)), 64 * 1024).unwrap();
    let log = Arc::new(log);
    log.observe(&record("/"));
    let one = writing.recv().unwrap();
    // The writer is stuck in its first line. The buffer fills up and further lines are dropped.
    (0..10_000).for_each(|_| log.observe(&record("/")));
    let fit = 64 * 1024 / one;
    assert_eq!(log.dropped(), 10_000 - fit as u64);
    go.send(()).unwrap();
    assert_eq!(writing.recv().unwrap(), fit * one, "what waited is written in one piece");
    drop(go);
    drop(log);
}

#[test]
fn l2_a_full_disk_costs_lines_and_never_blocks() {
    let log = Arc::new(AccessLog::start(Some(&config(Some(Path::new("/dev/full")), 1.0))).unwrap());
    (0..100).for_each(|_| log.observe(&record("/")));
    let shared = Arc::clone(&log.shared);
    drop(log);
    assert_eq!(shared.dropped.load(Ordering::Relaxed), 100);
    assert_eq!(shared.written.load(Ordering::Relaxed), 0);
}

#[test]
fn sampling_is_exact_and_spares_sheds_and_errors() {
    let file = Scratch::new("sample");
    let log = Arc::new(AccessLog::start(Some(&config(Some(&file.0), 0.25))).unwrap());
    (0..1000).for_each(|_| log.observe(&record("/")));
    log.observe(&AccessRecord { ending: Ending::Failed("connection_refused"), status: 502, ..record("/") });
    log.follow(None);
    log.observe(&AccessRecord { ending: Ending::Failed("connection_refused"), status: 502, ..record("/") });
    drop(log);
    assert_eq!(file.lines().len(), 251);
}

#[test]
fn a_renamed_file_is_left_at_reopen() {
    let (file, old) = (Scratch::new("reopen"), Scratch::new("reopen-old"));
    let log = Arc::new(AccessLog::start(Some(&config(Some(&file.0), 1.0))).unwrap());
    log.observe(&record("/first"));
    std::fs::rename(&file.0, &old.0).unwrap();
    log.reopen();
    // The writer reopens the file after it has written the pending lines. The new file shows that it has done
    // so.
    while !file.0.exists() {
        std::thread::yield_now();
    }
    log.observe(&record("/second"));
    drop(log);
    let paths = |of: &Scratch| of.lines().iter().map(|l| l["path"].to_string()).collect::<Vec<_>>();
    assert_eq!((paths(&old), paths(&file)), (vec!["\"/first\"".into()], vec!["\"/second\"".into()]));
}

#[test]
fn a_file_that_cannot_be_opened_is_a_clear_error() {
    let error = AccessLog::start(Some(&config(Some(Path::new("/nonexistent/log")), 1.0))).unwrap_err();
    assert!(error.to_string().starts_with("access log /nonexistent/log: "), "{error}");
}

#[test]
fn a_log_that_is_off_can_be_switched_on() {
    let file = Scratch::new("on");
    let log = Arc::new(AccessLog::start(None).unwrap());
    log.observe(&AccessRecord { ending: Ending::Failed("connection_refused"), status: 502, ..record("/off") });
    log.follow(Some(&config(Some(&file.0), 1.0)));
    while !file.0.exists() {
        std::thread::yield_now();
    }
    log.observe(&record("/on"));
    drop(log);
    assert_eq!(file.lines().len(), 1);
    assert_eq!(file.lines()[0]["path"], "/on");
}

/// The line of a request for `/a?b` with these headers.
fn line_of(headers: &str, format: AccessFormat, fields: &[AccessField]) -> String {
    let head = format!("GET /a?b=\"1 HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n");
    let request: &'static Request = Box::leak(Box::new(Request::parse(head.as_bytes()).unwrap()));
    let layout = Layout { format, fields: fields.to_vec() };
    let mut line = Vec::new();
    let at = std::time::UNIX_EPOCH + Duration::from_secs(971_211_336);
    line::write(&mut line, &AccessRecord { request, ..record("/") }, at, &layout);
    String::from_utf8(line).unwrap()
}

#[test]
fn the_combined_format_is_that_of_apache() {
    let headers = "Referer: http://a.test/\r\nUser-Agent: x\"y\\z\u{e9}\r\n";
    let common = "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a?b=\\\"1 HTTP/1.1\" 200 2";
    assert_eq!(line_of(headers, AccessFormat::Common, &[]), format!("{common}\n"));
    let combined = format!("{common} \"http://a.test/\" \"x\\\"y\\\\z\\xc3\\xa9\"\n");
    assert_eq!(line_of(headers, AccessFormat::Combined, &[]), combined);
    assert_eq!(line_of("", AccessFormat::Combined, &[]), format!("{common} \"-\" \"-\"\n"));
}

#[test]
fn a_line_has_the_chosen_fields_in_their_order() {
    use AccessField::{Class, Reason, Status, UserAgent};
    let fields = [Status, Reason, UserAgent, Class];
    let line = line_of("User-Agent: x\u{9b}y\r\n", AccessFormat::Json, &fields);
    assert_eq!(line, "{\"status\":200,\"user_agent\":\"x\\u009by\",\"class\":\"gold\"}\n");
    assert_eq!(line_of("", AccessFormat::Json, &[Reason]), "{}\n");
}
