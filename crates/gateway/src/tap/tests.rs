//! Tests of filters, against a comparison written out by hand, and of viewers that do not read.

use proptest::prelude::*;
use weirgate_engine::{ShedReason, Would};

use super::*;
use crate::record::Ending;
use crate::request::Request;

fn wanted(fields: &[(&str, &str)]) -> Wanted {
    let object: serde_json::Map<String, serde_json::Value> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    serde_json::from_value(object.into()).unwrap()
}

fn filter(fields: &[(&str, &str)]) -> Filter {
    Filter::new(&wanted(fields)).unwrap()
}

fn with_record<T>(
    target: &str,
    change: impl FnOnce(&mut AccessRecord<'_>),
    then: impl FnOnce(&AccessRecord<'_>) -> T,
) -> T {
    let request = Request::parse(format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes()).unwrap();
    let mut record = AccessRecord {
        node: Some("web-1"),
        queue_wait: std::time::Duration::from_millis(12),
        service_time: std::time::Duration::from_millis(34),
        total: std::time::Duration::from_millis(47),
        bytes_out: 2,
        client: [192, 0, 2, 9].into(),
        ..AccessRecord::served(&request, "gold")
    };
    change(&mut record);
    then(&record)
}

fn matches(fields: &[(&str, &str)]) -> bool {
    let filter = filter(fields);
    with_record("/api/items?q=1", |_| (), |record| filter.matches(record))
}

#[test]
fn every_given_field_must_match() {
    for (field, fitting, other) in [
        ("class", "gold", "gol"),
        ("class", "g*", "*silver"),
        ("node", "web-*", "db-*"),
        ("client", "192.0.2.0/24", "192.0.3.0/24"),
        ("client", "192.0.2.9", "unix"),
        ("path", "/api/*", "/api"),
        ("path", "*/items", "*q=1"),
        ("status", "2xx", "5xx"),
        ("status", "503,200", "201-299"),
        ("ending", "served", "shed,failed"),
        ("slower_than", "47ms", "48ms"),
    ] {
        assert!(matches(&[(field, fitting)]), "{field}={fitting}");
        assert!(!matches(&[(field, other)]), "{field}={other}");
        assert!(!matches(&[("class", "gold"), (field, other)]), "{field}={other}");
    }
    assert!(matches(&[]));
}

#[test]
fn clients_on_unix_sockets_and_observed_requests_have_words() {
    let unix = filter(&[("client", "unix")]);
    let all = filter(&[("client", "0.0.0.0/0")]);
    let seen = with_record("/", |r| r.client = weirgate_config::UNIX_CLIENT, |r| (unix.matches(r), all.matches(r)));
    assert_eq!(seen, (true, false));
    let would = filter(&[("ending", "would_shed")]);
    assert!(with_record("/", |r| r.would = Some(Would::Shed(ShedReason::Overload)), |r| would.matches(r)));
    assert!(!with_record("/", |r| r.ending = Ending::Shed(ShedReason::Overload), |r| would.matches(r)));
}

#[test]
fn mistakes_name_their_field_and_say_what_to_write() {
    for (field, text, says) in [
        ("client", "10.0.0.300", "192.0.2.0/24"),
        ("path", "api/*", "`/api/*`"),
        ("status", "6xx", "`5xx`"),
        ("status", "504-500", "`500-504`"),
        ("status", "", "`503`"),
        ("ending", "dropped", "served, tunnelled"),
        ("slower_than", "200", "`200ms`"),
        ("sample", "0", "`1%`"),
        ("sample", "200%", "100%"),
    ] {
        let error = Filter::new(&wanted(&[(field, text)])).unwrap_err();
        assert!(error.starts_with(&format!("{field}: ")) && error.contains(says), "{error}");
        let long = Filter::new(&wanted(&[(field, &"*a".repeat(200))])).unwrap_err();
        assert!(long.starts_with(&format!("{field}: it is longer than 256 bytes")), "{long}");
    }
}

#[test]
fn a_viewer_that_does_not_read_loses_lines_and_learns_how_many() {
    let tap = Tap::default();
    with_record("/", |_| (), |record| tap.observe(record));
    let (all, none) = (tap.join(filter(&[])).unwrap(), tap.join(filter(&[("class", "silver")])).unwrap());
    let long = format!("/{}", "x".repeat(900));
    for _ in 0..1000 {
        with_record(&long, |_| (), |record| tap.observe(record));
    }
    let text = String::from_utf8(all.take()).unwrap();
    let (lines, last) = text.trim_end().rsplit_once('\n').unwrap();
    let lost: u64 = last.strip_prefix("{\"lost\":").and_then(|rest| rest.strip_suffix('}')).unwrap().parse().unwrap();
    assert_eq!(lines.lines().count() as u64 + lost, 1000);
    assert!(text.len() <= MAX_QUEUE + 32 && lost > 0, "{lost} of {}", text.len());
    for line in lines.lines() {
        let line: weirgate_wire::access_log::LoggedRequest<'_> = serde_json::from_str(line).unwrap();
        assert_eq!((line.class.as_deref(), line.total_ms), (Some("gold"), Some(47.0)));
    }
    assert!(all.take().is_empty() && none.take().is_empty());
    tap.leave(&all);
    with_record("/", |_| (), |record| tap.observe(record));
    assert!(all.take().is_empty());
}

#[test]
fn the_number_of_viewers_is_bounded() {
    let tap = Tap::default();
    let viewers: Vec<_> = (0..MAX_VIEWERS).map(|_| tap.join(filter(&[])).unwrap()).collect();
    assert!(tap.join(filter(&[])).is_none());
    assert!(Arc::ptr_eq(&tap.find(viewers[3].id).unwrap(), &viewers[3]));
    tap.leave(&viewers[3]);
    assert!(tap.find(viewers[3].id).is_none() && tap.join(filter(&[])).is_some());
    let latest = viewers[0].respond();
    assert!(viewers[0].is_latest(latest) && viewers[0].is_latest(viewers[0].respond() - 1).eq(&false));
}

proptest! {
    #[test]
    fn a_sample_takes_its_share_of_any_run(percent in 1u32..=100, from in 0u64..1 << 40, length in 1u64..2000) {
        let filter = filter(&[("sample", &format!("{percent}%"))]);
        let taken = (from..from + length).filter(|before| filter.takes(*before)).count() as f64;
        let expected = length as f64 * f64::from(percent) / 100.0;
        prop_assert!((taken - expected).abs() <= 2.0, "{taken} of {length} at {percent} %");
    }

    #[test]
    fn any_text_is_parsed_or_refused(field in 0usize..8, text in ".{0,20}") {
        const FIELDS: [&str; 8] = ["class", "node", "client", "path", "status", "ending", "slower_than", "sample"];
        let parsed = Filter::new(&wanted(&[(FIELDS[field], &text)]));
        if let Ok(filter) = parsed {
            with_record("/", |_| (), |record| filter.matches(record));
        }
    }

    #[test]
    fn a_range_of_statuses_is_what_it_says(from in 0u16..600, to in 0u16..600, status in 0u16..600) {
        let text = format!("{from}-{to}");
        let parsed = Filter::new(&wanted(&[("status", &text)]));
        prop_assert_eq!(parsed.is_ok(), from <= to);
        if let Ok(filter) = parsed {
            let seen = with_record("/", |r| r.status = status, |r| filter.matches(r));
            prop_assert_eq!(seen, from <= status && status <= to);
        }
    }
}
