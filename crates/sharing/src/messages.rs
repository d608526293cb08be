//! The machines' messages as JSON, and back.

use weirgate_config::Sharing;
use weirgate_site::{Grant, GroupShare, GroupUse, Report, Step};
use weirgate_wire::{SITE_VERSION, SiteGrant, SiteReport, SiteStep, SiteWindow, SiteWindowShare};

/// Returns the JSON form of a report of this gateway.
pub(crate) fn report(settings: &Sharing, report: Report) -> SiteReport {
    let Report { revision, incarnation, number, applied, held, demands, windows, leaving } = report;
    let member = settings.members[settings.own].0.clone();
    let (version, checksum) = (SITE_VERSION, settings.checksum.clone());
    let window = |used: GroupUse| {
        let GroupUse { base, least, in_flight, owed, waiting, claiming, answers, work } = used;
        SiteWindow { base, least, in_flight, owed, waiting, claiming, answers, work }
    };
    let windows = windows.into_iter().map(window).collect();
    SiteReport { version, checksum, member, revision, incarnation, number, applied, held, demands, windows, leaving }
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
        windows,
        leaving,
    } = report;
    let window = |used: SiteWindow| {
        let SiteWindow { base, least, in_flight, owed, waiting, claiming, answers, work } = used;
        GroupUse { base, least, in_flight, owed, waiting, claiming, answers, work }
    };
    let windows = windows.into_iter().map(window).collect();
    Report { revision, incarnation, number, applied, held, demands, windows, leaving }
}

/// Returns the JSON form of a grant.
pub(crate) fn grant(grant: Grant) -> SiteGrant {
    let Grant { revision, incarnation, report, sequence, step, windows } = grant;
    let step = match step {
        Step::State => SiteStep::State,
        Step::Shares { base, shares } => SiteStep::Shares { base, shares },
        Step::Goodbye => SiteStep::Goodbye,
    };
    let window = |share: GroupShare| {
        let GroupShare { others, answers, work, high, part, factor } = share;
        SiteWindowShare { others, answers, work, high, part, factor }
    };
    let windows = windows.into_iter().map(window).collect();
    SiteGrant { revision, incarnation, report, sequence, step, windows }
}

/// Returns the grant in a message. The machine checks its amounts.
pub(crate) fn read_grant(grant: SiteGrant) -> Grant {
    let SiteGrant { revision, incarnation, report, sequence, step, windows } = grant;
    let step = match step {
        SiteStep::State => Step::State,
        SiteStep::Shares { base, shares } => Step::Shares { base, shares },
        SiteStep::Goodbye => Step::Goodbye,
    };
    let window = |share: SiteWindowShare| {
        let SiteWindowShare { others, answers, work, high, part, factor } = share;
        GroupShare { others, answers, work, high, part, factor }
    };
    let windows = windows.into_iter().map(window).collect();
    Grant { revision, incarnation, report, sequence, step, windows }
}
