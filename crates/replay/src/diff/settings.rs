//! A policy as a list of settings with names and values for people.
//!
//! Every record of the policy is taken apart field by field, so that a new field does not compile before it is here.

use std::fmt::{Debug, Display};
use std::time::Duration;

use weirgate_config::{
    AccessLog, Admin, ClassSite, ClientTimeouts, Forward, Limits, Listener, NodeTimeouts, PoolSite, RuleTarget,
    ShedReply, Site, Tunnels,
};
use weirgate_engine::{Class, Discipline, Mode, Node, Policy, Pool, QueueBounds, RetryBudget};
use weirgate_gateway::classify::{described, described_key};
use weirgate_spanned_yaml::unit::span_text;

/// Value of a setting that is off.
pub(super) const NONE: &str = "none";

/// A setting of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The thing that it belongs to, such as `class gold`.
    pub about: String,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether it is shown when the whole thing is new.
    pub is_main: bool,
    /// Whether its value is not for people.
    pub is_opaque: bool,
}

/// Text after a new setting whose value is not shown.
pub(super) fn hidden(setting: &Setting) -> &'static str {
    if setting.value == NONE { ", but off" } else { "" }
}

/// A list under construction.
struct List {
    about: String,
    all: Vec<Setting>,
}

impl List {
    fn about(&mut self, thing: impl Into<String>) {
        self.about = thing.into();
    }

    fn add(&mut self, name: impl Into<String>, value: String, is_main: bool, is_opaque: bool) {
        self.all.push(Setting { about: self.about.clone(), name: name.into(), value, is_main, is_opaque });
    }

    /// A setting that is shown when the whole thing is new.
    fn main(&mut self, name: &str, value: impl Display) {
        self.add(name, value.to_string(), true, false);
    }

    fn say(&mut self, name: &str, value: impl Display) {
        self.add(name, value.to_string(), false, false);
    }

    fn option(&mut self, name: &str, value: Option<impl Display>) {
        self.say(name, value.map_or(NONE.to_owned(), |value| value.to_string()));
    }

    fn span(&mut self, name: &str, value: Duration) {
        self.say(name, span_text(value));
    }

    /// A value that is compared and not shown.
    fn opaque(&mut self, name: &str, value: &impl Debug) {
        let value = format!("{value:?}");
        self.add(name, if value == "None" { NONE.to_owned() } else { value }, false, true);
    }
}

fn rate(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |rate| format!("{rate}/s"))
}

fn list(all: impl Iterator<Item = impl Display>) -> String {
    let all: Vec<String> = all.map(|one| one.to_string()).collect();
    if all.is_empty() { NONE.to_owned() } else { all.join(", ") }
}

/// Returns every setting of a policy, by the things that they are about.
pub fn settings(site: &Site) -> Vec<Setting> {
    let Site {
        listeners,
        acme,
        trusted_proxies,
        visitors,
        policy,
        rules: _,
        classes,
        templates,
        pools,
        nodes,
        discover,
        limits,
        timeouts,
        forward,
        headers,
        admin,
        trust,
        learned_state,
        sharing,
        access_log,
        log,
        telemetry,
        drain_deadline,
        threads,
        reserves,
        page_table,
    } = site;
    let mut out = List { about: String::new(), all: Vec::new() };
    out.about("discipline");
    discipline(&mut out, policy);
    for (class, own) in policy.classes.iter().zip(classes) {
        out.about(format!("class {}", class.name));
        one_class(&mut out, site, class, own);
    }
    for (template, own) in policy.templates.iter().zip(templates) {
        out.about(format!("template {}", template.class.name));
        one_class(&mut out, site, &template.class, own);
        out.say("maximum number of classes", template.max_live);
    }
    for (index, (pool, own)) in policy.pools.iter().zip(pools).enumerate() {
        out.about(format!("upstream {}", pool.name));
        upstream(&mut out, pool, own);
        out.opaque("discovery", &discover.get(index).and_then(Option::as_ref));
        for (node, place) in policy.nodes.iter().zip(nodes).filter(|(node, _)| node.pool == index) {
            let (name, value) = one_node(node, &place.address);
            out.add(format!("node {name}"), value, false, false);
        }
    }
    for listener in listeners {
        out.about(format!("listener {}", listener.name));
        one_listener(&mut out, listener);
    }
    out.about("gateway");
    out.say("trusted proxies", list(trusted_proxies.iter()));
    out.option("cookie of visitors", visitors.as_ref().map(|visitors| &visitors.cookie));
    out.option("visitors return after", visitors.as_ref().map(|visitors| span_text(visitors.returning_after)));
    out.option("lifetime of visitors' cookies", visitors.as_ref().map(|visitors| span_text(visitors.lifetime)));
    gateway_limits(&mut out, *limits, *timeouts, *forward);
    out.opaque("headers of requests without a class", headers);
    out.opaque("ACME", acme);
    match admin {
        None => out.say("admin API", NONE),
        Some(Admin { address, file, token_file, hosts }) => {
            out.say("admin API", address);
            out.opaque("file of the admin API", file);
            out.option("token file of the admin API", token_file.as_ref().map(|path| path.display()));
            out.say("hosts of the admin API", list(hosts.iter()));
        }
    }
    out.option("trust folder", trust.as_ref().map(|path| path.display()));
    let kept = learned_state.as_ref();
    out.option("file of the learned state", kept.and_then(|kept| Some(kept.file.as_ref()?.display())));
    out.say("gateways that are followed", list(kept.iter().flat_map(|kept| &kept.follow)));
    out.say("gateways of the site", list(sharing.iter().flat_map(|all| &all.members).map(|(name, _)| name)));
    out.opaque("settings of the gateways of the site", sharing);
    match access_log {
        None => out.say("access log", NONE),
        Some(AccessLog { file, sample, format, fields }) => {
            out.say("access log", file.as_ref().map_or("stdout".to_owned(), |path| path.display().to_string()));
            out.say("share of requests in the access log", format!("{} %", sample * 100.0));
            out.say("form of lines in the access log", format!("{format:?}").to_lowercase());
            out.opaque("fields of lines in the access log", fields);
        }
    }
    out.opaque("export of traces and metrics", telemetry);
    out.say("form of messages", format!("{:?}", log.format).to_lowercase());
    out.say("level of messages", log.level.as_str());
    out.span("deadline of a drain", *drain_deadline);
    out.option("threads", *threads);
    out.opaque("reserves", reserves);
    out.opaque("page table", page_table);
    out.all
}

fn discipline(out: &mut List, policy: &Policy) {
    // Nodes, pools and classes have settings of their own.
    let Policy { discipline, pools: _, nodes: _, classes: _, templates: _, max_waiting, resources, estimated } = policy;
    out.main("name", &discipline.name);
    out.opaque("settings", &Discipline { name: String::new(), ..discipline.clone() });
    out.say("waiting requests in all queues", max_waiting);
    out.say("resources", list(resources.iter()));
    out.say("costs are estimates", estimated);
}

fn one_class(out: &mut List, site: &Site, class: &Class, own: &ClassSite) {
    let policy = &site.policy;
    let Class {
        name,
        pool,
        guarantee,
        content,
        service_time,
        utility,
        weight,
        demand,
        priority,
        fallback,
        queue,
        retry,
        mode,
    } = class;
    out.main("match", rules_of(site, name));
    out.main("upstream", policy.pools.get(*pool).map_or("?", |pool| &pool.name));
    out.main("guaranteed throughput", rate(guarantee.throughput));
    let limit = guarantee.response_time.map(|of| format!("{} {}", of.statistic, span_text(of.limit)));
    out.main("limit of the response time", limit.unwrap_or_else(|| NONE.to_owned()));
    let mode = match mode {
        Mode::Enforce => "enforce".to_owned(),
        Mode::Observe => "observe".to_owned(),
        Mode::Share(_) => format!("enforce for {} % of the sources", mode.share() * 100.0),
    };
    out.say("mode", mode);
    out.option("service time", service_time.map(span_text));
    out.say("content", format!("{content:?}").to_lowercase());
    out.say("utility", utility);
    out.say("weight", weight);
    out.opaque("cost of requests without a route", demand);
    out.say("priority", policy.discipline.priorities.get(*priority as usize).map_or(NONE, |priority| &priority.name));
    out.option("fallback", fallback.and_then(|class| policy.classes.get(class)).map(|class| &class.name));
    let QueueBounds { max_waiting, max_waiting_per_flow, max_rate, max_rate_per_flow, max_wait } = *queue;
    out.say("limit", rate(max_rate));
    out.say("limit per source", rate(max_rate_per_flow));
    out.say("waiting requests", max_waiting);
    out.say("waiting requests per source", max_waiting_per_flow);
    out.span("longest wait", max_wait);
    let RetryBudget { ratio, min_per_second, max_retries } = *retry;
    out.say("retries", format!("{} % and {min_per_second}/s, {max_retries} per request", ratio * 100.0));
    let ClassSite { shed, timeouts, long_responses, tunnels, source, headers } = own;
    let ShedReply { status, content_type, body } = shed;
    out.say("status of refusals", status);
    out.say("media type of refusals", content_type);
    out.opaque("body of refusals", body);
    let NodeTimeouts { connect, first_byte, body_progress, total } = *timeouts;
    out.span("timeout to connect", connect);
    out.span("timeout of the first byte", first_byte);
    out.span("timeout between two reads of a body", body_progress);
    out.span("timeout of the whole response", total);
    let long = long_responses.map(|of| format!("after {}, at most {}", span_text(of.after), of.max));
    out.option("responses that give their slot back", long);
    let Tunnels { max, idle, total } = *tunnels;
    out.option("tunnels", max);
    out.span("idle time of tunnels", idle);
    out.option("total time of tunnels", total.map(span_text));
    out.say("source", described_key(source));
    out.opaque("headers", headers);
}

/// The conditions of the rules that select a class, in order.
fn rules_of(site: &Site, name: &str) -> String {
    let texts: Vec<String> =
        site.rules.iter().filter(|rule| target(site, &rule.target) == name).map(described).collect();
    if texts.is_empty() { NONE.to_owned() } else { texts.join(", or ") }
}

fn target<'s>(site: &'s Site, target: &RuleTarget) -> &'s str {
    let policy = &site.policy;
    let class = match target {
        RuleTarget::Class(class) => policy.classes.get(class.0 as usize),
        RuleTarget::Template(template, _) => policy.templates.get(template.0 as usize).map(|of| &of.class),
    };
    class.map_or("?", |class| class.name.as_str())
}

/// The classes in the order in which their rules are tried.
pub(super) fn order(site: &Site) -> Vec<&str> {
    site.rules.iter().map(|rule| target(site, &rule.target)).collect()
}

fn upstream(out: &mut List, pool: &Pool, own: &PoolSite) {
    let Pool { name: _, dispatch, ejection, slow_start } = pool;
    out.say("dispatch", format!("{dispatch:?}"));
    out.say("failures that eject a node", ejection.consecutive_failures);
    out.span("first ejection", ejection.base);
    out.say("share of nodes that may be ejected", format!("{} %", ejection.max_share * 100.0));
    out.span("slow start", *slow_start);
    let PoolSite {
        tls,
        health,
        collector,
        locality_key,
        http2,
        proxy_protocol,
        from_client,
        idle_connections,
        stalled_responses,
        idle_timeout,
    } = own;
    out.opaque("TLS", tls);
    out.opaque("health check", health);
    out.opaque("collector", collector);
    out.opaque("key of a document", locality_key);
    out.say("HTTP/2", http2);
    out.opaque("PROXY protocol", proxy_protocol);
    out.say("connections from the client's address", from_client);
    out.say("idle connections", idle_connections);
    out.say("stalled responses", stalled_responses);
    out.span("idle timeout", *idle_timeout);
}

fn one_node(node: &Node, address: &str) -> (String, String) {
    let Node { name, machine, pool: _, weight, capacity, max_outstanding } = node;
    let mut parts = vec![format!("weight {weight}")];
    parts.extend(capacity.map(|capacity| format!("capacity {capacity}")));
    parts.extend(max_outstanding.map(|max| format!("at most {max} requests")));
    if address != name {
        parts.push(format!("at {address}"));
    }
    if machine != name && machine != address {
        parts.push(format!("on {machine}"));
    }
    (name.clone(), parts.join(", "))
}

fn one_listener(out: &mut List, listener: &Listener) {
    let Listener { name: _, file, tls, http2, redirect_to_https, proxy_protocol, transparent } = listener;
    out.main("TLS", if tls.is_some() { "on" } else { NONE });
    out.opaque("settings of TLS", tls);
    out.opaque("file", file);
    out.say("HTTP/2", http2);
    out.option("redirect to https at port", *redirect_to_https);
    out.say("peers with the PROXY protocol", list(proxy_protocol.iter()));
    out.opaque("transparent", transparent);
}

fn gateway_limits(out: &mut List, limits: Limits, timeouts: ClientTimeouts, forward: Forward) {
    let Limits {
        connections,
        connections_per_source,
        connect_interval_per_source,
        head_bytes,
        headers,
        body_bytes,
        body_prefix,
        http2_streams,
        http2_overhead_frames,
        tunnels,
        buffer_per_request,
        buffer_total,
        memory,
    } = limits;
    out.say("connections", connections);
    out.option("connections per source", connections_per_source);
    out.option("time between new connections per source", connect_interval_per_source.map(span_text));
    out.say("bytes of a head", head_bytes);
    out.say("headers of a request", headers);
    out.option("bytes of a body", body_bytes);
    out.say("bytes of a body that rules see", body_prefix);
    out.say("requests of an HTTP/2 connection", http2_streams);
    out.say("HTTP/2 frames without content", http2_overhead_frames);
    out.say("tunnels", tunnels);
    out.say("buffer of a response", buffer_per_request);
    out.say("buffer of all responses", buffer_total);
    out.say("memory", format!("{memory:?}").to_lowercase());
    let ClientTimeouts { header, idle, body, body_rate } = timeouts;
    out.span("timeout of a head", header);
    out.span("timeout of an idle connection", idle);
    out.span("timeout of a body", body);
    out.say("least rate of a body in bytes/s", body_rate);
    let Forward { normalized_path, x_forwarded, forwarded, via, traceparent, request_id } = forward;
    out.say("normal form of paths for nodes", normalized_path);
    out.say("X-Forwarded-*", x_forwarded);
    out.say("Forwarded", forwarded);
    out.say("Via", via);
    out.say("traceparent", traceparent);
    out.say("X-Request-ID", request_id);
}
