//! `weirgate lab report`, `weirgate lab compare` and `weirgate lab figures`: reports on finished runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use weirgate_lab::report::{self, Side};

use crate::exit;

/// Print a run again, and rewrite its page from its `run.json`.
#[derive(Debug, clap::Args)]
pub(super) struct ReportArgs {
    /// The run's directory.
    directory: PathBuf,
}

/// Compare two runs: directories of the lab, or verdicts of `weirgate sim --format json`.
///
/// Each class of each phase is compared approach by approach (or every approach of B with the one of A that
/// has the same name). Differences of more than 3 % in throughput or 15 % in response time are marked.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate lab compare lab-runs/2026-11-22-fig9 lab-runs/2026-11-23-fig9
  weirgate sim experiments/quorum-fig9.yaml --format json --output sim.json && weirgate lab compare sim.json lab-runs/X

Exit codes:
  0  nothing differs by more than the bands
  1  something differs by more
  2  a run cannot be read")]
pub(super) struct CompareArgs {
    /// The first run.
    a: PathBuf,
    /// The second run.
    b: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Draw the classes' use of each resource in several runs: one page on standard output, with the figures of
/// mQoS.
///
/// For every run the page shows the utilisation of each resource by class, throughput, latency and its
/// parts, with all approaches next to each other, and each class's requests in flight over time. For
/// experiments with `disk:` or `link:` demands.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  weirgate lab run experiments/mqos-*.yaml --approach none --approach sqos --approach mqos --output lab-runs/mqos
  weirgate lab figures lab-runs/mqos/* > mqos.html")]
pub(super) struct FiguresArgs {
    /// The runs' directories, in the order of the page.
    #[arg(required = true)]
    directories: Vec<PathBuf>,
    /// Also write each chart into a file of its own in this directory.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table.
    Text,
    /// A page.
    Html,
}

pub(super) fn report(args: &ReportArgs) -> ExitCode {
    let again = report::read(&args.directory).and_then(|run| report::write(&args.directory, &run));
    match again {
        Ok(run) => exit::print(&report::text(&run)),
        Err(why) => exit::fail(&why),
    }
}

pub(super) fn figures(args: &FiguresArgs) -> ExitCode {
    let runs: Result<Vec<_>, String> = args.directories.iter().map(|directory| report::read(directory)).collect();
    let page = runs.and_then(|runs| {
        let page = report::figures(&runs)?;
        args.svg.as_ref().map_or(Ok(()), |directory| write_charts(directory, &runs))?;
        Ok(page)
    });
    match page {
        Ok(page) => exit::print(&page),
        Err(why) => exit::fail(&why),
    }
}

fn write_charts(directory: &Path, runs: &[report::RunFile]) -> Result<(), String> {
    let told = |path: &Path, error: std::io::Error| format!("{} cannot be written: {error}", path.display());
    let charts = report::charts(runs)?;
    fs::create_dir_all(directory).map_err(|error| told(directory, error))?;
    for chart in charts {
        let path = directory.join(format!("{}.svg", chart.name));
        fs::write(&path, chart.svg).map_err(|error| told(&path, error))?;
    }
    Ok(())
}

pub(super) fn compare(args: &CompareArgs) -> ExitCode {
    let sides = Side::read(&args.a).and_then(|a| Ok((a, Side::read(&args.b)?)));
    let comparison = match sides.map(|(a, b)| report::compare(&a, &b)) {
        Ok(comparison) => comparison,
        Err(why) => return exit::cannot(&why),
    };
    let text = match args.format {
        Format::Text => comparison.text(),
        Format::Html => comparison.html(),
    };
    match exit::write(&text) {
        Err(error) => exit::fail(&format!("cannot write to standard output: {error}")),
        Ok(()) if comparison.out().next().is_none() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(exit::NO),
    }
}
