//! The machines' messages as JSON, and back.

use weirgate_config::Sharing;
use weirgate_site::{Grant, Report, Step};
use weirgate_wire::{SITE_VERSION, SiteGrant, SiteReport, SiteStep};

/// Returns the JSON form of a report of this gateway.
pub(crate) fn report(settings: &Sharing, report: Report) -> SiteReport {
    // Reports carry no evidence of groups, because no window is shared.
    let Report { revision, incarnation, number, applied, held, demands, evidence: _, leaving } = report;
    let member = settings.members[settings.own].0.clone();
    let (version, checksum) = (SITE_VERSION, settings.checksum.clone());
    SiteReport { version, checksum, member, revision, incarnation, number, applied, held, demands, leaving }
}

/// Returns the report in a message. The machine checks its amounts.
pub(crate) fn read_report(report: SiteReport) -> Report {
    let SiteReport {
        version: _,
        checksum: _,
        member: _,
        revision,
        incarnation,
        number,
        applied,
        held,
        demands,
        leaving,
    } = report;
    Report { revision, incarnation, number, applied, held, demands, evidence: Vec::new(), leaving }
}

/// Returns the JSON form of a grant.
pub(crate) fn grant(grant: Grant) -> SiteGrant {
    let Grant { revision, incarnation, report, sequence, step } = grant;
    let step = match step {
        Step::State => SiteStep::State,
        Step::Shares { base, shares } => SiteStep::Shares { base, shares },
        Step::Goodbye => SiteStep::Goodbye,
    };
    SiteGrant { revision, incarnation, report, sequence, step }
}

/// Returns the grant in a message. The machine checks its amounts.
pub(crate) fn read_grant(grant: SiteGrant) -> Grant {
    let SiteGrant { revision, incarnation, report, sequence, step } = grant;
    let step = match step {
        SiteStep::State => Step::State,
        SiteStep::Shares { base, shares } => Step::Shares { base, shares },
        SiteStep::Goodbye => Step::Goodbye,
    };
    Grant { revision, incarnation, report, sequence, step }
}
