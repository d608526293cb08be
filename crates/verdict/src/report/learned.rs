//! Comparison of learned page tables with actual costs, as rows and as a table. Several seeds are reduced to
//! medians. The error of a cost is the largest instead, and the time until it was found also has the
//! smallest and the largest.

use super::table::Cell as TableCell;
use super::{Column, Form, Group, Report, Spread, Table, Tone};
use crate::judge::{BAND, LearnedCost, LearnedTable, PhaseCost};

/// Maximum number of phases that fit into a row in a terminal. A curve of more shows the last ones.
const MAX_PHASES: usize = 4;

/// Cost of a route's requests for one resource, under one discipline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row<'a> {
    pub(super) route: &'a str,
    /// Name of the resource. `main` marks the resource of which the route needs the largest part.
    pub(super) resource: &'a str,
    pub(super) main: bool,
    /// Discipline, or approach.
    pub(super) by: &'a str,
    /// Costs at the end of each phase of the outline.
    pub(super) phases: Vec<Cell>,
    /// Seconds until it was found, after each change. Empty if there was no change.
    pub(super) within: String,
    /// It changed, or was not found at the end of some phase.
    pub(super) remarkable: bool,
}

/// A cost at the end of a phase, in percent of the capacity that a node has in a second. Unknown values are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) learned: String,
    pub(super) error: String,
    pub(super) actual: String,
    /// Error in percent of the actual cost.
    pub(super) off: String,
    /// Whether it was found with every seed. `None` if that is unknown.
    pub(super) found: Option<bool>,
}

/// Learned cost of resource number `resource` of a route, for each seed.
fn costs<'a>(group: &'a Group, route: &str, resource: usize) -> Vec<&'a LearnedCost> {
    let tables = group.verdicts.iter().filter_map(|verdict| verdict.learned.as_ref());
    let routes = tables.filter_map(|table| table.routes.iter().find(|known| known.pattern == route));
    routes.filter_map(|route| route.resources.get(resource)).collect()
}

/// Table of a group's first run, by which figures are drawn and rows are sorted.
pub(super) fn first(group: &Group) -> Option<&LearnedTable> {
    group.verdicts.iter().find_map(|verdict| verdict.learned.as_ref())
}

/// A row for each route, resource and group with a learned table. Routes are in the order of the first
/// group, followed by those that only others have found.
pub(super) fn rows<'a>(report: &Report<'a>) -> Vec<Row<'a>> {
    let tables = || report.groups.iter().filter_map(first);
    let mut routes: Vec<(&str, usize)> = Vec::new();
    for route in tables().flat_map(|table| &table.routes) {
        if !routes.iter().any(|(known, _)| *known == route.pattern) {
            // The first one in case of a tie.
            let max = (1..route.resources.len())
                .fold(0, |max, next| if route.resources[next].max() > route.resources[max].max() { next } else { max });
            routes.push((&route.pattern, max));
        }
    }
    let mut rows = Vec::new();
    for (route, main) in routes {
        for resource in 0..weirgate_experiment::RESOURCES {
            for group in report.groups {
                let row = row(report, group, route, resource);
                rows.extend(row.map(|row| Row { main: resource == main, ..row }));
            }
        }
    }
    rows
}

/// `None` if the group's table does not know the route, or if the resource is neither used nor believed to be used.
fn row<'a>(report: &Report<'a>, group: &'a Group, route: &'a str, resource: usize) -> Option<Row<'a>> {
    let costs = costs(group, route, resource);
    let first = costs.first()?;
    let phases: Vec<Cell> = (0..report.outline.phases.len()).map(|phase| cell(&costs, phase)).collect();
    let is_used =
        |cost: &&LearnedCost| cost.max() > 0.0 || cost.phases.iter().any(|phase| phase.found() == Some(false));
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
        actual: median(|end| end.actual),
        off: worst.map_or(String::new(), |off| match (off * 100.0).round() {
            0.0 => "0 %".to_owned(),
            percent => format!("{percent:+.0} %"),
        }),
        found: (!found.is_empty()).then(|| found.iter().all(|found| *found)),
    }
}

/// A cost, as a fraction, in percent without the sign.
pub(super) fn percent(cost: f64) -> String {
    format!("{:.3}", cost * 100.0)
}

/// Time taken after each change, with the instant of the change: `24 after 60 s`.
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

/// Name of the band: `20 %`.
pub(super) fn band() -> String {
    format!("{:.0} %", BAND * 100.0)
}

/// The table of these rows.
///
/// A page has all rows and all phases. A terminal has the last phases that fit. Of each route it has the
/// resource of which the route needs the largest part, and each other that changed or was not found.
pub(super) fn table(report: &Report<'_>, rows: &[Row<'_>]) -> Table {
    let within = || Column::words(format!("within {}, s", band()));
    let by = Column::words(report.by).on_page_if(report.groups.len() > 1);
    let mut columns = vec![Column::words("route").once(), Column::words("resource"), by, within().only(Form::Page)];
    let hidden = report.outline.phases.len().saturating_sub(MAX_PHASES);
    for (index, phase) in report.outline.phases.iter().enumerate() {
        let learned = Column::numbers("learned, %").in_text(&phase.name);
        let of_phase = [learned, Column::numbers("±"), Column::numbers("true"), Column::numbers("off")];
        let shown = of_phase.map(|column| if index < hidden { column.only(Form::Page) } else { column });
        columns.extend(Column::part(&phase.name, shown));
    }
    columns.push(within().only(Form::Text));
    let mut table = Table::new(columns);
    let mut last = "";
    for row in rows {
        if row.route != last {
            table.start_group();
        }
        last = row.route;
        let within = || TableCell::from(row.within.as_str());
        let mut cells = vec![TableCell::bold(row.route), row.resource.into(), report.by_cell(row.by), within()];
        cells.extend(row.phases.iter().flat_map(Cell::cells));
        cells.push(within());
        if row.main || row.remarkable { table.row(cells) } else { table.row_only(Form::Page, cells) }
    }
    table
}

impl Cell {
    fn cells(&self) -> [TableCell; 4] {
        let off = if self.found == Some(false) { Tone::Bad } else { Tone::Faint };
        let [learned, error, actual, told] =
            [&self.learned, &self.error, &self.actual, &self.off].map(|text| TableCell::from(text.as_str()));
        [learned, error.tone(Tone::Faint), actual, told.tone(off)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sound;
    use super::super::{Played, html, json, svg, text};
    use super::*;
    use crate::judge::learned::tests::learned;
    use crate::judge::tests::experiment;

    fn played(verdicts: Vec<crate::Verdict>) -> Played {
        let group = Group { discipline: "mqos".into(), verdicts, series: None };
        Played { experiment: experiment(), groups: vec![group] }
    }

    #[test]
    fn a_route_is_a_line_in_a_terminal_and_a_row_of_panels_on_a_page() {
        let found = learned(0.005, 24);
        let outline = super::super::Outline::new(&experiment());
        let played = played(vec![found.clone()]);
        let text = text::text(&played);
        let table = "
learned costs at the end of phases, % of a node's second
  route  resource  before      ±   true   off  surge      ±   true    off  after      ±   true   off  within 20 %, s
  /*     cpu        0.520  0.030  0.500  +4 %  0.900  0.030  1.500  -40 %  1.460  0.030  1.500  -3 %  24 after 20 s
";
        assert!(text.contains(table), "{text}");
        let page = html::page(std::slice::from_ref(&played), "");
        let has = |what: &str| assert!(page.contains(what), "{what} is not in {page}");
        has("<h2>Learned costs</h2>");
        has("<td class=\"l\"><b>/*</b><td class=\"l\">cpu<td class=\"l\">24 after 20 s<td class=\"part\">0.520");
        has("<td class=\"n\">-40 %");
        let figure = svg::learned(&outline, found.learned.as_ref().expect("it is learned"), 1);
        sound(&figure);
        // The mark of the legend and the one where the cost was found.
        assert_eq!(figure.matches("<circle class=\"dot c0\"").count(), 2, "{figure}");
        assert!(figure.contains(">24 s</text>") && figure.contains(">1.460 ± 0.030 of 1.500</text>"), "{figure}");
        assert!(figure.contains("21 s\n/*, cpu: learned 0.900 ± 0.030 %</title>"), "{figure}");
        assert!(page.contains(&figure), "the page has it");
        assert!(json::text(&[&found]).contains("\"pattern\": \"/*\""));
    }

    #[test]
    fn seeds_are_condensed_and_what_never_happened_is_said() {
        let row = |verdicts| {
            let played = played(verdicts);
            let outline = super::super::Outline::new(&played.experiment);
            let rows = rows(&played.report(&outline));
            let row = rows.first().expect("the CPU");
            (row.within.clone(), row.phases[1].off.clone(), row.phases[1].found)
        };
        let seeds = vec![learned(0.005, 10), learned(0.005, 24), learned(0.005, 1000)];
        let told = ("17 (10–24), never with 1 of 3 seeds after 20 s".to_owned(), "-40 %".to_owned(), Some(false));
        assert_eq!(row(seeds), told);
        assert_eq!(row(vec![learned(0.009, 1000)]).0, "3 after the start; never after 20 s");
    }

    #[test]
    fn where_nothing_is_learned_reports_say_nothing_of_it() {
        let mut verdict = learned(0.005, 24);
        verdict.learned = None;
        let played = played(vec![verdict.clone()]);
        let all = [text::text(&played), html::page(&[played], ""), json::text(&[&verdict])];
        let strange = |report: &&String| report.contains("earned cost") || report.contains("\"learned\"");
        assert_eq!(all.iter().find(strange), None);
    }
}
