//! The part of the page about the gateways that are followed.

use std::fmt;

use weirgate_http_server::families::Families;
use weirgate_wire::admin::Followed;

/// Writes the metrics of all followed gateways, by address.
pub(super) fn write(page: &mut Families<'_>, followed: &[Followed]) -> fmt::Result {
    if followed.is_empty() {
        return Ok(());
    }
    let ages = followed.iter().filter_map(|one| Some((vec![("gateway", one.gateway.as_str())], one.age_seconds?)));
    page.gauges("followed_age_seconds", "Time since the last answer of a gateway that is followed", ages)?;
    page.counters(
        "followed_failures",
        "Requests to a gateway that is followed without a useful answer",
        followed.iter().map(|one| (vec![("gateway", one.gateway.as_str())], one.failures)),
    )
}
