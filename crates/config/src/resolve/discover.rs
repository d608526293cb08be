//! Discovery: the source of an upstream's nodes.

use std::path::Path;
use std::time::Duration;

use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::unit::span_text;

use crate::file::{Discover, Resolvers, Upstream, socket_path};
use crate::site;

/// Time between two looks at a file. Only its metadata is read, and a node that has left should not get requests for
/// long.
const FILE_EVERY: Duration = Duration::from_secs(1);

/// Time between two requests of a page. Prometheus asks every 60 s. Half of it is still no load for a server.
const HTTP_EVERY: Duration = Duration::from_secs(30);

/// Shortest and longest time between two looks. More than ten a second load the source without any use. An operator
/// does not expect a change to take more than an hour.
const MIN_EVERY: Duration = Duration::from_millis(100);
const MAX_EVERY: Duration = Duration::from_secs(3600);

/// Largest number of nodes of an upstream. A change costs time for each of them under the engine's lock.
const MAX_NODES: u32 = 10_000;

/// Largest number of nodes by names: a message of the DNS has at most 64 KiB (RFC 1035 Sec. 4.2.2), and an address
/// takes 16 bytes of it.
const MAX_RECORDS: usize = 4_096;

/// Largest number of name servers. glibc uses three.
const MAX_SERVERS: usize = 8;

/// Longest time for an answer of a name server, as glibc allows.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns where an upstream finds its nodes. Exactly one of `nodes` and `discover` must be there. `mark` is the
/// upstream's. Without `folder` the policy belongs to an experiment, which cannot discover anything.
pub(super) fn discover(
    upstream: &Upstream,
    mark: Mark,
    folder: Option<&Path>,
    resolvers: &site::Resolvers,
    cx: &mut Context,
) -> Option<site::Discover> {
    let given = upstream.discover.given;
    match (upstream.nodes.given, given) {
        (false, false) => {
            let hint = "add it: `nodes: [10.0.0.1:80]`, or `discover:` with the place that names them";
            cx.fail(mark, "`nodes` is missing", hint);
        }
        (true, true) => {
            let hint = "remove one: the source names all nodes of the upstream";
            cx.fail(upstream.discover.mark, "there are `nodes:` as well", hint);
        }
        _ => {}
    }
    let form = upstream.discover.get()?;
    let Some(folder) = folder else {
        let hint = "write `nodes:`, which the experiment can emulate";
        cx.fail(upstream.discover.mark, "an experiment does not discover nodes", hint);
        return None;
    };
    let source = source(form, upstream.discover.mark, folder, cx)?;
    let (usual, named) = match source {
        site::NodeSource::File(_) => (FILE_EVERY, false),
        site::NodeSource::Http { .. } => (HTTP_EVERY, false),
        site::NodeSource::Dns { .. } | site::NodeSource::Srv(_) => (HTTP_EVERY, true),
    };
    if named && form.every.given {
        let hint = "the time to live decides: write `min_ttl:` and `max_ttl:`";
        cx.fail(form.every.mark, "names are not asked for at fixed times", hint);
    }
    for (given, mark) in [(form.min_ttl.given, form.min_ttl.mark), (form.max_ttl.given, form.max_ttl.mark)] {
        if given && !named {
            cx.fail(mark, "only names have a time to live", "write `every:`");
        }
    }
    let ttl = (form.min_ttl.get().0, form.max_ttl.get().0);
    if named && !(MIN_EVERY <= ttl.0 && ttl.0 <= ttl.1 && ttl.1 <= MAX_EVERY) {
        let what = format!("times to live from {} to {} are out of range", span_text(ttl.0), span_text(ttl.1));
        let mark = if form.min_ttl.given { form.min_ttl.mark } else { form.max_ttl.mark };
        cx.fail(mark, what, "write at least 100ms and at most 1h, the least first");
    }
    let every = form.every.get().map_or(usual, |span| span.0);
    if !(MIN_EVERY..=MAX_EVERY).contains(&every) {
        let what = format!("looking every {} is out of range", span_text(every));
        cx.fail(form.every.mark, what, "write at least 100ms and at most 1h");
    }
    let max_nodes = super::gateway::count(&form.max_nodes, MAX_NODES, cx) as usize;
    let max_nodes = if named { max_nodes.min(MAX_RECORDS) } else { max_nodes };
    Some(site::Discover { source, every, ttl, resolvers: resolvers.clone(), max_nodes })
}

/// Returns the name servers.
pub(super) fn resolvers(form: &Resolvers, cx: &mut Context) -> site::Resolvers {
    let servers: Vec<_> = form.servers.get().map_or(&[][..], |all| &all.0).iter().map(|at| at.value.0).collect();
    if servers.len() > MAX_SERVERS {
        let what = format!("{} name servers are too many", servers.len());
        cx.fail(form.servers.mark, what, "write at most 8");
    }
    let timeout = form.timeout.get().0;
    if !(MIN_EVERY..=MAX_TIMEOUT).contains(&timeout) {
        let what = format!("a timeout of {} is out of range", span_text(timeout));
        cx.fail(form.timeout.mark, what, "write at least 100ms and at most 30s");
    }
    site::Resolvers { servers, timeout, attempts: super::gateway::count(&form.attempts, 10, cx) as usize }
}

fn source(form: &Discover, mark: Mark, folder: &Path, cx: &mut Context) -> Option<site::NodeSource> {
    if [form.dns.given, form.srv.given, form.file.given, form.http.given].iter().filter(|given| **given).count() != 1 {
        cx.fail(mark, "there must be one source", "write one of `dns:`, `srv:`, `file:` and `http:`");
        return None;
    }
    if let Some(address) = form.dns.get() {
        let (name, port) = address.0.rsplit_once(':')?;
        if socket_path(&address.0).is_some() || name.starts_with('[') || name.parse::<std::net::IpAddr>().is_ok() {
            let hint = "write a name, or name the node: `nodes:`";
            cx.fail(form.dns.mark, "an address names no other nodes", hint);
        }
        return Some(site::NodeSource::Dns { name: name.to_owned(), port: port.parse().ok()? });
    }
    if let Some(name) = form.srv.get() {
        return Some(site::NodeSource::Srv(name.0.clone()));
    }
    if let Some(path) = form.file.get() {
        if path.0.is_empty() {
            cx.fail(form.file.mark, "this is no file", "write the path of the file with the nodes");
        }
        return Some(site::NodeSource::File(folder.join(&path.0)));
    }
    form.http.get().map(|url| site::NodeSource::Http { address: url.address.clone(), path: url.path.clone() })
}
