//! Table of the evidence of a measurement: a row per trial with the counts of its requests, and how late
//! they were.

use weirgate_verdict::report::{Cell, Column, Form, Table, Tone};

use super::run_file::{Lateness, RunFile};

/// Returns the table. A page also has the versions and the doubts, which the text lists below the table.
pub(super) fn table(run: &RunFile) -> Table {
    let counts = ["sent", "served", "shed", "failed", "left", "cut"].map(Column::numbers);
    let late = ["load late, ms", "nodes late, ms", "shed after, ms"].map(Column::numbers);
    let first = [Column::words("approach"), Column::words("version").only(Form::Page), Column::numbers("seed")];
    let last =
        [Column::numbers("gateway, µs/request").in_text("gateway, us/request"), Column::words("").only(Form::Page)];
    let mut table = Table::new(first.into_iter().chain(counts).chain(late).chain(last));
    for trial in &run.trials {
        let e = &trial.evidence;
        let mut row = vec![trial.approach.clone(), trial.version.clone(), trial.seed.to_string()];
        row.extend([e.sent, e.served, e.shed, e.failed, e.left, e.cut].map(|count| count.to_string()));
        row.extend([e.generator_late_ms, e.node_late_ms, e.shed_after_ms].map(late_text));
        row.push(e.gateway_cpu_us.map_or(String::new(), |us| format!("{us:.1}")));
        let doubts = e.doubts();
        let mark = match doubts.is_empty() {
            true => Cell::from("✔").tone(Tone::Good),
            false => Cell::from(format!("✘ {}", doubts.join("; "))).tone(Tone::Bad),
        };
        table.row(row.into_iter().map(Cell::from).chain([mark]));
    }
    table
}

/// Formats median, 99th percentile and maximum.
fn late_text(late: Lateness) -> String {
    format!("{:.2} / {:.2} / {:.1}", late.p50, late.p99, late.max)
}
