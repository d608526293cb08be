//! `weirgate lab run`: plays experiments under several approaches.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weirgate_lab::campaign::{Campaign, Event};
use weirgate_lab::gateways::{Approach, Kind};
use weirgate_lab::report::{self, RunFile, Trial};
use weirgate_lab::trial::Progress;

use super::Played;
use crate::bar::bar;
use crate::exit;

/// Play experiments and write a run directory for each: a page with figures, JSON, configuration,
/// latencies.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Experiment files (YAML).
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Play under this approach, `NAME` or `NAME:knob=value,...`. Repeatable. By default the policy's own
    /// discipline, `weirgate`, `quorum`, `none`, and every installed peer.
    #[arg(long = "approach", value_name = "A", value_parser = Approach::parse)]
    approaches: Vec<Approach>,
    /// Play every approach with each of its useful settings, and name the best.
    #[arg(long)]
    sweep: bool,
    /// Play with the seeds 1 to N.
    #[arg(long, value_name = "N", conflicts_with = "seed", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    #[command(flatten)]
    played: Played,
    /// Directory of the results, with one subdirectory for each experiment. By default below `lab-runs/`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in &args.files {
        match one(args, file) {
            Ok(true) => {}
            Ok(false) => code = ExitCode::from(exit::NO),
            Err(why) => return exit::cannot(&why),
        }
    }
    code
}

/// Plays one experiment. Returns whether Weirgate held every guarantee.
fn one(args: &Args, file: &Path) -> Result<bool, String> {
    let date = super::now();
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let directory = match &args.output {
        None => report::default_directory(&date, &stem),
        Some(directory) => directory.join(&stem),
    };
    if directory.join("run.json").exists() {
        return Err(format!("{} already has a run; name another directory: --output DIR", directory.display()));
    }
    let mut campaign = args.played.campaign(file, Vec::new(), directory, date)?;
    campaign.approaches = approaches(args, &campaign.experiment()?.site.policy.discipline.name)?;
    if let Some(count) = args.seeds {
        campaign.seeds = (1..=count).collect();
    }
    let run = watched(&campaign)?;
    exit::write(&report::text(&run)).map_err(|error| format!("cannot write to standard output: {error}"))?;
    if args.sweep {
        exit::write(&best(&run)).map_err(|error| format!("cannot write to standard output: {error}"))?;
    }
    exit::say(&format!("{}/index.html has the figures", campaign.directory.display()));
    let (asked, played) = (campaign.approaches.len() * campaign.seeds.len(), run.trials.len());
    if played < asked {
        return Err(format!("{} of {asked} trials could not be played, for the reasons above", asked - played));
    }
    let ours = |trial: &&Trial| Approach::parse(&trial.approach).is_ok_and(|approach| approach.kind().is_ours());
    Ok(run.trials.iter().filter(ours).all(|trial| trial.verdict.sound()))
}

/// Returns the given approaches, or all installed ones, and reports the missing ones. Of Weirgate's other
/// disciplines, only the policy's own is among them.
fn approaches(args: &Args, own: &str) -> Result<Vec<Approach>, String> {
    let asked = match args.approaches.as_slice() {
        [] => {
            let usual = |kind: &&Kind| !kind.is_ours() || [own, "weirgate", "quorum", "none"].contains(&kind.name);
            let all = Approach::all().iter().copied().filter(usual).map(|kind| Approach::parse(kind.name));
            installed(all.collect::<Result<Vec<Approach>, String>>()?)
        }
        some => some.to_vec(),
    };
    match args.sweep {
        false => Ok(asked),
        true => Ok(asked.iter().map(Approach::sweep).collect::<Result<Vec<_>, _>>()?.concat()),
    }
}

/// Returns the approaches whose program is installed, and names the others.
pub(super) fn installed(all: Vec<Approach>) -> Vec<Approach> {
    let (here, missing): (Vec<Approach>, Vec<Approach>) =
        all.into_iter().partition(|approach| approach.kind().installed().is_ok());
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        exit::say(&format!("not installed and left out: {}; `weirgate lab install` installs them", names.join(", ")));
    }
    here
}

/// Plays a campaign with a progress bar.
pub(super) fn watched(campaign: &Campaign) -> Result<RunFile, String> {
    let bar = bar(1000, "{prefix} {percent:>3} % {wide_bar} {msg}");
    let run = campaign.run(|event| match event {
        Event::Begins(number, all, approach, seed) => {
            bar.set_prefix(format!("{}/{all} {approach}, seed {seed}", number + 1));
            bar.set_position(0);
        }
        Event::Goes(progress) => {
            let (Progress { elapsed, length, .. }, sent) = (progress, progress.sent());
            let share = elapsed.as_secs_f64() / length.as_secs_f64().max(f64::MIN_POSITIVE);
            bar.set_position((share * 1000.0) as u64);
            bar.set_message(format!("{:.0} of {:.0} s, {sent} requests", elapsed.as_secs_f64(), length.as_secs_f64()));
        }
        Event::Ends(trial) => bar.suspend(|| exit::say(&line(trial))),
        Event::Failed(why) => bar.suspend(|| exit::say(why)),
    });
    bar.finish_and_clear();
    run
}

/// Returns a summary of a trial in one line.
fn line(trial: &Trial) -> String {
    let misses = trial.verdict.misses().count();
    let word = if misses == 0 { "held".to_owned() } else { format!("{misses} missed") };
    let doubts = trial.evidence.doubts();
    let doubts = if doubts.is_empty() { String::new() } else { format!("; {}", doubts.join("; ")) };
    format!(
        "{}, seed {}: {word}, {} of {} served{doubts}",
        trial.approach, trial.seed, trial.evidence.served, trial.evidence.sent
    )
}

/// Returns the best setting of each approach: the one with the fewest misses, then the one that serves the
/// largest number of requests.
fn best(run: &RunFile) -> String {
    let mut ranked: Vec<(String, usize, u64)> = Vec::new();
    for trial in &run.trials {
        let (misses, served) = (trial.verdict.misses().count(), trial.evidence.served);
        match ranked.iter_mut().find(|(approach, ..)| *approach == trial.approach) {
            Some(known) => (known.1, known.2) = (known.1 + misses, known.2 + served),
            None => ranked.push((trial.approach.clone(), misses, served)),
        }
    }
    ranked.sort_by(|a, b| (a.1, b.2).cmp(&(b.1, a.2)));
    let mut told: Vec<&str> = Vec::new();
    let mut text = String::from("\nBest settings, by fewest missed guarantees, then by highest number served\n");
    for (approach, misses, served) in &ranked {
        let kind = approach.split(':').next().unwrap_or(approach);
        if !told.contains(&kind) {
            told.push(kind);
            text += &format!("  {approach}: {misses} missed, {served} served\n");
        }
    }
    text
}
