//! Table of verdicts: a row per phase, class and group.
//!
//! The two forms differ, as their room does. A terminal has a table per phase, below a line with the values
//! of the phase as a whole. It gives the statistic, the response time and the limit a column each, and lists
//! published figures below ours. A page has one table for all phases, with the values of the whole phase in
//! every row and the response time in one cell, and compares published figures in a table of their own.

use super::svg::figure_text;
use super::{Cell, ClassRuns, Column, Form, Kept, OutlinedPhase, PhaseRuns, Report, Spread, Table};
use crate::judge::ClassVerdict;

pub(super) fn table(report: &Report<'_>, phases: impl IntoIterator<Item = usize>) -> Table {
    let several = report.groups.len() > 1;
    let mut table = Table::new([
        Column::words("phase").once().only(Form::Page),
        Column::words("class"),
        Column::words(report.by).on_page_if(several),
        Column::numbers("offered/s"),
        Column::numbers("served/s"),
        Column::numbers("oracle/s").optional(),
        Column::numbers("owed/s"),
        Column::marks(""),
        Column::words("").only(Form::Text),
        Column::numbers("response time, ms").only(Form::Text),
        Column::numbers("limit").only(Form::Text),
        Column::words("response time, ms").only(Form::Page),
        Column::marks(""),
        Column::numbers("shed"),
        Column::numbers("wrong"),
        Column::numbers("would shed").optional(),
        Column::numbers("avoidable").blank_zero(),
        Column::numbers("shed after, ms"),
        Column::numbers("failed").blank_zero(),
        Column::numbers("left").blank_zero(),
        Column::numbers("reaction, s"),
        Column::numbers("utili\u{ad}sation").only(Form::Page),
        Column::numbers("served / oracle").only(Form::Page),
    ]);
    for (index, phase) in phases.into_iter().filter_map(|index| Some((index, report.outline.phases.get(index)?))) {
        table.start_group();
        let published = report.published(&phase.name);
        for class in 0..report.class_count(index) {
            let mut name = "";
            for group in report.groups {
                let runs = PhaseRuns::new(&group.verdicts, index);
                let of = runs.class(class);
                if of.any() {
                    name = of.name();
                    let by = if several || !published.is_empty() { group.discipline.as_str() } else { "" };
                    let whole = [runs.utilisation(), runs.served_over_oracle()].map(|spread| Cell::spread(spread, 2));
                    let names = [phase_cell(phase, runs.infeasible()), name.into(), by.into()];
                    table.row(names.into_iter().chain(figures(&of)).chain(whole));
                }
            }
            for figure in published.iter().filter(|figure| figure.class == name) {
                let show =
                    |figure: Option<f64>| figure.map_or_else(Cell::default, |figure| format!("{figure:.1}").into());
                let by = Cell::from(format!("{} (paper)", figure.discipline));
                let none = Cell::default;
                let served = [none(), none(), by, none(), show(figure.served_per_s)];
                let response = [none(), none(), none(), none(), show(figure.response_time_ms)];
                table.row_only(Form::Text, served.into_iter().chain(response));
            }
        }
    }
    table
}

/// Name of the phase, and why not all of it counts.
fn phase_cell(phase: &OutlinedPhase, infeasible: Kept) -> Cell {
    let note = match (phase.judged, infeasible) {
        (false, _) => "not judged".to_owned(),
        (_, Kept { missed: 0, .. }) => String::new(),
        (_, Kept { missed, runs }) if missed == runs => "infeasible".to_owned(),
        (_, Kept { missed, runs }) => format!("infeasible {missed}/{runs}"),
    };
    Cell::bold(&phase.name).and(Cell::faint(note))
}

/// Cells of a class, from the offered load to the reaction.
fn figures(of: &ClassRuns<'_>) -> [Cell; 18] {
    let total = |figure: fn(&ClassVerdict) -> u64| Cell::spread(of.spread(|c| figure(c) as f64), 0);
    let shed =
        |figure: fn(&ClassVerdict) -> f64| Cell::spread(of.option(|c| (c.part.shed.count > 0).then(|| figure(c))), 1);
    let after = [shed(|c| c.part.shed.latency_ms.p50), shed(|c| c.part.shed.latency_ms.p95)];
    let limit = of.ceilings().next().map(|ceiling| figure_text(ceiling.limit_ms));
    let response = of.response();
    let statistic = if limit.is_some() || response.is_some() { of.statistic_text() } else { String::new() };
    let in_one = response.map(|_| {
        let limit = limit.as_ref().map_or(String::new(), |limit| format!("of {limit}"));
        Cell::faint(&statistic).and(Cell::spread(response, 1)).and(Cell::faint(limit))
    });
    [
        // The offered load hardly differs between seeds, so its median is enough.
        Cell::median(of.spread(|c| c.part.offered_per_s)),
        Cell::spread(of.spread(|c| c.part.served_per_s), 1),
        Cell::median(of.option(|c| c.oracle_served_per_s)),
        Cell::median(Spread::of(of.floors().map(|f| f.owed_per_s))),
        Cell::kept(of.floor()),
        statistic.into(),
        Cell::spread(response, 1),
        limit.unwrap_or_default().into(),
        in_one.unwrap_or_default(),
        of.ceiling_cell(),
        total(|c| c.part.shed.count),
        total(|c| c.part.shed.wrong),
        Cell::spread(of.option(|c| c.would_shed.map(|count| count as f64)), 0),
        total(|c| c.avoidable().count()),
        if after[0].is_empty() {
            Cell::default()
        } else {
            let [p50, p95] = after;
            p50.and("/").and(p95)
        },
        total(|c| c.part.failed),
        total(|c| c.part.left),
        of.reaction().map_or("never".into(), |spread| Cell::spread(Some(spread), 0)),
    ]
}
