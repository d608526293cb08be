//! Tests of the formats, and of reading whole files.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

const AT: &str = "26/Nov/2026:10:00:00 +0000";
const AT_MS: i64 = 1_795_687_200_000;

fn format(text: &str) -> Format {
    Format::parse(text).unwrap_or_else(|why| panic!("{why}"))
}

fn millis(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}

#[test]
fn nginx_and_apache_lines_are_read() {
    let line = format!(r#"10.0.0.9 - bob [{AT}] "GET /mail?x=1 HTTP/1.1" 200 512 "-" "Mozilla \"5.0\" (X11)""#);
    let request = format("combined").request(&line).expect("a line");
    assert_eq!((request.ended_ms, request.status), (AT_MS, Some(200)));
    assert_eq!((request.path.as_deref(), request.client.as_deref()), (Some("/mail?x=1"), Some("10.0.0.9")));
    assert_eq!(request.agent.as_deref(), Some(r#"Mozilla \"5.0\" (X11)"#));
    assert!(request.served() && request.response.is_none() && request.host.is_none());

    let line = format!(r#"a.test:443 10.0.0.9 - - [{AT}] "GET / HTTP/1.1" 503 5 "-" "-" 12000"#);
    let request = format("vhost_combined %D").request(&line).expect("a line");
    assert_eq!(request.response, Some(Duration::from_millis(12)));
    assert_eq!(request.ended_ms, AT_MS + 12, "Apache writes the time of the begin");
    assert_eq!((request.host.as_deref(), request.agent.as_deref()), (Some("a.test"), None));
    assert!(!request.served());

    let nginx = r#"log_format main '$host [$time_local] "$request" $status '
        '$request_time $upstream_response_time "$upstream_addr"';"#;
    let line = format!(
        r#"b.test [{AT}] "POST http://x.test/a HTTP/1.1" 200 0.120 0.100, 0.015 : - "10.0.0.1:80, 10.0.0.2:80""#
    );
    let request = format(nginx).request(&line).expect("a line");
    assert_eq!((request.response, request.service), (millis(120), millis(115)));
    assert_eq!(request.ended_ms, AT_MS, "nginx writes the time of the end");
    assert_eq!((request.node.as_deref(), request.path.as_deref()), (Some("10.0.0.2:80"), Some("/a")));
    assert_eq!(request.host.as_deref(), Some("x.test"), "the target in absolute form counts");
}

#[test]
fn haproxy_lines_are_read_with_and_without_a_syslog_prefix() {
    let bare = r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/20/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu|Mozilla/5.0 (X11} {} "GET /index.html HTTP/1.1""#;
    for line in [bare.to_owned(), format!("Feb  6 12:14:14 localhost haproxy[14389]: {bare}")] {
        let request = format("haproxy").request(&line).expect("a line");
        assert_eq!((request.response, request.service), (millis(99), millis(79)));
        assert_eq!(request.ended_ms, 1_233_922_454_655 + 109);
        assert_eq!((request.host.as_deref(), request.path.as_deref()), (Some("1wt.eu"), Some("/index.html")));
    }
    let refused = r#"::1:51000 [06/Feb/2009:12:14:14.655] http-in~ app/<NOSRV> 0/-1/-1/-1/+5 503 212 - - SC-- 1/1/0/0/3 0/0 "GET / HTTP/1.1""#;
    let request = format("haproxy").request(refused).expect("a line");
    assert!(!request.served() && request.service.is_none());
    assert_eq!(request.client.as_deref(), Some("::1"));
    let bad = r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in http-in/<NOSRV> -1/-1/-1/-1/0 400 187 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>""#;
    assert!(format("haproxy").request(bad).is_some_and(|request| request.path.is_none()));
}

#[test]
fn our_own_lines_are_read() {
    let line = r#"{"time":"2026-11-26T10:00:00.042Z","class":"shop","ending":"served","status":200,"protocol":"HTTP/1.1","method":"GET","host":"a.test","path":"/x\"y","client":"127.0.0.1","scheme":"http","node":"127.0.0.1:9001","retries":0,"queue_wait_ms":1.500,"service_time_ms":20.250,"total_ms":21.750,"bytes_in":0,"bytes_out":27,"trace_id":"","policy_version":1}"#;
    let request = format("weirgate").request(line).expect("a line");
    assert_eq!(request.ended_ms, AT_MS + 42);
    assert_eq!(request.service, Some(Duration::from_micros(20_250)));
    assert_eq!(request.response, Some(Duration::from_micros(21_750)));
    assert_eq!((request.path.as_deref(), request.node.as_deref()), (Some("/x\"y"), Some("127.0.0.1:9001")));
    let shed = line.replace(r#""served""#, r#""shed""#);
    let request = format("weirgate").request(&shed).expect("a line");
    assert!(!request.served() && request.service.is_none(), "a refused request tells nothing of the servers");
    let chosen =
        r#"{"time":"2026-11-26T10:00:00.042Z","ending":"served","service_time_ms":20.250,"user_agent":"curl"}"#;
    let request = format("weirgate").request(chosen).expect("a line");
    assert!(request.served() && request.path.is_none());
    assert_eq!((request.response, request.service), (None, Some(Duration::from_micros(20_250))));
    assert_eq!(request.agent.as_deref(), Some("curl"));
}

fn detected(line: &str) -> Result<Ended, String> {
    read(line.as_bytes(), None, |_| {}, |_| {})
}

#[test]
fn formats_are_found_out() {
    let common = format!(r#"10.0.0.9 - - [{AT}] "GET / HTTP/1.1" 200 512"#);
    let combined = format!(r#"{common} "-" "curl""#);
    for (line, name) in [
        (common.clone(), "common"),
        (combined.clone(), "combined"),
        (format!("a.test:80 {combined}"), "vhost_combined"),
        (format!("{combined} 0.012"), "combined $request_time"),
        (format!("{combined} 0.012 0.011"), "combined $request_time $upstream_response_time"),
        (format!("{combined} 0.011 0.012"), "combined $upstream_response_time $request_time"),
        (format!("{combined} 0.012 -"), "combined $request_time $upstream_response_time"),
        (format!("{combined} 12000"), "combined"),
        (format!("{combined} rt=0.012"), "combined"),
    ] {
        let ended = detected(&line).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((ended.format.name(), ended.malformed), (name, 0), "{line}");
        let timed = name.contains('$');
        assert_eq!(ended.format.tells().step.is_some(), timed, "{line}");
        assert_eq!(ended.format.note().is_some(), line.len() > combined.len() && !line.starts_with('a'), "{line}");
    }
    for (text, hint) in [
        ("hello\nworld", "give --format"),
        ("{\"a\": 1}", "JSON is read only as Weirgate writes it"),
        ("Feb  6 12:14:14 localhost haproxy[14389]: Proxy started.", "option httplog"),
        ("\n\n", "no line"),
        ("", "no line"),
    ] {
        assert!(detected(text).unwrap_err().contains(hint), "{text}");
    }
}

#[test]
fn format_strings_need_a_time_and_a_request() {
    for (text, hint) in [
        ("nonsense", "is not a format"),
        ("$request $status", "no time"),
        ("%t %s", "no request"),
        ("$time_local$request", "nothing between them"),
        ("%{User-Agent %t %r", "not closed"),
        ("%t %r %", "no letter"),
        ("$time_local $ $request", "no name"),
    ] {
        let why = Format::parse(text).unwrap_err();
        assert!(why.contains(hint), "{text}: {why}");
    }
    assert_eq!(format("%t %r %T").tells().step, Some(Duration::from_secs(1)));
    let apache = r#"LogFormat "%h %l %u %t \"%r\" %>s %O %{ms}T" timed"#;
    let line = format!(r#"10.0.0.9 - - [{AT}] "GET / HTTP/1.1" 200 512 7"#);
    assert_eq!(format(apache).request(&line).and_then(|request| request.response), millis(7));
}

#[test]
fn malformed_lines_are_counted_and_the_first_is_kept() {
    let good = format!(r#"10.0.0.9 - - [{AT}] "GET / HTTP/1.1" 200 512"#);
    let long = format!(r#"10.0.0.9 - - [{AT}] "GET /{} HTTP/1.1" 200 512"#, "x".repeat(MAX_LINE));
    let text = format!("{good}\n\n{good}\r\nbro\u{7}ken\n{long}\n{good}");
    let mut requests = 0;
    let ended = read(text.as_bytes(), None, |_| requests += 1, |_| {}).expect("a log");
    assert_eq!((requests, ended.lines, ended.malformed), (3, 5, 2));
    assert_eq!(ended.first_malformed, Some(Malformed { number: 4, text: "bro\u{fffd}ken".into() }));
}

fn compressed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn compressed_logs_are_read_as_far_as_they_go() {
    let line = format!("10.0.0.9 - - [{AT}] \"GET / HTTP/1.1\" 200 512\n");
    let text: String = (0..10_000).map(|n| line.replace("512", &n.to_string())).collect();
    let whole = compressed(&text);
    let mut shown = 0;
    let ended = read(&*whole, None, |_| {}, |progress| shown = progress.bytes).expect("a log");
    assert_eq!((ended.lines, ended.broken.is_some()), (10_000, false));
    assert!(shown > 0 && shown <= whole.len() as u64);
    // `cat a.gz b.gz` makes such a file of two members.
    assert_eq!(read(&*[whole.clone(), whole.clone()].concat(), None, |_| {}, |_| {}).expect("a log").lines, 20_000);
    let cut = read(&whole[..whole.len() / 2], None, |_| {}, |_| {}).expect("a part of a log");
    assert!(cut.broken.is_some() && cut.lines > 0 && cut.lines < 10_000, "{cut:?}");
    assert!(read(&whole[..5], None, |_| {}, |_| {}).is_err());
}

/// Texts with the characters that mean something to the formats.
fn noise() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "\"", "\\", " ", "[", "]", "/", ":", "-", ",", "{", "}", "|", "1", "9", ".", "GET / HTTP/1.1", AT, "é",
        "\u{0}", "haproxy[1]: ", "200", "06/Feb/2009:12:14:14.655", "a/b", "1/0/0/0/1", "\n", "$", "%", "$request",
        "%t", "%{x}i", "$time_local", "+", "'",
    ]);
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_line_and_no_format_panics(line in noise(), text in noise(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in NAMED.iter().filter_map(|(name, _)| Format::parse(name).ok()).chain(Format::parse(&text)) {
            let _ = format.request(&line);
            let _ = read(&*bytes, Some(&format), |_| {}, |_| {});
        }
        let _ = read(line.as_bytes(), None, |_| {}, |_| {});
        let _ = read(&*bytes, None, |_| {}, |_| {});
        let _ = read(&*[&[0x1f, 0x8b], &bytes[..]].concat(), None, |_| {}, |_| {});
    }

    /// A request that is written as each server writes it is read as it was.
    #[test]
    fn what_is_written_is_read(
        path in "/[a-z0-9/._~%-]{0,30}(\\?[a-z=&\"]{0,10})?",
        host in "[a-z]{1,10}\\.test",
        ms in 0u64..100_000,
        part in 0.0f64..1.0,
        status in 200u16..600,
        second in 0i64..4_000_000_000,
    ) {
        let at = time::OffsetDateTime::from_unix_timestamp(second).expect("in range");
        let month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][at.month() as usize - 1];
        let clock = format!("{:02}/{month}/{}:{:02}:{:02}:{:02}", at.day(), at.year(), at.hour(), at.minute(), at.second());
        let service = (ms as f64 * part) as u64;
        let escaped = path.replace('"', "\\\"");
        let nginx = format!(
            "{host} [{clock} +0000] \"GET {} HTTP/2.0\" {status} {}.{:03} {}.{:03}",
            path.replace('"', "\\x22"), ms / 1000, ms % 1000, service / 1000, service % 1000
        );
        let form = format("$host [$time_local] \"$request\" $status $request_time $upstream_response_time");
        let request = form.request(&nginx).expect("a line");
        prop_assert_eq!((request.ended_ms, request.status), (second * 1000, Some(status)));
        prop_assert_eq!(request.host.as_deref(), Some(host.as_str()));
        prop_assert_eq!(request.response, millis(ms));
        prop_assert_eq!(request.service, millis(service));

        let apache = format!("{host}:80 ::1 - - [{clock} +0000] \"GET {escaped} HTTP/1.1\" {status} - \"-\" \"a \\\"b\\\"\" {}", ms * 1000);
        let request = format("vhost_combined %D").request(&apache).expect("a line");
        prop_assert_eq!(request.ended_ms, second * 1000 + ms as i64);
        prop_assert_eq!(request.path.as_deref(), Some(escaped.as_str()));
        prop_assert_eq!((request.response, request.agent.as_deref()), (millis(ms), Some("a \\\"b\\\"")));

        let haproxy = format!("10.0.0.1:1 [{clock}.000] in app/s 0/{}/0/0/{ms} {status} 1 - - ---- 1/1/1/1/0 0/0 \"GET {} HTTP/1.1\"", ms - service, path.replace('"', "#22"));
        let request = format("haproxy").request(&haproxy).expect("a line");
        prop_assert_eq!((request.response, request.service), (millis(ms), millis(service)));
    }
}
