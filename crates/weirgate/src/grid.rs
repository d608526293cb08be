//! `weirgate sim --grid`: plays an experiment with one figure after the other changed, under several disciplines.

use std::path::Path;
use std::process::ExitCode;

use weirgate_experiment::{Experiment, GridRow, load_experiment_file};
use weirgate_sim::parallel::results;
use weirgate_verdict::judge;
use weirgate_verdict::report::Group;
use weirgate_verdict::report::grid::{Cell, Grid, Reached, Row};

use crate::bar::bar;
use crate::best_of::Choice;
use crate::exit;
use crate::sim::{Args, Format, load, write};

/// Plays the grid of the only file of `args` with these seeds.
pub(crate) fn run(args: &Args, seeds: &[u64]) -> ExitCode {
    let [file] = args.files.as_slice() else {
        return exit::cannot("a grid is that of one experiment; give one file");
    };
    let first = match load_experiment_file(file, &args.sets) {
        Ok(loaded) => loaded.experiment,
        Err(errors) => return exit::cannot_as_told(&errors.to_string()),
    };
    if first.grid.is_empty() {
        return exit::cannot(&format!("{} has no `grid:`; leave --grid out, or write the rows of one", file.display()));
    }
    let Some(jobs) = jobs(args, file, &first.grid) else { return ExitCode::from(exit::CANNOT) };
    let bar = bar(jobs.len() as u64, "{pos} of {len} cells {wide_bar} {elapsed} of about {duration}");
    let mut results = results(jobs.len(), None, |at| play(&jobs[at], seeds), || bar.inc(1)).into_iter();
    bar.finish_and_clear();
    let each = args.disciplines.len().max(1);
    let rows = first.grid.into_iter().map(|row| {
        let cells = row.cells.into_iter();
        let cells =
            cells.map(|cell| Cell { name: cell.name, results: results.by_ref().take(each).collect() }).collect();
        Row { row: row.name, cells }
    });
    let grid = Grid { title: first.title, rows: rows.collect() };
    let report = match args.format {
        Format::Json => exit::json(&grid).unwrap_or_default(),
        Format::Svg | Format::Html => grid.svg(),
        Format::Text => grid.text(),
    };
    if let Err(why) = write(&report, args.output.as_deref()) {
        return exit::cannot(&why);
    }
    let all_held = grid.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.results).all(Reached::all_held);
    exit::answer(all_held)
}

/// Loads every cell under every discipline. `None` if one has errors, which have been printed then.
fn jobs(args: &Args, file: &Path, rows: &[GridRow]) -> Option<Vec<Choice<Experiment>>> {
    let mut jobs = Vec::new();
    for (row, cell) in rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell))) {
        let plan = load(args, file, &cell.set).map_err(|errors| {
            exit::tell(&format!(
                "in the cell `{}` of the row `{}`:
{errors}",
                cell.name, row.name
            ));
        });
        jobs.extend(plan.ok()?);
    }
    Some(jobs)
}

/// Plays a cell under one discipline.
fn play(choice: &Choice<Experiment>, seeds: &[u64]) -> Reached {
    let groups = choice.each.iter().map(|experiment| Group {
        discipline: experiment.site.policy.discipline.name.clone(),
        verdicts: seeds.iter().map(|seed| judge(experiment, &weirgate_sim::run(experiment, *seed, |_| ()))).collect(),
        series: None,
    });
    let best = choice.best(groups.collect()).unwrap_or_default();
    Reached::of(best.discipline, &best.verdicts)
}
