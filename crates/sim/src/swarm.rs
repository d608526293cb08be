//! A swarm of seeded scenarios: random experiments whose guarantees fit by construction, played and judged.
//!
//! A seed names a scenario and its run, to the bit: whatever a swarm finds can be played again, read as a
//! file and changed. Scenarios are written as experiment files and loaded like those of people. The idea
//! is that of deterministic simulation testing and of swarm testing (Groce et al., *Swarm Testing*, ISSTA 2012): each
//! seed leaves out most difficulties and makes one of them extreme. Departure: what is varied is not only
//! the schedule but the whole setting, and the oracle is quantitative: guarantees instead of assertions.
//!
//! Two kinds of results: *violations* and panics mean that the engine or the simulator is wrong (safety),
//! *misses* mean that a discipline did not keep what it could have kept (its quality).

mod backlog;
mod draw;
mod everyday;
mod fair;
mod family;
mod figures;
mod ideas;
mod outcome;
mod resources;
mod rule;
mod sketch;
mod slots;
mod starved;
mod table;
mod tally;
mod yaml;

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use weirgate_config::Errors;
use weirgate_experiment::Experiment;
use weirgate_spanned_yaml::overrides::Override;

pub use family::{Family, Rotation};
pub use outcome::{Lapse, Missed, Outcome, assess, play};
pub use rule::{MOST_OWED, Reading, owed_share};
pub use tally::{Row, Tally};

use draw::Draw;

/// A random experiment whose guarantees fit.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its seed; a run of it takes the same.
    pub seed: u64,
    /// What it makes difficult.
    pub family: Family,
    /// The same, for people.
    pub about: String,
    /// The experiment file.
    pub yaml: String,
    /// The experiment.
    pub experiment: Experiment,
    /// Classes whose own service time is declared wrongly while others' are right: what they miss does not count.
    pub excused: Vec<String>,
}

/// The scenario that `seed` names.
///
/// # Panics
/// If the file that it writes cannot be loaded, which is a defect of the generator.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    match scenario_with(seed, &[]) {
        Ok(scenario) => scenario,
        Err(errors) => panic!("{errors}"),
    }
}

/// The scenario that `seed` names, with `overrides` in its file: another discipline, say.
///
/// # Errors
/// What is wrong with the overrides.
pub fn scenario_with(seed: u64, overrides: &[Override]) -> Result<Scenario, Errors> {
    scenario_of(Rotation::All.family_of(seed), seed, overrides)
}

/// The scenario of `family` that `seed` names, with `overrides` in its file.
///
/// # Errors
/// What is wrong with the overrides.
pub fn scenario_of(family: Family, seed: u64, overrides: &[Override]) -> Result<Scenario, Errors> {
    let mut draw = Draw::new(seed);
    let (yaml, about, excused) = match family {
        Family::Resources => {
            let (yaml, about) = resources::written(seed, &mut draw);
            (yaml, about, Vec::new())
        }
        family => sketched(family, seed, &mut draw),
    };
    let name = format!("swarm-{seed}.yaml");
    let experiment = weirgate_experiment::load_experiment(&name, &yaml, Path::new(""), overrides)?.experiment;
    Ok(Scenario { seed, family, about, yaml, experiment, excused })
}

/// The file of a scenario whose requests take CPU time, what it is about, and who is excused.
fn sketched(family: Family, seed: u64, draw: &mut Draw) -> (String, String, Vec<String>) {
    let sketch = ideas::sketch(family, draw);
    let figures = figures::figures(&sketch, draw);
    let yaml = yaml::yaml(seed, family, &sketch, &figures);
    let wrong = |class: &sketch::ClassSketch| class.declared.is_some_and(|declared| declared != 1.0);
    let excused = match sketch.at_true_cost || sketch.classes.iter().all(wrong) {
        // Wrong by the same factor for all, or the guarantees fit whatever was declared: everything is to hold.
        true => Vec::new(),
        false => (0..sketch.classes.len()).filter(|i| wrong(&sketch.classes[*i])).map(yaml::class_name).collect(),
    };
    (yaml, sketch.about, excused)
}

/// A campaign.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Which families take turns.
    pub rotation: Rotation,
    /// The first seed; the others follow it.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// What is changed in every scenario: the discipline, say.
    pub overrides: Vec<Override>,
    /// Threads; `None` is one per CPU.
    pub threads: Option<usize>,
}

impl Swarm {
    /// Plays them all. `on_result` is told each outcome as it comes, in no particular order.
    ///
    /// # Errors
    /// What is wrong with the overrides; nothing more is played then.
    pub fn play(&self, mut on_result: impl FnMut(&Outcome)) -> Result<Tally, Errors> {
        let threads = self.threads.or_else(|| thread::available_parallelism().ok().map(NonZero::get)).unwrap_or(1);
        let (next, (send, results)) = (AtomicU64::new(0), mpsc::channel());
        let mut tally = Tally::default();
        thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                let (send, next) = (send.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.count {
                            break;
                        }
                        let seed = self.first.wrapping_add(number);
                        let family = self.rotation.family_of(seed);
                        // Who does not listen any more does not want the rest.
                        if send.send(play(family, seed, &self.overrides)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(send);
            for outcome in results {
                let outcome = outcome?;
                on_result(&outcome);
                tally.add(&outcome);
            }
            Ok(tally)
        })
    }
}
