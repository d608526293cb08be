//! Measures the sensitivity of verdicts to the constants of the judge.
//!
//! ```text
//! cargo run --release -p weirgate-sim --example judge -- 100 experiments/*.yaml
//! ```
//!
//! Plays the files, each under its own discipline and with seed 1, and the given number of scenarios of the
//! swarm, from seed 0 on. Judges every run with every constant at its value, halved and doubled. Prints a
//! table in Markdown: the number of broken runs, the number of runs with another result than at the
//! original constants (in both directions), and the misses by kind. The table is in
//! `docs/guide/simulator.md`.

use std::env;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use weirgate_experiment::{Experiment, Idle, IdleMeter, Run, load_experiment_file};
use weirgate_sim::{run_metered, swarm};
use weirgate_verdict::{Kind, Rules, Verdict, Word, judge_by};

/// Length of a tick in the runs, relative to the normal one. Half ticks can be joined to longer ones.
const HALF: f64 = 0.5;

/// The kinds of misses, in the order of the columns.
const KINDS: [(Kind, &str); 4] = [
    (Kind::Floor, "floors"),
    (Kind::Ceiling, "ceilings"),
    (Kind::Avoidable, "avoidable"),
    (Kind::Settling, "settling"),
];

/// A constant with another value.
struct Variant {
    name: &'static str,
    /// The factor on the constant.
    factor: f64,
    rules: Rules,
    /// The factor on the settling time.
    settle: f64,
    /// Number of half ticks in a tick.
    ticks: usize,
}

/// The results of a variant.
#[derive(Default)]
struct Found {
    /// Whether each run was broken.
    broken: Vec<bool>,
    misses: [usize; KINDS.len()],
}

fn main() -> ExitCode {
    match study() {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("judge: {error}");
            ExitCode::from(2)
        }
    }
}

fn study() -> Result<String, Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: judge SCENARIOS [FILE…]";
    let scenarios: u64 = arguments.next().ok_or(usage)?.parse().map_err(|_| usage)?;
    let variants = variants();
    let mut found: Vec<Found> = variants.iter().map(|_| Found::default()).collect();
    for path in arguments {
        let loaded = load_experiment_file(Path::new(&path), &[]).map_err(|errors| errors.to_string())?;
        judge_all(&loaded.experiment, 1, &variants, &mut found);
        eprintln!("{path}");
    }
    for seed in 0..scenarios {
        judge_all(&swarm::scenario(seed).experiment, seed, &variants, &mut found);
    }
    Ok(table(&variants, &found))
}

/// Returns every constant at its value, halved and doubled.
fn variants() -> Vec<Variant> {
    let same = Rules::default();
    let plain = |name, factor| Variant { name, factor, rules: same, settle: 1.0, ticks: 2 };
    let mut all = vec![plain("as they are", 1.0)];
    for factor in [0.5, 2.0] {
        let times = |time: Duration| time.mul_f64(factor);
        let missing = |share: f64| 1.0 - (1.0 - share) * factor;
        all.push(Variant { settle: factor, ..plain("`settle`, 5 s", factor) });
        let rules = [
            ("a floor's hundredth", Rules { enough: missing(same.enough), ..same }),
            ("a window's tenth", Rules { enough_in_a_window: missing(same.enough_in_a_window), ..same }),
            ("burst, 1 s", Rules { burst: times(same.burst), ..same }),
            ("avoidable, 0.1 %", Rules { max_avoidable: same.max_avoidable * factor, ..same }),
            ("windows, 2 s", Rules { window: times(same.window), ..same }),
            ("the beginning, 1 s", Rules { beginning: times(same.beginning), ..same }),
        ];
        all.extend(rules.map(|(name, rules)| Variant { rules, ..plain(name, factor) }));
        all.push(Variant { ticks: (2.0 * factor) as usize, ..plain("ticks, at most 100 ms", factor) });
    }
    all.sort_by(|a, b| a.name.cmp(b.name).then(a.factor.total_cmp(&b.factor)));
    all.sort_by_key(|variant| variant.name != "as they are");
    all
}

fn judge_all(experiment: &Experiment, seed: u64, variants: &[Variant], found: &mut [Found]) {
    let run = run_metered(experiment, seed, IdleMeter::new(experiment).with_ticks(HALF), |_| ());
    for (variant, found) in variants.iter().zip(found) {
        let settle = experiment.settle.mul_f64(variant.settle);
        let experiment = Experiment { settle, ..experiment.clone() };
        let run = Run { idle: idle(&run.idle, variant.ticks), ..run.clone() };
        found.add(&judge_by(&experiment, &run, &variant.rules));
    }
}

fn idle(idle: &Idle, ticks: usize) -> Idle {
    if ticks == 1 { idle.clone() } else { idle.merged(ticks) }
}

impl Found {
    fn add(&mut self, verdict: &Verdict) {
        self.broken.push(verdict.verdict == Word::Broken);
        for miss in verdict.misses().chain(verdict.settling_misses()) {
            if let Some(kind) = KINDS.iter().position(|(kind, _)| *kind == miss.kind) {
                self.misses[kind] += 1;
            }
        }
    }
}

fn table(variants: &[Variant], found: &[Found]) -> String {
    let head = KINDS.map(|(_, name)| name).join(" | ");
    let mut text =
        format!("| constant | × | runs broken | more | fewer | {head} |\n|---|---|---|---|---|---|---|---|---|\n");
    let Some(base) = found.first() else { return text };
    for (variant, found) in variants.iter().zip(found) {
        let pairs = || base.broken.iter().zip(&found.broken);
        let count = |before: bool, now: bool| pairs().filter(|pair| *pair == (&before, &now)).count();
        text += &format!(
            "| {} | {} | {} of {} | {} | {} | {} |\n",
            variant.name,
            variant.factor,
            found.broken.iter().filter(|broken| **broken).count(),
            found.broken.len(),
            count(false, true),
            count(true, false),
            found.misses.map(|count| count.to_string()).join(" | ")
        );
    }
    text
}
