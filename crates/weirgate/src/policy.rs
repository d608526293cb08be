//! `weirgate policy`: what differs between two policies, and for which requests.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;
use weirgate_experiment::Fate;
use weirgate_replay::diff::{Change, changes};
use weirgate_replay::{Decision, Move, Recording, Side, add_discovered, decisions, experiment, fates, play};

use crate::args::Format;
use crate::exit;
use crate::replay::{Classified, LogArgs, classify, said, side};

/// Kinds of differences that are listed one by one. Further ones are only counted.
const MAX_LISTED: usize = 20;

/// Compare policies.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Diff(Diff),
}

/// Say what changes from one policy to another, and for which classes.
///
/// Both files are resolved first, so that spelling, order of fields and defaults make no difference. With --log the
/// requests of an access log are classified and played under both, and those are counted that change their class, their
/// upstream, or whether they are served.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate policy diff policy.yaml new.yaml
  weirgate policy diff policy.yaml new.yaml --log access.log
  git show HEAD:policy.yaml > old.yaml; weirgate policy diff old.yaml policy.yaml --format json

Exit codes, as those of diff(1):
  0  the policies are the same
  1  they differ
  2  they could not be compared: standard error says why and how to fix it")]
struct Diff {
    /// The older policy (YAML).
    old: PathBuf,
    /// The newer policy (YAML).
    new: PathBuf,
    /// Access logs of Weirgate, as text or gzip, or `-` for standard input. Repeatable.
    #[arg(long = "log", value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    part: LogArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// All differences.
#[derive(Serialize)]
struct Report {
    old: String,
    new: String,
    /// Settings that differ.
    changes: Vec<Change>,
    /// Requests of the log that change. Absent without a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<Requests>,
}

#[derive(Serialize)]
struct Requests {
    /// All of them.
    all: u64,
    /// Those with another class or upstream.
    moved: Vec<Move>,
    /// Those that the simulator serves under one policy only, and the like.
    decided: Vec<Decision>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let Command::Diff(args) = &args.command;
    let report = match compare(args) {
        Ok(report) => report,
        Err(why) => return exit::cannot_as_told(&why),
    };
    let text = match args.format {
        Format::Text => Ok(report.text()),
        Format::Json => exit::json(&report),
    };
    if let Err(error) = text.and_then(|text| exit::write(&text).map_err(|error| error.to_string())) {
        return exit::cannot(&error);
    }
    exit::answer(report.changes.is_empty())
}

fn compare(args: &Diff) -> Result<Report, String> {
    let mut sides = [side(&args.old)?, side(&args.new)?];
    let changes = changes(&sides[0].site, &sides[1].site);
    let requests = if args.logs.is_empty() { None } else { Some(requests(args, &mut sides)?) };
    let name = |path: &Path| path.display().to_string();
    Ok(Report { old: name(&args.old), new: name(&args.new), changes, requests })
}

fn requests(args: &Diff, sides: &mut [Side; 2]) -> Result<Requests, String> {
    let selection = args.part.selection(sides);
    let Classified { requests, assigned, moves, .. } = classify(&args.logs, selection, sides)?;
    for (side, assigned) in sides.iter_mut().zip(&assigned) {
        add_discovered(side, &requests, assigned).map_err(said)?;
    }
    let recording =
        Recording::new(requests, &sides[0].site.policy, args.part.capacity, args.part.seed).map_err(said)?;
    let play = |which: usize| -> Result<Vec<Fate>, String> {
        let experiment = experiment(&sides[which], &recording, &assigned[which]);
        let played = play(&experiment, args.part.seed, |_| ()).map_err(said)?;
        Ok(fates(&recording, &assigned[which], &played.run))
    };
    let fates: [_; 2] = [play(0)?, play(1)?];
    Ok(Requests {
        all: recording.arrivals.len() as u64,
        moved: moves.map_or_else(Vec::new, |moves| moves.finish(sides)),
        decided: decisions(&recording, &sides[1], &assigned[1], &fates),
    })
}

impl Report {
    fn text(&self) -> String {
        let mut text = match self.changes.len() {
            0 => format!("{} and {} are the same policy\n", self.old, self.new),
            _ => self.changes.iter().map(|change| change.text.clone() + "\n").collect(),
        };
        if let Some(requests) = &self.requests {
            text.push('\n');
            requests.tell(&mut text);
        }
        text
    }
}

impl Requests {
    fn tell(&self, text: &mut String) {
        // Writing to a string does not fail.
        let share = |count: u64| format!("{count} ({:.1} %)", count as f64 * 100.0 / self.all.max(1) as f64);
        let moved: u64 = self.moved.iter().map(|one| one.requests).sum();
        let _ = writeln!(text, "of {} requests, {} change their class or upstream", self.all, share(moved));
        for Move { old_class, old_upstream, new_class, new_upstream, requests, examples } in
            self.moved.iter().take(MAX_LISTED)
        {
            let (mut from, mut to) = (old_class.clone(), new_class.clone());
            if old_upstream != new_upstream {
                (from, to) = (format!("{from} at {old_upstream}"), format!("{to} at {new_upstream}"));
            }
            let _ = writeln!(text, "  {requests} from {from} to {to}");
            examples.iter().for_each(|example| *text += &format!("    such as {example}\n"));
        }
        more(text, self.moved.len());
        let decided: u64 = self.decided.iter().map(|one| one.requests).sum();
        let _ = writeln!(text, "of {} requests, {} end differently in the simulation", self.all, share(decided));
        for Decision { class, old, new, requests, examples } in self.decided.iter().take(MAX_LISTED) {
            let _ =
                writeln!(text, "  {requests} of {class} were {old} and are {new}, such as at {}", examples.join(", "));
        }
        more(text, self.decided.len());
    }
}

fn more(text: &mut String, all: usize) {
    if all > MAX_LISTED {
        *text += &format!("  … and {} more kinds\n", all - MAX_LISTED);
    }
}
