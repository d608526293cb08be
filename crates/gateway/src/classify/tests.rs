//! Tests of each kind of condition by example, and of the index against a linear scan of all rules.

use std::net::IpAddr;
use std::sync::LazyLock;

use http::{HeaderName, Method};
use proptest::prelude::*;
use regex_automata::meta::Regex;
use weirgate_config::{CertificatePart, HostPattern, Match, PathPattern, Pattern, ValuePattern};

use super::*;
use crate::handshake::ClientTls;
use crate::request::Request;

/// Parts of a request and of its view.
#[derive(Clone, Debug)]
struct Sample {
    host: String,
    path: String,
    query: Option<String>,
    method: Method,
    fields: String,
    client: IpAddr,
    port: u16,
    tls: Option<ClientTls>,
    vouched: bool,
}

impl Sample {
    fn to(host: &str, path: &str) -> Sample {
        Sample {
            host: host.into(),
            path: path.into(),
            query: None,
            method: Method::GET,
            fields: String::new(),
            client: IpAddr::from([10, 0, 0, 1]),
            port: 80,
            tls: None,
            vouched: true,
        }
    }

    fn with(mut self, name: &'static str, value: &str) -> Sample {
        self.fields.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    fn query(mut self, query: &str) -> Sample {
        self.query = Some(query.into());
        self
    }

    /// Applies `to` to the view. The path may be one that no request has.
    fn view<R>(&self, to: impl FnOnce(&View<'_>) -> R) -> R {
        let Sample { host, method, fields, .. } = self;
        let query = self.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
        let head = match host.as_str() {
            "" => format!("{method} /{query} HTTP/1.0\r\n{fields}\r\n"),
            host => format!("{method} /{query} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"),
        };
        let request = Request::parse(head.as_bytes()).expect("it is sound");
        let Sample { path, client, port, tls, vouched, .. } = self;
        to(&View {
            request: &request,
            path,
            client: *client,
            port: *port,
            tls: tls.as_ref(),
            vouched: *vouched,
            visitor: None,
        })
    }
}

fn pattern(text: &str) -> Pattern {
    Pattern { text: text.into(), regex: Regex::new(&format!("^(?:{text})$")).unwrap() }
}

/// The patterns of random rules, compiled once.
static PATTERNS: LazyLock<[Pattern; 2]> = LazyLock::new(|| [pattern("1.*"), pattern("/m.*")]);

fn header(name: &'static str, value: ValuePattern) -> Match {
    Match::Header(HeaderName::from_static(name), value)
}

fn host(name: &str) -> Match {
    Match::Host(match name.strip_prefix('*') {
        Some(suffix) => HostPattern::Below(suffix.into()),
        None => HostPattern::Exact(name.into()),
    })
}

fn prefix(path: &str) -> Match {
    Match::Path(PathPattern::Prefix(path.into()))
}

/// Builds one rule per condition. The class has the same index as the condition.
fn classes(conditions: Vec<Match>) -> Classifier {
    let rules: Vec<Rule> =
        (0u32..).zip(conditions).map(|(i, matches)| Rule { matches, target: RuleTarget::Class(ClassId(i)) }).collect();
    Classifier::new(rules)
}

fn rule_of(classifier: &Classifier, request: &Sample) -> Option<usize> {
    request.view(|view| classifier.classify(view, Payload::NONE).expect("it needs no body").map(|c| c.rule))
}

/// The specification of the index: a linear scan.
fn linear(classifier: &Classifier, request: &Sample) -> Option<usize> {
    request.view(|view| {
        let fields = Fields::new(view, Payload::NONE);
        classifier.rules().iter().position(|rule| target(rule, &fields).is_some())
    })
}

#[test]
fn the_first_rule_that_matches_wins_whatever_its_kind() {
    let classifier = classes(vec![
        Match::All(vec![host("a.test"), prefix("/late")]),
        prefix("/mail"),
        host("*.a.test"),
        host("a.test"),
        Match::Any,
    ]);
    for (host, path, rule) in [
        ("a.test", "/late", 0),
        ("a.test", "/mail", 1),
        ("www.a.test", "/mail/x", 1),
        ("www.a.test", "/", 2),
        ("a.test", "/mailbox", 3),
        ("xa.test", "/", 4),
    ] {
        assert_eq!(rule_of(&classifier, &Sample::to(host, path)), Some(rule), "{host}{path}");
    }
}

#[test]
fn a_prefix_ends_at_a_segment() {
    let classifier = classes(vec![prefix("/mail/"), prefix("/")]);
    let rule = |path| rule_of(&classifier, &Sample::to("h", path));
    assert_eq!(
        [rule("/mail"), rule("/mail/"), rule("/mail/x"), rule("/mailbox"), rule("/")].map(Option::unwrap),
        [0, 0, 0, 1, 1]
    );
    assert_eq!(rule("*"), None);
}

#[test]
fn values_compare_in_every_way() {
    let conditions = vec![
        header("x-a", ValuePattern::Exact("one".into())),
        header("x-a", ValuePattern::Prefix("tw".into())),
        header("x-a", ValuePattern::Pattern(pattern("th.+"))),
        Match::Cookie("user".into(), ValuePattern::Exact("ann".into())),
        Match::Query("q".into(), ValuePattern::Exact("a b".into())),
        header("x-a", ValuePattern::Present),
    ];
    let classifier = classes(conditions);
    let request = || Sample::to("h", "/");
    for (request, rule) in [
        (request().with("x-a", "one"), Some(0)),
        (request().with("x-a", "zero").with("x-a", "one"), Some(0)),
        (request().with("x-a", "two"), Some(1)),
        (request().with("x-a", "three"), Some(2)),
        (request().with("x-a", "a three"), Some(5)),
        (request().with("cookie", "x=1; user=ann"), Some(3)),
        (request().with("cookie", "user=anna"), None),
        (request().query("p=1&q=a%20b"), Some(4)),
        (request().query("q=a"), None),
        (request().with("x-a", ""), Some(5)),
    ] {
        assert_eq!(rule_of(&classifier, &request), rule, "{request:?}");
    }
}

#[test]
fn method_port_and_source_compare() {
    let classifier = classes(vec![
        Match::All(vec![Match::Method(Method::POST), Match::Port(81)]),
        Match::Source("10.1.0.0/16".parse().unwrap()),
        Match::Not(Box::new(Match::Source("10.0.0.0/8".parse().unwrap()))),
    ]);
    let mut request = Sample::to("h", "/");
    assert_eq!(rule_of(&classifier, &request), None);
    request.client = "2001:db8::1".parse().unwrap();
    assert_eq!(rule_of(&classifier, &request), Some(2));
    request.client = "10.1.2.3".parse().unwrap();
    assert_eq!(rule_of(&classifier, &request), Some(1));
    (request.method, request.port) = (Method::POST, 81);
    assert_eq!(rule_of(&classifier, &request), Some(0));
}

#[test]
fn the_line_of_a_list_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policy.yaml");
    let policy = "listen: 127.0.0.1:0\nupstreams: { web: { nodes: [127.0.0.1:9] } }\nclasses:\n  - { name: crawlers, \
                  match: { source: [{ file: l.txt }, 192.0.2.1], path_prefix: /a } }\n  - { name: rest }\n";
    std::fs::write(&file, policy).expect("it can be written");
    std::fs::write(folder.path().join("l.txt"), "10.0.0.0/8\n10.1.0.0/16\n").expect("it can be written");
    let classifier = Classifier::new(weirgate_config::load_file(&file).expect("it is sound").site.rules);
    let mut request = Sample::to("h", "/a");
    for (client, rule, why) in [
        ("10.1.2.3", 0, "path below /a and (client in l.txt (2 networks) or client in 192.0.2.1/32); line 2 of l.txt"),
        ("10.2.0.1", 0, "path below /a and (client in l.txt (2 networks) or client in 192.0.2.1/32); line 1 of l.txt"),
        ("192.0.2.1", 0, "path below /a and (client in l.txt (2 networks) or client in 192.0.2.1/32)"),
        ("11.0.0.1", 1, "none of these holds: client in l.txt (2 networks) or client in 192.0.2.1/32"),
    ] {
        request.client = client.parse().unwrap();
        assert_eq!(rule_of(&classifier, &request), Some(rule), "{client}");
        let said = request.view(|view| classifier.explain(view, Payload::NONE));
        assert_eq!(said[0].why, why);
    }
}

/// A client that asks for `sni`, with the certificate of alice.
fn encrypted(sni: Option<&str>) -> ClientTls {
    let identity = weirgate_tls::Identity {
        subject: "CN=alice,O=Example".into(),
        common_name: Some("alice".into()),
        names: vec!["a.test".into(), "192.0.2.7".into()],
    };
    ClientTls { version: "1.3", sni: sni.map(str::to_owned), identity: Some(identity) }
}

#[test]
fn scheme_name_and_certificate_compare() {
    let certificate = |part, value: &str| Match::ClientCertificate(part, ValuePattern::Exact(value.into()));
    let conditions = [
        Match::Encrypted(true),
        Match::Encrypted(false),
        Match::Sni(HostPattern::Exact("x.a.test".into())),
        Match::Sni(HostPattern::Below(".a.test".into())),
        Match::ClientCertificate(CertificatePart::Subject, ValuePattern::Present),
        certificate(CertificatePart::Subject, "CN=alice,O=Example"),
        certificate(CertificatePart::CommonName, "alice"),
        certificate(CertificatePart::Name, "192.0.2.7"),
        certificate(CertificatePart::Name, "alice"),
    ];
    let hold = |tls: Option<ClientTls>| -> Vec<usize> {
        let request = Sample { tls, ..Sample::to("h", "/") };
        let holds = |at: &usize| rule_of(&classes(vec![conditions[*at].clone()]), &request).is_some();
        (0..conditions.len()).filter(holds).collect()
    };
    assert_eq!(hold(None), [1]);
    assert_eq!(hold(Some(ClientTls { version: "1.2", ..ClientTls::default() })), [0]);
    assert_eq!(hold(Some(encrypted(Some("x.a.test")))), [0, 2, 3, 4, 5, 6, 7]);
    assert_eq!(hold(Some(encrypted(None))), [0, 4, 5, 6, 7]);
}

#[test]
fn an_explanation_covers_tls() {
    let why = |condition: Match, tls: Option<ClientTls>| {
        let request = Sample { tls, ..Sample::to("h", "/") };
        request.view(|view| classes(vec![condition]).explain(view, Payload::NONE)[0].why.clone())
    };
    let sni = || Match::Sni(HostPattern::Below(".a.test".into()));
    let name = || Match::ClientCertificate(CertificatePart::Name, ValuePattern::Prefix("b".into()));
    let tls = || Some(encrypted(Some("b.test")));
    assert_eq!(why(Match::Encrypted(true), None), "needs scheme https, but the connection is not encrypted");
    assert_eq!(why(Match::Encrypted(false), tls()), "needs scheme http, but the connection is encrypted");
    assert_eq!(why(sni(), tls()), "needs sni *.a.test, but the client asked for \"b.test\"");
    assert_eq!(why(sni(), Some(encrypted(None))), "needs sni *.a.test, but the client asked for no name");
    let wants = "needs client certificate with alternative name starting with \"b\"";
    assert_eq!(why(name(), None), format!("{wants}, but the client has no certificate"));
    assert_eq!(why(name(), tls()), format!("{wants}, but it is \"a.test\" and \"192.0.2.7\""));
}

#[test]
fn d3_a_value_past_the_cap_is_present_and_compares_with_nothing() {
    let classifier = classes(vec![
        header("x-a", ValuePattern::Pattern(pattern("(a+)+"))),
        header("x-a", ValuePattern::Prefix("a".into())),
        header("x-a", ValuePattern::Present),
    ]);
    let longest = Sample::to("h", "/").with("x-a", &"a".repeat(MAX_VALUE_BYTES));
    assert_eq!(rule_of(&classifier, &longest), Some(0));
    let longer = Sample::to("h", "/").with("x-a", &"a".repeat(MAX_VALUE_BYTES + 1));
    assert_eq!(rule_of(&classifier, &longer), Some(2));
    // A backtracking matcher would not finish in any reasonable time here.
    let nearly = Sample::to("h", "/").with("x-a", &format!("{}$", "a".repeat(MAX_VALUE_BYTES - 1)));
    assert_eq!(rule_of(&classifier, &nearly), Some(1));
}

#[test]
fn a_template_needs_exactly_one_key_of_bounded_length() {
    let rules = [
        Rule {
            matches: Match::Any,
            target: RuleTarget::Template(TemplateId(7), Key::Header("x-tenant".parse().unwrap())),
        },
        Rule { matches: Match::Any, target: RuleTarget::Template(TemplateId(8), Key::Cookie("sid".into())) },
        Rule { matches: Match::Any, target: RuleTarget::Class(ClassId(0)) },
    ];
    let classifier = Classifier::new(rules.into());
    let request = || Sample::to("h", "/");
    let check = |request: Sample, class: ClassRef<'_>| {
        request.view(|view| assert_eq!(classifier.classify(view, Payload::NONE).unwrap().unwrap().class, class));
    };
    check(request().with("x-tenant", "acme"), ClassRef::Template(TemplateId(7), b"acme"));
    check(request().with("x-tenant", "acme").with("x-tenant", "other"), ClassRef::Class(ClassId(0)));
    check(request().with("x-tenant", ""), ClassRef::Class(ClassId(0)));
    let longest = "k".repeat(MAX_KEY_BYTES);
    check(request().with("x-tenant", &longest), ClassRef::Template(TemplateId(7), longest.as_bytes()));
    check(request().with("x-tenant", &format!("{longest}k")), ClassRef::Class(ClassId(0)));
    check(request().with("cookie", "a=b; sid=\"x1\""), ClassRef::Template(TemplateId(8), b"x1"));
    check(request().with("cookie", "sid=1; sid=2"), ClassRef::Class(ClassId(0)));
    check(request(), ClassRef::Class(ClassId(0)));
    // A header that did not come through a listed proxy is not trusted. A cookie belongs to the client in any
    // case.
    let direct = |request: Sample| Sample { vouched: false, ..request };
    check(direct(request().with("x-tenant", "acme")), ClassRef::Class(ClassId(0)));
    check(direct(request().with("cookie", "sid=1")), ClassRef::Template(TemplateId(8), b"1"));
}

#[test]
fn thousands_of_hosts_are_told_apart() {
    let conditions = (0..5000).map(|i| host(&format!("tenant{i}.test"))).chain([Match::Any]).collect();
    let classifier = classes(conditions);
    assert_eq!(rule_of(&classifier, &Sample::to("tenant4321.test", "/")), Some(4321));
    assert_eq!(rule_of(&classifier, &Sample::to("tenant5000.test", "/")), Some(5000));
}

#[test]
fn an_explanation_says_what_each_rule_wanted() {
    let rules = [
        Rule {
            matches: Match::All(vec![Match::Method(Method::GET), host("b.test")]),
            target: RuleTarget::Class(ClassId(0)),
        },
        Rule {
            matches: Match::Any,
            target: RuleTarget::Template(TemplateId(0), Key::Header("x-tenant".parse().unwrap())),
        },
        Rule {
            matches: Match::Either(vec![host("a.test"), header("x-a", ValuePattern::Exact("1".into()))]),
            target: RuleTarget::Class(ClassId(1)),
        },
        Rule { matches: Match::Any, target: RuleTarget::Class(ClassId(2)) },
    ];
    let said = Sample::to("a.test", "/").view(|view| Classifier::new(rules.into()).explain(view, Payload::NONE));
    let said: Vec<_> = said.iter().map(|e| (e.rule, e.matched, e.why.as_str())).collect();
    assert_eq!(
        said,
        [
            (0, false, "needs host b.test, but the host is \"a.test\""),
            (1, false, "header x-tenant is missing"),
            (2, true, "host a.test or header x-a = \"1\""),
        ]
    );
}

/// A path that nodes read in two ways is of the class that promises less.
#[test]
fn a_spelling_does_not_lead_to_a_better_class() {
    let site = crate::tests::site_trusting(&[]);
    let mut policy = site.policy;
    let class = policy.classes[0].clone();
    let with = |throughput| {
        let mut class = class.clone();
        class.guarantee.throughput = throughput;
        class
    };
    policy.classes = vec![with(None), with(Some(10.0)), with(Some(5.0))];
    let classifier = classes(vec![prefix("/bulk"), prefix("/gold"), Match::Any]);
    let found = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let request = Request::parse(head.as_bytes()).expect("it is sound");
        let view = View {
            request: &request,
            path: request.path(),
            client: [10, 0, 0, 1].into(),
            port: 80,
            tls: None,
            vouched: true,
            visitor: None,
        };
        classifier.classify_readings(&policy, &view, Payload::NONE).unwrap().map(|found| found.rule)
    };
    assert_eq!([found("/gold/a"), found("/bulk/a"), found("/x")], [Some(1), Some(0), Some(2)]);
    // A name with a slash keeps its class.
    assert_eq!([found("/gold/group%2Fproject"), found("/gold%2fa")], [Some(1), Some(2)]);
    assert_eq!([found("/gold/%2e%2e%2fbulk/a"), found("/gold/..%5cbulk"), found("/bulk/..%2fgold")], [Some(0); 3]);
}

/// Few names, so that rules and requests often match.
fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a.test", "b.test", "x.a.test", "y.x.a.test", "test", "a", ""])
}

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["/", "/m", "/m/", "/m/x", "/mm", "/n/m", "/n/", "*", "//m"])
}

fn value() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["1", "2", "12", ""])
}

fn condition() -> impl Strategy<Value = Match> {
    let values = || {
        prop_oneof![
            Just(ValuePattern::Present),
            value().prop_map(|v| ValuePattern::Exact(v.into())),
            value().prop_map(|v| ValuePattern::Prefix(v.into())),
            Just(ValuePattern::Pattern(PATTERNS[0].clone())),
        ]
    };
    let leaf = prop_oneof![
        1 => Just(Match::Any),
        4 => name().prop_map(host),
        2 => prop::sample::select(vec!["*.a.test", "*.x.a.test", "*.test"]).prop_map(host),
        2 => path().prop_map(|p| Match::Path(PathPattern::Exact(p.into()))),
        3 => path().prop_map(prefix),
        1 => Just(Match::Path(PathPattern::Pattern(PATTERNS[1].clone()))),
        1 => prop::sample::select(vec![Method::GET, Method::POST]).prop_map(Match::Method),
        1 => (80u16..82).prop_map(Match::Port),
        1 => any::<bool>().prop_map(Match::Encrypted),
        1 => name().prop_map(|name| Match::Sni(HostPattern::Exact(name.into()))),
        1 => values().prop_map(|v| Match::ClientCertificate(CertificatePart::Name, v)),
        1 => values().prop_map(|v| header("x-a", v)),
        1 => values().prop_map(|v| Match::Cookie("c".into(), v)),
        1 => values().prop_map(|v| Match::Query("q".into(), v)),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Match::All),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Match::Either),
            inner.prop_map(|part| Match::Not(Box::new(part))),
        ]
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let to = prop_oneof![
        4 => (0u32..5).prop_map(|c| RuleTarget::Class(ClassId(c))),
        1 => Just(RuleTarget::Template(TemplateId(0), Key::Header("x-a".parse().unwrap()))),
        1 => Just(RuleTarget::Template(TemplateId(1), Key::Cookie("c".into()))),
    ];
    (condition(), to).prop_map(|(matches, target)| Rule { matches, target })
}

fn request() -> impl Strategy<Value = Sample> {
    let several = || prop::collection::vec(value(), 0..3);
    let tls = prop::option::of(prop::option::of(name()).prop_map(encrypted));
    (name(), path(), several(), several(), several(), any::<bool>(), 80u16..82, tls).prop_map(
        |(host, path, headers, cookies, query, get, port, tls)| {
            let mut request = Sample::to(host, path);
            for value in headers {
                request = request.with("x-a", value);
            }
            for value in cookies {
                request = request.with("cookie", &format!("d=0; c={value}"));
            }
            request.query = Some(query.iter().map(|v| format!("q={v}")).collect::<Vec<_>>().join("&"));
            request.method = if get { Method::GET } else { Method::POST };
            (request.port, request.tls) = (port, tls);
            request
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// The index changes the cost and never the result. The explanation ends with the same rule.
    #[test]
    fn the_index_agrees_with_the_linear_scan(
        rules in prop::collection::vec(rule(), 0..24),
        requests in prop::collection::vec(request(), 1..8),
    ) {
        let classifier = Classifier::new(rules.clone());
        for request in &requests {
            let expected = linear(&classifier, request);
            prop_assert_eq!(rule_of(&classifier, request), expected);
            let said = request.view(|view| classifier.explain(view, Payload::NONE));
            prop_assert_eq!(said.iter().position(|e| e.matched), expected);
            prop_assert!(said.iter().all(|e| !e.why.is_empty()));
            prop_assert_eq!(said.len(), expected.map_or(rules.len(), |rule| rule + 1));
        }
    }
}
