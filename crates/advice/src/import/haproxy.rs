//! Reads the backends and routes of a HAProxy configuration.
//!
//! Source: HAProxy 3.0 Configuration Manual, Sec. 2.2 (quoting), 4 (proxies), 5 (bind and server options) and 7 (ACLs).
//! Routes are `use_backend` with conditions on the host and the path, and `default_backend`. HAProxy compares
//! `path_beg` by character and Weirgate by segment: `path_beg /mail` also takes `/mailbox` in HAProxy.

use std::collections::HashMap;

use super::{MAX_ROUTES, Path, Pool, Route, Server, Site, Source, host, node};

/// Maximum number of alternatives of a route's condition.
const MAX_ALTERNATIVES: usize = 200;

/// Words that are dropped without a note: settings of connections and logs, for which Weirgate has its own, and of load
/// balancing, which its discipline decides.
const SILENT: [&str; 14] = [
    "acl", "balance", "bind", "description", "errorfile", "hash-type", "http-reuse", "id", "log", "log-format",
    "maxconn", "mode", "timeout", "unique-id-format",
];

/// Options that are dropped without a note.
const SILENT_OPTIONS: [&str; 9] = [
    "httplog", "dontlognull", "forwardfor", "http-server-close", "http-keep-alive", "redispatch", "httpslog",
    "log-health-checks", "httpclose",
];

/// A line of a section.
struct Line {
    words: Vec<String>,
    place: String,
}

/// A section.
struct Section {
    kind: String,
    name: String,
    lines: Vec<Line>,
    place: String,
}

/// The condition of an ACL, or of one of its alternatives.
#[derive(Clone, Debug)]
enum Test {
    Hosts(Vec<String>),
    Paths(Vec<Path>),
    /// A condition that cannot be carried over.
    Other,
}

/// Reads the configuration.
pub(super) fn site(source: &Source) -> Site {
    let mut site = Site::default();
    let sections = sections(source, &mut site);
    let default_mode = sections.iter().filter(|section| section.kind == "defaults").find_map(mode);
    let is_tcp = |section: &Section| mode(section).or(default_mode) == Some("tcp");
    for section in sections.iter().filter(|section| matches!(section.kind.as_str(), "backend" | "listen")) {
        if !is_tcp(section) {
            backend(section, &mut site);
        }
    }
    let mut ports = Vec::new();
    for section in sections.iter().filter(|section| matches!(section.kind.as_str(), "frontend" | "listen")) {
        if is_tcp(section) {
            site.lose(&section.place, &format!("{} {}: mode tcp has no requests", section.kind, section.name));
        } else {
            ports.push(frontend(section, &mut site));
        }
    }
    // A condition on the port is needed only if frontends differ.
    if ports.windows(2).all(|pair| pair[0] == pair[1]) {
        site.routes.iter_mut().for_each(|route| route.ports.clear());
    }
    site
}

/// Divides a file into sections.
fn sections(source: &Source, site: &mut Site) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    for (number, text) in source.text.lines().enumerate() {
        let place = format!("{}:{}", source.name, number + 1);
        let words = words(text);
        let Some(first) = words.first() else { continue };
        let is_section = !text.starts_with([' ', '\t'])
            && matches!(
                first.as_str(),
                "global"
                    | "defaults"
                    | "frontend"
                    | "backend"
                    | "listen"
                    | "peers"
                    | "resolvers"
                    | "userlist"
                    | "cache"
                    | "program"
                    | "mailers"
                    | "ring"
                    | "http-errors"
                    | "fcgi-app"
                    | "crt-store"
                    | "log-forward"
            );
        if is_section {
            let (kind, name) = (first.clone(), words.get(1).cloned().unwrap_or_default());
            if !matches!(kind.as_str(), "global" | "defaults" | "frontend" | "backend" | "listen") {
                site.lose(&place, &format!("{kind} {name}"));
            }
            all.push(Section { kind, name, lines: Vec::new(), place });
        } else if let Some(section) = all.last_mut() {
            section.lines.push(Line { words, place });
        }
    }
    all
}

/// Splits a line into words. Quotes and backslashes keep spaces, and `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut current: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => current.get_or_insert_default().push(c),
            (_, '\\') => current.get_or_insert_default().extend(chars.next()),
            (Some(_), c) => current.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                current.get_or_insert_default();
            }
            (None, '#') => break,
            (None, c) if c.is_whitespace() => all.extend(current.take()),
            (None, c) => current.get_or_insert_default().push(c),
        }
    }
    all.extend(current);
    all
}

/// Returns the mode that a section names.
fn mode(section: &Section) -> Option<&str> {
    let line = section.lines.iter().rev().find(|line| line.words.first().is_some_and(|word| word == "mode"))?;
    line.words.get(1).map(String::as_str)
}

/// Adds a note about a line that affects requests and is not carried over.
fn other(line: &Line, section: &Section, site: &mut Site) {
    let word = line.words.first().map(String::as_str).unwrap_or_default();
    let option = line.words.get(1).map(String::as_str).unwrap_or_default();
    let silent = SILENT.contains(&word)
        || (word == "option" && SILENT_OPTIONS.contains(&option))
        || matches!(word, "server" | "use_backend" | "default_backend");
    if !silent {
        site.lose(&line.place, &format!("{} ({} {})", line.words.join(" "), section.kind, section.name));
    }
}

fn backend(section: &Section, site: &mut Site) {
    let mut pool = Pool { name: section.name.clone(), place: section.place.clone(), ..Pool::default() };
    let mut tls = Vec::new();
    let mut checked = false;
    for line in &section.lines {
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["server", name, address, options @ ..] => {
                checked |= options.contains(&"check");
                if let Some(server) = member(name, address, options, line, site)
                    && pool.servers.iter().all(|other| other.address != server.address)
                {
                    tls.push(server.tls);
                    pool.servers.push(server);
                }
            }
            ["default-server", options @ ..] => {
                checked |= options.contains(&"check");
                other(line, section, site);
            }
            ["option", "httpchk", rest @ ..] => {
                let path = rest.iter().find(|word| word.starts_with('/')).copied().unwrap_or("/");
                pool.health = health(path);
                if pool.health.is_none() {
                    other(line, section, site);
                }
            }
            ["http-check", "send", rest @ ..] => {
                let uri = rest.iter().position(|word| *word == "uri").and_then(|at| rest.get(at + 1));
                match uri.and_then(|path| health(path)) {
                    Some(path) => pool.health = Some(path),
                    None => other(line, section, site),
                }
            }
            _ if section.kind == "backend" => other(line, section, site),
            _ => {}
        }
    }
    // Without `check` HAProxy makes no checks, whatever their form.
    pool.health = pool.health.filter(|_| checked);
    if tls.iter().any(|one| *one) && !tls.iter().all(|one| *one) {
        site.lose(&section.place, "TLS of some servers of this backend: all or none of an upstream's nodes have TLS");
        pool.servers.retain(|server| !server.tls);
    }
    site.pools.push(pool);
}

/// Returns the path of a health check, if it is a plain one.
fn health(path: &str) -> Option<String> {
    crate::names::segments_of(path).map(str::to_owned)
}

fn member(name: &str, text: &str, options: &[&str], line: &Line, site: &mut Site) -> Option<Server> {
    let text = text.strip_prefix("ipv4@").or_else(|| text.strip_prefix("ipv6@")).unwrap_or(text);
    let address = match text.strip_prefix("unix@") {
        Some(path) => format!("unix:{path}"),
        None if text.starts_with('/') => format!("unix:{text}"),
        None => text.to_owned(),
    };
    let mut server = Server { address: String::new(), weight: None, max_outstanding: None, tls: false };
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        match *option {
            "weight" | "maxconn" => {
                let value = rest
                    .next()
                    .and_then(|value| value.parse::<u32>().ok())
                    .filter(|value| (1..=1_000_000).contains(value));
                if value.is_none() {
                    site.lose(&line.place, &format!("{option} of server {name}"));
                }
                match *option {
                    "weight" => server.weight = value,
                    _ => server.max_outstanding = value,
                }
            }
            "ssl" => server.tls = true,
            "backup" | "disabled" => {
                site.lose(&line.place, &format!("server {name} {option}: it is left out"));
                return None;
            }
            "check" | "check-ssl" => {}
            "inter" | "fall" | "rise" | "fastinter" | "downinter" | "slowstart" | "cookie" | "sni" | "alpn"
            | "port" | "verify" | "ca-file" | "id" | "resolvers" | "init-addr" => {
                let value = rest.next().copied().unwrap_or_default();
                if matches!(*option, "cookie" | "sni" | "alpn" | "verify" | "ca-file" | "slowstart") {
                    site.lose(&line.place, &format!("{option} {value} of server {name}"));
                }
            }
            _ => site.lose(&line.place, &format!("{option} of server {name}")),
        }
    }
    if server.tls && address.starts_with("unix:") {
        site.lose(&line.place, &format!("server {name}: TLS over a Unix socket needs a `server_name` in `tls`"));
        return None;
    }
    match node(&address) {
        Ok(address) => Some(Server { address, ..server }),
        Err(why) => {
            site.lose(&line.place, &format!("server {name} {text}: {why}"));
            None
        }
    }
}

/// Reads a frontend. Returns its ports.
fn frontend(section: &Section, site: &mut Site) -> Vec<u16> {
    let mut ports = Vec::new();
    let mut acls: HashMap<&str, Vec<Test>> = HashMap::new();
    for line in &section.lines {
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["bind", address, options @ ..] => bind(address, options, line, &mut ports, site),
            ["acl", name, test @ ..] => acls.entry(name).or_default().push(read(test)),
            _ => {}
        }
    }
    ports.sort_unstable();
    ports.dedup();
    let mut last = None;
    for line in &section.lines {
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        let place = &line.place;
        match words.as_slice() {
            ["use_backend", upstream] if !upstream.contains('%') => {
                last = last.or(Some(((*upstream).to_owned(), place.clone())));
            }
            ["use_backend", upstream, "if", rest @ ..] => match condition(rest, &acls) {
                Some(routes) => {
                    for (hosts, path) in routes {
                        if site.routes.len() <= MAX_ROUTES {
                            let (upstream, place, ports) = ((*upstream).to_owned(), place.clone(), ports.clone());
                            site.routes.push(Route { hosts, ports, path, upstream, place });
                        }
                    }
                }
                None => {
                    site.lose(place, &format!("{}: only conditions on host and path are carried over", words.join(" ")))
                }
            },
            ["default_backend", upstream] => last = last.or(Some(((*upstream).to_owned(), place.clone()))),
            ["use_backend", ..] => {
                site.lose(
                    place,
                    &format!("{}: only conditions with `if` on host and path are carried over", words.join(" ")),
                );
            }
            ["server" | "default-server", ..] | ["option", "httpchk", ..] | ["http-check", ..] => {}
            _ => other(line, section, site),
        }
    }
    if section.kind == "listen" {
        last = last.or(Some((section.name.clone(), section.place.clone())));
    }
    if let Some((upstream, place)) = last {
        site.routes.push(Route { hosts: Vec::new(), ports: ports.clone(), path: Path::Any, upstream, place });
    }
    ports
}

fn bind(text: &str, options: &[&str], line: &Line, ports: &mut Vec<u16>, site: &mut Site) {
    for one in text.split(',') {
        let one = one.strip_prefix("ipv4@").or_else(|| one.strip_prefix("ipv6@")).unwrap_or(one);
        let full = match one.strip_prefix("*:").or_else(|| one.strip_prefix(':')) {
            Some(port) => format!("0.0.0.0:{port}"),
            None => one.replace(":::", "[::]:"),
        };
        match full.parse::<std::net::SocketAddr>().ok().filter(|address| address.port() > 0) {
            None => site.lose(&line.place, &format!("bind {one}")),
            Some(address) if options.contains(&"ssl") => {
                let file = options
                    .iter()
                    .position(|word| *word == "crt")
                    .and_then(|at| options.get(at + 1))
                    .unwrap_or(&"FILE");
                let (address, file) = (crate::policy::scalar(&address.to_string()), crate::policy::scalar(file));
                let encrypted = format!(
                    "{{ address: {address}, tls: {{ certificates: {{ certificate: {file}, key: {file} }} }} }}"
                );
                if !site.encrypted.contains(&encrypted) && site.encrypted.len() < super::MAX_LOST {
                    site.encrypted.push(encrypted);
                }
            }
            Some(address) => {
                site.listens(address.to_string());
                ports.push(address.port());
            }
        }
    }
}

/// Reads the test of an ACL, such as `hdr(host) -i a.test` and `path_beg /api`.
fn read(words: &[&str]) -> Test {
    let Some((fetch, rest)) = words.split_first() else { return Test::Other };
    let mut values = rest;
    let mut found = None;
    while let Some((flag, after)) = values.split_first().filter(|(flag, _)| flag.starts_with('-')) {
        values = match (*flag, after.split_first()) {
            ("-i", _) => after,
            ("-m", Some((method, after))) => {
                found = Some(*method);
                after
            }
            ("--", _) => {
                values = after;
                break;
            }
            _ => return Test::Other,
        };
    }
    let fetch = fetch.to_ascii_lowercase();
    let fetch =
        fetch.strip_suffix(",lower").unwrap_or(&fetch).replace("field(1,:)", "").trim_end_matches(',').to_owned();
    let fetch = fetch.strip_suffix(",lower").unwrap_or(&fetch);
    let hosts = |names: Option<Vec<String>>| names.filter(|names| !names.is_empty()).map_or(Test::Other, Test::Hosts);
    let paths = |paths: Option<Vec<Path>>| paths.filter(|paths| !paths.is_empty()).map_or(Test::Other, Test::Paths);
    match (fetch, found) {
        ("hdr(host)" | "req.hdr(host)" | "req.fhdr(host)" | "ssl_fc_sni", None | Some("str")) => {
            hosts(values.iter().map(|name| host(name).filter(|name| !name.starts_with('*'))).collect())
        }
        ("hdr_end(host)" | "req.hdr_end(host)", None) | ("hdr(host)" | "req.hdr(host)", Some("end")) => {
            let below = |name: &&str| host(&format!("*.{}", name.strip_prefix('.')?));
            hosts(values.iter().map(below).collect())
        }
        ("path_beg", None) | ("path", Some("beg")) => paths(values.iter().map(|path| Path::prefix(path)).collect()),
        ("path", None | Some("str")) => paths(values.iter().map(|path| Path::exact(path)).collect()),
        _ => Test::Other,
    }
}

/// Returns the test that one of these tests holds. The lines of one ACL are alternatives.
fn either(tests: Vec<Test>) -> Test {
    let mut all = tests.into_iter();
    let first = all.next().unwrap_or(Test::Other);
    all.fold(first, |one, other| match (one, other) {
        (Test::Hosts(one), Test::Hosts(other)) => Test::Hosts([one, other].concat()),
        (Test::Paths(one), Test::Paths(other)) => Test::Paths([one, other].concat()),
        _ => Test::Other,
    })
}

/// Returns hosts and path of each alternative of a condition, or `None` if it cannot be carried over.
fn condition(words: &[&str], acls: &HashMap<&str, Vec<Test>>) -> Option<Vec<(Vec<String>, Path)>> {
    let mut routes = Vec::new();
    for alternative in words.split(|word| matches!(*word, "or" | "||")) {
        let (mut hosts, mut paths) = (None, None);
        let mut rest = alternative;
        if rest.is_empty() {
            return None;
        }
        while let Some((word, after)) = rest.split_first() {
            let tests = if *word == "{" {
                let end = after.iter().position(|word| *word == "}")?;
                let test = read(&after[..end]);
                rest = &after[end + 1..];
                vec![test]
            } else {
                rest = after;
                // A negated name cannot be carried over.
                acls.get(word)?.clone()
            };
            match either(tests) {
                Test::Hosts(names) if hosts.is_none() => hosts = Some(names),
                Test::Paths(these) if paths.is_none() => paths = Some(these),
                _ => return None,
            }
        }
        for path in paths.unwrap_or_else(|| vec![Path::Any]) {
            routes.push((hosts.clone().unwrap_or_default(), path));
        }
        if routes.len() > MAX_ALTERNATIVES {
            return None;
        }
    }
    Some(routes)
}
