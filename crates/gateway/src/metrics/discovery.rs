//! The part of the page about sources that name nodes.

use std::fmt;

use weirgate_http_server::families::{Families, Labels};
use weirgate_wire::admin::Discovery;

/// Writes the metrics of all sources, by upstream.
pub(super) fn write(page: &mut Families<'_>, sources: &[Discovery]) -> fmt::Result {
    if sources.is_empty() {
        return Ok(());
    }
    fn all<T>(sources: &[Discovery], of: fn(&Discovery) -> T) -> impl Iterator<Item = (Labels<'_>, T)> {
        sources.iter().map(move |source| (vec![("upstream", source.upstream.as_str())], of(source)))
    }
    page.gauges("discovery_nodes", "Nodes that the source named last", all(sources, |s| u64::from(s.nodes)))?;
    page.gauges(
        "discovery_failing",
        "Whether the last look at the source failed, so that the last nodes stay",
        all(sources, |s| u64::from(s.error.is_some())),
    )?;
    page.counters("discovery_changes", "Changes of the nodes that a source names", all(sources, |s| s.changes))?;
    page.counters("discovery_failures", "Looks at a source that failed", all(sources, |s| s.failures))?;
    let ages = sources.iter().filter_map(|s| Some((vec![("upstream", s.upstream.as_str())], s.success_age_seconds?)));
    page.gauges("discovery_success_age_seconds", "Time since the last successful look", ages)
}
