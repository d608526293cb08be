//! Makes a policy from a configuration.
//!
//! A request belongs to the first class that it matches, so narrow routes come before wide ones. A route that earlier
//! ones take completely is left out, because `weirgate check` refuses it.

use super::{Imported, MAX_ROUTES, Path, Pool, Route, Site};
use crate::names::name_of;
use crate::policy::{Class, Policy, Upstream, scalar};
use crate::propose::LISTEN;

/// A condition on one host and one port.
struct Atom {
    host: Option<String>,
    port: Option<u16>,
    path: Path,
}

/// Returns the policy.
pub(super) fn policy(mut site: Site, from: &'static str, name: &str) -> Result<Imported, String> {
    prune(&mut site);
    if site.routes.is_empty() {
        let lost: String = site.lost.iter().map(|lost| format!("\n  {lost}")).collect();
        return Err(format!(
            "nothing in {name} forwards requests to other servers in a way that can be carried over (`proxy_pass`, `use_backend`, \
             `default_backend`). To put Weirgate in front of this {from}, run `weirgate init` and give its address{lost}"
        ));
    }
    let mut names: Vec<String> = Vec::new();
    for pool in &site.pools {
        names.push(name_of(&pool.name, &names));
    }
    let mut policy = Policy {
        about: vec![
            format!("Imported by `weirgate init` from {name} ({from})."),
            "No class has a promise yet. `weirgate recommend ACCESS_LOG` proposes figures from the access logs of this \
             site. Then: weirgate check FILE, and weirgate run FILE."
                .into(),
        ],
        listen: site.listen.clone(),
        ..Policy::default()
    };
    if !site.encrypted.is_empty() {
        // Requests that came over TLS only must not be served without it by an oversight.
        policy.listen = vec![LISTEN.into()];
        policy.listen_why.push(format!(
            "{from} has listeners with TLS. Their certificates are not carried over, so this listens on this machine only. \
             When you have decided where TLS ends, replace it by:"
        ));
        policy.listen_why.extend(site.encrypted.iter().chain(&site.listen).map(|line| format!("listen: {line}")));
        site.routes.iter_mut().for_each(|route| route.ports.clear());
    } else if policy.listen.is_empty() {
        policy.listen.push(LISTEN.into());
        policy.listen_why.push("Where clients connect. Nothing in the configuration says it, so change it.".into());
    }
    policy.upstreams = site.pools.iter().zip(&names).map(|(pool, name)| upstream(pool, name)).collect();
    classes(&mut policy, &mut site, &names);
    if !site.lost.is_empty() {
        policy.end.push("Not carried over:".into());
        policy.end.append(&mut site.lost.clone());
        if site.all_lost > site.lost.len() {
            policy.end.push(format!("and {} more", site.all_lost - site.lost.len()));
        }
    }
    let (upstreams, classes) = (policy.upstreams.len(), policy.classes.len());
    Ok(Imported { policy, upstreams, classes, lost: site.all_lost, from })
}

/// Removes routes without servers, upstreams without servers or routes, and later ones of a name.
fn prune(site: &mut Site) {
    site.pools.retain(|pool| !pool.servers.is_empty());
    let mut known: Vec<String> = Vec::new();
    let is_again = |pool: &mut Pool| {
        let is_again = known.contains(&pool.name);
        known.push(pool.name.clone());
        is_again
    };
    let again: Vec<Pool> = site.pools.extract_if(.., is_again).collect();
    for pool in again {
        site.lose(&pool.place, &format!("{}: servers of this name are listed before", pool.name));
    }
    let gone: Vec<Route> =
        site.routes.extract_if(.., |route| !site.pools.iter().any(|pool| pool.name == route.upstream)).collect();
    for route in gone {
        site.lose(&route.place, &format!("requests for {}: it has no server that can be carried over", route.upstream));
    }
    let extra = site.routes.len().saturating_sub(MAX_ROUTES);
    if extra > 0 {
        let place = site.routes[MAX_ROUTES].place.clone();
        site.routes.truncate(MAX_ROUTES);
        site.lose(&place, &format!("{extra} routes from here on: at most {MAX_ROUTES} are carried over"));
    }
    let unused: Vec<Pool> =
        site.pools.extract_if(.., |pool| !site.routes.iter().any(|route| route.upstream == pool.name)).collect();
    for pool in unused {
        site.lose(&pool.place, &format!("{}: no route leads to it", pool.name));
    }
}

fn upstream(pool: &Pool, name: &str) -> Upstream {
    let nodes = pool.servers.iter().map(|server| {
        let weight = server.weight.filter(|weight| *weight != 1).map(|weight| format!(", weight: {weight}"));
        let max = server.max_outstanding.map(|max| format!(", max_outstanding: {max}"));
        match (weight, max) {
            (None, None) => scalar(&server.address),
            (weight, max) => {
                let (weight, max) = (weight.unwrap_or_default(), max.unwrap_or_default());
                format!("{{ address: {}{weight}{max} }}", scalar(&server.address))
            }
        }
    });
    let mut fields = Vec::new();
    if let Some(path) = &pool.health {
        fields.push(format!("health_check: {{ path: {} }}", scalar(path)));
    }
    if pool.servers.iter().any(|server| server.tls) {
        fields.push("tls: {}".into());
    }
    Upstream { name: name.to_owned(), why: vec![pool.place.clone()], nodes: nodes.collect(), fields }
}

/// Adds a class for each route, narrow ones first, and one for the rest.
fn classes(policy: &mut Policy, site: &mut Site, names: &[String]) {
    let first = site.routes.first().map(|route| route.upstream.clone()).unwrap_or_default();
    let mut routes = std::mem::take(&mut site.routes);
    let width = |path: &Path| match path {
        Path::Exact(_) => (0, 0),
        Path::Prefix(text) => (1, usize::MAX - text.len()),
        Path::Any => (2, 0),
    };
    let host_width =
        |route: &Route| match route.hosts.iter().map(|host| (host.starts_with('*'), usize::MAX - host.len())).max() {
            None => (2, 0),
            Some((false, _)) => (0, 0),
            Some((true, length)) => (1, length),
        };
    routes.sort_by_key(|route| (host_width(route), width(&route.path), route.ports.is_empty()));
    let several = policy.upstreams.len() > 1;
    let upstream_of = |upstream: &str| {
        let at = site.pools.iter().position(|pool| pool.name == upstream).unwrap_or(0);
        names[at].clone()
    };
    let mut taken: Vec<Atom> = Vec::new();
    let mut class_names: Vec<String> = vec!["other".into()];
    let mut hidden = Vec::new();
    let mut rest = None;
    for mut route in routes {
        let ports: Vec<Option<u16>> =
            if route.ports.is_empty() { vec![None] } else { route.ports.iter().copied().map(Some).collect() };
        let is_free = |host: &Option<String>| {
            ports.iter().any(|port| !taken.iter().any(|atom| covers(atom, host, *port, &route.path)))
        };
        let any = route.hosts.is_empty();
        let hosts: Vec<Option<String>> = if any { vec![None] } else { route.hosts.drain(..).map(Some).collect() };
        let mut free: Vec<Option<String>> = hosts.into_iter().filter(is_free).collect();
        free.dedup();
        if free.is_empty() {
            hidden.push((route.place, format!("requests for {}: earlier classes take all of them", route.upstream)));
            continue;
        }
        for (host, port) in free.iter().flat_map(|host| ports.iter().map(move |port| (host, port))) {
            taken.push(Atom { host: host.clone(), port: *port, path: route.path.clone() });
        }
        route.hosts = free.into_iter().flatten().collect();
        let matches = condition(&route);
        if matches.is_none() {
            rest = Some(route);
            break;
        }
        let text = match (&route.path, route.hosts.first()) {
            (Path::Any, Some(host)) => host.clone(),
            (Path::Any, None) => route.upstream.clone(),
            (Path::Prefix(path) | Path::Exact(path), host) => format!("{}{path}", host.cloned().unwrap_or_default()),
        };
        let name = name_of(text.trim_start_matches(['*', '.', '/']), &class_names);
        class_names.push(name.clone());
        policy.classes.push(Class {
            name,
            about: vec![route.place.clone()],
            matches,
            upstream: several.then(|| upstream_of(&route.upstream)),
            ..Class::default()
        });
    }
    let (why, upstream) = match rest {
        Some(route) => (format!("All other requests: {}", route.place), route.upstream),
        None => (
            "All other requests. The configuration names no server for them, so check that this is what you want."
                .into(),
            first,
        ),
    };
    policy.classes.push(Class {
        name: "other".into(),
        about: vec![why],
        upstream: several.then(|| upstream_of(&upstream)),
        ..Class::default()
    });
    hidden.into_iter().for_each(|(place, what)| site.lose(&place, &what));
}

/// Returns the condition of a route, or `None` if it matches everything.
fn condition(route: &Route) -> Option<String> {
    let list = |values: Vec<String>| match values.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    };
    let mut parts = Vec::new();
    if !route.hosts.is_empty() {
        parts.push(format!("host: {}", list(route.hosts.iter().map(|host| scalar(host)).collect())));
    }
    match &route.path {
        Path::Any => {}
        Path::Prefix(path) => parts.push(format!("path_prefix: {}", scalar(path))),
        Path::Exact(path) => parts.push(format!("path: {}", scalar(path))),
    }
    if !route.ports.is_empty() {
        parts.push(format!("port: {}", list(route.ports.iter().map(u16::to_string).collect())));
    }
    (!parts.is_empty()).then(|| format!("{{ {} }}", parts.join(", ")))
}

/// Returns whether an earlier condition takes every request of this one.
fn covers(atom: &Atom, host: &Option<String>, port: Option<u16>, path: &Path) -> bool {
    let host_covers = match (&atom.host, host) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => {
            wide == narrow
                || wide.strip_prefix('*').is_some_and(|below| narrow.trim_start_matches('*').ends_with(below))
        }
    };
    let below = |path: &str, prefix: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let path_covers = match (&atom.path, path) {
        (Path::Any, _) => true,
        (_, Path::Any) => false,
        (Path::Prefix(wide), Path::Prefix(narrow) | Path::Exact(narrow)) => below(narrow, wide),
        (Path::Exact(wide), Path::Exact(narrow)) => wide == narrow,
        (Path::Exact(_), Path::Prefix(_)) => false,
    };
    host_covers && path_covers && (atom.port.is_none() || atom.port == port)
}
