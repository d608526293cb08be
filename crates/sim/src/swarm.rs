//! A swarm of seeded scenarios: random experiments with guarantees that fit by construction, played and
//! judged.
//!
//! A seed names a scenario and its run, to the bit. You can play every finding of a swarm again, read it as
//! a file and change it. Scenarios are written as experiment files and loaded like hand-written ones. The
//! idea is that of deterministic simulation testing and of swarm testing (Groce et al., *Swarm Testing*,
//! ISSTA 2012): each seed leaves out most difficulties and makes one of them extreme. Departure: the swarm
//! varies not only the schedule but the whole setting, and the oracle is quantitative: guarantees instead
//! of assertions.
//!
//! There are two kinds of results. *Violations* and panics mean that the engine or the simulator is wrong
//! (safety). *Misses* mean that a discipline did not keep a guarantee that it could have kept (quality).

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

use std::ops::ControlFlow;
use std::path::Path;

use weirgate_config::Errors;
use weirgate_experiment::Experiment;
use weirgate_spanned_yaml::overrides::Override;

pub use family::{Family, Rotation};
pub use outcome::{Lapse, Missed, Outcome, assess, play};
pub use rule::{MAX_OWED, Reading, owed_share};
pub use tally::{Row, Tally};

use crate::parallel::for_each_job;
use draw::Draw;

/// A random experiment with guarantees that fit.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its seed. A run of the scenario takes the same seed.
    pub seed: u64,
    /// The difficulty that the scenario tests.
    pub family: Family,
    /// A description of the difficulty in words.
    pub about: String,
    /// The experiment file.
    pub yaml: String,
    /// The experiment.
    pub experiment: Experiment,
    /// Classes that declare a wrong service time while other classes declare theirs correctly. Their misses
    /// do not count.
    pub excused: Vec<String>,
}

/// Returns the scenario that `seed` names.
///
/// # Panics
/// Panics if the generated file cannot be loaded, which is a defect of the generator.
pub fn scenario(seed: u64) -> Scenario {
    match scenario_of(Rotation::All.family_of(seed), seed, &[]) {
        Ok(scenario) => scenario,
        Err(errors) => panic!("{errors}"),
    }
}

/// Returns the scenario of `family` that `seed` names, with `overrides` in its file, such as another discipline.
///
/// # Errors
/// Returns the errors in the overrides.
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

/// Returns the file of a scenario with CPU demands, its description, and the classes that are excused.
fn sketched(family: Family, seed: u64, draw: &mut Draw) -> (String, String, Vec<String>) {
    let sketch = ideas::sketch(family, draw);
    let figures = figures::figures(&sketch, draw);
    let yaml = yaml::yaml(seed, family, &sketch, &figures);
    let wrong = |class: &sketch::ClassSketch| class.declared.is_some_and(|declared| declared != 1.0);
    let excused = match sketch.at_true_cost || sketch.classes.iter().all(wrong) {
        // If all classes are wrong by the same factor, or the guarantees fit at the true cost, everything
        // must hold.
        true => Vec::new(),
        false => (0..sketch.classes.len()).filter(|i| wrong(&sketch.classes[*i])).map(yaml::class_name).collect(),
    };
    (yaml, sketch.about, excused)
}

/// A campaign of scenarios.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The families that take turns.
    pub rotation: Rotation,
    /// The first seed. The others follow it.
    pub first: u64,
    /// Number of scenarios.
    pub count: u64,
    /// Changes to every scenario, such as another discipline.
    pub overrides: Vec<Override>,
    /// Number of threads. `None` is one per CPU.
    pub threads: Option<usize>,
}

impl Swarm {
    /// Plays all scenarios. Calls `on_result` with each outcome as it comes, in no particular order.
    ///
    /// # Errors
    /// Returns the errors in the overrides. Plays no further scenario then.
    pub fn play(&self, mut on_result: impl FnMut(&Outcome)) -> Result<Tally, Errors> {
        let mut tally = Tally::default();
        let mut errors = None;
        let play = |number: usize| {
            let seed = self.first.wrapping_add(number as u64);
            play(self.rotation.family_of(seed), seed, &self.overrides)
        };
        for_each_job(self.count as usize, self.threads, play, |_, outcome| match outcome {
            Ok(outcome) => {
                on_result(&outcome);
                tally.add(&outcome);
                ControlFlow::Continue(())
            }
            Err(found) => {
                errors = Some(found);
                ControlFlow::Break(())
            }
        });
        errors.map_or(Ok(tally), Err)
    }
}
