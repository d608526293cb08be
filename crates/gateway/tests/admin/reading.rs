//! Tests of the content of the pages.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::{PATIENCE, Running, Start, TOKEN, exchange, node};

const POLICY: &str = "
classes:
  - { name: gold, match: { host: gold.test }, guarantee: { throughput: 50/s, response_time: { p95: 200ms } }, service_time: 8ms }
  - { name: tenants, match: { path_prefix: /t }, per: { header: X-Tenant }, max_live: 10 }
  - { name: other }
";

#[test]
fn a_snapshot_comes_in_pages_and_says_why() {
    let running = Start { policy: POLICY, ..Start::default() }.before(node());
    for tenant in 0..5 {
        let request =
            format!("GET /t HTTP/1.1\r\nHost: a.test\r\nX-Tenant: t{tenant}\u{1b}\r\nConnection: close\r\n\r\n");
        let request = request.replace('\u{1b}', "");
        assert_eq!(exchange(running.address(), request.as_bytes()).status, 200);
    }
    let mut from = json!(0);
    let mut names = Vec::new();
    while let Some(first) = from.as_u64() {
        let page = running.get(&format!("/snapshot?from={first}&limit=2")).json();
        let classes = page["classes"].as_array().expect("an array");
        assert!(classes.len() <= 2);
        names.extend(classes.iter().map(|c| (c["name"].clone(), c["key"].clone())));
        assert_eq!(page["engine"]["discipline"], "weirgate");
        assert!(page["engine"]["moved"]["why"].as_str().is_some_and(|w| !w.is_empty()));
        from = page["next"].clone();
    }
    for tenant in 0..5 {
        assert!(names.contains(&(json!("tenants"), json!(format!("t{tenant}")))), "{names:?}");
    }
    let whole = running.get("/snapshot").json();
    assert_eq!(whole["next"], json!(null));
    let gold = &whole["classes"][0];
    assert_eq!((&gold["name"], &gold["guarantee"]["throughput_per_second"]), (&json!("gold"), &json!(50.0)));
    for wrong in ["/snapshot?from=x", "/snapshot?limit=-1", "/snapshot?unknown=1"] {
        assert_eq!(running.get(wrong).status, 400, "{wrong}");
    }
    assert_eq!(running.get("/snapshot?from=4000000000").json()["classes"], json!([]));
    assert_eq!(running.get("/snapshot?limit=999999999").status, 200);
}

#[test]
fn metrics_come_in_both_formats_with_labels_of_the_policy_alone() {
    let running = Start { policy: POLICY, ..Start::default() }.before(node());
    for (host, headers) in
        [("gold.test", ""), ("gold.test", ""), ("evil\u{61}.test", ""), ("a.test", "X-Tenant: \"}\\n{\r\n")]
    {
        let request = format!("GET /t HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
        assert_eq!(exchange(running.address(), request.as_bytes()).status, 200);
    }
    exchange(running.address(), b"GET / HTTP/1.1\nHost: x\n\n");
    // A record is made when a request has ended, which may be shortly after its response was read.
    let page = loop {
        let page = running.ask("GET", "/metrics", &["Accept: application/openmetrics-text; version=1.0.0"]);
        if page.body.contains("weirgate_requests_total{class=\"-\",status=\"4xx\"} 1") {
            break page;
        }
        std::thread::yield_now();
    };
    assert!(page.header("content-type").is_some_and(|t| t.starts_with("application/openmetrics-text")));
    let has = |line: &str| assert!(page.body.lines().any(|l| l == line), "{line} is not in\n{}", page.body);
    has("weirgate_requests_total{class=\"gold\",status=\"2xx\"} 2");
    has("weirgate_requests_total{class=\"tenants\",status=\"2xx\"} 1");
    has("weirgate_requests_total{class=\"other\",status=\"2xx\"} 1");
    has("weirgate_response_time_seconds_count{class=\"gold\"} 2");
    has("weirgate_response_time_seconds_bucket{le=\"+Inf\",class=\"gold\"} 2");
    assert!(page.body.contains("weirgate_response_time_seconds_bucket{le=\"0.2\",class=\"other\"} "), "gold's limit");
    has("weirgate_guarantee_throughput{class=\"gold\"} 50.0");
    has("weirgate_guarantee_response_time_seconds{class=\"gold\"} 0.2");
    has("weirgate_waiting 0.0");
    has("weirgate_machine_group_outstanding{machine_group=\"web\"} 0");
    assert!(page.body.lines().any(|line| line.starts_with("weirgate_machine_group_window{machine_group=\"web\"} ")));
    has("weirgate_machine_group_contention{machine_group=\"web\",state=\"unseen\"} 1");
    has("weirgate_machine_group_contention{machine_group=\"web\",state=\"seen\"} 0");
    assert!(
        page.body
            .lines()
            .any(|line| line.starts_with("weirgate_machine_group_contention_age_seconds{machine_group=\"web\"} "))
    );
    has("# EOF");
    assert!(!page.body.contains("evila") && !page.body.contains("}\\n{"));
    for line in page.body.lines() {
        let named = line
            .strip_prefix("# HELP ")
            .or(line.strip_prefix("# TYPE "))
            .or(line.strip_prefix("# UNIT "))
            .unwrap_or(line);
        assert!(named == "# EOF" || named.starts_with("weirgate_"), "{line}");
    }
    let node = format!(
        "weirgate_node_state{{pool=\"web\",node=\"{}\",state=\"up\"}} 1",
        running.gateway.active_config().nodes[0].name
    );
    has(&node);
    let text = running.get("/metrics");
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(text.body.contains("# TYPE weirgate_requests_total counter\n") && !text.body.contains("# EOF"));
}

#[test]
fn the_first_page_lists_the_others_and_unknown_ones_are_404() {
    let running = Start::default().before(node());
    let page = running.get("/");
    assert!(page.header("content-type").is_some_and(|t| t.starts_with("text/html")));
    for path in ["live", "ready", "metrics", "policy", "snapshot", "nodes"] {
        assert!(page.body.contains(&format!("href=\"{path}")), "{path}");
        let answer = running.get(&format!("/{path}"));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    let missing = running.get("/nothing");
    assert_eq!((missing.status, missing.json()["error"].is_string()), (404, true));
}

#[test]
fn what_collectors_said_is_shown_with_its_age() {
    let answer =
        |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    let agent = answer("{\"version\":1,\"active\":{\"static\":2,\"dynamic\":7}}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut head = [0; 4096];
            let asked = stream.read(&mut head).unwrap_or(0);
            assert!(head[..asked].starts_with(b"GET /weirgate/report "));
            let _ = stream.write_all(agent.as_bytes());
        }
    });
    let running = Start::default().before(node());
    assert_eq!(running.get("/nodes").json()["nodes"][0]["collector"], json!(null));
    let text = std::fs::read_to_string(&running.file).expect("the policy");
    let text = text.replace("] } }", &format!("], collector: {{ port: {port}, every: 1h, timeout: 10s }} }} }}"));
    std::fs::write(&running.file, text).expect("it can be written");
    assert_eq!(running.post("/reload", &[]).status, 200);
    let said = loop {
        let said = running.get("/nodes").json()["nodes"][0]["collector"].clone();
        if said["active"].is_object() {
            break said;
        }
        std::thread::yield_now();
    };
    assert_eq!((&said["active"], &said["stale"]), (&json!({ "static": 2, "dynamic": 7 }), &json!(false)));
    assert_eq!((&said["failures"], said["age_seconds"].is_f64()), (&json!(0), true));
    assert_eq!(running.get("/snapshot").json()["engine"]["nodes"][0]["collector"]["active"], said["active"]);
    assert_eq!(running.get("/policy").json()["upstreams"][0]["collector"], json!("/weirgate/report"));
    let page = running.get("/metrics").body;
    let name = &running.gateway.active_config().nodes[0].name;
    let labels = format!("{{pool=\"web\",node=\"{name}\"}} ");
    assert!(page.contains(&format!("weirgate_collector_failures_total{labels}0")), "{page}");
    assert!(page.contains(&format!("weirgate_collector_age_seconds{labels}")), "{page}");
}

#[test]
fn the_windows_of_resources_are_series_of_their_own() {
    let table = "page_table: { routes: { /math.php: { cpu: 9% }, /album/*: { disk: 12% } } }\n";
    let running = Start { policy: &format!("{table}{POLICY}"), ..Start::default() }.before(node());
    let page = running.get("/metrics").body;
    let series: Vec<&str> =
        page.lines().filter(|line| !line.starts_with('#')).filter_map(|l| Some(l.rsplit_once(' ')?.0)).collect();
    for resource in ["cpu", "disk", "bandwidth"] {
        for name in ["machine_group_window", "machine_group_outstanding", "machine_group_contention_age_seconds"] {
            let line = format!("weirgate_{name}{{machine_group=\"web\",resource=\"{resource}\"}}");
            assert!(series.contains(&line.as_str()), "{line} is not in\n{page}");
        }
    }
    for (at, line) in series.iter().enumerate() {
        assert!(!series[..at].contains(line), "{line} is there twice in\n{page}");
    }
}

#[test]
fn the_page_table_is_shown_with_what_it_does_not_know() {
    let policy = "
discipline: mqos
page_table:
  routes:
    /math.php: { cpu: 9%, disk: 3%, bandwidth: 3% }
    /album/*: { cpu: 1%, disk: 12% }
classes: [{ name: other }]
";
    let running = Start { policy, ..Start::default() }.before(node());
    for path in ["/math.php?n=7", "/album/3", "/album/3", "/nobody/knows"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        assert_eq!(exchange(running.address(), request.as_bytes()).status, 200);
    }
    let snapshot = running.get("/snapshot").json();
    let table = &snapshot["page_table"];
    let expected = json!({
        "learned": false, "unknown_share": 0.25, "routes_total": 2,
        "routes": [
            { "pattern": "/album/*", "tendency": "disk", "apart": false, "requests": 0.0, "windows": 0,
              "cost": { "cpu": 0.01, "disk": 0.12, "bandwidth": 0.0 }, "table": { "cpu": 0.01, "disk": 0.12, "bandwidth": 0.0 } },
            { "pattern": "/math.php", "tendency": "cpu", "apart": false, "requests": 0.0, "windows": 0,
              "cost": { "cpu": 0.09, "disk": 0.03, "bandwidth": 0.03 }, "table": { "cpu": 0.09, "disk": 0.03, "bandwidth": 0.03 } },
        ]
    });
    assert_eq!(*table, expected);
    assert_eq!(snapshot["classes"][0]["unknown_routes"], json!(1));
    let page = running.get("/metrics").body;
    let has = |line: &str| assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    has("weirgate_route_cost_seconds{route=\"/math.php\",resource=\"cpu\"} 0.09");
    has("weirgate_route_cost_seconds{route=\"/album/*\",resource=\"disk\"} 0.12");
    has("weirgate_unknown_route_requests_total{class=\"other\"} 1");
    let name = &running.gateway.active_config().nodes[0].name;
    has(&format!("weirgate_node_available_ratio{{pool=\"web\",node=\"{name}\",resource=\"disk\"}} 1.0"));

    let learned = policy.replace("page_table:", "page_table:\n  learned: true");
    let learned = Start { policy: &learned, ..Start::default() }.before(node());
    assert_eq!(learned.get("/snapshot").json()["page_table"]["windows"]["disk"]["no_capacity"], json!(0));
    let page = learned.get("/metrics").body;
    let line = "weirgate_page_table_windows_total{resource=\"cpu\",outcome=\"requests_lost\"} 0";
    assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");

    let without = Start { policy: POLICY, ..Start::default() }.before(node());
    assert_eq!(without.get("/snapshot").json()["page_table"], json!(null));
    assert!(!without.get("/metrics").body.contains("weirgate_route_cost"));
}

#[test]
fn sources_of_nodes_are_shown_with_their_errors() {
    let running = Start { policy: POLICY, ..Start::default() }.before(node());
    assert_eq!(running.get("/snapshot").json()["discovery"], json!(null), "the policy names all nodes");
    let text = std::fs::read_to_string(&running.file).expect("the policy");
    let text = text.replacen(
        "upstreams: {",
        "upstreams: { found: { discover: { file: nodes.json, every: 100ms }, slow_start: 1h },",
        1,
    );
    let text = text.replacen("classes:", "classes:\n  - { name: found, match: { path: /found }, upstream: found }", 1);
    let text = text.replace("  - { name: gold,", "  - { name: gold, upstream: web,");
    let text = text.replace("{ name: tenants,", "{ name: tenants, upstream: web,");
    let text = text.replace("{ name: other }", "{ name: other, upstream: web }");
    std::fs::write(&running.file, text).expect("written");
    let reloaded = running.post("/reload", &[]);
    assert_eq!(reloaded.status, 200, "{}", reloaded.body);
    let shows = |what: &str, holds: &dyn Fn(&serde_json::Value) -> bool| {
        let limit = std::time::Duration::from_secs(10);
        let seen = || holds(&running.get("/snapshot").json()["discovery"][0]);
        assert!(weirgate_clock::becomes_true(limit, seen), "never: {what}");
    };
    shows("the file is missed", &|source| source["error"].as_str().is_some_and(|e| e.contains("No such file")));
    let source = running.get("/snapshot").json()["discovery"][0].clone();
    assert_eq!((&source["upstream"], &source["nodes"]), (&json!("found"), &json!(0)));
    assert!(source["source"].as_str().is_some_and(|path| path.ends_with("/nodes.json")), "{source}");
    let page = running.get("/metrics").body;
    assert!(page.contains("weirgate_discovery_failing{upstream=\"found\"} 1"), "{page}");
    running.scratch.write("nodes.json", "[{ \"targets\": [\"127.0.0.1:9\"] }]");
    shows("the node is there", &|source| source["nodes"] == 1 && source["error"].is_null());
    let page = running.get("/metrics").body;
    for line in ["nodes", "changes_total"].map(|name| format!("weirgate_discovery_{name}{{upstream=\"found\"}} 1")) {
        assert!(page.contains(&line), "{line} is not in\n{page}");
    }
    assert!(page.contains("weirgate_discovery_success_age_seconds{upstream=\"found\"} "), "{page}");
}

/// Returns the first of `count` looks of `/stream`.
fn look(running: &Running, count: usize) -> serde_json::Value {
    let mut stream = TcpStream::connect(running.admin).expect("a connection");
    let request = format!("GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut text = String::new();
    while text.matches("data: ").count() < count || !text.ends_with("\n\n\r\n") {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).expect("the stream goes on");
        assert!(read > 0, "the stream ended early: {text}");
        text += std::str::from_utf8(&bytes[..read]).expect("ASCII");
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).expect("a look");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn the_stream_shows_a_look_and_the_page_needs_nothing_from_elsewhere() {
    let running = Start { policy: POLICY, token: true, ..Start::default() }.before(node());
    // The page asks for the token itself, so it comes without one.
    let page = running.get("/");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("script-src 'self'") && policy.contains("default-src 'none'"), "{policy}");
    for file in ["page.js", "parts.js", "page.css"] {
        assert!(page.body.contains(&format!("\"{file}\"")), "{}", page.body);
        assert_eq!(running.get(&format!("/{file}")).status, 200);
    }
    assert!(!page.body.contains("//"), "the page must load nothing from other machines:\n{}", page.body);
    for guarded in ["/stream", "/events", "/snapshot"] {
        assert_eq!(running.get(guarded).status, 401, "{guarded}");
    }
    let look = look(&running, 2);
    assert_eq!((&look["classes"][0]["name"], &look["phase"]), (&json!("gold"), &json!("ready")));
    assert_eq!((&look["classes_left_out"], &look["refusals"]), (&json!(0), &json!([])));
    assert_eq!(look["engine"]["nodes"].as_array().map(Vec::len), Some(1));
}

#[test]
fn certificates_of_an_authority_are_shown() {
    // Nothing listens on port 1.
    let policy = "acme: { terms_agreed: true, storage: SCRATCH/acme, directory: 'https://127.0.0.1:1/dir' }\n\
                  classes: [{ name: gold }]\n";
    let listen = "listen: [127.0.0.1:0, { address: '127.0.0.1:0', tls: { certificates: { names: a.test } } }]";
    let running = Start { policy, listen, ..Start::default() }.before(node());
    let failed = || running.get("/snapshot").json()["acme"][0]["failures"] == 1;
    assert!(weirgate_clock::becomes_true(PATIENCE, failed));
    let (page, look) = (running.get("/snapshot").json(), look(&running, 1));
    for shown in [&page["acme"][0], &look["acme"][0]] {
        assert_eq!((&shown["names"], &shown["issued"]), (&json!(["a.test"]), &json!(0)));
        assert!(shown["error"].as_str().is_some_and(|error| !error.is_empty()), "{shown}");
    }
}

#[test]
fn events_tell_of_a_drained_node_and_of_a_reload() {
    let running = Start { policy: POLICY, ..Start::default() }.before(node());
    // The first look shows how it is. Changes before it are none.
    let told = |kind: &str| {
        weirgate_clock::becomes_true(PATIENCE, || {
            let events = running.get("/events").json();
            events["events"].as_array().is_some_and(|events| events.iter().any(|event| event["kind"] == kind))
        })
    };
    let mut drain = ["drain", "undrain"].into_iter().cycle();
    let name = running.get("/nodes").json()["nodes"][0]["name"].as_str().expect("a name").to_owned();
    // Until a look has seen the node usable, it is not told that it is drained.
    let seen = weirgate_clock::becomes_true(PATIENCE, || {
        let path = format!("/nodes/web/{name}/{}", drain.next().expect("it has no end"));
        assert_eq!(running.post(&path, &[]).status, 200);
        let events = running.get("/events").json();
        events["events"].as_array().is_some_and(|events| events.iter().any(|e| e["kind"] == "upstream_unusable"))
    });
    assert!(seen);
    assert_eq!(running.post("/reload", &[]).status, 200);
    assert!(told("policy_changed"));
    let events = running.get("/events").json();
    let last = events["events"].as_array().and_then(|events| events.last()).expect("an event").clone();
    let after = running.get(&format!("/events?after={}", last["number"])).json();
    assert!(
        after["events"].as_array().is_some_and(|events| events.iter().all(|event| event["number"] != last["number"]))
    );
    assert_eq!(running.get("/events?after=x").status, 400);
}
