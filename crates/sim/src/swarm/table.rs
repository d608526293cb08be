//! Scenarios of the family `resources` as experiment files.

use weirgate_wire::RESOURCE_NAMES;

use super::resources::{Class, Route, Site, Stream};
use super::sketch::tidy;
use super::yaml::{changes, class_name, fault, machine_name, phases, times};

/// Minimum patience of clients that leave, in multiples of their request's own time.
const OWN_TIME: f64 = 4.0;

const POOLS: [&str; 2] = ["web", "shop"];

/// Returns the experiment file of `site`.
pub(super) fn yaml(seed: u64, site: &Site) -> String {
    let mut lines = vec![
        format!("# Scenario {seed} of the swarm's family resources: {}.", site.about),
        format!("name: swarm-{seed}"),
        format!("title: \"resources: {}\"", site.about),
        "policy:".to_owned(),
        "  upstreams:".to_owned(),
    ];
    for (pool, name) in site.pools.iter().zip(POOLS) {
        lines.push(format!("    {name}:\n      nodes:"));
        lines.extend(pool.iter().map(|&machine| {
            let (name, weight) = (machine_name(machine), site.servers[machine]);
            let address = format!("10.0.0.{}:80", machine + 1);
            format!("        - {{ name: {name}, machine: {name}, address: \"{address}\", weight: {weight} }}")
        }));
    }
    let learned = if site.learned { "true" } else { "false" };
    lines.push(format!("  page_table:\n    learned: {learned}\n    routes:"));
    let known = site.routes.iter().enumerate().filter(|(_, route)| route.known);
    lines.extend(known.map(|(index, route)| format!("      {}: {}", path(index), cost(route))));
    lines.push("  classes:".to_owned());
    for (index, class) in site.classes.iter().enumerate() {
        lines.extend(policy_class(site, index, class));
    }
    lines.push(format!("    - {{ name: other, upstream: {} }}", POOLS[0]));
    let horizon = format!("horizon: {}ms", site.horizon_ms);
    lines.push(format!("disciplines:\n  mqos: {{ mqos: {{ {horizon} }} }}"));
    lines.push(format!("  mqos-drfq: {{ mqos: {{ precedence: drfq, {horizon} }} }}"));
    lines.push(format!("  sqos: {{ sqos: {{ resource: {}, {horizon} }} }}", RESOURCE_NAMES[site.only]));
    lines.push("machines:".to_owned());
    lines.extend(site.servers.iter().enumerate().map(|(index, servers)| {
        format!("  - {{ machine: {}, cpus: {}, servers: {servers} }}", machine_name(index), site.cpus)
    }));
    // Turns of one horizon or more need some time to show.
    lines.push("network_delay: 0.2ms\nsettle: 10s\ntraffic:".to_owned());
    for (index, class) in site.classes.iter().enumerate() {
        lines.extend(class.streams.iter().flat_map(|stream| traffic(site, index, stream)));
    }
    lines.extend(phases(&site.phases));
    if !site.faults.is_empty() {
        lines.push("faults:".to_owned());
        lines.extend(site.faults.iter().map(fault));
    }
    lines.join("\n") + "\n"
}

fn path(route: usize) -> String {
    format!("/r{}", route + 1)
}

fn cost(route: &Route) -> String {
    let shares = RESOURCE_NAMES.iter().zip(route.cost).filter(|(_, cost)| *cost > 0.0);
    let shares: Vec<String> = shares.map(|(name, cost)| format!("{name}: {}%", tidy(cost * 100.0))).collect();
    format!("{{ {} }}", shares.join(", "))
}

fn policy_class(site: &Site, index: usize, class: &Class) -> Vec<String> {
    let (upstream, weight, max) = (POOLS[class.pool], class.weight, class.max_waiting);
    let mut lines = vec![
        format!("    - name: {}\n      upstream: {upstream}\n      weight: {weight}", class_name(index)),
        format!("      queue: {{ max_waiting: {max}, max_waiting_per_source: {max} }}"),
    ];
    let unknown = class.streams.iter().map(|stream| &site.routes[stream.route]).find(|route| !route.known);
    lines.extend(unknown.map(|route| format!("      cost: {}", cost(route))));
    lines.extend(class.guarantee.map(|(rate, limit)| {
        format!("      guarantee: {{ throughput: {rate}/s, response_time: {{ p95: {limit}ms }} }}")
    }));
    lines
}

fn traffic(site: &Site, class: usize, stream: &Stream) -> Vec<String> {
    let route = &site.routes[stream.route];
    let volume: Vec<String> = stream.volume.iter().map(f64::to_string).collect();
    let mut lines = vec![format!("  - class: {}", class_name(class))];
    if stream.closed {
        lines.push(format!("    users: {}\n    think: 20ms", changes(&site.phases, "users", &volume, "")));
    } else {
        lines.push(format!("    rate: {}", changes(&site.phases, "rate", &volume, "/s")));
    }
    let [cpu, disk, link] = route.takes().map(|seconds| seconds * 1e3);
    let parts = [("cpu", cpu * f64::from(site.cpus)), ("disk", disk), ("link", link)];
    let parts = parts.iter().filter(|(_, ms)| *ms > 0.0);
    let parts: Vec<String> = parts.map(|(name, ms)| format!("{name}: {}", times(&route.shape.of(*ms)))).collect();
    lines.push(format!("    demand: {{ {} }}", parts.join(", ")));
    lines.push(format!("    request: {{ path: {} }}", path(stream.route)));
    if let Some(patience) = stream.patience_s {
        // The request competes with others, and some requests are longer than the mean.
        let own_ms = OWN_TIME * (cpu * f64::from(site.cpus) + disk + link);
        lines.push(format!("    patience: {}ms\n    retries: 1", tidy(patience * 1e3 + own_ms)));
    }
    lines
}
