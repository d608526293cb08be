//! The message of a gateway to the elected one: a report of its machine, with its sender. A grant travels as it is.
//!
//! A gateway sends a report with PUT to [`SITE_PATH`] of the elected one, which keeps it for some time and answers with
//! a grant, or with status 204 if another report of the same gateway has taken its place. Source: our own
//! (`docs/adr/0023-shares-on-leases.md`). Budgets are numbered, because gateways with the same checksum have the same
//! ones. The machines check all amounts.

use serde::{Deserialize, Serialize};
use weirgate_config::Sharing;
use weirgate_site::Report;

/// Version of the messages. Gateways of different versions share nothing.
pub(crate) const SITE_VERSION: u32 = 3;

/// Path of reports.
pub(crate) const SITE_PATH: &str = "/site/report";

/// Longest message in bytes: that of a thousand budgets has half of it.
pub(crate) const MAX_SITE_BYTES: u64 = 64 << 10;

/// Report of a gateway to the elected one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SiteReport {
    /// [`SITE_VERSION`] of the sender.
    pub(crate) version: u32,
    /// Checksum of what the gateways agree on.
    pub(crate) checksum: String,
    /// Name of the sender.
    pub(crate) member: String,
    #[serde(flatten)]
    pub(crate) report: Report,
}

impl SiteReport {
    /// Makes the message of this gateway.
    pub(crate) fn new(settings: &Sharing, report: Report) -> SiteReport {
        let member = settings.members[settings.own].0.clone();
        SiteReport { version: SITE_VERSION, checksum: settings.checksum.clone(), member, report }
    }
}
