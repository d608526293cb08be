//! The site that a policy file resolves to: names bound, defaults filled in, warnings with their places.

use std::time::Duration;

use weirgate_config::{
    HostPattern, Key, Loaded, Match, NetworkSize, PathPattern, RuleTarget, ValuePattern, load, load_bytes, load_file,
};
use weirgate_engine as engine;
use weirgate_listening::Address;

const HEAD: &str = "listen: 127.0.0.1:80\nupstreams: { web: { nodes: [a:1, b:1] } }\n";

fn loaded(text: &str) -> Loaded {
    load("p.yaml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn errors(text: &str) -> String {
    match load("p.yaml", text) {
        Ok(_) => panic!("it loads"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn the_ten_lines_are_what_they_say() {
    let site = loaded(include_str!("../../../policies/two-tenants.yaml")).site;
    assert_eq!(site.policy.discipline, engine::Discipline::weirgate());
    let [big, small, other] = site.policy.classes.as_slice() else { panic!("three classes") };
    assert_eq!((big.name.as_str(), big.guarantee.throughput), ("BigCorp", Some(800.0)));
    let p95 = |ms| {
        let statistic = engine::Statistic::Percentile(95.0);
        Some(engine::ResponseTime { statistic, limit: Duration::from_millis(ms) })
    };
    assert_eq!((big.guarantee.response_time, small.guarantee.response_time), (p95(1_000), p95(200)));
    assert_eq!(other.guarantee, engine::Guarantee::default());
    assert!(matches!(&site.rules[0].matches, Match::Host(HostPattern::Exact(h)) if h == "bigcorp.test"));
    assert!(matches!(site.rules[2].matches, Match::Any));
    assert_eq!(site.rules[2].target, RuleTarget::Class(engine::ClassId(2)));
    assert_eq!(site.nodes.iter().map(|n| n.address.as_str()).collect::<Vec<_>>(), ["127.0.0.1:9001", "127.0.0.1:9002"]);
}

#[test]
fn defaults_are_filled_in() {
    let site = loaded(&format!("{HEAD}classes: [{{ name: all }}]\n")).site;
    assert_eq!(site.policy.discipline, engine::Discipline::weirgate());
    assert_eq!(site.policy.nodes[0].machine, "a:1");
    assert_eq!(site.classes[0].shed.body, "overloaded, please try again\n");
    assert_eq!((site.limits.head_bytes, site.limits.headers, site.limits.body_bytes), (65_536, 100, None));
    assert_eq!(site.admin.unwrap().address, Address::Tcp("127.0.0.1:9900".parse().unwrap()));
    assert!(site.access_log.is_none() && site.threads.is_none());
}

#[test]
fn off_is_off() {
    let text = "listen: 127.0.0.1:80\nupstreams: { web: { nodes: a:1, ejection: off } }\nadmin: off\naccess_log: off\n\
                discipline: none\nclasses: [{ name: all, retry: off }]\n";
    let site = loaded(text).site;
    assert_eq!(site.policy.pools[0].ejection.consecutive_failures, 0);
    assert!(site.admin.is_none());
    assert_eq!(site.policy.classes[0].retry.max_retries, 0);
    assert_eq!(site.policy.discipline, engine::Discipline::none());
}

#[test]
fn conditions_nest() {
    let text = format!(
        "{HEAD}classes:\n  - name: a\n    match:\n      host: [A.test, \"*.b.test\"]\n      path_prefix: /x\n      \
         header: {{ X-P: [gold, {{ prefix: si }}] }}\n      cookie: sid\n      not: {{ any: [{{ path: /x/y }}, {{ method: POST }}] }}\n  - name: all\n"
    );
    let site = loaded(&text).site;
    let Match::All(parts) = &site.rules[0].matches else { panic!("{:?}", site.rules[0]) };
    let [hosts, prefix, header, cookie, not] = parts.as_slice() else { panic!("{parts:?}") };
    assert!(matches!(hosts, Match::Either(h) if matches!(&h[1], Match::Host(HostPattern::Below(s)) if s == ".b.test")));
    assert!(matches!(prefix, Match::Path(PathPattern::Prefix(p)) if p == "/x"));
    let Match::Either(values) = header else { panic!("{header:?}") };
    assert!(matches!(&values[1], Match::Header(n, ValuePattern::Prefix(p)) if n == "x-p" && p == "si"));
    assert!(matches!(cookie, Match::Cookie(n, ValuePattern::Present) if n == "sid"));
    assert!(matches!(not, Match::Not(inner) if matches!(&**inner, Match::Either(either) if either.len() == 2)));
}

#[test]
fn templates_stand_apart_and_rules_keep_their_order() {
    let text = format!(
        "{HEAD}trusted_proxies: 10.0.0.1\nclasses:\n  - {{ name: t, per: {{ header: X-T }}, guarantee: {{ throughput: 1/s, \
         response_time: {{ avg: 1s }} }} }}\n  - {{ name: u, per: {{ cookie: u }}, max_live: 9 }}\n  - {{ name: all }}\n"
    );
    let Loaded { site, warnings } = loaded(&text);
    assert!(warnings.is_empty(), "{warnings:?}");
    let targets: Vec<&RuleTarget> = site.rules.iter().map(|rule| &rule.target).collect();
    let header = Key::Header("x-t".parse().unwrap());
    assert_eq!(*targets[0], RuleTarget::Template(engine::TemplateId(0), header));
    assert_eq!(*targets[1], RuleTarget::Template(engine::TemplateId(1), Key::Cookie("u".into())));
    assert_eq!(*targets[2], RuleTarget::Class(engine::ClassId(0)));
    assert_eq!(site.policy.templates.iter().map(|t| t.max_live).collect::<Vec<_>>(), [1_024, 9]);
    assert_eq!((site.classes.len(), site.templates.len()), (1, 2));
}

#[test]
fn a_class_says_what_a_source_is() {
    let text = format!(
        "{HEAD}discipline: none\nlimits: {{ connections_per_source: 20, new_connections_per_source: 2/s }}\nclasses:\n  \
         - {{ name: net, per: {{ source: /24 }}, source: {{ header: X-Key }} }}\n  \
         - {{ name: a, match: {{ host: a }}, source: /16 /48, limit_per_source: 120/min }}\n  - {{ name: rest }}\n"
    );
    let Loaded { site, warnings } = loaded(&text);
    assert!(warnings.is_empty(), "{warnings:?}");
    let size = |ipv4, ipv6| Key::Network(NetworkSize { ipv4, ipv6 });
    assert_eq!(site.rules[0].target, RuleTarget::Template(engine::TemplateId(0), size(24, 56)));
    assert_eq!(site.templates[0].source, Key::Header("x-key".parse().unwrap()));
    assert_eq!(site.classes.iter().map(|class| class.source.clone()).collect::<Vec<_>>(), [size(16, 48), size(32, 64)]);
    let rates: Vec<_> = site.policy.classes.iter().map(|class| class.queue.max_rate_per_flow).collect();
    assert_eq!((rates, site.limits.connections_per_source), (vec![Some(2.0), None], Some(20)));
    assert_eq!(site.limits.connect_interval_per_source, Some(Duration::from_millis(500)));
    let network = |text: &str| NetworkSize { ipv4: 24, ipv6: 56 }.network_of(text.parse().unwrap()).to_string();
    assert_eq!([network("192.0.2.7"), network("2001:db8:0:1ff::1")], ["192.0.2.0/24", "2001:db8:0:100::/56"]);
    assert_eq!([network("::1"), network("::")], ["::/56", "::/128"], "a client on a Unix socket has no address");
}

#[test]
fn requests_wait_as_long_as_their_limit_allows() {
    let class = |name: &str, rest: &str| format!("  - {{ name: {name}, match: {{ host: {name} }}{rest} }}\n");
    let promise = |limit: &str| format!(", guarantee: {{ throughput: 1/s, response_time: {{ p95: {limit} }} }}");
    let (short, long) = (promise("2s"), promise("4min"));
    let classes = [
        class("short", &short),
        class("long", &long),
        class("stated", &format!("{long}, queue: {{ max_wait: 10s }}")),
        "  - { name: rest }\n".to_owned(),
    ];
    let site = loaded(&format!("{HEAD}discipline: weirgate\nclasses:\n{}", classes.concat())).site;
    let waits: Vec<u64> = site.policy.classes.iter().map(|class| class.queue.max_wait.as_secs()).collect();
    assert_eq!(waits, [30, 240, 10, 30]);
}

#[test]
fn a_default_class_is_added_and_said() {
    let Loaded { site, warnings } =
        loaded(&format!("{HEAD}discipline: none\nclasses:\n  - {{ name: a, match: {{ host: a }} }}\n"));
    assert_eq!(site.policy.classes[1].name, "default");
    assert_eq!(site.classes.len(), 2);
    assert!(matches!(site.rules[1].matches, Match::Any));
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].what.contains("no class matches everything"));
}

#[test]
fn an_agent_of_two_machines_is_warned_of_where_costs_are_learned() {
    let policy = |table: &str, machines: [&str; 2]| {
        let [a, b] = machines.map(|machine| format!("machine: {machine}"));
        let nodes = format!("{{ address: 127.0.0.1:80, {a} }}, {{ address: 127.0.0.1:81, {b} }}, 127.0.0.2:80");
        format!("upstreams: {{ web: {{ nodes: [{nodes}], collector: {{}} }} }}\nclasses: [{{ name: a }}]\n{table}\n")
    };
    let warnings = |text: String| loaded(&format!("listen: 127.0.0.1:8080\n{text}")).warnings;
    let found = warnings(policy("page_table: learned", ["x", "y"]));
    assert!(
        matches!(found.as_slice(), [one] if one.what.contains("127.0.0.1:9902 counts for machines `x` and `y`")),
        "{found:?}"
    );
    assert!(warnings(policy("page_table: learned", ["x", "x"])).is_empty());
    assert!(warnings(policy("", ["x", "y"])).is_empty(), "nothing is learned");
}

#[test]
fn warnings_have_places() {
    let text = format!(
        "{HEAD}trusted_proxies: 0.0.0.0/0\nclasses:\n  - name: a\n    match: {{ host: a }}\n    service_time: 8ms\n    \
         guarantee: {{ response_time: {{ p95: 12ms }} }}\n    retry: {{ ratio: 0.5 }}\n  - name: all\n"
    );
    let lines = loaded(&text).warning_lines("p.yaml");
    let expected = [
        "p.yaml:3:18: trusted_proxies: warning: every peer is trusted",
        "p.yaml:8:16: classes[0].guarantee: warning: a class without `throughput` has no share of its own",
        "p.yaml:8:33: classes[0].guarantee.response_time: warning: 12 ms is less than twice the service time of 8 ms",
        "p.yaml:9:21: classes[0].retry.ratio: warning: up to 50 % more requests when nodes fail",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(expected) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn promises_that_nothing_keeps_are_warned_about() {
    let promise = "classes: [{ name: all, guarantee: { throughput: 5/s } }]\n";
    let none = loaded(&format!("{HEAD}discipline: none\n{promise}")).warnings;
    assert!(none.len() == 1 && none[0].what.contains("nothing keeps the guarantees"), "{none:?}");
    let quorum = loaded(&format!("{HEAD}discipline: quorum\n{promise}")).warnings;
    assert!(quorum.len() == 1 && quorum[0].what.contains("the window never shrinks"), "{quorum:?}");
    let tenant =
        loaded(&format!("{HEAD}discipline: none\nclasses: [{{ name: t, per: {{ header: X-T }} }}, {{ name: all }}]\n"))
            .warnings;
    assert!(tenant.len() == 1 && tenant[0].what.contains("any client can choose its class"), "{tenant:?}");
    let many = |discipline: &str| {
        let classes = "classes: [{ name: t, per: { header: X-T } }, { name: all }]\n";
        let head = HEAD.replace("[a:1, b:1]", "127.0.0.1:1");
        loaded(&format!("{head}page_table: learned\ndiscipline: {discipline}\n{classes}")).warnings
    };
    assert!(many("mqos").iter().any(|warning| warning.what.contains("looks at every class that waits")));
    assert_eq!(many("{ mqos: { precedence: drfq } }").len() + 1, many("mqos").len());
}

#[test]
fn shorter_limits_shorten_the_defaults() {
    let text = "listen: 127.0.0.1:80\nupstreams: { web: { nodes: a:1, health_check: { path: /, interval: 200ms } } }\n\
                classes: [{ name: all, timeouts: { total: 1s } }]\n";
    let site = loaded(text).site;
    let timeouts = site.classes[0].timeouts;
    assert_eq!([timeouts.connect, timeouts.first_byte, timeouts.total], [Duration::from_secs(1); 3]);
    assert_eq!(site.pools[0].health.as_ref().unwrap().timeout, Duration::from_millis(200));
}

#[test]
fn capacity_is_a_machines() {
    let text = "listen: 127.0.0.1:80\nupstreams:\n  a: { nodes: [{ address: a:1, machine: m }] }\n  \
                b: { nodes: [{ address: a:2, machine: m, capacity: 4 }] }\nclasses: [{ name: all, upstream: a }]\n";
    let site = loaded(text).site;
    assert_eq!(site.policy.nodes.iter().map(|n| n.capacity).collect::<Vec<_>>(), [Some(4.0), Some(4.0)]);
}

#[test]
fn custom_disciplines_name_each_method() {
    let text = format!(
        "{HEAD}discipline: {{ custom: {{ admit: {{ deadline: {{ stale_estimate: hold }} }}, load_control: {{ fixed: 64 }}, \
         precedence: fifo }} }}\nclasses: [{{ name: all }}]\n"
    );
    let discipline = loaded(&text).site.policy.discipline;
    assert_eq!(discipline.admit, engine::Admit::Deadline { stale: engine::StaleEstimate::Hold });
    assert_eq!(discipline.load_control, engine::LoadControl::Fixed { window: Some(64) });
    assert_eq!(discipline.precedence, engine::Precedence::Fifo);
}

#[test]
fn baselines_are_methods_of_a_custom_discipline() {
    let custom = |admit: &str, load_control: &str| {
        let methods = format!("admit: {admit}, load_control: {load_control}, precedence: fifo");
        format!("{HEAD}discipline: {{ custom: {{ {methods} }} }}\nclasses: [{{ name: all }}]\n")
    };
    let discipline = loaded(&custom("codel", "gradient")).site.policy.discipline;
    assert_eq!(discipline.admit, engine::Admit::Codel(engine::Codel::default()));
    assert_eq!(discipline.load_control, engine::LoadControl::Gradient(engine::Gradient::default()));
    let discipline = loaded(&custom("{ codel: { target: 8ms } }", "{ aimd: { back_off: 0.5, first_window: 40 } }"));
    let discipline = discipline.site.policy.discipline;
    let codel = engine::Codel { target: Duration::from_millis(8), ..engine::Codel::default() };
    assert_eq!(discipline.admit, engine::Admit::Codel(codel));
    let aimd = engine::Aimd { back_off: 0.5, first: 40, ..engine::Aimd::default() };
    assert_eq!(discipline.load_control, engine::LoadControl::Aimd(aimd));
    let said = errors(&custom("{ codel: { target: 0s } }", "{ aimd: { min_window: 50 } }"));
    assert!(said.contains("no time at all") && said.contains("not in order"), "{said}");
}

#[test]
fn files_that_are_no_text() {
    let text = format!("\u{feff}{HEAD}classes: [{{ name: all }}]\n");
    assert!(load_bytes("p.yaml", text.as_bytes()).is_ok(), "a byte-order mark is harmless");
    let missing = load_file(std::path::Path::new("no/such/policy.yaml")).unwrap_err();
    assert!(missing.to_string().starts_with("no/such/policy.yaml: cannot be read: "), "{missing}");
    let long = load_bytes("p.yaml", &vec![b'#'; weirgate_config::MAX_BYTES + 1]).unwrap_err();
    assert!(long.to_string().contains("longer than 16 MiB"));
}

#[test]
fn too_many_problems_are_counted() {
    let classes: String =
        (0..1_500).map(|i| format!("  - {{ name: c{i}, colour: x, match: {{ host: h{i} }} }}\n")).collect();
    let said = errors(&format!("{HEAD}classes:\n{classes}"));
    assert_eq!(said.lines().count(), 1_001);
    assert!(said.ends_with("p.yaml: 500 more problems are not shown\n"));
}

#[test]
fn reserves_may_stand_alone() {
    let site = loaded(include_str!("../../../policies/reserves.yaml")).site;
    assert!(site.listeners.is_empty() && site.policy.classes.is_empty() && site.admin.is_none());
    let reserves = site.reserves.expect("it has them");
    assert_eq!(
        (reserves.listen.to_string().as_str(), reserves.cluster.coordinator.as_str()),
        ("127.0.0.1:9903", "127.0.0.1:9903")
    );
    assert_eq!((reserves.every, reserves.on_demand), (Some(Duration::from_secs(5)), true));
    let page = reserves.admin.as_ref().expect("a page");
    assert_eq!(page.address, Address::Tcp("127.0.0.1:9904".parse().unwrap()));
    let classes: Vec<_> = reserves.cluster.classes.iter().map(|c| (c.name.as_str(), c.share, c.create)).collect();
    assert_eq!(classes, [("gold", 50.0, true), ("silver", 30.0, true), ("rest", 20.0, true)]);
    assert_eq!((reserves.cluster.node("n3"), reserves.cluster.node("n5")), (Some(2), None));
}

#[test]
fn reserves_know_the_classes_of_each_node() {
    let site = loaded(
        "reserves:\n  coordinator: Coordinator.internal:9903\n  admin: off\n  every: off\n  nodes: [n1, n2, n3]\n  classes:\n    \
         - { name: a, share: 60%, cgroup: a, nodes: [n3, n1] }\n    - { name: b, share: 0.4, cgroup: b }\n",
    )
    .site;
    let reserves = site.reserves.expect("it has them");
    assert_eq!(
        (reserves.cluster.coordinator.as_str(), reserves.every, reserves.admin.is_none()),
        ("coordinator.internal:9903", None, true)
    );
    assert_eq!(reserves.cluster.classes[0].nodes, Some(vec![0, 2]));
    assert_eq!([0, 1, 2].map(|node| reserves.cluster.classes[0].is_on(node)), [true, false, true]);
    assert!(
        reserves.cluster.classes[1].is_on(1)
            && loaded(&format!("{HEAD}classes: [{{ name: a }}]\n")).site.reserves.is_none()
    );
}

#[test]
fn where_a_page_table_is_learned_agents_are_asked_every_second() {
    let collector = |table: &str, collector: &str| {
        let head = HEAD.replace("[a:1, b:1]", &format!("[127.0.0.1:1, 127.0.0.2:1]{collector}"));
        let site = loaded(&format!("{head}page_table: {table}\nclasses: [{{ name: all }}]\n")).site;
        site.pools[0].collector.as_ref().map(|asked| (asked.every, asked.timeout, asked.port))
    };
    let (second, ten) = (Duration::from_secs(1), Duration::from_secs(10));
    let routes = "{ routes: { /a: { cpu: 1% } } }";
    let learned = "{ learned: true, routes: { /a: { cpu: 1% } } }";
    assert_eq!(collector("learned", ""), Some((second, second, Some(9902))));
    assert_eq!(collector(learned, ""), Some((second, second, Some(9902))));
    assert_eq!(collector(learned, ", collector: { port: 7 }"), Some((second, second, Some(7))));
    assert_eq!(collector(learned, ", collector: { every: 5s }"), Some((5 * second, 2 * second, Some(9902))));
    assert_eq!(collector(learned, ", collector: off"), None);
    assert_eq!(collector(routes, ""), None);
    assert_eq!(collector(routes, ", collector: {}"), Some((ten, 2 * second, Some(9902))));
}

#[test]
fn an_upstream_may_discover_its_nodes() {
    let text = "listen: 127.0.0.1:8080\nresolvers: { servers: [10.0.0.2, \"[::1]:5353\"], attempts: 3 }\nupstreams:\n  \
                a: { discover: { file: nodes.json } }\n  b: { discover: { http: \"http://10.0.0.1/nodes?v=1\" } }\n  \
                c: { discover: { dns: \"Web.Internal:80\", min_ttl: 1s } }\n  d: { discover: { srv: _http._tcp.web } }\n  \
                e: { nodes: 10.0.0.9:80 }\nclasses:\n  - { name: all, upstream: a, service_time: 1s, guarantee: { \
                throughput: 5/s, response_time: { p95: 2s } } }\n";
    let Loaded { site, warnings } = weirgate_config::load("/etc/weirgate/policy.yaml", text).expect("sound");
    // Nothing is known of the nodes, so nothing is said about their number.
    assert!(warnings.iter().all(|warning| !warning.what.contains("workers")), "{warnings:?}");
    let sources: Vec<_> = site.discover.iter().flatten().map(|discover| discover.source.to_string()).collect();
    let expected = ["/etc/weirgate/nodes.json", "http://10.0.0.1:80/nodes?v=1", "web.internal:80", "_http._tcp.web"];
    assert_eq!(sources, expected);
    assert_eq!((site.discover.len(), site.discover[4].is_none(), site.nodes.len()), (5, true, 1));
    let resolvers = &site.discover[2].as_ref().expect("it discovers").resolvers;
    assert_eq!(resolvers.servers, ["10.0.0.2:53", "[::1]:5353"].map(|text| text.parse().expect("an address")));
    assert_eq!(resolvers.attempts, 3);
    let demand = weirgate_config::feasibility(&site);
    assert_eq!(demand.pools[0].capacity, None, "the capacity is not known");
}
