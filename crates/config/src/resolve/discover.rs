//! Discovery: the source of an upstream's nodes.

use std::path::Path;
use std::time::Duration;

use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::span_text;

use crate::file::{Discover, Upstream};
use crate::site;

/// Time between two looks at a file. Only its metadata is read, and a node that has left should not get requests for
/// long.
const FILE_EVERY: Duration = Duration::from_secs(1);

/// Time between two requests of a page. Prometheus asks every 60 s. Half of it is still no load for a server.
const HTTP_EVERY: Duration = Duration::from_secs(30);

/// Shortest and longest time between two looks. More than ten a second load the source and help nobody, and after an
/// hour no operator expects a change.
const MIN_EVERY: Duration = Duration::from_millis(100);
const MAX_EVERY: Duration = Duration::from_secs(3600);

/// Largest number of nodes of an upstream. A change costs time for each of them under the engine's lock.
const MAX_NODES: u32 = 10_000;

/// Returns where an upstream finds its nodes. Exactly one of `nodes` and `discover` must be there. `mark` is the
/// upstream's. Without `folder` the policy belongs to an experiment, which cannot discover anything.
pub(super) fn discover(
    upstream: &Upstream,
    mark: Mark,
    folder: Option<&Path>,
    cx: &mut Context,
) -> Option<site::Discover> {
    let given = upstream.discover.given;
    match (upstream.nodes.given, given) {
        (false, false) => {
            let hint = "add it: `nodes: [10.0.0.1:80]`, or `discover:` with the place that names them";
            cx.fail(mark, Complaint::new("`nodes` is missing", hint));
        }
        (true, true) => {
            let hint = "remove one: the source names all nodes of the upstream";
            cx.fail(upstream.discover.mark, Complaint::new("there are `nodes:` as well", hint));
        }
        _ => {}
    }
    let form = upstream.discover.get()?;
    let Some(folder) = folder else {
        let hint = "write `nodes:`, which the experiment can emulate";
        cx.fail(upstream.discover.mark, Complaint::new("an experiment does not discover nodes", hint));
        return None;
    };
    let source = source(form, upstream.discover.mark, folder, cx)?;
    let usual = match source {
        site::NodeSource::File(_) => FILE_EVERY,
        site::NodeSource::Http { .. } => HTTP_EVERY,
    };
    let every = form.every.get().map_or(usual, |span| span.0);
    if !(MIN_EVERY..=MAX_EVERY).contains(&every) {
        let what = format!("looking every {} is out of range", span_text(every));
        cx.fail(form.every.mark, Complaint::new(what, "write at least 100ms and at most 1h"));
    }
    let max_nodes = super::gateway::count(&form.max_nodes, MAX_NODES, cx) as usize;
    Some(site::Discover { source, every, max_nodes })
}

fn source(form: &Discover, mark: Mark, folder: &Path, cx: &mut Context) -> Option<site::NodeSource> {
    if [form.file.given, form.http.given].iter().filter(|given| **given).count() != 1 {
        cx.fail(mark, Complaint::new("there must be one source", "write one of `file:` and `http:`"));
        return None;
    }
    if let Some(path) = form.file.get() {
        if path.0.is_empty() {
            cx.fail(form.file.mark, Complaint::new("this is no file", "write the path of the file with the nodes"));
        }
        return Some(site::NodeSource::File(folder.join(&path.0)));
    }
    form.http.get().map(|url| site::NodeSource::Http { address: url.address.clone(), path: url.path.clone() })
}
