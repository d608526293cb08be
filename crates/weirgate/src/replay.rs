//! `weirgate replay`: an access log under another policy.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use weirgate_clock::since_1970;
use weirgate_experiment::Experiment;
use weirgate_replay::report::{LogReport, PolicyReport, Report};
use weirgate_replay::{
    Assigned, Lines, Moves, Recording, Requests, Selection, Side, Source, add_discovered, experiment, machines_needed,
    of_log, play, read,
};
use weirgate_verdict::report::{Series, svg};

use crate::bar::bar;
use crate::exit;
use crate::run::gateway;
use crate::sim::{millis, write};

/// Play an access log under another policy, and show for each class what would have been served, shed and late.
///
/// Each request of the log gets its class anew, by method, host, path and client. Its cost is its service time without
/// the contention at that moment. Then the simulator plays the same requests at the same instants under the policy.
/// With --against it also plays them under the older policy, so that the model's error is not taken for the difference.
///
/// It also finds the smallest number of machines with which every guarantee holds for these requests.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate replay /var/log/weirgate/access.log --policy new.yaml
  weirgate replay access.log.2.gz access.log.1.gz access.log --policy new.yaml --against policy.yaml
  weirgate replay access.log --policy new.yaml --from 2026-11-20T18:00:00Z --to 2026-11-20T18:15:00Z
  ssh gw1 cat /var/log/weirgate/access.log | weirgate replay - --policy new.yaml --format json

Exit codes:
  0  every guarantee of the policy holds for these requests
  1  a guarantee is missed
  2  it could not be played: standard error says why and how to fix it")]
#[group(id = "replay")]
pub(crate) struct Args {
    /// Access logs of Weirgate, as text or gzip. `-` is standard input.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The policy to try (YAML).
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// The policy under which the log was written (YAML), to compare with.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    #[command(flatten)]
    part: LogArgs,
    /// Do not look for the smallest number of machines, which takes several simulations.
    #[arg(long)]
    no_machines: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The part of a log to play, and what is known about it.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Play only requests that arrived from this time on, such as 2026-11-20T18:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) from: Option<Duration>,
    /// Play only requests that arrived before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) to: Option<Duration>,
    /// Share of the requests that the log has, such as 10%. By default `access_log.sample` of the older policy, or else
    /// of the policy.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) sample: Option<f64>,
    /// Requests that each machine works on at once at full speed, such as its number of CPUs. By default `capacity` in
    /// the policy, or else an estimate from the log.
    #[arg(long, value_name = "N", value_parser = capacity)]
    pub(crate) capacity: Option<f64>,
    /// Seed of all random draws. The same seed gives the same result.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl LogArgs {
    /// Returns the part of the log. `sides` are the policies, the older one first.
    pub(crate) fn selection(&self, sides: &[Side]) -> Selection {
        let of = |side: &Side| side.site.access_log.as_ref().map(|log| log.sample).filter(|sample| *sample > 0.0);
        let sample = self.sample.or_else(|| sides.iter().find_map(of)).unwrap_or(1.0);
        Selection { from: self.from, to: self.to, sample }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table.
    Text,
    /// One object.
    Json,
    /// A figure for each policy over time.
    Svg,
}

/// Reads a time of the command line.
fn time(text: &str) -> Result<Duration, String> {
    since_1970(text).ok_or_else(|| "write a date and a time, such as 2026-11-20T18:00:00Z".to_owned())
}

/// Reads a share of the command line, above 0 and at most 1.
fn share(text: &str) -> Result<f64, String> {
    let figure = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    figure.ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| "write a share, such as 10%".to_owned())
}

fn capacity(text: &str) -> Result<f64, String> {
    let slots = text.parse().ok().filter(|slots: &f64| *slots > 0.0 && *slots <= 4_096.0);
    slots.ok_or_else(|| "write a number above 0 and at most 4096".to_owned())
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match replay(args) {
        Ok(holds) => exit::answer(holds),
        Err(why) => exit::cannot_as_told(&why),
    }
}

/// Formats a failure as a message of the program.
pub(crate) fn said(why: impl std::fmt::Display) -> String {
    format!("weirgate: replay: {why}\n")
}

/// Reads a policy that has a gateway.
pub(crate) fn side(file: &Path) -> Result<Side, String> {
    let loaded = weirgate_config::load_file(file).map_err(|errors| errors.to_string())?;
    let name = file.display().to_string();
    gateway(&name, loaded.site).map(|site| Side::new(name.clone(), site)).map_err(said)
}

/// A log in memory, with the class of each request under each of some policies.
pub(crate) struct Classified {
    pub(crate) requests: Requests,
    pub(crate) lines: Lines,
    pub(crate) assigned: Vec<Vec<Assigned>>,
    /// Requests that change their class from the first policy to the second. `None` unless there are two.
    pub(crate) moves: Option<Moves>,
}

/// Reads logs and classifies their requests under `sides`, with a progress bar on standard error.
pub(crate) fn classify(logs: &[PathBuf], selection: Selection, sides: &mut [Side]) -> Result<Classified, String> {
    let sources: Vec<Source> = logs.iter().map(|log| Source::of(log)).collect();
    let bytes = sources.iter().map(Source::bytes).sum::<Option<u64>>();
    let template = match bytes {
        Some(_) => "reading {percent:>3} % {wide_bar} {elapsed}",
        None => "{spinner} reading, {bytes} {elapsed}",
    };
    let bar = bar(bytes, template);
    let mut requests = Requests::new(selection);
    let mut assigned: Vec<Vec<Assigned>> = sides.iter().map(|_| Vec::new()).collect();
    let mut moves = Moves::default();
    let lines = read(
        &sources,
        |line| {
            if let Some(number) = requests.add(line)? {
                sides.iter_mut().zip(&mut assigned).for_each(|(side, all)| all.push(side.assign(line)));
                if let (Ok(both), [old, new]) = (<&[Side; 2]>::try_from(&*sides), assigned.as_slice()) {
                    moves.note(both, [old[number], new[number]], line, requests.all[number].copies);
                }
            }
            Ok(())
        },
        |passed| bar.set_position(passed),
    );
    bar.finish_and_clear();
    let moves = (sides.len() == 2).then_some(moves);
    Ok(Classified { requests, lines: lines.map_err(said)?, assigned, moves })
}

/// Returns whether every guarantee of the policy holds.
fn replay(args: &Args) -> Result<bool, String> {
    // The older policy first, because it is the one that the log knows.
    let mut sides: Vec<Side> =
        args.against.iter().chain([&args.policy]).map(|file| side(file)).collect::<Result<_, _>>()?;
    let selection = args.part.selection(&sides);
    let Classified { requests, lines, assigned, .. } = classify(&args.logs, selection, &mut sides)?;
    for (side, assigned) in sides.iter_mut().zip(&assigned) {
        add_discovered(side, &requests, assigned).map_err(said)?;
    }
    let recorded = &sides[0].site.policy;
    let outcome = of_log(&requests, recorded);
    let recording = Recording::new(requests, recorded, args.part.capacity, args.part.seed).map_err(said)?;
    let files = args.logs.iter().map(|log| log.display().to_string()).collect();
    let mut report = Report { log: LogReport::new(files, &lines, &recording, outcome), policies: Vec::new() };
    let mut figures = Vec::new();
    let mut holds = true;
    for (side, assigned) in sides.iter().zip(assigned) {
        let experiment = experiment(side, &recording, &assigned);
        drop(assigned);
        let (policy, figure) = one(args, side, &experiment, recording.length)?;
        // Only the policy to try decides, which is the last one.
        holds = policy.missed.is_empty();
        report.policies.push(policy);
        figures.extend(figure.map(|figure| (side.name.clone(), figure)));
    }
    let text = match args.format {
        Format::Text => report.text(),
        Format::Json => exit::json(&report).map_err(said)?,
        Format::Svg => svg::stacked(&figures),
    };
    write(&text, args.output.as_deref()).map_err(said)?;
    Ok(holds)
}

/// Plays one policy over a log of this length. Returns its report, and its figure if one is asked for.
fn one(
    args: &Args,
    side: &Side,
    experiment: &Experiment,
    length: Duration,
) -> Result<(PolicyReport, Option<String>), String> {
    let unsound = |why| said(format!("the simulation is not sound, please report this: {why}"));
    let length_ms = millis(experiment.duration());
    let played_bar = bar(length_ms, "{msg} {percent:>3} % {wide_bar} {elapsed} of about {duration}");
    played_bar.set_message(side.name.clone());
    let played = play(experiment, args.part.seed, |at| played_bar.set_position(millis(at)));
    played_bar.finish_and_clear();
    let played = played.map_err(unsound)?;
    let figure = (args.format == Format::Svg).then(|| {
        // The time in which the last requests end is not drawn.
        let drawn = experiment.until(length);
        svg::figure(&drawn, &Series::new(&drawn, &played.run))
    });
    let smallest = match args.no_machines || args.format == Format::Svg {
        true => None,
        false => {
            let bar = bar(None, "{spinner} {elapsed} {msg}: {pos} sizes of the cluster played");
            bar.set_message(side.name.clone());
            let found = machines_needed(experiment, args.part.seed, || bar.inc(1));
            bar.finish_and_clear();
            found.map_err(unsound)?
        }
    };
    Ok((PolicyReport::new(side, experiment, &played, smallest.as_ref()), figure))
}
