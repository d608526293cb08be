//! The part of the page about the gateways that are followed.

use std::fmt;

use prometheus_client::registry::Unit;
use weirgate_http_server::families::Families;
use weirgate_wire::admin::Followed;

/// Writes the metrics of all followed gateways, by address.
pub(super) fn write(page: &mut Families<'_>, followed: &[Followed]) -> fmt::Result {
    if followed.is_empty() {
        return Ok(());
    }
    let ages = followed.iter().filter_map(|one| Some((vec![("gateway", one.gateway.as_str())], one.age_seconds?)));
    page.gauges("followed_age", "Time since the last answer of a gateway that is followed", Some(Unit::Seconds), ages)?;
    page.counters(
        "followed_failures",
        "Requests to a gateway that is followed without a useful answer",
        None,
        followed.iter().map(|one| (vec![("gateway", one.gateway.as_str())], one.failures)),
    )
}
