//! Tables of the page with their explanations. Those of verdicts and pages are in the text, too; the others
//! are sentences there, or missing.

use std::fmt::Write as _;

use super::{escape, figure_text};
use crate::report::{
    Cell, ClassRuns, Column, Form, Outline, OutlinedFigure, PhaseRuns, Report, Spread, Table, pages, verdicts as judged,
};

/// The table of verdicts, and those of guarantees and pages that belong to it.
pub fn verdicts(report: &Report<'_>) -> String {
    let table = judged::table(report, 0..report.outline.phases.len());
    format!("<h2>Verdicts</h2>{}", table.html())
        + "<p class=\"note\">Judged after the settling time of each phase. Owed: arrivals within the guaranteed rate, \
           at the declared cost. Wrong: shed while the class was owed more. Avoidable: owed, but refused or late \
           although idle machines could have served it, settling time included. Impossible: a limit below the time \
           that the class's requests take alone on an idle machine. It does not count. With several seeds: the \
           median, the smallest and the largest value.</p>"
        + &avoidable(report)
        + &settling(report)
        + &pages(report)
}

/// A table with its heading and an explanation. Empty if it has no rows.
fn part(heading: &str, table: &Table, note: &str) -> String {
    if table.is_empty(Form::Page) {
        return String::new();
    }
    let note = if note.is_empty() { String::new() } else { format!("<p class=\"note\">{note}</p>") };
    format!("<h2>{heading}</h2>{}{note}", table.html())
}

/// Table of avoidable refusals, with a row for the worst run of each class with a guaranteed throughput and
/// each group.
fn avoidable(report: &Report<'_>) -> String {
    let words = [report.by, "class"].map(Column::words);
    let numbers = ["owed", "refused", "late", "%", "%, after the first second"].map(Column::numbers);
    let last = [Column::marks(""), Column::numbers("worst seed")];
    let mut table = Table::new(words.into_iter().chain(numbers).chain(last));
    for group in report.groups {
        for (seed, worst) in group.worst_avoidable() {
            let counts = [worst.whole.owed, worst.whole.refused, worst.whole.late].map(|count| count.to_string());
            let percent = [worst.whole, worst.after_first_second].map(|of| format!("{:.2}", of.share() * 100.0));
            let names = [group.discipline.clone(), worst.class.clone()];
            let cells = names.into_iter().chain(counts).chain(percent).map(Cell::from);
            table.row(cells.chain([Cell::holds(worst.ok), seed.to_string().into()]));
        }
    }
    let note =
        "Owed requests of the whole run that were refused or late although idle machines could have served them.";
    part("Avoidable refusals", &table, note)
}

/// Table of guarantees that were missed while their phase settled, one per row.
fn settling(report: &Report<'_>) -> String {
    let words = [report.by, "phase", "class", "of"].map(Column::words);
    let mut table = Table::new(words.into_iter().chain(["promised", "was", "seed"].map(Column::numbers)));
    for group in report.groups {
        for verdict in &group.verdicts {
            for miss in verdict.settling_misses() {
                let is_floor = miss.class.settling.floor.is_some_and(|floor| !floor.ok && miss.phase.feasible);
                table.row([
                    group.discipline.clone(),
                    miss.phase.name.clone(),
                    miss.class.class.clone(),
                    if is_floor { "requests/s" } else { "response time, ms" }.to_owned(),
                    format!("{:.1}", miss.promised),
                    format!("{:.1}", miss.got),
                    verdict.seed.to_string(),
                ]);
            }
        }
    }
    let first = figure_text(report.outline.settle_s);
    let note = format!(
        "The first {first} s of each phase. No control is instant, so these misses are reported but \
                        break no run."
    );
    part("Missed while a phase settled", &table, &note)
}

fn pages(report: &Report<'_>) -> String {
    let note = "A page is one request with all its objects. It is complete if all were served, and rejected if one \
                was shed. Response times of these classes are those of whole pages.";
    part("Pages", &pages::table(report, 0..report.outline.phases.len()), note)
}

/// Published figures next to ours. Empty if there are none for the disciplines that were played.
pub fn published(report: &Report<'_>) -> String {
    let words = [report.by, "phase", "class"].map(Column::words);
    let compared = ["served/s, paper", "response time, ms, paper"];
    let compared = compared.into_iter().flat_map(|paper| [paper, "ours", "difference"].map(Column::numbers));
    let shed = ["shed, %, paper", "ours", "difference"].map(|head| Column::numbers(head).optional());
    let mut table = Table::new(words.into_iter().chain(compared).chain(shed));
    for group in report.groups {
        for figure in report.outline.published.iter().filter(|p| p.discipline == group.discipline) {
            let Some(phase) = report.outline.phases.iter().position(|phase| phase.name == figure.phase) else {
                continue;
            };
            let runs = PhaseRuns::new(&group.verdicts, phase);
            let mut classes = (0..report.class_count(phase)).map(|class| runs.class(class));
            if let Some(ours) = classes.find(|of| of.name() == figure.class) {
                let names = [&figure.discipline, &figure.phase, &figure.class].map(|name| Cell::from(name.as_str()));
                table.row(names.into_iter().chain(compared_cells(figure, ours)));
            }
        }
    }
    part("Paper and ours", &table, "")
}

fn compared_cells(figure: &OutlinedFigure, ours: ClassRuns<'_>) -> impl Iterator<Item = Cell> {
    // Adding 0 turns a rounded −0 into 0.
    let percent = |ours: f64, paper: f64| {
        let percent = ((ours / paper - 1.0) * 100.0).round() + 0.0;
        if paper > 0.0 { format!("{percent:+} %") } else { String::new() }
    };
    // Percentages are compared by their difference: 1 % instead of 2 % is not half the sheds of any class.
    let points = |ours: f64, paper: f64| format!("{:+.1} points", ours - paper + 0.0);
    let compare = |paper: Option<f64>, ours: Option<Spread>, off: fn(f64, f64) -> String| {
        let off = paper.zip(ours).map_or(String::new(), |(paper, ours)| off(ours.median, paper));
        let ours = Cell::spread(ours.filter(|_| paper.is_some()), 1);
        [paper.map_or(String::new(), figure_text).into(), ours, off.into()]
    };
    let shed = figure.shed.map(|share| share * 100.0);
    let served = compare(figure.served_per_s, ours.spread(|c| c.part.served_per_s), percent);
    let response = compare(figure.response_time_ms, ours.response(), percent);
    served.into_iter().chain(response).chain(compare(shed, ours.shed_percent(), points))
}

/// Configuration of the experiment: classes, machines, faults.
pub fn configuration(outline: &Outline) -> String {
    let mut table = Table::new([
        Column::words("class"),
        Column::words("upstream"),
        Column::numbers("guaranteed/s"),
        Column::words("response time"),
        Column::numbers("service time, ms"),
    ]);
    for class in &outline.classes {
        let limit = class.response_time.as_ref().map(|(what, limit)| format!("{what} ≤ {} ms", figure_text(*limit)));
        table.row([
            class.name.clone(),
            class.upstream.clone(),
            class.throughput_per_s.map_or("-".to_owned(), figure_text),
            limit.unwrap_or("-".to_owned()),
            class.service_ms.map_or("learned".to_owned(), figure_text),
        ]);
    }
    let mut html = format!("<h2>Set-up</h2>{}<p class=\"note\">", table.html());
    let _ = write!(html, "Machines: {}. ", escape(&outline.machines));
    let _ = write!(html, "Network: {} ms one way. ", figure_text(outline.network_ms));
    let _ = write!(html, "The first {} s of each phase are judged apart.", figure_text(outline.settle_s));
    for fault in &outline.faults {
        let at = figure_text(fault.from_s);
        let what = escape(&fault.what);
        let _ = match fault.to_s {
            Some(until) => write!(html, " From {at} s to {} s: {what}.", figure_text(until)),
            None => write!(html, " At {at} s: {what}."),
        };
    }
    html + "</p>"
}
