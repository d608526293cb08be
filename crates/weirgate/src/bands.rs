//! `weirgate bands`: the papers' figures, ours, the band of each, and whether it holds.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use weirgate_sim::bands::{Figure, Source, Stored, Table, figures, measure};

use crate::bar::bar;
use crate::exit;

/// Compare our figures with those of the papers, each with the band in which it must lie.
///
/// Plays the papers' experiments under their disciplines, and prints a table with the columns paper, ours,
/// band, holds. A figure holds if it lies within its band for every one of its seeds. The column `paper`
/// has the number that the paper prints, or its statement in words. It has `(ours)` if the paper has no
/// such figure, and `(target)` if the default discipline must reach the band. A `≠` marks a number that
/// lies outside the band itself, because ours departs from it. The experiments are part of the program.
///
/// It takes about half a minute of computing. `--runs` reads the same figures from runs of `weirgate lab run`
/// instead, where real processes were measured, and names the folders with the raw data. A run counts if it has
/// the experiment, the discipline as its approach, and the same changes (`--set`). Figures without a run are
/// left out, and the commands that make their runs are printed on standard error.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate bands
  weirgate bands --of 'Fig. 13' --discipline quorum
  weirgate bands --of seda --format json
  weirgate bands --format markdown > bands.md
  weirgate bands --runs bench/runs

Exit codes:
  0  every figure is within its band
  1  a figure is outside its band: lines below the table name it and the reason for its band
  2  the command line is wrong, no figure has this name, or there is no run in DIR")]
pub(crate) struct Args {
    /// Only figures of a paper or with a name that contains TEXT, in any case. Repeatable.
    #[arg(long = "of", value_name = "TEXT")]
    of: Vec<String>,
    /// Only figures of this discipline. Repeatable.
    #[arg(long = "discipline", value_name = "NAME")]
    disciplines: Vec<String>,
    /// Leave out targets: show only figures of published disciplines.
    #[arg(long)]
    no_targets: bool,
    /// Read the figures from the lab's runs in DIR and its folders, instead of simulating.
    #[arg(long, value_name = "DIR", conflicts_with = "threads")]
    runs: Option<PathBuf>,
    /// Output format of the table.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Number of experiments to play in parallel. By default one per CPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table for people.
    Text,
    /// A list for programs, with every seed's figure and the reason for every band.
    Json,
    /// A table for documents.
    Markdown,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let wanted: Vec<Figure> = figures().into_iter().filter(|figure| is_wanted(figure, args)).collect();
    if wanted.is_empty() {
        return exit::cannot("no figure has this name; `weirgate bands` without options shows all");
    }
    let table = match &args.runs {
        None => simulated(wanted, args.threads),
        Some(folder) => match Stored::read(folder) {
            Ok(stored) => {
                let (table, missing) = stored.measure(wanted);
                missing.iter().for_each(|command| exit::say(&format!("no stored run: {command}")));
                table
            }
            Err(why) => return exit::cannot(&why),
        },
    };
    let printed = match args.format {
        Format::Text => exit::print(&table.to_string()),
        Format::Json => exit::print_json(&table.json()),
        Format::Markdown => exit::print(&table.markdown()),
    };
    if !matches!(args.format, Format::Text) {
        table.outside().iter().for_each(|line| exit::say(line));
    }
    let (_, outside, _) = table.counts();
    if outside > 0 { ExitCode::from(exit::NO) } else { printed }
}

/// Plays the experiments, with a bar of progress.
fn simulated(wanted: Vec<Figure>, threads: Option<u16>) -> Table {
    let bar = bar(0, "{pos}/{len} runs {wide_bar} {eta} left");
    let table = measure(wanted, threads.map(usize::from), |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    table
}

fn is_wanted(figure: &Figure, args: &Args) -> bool {
    let name = format!("{} {}", figure.paper, figure.figure).to_lowercase();
    let is_named = args.of.is_empty() || args.of.iter().any(|text| name.contains(&text.to_lowercase()));
    let is_under = args.disciplines.is_empty() || args.disciplines.iter().any(|d| d == figure.discipline);
    is_named && is_under && !(args.no_targets && figure.source == Source::Target)
}
