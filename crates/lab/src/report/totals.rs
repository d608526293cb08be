//! Totals over all classes with their table, the comparison of every approach with the reference, and the
//! result in one sentence.
//!
//! The reference is the approach named `weirgate`, or the first approach if there is none.

use weirgate_verdict::report::{Cell, Column, Group, Kept, PhaseRuns, Report, Spread, Table, Tone};

use super::compare::SERVED_BAND;

/// The total of all classes of a phase under one approach.
#[derive(Clone, Debug, PartialEq)]
struct Total<'a> {
    phase: &'a str,
    approach: &'a str,
    /// Requests served per second, late ones included.
    served: Spread,
    /// Arrivals per second that were served within their limit.
    in_time: Spread,
    /// Comparison with the reference, or `None` for the reference itself.
    against: Option<Against>,
    /// Whether no approach served more requests within their limit.
    max: bool,
    utilisation: Option<Spread>,
    served_over_oracle: Option<Spread>,
}

/// Comparison of an approach's total with the reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Against {
    /// Higher by this percentage.
    More(f64),
    /// Different by this percentage, which is within [`SERVED_BAND`], the difference between two runs of
    /// the same setup.
    Level(f64),
    /// Lower by this percentage, which is negative.
    Less(f64),
}

impl Against {
    fn new(ours: f64, reference: f64) -> Against {
        match (ours / reference - 1.0) * 100.0 {
            percent if percent > SERVED_BAND => Against::More(percent),
            percent if percent < -SERVED_BAND => Against::Less(percent),
            percent if percent.is_finite() => Against::Level(percent),
            // 0 divided by 0 is no number and counts as level.
            _ => Against::Level(0.0),
        }
    }

    /// Returns it as in `▲ +4.1 %`. A level total has no arrow.
    fn cell(self) -> Cell {
        let text = match self {
            Against::More(percent) if percent.is_infinite() => "▲ from zero".to_owned(),
            Against::More(percent) => format!("▲ {percent:+.1} %"),
            Against::Level(percent) => format!("level {percent:+.1} %"),
            Against::Less(percent) => format!("▼ {percent:+.1} %"),
        };
        Cell::from(text).tone(match self {
            Against::More(_) => Tone::Good,
            Against::Level(_) => Tone::Faint,
            Against::Less(_) => Tone::Bad,
        })
    }
}

/// Returns the approach with which the others are compared.
fn reference(groups: &[Group]) -> Option<&Group> {
    groups.iter().find(|group| group.discipline == "weirgate").or(groups.first())
}

/// Returns the totals of every judged phase under every approach.
fn totals<'a>(report: &Report<'a>) -> Vec<Total<'a>> {
    let Some(reference) = reference(report.groups) else { return Vec::new() };
    let mut totals = Vec::new();
    for (index, phase) in report.outline.phases.iter().enumerate().filter(|(_, phase)| phase.judged) {
        let in_time = |group: &Group| PhaseRuns::new(&group.verdicts, index).in_time();
        let largest = report.groups.iter().filter_map(in_time).map(|rate| rate.median).fold(0.0, f64::max);
        for group in report.groups {
            let runs = PhaseRuns::new(&group.verdicts, index);
            let (Some(ours), Some(theirs)) = (in_time(group), in_time(reference)) else { continue };
            let Some(served) = runs.served() else { continue };
            let other = group.discipline != reference.discipline;
            totals.push(Total {
                phase: &phase.name,
                approach: &group.discipline,
                served,
                in_time: ours,
                against: other.then(|| Against::new(ours.median, theirs.median)),
                max: report.groups.len() > 1 && ours.median >= largest,
                utilisation: runs.utilisation(),
                served_over_oracle: runs.served_over_oracle(),
            });
        }
    }
    totals
}

pub(super) fn table(report: &Report<'_>) -> Table {
    let reference = reference(report.groups).map_or("", |group| group.discipline.as_str());
    let mut table = Table::new([
        Column::words("phase").once(),
        Column::words("approach"),
        Column::numbers("served/s"),
        Column::numbers("in time/s"),
        Column::words(""),
        Column::numbers(format!("against {reference}")).left_on_page(),
        Column::numbers("utilisation"),
        Column::numbers("served / oracle").in_text("served/oracle"),
    ]);
    let mut last = "";
    for total in totals(report) {
        if total.phase != last {
            table.start_group();
        }
        last = total.phase;
        table.row([
            Cell::bold(total.phase),
            total.approach.into(),
            Cell::spread(Some(total.served), 1),
            Cell::spread(Some(total.in_time), 1),
            Cell::bold(if total.max { "max" } else { "" }),
            total.against.map_or_else(Cell::default, Against::cell),
            Cell::spread(total.utilisation, 2),
            Cell::spread(total.served_over_oracle, 2),
        ]);
    }
    table
}

/// Returns the result of a run in one sentence.
pub(super) fn sentence(report: &Report<'_>) -> String {
    let Some(reference) = reference(report.groups) else { return "Nothing was run.".to_owned() };
    let name = reference.discipline.as_str();
    let others = || report.groups.iter().filter(|group| group.discipline != name);
    let mut parts = vec![match reference.missed() {
        Kept { runs: 0, .. } => format!("nothing of {name} was judged"),
        Kept { missed: 0, runs } => format!("{name} held all {runs} guarantees"),
        Kept { missed, runs } => format!("{name} missed {missed} of {runs} guarantees"),
    }];
    let refused = |group: &&Group| group.verdicts.iter().any(|verdict| verdict.avoidable.iter().any(|of| !of.ok));
    let refused = report.groups.iter().filter(refused).map(|group| group.discipline.clone()).collect::<Vec<String>>();
    if !refused.is_empty() {
        parts.push(format!("{} refused owed requests although machines idled", listed(&refused)));
    }
    let held: Vec<String> = others().filter(|group| holds(group)).map(|group| group.discipline.clone()).collect();
    if !held.is_empty() {
        let all = if holds(reference) { "so did" } else { "all were held by" };
        parts.push(format!("{all} {}", listed(&held)));
    }
    let missed = others().filter(|group| group.missed().missed > 0).map(|group| {
        let Kept { missed, runs } = group.missed();
        format!("{} {missed} of {runs}", group.discipline)
    });
    let missed: Vec<String> = missed.collect();
    if !missed.is_empty() {
        parts.push(format!("missed by {}", listed(&missed)));
    }
    let violated = report.groups.iter().filter(|group| group.violations() > 0);
    parts.extend(violated.map(|group| format!("{} VIOLATED an invariant", group.discipline)));
    let totals = totals(report);
    let more = others().filter_map(|group| {
        let phases = totals.iter().filter(|total| total.approach == group.discipline);
        let more = phases.filter_map(|total| match total.against {
            Some(Against::More(percent)) if percent.is_infinite() => Some(total.phase.to_owned()),
            Some(Against::More(percent)) => Some(format!("{} {percent:+.1} %", total.phase)),
            _ => None,
        });
        let more: Vec<String> = more.collect();
        (!more.is_empty()).then(|| format!("{} ({})", group.discipline, more.join(", ")))
    });
    let more: Vec<String> = more.collect();
    if !more.is_empty() {
        parts.push(format!("more than {name} was served in time by {}", listed(&more)));
    } else if others().next().is_some() {
        parts.push(format!("in no phase did another approach serve {SERVED_BAND} % more than {name} in time"));
    }
    let text = parts.join("; ") + ".";
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn holds(group: &Group) -> bool {
    let missed = group.missed();
    missed.runs > 0 && missed.missed == 0 && !group.broken()
}

/// Formats a list: `a`, `a and b`, `a, b and c`.
fn listed(all: &[String]) -> String {
    match all {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        one => one.concat(),
    }
}
