//! Cost per request of the stages *classify* and *observe*: by the number of rules, with metrics, and with an
//! access log that is discarded. Run `cargo bench -p weirgate-gateway --bench per_request`.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use weirgate_config::{HostPattern, Match, PathPattern, Rule, RuleTarget, ValuePattern};
use weirgate_engine::ClassId;
use weirgate_gateway::access_log::AccessLog;
use weirgate_gateway::classify::{Classifier, Payload, View};
use weirgate_gateway::metrics::Metrics;
use weirgate_gateway::{AccessRecord, Observer, Request};

fn rules(count: u32, condition: impl Fn(u32) -> Match) -> Classifier {
    let last = Rule { matches: Match::Any, target: RuleTarget::Class(ClassId(count)) };
    let rule = |i| Rule { matches: condition(i), target: RuleTarget::Class(ClassId(i)) };
    Classifier::new((0..count).map(rule).chain([last]).collect())
}

fn classify(c: &mut Criterion) {
    let client = IpAddr::from([192, 0, 2, 1]);
    let mut group = c.benchmark_group("classify");
    for count in [10, 1_000, 100_000] {
        let last = count - 1;
        let head = format!(
            "GET /app{last}/x?x=1 HTTP/1.1\r\nHost: tenant{last}.test\r\nCookie: a=1; session=0123456789abcdef; theme=dark\r\n\
             X-Key: k99999\r\n\r\n"
        );
        let request = Request::parse(head.as_bytes()).expect("it is sound");
        let view =
            View { request: &request, path: request.path(), client, port: 80, tls: None, vouched: true, visitor: None };
        let by_host = rules(count, |i| Match::Host(HostPattern::Exact(format!("tenant{i}.test"))));
        group.bench_with_input(BenchmarkId::new("host", count), &view, |b, view| {
            b.iter(|| black_box(by_host.classify(black_box(view), Payload::NONE)));
        });
        let by_path = rules(count, |i| Match::Path(PathPattern::Prefix(format!("/app{i}"))));
        group.bench_with_input(BenchmarkId::new("path", count), &view, |b, view| {
            b.iter(|| black_box(by_path.classify(black_box(view), Payload::NONE)));
        });
        let name = http::HeaderName::from_static("x-key");
        let by_header = rules(count, |i| Match::Header(name.clone(), ValuePattern::Exact(format!("k{i}"))));
        group.bench_with_input(BenchmarkId::new("header", count), &view, |b, view| {
            b.iter(|| black_box(by_header.classify(black_box(view), Payload::NONE)));
        });
    }
    group.finish();
}

fn observe(c: &mut Criterion) {
    let head = b"GET /some/path?with=query HTTP/1.1\r\nHost: gold.test\r\n\r\n";
    let request = Request::parse(head).expect("it is sound");
    let record = AccessRecord {
        node: Some("10.0.0.1:80"),
        queue_wait: Duration::from_micros(1500),
        service_time: Duration::from_millis(8),
        total: Duration::from_millis(10),
        bytes_out: 1024,
        ..AccessRecord::served(&request, "gold")
    };
    let mut group = c.benchmark_group("observe");
    let metrics = Arc::new(Metrics::new());
    group.bench_function("metrics", |b| b.iter(|| metrics.observe(black_box(&record))));
    for (name, sample) in [("log", 1.0), ("log_one_in_a_thousand", 0.001)] {
        let config = weirgate_config::AccessLog {
            file: Some("/dev/null".into()),
            sample,
            format: weirgate_config::AccessFormat::Json,
            fields: weirgate_config::AccessField::USUAL.to_vec(),
        };
        let log = Arc::new(AccessLog::start(Some(&config)).expect("/dev/null opens"));
        group.bench_function(name, |b| b.iter(|| log.observe(black_box(&record))));
    }
    group.finish();
}

criterion_group!(benches, classify, observe);
criterion_main!(benches);
