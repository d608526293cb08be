//! `weirgate explain`: the gateway's treatment of a request.

use std::fmt::{self, Display, Write as _};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use weirgate_config::{
    HeaderEdits, HeaderRules, Key, Listener, LocalityKeyOf, RuleTarget, Site, Standing, UNIX_CLIENT, client_text,
};
use weirgate_engine::{
    Admit, Class, Content, Dispatch, Lard, LoadSource, Mode, Policy, ServerLoad, ServiceSet, Statistic,
};
use weirgate_gateway::classify::{ClassRef, Classifier, Explained, Payload, View, source_position};
use weirgate_gateway::{ClientTls, Origin, Request, Visitor};
use weirgate_pages::Index;
use weirgate_spanned_yaml::unit::number_text;
use weirgate_tls::Identity;
use weirgate_wire::RESOURCE_NAMES;

use crate::args::Explain;
use crate::exit;
use crate::run::gateway;

/// Maximum number of rules before the matching one that are shown without `--all`. The nearest ones are the
/// likely mistakes, and a list of a thousand is of no use.
const MAX_RULES: usize = 20;

pub(crate) fn run(args: &Explain) -> ExitCode {
    let loaded = match weirgate_config::load_file(&args.file) {
        Ok(loaded) => loaded,
        Err(errors) => {
            exit::tell(&errors.to_string());
            return exit::fail(&format!("{} is not sound: nothing to explain", args.file.display()));
        }
    };
    let site = match gateway(&args.file.display().to_string(), loaded.site) {
        Ok(site) => site,
        Err(why) => return exit::fail(&why),
    };
    let request = match Asked::new(args, &site) {
        Ok(request) => request,
        Err(why) => return exit::fail(&why),
    };
    match explain(&site, &request, args.all) {
        Ok(text) => exit::print(&text),
        Err(why) => exit::fail(&why),
    }
}

/// The request that the person asks about.
struct Asked {
    request: Request,
    body: Vec<u8>,
    peer: std::net::IpAddr,
    /// Port of the listener. `None` for a Unix socket.
    port: Option<u16>,
    tls: Option<ClientTls>,
    /// Port to which the listener redirects it.
    redirect: Option<u16>,
    /// Standing of the visitor, whatever its cookie says.
    standing: Option<Standing>,
}

impl Asked {
    fn new(args: &Explain, site: &Site) -> Result<Asked, String> {
        let body = match args.body.as_deref().map(|body| (body, body.strip_prefix('@'))) {
            None => Vec::new(),
            Some((_, Some(file))) => std::fs::read(file).map_err(|error| format!("{file} cannot be read: {error}"))?,
            Some((text, None)) => text.as_bytes().to_vec(),
        };
        let mut fields = String::new();
        let mut names_host = false;
        for line in &args.headers {
            let wrong = || format!("{line:?} is not a header; write -H 'Name: value'");
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            if name.is_empty() || line.contains(['\r', '\n']) {
                return Err(wrong());
            }
            names_host |= name.eq_ignore_ascii_case("host");
            fields.push_str(&format!("{name}: {}\r\n", value.trim()));
        }
        let authority = args.url.split_once("://").map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
        let host = match authority {
            _ if names_host => String::new(),
            Some(authority) => format!("Host: {authority}\r\n"),
            None => {
                return Err(format!(
                    "{:?} names no host; write a whole URL, such as http://host/path, or add -H 'Host: …'",
                    args.url
                ));
            }
        };
        let head = format!("{} {} HTTP/1.1\r\n{host}{fields}\r\n", args.method, args.url);
        let request = Request::parse(head.as_bytes())
            .map_err(|(status, why)| format!("the gateway would refuse this request with {status}: {why}"))?;
        if let Some(limit) = site.limits.body_bytes.filter(|limit| body.len() as u64 > *limit) {
            return Err(format!(
                "the gateway would refuse this request with 413: its body has {} bytes, of which `limits.body_bytes` \
                 allows {limit}",
                body.len()
            ));
        }
        if args.client == Some(UNIX_CLIENT) && args.port.is_some() {
            return Err(
                "a client on a Unix socket reaches no port; leave out --port, or name the client's address".into()
            );
        }
        let listener = listener(args, site)?;
        let tls = match &listener.tls {
            Some(_) => Some(tls(args, &request)?),
            None if args.sni.is_some() || args.client_certificate.is_some() => {
                return Err(format!(
                    "the listener {} has no TLS, so a client sends it no name and no certificate; choose another one \
                     with --port or an https URL",
                    listener.name
                ));
            }
            None => None,
        };
        let address = listener.name.address.tcp();
        let own = if address.is_some() { Ipv4Addr::LOCALHOST.into() } else { UNIX_CLIENT };
        Ok(Asked {
            request,
            body,
            peer: args.client.map_or(own, |client| client.to_canonical()),
            port: args.port.or(address.map(|address| address.port())),
            tls,
            redirect: listener.redirect_to_https,
            standing: args.visitor,
        })
    }

    /// Returns the visitor, or the reason why it is unknown, if the policy has visitors.
    fn visitor(&self, site: &Site) -> Option<Result<Visitor, &'static str>> {
        let visitors = site.visitors.as_ref()?;
        let now = weirgate_clock::calendar();
        Some(match self.standing {
            Some(standing) => Ok(Visitor::with(standing, now)),
            None => Visitor::of(visitors, &self.request, now),
        })
    }
}

/// Returns the listener that receives the request.
fn listener<'s>(args: &Explain, site: &'s Site) -> Result<&'s Listener, String> {
    let listeners = || site.listeners.iter();
    let encrypted = match args.url.split_once("://") {
        Some((scheme, _)) => scheme.eq_ignore_ascii_case("https"),
        None => false,
    };
    let same_scheme = || listeners().filter(|listener| listener.tls.is_some() == encrypted);
    let port = |listener: &Listener| listener.name.address.tcp().map(|address| address.port());
    let same_port = || listeners().find(|listener| args.port.is_some() && port(listener) == args.port);
    // A client with an address may still be one that a header of the PROXY protocol names.
    let reaches = |client, listener: &Listener| (client == UNIX_CLIENT) == port(listener).is_none();
    let same_kind = || same_scheme().find(|listener| args.client.is_none_or(|client| reaches(client, listener)));
    let found = same_port().or_else(same_kind);
    if args.client == Some(UNIX_CLIENT) {
        // The scheme may be left open, but no other listener has such clients.
        let found = found.or_else(|| listeners().find(|listener| reaches(UNIX_CLIENT, listener)));
        return found.ok_or_else(|| "`listen` names no Unix socket, so no client is called `unix`".to_owned());
    }
    let found = found.or_else(|| same_scheme().next());
    found.or(site.listeners.first()).ok_or_else(|| "no listener receives requests".to_owned())
}

/// Returns the details that the client states when it begins TLS.
fn tls(args: &Explain, request: &Request) -> Result<ClientTls, String> {
    let host = request.host();
    // Clients send no addresses as names (RFC 6066 Sec. 3).
    let is_name = !host.is_empty() && !host.starts_with('[') && host.parse::<std::net::IpAddr>().is_err();
    let sni = args.sni.as_ref().map(|name| name.to_ascii_lowercase()).or_else(|| is_name.then(|| host.to_owned()));
    let identity = args.client_certificate.as_ref().map(|path| Identity::read(path)).transpose()?;
    Ok(ClientTls { version: "1.3", sni, identity })
}

/// Returns the whole answer.
fn explain(site: &Site, asked: &Asked, all: bool) -> Result<String, String> {
    let request = &asked.request;
    let origin = Origin::new(asked.peer, site, request);
    let mut view = View::new(site, request, origin, asked.port.unwrap_or(0), asked.tls.as_ref());
    let visitor = asked.visitor(site);
    view.visitor = visitor.as_ref().and_then(|found| found.as_ref().ok());
    let classifier = Classifier::new(site.rules.clone());
    let payload = Payload::of(request, &asked.body, true, site.limits.body_prefix);
    let Ok(Some(found)) = classifier.classify_readings(&site.policy, &view, payload) else {
        return Err("no rule matches this request".to_owned());
    };
    view.path = found.path;
    let said = classifier.explain(&view, payload);
    let query = request.query().map(|q| format!("?{q}")).unwrap_or_default();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "request   {} {:?} {:?}, client {}, {}",
        request.method().map_or("", http::Method::as_str),
        request.host(),
        format!("{}{query}", request.path()),
        client_text(origin.client),
        asked.port.map_or("no port".to_owned(), |port| format!("port {port}"))
    );
    if origin.listed {
        let _ = writeln!(
            text,
            "proxy     {}, which trusted_proxies lists, so its word about the client counts",
            client_text(asked.peer)
        );
    }
    if let Some(tls) = &asked.tls {
        let name = tls.sni.as_deref().map_or("for no name".to_owned(), |name| format!("for {name:?}"));
        let subject = tls.identity.as_ref().map_or("without a client certificate".to_owned(), |identity| {
            format!("with the certificate of {:?}", identity.subject)
        });
        let _ = writeln!(text, "tls       {name}, {subject}");
    }
    if let Some(found) = &visitor {
        let _ = match found {
            Ok(visitor) => writeln!(text, "visitor   {}", visitor.standing.as_str()),
            Err(why) => writeln!(text, "visitor   unknown: {why}"),
        };
    }
    if let Some(port) = asked.redirect {
        let _ = writeln!(text, "redirect  status 308 to port {port}, before any rule; ask about the https URL");
        return Ok(text);
    }
    if classifier.reads_bodies() && !asked.body.is_empty() {
        let _ = match payload {
            Payload::Opaque(why) => writeln!(text, "body      meets no condition: {why}"),
            Payload::Read { whole: false, bytes } => {
                writeln!(text, "body      conditions see the first {} of {} bytes", bytes.len(), asked.body.len())
            }
            _ => Ok(()),
        };
    }
    if found.path != request.path() {
        let _ = writeln!(
            text,
            "reading   some servers read this path as {:?}, and the rules promise that less",
            found.path
        );
    }
    let earlier = found.rule;
    let hidden = if all { 0 } else { earlier.saturating_sub(MAX_RULES) };
    if hidden > 0 {
        let _ = writeln!(text, "          {hidden} earlier rules do not match; --all shows them");
    }
    for Explained { rule, matched, why } in said.iter().skip(hidden) {
        let verdict = if *matched { "matches" } else { "does not match" };
        let _ = writeln!(text, "rule {:<4} {} {verdict}: {why}", rule + 1, target_name(site, *rule));
    }
    let (class, max_live) = match found.class {
        ClassRef::Class(id) => (site.policy.classes.get(id.0 as usize), None),
        ClassRef::Template(id, _) | ClassRef::Network(id, _) => {
            let template = site.policy.templates.get(id.0 as usize);
            (template.map(|t| &t.class), template.map(|t| t.max_live))
        }
    };
    if let Some(class) = class {
        let key = match found.class {
            ClassRef::Template(_, key) => Some(weirgate_wire::admin::key_text(key)),
            ClassRef::Network(_, network) => Some(network.to_string()),
            ClassRef::Class(_) => None,
        };
        write_class(&mut text, site, class, key.as_deref(), max_live);
        let class_site = match found.class {
            ClassRef::Class(id) => site.classes.get(id.0 as usize),
            ClassRef::Template(id, _) | ClassRef::Network(id, _) => site.templates.get(id.0 as usize),
        };
        if let Some(class_site) = class_site {
            write_mode(&mut text, class, &class_site.source, &view);
            write_headers(&mut text, &class_site.headers);
        }
        write_route(&mut text, site, class, request);
    }
    Ok(text)
}

/// Returns `class gold` or `template tenants` for a rule.
fn target_name(site: &Site, rule: usize) -> String {
    match site.rules.get(rule).map(|r| &r.target) {
        Some(RuleTarget::Class(id)) => {
            let class = site.policy.classes.get(id.0 as usize);
            format!("class {}", class.map_or("?", |c| c.name.as_str()))
        }
        Some(RuleTarget::Template(id, key)) => {
            let template = site.policy.templates.get(id.0 as usize);
            let by = match key {
                Key::Header(name) => format!("header {name}"),
                Key::Cookie(name) => format!("cookie {name}"),
                Key::Network(size) => format!("source {size}"),
                Key::Visitor => "visitor".to_owned(),
            };
            format!("template {} by {by}", template.map_or("?", |t| t.class.name.as_str()))
        }
        None => String::new(),
    }
}

fn write_class(text: &mut String, site: &Site, class: &Class, key: Option<&str>, max_live: Option<u32>) {
    let policy = &site.policy;
    let _ = match (key, max_live) {
        (Some(key), Some(max)) => writeln!(text, "class     {} for {key:?}, one of at most {max}", class.name),
        _ => writeln!(text, "class     {}", class.name),
    };
    let pool = policy.pools.get(class.pool).map_or("?", |pool| pool.name.as_str());
    let nodes = policy.nodes.iter().zip(&site.nodes).filter(|(node, _)| node.pool == class.pool);
    let nodes: Vec<&str> = nodes.map(|(_, place)| place.address.as_str()).collect();
    let tls = site.pools.get(class.pool).is_some_and(|pool| pool.tls.is_some());
    let nodes = match site.discover.get(class.pool) {
        Some(Some(discover)) => format!("nodes from {}", discover.source),
        _ => shorten(&nodes),
    };
    let _ = writeln!(text, "upstream  {pool}: {nodes}{}", if tls { ", over TLS" } else { "" });
    write_dispatch(text, site, class);
    write_content(text, policy, class);
    write_priority(text, policy, class);
    let cost = match class.service_time {
        Some(time) => format!("{} of service time (declared)", Span(time)),
        None => "not declared: the service time is learned".to_owned(),
    };
    let _ = writeln!(text, "cost      {cost}");
    let _ = writeln!(text, "guarantee {}", guarantee(class));
    let queue = class.queue;
    let _ = writeln!(
        text,
        "queue     at most {} waiting, {} from one source, each at most {}",
        queue.max_waiting,
        queue.max_waiting_per_flow,
        Span(queue.max_wait)
    );
}

/// Writes whether the request is enforced, unless all requests are.
fn write_mode(text: &mut String, class: &Class, source: &Key, view: &View<'_>) {
    let said = match class.mode {
        Mode::Enforce => return,
        Mode::Observe => "observe: the request passes, and what would have happened to it is counted".to_owned(),
        Mode::Share(_) => {
            let verdict = match class.mode.enforces(source_position(source, view)) {
                true => "this request's is one of them",
                false => "this request's is not one of them, so the request passes",
            };
            format!("enforced for {} % of the sources, and {verdict}", number_text(class.mode.share() * 100.0))
        }
    };
    let _ = writeln!(text, "mode      {said}");
}

/// Writes the headers that rules change.
fn write_headers(text: &mut String, rules: &HeaderRules) {
    for (of, HeaderEdits { removed, written }) in [("request", &*rules.request), ("response", &*rules.response)] {
        let mut said = Vec::new();
        // A field that is both removed and written is set.
        let set = |name: &str| removed.contains(&weirgate_config::canonical(name));
        let gone = removed.iter().filter(|name| !written.iter().any(|w| weirgate_config::canonical(&w.name) == **name));
        said.extend(gone.map(|name| format!("without {name}")));
        said.extend(written.iter().map(|w| format!("{} {}", if set(&w.name) { "sets" } else { "adds" }, w.name)));
        if !said.is_empty() {
            let _ = writeln!(text, "headers   of the {of}: {}", said.join(", "));
        }
    }
}

/// Writes the route of the page table and its cost, as far as the policy has them.
fn write_route(text: &mut String, site: &Site, class: &Class, request: &Request) {
    let Some(table) = &site.page_table else { return };
    let patterns = table.routes.iter().map(|route| route.pattern.clone()).collect();
    let found = Index::new(patterns).find(request.path(), request.query());
    let (name, demand) = match found.and_then(|found| table.routes.get(found)) {
        Some(route) => (route.pattern.to_string(), route.demand),
        None => ("not in the page table, so the class's cost counts".to_owned(), class.demand),
    };
    let costs: Vec<String> = RESOURCE_NAMES
        .iter()
        .enumerate()
        .map(|(resource, name)| format!("{name} {}%", (demand.share(resource) * 1e5).round() / 1e3))
        .collect();
    let _ = writeln!(text, "route     {name}");
    let learned = if table.learned { " (before learning)" } else { "" };
    let _ = writeln!(text, "takes     {} of a node's second{learned}", costs.join(", "));
}

/// Writes the inputs to the choice of a node, if they are more than the load.
fn write_dispatch(text: &mut String, site: &Site, class: &Class) {
    let target = match site.pools.get(class.pool).and_then(|pool| pool.locality_key) {
        Some(LocalityKeyOf::Path) => "this host and path",
        Some(LocalityKeyOf::Query) => "this host, path and query",
        None => "",
    };
    match site.policy.pools.get(class.pool).map(|pool| pool.dispatch) {
        Some(Dispatch::Lard(Lard { idle, overload, .. })) => {
            let _ = writeln!(
                text,
                "dispatch  to the node that served {target} before, unless it is much busier than others (idle below \
                 {idle} requests in flight, overloaded above {overload})"
            );
        }
        Some(Dispatch::LeastLoaded { avoid_last: true }) => {
            let _ = writeln!(text, "dispatch  to the least loaded node, but not to that of the class's last request");
        }
        _ => {}
    }
}

/// Writes the settings of SEDA's queues: the priority, the queue length up to which the class is admitted, and
/// its fallback.
fn write_priority(text: &mut String, policy: &Policy, class: &Class) {
    if let Some(priority) = policy.discipline.priorities.get(class.priority as usize) {
        let admitted = match policy.discipline.admit {
            Admit::Thresholds { queue } => {
                format!(", admitted while fewer than {} wait", (priority.threshold * f64::from(queue)).ceil())
            }
            _ => String::new(),
        };
        let _ = writeln!(text, "priority  {}{admitted}", priority.name);
    }
    if let Some(fallback) = class.fallback.and_then(|index| policy.classes.get(index)) {
        let pool = policy.pools.get(fallback.pool).map_or("?", |pool| pool.name.as_str());
        let _ = writeln!(text, "fallback  upstream {pool}, as class {}", fallback.name);
    }
}

/// Writes the settings of the web switch: content, set of services, and the load at which the class is
/// refused.
fn write_content(text: &mut String, policy: &Policy, class: &Class) {
    let divided = matches!(
        policy.pools.get(class.pool).map(|pool| pool.dispatch),
        Some(Dispatch::PartitionStatic { .. } | Dispatch::PartitionDynamic { .. })
    );
    let content = match class.content {
        Content::Static => "static",
        Content::Dynamic => "dynamic",
    };
    if divided {
        let _ = writeln!(text, "content   {content}, at the upstream's nodes of set {}", ServiceSet::of(class));
    }
    let Admit::ServerLoad(ServerLoad { threshold, omega, source }) = policy.discipline.admit else { return };
    if !divided {
        let _ = writeln!(text, "content   {content}");
    }
    if class.is_top() {
        let _ = writeln!(text, "admit     always, because the class has a guarantee");
        return;
    }
    let counted = match source {
        LoadSource::Live => "counted by the gateway".to_owned(),
        LoadSource::Reports { every } => format!("reported by collectors every {}", Span(every)),
    };
    let _ = writeln!(
        text,
        "admit     refused while more than {threshold:.1} static requests are in flight per CPU, {counted}. A dynamic \
         one counts as {omega:.1}"
    );
}

fn guarantee(class: &Class) -> String {
    let throughput = class.guarantee.throughput.map(|rate| format!("at least {rate} requests per second"));
    let response = class.guarantee.response_time.map(|limit| match limit.statistic {
        Statistic::Average => format!("response time of {} at most on average", Span(limit.limit)),
        Statistic::Percentile(p) => format!("response time of {} at most for {p} % of requests", Span(limit.limit)),
    });
    let parts: Vec<String> = throughput.into_iter().chain(response).collect();
    if parts.is_empty() { "none: best effort".to_owned() } else { parts.join(", ") }
}

/// Returns the first few of many names.
fn shorten(names: &[&str]) -> String {
    const MAX: usize = 8;
    let shown = names.iter().take(MAX).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MAX { format!("{shown}, … ({} nodes)", names.len()) } else { shown }
}

/// A duration in the form used in policies.
struct Span(Duration);

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_secs_f64() * 1e3;
        if millis >= 1000.0 && millis % 1000.0 == 0.0 {
            write!(f, "{}s", millis / 1e3)
        } else {
            write!(f, "{millis}ms")
        }
    }
}

#[cfg(test)]
mod tests;
