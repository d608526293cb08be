//! Learned page tables beside the truth: rows for tables. Of several seeds the medians, but of how far off a cost was the
//! largest, and of how long it took the least and the largest as well.

use super::{Group, Report, Spread};
use crate::judge::{BAND, LearnedCost, LearnedTable, PhaseCost};

/// Most phases that a row in a terminal has room for; a curve of more shows the last ones.
const MOST_PHASES: usize = 4;

/// What a request of a route takes of one resource, under one discipline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row<'a> {
    pub(super) route: &'a str,
    /// Which resource; of each route's the one that it takes most of is `main`.
    pub(super) resource: &'a str,
    pub(super) main: bool,
    /// The discipline, or approach.
    pub(super) by: &'a str,
    /// The end of each phase of the outline.
    pub(super) phases: Vec<Cell>,
    /// Seconds until it was found, after each change; empty without one.
    pub(super) within: String,
    /// It changed, or was not found at the end of some phase.
    pub(super) remarkable: bool,
}

/// A cost at the end of a phase, in percent of what a node has in a second; what is not known is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) learned: String,
    pub(super) error: String,
    pub(super) truth: String,
    /// In percent of the truth.
    pub(super) off: String,
    /// It was found with every seed; `None` where that cannot be said.
    pub(super) found: Option<bool>,
}

/// What each seed's table believed of resource number `resource` of a route.
fn costs<'a>(group: &'a Group, route: &str, resource: usize) -> Vec<&'a LearnedCost> {
    let tables = group.verdicts.iter().filter_map(|verdict| verdict.learned.as_ref());
    let routes = tables.filter_map(|table| table.routes.iter().find(|known| known.pattern == route));
    routes.filter_map(|route| route.resources.get(resource)).collect()
}

/// The first run's table of a group, by which figures are drawn and rows are sorted.
pub(super) fn first(group: &Group) -> Option<&LearnedTable> {
    group.verdicts.iter().find_map(|verdict| verdict.learned.as_ref())
}

/// A row for each route, resource and group whose table is learned: routes as in the first group, then what others have found.
pub(super) fn rows<'a>(report: &Report<'a>) -> Vec<Row<'a>> {
    let tables = || report.groups.iter().filter_map(first);
    let mut routes: Vec<(&str, usize)> = Vec::new();
    for route in tables().flat_map(|table| &table.routes) {
        if !routes.iter().any(|(known, _)| *known == route.pattern) {
            // The first of those that are equal.
            let most = (1..route.resources.len()).fold(0, |most, next| {
                if route.resources[next].most() > route.resources[most].most() { next } else { most }
            });
            routes.push((&route.pattern, most));
        }
    }
    let mut rows = Vec::new();
    for (route, main) in routes {
        for resource in 0..crate::judge::resources::NAMES.len() {
            for group in report.groups {
                let row = row(report, group, route, resource);
                rows.extend(row.map(|row| Row { main: resource == main, ..row }));
            }
        }
    }
    rows
}

/// `None` if the group's table knows nothing of the route, or the resource is neither used nor taken for used.
fn row<'a>(report: &Report<'a>, group: &'a Group, route: &'a str, resource: usize) -> Option<Row<'a>> {
    let costs = costs(group, route, resource);
    let first = costs.first()?;
    let phases: Vec<Cell> = (0..report.outline.phases.len()).map(|phase| cell(&costs, phase)).collect();
    let is_used = |cost: &&LearnedCost| cost.most() > 0.0 || cost.phases.iter().any(|phase| phase.found() == Some(false));
    costs.iter().any(is_used).then(|| Row {
        route,
        resource: first.resource.as_str(),
        main: false,
        by: &group.discipline,
        within: within(&costs),
        remarkable: costs.iter().any(|cost| !cost.changes.is_empty())
            || phases.iter().any(|cell| cell.found == Some(false)),
        phases,
    })
}

fn cell(costs: &[&LearnedCost], phase: usize) -> Cell {
    let ends: Vec<PhaseCost> = costs.iter().filter_map(|cost| cost.phases.get(phase).copied()).collect();
    let median = |of: fn(&PhaseCost) -> Option<f64>| {
        Spread::of(ends.iter().filter_map(of)).map_or(String::new(), |spread| percent(spread.median))
    };
    let worst = ends.iter().filter_map(PhaseCost::off).max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let found: Vec<bool> = ends.iter().filter_map(PhaseCost::found).collect();
    Cell {
        learned: median(|end| end.cost),
        error: median(|end| end.error),
        truth: median(|end| end.truth),
        off: worst.map_or(String::new(), |off| format!("{:+.0} %", off * 100.0)),
        found: (!found.is_empty()).then(|| found.iter().all(|found| *found)),
    }
}

/// A cost, as a share, in percent without the sign.
pub(super) fn percent(cost: f64) -> String {
    format!("{:.3}", cost * 100.0)
}

/// Of every change when it was and how long it took: `24 after 60 s`.
fn within(costs: &[&LearnedCost]) -> String {
    let mut times: Vec<f64> = costs.iter().flat_map(|cost| &cost.changes).map(|change| change.at_s).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let told = times.iter().map(|at| {
        let changes = costs.iter().flat_map(|cost| &cost.changes).filter(|change| change.at_s == *at);
        let (took, never): (Vec<_>, Vec<_>) = changes.map(|change| change.within_s).partition(Option::is_some);
        let took = Spread::of(took.into_iter().flatten()).map(|spread| spread.text(0));
        let never = match (never.len(), costs.len()) {
            (0, _) => None,
            (_, 1) => Some("never".to_owned()),
            (some, all) => Some(format!("never with {some} of {all} seeds")),
        };
        let what: Vec<String> = took.into_iter().chain(never).collect();
        let at = if *at == 0.0 { "the start".to_owned() } else { format!("{} s", super::svg::figure_text(*at)) };
        format!("{} after {at}", what.join(", "))
    });
    told.collect::<Vec<String>>().join("; ")
}

/// How the band is called: `20 %`.
pub(super) fn band() -> String {
    format!("{:.0} %", BAND * 100.0)
}

/// The phases that a row in a terminal shows.
pub(super) fn shown(report: &Report<'_>) -> std::ops::Range<usize> {
    let all = report.outline.phases.len();
    all.saturating_sub(MOST_PHASES)..all
}
