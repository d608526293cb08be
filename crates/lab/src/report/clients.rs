//! Table of the clients with a name: a row per phase, name and approach, over all seeds.

use weirgate_verdict::report::{Cell, Column, Table, Tone};

use super::run_file::{Clients, RunFile};

/// Returns the table, or `None` if the experiment names no clients.
pub(super) fn table(run: &RunFile) -> Option<Table> {
    let mut seen: Vec<(&str, &str, &str)> = Vec::new();
    for phase in &run.experiment.phases {
        for trial in &run.trials {
            for row in trial.clients.iter().filter(|row| row.phase == phase.name) {
                let key = (phase.name.as_str(), row.clients.as_str(), trial.approach.as_str());
                if !seen.contains(&key) {
                    seen.push(key);
                }
            }
        }
    }
    // By name, then phase, then approach, each in the order of the run.
    let order = |key: &(&str, &str, &str)| seen.iter().position(|other| other.1 == key.1);
    let mut keys = seen.clone();
    keys.sort_by_key(order);
    let words = ["clients", "phase", "approach"].map(Column::words);
    let numbers = ["p95, ms", "of the first phase", "served", "not served"].map(Column::numbers);
    let mut table = Table::new(words.into_iter().chain(numbers));
    for (phase, clients, approach) in &keys {
        let of = |phase: &str| -> Vec<(u64, &Clients)> {
            let trials = run.trials.iter().filter(|trial| trial.approach == *approach);
            let rows = trials.flat_map(|trial| trial.clients.iter().map(|row| (trial.seed, row)));
            rows.filter(|(_, row)| row.phase == phase && row.clients == *clients).collect()
        };
        let rows = of(phase);
        let first = run.experiment.phases.iter().map(|phase| of(&phase.name)).find(|rows| !rows.is_empty());
        let ratio = |(seed, row): &(u64, &Clients)| {
            let base = first.iter().flatten().find(|(of, _)| of == seed)?.1.p95_ms?;
            Some(row.p95_ms? / base)
        };
        let times = spread(rows.iter().filter_map(|(_, row)| row.p95_ms), 1);
        let ratios = spread(rows.iter().filter_map(ratio), 2);
        let served: u64 = rows.iter().map(|(_, row)| row.served).sum();
        let unserved: u64 = rows.iter().map(|(_, row)| row.unserved).sum();
        let unserved = Cell::from(unserved.to_string()).tone(if unserved == 0 { Tone::Good } else { Tone::Bad });
        let words = [clients, phase, approach].map(|word| Cell::from((*word).to_owned()));
        table.row(words.into_iter().chain([times, ratios, served.to_string()].map(Cell::from)).chain([unserved]));
    }
    (!keys.is_empty()).then_some(table)
}

/// Returns the median, with minimum and maximum if there are several.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.as_slice() {
        [] => String::new(),
        [one] => format!("{one:.digits$}"),
        [min, .., max] => format!("{:.digits$} ({min:.digits$}–{max:.digits$})", values[values.len() / 2]),
    }
}
