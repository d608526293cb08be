//! Tests of `weirgate explain`.

use crate::{POLICY, Scratch, run};

/// Returns the output of `explain` for a request. The command must succeed.
fn explain(policy: &str, args: &[&str]) -> String {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", policy);
    let ended = run(&[&["explain", file.as_str()], args].concat());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{args:?}");
    ended.out
}

#[test]
fn it_tells_rule_class_servers_cost_and_guarantee() {
    let text = explain(POLICY, &["GET", "http://SmallCorp.test.//a/./b?x=1"]);
    let expected = "\
request   GET \"smallcorp.test\" \"/a/b?x=1\", client 127.0.0.1, port 0
rule 1    class BigCorp does not match: needs host bigcorp.test, but the host is \"smallcorp.test\"
rule 2    class SmallCorp matches: host smallcorp.test
class     SmallCorp
upstream  web: 127.0.0.1:9001, 127.0.0.1:9002
cost      8ms of service time (declared)
guarantee at least 50 requests per second
queue     at most 500 waiting, 20 from one source, each at most 2s
";
    assert_eq!(text, expected);
}

#[test]
fn headers_client_and_port_count() {
    let policy = POLICY.replace(
        "  - { name: other }",
        "  - { name: staff, match: { all: [{ source: 10.0.0.0/8 }, { port: 8443 }] } }
  - { name: gold, match: { cookie: { tier: gold } } }
  - { name: tenants, match: { path_prefix: /t }, per: { header: X-Tenant }, max_live: 100 }
  - { name: other }",
    );
    let class = |args: &[&str]| {
        let text = explain(&policy, args);
        text.lines().find(|line| line.starts_with("class ")).map(str::to_owned).expect("a class")
    };
    let url = "http://a.test/t/x";
    assert_eq!(class(&["GET", url]), "class     other");
    assert_eq!(class(&["GET", url, "--client", "10.1.2.3"]), "class     other");
    assert_eq!(class(&["GET", url, "--client", "10.1.2.3", "--port", "8443"]), "class     staff");
    assert_eq!(class(&["GET", url, "-H", "Cookie: a=b; tier=gold"]), "class     gold");
    assert_eq!(class(&["GET", url, "-H", "X-Tenant: acme"]), "class     tenants for \"acme\", one of at most 100");
    assert_eq!(class(&["GET", "/t", "-H", "Host: bigcorp.test"]), "class     BigCorp");
}

#[test]
fn a_client_on_a_unix_socket_needs_a_listener_there() {
    let refused = |args: &[&str]| {
        let scratch = Scratch::new();
        let file = scratch.write("policy.yaml", POLICY);
        let ended = run(&[&["explain", &file, "GET", "http://a.test/"], args].concat());
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{args:?}");
        ended.err
    };
    assert!(refused(&["--client", "unix"]).contains("`listen` names no Unix socket, so no client is called `unix`"));
    assert!(refused(&["--client", "unix", "--port", "80"]).contains("reaches no port; leave out --port"));
    let both = POLICY.replacen("listen: 127.0.0.1:0", "listen: [127.0.0.1:8080, \"unix:/run/a.sock\"]", 1);
    let first = |policy: &str, args: &[&str]| {
        let text = explain(policy, &[&["GET", "http://a.test/"], args].concat());
        text.lines().next().and_then(|line| line.split_once(", ")).expect("a client").1.to_owned()
    };
    assert_eq!(first(&both, &["--client", "unix"]), "client unix, no port");
    assert_eq!(first(&both, &["--client", "192.0.2.7"]), "client 192.0.2.7, port 8080");
    // A header of the PROXY protocol may name the client of a connection to a Unix socket.
    let unix = POLICY.replacen("listen: 127.0.0.1:0", "listen: \"unix:/run/a.sock\"", 1);
    assert_eq!(first(&unix, &[]), "client unix, no port");
    assert_eq!(first(&unix, &["--client", "192.0.2.7"]), "client 192.0.2.7, no port");
}

#[test]
fn a_redirect_comes_before_the_rules() {
    let policy = POLICY.replacen("listen: 127.0.0.1:0", "listen: { address: 127.0.0.1:0, redirect_to_https: 8443 }", 1);
    let text = explain(&policy, &["GET", "http://smallcorp.test/a"]);
    let expected = "\
request   GET \"smallcorp.test\" \"/a\", client 127.0.0.1, port 0
redirect  status 308 to port 8443, before any rule; ask about the https URL
";
    assert_eq!(text, expected);
}

#[test]
fn a_choice_of_nodes_that_is_more_than_the_load_is_told() {
    let dispatch = |how: &str| {
        let policy = POLICY.replacen("nodes:", &format!("dispatch: {how}, nodes:"), 1);
        let text = explain(&policy, &["GET", "http://smallcorp.test/"]);
        text.lines().find_map(|line| line.strip_prefix("dispatch  ").map(str::to_owned))
    };
    assert_eq!(
        dispatch("{ lard: { query: true } }").as_deref(),
        Some(
            "to the node that served this host, path and query before, unless it is much busier than others (idle \
             below 30 requests in flight, overloaded above 130)"
        )
    );
    let least_loaded = dispatch("{ least_loaded: { avoid_last: true } }");
    assert_eq!(least_loaded.as_deref(), Some("to the least loaded node, but not to that of the class's last request"));
    assert_eq!(dispatch("least_loaded"), None);
}

#[test]
fn of_many_rules_the_nearest_are_shown() {
    let many: String = (0..60).map(|i| format!("  - {{ name: c{i}, match: {{ host: h{i}.test }} }}\n")).collect();
    let policy = POLICY.replace("  - { name: other }\n", &many);
    let lines = |args: &[&str]| explain(&policy, args).lines().filter(|l| l.starts_with("rule ")).count();
    assert_eq!(lines(&["GET", "http://h59.test/"]), 21);
    assert_eq!(lines(&["GET", "http://h59.test/", "--all"]), 62);
}

#[test]
fn what_the_gateway_would_refuse_is_refused_here() {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", POLICY);
    for (args, why) in [
        (&["GET", "http://a.test/%00"][..], "would refuse this request with 400"),
        (&["GET", "http://a.test/../x"], "would refuse this request with 400"),
        (&["TRACE", "http://a.test/"], "would refuse this request with 405"),
        (&["GET", "/x"], "names no host"),
        (&["GET", "http://a.test/", "-H", "nonsense"], "is not a header"),
        (&["G T", "http://a.test/"], "would refuse this request with 400"),
        (&["GET", "http://"], "would refuse this request with 400"),
    ] {
        let ended = run(&[&["explain", file.as_str()], args].concat());
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(ended.err.contains(why), "{args:?}: {}", ended.err);
    }
}

#[test]
fn the_web_switch_tells_set_and_threshold() {
    let policy = include_str!("../../../../policies/web-switch.yaml");
    let line = |args: &[&str], word: &str| {
        let text = explain(policy, args);
        text.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let normal = ["GET", "http://a.test/img/x.png"];
    assert_eq!(line(&normal, "content"), "content   static, at the upstream's nodes of set normal_static");
    assert_eq!(
        line(&normal, "admit"),
        "admit     refused while more than 40.1 static requests are in flight per CPU, counted by the gateway. A \
         dynamic one counts as 10.0"
    );
    let top = ["GET", "http://a.test/", "-H", "Cookie: plan=gold"];
    assert_eq!(line(&top, "content"), "content   dynamic, at the upstream's nodes of set top_dynamic");
    assert_eq!(line(&top, "admit"), "admit     always, because the class has a guarantee");
}

#[test]
fn priorities_and_fallbacks_are_told() {
    let policy = include_str!("../../../../policies/seda.yaml");
    let line = |args: &[&str], word: &str| {
        let text = explain(policy, args);
        text.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let subscriber = ["GET", "http://a.test/", "-H", "Cookie: plan=gold"];
    assert_eq!(line(&subscriber, "priority"), "priority  premium, admitted while fewer than 100 wait");
    let feed = ["GET", "http://a.test/feed"];
    assert_eq!(line(&feed, "priority"), "priority  basic, admitted while fewer than 50 wait");
    assert_eq!(line(&feed, "fallback"), "fallback  upstream static-copy, as class feeds/fallback");
}

#[test]
fn the_route_and_what_it_takes_are_told() {
    let table = "page_table: { learned: true, routes: { '/a/*': { cpu: 9%, disk: 0.25% } } }\n";
    let policy = format!("{table}{POLICY}");
    let text = explain(&policy, &["GET", "http://smallcorp.test/a/./7?x=1"]);
    assert!(text.contains("route     /a/*\n"), "{text}");
    assert!(
        text.contains("takes     cpu 9%, disk 0.25%, bandwidth 0% of a node's second (before learning)\n"),
        "{text}"
    );
    let text = explain(&policy, &["GET", "http://smallcorp.test/b"]);
    assert!(text.contains("route     not in the page table, so the class's cost counts\n"), "{text}");
    assert!(text.contains("takes     cpu 1%, disk 1%, bandwidth 1% of a node's second"), "{text}");
}

#[test]
fn tls_is_taken_from_the_url_and_from_files() {
    let scratch = Scratch::new();
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["shop.test".to_owned()]).expect("a name");
    params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
    let certificate = scratch.write("shop.pem", &params.self_signed(&key).expect("a certificate").pem());
    scratch.write("shop.key", &key.serialize_pem());
    let file = scratch.write(
        "policy.yaml",
        "listen:
  - 127.0.0.1:8080
  - address: 127.0.0.1:8443
    tls:
      certificates: { certificate: shop.pem, key: shop.key }
      client_certificates: { mode: optional, ca: shop.pem }
upstreams: { web: { nodes: 127.0.0.1:9001 } }
classes:
  - { name: alice, match: { client_certificate: { common_name: alice } } }
  - { name: shop, match: { sni: shop.test } }
  - { name: encrypted, match: { scheme: https } }
  - { name: plain }
",
    );
    let class = |args: &[&str]| {
        let ended = run(&[&["explain", &file, "GET"], args].concat());
        let found = ended.out.lines().find_map(|line| line.strip_prefix("class     ").map(str::to_owned));
        found.unwrap_or(ended.err)
    };
    assert_eq!(class(&["https://shop.test/"]), "shop");
    assert_eq!(class(&["https://shop.test/", "--sni", "other.test"]), "encrypted");
    assert_eq!(class(&["https://192.0.2.7/"]), "encrypted");
    assert_eq!(class(&["http://shop.test/"]), "plain");
    assert_eq!(class(&["http://shop.test/", "--port", "8443"]), "shop");
    assert_eq!(class(&["https://a.test/", "--client-certificate", &certificate]), "alice");
    assert!(class(&["http://shop.test/", "--sni", "shop.test"]).contains("has no TLS"));
    assert!(class(&["https://a.test/", "--client-certificate", "no.pem"]).contains("cannot be read"));
}
