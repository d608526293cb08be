//! Tests of the importers. Every result is a policy that loads.

use proptest::prelude::*;
use weirgate_config::{Loaded, load};

use super::*;

fn imported(text: &str, included: &[(&str, &str)]) -> Result<(Imported, Loaded), String> {
    let source = Source { name: "main.conf".into(), text: text.to_owned() };
    let mut include = |pattern: &str| {
        let found: Vec<Source> = included
            .iter()
            .filter(|(name, _)| *name == pattern)
            .map(|(name, text)| Source { name: (*name).to_owned(), text: (*text).to_owned() })
            .collect();
        if found.is_empty() { Err("No such file".to_owned()) } else { Ok(found) }
    };
    let imported = import(&source, &mut include)?;
    let yaml = imported.yaml();
    let loaded = load("p.yaml", &yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}\nof\n{text}"));
    Ok((imported, loaded))
}

/// Returns each rule as `class: condition -> upstream`.
fn rules(yaml: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in yaml.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- name: ") {
            all.push(name.to_owned());
        } else if let Some(value) = line.strip_prefix("match: ").or_else(|| line.strip_prefix("upstream: "))
            && let Some(last) = all.last_mut()
        {
            last.push(' ');
            last.push_str(value);
        }
    }
    all
}

const NGINX: &str = include_str!("tests/nginx.conf");

#[test]
fn nginx_is_imported_with_its_files() {
    let site = "server { server_name *.blog.test; location /a { proxy_pass https://blog.internal; } }";
    let (imported, loaded) = imported(NGINX, &[("sites/*.conf", site)]).expect("a policy");
    let yaml = imported.yaml();
    assert_eq!(
        rules(&yaml),
        [
            "shop.test-api { host: [shop.test, www.shop.test], path_prefix: /api } 10.0.1.1-9000",
            "shop.test { host: [shop.test, www.shop.test] } shop",
            "blog.test-a { host: \"*.blog.test\", path_prefix: /a } blog.internal",
            "other unix--run-old.sock",
        ]
    );
    assert_eq!(loaded.site.listeners.len(), 2);
    for part in [
        "- { address: 10.0.0.1:8080, weight: 3 }",
        "- { address: 10.0.0.2:80, max_outstanding: 8 }",
        "- \"blog.internal:443\"",
        "- \"unix:/run/old.sock\"",
        "    tls: {}",
        "# main.conf:5: server 10.0.0.3 backup: it is left out",
        "# main.conf:6: map $http_upgrade $connection_upgrade { … }",
        "# main.conf:14: return 200 ok; {fine} (location = /health)",
        "# main.conf:15: fastcgi_pass unix:/run/php.sock (location ~ \\.php$)",
        "# main.conf:16: proxy_pass http://$backend (location /x): its address is a variable",
        "the path /api/ becomes / there",
    ] {
        assert!(yaml.contains(part), "{part:?} is missing:\n{yaml}");
    }
}

#[test]
fn listeners_with_tls_are_not_opened_without_it() {
    let text = "server { listen 443 ssl; listen 80; server_name a.test; ssl_certificate /etc/a.pem; ssl_certificate_key /etc/a.key;\n\
                location / { proxy_pass http://127.0.0.1:3000; } }";
    let (imported, _) = imported(text, &[]).expect("a policy");
    let yaml = imported.yaml();
    assert!(yaml.contains("\nlisten: 127.0.0.1:8080\n"), "{yaml}");
    assert!(
        yaml.contains(
            "# listen: { address: 0.0.0.0:443, tls: { certificates: { certificate: /etc/a.pem, key: /etc/a.key } } }"
        ),
        "{yaml}"
    );
}

#[test]
fn ports_are_conditions_only_where_servers_differ() {
    let text = "server { listen 80; location / { proxy_pass http://a:1; } } server { listen 81; location / { proxy_pass http://b:1; } }";
    let (imported, _) = imported(text, &[]).expect("a policy");
    assert_eq!(rules(&imported.yaml()), ["a-1 { port: 80 } a-1", "b-1 { port: 81 } b-1", "other a-1"]);
}

const HAPROXY: &str = include_str!("tests/haproxy.cfg");

#[test]
fn haproxy_is_imported() {
    let (imported, loaded) = imported(HAPROXY, &[]).expect("a policy");
    let yaml = imported.yaml();
    assert_eq!(
        rules(&yaml),
        [
            "shop.test-api { host: [shop.test, www.shop.test], path_prefix: /api } api",
            "shop.test-v1 { host: [shop.test, www.shop.test], path_prefix: /v1 } api",
            "api.test { host: api.test } api",
            "blog.test { host: \"*.blog.test\" } blog",
            "other shop",
        ]
    );
    assert_eq!(loaded.site.listeners.len(), 2);
    for part in [
        "- { address: 10.0.1.1:9000, max_outstanding: 20 }",
        "health_check: { path: /healthz }",
        "- \"unix:/run/shop.sock\"",
        "# main.conf:16: http-request deny if office (frontend web)",
        "# main.conf:19: use_backend shop if shop !office: only conditions on host and path",
        "# main.conf:12: use_backend api unless office: only",
        "# main.conf:13: use_backend bk_%[path,lower]: only",
        "# main.conf:24: server a2 backup: it is left out",
        "# main.conf:26: verify none of server b1",
        "unused: no route leads to it",
        "mode tcp has no requests",
    ] {
        assert!(yaml.contains(part), "{part:?} is missing:\n{yaml}");
    }
}

#[test]
fn the_first_servers_of_a_name_count() {
    for (first, second) in [("", " server s 10.0.0.1:80\n"), (" server s 10.0.0.1:80\n", "")] {
        let (imported, _) = imported(&format!("listen l\n{first}\nlisten l\n{second}"), &[]).expect("a policy");
        assert_eq!(imported.upstreams, 1, "{}", imported.yaml());
    }
    let both = "listen l\n server s 10.0.0.1:80\n\nlisten l\n server t 10.0.0.2:80\n";
    let (imported, _) = imported(both, &[]).expect("a policy");
    let yaml = imported.yaml();
    assert!(yaml.contains("10.0.0.1:80") && yaml.contains("main.conf:4: l: servers of this name are listed"), "{yaml}");
}

#[test]
fn what_cannot_be_imported_says_why() {
    for (text, hint) in [
        ("", "nothing in main.conf forwards"),
        ("server { listen 80; root /var/www; }", "root /var/www"),
        ("server { listen 80", "has no `;`"),
        ("server {", "is not closed"),
        ("}", "closes nothing"),
        ("a 'b", "string is not closed"),
        ("; a;", "no directive before"),
        ("include main.conf;", "nothing in main.conf forwards"),
        ("backend a\n server s 10.0.0.1:80\n", "no route leads to it"),
        ("frontend a\n bind :80\n default_backend nowhere\n", "it has no server"),
    ] {
        let why = imported(text, &[]).unwrap_err();
        assert!(why.contains(hint), "{text:?}: {why}");
    }
    let why = imported("include self;", &[("self", "include self;")]).unwrap_err();
    assert!(why.contains("does a file include itself"), "{why}");
    assert!(imported(&"a {".repeat(100_000), &[]).unwrap_err().contains("nested"));
}

/// Words of both configurations.
fn noise() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "http", "server", "upstream", "location", "listen", "server_name", "proxy_pass", "{", "}", ";", "{ ", " }",
        ";\n", "\n", "/", "/a", "/a/", "/a/b", "= /a", "~ x", "a.test", "*.a.test", ".a.test", "*.b.a.test", "_", "80",
        "81", "443 ssl", "[::]:80", "127.0.0.1:80", "http://u", "https://u", "https://x_y", "http://10.0.0.1",
        "http://unix:/s:", "https://unix:/s", "u", "10.0.0.1:80", "weight=2", "'", "\"", "#", "\\", "$x",
        "frontend f\n", "backend u\n", "listen l\n", "defaults\n", " bind :80\n", " bind :81\n",
        " bind *:443 ssl crt /c\n", " use_backend u if", " default_backend u\n", " acl x hdr(host) a.test\n",
        " acl x path_beg /a\n", " x", " { path /a }", " { hdr_end(host) .a.test }", " server s 10.0.0.1:80 check\n",
        " server t web_1:80 ssl\n", " option httpchk /h\n", " or", " mode http\n", "é", "\u{0}",
    ]);
    prop::collection::vec(word, 0..60).prop_map(|words| words.join(" ").replace(" \n ", "\n"))
}

/// Configurations that are mostly sound.
fn servers() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a.test", "*.a.test", ".a.test", "b.a.test", "_", "", "a.test b.test", "~x"]);
    let listen = prop::sample::select(vec![
        "80", "81", "127.0.0.1:80", "[::]:80", "*:82", "unix:/run/x", "443 ssl", "0.0.0.0:80",
    ]);
    let location = prop::sample::select(vec!["/", "/a", "/a/", "= /a", "^~ /a/b", "/a/b/c", "= /", "/x.y"]);
    let pass = prop::sample::select(vec![
        "http://u", "http://10.0.0.1:80", "https://w.test", "http://v/x", "http://unix:/s:/", "https://u",
        "https://a_b.test",
    ]);
    let locations = prop::collection::vec((location, pass), 0..4);
    let server = (prop::collection::vec(listen, 0..3), name, locations).prop_map(|(listens, name, locations)| {
        let listens: String = listens.iter().map(|listen| format!("listen {listen};")).collect();
        let names = if name.is_empty() { String::new() } else { format!("server_name {name};") };
        let locations: String =
            locations.iter().map(|(path, pass)| format!("location {path} {{ proxy_pass {pass}; }}\n")).collect();
        format!("server {{ {listens} {names}\n{locations} }}\n")
    });
    prop::collection::vec(server, 0..6).prop_map(|servers| {
        format!(
            "upstream u {{ server 10.0.0.1; server web_1:81; }} upstream v {{ server unix:/s; }}\n{}",
            servers.concat()
        )
    })
}

proptest! {
    #[test]
    fn no_configuration_panics_and_every_result_loads(text in noise(), servers in servers()) {
        let _ = imported(&text, &[("u", "server { }")]);
        let _ = imported(&servers, &[]);
    }
}
