//! The part of the page about the gateways that keep guarantees together.

use std::fmt;

use weirgate_http_server::families::{Families, Labels};
use weirgate_wire::admin::{SiteShare, SiteStage, SiteStatus};

/// Writes the metrics of the site, as this gateway knows it.
pub(super) fn write(page: &mut Families<'_>, site: Option<&SiteStatus>) -> fmt::Result {
    let Some(site) = site else { return Ok(()) };
    fn all(site: &SiteStatus, of: fn(&SiteShare) -> f64) -> impl Iterator<Item = (Labels<'_>, f64)> {
        site.classes.iter().map(move |share| (vec![("class", share.class.as_str())], of(share)))
    }
    let one = |value: u64| [(Labels::new(), value)].into_iter();
    page.gauges(
        "site_share",
        "Part of the guaranteed throughput that this gateway keeps, in requests per second",
        all(site, |share| share.share_per_second),
    )?;
    page.gauges(
        "site_demand",
        "Requests per second that reach this gateway",
        all(site, |share| share.demand_per_second),
    )?;
    page.gauges(
        "site_guaranteed",
        "Throughput that all gateways guarantee together, in requests per second",
        all(site, |share| share.guaranteed_per_second),
    )?;
    let stages = [SiteStage::Granted, SiteStage::Safe, SiteStage::Minimum];
    let stages = stages.iter().map(|stage| (vec![("stage", stage.as_str())], u64::from(site.stage == *stage)));
    page.gauges("site_stage", "Whether the shares come from here", stages)?;
    let others = site.in_flight_of_others.map(|count| (Labels::new(), count));
    page.gauges("site_in_flight_of_others", "Requests in flight of all other gateways", others)?;
    let elected = site.coordinator.as_ref() == Some(&site.gateway);
    page.gauges("site_elected", "Whether this gateway divides the guarantees", one(u64::from(elected)))?;
    page.counters("site_refused_reports", "Reports of gateways that were refused here", one(site.refused))?;
    let etcd = site.etcd_age_seconds.map(|age| (Labels::new(), age));
    page.gauges("site_etcd_age_seconds", "Time since the last answer of etcd", etcd)?;
    let answer = site.answer_age_seconds.map(|age| (Labels::new(), age));
    page.gauges(
        "site_answer_age_seconds",
        "Time since the last answer of the gateway that divides the guarantees",
        answer,
    )
}
