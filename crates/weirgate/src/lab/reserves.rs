//! `weirgate lab cluster-reserves`: the experiments of the paper on this machine's control groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use clap::builder::PossibleValuesParser;
use weirgate_lab::reserves::{Chaos, KILLS, Recording, SCENARIOS, Scenario, chaos, findings, page, play, table};

use crate::bar::bar;
use crate::exit;

/// Play Secs. 5.2 to 5.4 of the Cluster Reserves paper on control groups of this machine: coordinator, agents,
/// four nodes.
///
/// A node is a control group with a part of a CPU. A busy class is a process in it that never waits. The
/// scenario `kills` kills coordinator, agents and nodes at random and checks that shares stay and come back. It
/// needs the right to make control groups (usually root), takes eight minutes, keeps the CPUs busy, and
/// leaves nothing behind.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Play only this scenario. Repeatable.
    #[arg(long = "scenario", value_name = "NAME", value_parser = PossibleValuesParser::new(SCENARIOS.map(|s| s.name).into_iter().chain([KILLS])))]
    scenarios: Vec<String>,
    /// Number of kills in the scenario `kills`.
    #[arg(long, value_name = "N", default_value_t = 50)]
    kills: usize,
    /// Seed of the victims and instants of the kills.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Directory of the results: a page with figures, the counters as JSON, and the output of every
    /// program.
    #[arg(long, value_name = "DIR", default_value = "lab-runs/cluster-reserves")]
    output: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    match played(args) {
        Ok(holds) => exit::answer(holds),
        Err(why) => exit::cannot(&format!("lab: {why}")),
    }
}

/// Plays the scenarios. Returns whether all results were as required.
fn played(args: &Args) -> Result<bool, String> {
    let program = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let wanted = |name: &str| args.scenarios.is_empty() || args.scenarios.iter().any(|wanted| wanted == name);
    if args.output.join(RUN).exists() {
        return Err(format!("{} already has a run; name another directory: --output DIR", args.output.display()));
    }
    let mut recordings = Vec::new();
    for scenario in SCENARIOS.iter().filter(|scenario| wanted(scenario.name)) {
        let directory = directory(&args.output, scenario.name)?;
        recordings.push(watched(scenario, &program, &directory)?);
    }
    let mut findings = findings(&recordings);
    if wanted(KILLS) {
        let found = killed(args, &program, &directory(&args.output, KILLS)?)?;
        findings.extend(found.findings());
        write(args, "kills.json", serde_json::to_string(&found).map_err(|error| error.to_string())?)?;
    }
    write(args, RUN, serde_json::to_string(&recordings).map_err(|error| error.to_string())?)?;
    write(args, "index.html", page(&findings, &recordings))?;
    exit::write(&table(&findings).text("  ")).map_err(|error| format!("cannot write to standard output: {error}"))?;
    exit::say(&format!("{}/index.html has the figures", args.output.display()));
    Ok(findings.iter().all(|finding| finding.holds))
}

/// The file with the counters.
const RUN: &str = "run.json";

fn write(args: &Args, name: &str, text: String) -> Result<(), String> {
    let file = args.output.join(name);
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Creates a directory for one scenario. Programs get absolute paths, which hold in any working directory.
fn directory(output: &Path, name: &str) -> Result<PathBuf, String> {
    let directory = output.join(name);
    let made = fs::create_dir_all(&directory).and_then(|()| directory.canonicalize());
    made.map_err(|error| format!("{}: {error}", directory.display()))
}

/// Form of a bar: its prefix is the scenario.
const BAR: &str = "{prefix} {percent:>3} % {wide_bar} {msg}";

/// Plays the scenario `kills` with a progress bar.
fn killed(args: &Args, program: &Path, directory: &Path) -> Result<Chaos, String> {
    let bar = bar(args.kills as u64, BAR).with_prefix(KILLS);
    let found = chaos(program, directory, args.kills, args.seed, |kills| {
        bar.set_position(kills as u64);
        bar.set_message(format!("{kills} of {}", args.kills));
    });
    bar.finish_and_clear();
    found
}

/// Plays a scenario with a progress bar.
fn watched(scenario: &Scenario, program: &Path, directory: &Path) -> Result<Recording, String> {
    let bar = bar(scenario.length.as_millis() as u64, BAR).with_prefix(scenario.name);
    let played = play(scenario, program, directory, |gone| {
        bar.set_position(gone.as_millis() as u64);
        bar.set_message(format!("{:.0} of {:.0} s", gone.as_secs_f64(), scenario.length.as_secs_f64()));
    });
    bar.finish_and_clear();
    played
}
