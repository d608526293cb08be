//! Tables of the page.

use std::fmt::Write as _;

use super::{escape, figure_text};
use crate::judge::{Avoidable, ClassVerdict};
use crate::report::{ClassRuns, Kept, Outline, OutlinedClass, OutlinedFigure, PhaseRuns, Report, Spread, pages};

/// Table of verdicts, with a row per phase, class and group.
#[must_use]
pub fn verdicts(report: &Report<'_>) -> String {
    let several = report.groups.len() > 1;
    let oracle = report.groups.iter().flat_map(|g| &g.verdicts).flat_map(|v| &v.phases).flat_map(|p| &p.classes);
    let oracle = oracle.into_iter().any(|class| class.oracle_served_per_s.is_some());
    let mut html =
        String::from("<h2>Verdicts</h2><div class=\"wide\"><table><tr><th class=\"l\">phase<th class=\"l\">class");
    html += &if several { format!("<th class=\"l\">{}", report.by) } else { String::new() };
    html += "<th>offered/s<th>served/s";
    html += if oracle { "<th>oracle/s" } else { "" };
    html += "<th>owed/s<th><th class=\"l\">response time, ms<th><th>shed<th>wrong<th>avoidable<th>shed after, ms\
             <th>failed<th>left<th>reaction, s<th>utili&shy;sation<th>served / oracle</tr>";
    for (index, phase) in report.outline.phases.iter().enumerate() {
        let mut first = true;
        for class in 0..report.class_count(index) {
            for group in report.groups {
                let runs = PhaseRuns::new(&group.verdicts, index);
                let of = runs.class(class);
                if !of.any() {
                    continue;
                }
                html += if first { "<tr class=\"first\"><td class=\"l\">" } else { "<tr><td>" };
                if first {
                    html += &phase_name(&phase.name, phase.judged, runs.infeasible());
                }
                first = false;
                let _ = write!(html, "<td class=\"l\">{}", escape(of.name()));
                if several {
                    let _ = write!(html, "<td class=\"l\">{}", escape(&group.discipline));
                }
                html += &figures(&of, oracle);
                let whole = [runs.utilisation(), runs.served_over_oracle()];
                html += &whole.map(|spread| spread_cell(spread, 2)).concat();
                html += "</tr>";
            }
        }
    }
    html + "</table></div><p class=\"note\">Judged from the settling time of each phase on. Owed: what arrived within the \
            guaranteed rate, at the declared cost. Wrong: shed while the class was owed more. Avoidable: owed and refused or \
            late, settling time included, though machines idled that could have served it. Impossible: a limit below what the \
            class's own requests take alone on an idle machine, which does not count. Of several seeds the median, and the \
            least and the largest.</p>"
        + &avoidable(report)
        + &settling(report)
        + &pages(report)
}

/// Table of avoidable refusals, with a row for the worst run of each class with a guaranteed throughput and
/// each group. Empty if nothing was avoidable.
fn avoidable(report: &Report<'_>) -> String {
    let mut rows = String::new();
    for group in report.groups {
        for (seed, worst) in group.worst_avoidable() {
            let Avoidable { owed, refused, late } = worst.whole;
            let percent = |of: &Avoidable| format!("{:.2}", of.share() * 100.0);
            let kept = Kept { missed: usize::from(!worst.ok), runs: 1 };
            let _ = write!(
                rows,
                "<tr><td class=\"l\">{}<td class=\"l\">{}<td>{owed}<td>{refused}<td>{late}<td>{}<td>{}{}<td>{seed}</tr>",
                escape(&group.discipline),
                escape(&worst.class),
                percent(&worst.whole),
                percent(&worst.after_first_second),
                mark(Some(kept))
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Avoidable refusals</h2><div class=\"wide\"><table><tr><th class=\"l\">{}<th class=\"l\">class<th>owed<th>refused\
         <th>late<th>%<th>%, after the first second<th><th>worst seed</tr>{rows}</table></div><p class=\"note\">Owed requests of \
         the whole run that were refused or late though machines idled that could have served them.</p>",
        report.by
    )
}

/// Table of guarantees that were missed while their phase settled, one per row. Empty if there are none.
fn settling(report: &Report<'_>) -> String {
    let mut rows = String::new();
    for group in report.groups {
        for verdict in &group.verdicts {
            for miss in verdict.settling_misses() {
                let [promised, got] = [miss.promised, miss.got].map(|figure| format!("{figure:.1}"));
                let _ = write!(
                    rows,
                    "<tr><td class=\"l\">{}<td class=\"l\">{}<td class=\"l\">{}<td class=\"l\">{}<td>{promised}<td>{got}<td>{}</tr>",
                    escape(&group.discipline),
                    escape(&miss.phase.name),
                    escape(&miss.class.class),
                    if miss.class.settling.floor.is_some_and(|floor| !floor.ok && miss.phase.feasible) {
                        "requests/s"
                    } else {
                        "response time, ms"
                    },
                    verdict.seed
                );
            }
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Missed while a phase settled</h2><div class=\"wide\"><table><tr><th class=\"l\">{}<th class=\"l\">phase<th \
         class=\"l\">class<th class=\"l\">of<th>promised<th>was<th>seed</tr>{rows}</table></div><p class=\"note\">The first {} s \
         of each phase. No control is instant: this is reported and breaks no run.</p>",
        report.by,
        figure_text(report.outline.settle_s)
    )
}

/// Table of pages, with a row per phase, class and group with traffic that consists of pages. Empty if
/// there are none.
fn pages(report: &Report<'_>) -> String {
    let several = report.groups.len() > 1;
    let mut rows = String::new();
    for (index, phase) in report.outline.phases.iter().enumerate() {
        for (number, row) in pages::rows(report, index).into_iter().enumerate() {
            rows += if number == 0 { "<tr class=\"first\">" } else { "<tr>" };
            let name = if number == 0 { escape(&phase.name) } else { String::new() };
            let _ = write!(rows, "<td class=\"l\"><b>{name}</b><td class=\"l\">{}", escape(row.class));
            if several {
                let _ = write!(rows, "<td class=\"l\">{}", escape(row.by));
            }
            row.cells.iter().for_each(|cell| rows += &format!("<td>{}", escape(cell)));
            rows += "</tr>";
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let by = if several { format!("<th class=\"l\">{}", report.by) } else { String::new() };
    let heads = pages::HEAD.map(|head| format!("<th>{head}")).concat();
    format!(
        "<h2>Pages</h2><div class=\"wide\"><table><tr><th class=\"l\">phase<th class=\"l\">class{by}{heads}</tr>{rows}\
         </table></div><p class=\"note\">A page is its own request with all its objects: complete if all were served, \
         rejected if one was shed. Response times of these classes are those of pages.</p>"
    )
}

fn phase_name(name: &str, judged: bool, infeasible: Kept) -> String {
    let note = match (judged, infeasible) {
        (false, _) => " <span class=\"m\">not judged</span>".to_owned(),
        (_, Kept { missed: 0, .. }) => String::new(),
        (_, Kept { missed, runs }) if missed == runs => " <span class=\"m\">infeasible</span>".to_owned(),
        (_, Kept { missed, runs }) => format!(" <span class=\"m\">infeasible {missed}/{runs}</span>"),
    };
    format!("<b>{}</b>{note}", escape(name))
}

fn figures(of: &ClassRuns<'_>, oracle: bool) -> String {
    let total = |figure: fn(&ClassVerdict) -> u64| spread_cell(of.spread(|c| figure(c) as f64), 0);
    let shed = |figure: fn(&ClassVerdict) -> f64| {
        of.option(|c| (c.part.shed.count > 0).then(|| figure(c))).map(|spread| spread_text(&spread, 1))
    };
    let after = shed(|c| c.part.shed.latency_ms.p50).zip(shed(|c| c.part.shed.latency_ms.p95));
    let ceiling = of.ceilings().next();
    let response = of.response().map_or(String::new(), |spread| {
        let statistic = escape(&of.statistic_text());
        let limit =
            ceiling.map_or(String::new(), |c| format!(" <span class=\"m\">of {}</span>", figure_text(c.limit_ms)));
        format!("<span class=\"m\">{statistic}</span> {}{limit}", spread_text(&spread, 1))
    });
    [
        median(of.spread(|c| c.part.offered_per_s)),
        spread_cell(of.spread(|c| c.part.served_per_s), 1),
        if oracle { median(of.option(|c| c.oracle_served_per_s)) } else { String::new() },
        median(Spread::of(of.floors().map(|f| f.owed_per_s))),
        mark(of.floor()),
        format!("<td class=\"l\">{response}"),
        match of.ceiling() {
            None => format!("<td class=\"m\">{}", of.ceiling_text()),
            kept => mark(kept),
        },
        total(|c| c.part.shed.count),
        total(|c| c.part.shed.wrong),
        total(|c| c.avoidable().count()),
        format!("<td>{}", after.map_or(String::new(), |(p50, p95)| format!("{p50} / {p95}"))),
        total(|c| c.part.failed),
        total(|c| c.part.left),
        of.reaction().map_or("<td>never".to_owned(), |spread| spread_cell(Some(spread), 0)),
    ]
    .concat()
}

/// A cell with the value. Several runs add the extremes in smaller print.
#[must_use]
pub fn spread_cell(spread: Option<Spread>, digits: usize) -> String {
    format!("<td>{}", spread.map_or(String::new(), |spread| spread_text(&spread, digits)))
}

/// A cell with the median only. The offered load hardly differs between seeds.
fn median(spread: Option<Spread>) -> String {
    format!("<td>{}", spread.map_or(String::new(), |spread| format!("{:.1}", spread.median)))
}

/// The value. Several runs add the extremes in smaller print.
pub(super) fn spread_text(spread: &Spread, digits: usize) -> String {
    match spread.text(digits).split_once(" (") {
        Some((median, rest)) => format!("{median} <span class=\"spread\">({rest}</span>"),
        None => spread.text(digits),
    }
}

/// A cell that tells whether a guarantee was held.
pub(super) fn mark(kept: Option<Kept>) -> String {
    match kept {
        None => "<td>".to_owned(),
        Some(kept) => format!("<td class=\"{}\">{}", if kept.missed == 0 { "y" } else { "n" }, kept.text()),
    }
}

/// Published figures next to ours. Empty if there are none for the disciplines that were played.
#[must_use]
pub fn published(report: &Report<'_>) -> String {
    let mut rows = String::new();
    let sheds = report.outline.published.iter().any(|figure| figure.shed.is_some());
    for group in report.groups {
        for figure in report.outline.published.iter().filter(|p| p.discipline == group.discipline) {
            let Some(phase) = report.outline.phases.iter().position(|phase| phase.name == figure.phase) else {
                continue;
            };
            let runs = PhaseRuns::new(&group.verdicts, phase);
            let class =
                (0..report.class_count(phase)).map(|class| runs.class(class)).find(|of| of.name() == figure.class);
            rows.extend(class.map(|ours| published_row(figure, ours, sheds)));
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Paper and ours</h2><div class=\"wide\"><table><tr><th class=\"l\">{}<th class=\"l\">phase<th class=\"l\">class\
         <th>served/s, paper<th>ours<th>difference<th>response time, ms, paper<th>ours<th>difference{}</tr>{rows}</table></div>",
        report.by,
        if sheds { "<th>shed, %, paper<th>ours<th>difference" } else { "" }
    )
}

fn published_row(figure: &OutlinedFigure, ours: ClassRuns<'_>, sheds: bool) -> String {
    let pair = |paper: Option<f64>, ours: Option<Spread>| match (paper, ours) {
        (Some(paper), Some(ours)) => {
            // Adding 0 turns a rounded −0 into 0.
            let percent = ((ours.median / paper - 1.0) * 100.0).round() + 0.0;
            let off = if paper > 0.0 { format!("{percent:+} %") } else { String::new() };
            format!("<td>{}{}<td>{off}", figure_text(paper), spread_cell(Some(ours), 1))
        }
        (Some(paper), None) => format!("<td>{}<td><td>", figure_text(paper)),
        (None, _) => "<td><td><td>".to_owned(),
    };
    // Percentages are compared by their difference: 1 % instead of 2 % is not half the sheds of any class.
    let shed = match (figure.shed.map(|share| share * 100.0), ours.shed_percent()) {
        (Some(paper), Some(ours)) => {
            let points = ours.median - paper + 0.0;
            format!("<td>{}{}<td>{points:+.1} points", figure_text(paper), spread_cell(Some(ours), 1))
        }
        _ => "<td><td><td>".to_owned(),
    };
    format!(
        "<tr><td class=\"l\">{}<td class=\"l\">{}<td class=\"l\">{}{}{}{}</tr>",
        escape(&figure.discipline),
        escape(&figure.phase),
        escape(&figure.class),
        pair(figure.served_per_s, ours.spread(|c| c.part.served_per_s)),
        pair(figure.response_time_ms, ours.response()),
        if sheds { shed } else { String::new() }
    )
}

/// Configuration of the experiment: classes, machines, faults.
#[must_use]
pub fn configuration(outline: &Outline) -> String {
    let mut html = String::from(
        "<h2>What was run</h2><div class=\"wide\"><table><tr><th class=\"l\">class<th class=\"l\">upstream<th>guaranteed/s\
         <th class=\"l\">response time<th>service time, ms</tr>",
    );
    html.extend(outline.classes.iter().map(class_row));
    html += "</table></div><p class=\"note\">";
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

fn class_row(class: &OutlinedClass) -> String {
    let rate = class.throughput_per_s.map_or("-".to_owned(), figure_text);
    let limit = class.response_time.as_ref();
    let limit = limit.map_or("-".to_owned(), |(statistic, limit)| format!("{statistic} ≤ {} ms", figure_text(*limit)));
    let service = class.service_ms.map_or("learned".to_owned(), figure_text);
    format!(
        "<tr><td class=\"l\">{}<td class=\"l\">{}<td>{rate}<td class=\"l\">{}<td>{service}</tr>",
        escape(&class.name),
        escape(&class.upstream),
        escape(&limit)
    )
}
