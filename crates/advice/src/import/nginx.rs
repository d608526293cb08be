//! Reads the upstreams and routes of an nginx configuration.
//!
//! Source: nginx, ngx_http_core_module, ngx_http_upstream_module and ngx_http_proxy_module. A `server` is chosen by
//! port and `server_name`, and a `location` by the longest prefix. nginx compares prefixes by character and Weirgate
//! by segment: `location /mail` also takes `/mailbox` in nginx.

use super::nginx_words::{Directive, Reader};
use super::{Path, Pool, Route, Server, Site, Source, host, node};

/// Directives that need no mention: settings of the process, of logs and of connections, for which Weirgate has its
/// own.
const SILENT: [&str; 42] = [
    "access_log", "charset", "client_body_buffer_size", "client_body_timeout", "client_header_buffer_size",
    "client_header_timeout", "daemon", "default_type", "error_log", "events", "http2", "include", "keepalive",
    "keepalive_requests", "keepalive_timeout", "large_client_header_buffers", "listen", "load_module", "location",
    "log_format", "log_not_found", "pid", "proxy_buffer_size", "proxy_buffering", "proxy_buffers",
    "proxy_busy_buffers_size", "proxy_http_version", "proxy_pass", "resolver", "sendfile", "send_timeout",
    "server_name", "server_names_hash_bucket_size", "server_tokens", "tcp_nodelay", "tcp_nopush", "types",
    "types_hash_max_size", "user", "worker_processes", "worker_rlimit_nofile", "zone",
];

/// Headers that Weirgate sets itself, or passes as they are.
const OWN_HEADERS: [&str; 8] = [
    "connection", "host", "upgrade", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port",
    "x-real-ip",
];

/// Reads the configuration.
pub(super) fn site(
    source: &Source,
    include: &mut dyn FnMut(&str) -> Result<Vec<Source>, String>,
) -> Result<Site, String> {
    let mut reader = Reader::new(include);
    let directives = reader.file(source, 0)?;
    let mut site = Site::default();
    for (place, what) in reader.missing {
        site.lose(&place, &what);
    }
    // A file of sites-enabled stands in `http` without saying so.
    let inside: Vec<&Directive> = directives
        .iter()
        .flat_map(|directive| match (directive.name.as_str(), &directive.block) {
            ("http", Some(block)) => block.iter().collect::<Vec<_>>(),
            _ => vec![directive],
        })
        .collect();
    for directive in inside.iter().filter(|directive| directive.name == "upstream") {
        upstream(directive, &mut site);
    }
    for directive in &inside {
        match directive.name.as_str() {
            "upstream" => {}
            "server" => server(directive, &mut site),
            _ => other(directive, "", &mut site),
        }
    }
    let first = site.routes.first().map(|route| route.ports.clone()).unwrap_or_default();
    if site.routes.iter().all(|route| route.ports == first) {
        site.routes.iter_mut().for_each(|route| route.ports.clear());
    }
    Ok(site)
}

/// Notes a directive that means something for requests and is not carried over.
fn other(directive: &Directive, within: &str, site: &mut Site) {
    let name = directive.name.as_str();
    let own = name == "proxy_set_header"
        && directive.args.first().is_some_and(|header| OWN_HEADERS.contains(&header.to_ascii_lowercase().as_str()));
    let silent =
        SILENT.contains(&name) || name.starts_with("gzip") || name.starts_with("ssl_") || name.starts_with("worker_");
    if !silent && !own {
        let args: Vec<&str> = directive.args.iter().map(String::as_str).collect();
        let block = if directive.block.is_some() { " { … }" } else { "" };
        site.lose(&directive.place, format!("{name} {}{block}{within}", args.join(" ")).trim());
    }
}

fn upstream(directive: &Directive, site: &mut Site) {
    let Some(name) = directive.args.first() else { return };
    let mut pool = Pool { name: name.clone(), place: directive.place.clone(), ..Pool::default() };
    for part in directive.block.iter().flatten() {
        match part.name.as_str() {
            "server" => pool.servers.extend(member(part, site)),
            "least_conn" | "random" | "keepalive" | "keepalive_timeout" | "keepalive_requests" | "zone" => {}
            _ => other(part, &format!(" (upstream {name})"), site),
        }
    }
    let mut seen: Vec<String> = Vec::new();
    pool.servers.retain(|server| {
        let new = !seen.contains(&server.address);
        seen.push(server.address.clone());
        new
    });
    site.pools.push(pool);
}

/// Reads a `server` of an upstream.
fn member(part: &Directive, site: &mut Site) -> Option<Server> {
    let (text, options) = part.args.split_first()?;
    let address = address(text, 80);
    let mut server = Server { address: String::new(), weight: None, max_outstanding: None, tls: false };
    for option in options {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match (name, value.parse::<u32>()) {
            ("weight", Ok(weight @ 1..=1_000_000)) => server.weight = Some(weight),
            ("max_conns", Ok(max @ 1..)) => server.max_outstanding = Some(max),
            ("max_conns", Ok(0)) | ("max_fails" | "fail_timeout" | "resolve", _) => {}
            ("backup" | "down", _) => {
                site.lose(&part.place, &format!("server {text} {name}: it is left out"));
                return None;
            }
            _ => site.lose(&part.place, &format!("{option} of server {text}")),
        }
    }
    match address.and_then(|address| node(&address)) {
        Ok(address) => Some(Server { address, ..server }),
        Err(why) => {
            site.lose(&part.place, &format!("server {text}: {why}"));
            None
        }
    }
}

/// Adds the port to an address that has none.
fn address(text: &str, port: u16) -> Result<String, String> {
    if text.contains('$') {
        return Err("its address is a variable".into());
    }
    let has_port = text.starts_with("unix:")
        || text.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    Ok(if has_port { text.trim_end_matches(':').to_owned() } else { format!("{text}:{port}") })
}

fn server(directive: &Directive, site: &mut Site) {
    let block: Vec<&Directive> = directive.block.iter().flatten().collect();
    let value = |name: &str| block.iter().find(|part| part.name == name).and_then(|part| part.args.first());
    let mut ports = Vec::new();
    let has_listen = block.iter().any(|part| part.name == "listen");
    for part in block.iter().filter(|part| part.name == "listen") {
        let Some(text) = part.args.first() else { continue };
        let Some((address, port)) = listen(text) else {
            site.lose(&part.place, &format!("listen {text}"));
            continue;
        };
        if part.args.iter().any(|arg| arg == "ssl" || arg == "quic") {
            let file = |name| value(name).map_or("FILE".to_owned(), |path| crate::policy::scalar(path));
            let line = format!(
                "{{ address: {}, tls: {{ certificates: {{ certificate: {}, key: {} }} }} }}",
                crate::policy::scalar(&address),
                file("ssl_certificate"),
                file("ssl_certificate_key")
            );
            if !site.encrypted.contains(&line) && site.encrypted.len() < super::MAX_LOST {
                site.encrypted.push(line);
            }
        } else {
            site.listens(address);
            ports.extend(port);
        }
    }
    if !has_listen {
        site.listens("0.0.0.0:80".into());
        ports.push(80);
    }
    ports.sort_unstable();
    ports.dedup();
    let mut hosts = Vec::new();
    let mut any = false;
    for part in block.iter().filter(|part| part.name == "server_name") {
        for name in &part.args {
            match name.strip_prefix('.').map(|below| (host(below), host(&format!("*.{below}")))) {
                Some((one, below)) => hosts.extend(one.into_iter().chain(below)),
                // Names that no client sends stand for the default server.
                None if matches!(name.as_str(), "_" | "" | "-" | "--" | "!@#") => any = true,
                None => match host(name) {
                    Some(name) => hosts.push(name),
                    None => site.lose(&part.place, &format!("server_name {name}")),
                },
            }
        }
    }
    let named = block.iter().any(|part| part.name == "server_name");
    if named && hosts.is_empty() && !any {
        site.lose(&directive.place, "server { … }: none of its names can be carried over");
        return;
    }
    if any {
        hosts.clear();
    }
    for part in &block {
        if part.name == "location" {
            location(part, &hosts, &ports, site);
        } else {
            other(part, "", site);
        }
    }
}

/// Returns the address of a listener as a policy has it, and its port.
fn listen(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(path) = text.strip_prefix("unix:") {
        let plain =
            path.starts_with('/') && path.len() <= 100 && !path.ends_with('/') && !path.contains(char::is_control);
        return plain.then(|| (text.to_owned(), None));
    }
    let text = match text.strip_prefix("*:").or_else(|| text.strip_prefix("localhost:")) {
        Some(port) if text.starts_with('*') => format!("0.0.0.0:{port}"),
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.bytes().all(|b| b.is_ascii_digit()) => format!("0.0.0.0:{text}"),
        None if text.parse::<std::net::Ipv4Addr>().is_ok() || text.ends_with(']') => format!("{text}:80"),
        None => text.to_owned(),
    };
    let address: std::net::SocketAddr =
        text.parse().ok().filter(|address: &std::net::SocketAddr| address.port() > 0)?;
    Some((address.to_string(), Some(address.port())))
}

fn location(directive: &Directive, hosts: &[String], ports: &[u16], site: &mut Site) {
    let shown = format!("location {}", directive.args.join(" "));
    let path = match directive.args.as_slice() {
        [path] if path.starts_with('/') => Path::prefix(path),
        [word, path] if word == "^~" => Path::prefix(path),
        [word, path] if word == "=" => Path::exact(path),
        _ => None,
    };
    let block: Vec<&Directive> = directive.block.iter().flatten().collect();
    for part in &block {
        match part.name.as_str() {
            "location" => location(part, hosts, ports, site),
            "proxy_pass" => {}
            _ => other(part, &format!(" ({shown})"), site),
        }
    }
    let Some(pass) = block.iter().find(|part| part.name == "proxy_pass") else { return };
    let Some(path) = path else {
        site.lose(&directive.place, &format!("{shown}: only paths and prefixes are carried over"));
        return;
    };
    let target = pass.args.first().map(String::as_str).unwrap_or_default();
    match forward(target, &pass.place, directive.args.last().map_or("", String::as_str), site) {
        Ok(upstream) => {
            let (hosts, ports) = (hosts.to_vec(), ports.to_vec());
            site.routes.push(Route { hosts, ports, path, upstream, place: directive.place.clone() });
        }
        Err(why) => site.lose(&pass.place, &format!("proxy_pass {target} ({shown}): {why}")),
    }
}

/// Returns the name of the upstream that a `proxy_pass` names. An address becomes an upstream of its own.
fn forward(target: &str, place: &str, location: &str, site: &mut Site) -> Result<String, String> {
    if target.contains('$') {
        return Err("its address is a variable".into());
    }
    let (scheme, rest) = target.split_once("://").ok_or("it is no URL")?;
    let tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return Err("only http and https are carried over".into()),
    };
    let (authority, uri) = match rest.strip_prefix("unix:") {
        Some(socket) => {
            let (path, uri) = socket.split_once(':').unwrap_or((socket, ""));
            (format!("unix:{path}"), uri)
        }
        None => {
            let at = rest.find('/').unwrap_or(rest.len());
            (rest[..at].to_owned(), &rest[at..])
        }
    };
    if !uri.is_empty() && uri != location {
        site.lose(
            place,
            &format!("proxy_pass {target}: the path {location} becomes {uri} there, and stays as it is in Weirgate"),
        );
    }
    if let Some(pool) = site.pools.iter_mut().find(|pool| pool.name == authority) {
        // Over a Unix socket there is no name that a certificate could cover.
        if tls && !pool.servers.iter().any(|server| server.address.starts_with("unix:")) {
            pool.servers.iter_mut().for_each(|server| server.tls = true);
        }
        return Ok(authority);
    }
    let address = node(&address(&authority, if tls { 443 } else { 80 })?)?;
    if tls && address.starts_with("unix:") {
        return Err("TLS over a Unix socket needs a `server_name` in `tls`".into());
    }
    let server = Server { address, weight: None, max_outstanding: None, tls };
    site.pools.push(Pool { name: authority.clone(), servers: vec![server], health: None, place: place.to_owned() });
    Ok(authority)
}
