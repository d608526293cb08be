//! A campaign: one experiment under several approaches and several seeds, written to one run directory.
//!
//! The approaches take turns within each seed, so that a disturbance of the machine affects all of them
//! alike. The directory is written after every trial, so that an abort loses no finished trial.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use weirgate_experiment::{Experiment, compressed, load_experiment_file};
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::report::{Outline, Series};

use crate::evidence::clients;
use crate::gateways::{Approach, Source};
use crate::report::{self, Machine, RunFile, Trial as Entry};
use crate::trial::{Cpus, Outcome, Progress, Trial, play};

/// The plan of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The experiment file.
    pub file: PathBuf,
    /// Changes to the experiment file.
    pub overrides: Vec<Override>,
    /// Time compression: all instants of the experiment are divided by this factor.
    pub compression: f64,
    /// The approaches, in order.
    pub approaches: Vec<Approach>,
    /// The seeds, in order.
    pub seeds: Vec<u64>,
    /// The run directory.
    pub directory: PathBuf,
    /// Path of the `weirgate` program, for Weirgate's own approaches.
    pub program: PathBuf,
    /// The CPU of each process.
    pub cpus: Cpus,
    /// The command line, for the record.
    pub command: String,
    /// The date, for the record.
    pub date: String,
}

/// An event during a campaign.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A trial begins: its number counted from 0, the number of trials, its approach, and its seed.
    Begins(usize, usize, &'a Approach, u64),
    /// A trial is running.
    Goes(&'a Progress),
    /// A trial is over.
    Ends(&'a Entry),
    /// A trial could not be played, for this reason. The campaign goes on with the next one.
    Failed(&'a str),
}

impl Campaign {
    /// Returns the experiment with its time compressed.
    ///
    /// # Errors
    /// All errors of the file, or the experiment cannot be compressed by this factor.
    pub fn experiment(&self) -> Result<Experiment, String> {
        let loaded = load_experiment_file(&self.file, &self.overrides).map_err(|errors| errors.to_string())?;
        compressed(&loaded.experiment, self.compression).map_err(|why| format!("{}: {why}", self.file.display()))
    }

    /// Plays all trials that the directory does not have yet, and returns the run as it is written.
    ///
    /// # Errors
    /// The experiment is invalid, the directory has a run with another time compression, or it cannot be written. A
    /// trial that could not be played is noted in [`RunFile::notes`] and is no error.
    pub fn run(&self, mut watch: impl FnMut(Event<'_>)) -> Result<RunFile, String> {
        let experiment = self.experiment()?;
        let text = fs::read_to_string(&self.file).map_err(|error| format!("{}: {error}", self.file.display()))?;
        let new = RunFile {
            version: report::VERSION,
            date: self.date.clone(),
            command: self.command.clone(),
            machine: Machine::here(self.cpus.uses()).map_err(|error| format!("this machine: {error}"))?,
            time_compression: self.compression,
            notes: Vec::new(),
            experiment: Outline::new(&experiment),
            trials: Vec::new(),
            experiment_file: text,
            configuration: Vec::new(),
        };
        let mut run = match self.directory.join("run.json").exists() {
            // Trials that could not be played are played now.
            true => RunFile { notes: Vec::new(), ..report::read(&self.directory)? },
            false => new,
        };
        if run.time_compression != self.compression {
            return Err(format!(
                "{} has a run that is compressed {} times; name another directory",
                self.directory.display(),
                run.time_compression
            ));
        }
        let all = self.approaches.len() * self.seeds.len();
        let pairs = self.seeds.iter().flat_map(|seed| self.approaches.iter().map(move |approach| (approach, *seed)));
        for (number, (approach, seed)) in pairs.enumerate() {
            let name = approach.to_string();
            if run.trials.iter().any(|trial| trial.approach == name && trial.seed == seed) {
                continue;
            }
            watch(Event::Begins(number, all, approach, seed));
            match self.trial(&experiment, approach, seed, |progress| watch(Event::Goes(progress))) {
                Ok(entry) => {
                    watch(Event::Ends(&entry));
                    run.trials.push(entry);
                }
                Err(why) => {
                    watch(Event::Failed(&why));
                    run.notes.push(format!("{approach}, seed {seed}, was not played: {why}"));
                }
            }
            let read = report::configuration(&self.directory);
            run.configuration = read.map_err(|error| format!("{}: {error}", self.directory.display()))?;
            run = report::write(&self.directory, &run)?;
        }
        Ok(run)
    }

    /// Plays one trial. Only the configuration and logs of the last seed are kept, because those of the
    /// other seeds differ only in ports.
    pub(crate) fn trial(
        &self,
        experiment: &Experiment,
        approach: &Approach,
        seed: u64,
        mut watch: impl FnMut(&Progress),
    ) -> Result<Entry, String> {
        let directory = self.directory.join("config").join(folder(approach));
        let made = match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&directory),
        };
        made.map_err(|error| format!("{}: {error}", directory.display()))?;
        let (program, file, overrides) = (self.program.clone(), self.file.clone(), self.overrides.clone());
        let source = Source { program, file, overrides, detached: false };
        let name = approach.to_string();
        let (cpus, directory) = (self.cpus, &directory);
        let trial = Trial { experiment, approach, source: &source, seed, directory, cpus };
        let Outcome { run, verdict, version, evidence, latency, .. } = play(&trial, |progress, _| {
            watch(progress);
            ControlFlow::Continue(())
        })?;
        let series = Some(Series::new(experiment, &run));
        let clients = clients(experiment, &run.records);
        Ok(Entry { approach: name, version, seed, verdict, series, evidence, latency, clients, notes: Vec::new() })
    }
}

fn folder(approach: &Approach) -> String {
    approach.to_string().replace([':', ','], "-").replace('%', "pc")
}
