//! The runs of each variant of the discipline, and their results.

use std::error::Error;
use std::path::Path;

use weirgate_experiment::{Experiment, Fate, Run, load_experiment_file};
use weirgate_sim::{run, swarm};
use weirgate_verdict::{PhaseVerdict, Verdict, judge};

use crate::figures::Figures;

/// Start of the names of the published experiments. All other experiments are ours.
const PUBLISHED: &str = "quorum-";

/// Number of seeds of the swarm, from 0 on.
const SWARM: u64 = 100;

/// A class is within its guarantee in a phase if at least this share of its requests is owed, as in the
/// swarm.
const WITHIN: f64 = 0.98;

/// A group of runs with common totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The experiments of the paper.
    Published,
    /// Our own experiments.
    Ours,
    /// Random scenarios.
    Swarm,
}

impl Group {
    /// All groups, in the order of the columns.
    pub const ALL: [Group; 3] = [Group::Published, Group::Ours, Group::Swarm];
}

/// One run.
#[derive(Clone, Debug)]
pub enum Job {
    /// An experiment file and a seed.
    File(Group, Box<Experiment>, u64),
    /// A random scenario.
    Random(u64),
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Guarantees missed. For a random scenario, 1 if any was missed.
    pub misses: u64,
    /// Violations of invariants. Any number above 0 is a defect.
    pub violations: u64,
    /// CPU work of served requests, in seconds.
    pub work: f64,
    /// Mean response time in ms of every class in every judged phase. `None` if the class exceeds its
    /// guarantee there.
    pub within: Vec<Option<f64>>,
}

impl Job {
    /// Returns every experiment file in `folder`, the published ones with two seeds, and the swarm's first
    /// hundred.
    pub fn all(folder: &Path) -> Result<Vec<Job>, Box<dyn Error>> {
        let mut paths: Vec<_> =
            std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
        paths.sort();
        let mut jobs = Vec::new();
        for path in paths {
            let experiment = load_experiment_file(&path, &[]).map_err(|errors| errors.to_string())?.experiment;
            let (group, seeds) = match experiment.name.starts_with(PUBLISHED) {
                true => (Group::Published, 2),
                false => (Group::Ours, 1),
            };
            jobs.extend((1..=seeds).map(|seed| Job::File(group, Box::new(experiment.clone()), seed)));
        }
        jobs.extend((0..SWARM).map(Job::Random));
        Ok(jobs)
    }

    pub fn group(&self) -> Group {
        match self {
            Job::File(group, ..) => *group,
            Job::Random(_) => Group::Swarm,
        }
    }

    /// Plays the run with these figures.
    pub fn play(&self, figures: &Figures) -> Played {
        match self {
            Job::File(_, experiment, seed) => {
                let mut experiment = experiment.clone();
                experiment.site.policy.discipline = figures.discipline();
                let run = run(&experiment, *seed, |_| ());
                let verdict = judge(&experiment, &run);
                Played { misses: verdict.misses().count() as u64, ..kept(&run, &verdict) }
            }
            Job::Random(seed) => {
                let mut scenario = swarm::scenario(*seed);
                scenario.experiment.site.policy.discipline = figures.discipline();
                let run = run(&scenario.experiment, *seed, |_| ());
                let verdict = judge(&scenario.experiment, &run);
                let outcome = swarm::assess(&scenario, &run, &verdict);
                Played { misses: u64::from(outcome.lapses().next().is_some()), ..kept(&run, &verdict) }
            }
        }
    }
}

fn kept(run: &Run, verdict: &Verdict) -> Played {
    let served = run.records.iter().filter(|record| record.fate == Fate::Served);
    let judged = verdict.phases.iter().filter(|phase| phase.judged);
    Played {
        misses: 0,
        violations: verdict.violations.len() as u64,
        work: served.map(|record| f64::from(record.cpu)).sum(),
        within: judged.flat_map(within).collect(),
    }
}

fn within(phase: &PhaseVerdict) -> impl Iterator<Item = Option<f64>> + '_ {
    phase.classes.iter().map(|class| {
        let part = &class.part;
        let keeps = part.floor.is_some_and(|floor| floor.owed_per_s >= WITHIN * part.offered_per_s);
        part.response_ms.filter(|_| keeps).map(|times| times.mean)
    })
}
