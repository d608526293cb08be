//! `weirgate sim`: plays experiments in virtual time and reports which guarantees held.
//!
//! Every pair of a discipline and a seed is one run. Runs are independent, so as many run in parallel as
//! there are cores. Results are printed in the order of the command line, whichever ends first.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use indicatif::ProgressBar;
use weirgate_experiment::{Experiment, compressed, load_experiment_file};
use weirgate_replay::write_log;
use weirgate_sim::parallel::results;
use weirgate_spanned_yaml::overrides::{InvalidOverride, Override};
use weirgate_verdict::report::{Group, Played, Series, html, json, svg, text};
use weirgate_verdict::{Verdict, judge, judge_against_oracle};

use crate::bar::bar;
use crate::best_of::{Choice, choices};
use crate::{exit, grid, swarm};

/// Play experiments in virtual time and report which guarantees held.
///
/// An experiment file names a policy, the machines behind it, the traffic in front of it, and the faults
/// with their instants. The engine is the one that runs in the gateway. Machines and clients are models.
/// The same file and seed give the same run to the bit.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  weirgate sim experiments/quorum-fig9.yaml
  weirgate sim experiments/quorum-fig9.yaml --discipline quorum --discipline weirgate --seeds 8
  weirgate sim my.yaml --set traffic.A.rate=1200/s --format html --output my.html
  weirgate sim my.yaml --format json --against oracle
  weirgate sim experiments/knowledge.yaml --grid --seeds 5 --discipline weirgate --discipline slots --format svg
  weirgate sim --swarm 1000 --discipline weirgate --discipline quorum

Exit codes:
  0  every guarantee that can be held was held, and no invariant was violated
  1  a guarantee was missed, or an invariant was violated
  2  it could not be run: standard error says why and how to fix it")]
#[group(id = "sim")]
pub(crate) struct Args {
    /// Experiment files (YAML).
    #[arg(required_unless_present_any = ["swarm", "swarm_file"])]
    pub(crate) files: Vec<PathBuf>,
    /// Play under this discipline instead of the file's. Repeat it to compare disciplines. `NAME=A,B,C`
    /// tries the disciplines A, B and C and shows the best: the one with the fewest missed guarantees over
    /// all seeds, then with the largest number of served requests. `best-fixed` tries windows of many fixed
    /// sizes.
    #[arg(long = "discipline", value_name = "D")]
    pub(crate) disciplines: Vec<String>,
    /// Play with N seeds, one after the other from --seed on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_SEEDS))]
    seeds: Option<u64>,
    /// Play with this seed, or from it on.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Set a value in the experiment before it is played, such as `traffic.A.rate=800/s`. Repeatable.
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = set)]
    pub(crate) sets: Vec<Override>,
    /// Divide all instants (phases, faults, changes) by N. Rates and demands stay.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    compress: f64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Also write the access log that the gateway would have written, for `weirgate replay`. For one experiment under
    /// one discipline, with its first seed.
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Play the cells of the experiment's `grid`, each with some figures of the file changed, and show for each
    /// discipline in which of them the guarantees were held, and the served share of the possible load.
    #[arg(long, conflicts_with_all = ["swarm", "swarm_file", "access_log", "against"])]
    grid: bool,
    /// Also report the load that a scheduler could serve if it knew every capacity and demand.
    #[arg(long, value_enum)]
    against: Option<Against>,
    #[command(flatten)]
    swarm: swarm::Args,
}

/// Maximum number of seeds, more than a useful study needs.
const MAX_SEEDS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table.
    Text,
    /// One object for one run, a list for several.
    Json,
    /// A page with figures.
    Html,
    /// Only the figure, for one experiment under one discipline.
    Svg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// An oracle that serves floors first and shares the rest by weight.
    Oracle,
}

fn set(text: &str) -> Result<Override, InvalidOverride> {
    text.parse()
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let (seed, disciplines, sets) = (args.seed, args.disciplines.as_slice(), args.sets.as_slice());
    let json = args.format == Format::Json;
    if let Some(code) = swarm::run(&args.swarm, &swarm::Context { seed, disciplines, sets, json }) {
        return code;
    }
    let seeds: Vec<u64> = match args.seeds {
        Some(count) => (0..count).map(|at| args.seed.wrapping_add(at)).collect(),
        None => vec![args.seed],
    };
    if args.grid {
        return grid::run(args, &seeds);
    }
    let Some(plans) = load_all(args) else { return ExitCode::from(exit::CANNOT) };
    if args.access_log.is_some()
        && (plans.len() != 1 || plans.iter().any(|plan| plan.iter().flat_map(|choice| &choice.each).count() != 1))
    {
        return exit::cannot(
            "an access log is that of one experiment under one discipline; give one file and at most one --discipline",
        );
    }
    if args.format == Format::Svg && (plans.len() != 1 || args.disciplines.len() > 1) {
        let why = "an SVG shows one experiment under one discipline; give one file and at most one --discipline";
        return exit::cannot(why);
    }
    if let (Some(path), Some(experiment)) =
        (&args.access_log, plans.iter().flatten().flat_map(|choice| &choice.each).next())
    {
        let run = weirgate_sim::run(experiment, seeds[0], |_| ());
        let written = File::create(path).and_then(|file| write_log(experiment, &run, &mut BufWriter::new(file)));
        if let Err(error) = written {
            return exit::cannot(&format!("{} cannot be written: {error}", path.display()));
        }
    }
    let played = play(plans, &seeds, args);
    let report = match args.format {
        Format::Text => played.iter().map(text::text).collect::<Vec<String>>().join("\n"),
        Format::Json => {
            let groups = played.iter().flat_map(|played| &played.groups);
            json::text(&groups.flat_map(|group| &group.verdicts).collect::<Vec<&Verdict>>())
        }
        Format::Html => html::page(&played, &command_line()),
        Format::Svg => played.iter().filter_map(svg::played).collect(),
    };
    if let Err(why) = write(&report, args.output.as_deref()) {
        return exit::cannot(&why);
    }
    exit::answer(played.iter().all(Played::sound))
}

/// An experiment under each discipline of the command line.
pub(crate) type Plan = Vec<Choice<Experiment>>;

/// Loads every file. `None` if one has errors. All errors have been printed then.
fn load_all(args: &Args) -> Option<Vec<Plan>> {
    let plan = |file: &PathBuf| load(args, file, &[]).map_err(|why| exit::tell(&why)).ok();
    let plans: Vec<Option<Plan>> = args.files.iter().map(plan).collect();
    plans.into_iter().collect()
}

/// Loads a file with the changes of the command line and of a grid's `cell`. Warnings are printed.
///
/// # Errors
/// The errors in the file under the first discipline that has some, in lines.
pub(crate) fn load(args: &Args, file: &Path, cell: &[Override]) -> Result<Plan, String> {
    let mut warned = false;
    let mut load = |discipline: Vec<Override>| {
        let loaded = load_experiment_file(file, &[&discipline, &args.sets, cell].concat());
        let loaded = loaded.map_err(|errors| errors.to_string())?;
        // They are the same under the other disciplines, and in the other cells.
        if !std::mem::replace(&mut warned, true) && cell.is_empty() {
            let lines = loaded.warning_lines(&file.display().to_string());
            lines.iter().for_each(|line| exit::tell(&format!("{line}\n")));
        }
        compressed(&loaded.experiment, args.compress).map_err(|why| format!("weirgate: {}: {why}\n", file.display()))
    };
    choices(&args.disciplines).into_iter().map(|choice| choice.load(&mut load)).collect()
}

/// The results of one run.
struct Done {
    verdict: Verdict,
    /// Only for the first seed, and only for figures.
    series: Option<Series>,
}

/// Plays all runs, as many in parallel as there are cores.
fn play(plans: Vec<Plan>, seeds: &[u64], args: &Args) -> Vec<Played> {
    let jobs: Vec<(&Experiment, u64)> = plans
        .iter()
        .flatten()
        .flat_map(|choice| &choice.each)
        .flat_map(|experiment| seeds.iter().map(move |seed| (experiment, *seed)))
        .collect();
    let bar = progress(&jobs);
    let play = |index: usize| {
        let (experiment, seed) = jobs[index];
        one(experiment, seed, seed == seeds[0], args, &bar)
    };
    let mut results = results(jobs.len(), None, play, || ()).into_iter();
    bar.finish_and_clear();
    plans
        .into_iter()
        .filter_map(|plan| {
            let mut group = |experiment: &Experiment| {
                let discipline = experiment.site.policy.discipline.name.clone();
                let mut group = Group { discipline, ..Group::default() };
                for Done { verdict, series } in results.by_ref().take(seeds.len()) {
                    group.verdicts.push(verdict);
                    group.series = group.series.or(series);
                }
                group
            };
            let shown = |choice: &Choice<Experiment>| choice.best(choice.each.iter().map(&mut group).collect());
            let groups = plan.iter().filter_map(shown).collect();
            plan.into_iter().flat_map(|choice| choice.each).next().map(|experiment| Played { experiment, groups })
        })
        .collect()
}

/// Plays one run and judges it.
fn one(experiment: &Experiment, seed: u64, first: bool, args: &Args, bar: &ProgressBar) -> Done {
    let mut told = Duration::ZERO;
    let run = weirgate_sim::run(experiment, seed, |at| {
        bar.inc(millis(at.saturating_sub(told)));
        told = told.max(at);
    });
    bar.inc(millis(experiment.duration().saturating_sub(told)));
    let verdict = match args.against {
        None => judge(experiment, &run),
        Some(Against::Oracle) => judge_against_oracle(experiment, &run),
    };
    let series = (first && matches!(args.format, Format::Html | Format::Svg)).then(|| Series::new(experiment, &run));
    Done { verdict, series }
}

/// Returns a progress bar over all simulated time, on standard error if that is a terminal.
fn progress(jobs: &[(&Experiment, u64)]) -> ProgressBar {
    let total: u64 = jobs.iter().map(|(experiment, _)| millis(experiment.duration())).sum();
    bar(total, "{percent:>3} % {wide_bar} {elapsed} of about {duration}")
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a report to a file or to standard output.
pub(crate) fn write(report: &str, output: Option<&Path>) -> Result<(), String> {
    match output {
        Some(path) => {
            std::fs::write(path, report).map_err(|error| format!("{} cannot be written: {error}", path.display()))
        }
        None => exit::write(report).map_err(|error| format!("cannot write to standard output: {error}")),
    }
}

/// Returns the command as it was typed, quoted for a shell.
pub(crate) fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    let quoted = |word: String| {
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    format!("weirgate {}", words.collect::<Vec<String>>().join(" "))
}
