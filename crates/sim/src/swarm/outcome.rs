//! Plays and judges one scenario, and collects its misses.

use std::panic::catch_unwind;

use serde::Serialize;
use weirgate_config::Errors;
use weirgate_engine::LoadControl;
use weirgate_experiment::Run;
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::{ClassVerdict, Kind, Miss, PhaseVerdict, Verdict, ViolationFound, judge};

use super::fair::broken;
use super::family::Family;
use super::starved::starved;
use super::{Scenario, scenario_of};
use crate::run;

/// Largest allowed share of wrong sheds among the requests of classes within their guarantee.
const MAX_WRONG: f64 = 0.005;

/// A class is within its guarantee in a phase if at least this share of its requests is owed. Random
/// arrivals at nearly the guaranteed rate run out of tokens now and then.
const WITHIN: f64 = 0.98;

/// The outcome of one scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The family, which names the difficulty.
    pub family: Family,
    /// A description of the difficulty in words.
    pub about: String,
    /// Number of attempts that were played.
    pub requests: u64,
    /// Guarantees that were not held.
    pub misses: Vec<Missed>,
    /// Invariants that did not hold.
    pub violations: Vec<ViolationFound>,
    /// The message of the engine's or the simulator's panic.
    pub panic: Option<String>,
}

/// A promise that was not held.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missed {
    /// The kind of promise.
    pub kind: Lapse,
    /// The class with the promise.
    pub class: String,
    /// The phase in which it was missed.
    pub phase: String,
    /// The promised value: requests per second, milliseconds, the share of avoidable refusals or wrong
    /// sheds, or seconds at zero. If resources are managed: node-seconds of others before its turn,
    /// node-seconds by weight, or the share of machines in use.
    pub promised: f64,
    /// The value reached.
    pub got: f64,
    /// The relative size of the miss, 0 to 1.
    pub by: f64,
}

weirgate_engine::named! {
    /// A kind of miss.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Lapse {
        /// A throughput guarantee.
        Floor = "floor",
        /// A response-time guarantee of a class within its throughput.
        Ceiling = "ceiling",
        /// A response-time guarantee of a class that sends more, or costs more, than declared.
        CeilingBeyond = "ceiling beyond",
        /// Too many owed requests were refused or late although idle machines could have served them.
        Avoidable = "avoidable",
        /// More than 0.5 % of the requests of classes within their guarantee were shed.
        WrongSheds = "wrong sheds",
        /// A class got nothing for more than a second while no machine failed. If resources are managed, no
        /// class did.
        Starved = "starved",
        /// If resources are managed: too much work of other classes was released before a class's turn.
        Turns = "turns",
        /// If resources are managed: of the classes that wait all the time, one got less than its part by
        /// weight.
        Shares = "shares",
        /// If resources are managed: machines did too little while requests waited.
        Unused = "unused",
        /// A guarantee before its phase had settled. It does not count.
        Settling = "(settling)",
        /// Any of these, for a class that declares a wrong service time. It does not count.
        Excused = "(excused)",
    }
}

impl Lapse {
    /// Returns whether a miss of this kind counts.
    pub fn counts(self) -> bool {
        !matches!(self, Lapse::Settling | Lapse::Excused)
    }
}

impl Outcome {
    /// Returns the misses that count.
    pub fn lapses(&self) -> impl Iterator<Item = &Missed> {
        self.misses.iter().filter(|missed| missed.kind.counts())
    }

    /// Returns whether safety is broken: an invariant was violated, or the run panicked.
    pub fn is_unsafe(&self) -> bool {
        self.panic.is_some() || !self.violations.is_empty()
    }
}

/// Plays the scenario of `family` that `seed` names with `overrides` in its file, and judges it. A panic is
/// an outcome.
///
/// # Errors
/// Returns the errors in the overrides.
pub fn play(family: Family, seed: u64, overrides: &[Override]) -> Result<Outcome, Errors> {
    // No part of a scenario outlives its panic.
    let played = catch_unwind(|| scenario_of(family, seed, overrides).map(|scenario| play_scenario(&scenario)));
    played.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Ok(Outcome {
            seed,
            family,
            about: String::new(),
            requests: 0,
            misses: Vec::new(),
            violations: Vec::new(),
            panic: Some(text.unwrap_or("a panic without words").to_owned()),
        })
    })
}

fn play_scenario(scenario: &Scenario) -> Outcome {
    let run = run(&scenario.experiment, scenario.seed, |_| ());
    assess(scenario, &run, &judge(&scenario.experiment, &run))
}

/// Returns the outcome of a run of a scenario, given its verdict.
pub fn assess(scenario: &Scenario, run: &Run, verdict: &Verdict) -> Outcome {
    let load_control = &scenario.experiment.site.policy.discipline.load_control;
    let mut misses = match load_control {
        LoadControl::ResourceAvailability(_) => unshared(scenario, run, verdict),
        _ => unkept(scenario, run, verdict),
    };
    for missed in &mut misses {
        if scenario.excused.contains(&missed.class) && missed.kind.counts() {
            missed.kind = Lapse::Excused;
        }
    }
    Outcome {
        seed: verdict.seed,
        family: scenario.family,
        about: scenario.about.clone(),
        requests: run.records.len() as u64,
        misses,
        violations: verdict.violations.clone(),
        panic: None,
    }
}

/// Returns the guarantees that were not held.
fn unkept(scenario: &Scenario, run: &Run, verdict: &Verdict) -> Vec<Missed> {
    let mut misses: Vec<Missed> = verdict.misses().chain(verdict.settling_misses()).map(|miss| missed(&miss)).collect();
    misses.extend(verdict.phases.iter().filter(|phase| phase.judged).filter_map(|phase| wrong_sheds(scenario, phase)));
    for starved in starved(&scenario.experiment, run) {
        let phase = &verdict.phases[starved.phase];
        let (class, phase) = (phase.classes[starved.class].class.clone(), phase.name.clone());
        let (promised, got) = (1.0, starved.seconds);
        misses.push(Missed { kind: Lapse::Starved, class, phase, promised, got, by: 1.0 - promised / got });
    }
    misses
}

/// Returns the broken promises if resources are managed: turns and parts by weight, and no guarantees.
fn unshared(scenario: &Scenario, run: &Run, verdict: &Verdict) -> Vec<Missed> {
    let broken = broken(&scenario.experiment, run).into_iter();
    let missed = broken.map(|broken| {
        let phase = &verdict.phases[broken.phase];
        let (class, phase) = (phase.classes[broken.class].class.clone(), phase.name.clone());
        let (promised, got) = (broken.bound, broken.found);
        let by = if got > promised { 1.0 - promised / got } else { 1.0 - got / promised };
        Missed { kind: broken.kind, class, phase, promised, got, by }
    });
    missed.collect()
}

fn missed(miss: &Miss<'_>) -> Missed {
    let kind = match miss.kind {
        Kind::Floor => Lapse::Floor,
        Kind::Ceiling if is_within(miss.class) => Lapse::Ceiling,
        Kind::Ceiling => Lapse::CeilingBeyond,
        Kind::Avoidable => Lapse::Avoidable,
        Kind::Settling => Lapse::Settling,
    };
    let (class, phase) = (miss.class.class.clone(), miss.phase.name.clone());
    Missed { kind, class, phase, promised: miss.promised, got: miss.got, by: miss.by() }
}

fn is_within(class: &ClassVerdict) -> bool {
    class.part.floor.is_some_and(|floor| floor.owed_per_s >= WITHIN * class.part.offered_per_s)
}

/// Returns a miss if the classes within their guarantee have too many wrong sheds, all together. It names
/// the class with the highest number.
fn wrong_sheds(scenario: &Scenario, phase: &PhaseVerdict) -> Option<Missed> {
    let within = phase.classes.iter().filter(|class| is_within(class) && !scenario.excused.contains(&class.class));
    let within: Vec<&ClassVerdict> = within.collect();
    let wrong: u64 = within.iter().map(|class| class.part.shed.wrong).sum();
    let seconds = phase.to_s - phase.judged_from_s;
    let sent: f64 = within.iter().map(|class| class.part.offered_per_s * seconds).sum();
    let (got, promised) = (wrong as f64 / sent.max(1.0), MAX_WRONG);
    let max = within.iter().max_by_key(|class| class.part.shed.wrong)?;
    let (class, phase) = (max.class.clone(), phase.name.clone());
    (got > promised).then_some(Missed { kind: Lapse::WrongSheds, class, phase, promised, got, by: got })
}
