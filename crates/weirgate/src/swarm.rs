//! `weirgate sim --swarm N`: many seeded scenarios, what they miss, and how to play one of them again.

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use weirgate_experiment::under_discipline;
use weirgate_sim::swarm::{Outcome, Rotation, Swarm, Tally, scenario_of};
use weirgate_spanned_yaml::overrides::Override;

use crate::exit;
use crate::sim::CANNOT;

/// More scenarios than anybody waits for: half a year.
const MOST: u64 = 100_000_000;

/// Random scenarios instead of files.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Play N random scenarios instead of files, with the seeds from `--seed` on. Their guarantees fit the cluster
    /// by construction.
    #[arg(long, value_name = "N", conflicts_with_all = ["files", "seeds", "output", "against"], value_parser = clap::value_parser!(u64).range(1..=MOST))]
    swarm: Option<u64>,
    /// Print the experiment file of random scenario SEED, to read and to change.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["files", "swarm"])]
    swarm_file: Option<u64>,
    /// Play every seed as a scenario of FAMILY, or let seeds take turns through the families of a group: `classic` or
    /// `everyday`. `resources`, which `mqos`, `mqos-drfq` and `sqos` can play, is played so alone.
    #[arg(long, value_name = "FAMILY", value_parser = rotation)]
    family: Option<Rotation>,
    /// With `--swarm`: a missed guarantee is a failure as well, not only a broken invariant.
    #[arg(long, requires = "swarm")]
    strict: bool,
    /// With `--swarm`: play so many at a time. One per CPU by default.
    #[arg(long, value_name = "N", requires = "swarm", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// The families of this name.
fn rotation(name: &str) -> Result<Rotation, String> {
    let names = || Rotation::names().collect::<Vec<_>>().join("`, `");
    Rotation::named(name).ok_or_else(|| format!("there are `{}`", names()))
}

/// What the other arguments of the command say.
pub(crate) struct Context<'a> {
    /// The first seed.
    pub(crate) seed: u64,
    /// Disciplines; none is the default one.
    pub(crate) disciplines: &'a [String],
    /// What is changed in every scenario.
    pub(crate) sets: &'a [Override],
    /// Print for programs.
    pub(crate) json: bool,
}

/// A swarm under one discipline.
struct Request<'a> {
    swarm: Swarm,
    discipline: Option<&'a str>,
    json: bool,
    strict: bool,
}

/// Runs what is asked for here; `None` if that is nothing. 0 iff nothing is broken, and with `strict` iff nothing was
/// missed either.
pub(crate) fn run(args: &Args, context: &Context<'_>) -> Option<ExitCode> {
    let rotation = args.family.unwrap_or(Rotation::All);
    if let Some(seed) = args.swarm_file {
        return Some(match scenario_of(rotation.family_of(seed), seed, &[]) {
            Ok(scenario) => exit::print(&scenario.yaml),
            Err(errors) => exit::fail(&errors.to_string()),
        });
    }
    let count = args.swarm?;
    let disciplines: Vec<Option<&str>> = match context.disciplines {
        [] => vec![None],
        some => some.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut worst = ExitCode::SUCCESS;
    for discipline in disciplines {
        let discipline_first = discipline.map(under_discipline).into_iter();
        let overrides = discipline_first.chain(context.sets.iter().cloned()).collect();
        let threads = args.threads.map(usize::from);
        let swarm = Swarm { rotation, first: context.seed, count, overrides, threads };
        let code = play(&Request { swarm, discipline, json: context.json, strict: args.strict });
        if code != ExitCode::SUCCESS {
            worst = code;
        }
    }
    Some(worst)
}

/// Plays a swarm and prints what it found.
fn play(request: &Request<'_>) -> ExitCode {
    let bar = ProgressBar::new(request.swarm.count);
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {wide_bar} {eta} left: {msg}") {
        bar.set_style(style);
    }
    bar.set_message("nothing missed yet");
    let (mut misses, mut runs, mut broken) = (0, 0, 0);
    let mut only = None;
    let tally = request.swarm.play(|outcome| {
        let lapses = outcome.lapses().count();
        misses += lapses;
        runs += usize::from(lapses > 0);
        broken += usize::from(outcome.is_unsafe());
        if outcome.is_unsafe() {
            bar.suspend(|| exit::tell(&accident(outcome, request)));
        }
        bar.set_message(format!("{misses} misses in {runs} of them, {broken} broken"));
        bar.inc(1);
        if request.swarm.count == 1 {
            only = Some(outcome.clone());
        }
    });
    bar.finish_and_clear();
    let tally = match tally {
        Ok(tally) => tally,
        Err(errors) => {
            exit::tell(&errors.to_string());
            return ExitCode::from(CANNOT);
        }
    };
    let text = match (request.json, only) {
        (true, Some(outcome)) => json(&outcome),
        (true, None) => json(&tally),
        (false, Some(outcome)) => Ok(one(&outcome)),
        (false, None) => Ok(all(&tally, request)),
    };
    let printed = match text {
        Ok(text) => exit::print(&text),
        Err(error) => exit::fail(&error.to_string()),
    };
    let failed = !tally.unsafe_seeds.is_empty() || (request.strict && tally.misses() > 0);
    if failed { ExitCode::from(exit::NO) } else { printed }
}

fn json(value: &impl serde::Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n")
}

/// The option that names the families, if it is not all of them.
fn of_family(request: &Request<'_>) -> String {
    request.swarm.rotation.name().map_or(String::new(), |name| format!(" --family {name}"))
}

/// The command that plays a seed again.
fn replay(seed: u64, request: &Request<'_>) -> String {
    let discipline = request.discipline.map_or(String::new(), |name| format!(" --discipline {name}"));
    format!("weirgate sim --swarm 1 --seed {seed}{}{discipline}", of_family(request))
}

/// What is said at once about a scenario in which something is broken.
fn accident(outcome: &Outcome, request: &Request<'_>) -> String {
    let what = match (&outcome.panic, outcome.violations.first()) {
        (Some(panic), _) => format!("panic: {panic}"),
        (None, Some(violation)) => format!("{:.6} s: {}: {}", violation.at_s, violation.invariant, violation.what),
        (None, None) => String::new(),
    };
    format!(
        "weirgate: seed {} ({}) is broken: {what}\n  {}\n",
        outcome.seed,
        outcome.family,
        replay(outcome.seed, request)
    )
}

/// One scenario, with everything that it missed.
fn one(outcome: &Outcome) -> String {
    let mut text = format!("{} {}: {}\n{} requests\n", outcome.seed, outcome.family, outcome.about, outcome.requests);
    for missed in &outcome.misses {
        text += &format!("  {missed}\n");
    }
    for violation in &outcome.violations {
        text += &format!("  violation at {:.6} s: {}: {}\n", violation.at_s, violation.invariant, violation.what);
    }
    if outcome.misses.is_empty() && !outcome.is_unsafe() {
        text += "  every guarantee held\n";
    }
    text
}

/// The table, and how to go on from it.
fn all(tally: &Tally, request: &Request<'_>) -> String {
    let mut text = request.discipline.map_or(String::new(), |name| format!("discipline {name}: "));
    text += &tally.to_string();
    if let Some(seed) = tally.unsafe_seeds.first() {
        text += &format!(
            "\n{} scenarios are broken, the first one: {}\n",
            tally.unsafe_seeds.len(),
            replay(*seed, request)
        );
    }
    if let Some(worst) = tally.worst.first() {
        let seed = worst.seed;
        text += &format!(
            "\nplay the worst again: {}\nread it: weirgate sim --swarm-file {seed}{}\n",
            replay(seed, request),
            of_family(request)
        );
    }
    text
}
