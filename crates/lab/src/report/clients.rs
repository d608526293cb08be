//! The clients with a name: a line per phase, name and approach, over all seeds.

use std::fmt::Write as _;

use weirgate_verdict::report::{Cell, Column, Spread, Table, Tone};

use super::run_file::{Clients, RunFile};

/// Some clients in a phase under an approach, over all seeds.
struct Line<'a> {
    clients: &'a str,
    phase: &'a str,
    approach: &'a str,
    /// 95th percentile of the response time, in milliseconds: the median, with minimum and maximum.
    p95: String,
    /// That of a seed as a multiple of its first phase.
    of_first: String,
    served: u64,
    unserved: u64,
    /// Share of the CPUs of the machines that was in use, in percent, as above.
    busy: String,
}

/// Returns the lines by clients, then phase, then approach, each in the order of the run.
fn lines(run: &RunFile) -> Vec<Line<'_>> {
    let mut names: Vec<&str> = Vec::new();
    let mut approaches: Vec<&str> = Vec::new();
    for trial in run.trials.iter().filter(|trial| !trial.clients.is_empty()) {
        for row in &trial.clients {
            if !names.contains(&row.clients.as_str()) {
                names.push(&row.clients);
            }
        }
        if !approaches.contains(&trial.approach.as_str()) {
            approaches.push(&trial.approach);
        }
    }
    let mut lines = Vec::new();
    for clients in names {
        for phase in &run.experiment.phases {
            lines.extend(approaches.iter().filter_map(|approach| line(run, clients, &phase.name, approach)));
        }
    }
    lines
}

fn line<'a>(run: &RunFile, clients: &'a str, phase: &'a str, approach: &'a str) -> Option<Line<'a>> {
    let of = |phase: &str| -> Vec<(u64, &Clients)> {
        let trials = run.trials.iter().filter(|trial| trial.approach == approach);
        let rows = trials.flat_map(|trial| trial.clients.iter().map(|row| (trial.seed, row)));
        rows.filter(|(_, row)| row.phase == phase && row.clients == clients).collect()
    };
    let rows = of(phase);
    rows.first()?;
    let first = run.experiment.phases.iter().map(|phase| of(&phase.name)).find(|rows| !rows.is_empty());
    let ratio = |(seed, row): &(u64, &Clients)| {
        let base = first.iter().flatten().find(|(of, _)| of == seed)?.1.p95_ms?;
        Some(row.p95_ms? / base)
    };
    let trials = run.trials.iter().filter(|trial| trial.approach == approach);
    let of_phase = trials.flat_map(|trial| trial.verdict.phases.iter().filter(|judged| judged.name == phase));
    Some(Line {
        clients,
        phase,
        approach,
        p95: spread(rows.iter().filter_map(|(_, row)| row.p95_ms), 1),
        of_first: spread(rows.iter().filter_map(ratio), 2),
        served: rows.iter().map(|(_, row)| row.served).sum(),
        unserved: rows.iter().map(|(_, row)| row.unserved).sum(),
        busy: spread(of_phase.map(|judged| judged.utilisation * 100.0), 0),
    })
}

/// Returns the table, or `None` if the experiment names no clients.
pub(super) fn table(run: &RunFile) -> Option<Table> {
    let words = ["clients", "phase", "approach"].map(Column::words);
    let numbers = ["p95, ms", "of the first phase", "served", "not served", "CPUs busy, %"].map(Column::numbers);
    let mut table = Table::new(words.into_iter().chain(numbers));
    let lines = lines(run);
    for line in &lines {
        let cells = [line.clients, line.phase, line.approach, &line.p95, &line.of_first].map(str::to_owned);
        let tone = if line.unserved == 0 { Tone::Good } else { Tone::Bad };
        let unserved = Cell::from(line.unserved.to_string()).tone(tone);
        table.row(cells.map(Cell::from).into_iter().chain([
            Cell::from(line.served.to_string()),
            unserved,
            Cell::from(line.busy.clone()),
        ]));
    }
    (!lines.is_empty()).then_some(table)
}

/// Returns the table as Markdown, with a heading. Empty if the experiment names no clients.
pub(super) fn markdown(run: &RunFile) -> String {
    let lines = lines(run);
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## {}: clients with a name\n\nThe 95th percentile of their response times is the median over the seeds, with \
         minimum and maximum, and so is the use of the CPUs.\n\n| clients | phase | approach | p95, ms | of the first phase | served | not served | CPUs \
         busy, % |\n|---|---|---|---|---|---|---|---|\n",
        run.experiment.name
    );
    for Line { clients, phase, approach, p95, of_first, served, unserved, busy } in lines {
        let _ = writeln!(
            text,
            "| {clients} | {phase} | {approach} | {p95} | {of_first} | {served} | {unserved} | {busy} |"
        );
    }
    text
}

/// Returns the median, with minimum and maximum if they differ.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    Spread::of(values).map_or_else(String::new, |spread| spread.text(digits))
}
