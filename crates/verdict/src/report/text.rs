//! The report as a table for a terminal.

use std::fmt::Write as _;

use super::summary::{Kept, PhaseRuns, Spread};
use super::svg::figure_text;
use super::table::Table;
use super::{Curve, Group, Outline, OutlinedFigure, Played, Report, learned, pages, resources};
use crate::judge::{Avoidable, ClassVerdict, Kind};

/// Maximum number of misses that are listed one by one. Further ones are only counted.
const MOST_LISTED: usize = 20;

/// The table and the verdict of an experiment that was played.
#[must_use]
pub fn text(played: &Played) -> String {
    report(&played.report(&Outline::new(&played.experiment)))
}

/// The table and the verdict of a report.
#[must_use]
pub fn report(report: &Report<'_>) -> String {
    let outline = report.outline;
    let mut text = match outline.title.as_str() {
        "" => format!("{}\n", outline.name),
        title => format!("{}: {title}\n", outline.name),
    };
    let curve = Curve::of(report);
    if let Some(curve) = &curve {
        text.extend(report.groups.iter().map(|group| over_axis(curve, group)));
        for (index, phase) in outline.phases.iter().enumerate().filter(|(index, _)| curve.has(*index)) {
            let beside = pages(report, index) + &used(report, index);
            text += &if beside.is_empty() { beside } else { format!("\n{}\n{beside}", phase.name) };
        }
    }
    let points = |index: &usize| curve.as_ref().is_some_and(|curve| curve.has(*index));
    for (index, phase) in outline.phases.iter().enumerate().filter(|(index, _)| !points(index)) {
        let _ = write!(text, "\n{}  {}–{} s", phase.name, phase.from_s, phase.to_s);
        text += if phase.judged { "\n" } else { ", not judged\n" };
        for group in report.groups {
            text += &phase_line(group, index);
        }
        text += &classes(report, index).lines("  ");
        text += &pages(report, index);
        text += &used(report, index);
    }
    text += &beliefs(report);
    for group in report.groups {
        text += &result(outline, group);
    }
    text
}

/// Points of a curve: a line for each position on the axis, with its published figures below it. Each class
/// has its served requests, response time and percentage shed. Several runs are reduced to medians.
fn over_axis(curve: &Curve<'_>, group: &Group) -> String {
    let mut head = vec![curve.axis.to_owned()];
    for class in &curve.classes {
        let (served, response) = (format!("{}/s", class.name), format!("{}, ms", class.statistic));
        head.extend([served, String::new(), response, String::new(), "shed, %".to_owned()]);
    }
    head.push(String::new());
    let marks = |class: usize| [class * 5 + 2, class * 5 + 4];
    let left: Vec<usize> = (0..curve.classes.len()).flat_map(marks).chain([head.len() - 1]).collect();
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<&str>>(), &left);
    let show = |spread: Option<Spread>| spread.map_or(String::new(), |spread| format!("{:.1}", spread.median));
    for place in &curve.places {
        let mut row = vec![place.0.to_string()];
        for class in &curve.classes {
            let point = curve.point(group, class, *place);
            let [floor, ceiling] =
                curve.kept(group, class, *place).map(|kept| kept.map_or(String::new(), |kept| kept.text()));
            let [served, shed] = [show(point.map(|p| p.served)), show(point.map(|p| p.shed))];
            row.extend([served, floor, show(point.and_then(|p| p.response)), ceiling, shed]);
        }
        let infeasible = PhaseRuns::new(&group.verdicts, place.1).infeasible().missed > 0;
        let infeasible = infeasible.then_some("infeasible: floors do not count");
        let ours = curve.is_ours(group, *place).then_some("ours: no figure in the paper");
        row.push(infeasible.into_iter().chain(ours).collect::<Vec<&str>>().join("; "));
        table.row(row);
        let paper = |class| curve.published(group, class, *place);
        if curve.classes.iter().any(|class| paper(class).is_some()) {
            let figures = curve.classes.iter().flat_map(|class| published(paper(class)));
            table.row(std::iter::once("paper".to_owned()).chain(figures).collect());
        }
    }
    let medians = if group.verdicts.len() > 1 { ", medians" } else { "" };
    format!("\n{} over {}{medians}\n{}", group.discipline, curve.axis, table.lines("  "))
}

/// Cells of a class's published figures.
fn published(figure: Option<&OutlinedFigure>) -> [String; 5] {
    let cell = |of: fn(&OutlinedFigure) -> Option<f64>| {
        figure.and_then(of).map_or(String::new(), |figure| format!("{figure:.1}"))
    };
    let [none, neither] = [const { String::new() }; 2];
    [cell(|f| f.served_per_s), none, cell(|f| f.response_time_ms), neither, cell(|f| f.shed.map(|share| share * 100.0))]
}

/// Utilisation and other values of the phase as a whole.
fn phase_line(group: &Group, phase: usize) -> String {
    let runs = PhaseRuns::new(&group.verdicts, phase);
    let show = |spread: Option<Spread>| spread.map_or("-".to_owned(), |s| s.text(2));
    let infeasible = match runs.infeasible() {
        Kept { missed: 0, .. } => String::new(),
        Kept { missed, runs } if missed == runs => ", infeasible: floors do not count".to_owned(),
        Kept { missed, runs } => format!(", infeasible with {missed} of {runs} seeds: floors do not count there"),
    };
    format!(
        "  {}: utilisation {}, served/oracle {}{infeasible}\n",
        group.discipline,
        show(runs.utilisation()),
        show(runs.served_over_oracle())
    )
}

/// A line per class and discipline, and the published figures.
fn classes(report: &Report<'_>, phase: usize) -> Table {
    let head = [
        "class",
        report.by,
        "offered/s",
        "served/s",
        "oracle/s",
        "owed/s",
        "",
        "",
        "response time, ms",
        "limit",
        "",
        "shed",
        "wrong",
        "avoidable",
        "shed after, ms",
        "failed",
        "left",
        "reaction, s",
    ];
    let mut table = Table::new(&head, &[0, 1, 6, 7, 10]);
    let published = report.phase_name(phase).map(|name| report.published(name)).unwrap_or_default();
    let several = report.groups.len() > 1 || !published.is_empty();
    for class in 0..report.class_count(phase) {
        let mut name = "";
        for group in report.groups {
            let runs = PhaseRuns::new(&group.verdicts, phase).class(class);
            if !runs.any() {
                continue;
            }
            name = runs.name();
            let show = |spread: Option<Spread>, digits| spread.map_or(String::new(), |s| s.text(digits));
            // The offered load hardly differs between seeds, so its median is enough.
            let median = |spread: Option<Spread>| spread.map_or(String::new(), |s| format!("{:.1}", s.median));
            let total = |figure: fn(&ClassVerdict) -> u64| show(runs.spread(|c| figure(c) as f64), 0);
            let ceiling = runs.ceilings().next();
            let response = runs.response();
            let shed = |of: fn(&ClassVerdict) -> f64| show(runs.option(|c| (c.part.shed.count > 0).then(|| of(c))), 1);
            let after = [shed(|c| c.part.shed.latency_ms.p50), shed(|c| c.part.shed.latency_ms.p95)];
            table.row(vec![
                name.to_owned(),
                if several { group.discipline.clone() } else { String::new() },
                median(runs.spread(|c| c.part.offered_per_s)),
                show(runs.spread(|c| c.part.served_per_s), 1),
                median(runs.option(|c| c.oracle_served_per_s)),
                median(Spread::of(runs.floors().map(|f| f.owed_per_s))),
                runs.floor().map_or(String::new(), |kept| kept.text()),
                if ceiling.is_some() || response.is_some() { runs.statistic_text() } else { String::new() },
                show(response, 1),
                ceiling.map_or(String::new(), |c| figure_text(c.limit_ms)),
                runs.ceiling_text(),
                total(|c| c.part.shed.count),
                total(|c| c.part.shed.wrong),
                nonzero(total(|c| c.avoidable().count())),
                if after[0].is_empty() { String::new() } else { after.join(" / ") },
                nonzero(total(|c| c.part.failed)),
                nonzero(total(|c| c.part.left)),
                runs.reaction().map_or("never".to_owned(), |s| s.text(0)),
            ]);
        }
        for figure in published.iter().filter(|p| p.class == name) {
            let mut row = vec![String::new(); head.len()];
            row[1] = format!("{} (paper)", figure.discipline);
            row[3] = figure.served_per_s.map_or(String::new(), |rate| format!("{rate:.1}"));
            row[8] = figure.response_time_ms.map_or(String::new(), |time| format!("{time:.1}"));
            table.row(row);
        }
    }
    table
}

/// A line per class and discipline with traffic that consists of pages.
fn pages(report: &Report<'_>, phase: usize) -> String {
    let rows = pages::rows(report, phase);
    if rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["pages of", report.by];
    head.extend(pages::HEAD);
    let mut table = Table::new(&head, &[0, 1]);
    for row in rows {
        let by = if report.groups.len() > 1 { row.by } else { "" };
        let mut cells = vec![row.class.to_owned(), by.to_owned()];
        cells.extend(row.cells);
        table.row(cells);
    }
    table.lines("  ")
}

/// A line of resource usage per class and discipline, and one for all classes.
fn used(report: &Report<'_>, phase: usize) -> String {
    let rows = resources::rows(report, phase);
    if rows.is_empty() {
        return String::new();
    }
    let names = resources::head(report);
    let head: Vec<&str> = ["used by", report.by].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&head, &[0, 1]);
    for row in rows {
        let by = if report.groups.len() > 1 { row.by } else { "" };
        table.row([row.class.to_owned(), by.to_owned()].into_iter().chain(row.cells).collect());
    }
    table.lines("  ")
}

/// Costs at the end of the phases for each route of a learned page table. There is a line for the resource
/// of which the route needs the largest part, and one for each other that changed or was not found.
fn beliefs(report: &Report<'_>) -> String {
    let rows: Vec<_> = learned::rows(report).into_iter().filter(|row| row.main || row.remarkable).collect();
    if rows.is_empty() {
        return String::new();
    }
    let shown = learned::shown(report);
    let found = format!("within {}, s", learned::band());
    let mut head = vec!["route", "resource", report.by];
    for phase in &report.outline.phases[shown.clone()] {
        head.extend([phase.name.as_str(), "±", "true", "off"]);
    }
    head.push(&found);
    let mut table = Table::new(&head, &[0, 1, 2, head.len() - 1]);
    for row in rows {
        let by = if report.groups.len() > 1 { row.by } else { "" };
        let mut cells = vec![row.route.to_owned(), row.resource.to_owned(), by.to_owned()];
        cells.extend(row.phases[shown.clone()].iter().cloned().flat_map(|c| [c.learned, c.error, c.truth, c.off]));
        cells.push(row.within);
        table.row(cells);
    }
    format!("\nlearned costs at the end of phases, % of a node's second\n{}", table.lines("  "))
}

fn nonzero(count: String) -> String {
    if count == "0" { String::new() } else { count }
}

/// The missed guarantees and the verdict.
fn result(outline: &Outline, group: &Group) -> String {
    let mut text = String::new();
    for verdict in &group.verdicts {
        for violation in verdict.violations.iter().take(MOST_LISTED) {
            let _ = writeln!(
                text,
                "  VIOLATION of {} with seed {}, {:.3} s: {}",
                violation.invariant, verdict.seed, violation.at_s, violation.what
            );
        }
    }
    text += &listed(misses(group, false), "  ");
    text += &avoidable(group);
    text += &impossible(group);
    let apart = misses(group, true);
    if !apart.is_empty() {
        let first = outline.settle_s;
        let _ = writeln!(text, "  missed while a phase settles (its first {first} s), which breaks nothing:");
        text += &listed(apart, "    ");
    }
    let missed = group.missed();
    let word = match (missed.runs, missed.missed) {
        (0, _) => "nothing was judged: no guarantee in any judged phase".to_owned(),
        (all, 0) if group.broken() => format!("BROKEN: all {all} guarantees held"),
        (all, 0) => format!("HELD: all {all} guarantees"),
        (all, missed) => format!("BROKEN: {missed} of {all} guarantees missed"),
    };
    let refusals = match group.avoidable().count() {
        0 => String::new(),
        1 => ", 1 avoidable refusal".to_owned(),
        n => format!(", {n} avoidable refusals"),
    };
    let violations = match group.violations() {
        0 => String::new(),
        1 => ", 1 VIOLATION".to_owned(),
        n => format!(", {n} VIOLATIONS"),
    };
    format!("\n{}, {}: {word}{refusals}{violations}\n{text}", group.discipline, group.seeds())
}

/// A line per class with owed requests that were refused or late while machines idled, with the worst of its seeds.
fn avoidable(group: &Group) -> String {
    let mut text = String::new();
    for (seed, worst) in group.worst_avoidable() {
        let Avoidable { owed, refused, late } = worst.whole;
        let most = group.verdicts.iter().find(|verdict| verdict.seed == seed);
        let most = most.and_then(|verdict| verdict.most_avoidable(&worst.class));
        let _ = writeln!(
            text,
            "  {} {}: {refused} refused and {late} late of {owed} owed though machines idled: {:.2} %, {:.2} % after the first \
             second{} (seed {seed})",
            if worst.ok { "few avoidable refusals," } else { "AVOIDABLE refusals," },
            worst.class,
            worst.whole.share() * 100.0,
            worst.after_first_second.share() * 100.0,
            most.map_or(String::new(), |(phase, _)| format!(", most in {}", phase.name)),
        );
    }
    text
}

/// A line per class and phase with a limit that no gateway can keep.
fn impossible(group: &Group) -> String {
    let mut text = String::new();
    let Some(verdict) = group.verdicts.first() else { return text };
    let classes = verdict.phases.iter().filter(|phase| phase.is_judged());
    let classes = classes.flat_map(|phase| phase.classes.iter().map(move |class| (phase, class)));
    let impossible = classes.filter_map(|(phase, class)| {
        let ceiling = class.part.ceiling.as_ref()?;
        Some((phase, class, ceiling, ceiling.impossible_ms?))
    });
    for (number, (phase, class, ceiling, alone)) in impossible.enumerate() {
        if number == MOST_LISTED {
            text += "  … and more that are impossible by themselves\n";
            break;
        }
        let _ = writeln!(
            text,
            "  {} {}: {} of {} ms is impossible by itself, as its requests take {alone:.2} ms alone on an idle machine: it does \
             not count",
            phase.name, class.class, ceiling.statistic, ceiling.limit_ms
        );
    }
    text
}

/// A guarantee that was missed, with every seed that missed it.
struct Missed {
    phase: String,
    class: String,
    kind: Kind,
    /// The seeds, each with the value in the unit of the guarantee, and the guaranteed value.
    seeds: Vec<(u64, f64, f64)>,
    statistic: String,
}

/// Guarantees missed in the judged parts, or while phases settle, with seeds combined.
fn misses(group: &Group, apart: bool) -> Vec<Missed> {
    let mut all: Vec<Missed> = Vec::new();
    for verdict in &group.verdicts {
        let phases = verdict.phases.iter().filter(|phase| if apart { phase.is_judged() } else { phase.judged });
        for (phase, class) in phases.flat_map(|p| p.classes.iter().map(move |c| (p, c))) {
            let part = if apart { &class.settling } else { &class.part };
            for (kind, promised, got) in part.missed(phase.feasible, false) {
                let seed = (verdict.seed, got, promised);
                match all.iter_mut().find(|m| m.phase == phase.name && m.class == class.class && m.kind == kind) {
                    Some(missed) => missed.seeds.push(seed),
                    None => all.push(Missed {
                        phase: phase.name.clone(),
                        class: class.class.clone(),
                        kind,
                        seeds: vec![seed],
                        statistic: part.ceiling.as_ref().map_or(String::new(), |c| c.statistic.clone()),
                    }),
                }
            }
        }
    }
    all
}

/// A line per guarantee, with the worst of its seeds.
fn listed(missed: Vec<Missed>, indent: &str) -> String {
    let mut text = String::new();
    for one in missed.iter().take(MOST_LISTED) {
        let off = |(_, figure, bound): &&(u64, f64, f64)| match one.kind {
            Kind::Floor => bound / figure.max(f64::MIN_POSITIVE),
            _ => *figure,
        };
        let Some((seed, figure, bound)) = one.seeds.iter().max_by(|a, b| off(a).total_cmp(&off(b))) else { continue };
        let what = match one.kind {
            Kind::Floor => format!("served {figure:.1}/s of {bound:.1}/s owed"),
            _ => format!("{} {figure:.2} of {bound} ms", one.statistic),
        };
        let seeds = match one.seeds.len() {
            1 => format!("seed {seed}"),
            n => format!("{n} seeds, worst {seed}"),
        };
        let _ = writeln!(text, "{indent}{} {}: {what} ({seeds})", one.phase, one.class);
    }
    if missed.len() > MOST_LISTED {
        let _ = writeln!(text, "{indent}… and {} more", missed.len() - MOST_LISTED);
    }
    text
}
