//! `weirgate lab cluster-reserves`: the experiments of the paper on this machine's control groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use weirgate_lab::reserves::{Recording, SCENARIOS, Scenario, findings, page, play, table};

use super::CANNOT;
use crate::exit;

/// Play Secs. 5.2 to 5.4 of the Cluster Reserves paper on control groups of this machine: manager, agents, four nodes.
///
/// A node is a control group with a part of a CPU, a busy class a process in it that never waits. Needs the right to make
/// control groups (root, mostly); takes six minutes, keeps the CPUs busy, and leaves nothing behind.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Play this scenario only; may be given several times.
    #[arg(long = "scenario", value_name = "NAME", value_parser = PossibleValuesParser::new(SCENARIOS.map(|s| s.name)))]
    scenarios: Vec<String>,
    /// Where the results go: a page with figures, the counters as JSON, what every program said.
    #[arg(long, value_name = "DIR", default_value = "lab-runs/cluster-reserves")]
    output: PathBuf,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> ExitCode {
    match played(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::NO),
        Err(why) => {
            exit::say(&format!("lab: {why}"));
            ExitCode::from(CANNOT)
        }
    }
}

/// Whether everything was as it must be.
fn played(args: &Args) -> Result<bool, String> {
    let program = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let wanted = |scenario: &&Scenario| args.scenarios.is_empty() || args.scenarios.iter().any(|n| n == scenario.name);
    if args.output.join(RUN).exists() {
        return Err(format!("{} holds a run already; name another: --output DIR", args.output.display()));
    }
    let mut recordings = Vec::new();
    for scenario in SCENARIOS.iter().filter(wanted) {
        let directory = args.output.join(scenario.name);
        fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        // Programs are told absolute paths, whatever they make of them.
        let directory = directory.canonicalize().map_err(|error| format!("{}: {error}", directory.display()))?;
        recordings.push(watched(scenario, &program, &directory)?);
    }
    let findings = findings(&recordings);
    let json = serde_json::to_string(&recordings).map_err(|error| error.to_string())?;
    for (name, text) in [(RUN, json), ("index.html", page(&recordings))] {
        let file = args.output.join(name);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    exit::write(&table(&findings)).map_err(|error| format!("cannot write to standard output: {error}"))?;
    exit::say(&format!("{}/index.html has the figures", args.output.display()));
    Ok(findings.iter().all(|finding| finding.holds))
}

/// The counters' file.
const RUN: &str = "run.json";

/// Plays with a progress bar.
fn watched(scenario: &Scenario, program: &Path, directory: &Path) -> Result<Recording, String> {
    let bar = ProgressBar::new(scenario.length.as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {percent:>3} % {wide_bar} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(scenario.name);
    let played = play(scenario, program, directory, |gone| {
        bar.set_position(gone.as_millis() as u64);
        bar.set_message(format!("{:.0} of {:.0} s", gone.as_secs_f64(), scenario.length.as_secs_f64()));
    });
    bar.finish_and_clear();
    played
}
