//! The page table: costs of requests are looked up, and learned from the resource use that nodes report.

use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::sync::{Arc, Mutex};

use weirgate_engine::ClassId;
use weirgate_gateway::Clock;
use weirgate_wire::admin::Route;
use weirgate_wire::{Report, Usage};

use crate::stage::{Node, Stage, ok, wait_until};

/// CPU seconds that the node uses for each path. It reports twenty CPUs, more than the test can fill.
type Costs = Arc<Mutex<BTreeMap<&'static str, f64>>>;

/// Starts a node with an agent that counts the costs of requests.
fn node(costs: &Costs) -> Node {
    let costs = Arc::clone(costs);
    let used = Mutex::new(0.0);
    Node::replying(move |head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let mut used = used.lock().expect("no panic");
        if path == "/weirgate/report" {
            let usage = Usage { used: [Some(*used), None, None], capacity: [Some(20.0), None, None] };
            return ok(&Report { usage: Some(usage), ..Report::default() }.to_json());
        }
        let costs = costs.lock().expect("no panic");
        *used += costs.iter().find(|(prefix, _)| path.starts_with(**prefix)).map_or(0.0, |(_, cost)| *cost);
        ok("page")
    })
}

fn policy(node: &Node, table: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 2\ndiscipline: none\nclasses: [{{ name: all }}]\npage_table: {table}\n\
         upstreams: {{ web: {{ nodes: [{}], collector: {{ port: node, every: 120ms, timeout: 100ms }} }} }}\n",
        node.address
    )
}

fn route(stage: &Stage, pattern: &str) -> Option<Route> {
    stage.gateway.page_table(100)?.routes.into_iter().find(|route| route.pattern == pattern)
}

fn cpu(stage: &Stage, pattern: &str) -> f64 {
    route(stage, pattern).map_or(f64::NAN, |route| route.cost["cpu"])
}

/// Number of windows for which costs must stay correct. An estimate that is correct only in passing does not
/// count.
const STEADY: u64 = 8;

/// Time to wait until the costs are learned, in seconds. A test that runs alone needs seven to fifteen. Beside two
/// hundred others on a busy machine 40 were not always enough.
const FOUND: f64 = 120.0;

/// Sends requests, alternating between more of one path and more of the other, until the costs of `expected`
/// are learned within 15 % and stay there.
fn learn(stage: &Stage, node: &Node, paths: [&str; 2], expected: [(&str, f64); 2]) {
    let mut client = stage.client();
    let clock = Clock::start();
    let mut draw = 1u32;
    let mut since = None;
    loop {
        draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let more = usize::from(draw >> 24 > 127);
        for number in 0..draw >> 20 & 255 {
            assert_eq!(
                client.ask(&format!("{}{number}", paths[if number % 8 == 0 { 1 - more } else { more }])).text(),
                "page"
            );
        }
        node.forget();
        let near = |(pattern, cost): (&str, f64)| (cpu(stage, pattern) / cost - 1.0).abs() < 0.15;
        let windows = route(stage, expected[0].0).map_or(0, |route| route.windows);
        since = expected.into_iter().all(near).then_some(since.unwrap_or(windows));
        if since.is_some_and(|since| windows >= since + STEADY) {
            return;
        }
        assert!(clock.now().as_secs_f64() < FOUND, "{:#?}", stage.gateway.page_table(100));
    }
}

#[test]
fn a_table_is_learned_from_nothing_but_reports_and_kept_over_a_reload() {
    let costs = Costs::new(Mutex::new([("/cheap", 0.0004), ("/expensive", 0.004)].into()));
    let node = node(&costs);
    let stage = Stage::open(&policy(&node, "learned"));
    learn(&stage, &node, ["/cheap/", "/expensive/"], [("/cheap/*", 0.00002), ("/expensive/*", 0.0002)]);
    let expensive = route(&stage, "/expensive/*").expect("it was found");
    assert!(
        expensive.apart && expensive.requests > 0.0 && expensive.windows > 0 && expensive.tendency == "cpu",
        "{expensive:?}"
    );
    assert!(
        expensive.error["cpu"] > 0.0 && !expensive.error.contains_key("disk") && expensive.cost["disk"] == 0.0,
        "{expensive:?}"
    );

    let windows = stage.gateway.page_table(1).expect("a table").windows;
    // On a busy machine some windows show more load than the node has capacity, and give no sample.
    let of_cpu = windows["cpu"]["learned"] + windows["cpu"]["beyond_capacity"];
    assert!(of_cpu >= expensive.windows && windows["cpu"]["requests_lost"] == 0, "{windows:?}");
    assert!(windows["disk"]["learned"] == 0 && windows["disk"]["no_counter"] >= expensive.windows, "{windows:?}");

    // Learned costs apply to arrivals: no further request is unknown.
    let unknown = || stage.gateway.control().classes(ClassId(0), 10).iter().map(|class| class.unknown).sum::<u64>();
    let before = unknown();
    let mut client = stage.client();
    for _ in 0..20 {
        client.ask("/expensive/1");
    }
    assert_eq!(unknown(), before);

    let site = crate::stage::site(&policy(&node, "learned"));
    stage.gateway.reload_site(site, "again").expect("it is sound");
    assert!((cpu(&stage, "/expensive/*") / 0.0002 - 1.0).abs() < 0.2, "kept");
    assert_eq!(route(&stage, "/expensive/*").map(|route| route.windows >= expensive.windows), Some(true));

    // A process that takes over begins with the same routes at the same costs.
    let mut handed = tempfile::tempfile().expect("a file");
    handed.write_all(stage.gateway.learned().to_json().as_bytes()).expect("written");
    handed.rewind().expect("read from its beginning");
    let next = Stage::open(&policy(&node, "learned"));
    let told = next.gateway.begin_with_learned(Some((7, handed))).expect("a message");
    assert!(told.ends_with(" routes"), "{told}");
    for pattern in ["/cheap/*", "/expensive/*"] {
        assert!((cpu(&next, pattern) / cpu(&stage, pattern) - 1.0).abs() < 0.01, "{pattern}: {told}");
    }
    assert_eq!(next.gateway.learned().routes.len(), stage.gateway.learned().routes.len());
}

#[test]
fn a_wrong_table_is_corrected_and_one_that_is_not_learned_stays() {
    let costs = Costs::new(Mutex::new([("/a", 0.002), ("/b", 0.0005)].into()));
    let node = node(&costs);
    let routes = r#"routes: { "/a/*": { cpu: 1% }, "/b/*": { cpu: 1%, disk: 2% } }"#;
    let stage = Stage::open(&policy(&node, &format!("{{ learned: true, {routes} }}")));
    learn(&stage, &node, ["/a/", "/b/"], [("/a/*", 0.0001), ("/b/*", 0.000025)]);
    let b = route(&stage, "/b/*").expect("it is given");
    assert_eq!((b.table["cpu"], b.table["disk"]), (0.01, 0.02));
    assert_eq!((b.cost["disk"], b.tendency.as_str()), (0.02, "disk"), "nobody said anything of the disk");

    let site = crate::stage::site(&policy(&node, &format!("{{ {routes} }}")));
    stage.gateway.reload_site(site, "static").expect("it is sound");
    wait_until("the table is the policy's again", || cpu(&stage, "/a/*") == 0.01);
    let table = stage.gateway.page_table(100).expect("a table");
    assert!(!table.learned && table.routes.iter().all(|route| route.error.is_empty()), "{table:?}");
}
