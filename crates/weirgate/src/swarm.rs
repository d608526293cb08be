//! `weirgate sim --swarm N`: plays many seeded scenarios, and prints their misses and the command that
//! repeats one of them.

use std::process::ExitCode;

use weirgate_experiment::under_discipline;
use weirgate_sim::swarm::{Outcome, Rotation, Swarm, Tally, scenario_of};
use weirgate_spanned_yaml::overrides::Override;

use crate::bar::bar;
use crate::exit;

/// Maximum number of scenarios: half a year of computing.
const MAX: u64 = 100_000_000;

/// Random scenarios instead of files.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Play N random scenarios instead of files, with the seeds from `--seed` on. Their guarantees fit the
    /// cluster by construction.
    #[arg(long, value_name = "N", conflicts_with_all = ["files", "seeds", "output", "against"], value_parser = clap::value_parser!(u64).range(1..=MAX))]
    swarm: Option<u64>,
    /// Print the experiment file of random scenario SEED, to read and to change.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["files", "swarm"])]
    swarm_file: Option<u64>,
    /// Play every seed as a scenario of FAMILY, or let seeds take turns through the families of a group:
    /// `classic` or `everyday`. Only this option plays `shared-database`, and `resources`, the family for `mqos`,
    /// `mqos-drfq` and `sqos`.
    #[arg(long, value_name = "FAMILY", value_parser = rotation)]
    family: Option<Rotation>,
    /// With `--swarm`: a missed guarantee is a failure as well, not only a violated invariant.
    #[arg(long, requires = "swarm")]
    strict: bool,
    /// With `--swarm`: number of scenarios to play in parallel. By default one per CPU.
    #[arg(long, value_name = "N", requires = "swarm", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Returns the families with this name.
fn rotation(name: &str) -> Result<Rotation, String> {
    let names = || Rotation::names().collect::<Vec<_>>().join("`, `");
    Rotation::named(name).ok_or_else(|| format!("there are `{}`", names()))
}

/// The other arguments of the command.
pub(crate) struct Context<'a> {
    /// The first seed.
    pub(crate) seed: u64,
    /// The disciplines. If empty, the default one.
    pub(crate) disciplines: &'a [String],
    /// Changes to every scenario.
    pub(crate) sets: &'a [Override],
    /// Whether to print for programs.
    pub(crate) json: bool,
}

/// A swarm under one discipline.
struct Request<'a> {
    swarm: Swarm,
    discipline: Option<&'a str>,
    json: bool,
    strict: bool,
}

/// Runs the swarm, or prints a scenario's file. `None` if the arguments ask for neither. The code is 0 iff
/// no invariant was violated, and with `strict` iff no guarantee was missed either.
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

/// Plays a swarm and prints the result.
fn play(request: &Request<'_>) -> ExitCode {
    let bar = bar(request.swarm.count, "{pos}/{len} {wide_bar} {eta} left: {msg}");
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
        Err(errors) => return exit::cannot_as_told(&errors.to_string()),
    };
    let printed = match (request.json, only) {
        (true, Some(outcome)) => exit::print_json(&outcome),
        (true, None) => exit::print_json(&tally),
        (false, Some(outcome)) => exit::print(&one(&outcome)),
        (false, None) => exit::print(&all(&tally, request)),
    };
    let failed = !tally.unsafe_seeds.is_empty() || (request.strict && tally.misses() > 0);
    if failed { ExitCode::from(exit::NO) } else { printed }
}

/// Returns the option that names the families, if the swarm does not have all of them.
fn of_family(request: &Request<'_>) -> String {
    request.swarm.rotation.name().map_or(String::new(), |name| format!(" --family {name}"))
}

/// Returns the command that plays a seed again.
fn replay(seed: u64, request: &Request<'_>) -> String {
    let discipline = request.discipline.map_or(String::new(), |name| format!(" --discipline {name}"));
    format!("weirgate sim --swarm 1 --seed {seed}{}{discipline}", of_family(request))
}

/// Returns the message about a scenario with a violation or a panic.
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

/// Returns a report on one scenario with all its misses.
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

/// Returns the table and the commands for further study.
fn all(tally: &Tally, request: &Request<'_>) -> String {
    let mut text = request.discipline.map_or(String::new(), |name| format!("discipline {name}: "));
    text += &tally.to_string();
    if let Some(seed) = tally.unsafe_seeds.first() {
        text += &format!("\n{} scenarios are broken, first: {}\n", tally.unsafe_seeds.len(), replay(*seed, request));
    }
    if let Some(worst) = tally.worst.first() {
        let seed = worst.seed;
        text += &format!(
            "\nrepeat the worst: {}\nprint its file: weirgate sim --swarm-file {seed}{}\n",
            replay(seed, request),
            of_family(request)
        );
    }
    text
}
