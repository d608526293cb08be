//! A run as text for the terminal.

use std::fmt::Write as _;

use weirgate_verdict::report::{Report, Spread, Table, text as tables};

use super::run_file::{Lateness, RunFile};
use super::totals::{reference, sentence, totals};

/// Returns the tables of a run, the reasons to doubt it, and the result.
#[must_use]
pub fn text(run: &RunFile) -> String {
    let groups = run.groups();
    let report = Report { outline: &run.experiment, groups: &groups, by: "approach" };
    let mut text = tables::report(&report);
    text += "\nall classes together\n";
    text += &total_table(&report).text("  ");
    text += "\nevidence\n";
    text += &evidence_table(run).text("  ");
    for trial in &run.trials {
        for doubt in trial.evidence.doubts() {
            let _ = writeln!(text, "  DOUBT {}, seed {}: {doubt}", trial.approach, trial.seed);
        }
        for note in &trial.notes {
            let _ = writeln!(text, "  note {}, seed {}: {note}", trial.approach, trial.seed);
        }
    }
    for note in &run.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text + "\n" + &sentence(&report) + "\n"
}

fn total_table(report: &Report<'_>) -> Table {
    let against = format!("against {}", reference(report.groups).map_or("", |group| group.discipline.as_str()));
    let head = ["phase", "approach", "served/s", "in time/s", "", &against, "utilisation", "served/oracle"];
    let mut table = Table::plain(&head, &[0, 1, 4]);
    let show = |spread: Option<Spread>| spread.map_or(String::new(), |spread| spread.text(2));
    for total in totals(report) {
        table.row(vec![
            total.phase.to_owned(),
            total.approach.to_owned(),
            total.served.text(1),
            total.in_time.text(1),
            if total.most { "most".to_owned() } else { String::new() },
            total.against.map_or(String::new(), |against| against.text()),
            show(total.utilisation),
            show(total.served_over_oracle),
        ]);
    }
    table
}

fn evidence_table(run: &RunFile) -> Table {
    let head = [
        "approach",
        "seed",
        "sent",
        "served",
        "shed",
        "failed",
        "left",
        "cut",
        "load late, ms",
        "nodes late, ms",
        "shed after, ms",
        "gateway, us/request",
    ];
    let mut table = Table::plain(&head, &[0]);
    for trial in &run.trials {
        let e = &trial.evidence;
        let mut row = vec![trial.approach.clone(), trial.seed.to_string()];
        row.extend([e.sent, e.served, e.shed, e.failed, e.left, e.cut].map(|count| count.to_string()));
        row.extend([late(e.generator_late_ms), late(e.node_late_ms), late(e.shed_after_ms)]);
        row.push(e.gateway_cpu_us.map_or(String::new(), |us| format!("{us:.1}")));
        table.row(row);
    }
    table
}

/// Formats median, 99th percentile and maximum.
pub(super) fn late(late: Lateness) -> String {
    format!("{:.2} / {:.2} / {:.1}", late.p50, late.p99, late.max)
}
