//! The report as a table for a terminal.

use std::fmt::Write as _;

use super::summary::{Kept, PhaseRuns, Spread};
use super::{Cell, Curve, Form, Group, Outline, Played, Report, learned, pages, resources, verdicts};
use crate::judge::{Avoidable, Kind};

/// Maximum number of misses that are listed one by one. Further ones are only counted.
const MAX_LISTED: usize = 20;

/// The table and the verdict of an experiment that was played.
pub fn text(played: &Played) -> String {
    report(&played.report(&Outline::new(&played.experiment)))
}

/// The table and the verdict of a report.
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
            let further = further_tables(report, index);
            text += &if further.is_empty() { further } else { format!("\n{}\n{further}", phase.name) };
        }
    }
    let points = |index: &usize| curve.as_ref().is_some_and(|curve| curve.has(*index));
    for (index, phase) in outline.phases.iter().enumerate().filter(|(index, _)| !points(index)) {
        let _ = write!(text, "\n{}  {}–{} s", phase.name, phase.from_s, phase.to_s);
        text += if phase.judged { "\n" } else { ", not judged\n" };
        for group in report.groups {
            text += &phase_line(group, index);
        }
        text += &verdicts::table(report, [index]).text("  ");
        text += &further_tables(report, index);
    }
    text += &learned_costs(report);
    for group in report.groups {
        text += &result(outline, group);
    }
    text
}

/// Points of a curve under one group. Several runs are reduced to medians.
fn over_axis(curve: &Curve<'_>, group: &Group) -> String {
    let table = curve.table(std::slice::from_ref(group), Cell::median);
    let medians = if group.verdicts.len() > 1 { ", medians" } else { "" };
    format!("\n{} over {}{medians}\n{}", group.discipline, curve.axis, table.text("  "))
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

/// Tables that not every phase has: of pages, and of resource usage.
fn further_tables(report: &Report<'_>, phase: usize) -> String {
    let tables = [pages::table(report, [phase]), resources::table(report, [phase])];
    tables.iter().filter(|table| !table.is_empty(Form::Text)).map(|table| table.text("  ")).collect()
}

/// Costs at the end of the phases for the routes of a learned page table.
fn learned_costs(report: &Report<'_>) -> String {
    let table = learned::table(report, &learned::rows(report));
    if table.is_empty(Form::Text) {
        return String::new();
    }
    format!("\nlearned costs at the end of phases, % of a node's second\n{}", table.text("  "))
}

/// The missed guarantees and the verdict.
fn result(outline: &Outline, group: &Group) -> String {
    let mut text = String::new();
    for verdict in &group.verdicts {
        for violation in verdict.violations.iter().take(MAX_LISTED) {
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
        let _ = writeln!(text, "  missed while a phase settles (its first {first} s), reported only:");
        text += &listed(apart, "    ");
    }
    let missed = group.missed();
    let word = match (missed.runs, missed.missed) {
        (0, _) => "nothing was judged: no judged phase has a guarantee".to_owned(),
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
        let max = group.verdicts.iter().find(|verdict| verdict.seed == seed);
        let max = max.and_then(|verdict| verdict.max_avoidable(&worst.class));
        let _ = writeln!(
            text,
            "  {} {}: {refused} refused and {late} late of {owed} owed although machines idled: {:.2} %, {:.2} % \
             after the first second{} (seed {seed})",
            if worst.ok { "few avoidable refusals," } else { "AVOIDABLE refusals," },
            worst.class,
            worst.whole.share() * 100.0,
            worst.after_first_second.share() * 100.0,
            max.map_or(String::new(), |(phase, _)| format!(", mainly in {}", phase.name)),
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
        if number == MAX_LISTED {
            text += "  … and more impossible limits\n";
            break;
        }
        let _ = writeln!(
            text,
            "  {} {}: the limit {} of {} ms is impossible and does not count: its requests take {alone:.2} ms alone \
             on an idle machine",
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
    for one in missed.iter().take(MAX_LISTED) {
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
    if missed.len() > MAX_LISTED {
        let _ = writeln!(text, "{indent}… and {} more", missed.len() - MAX_LISTED);
    }
    text
}
