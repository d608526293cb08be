//! A run as text for the terminal.

use std::fmt::Write as _;

use weirgate_verdict::report::{Report, text as tables};

use super::run_file::RunFile;
use super::totals::{self, sentence};
use super::{clients, evidence};

/// Returns the tables of a run, the reasons to doubt it, and the result.
pub fn text(run: &RunFile) -> String {
    let groups = run.groups();
    let report = Report { outline: &run.experiment, groups: &groups, by: "approach" };
    let mut text = tables::report(&report);
    text += "\nall classes together\n";
    text += &totals::table(&report).text("  ");
    if let Some(table) = clients::table(run) {
        text += "\nclients with a name, median (minimum–maximum) over the seeds\n";
        text += &table.text("  ");
    }
    text += "\nevidence\n";
    text += &evidence::table(run).text("  ");
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
