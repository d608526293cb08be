//! A campaign: one experiment under several approaches, with several seeds, into one run directory.
//!
//! Approaches take turns within each seed, so that what the machine does to one it does to its neighbours
//! too. The directory is written after every trial: what was measured is there, whatever happens next.

use std::fs;
use std::path::PathBuf;

use weirgate_experiment::{Experiment, compressed, load_experiment_file};
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::report::{Outline, Series};

use crate::gateways::{Approach, Source};
use crate::report::{self, Machine, RunFile, Trial as Entry};
use crate::trial::{Cpus, Outcome, Progress, Trial, play};

/// What is played.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The experiment file.
    pub file: PathBuf,
    /// Changes to it.
    pub overrides: Vec<Override>,
    /// All its instants are divided by this.
    pub compression: f64,
    /// Which approaches, in order.
    pub approaches: Vec<Approach>,
    /// With which seeds, in order.
    pub seeds: Vec<u64>,
    /// Where results go.
    pub directory: PathBuf,
    /// The command `weirgate`, for its own approaches.
    pub program: PathBuf,
    /// Who runs on which CPU.
    pub cpus: Cpus,
    /// The command line, for the record.
    pub command: String,
    /// The date, for the record.
    pub date: String,
}

/// What happens while a campaign runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A trial begins: its number from 0 on, of how many, whose, with which seed.
    Begins(usize, usize, &'a Approach, u64),
    /// A trial is under way.
    Goes(&'a Progress),
    /// A trial is over.
    Ends(&'a Entry),
    /// A trial could not be played, with the reason. The next one begins.
    Failed(&'a str),
}

impl Campaign {
    /// The experiment, compressed.
    ///
    /// # Errors
    /// All errors of the file; or it cannot be compressed so much.
    pub fn experiment(&self) -> Result<Experiment, String> {
        let loaded = load_experiment_file(&self.file, &self.overrides).map_err(|errors| errors.to_string())?;
        compressed(&loaded.experiment, self.compression).map_err(|why| format!("{}: {why}", self.file.display()))
    }

    /// Plays everything; the run as it is written.
    ///
    /// # Errors
    /// The experiment is not sound, or the directory cannot be written. A trial that could not be played is noted in
    /// [`RunFile::notes`].
    pub fn run(&self, mut watch: impl FnMut(Event<'_>)) -> Result<RunFile, String> {
        let experiment = self.experiment()?;
        let text = fs::read_to_string(&self.file).map_err(|error| format!("{}: {error}", self.file.display()))?;
        let mut run = RunFile {
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
        let all = self.approaches.len() * self.seeds.len();
        let pairs = self.seeds.iter().flat_map(|seed| self.approaches.iter().map(move |approach| (approach, *seed)));
        for (number, (approach, seed)) in pairs.enumerate() {
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

    /// One trial. Configuration and logs of the last seed are kept; those of the others are the same but for ports.
    pub(crate) fn trial(
        &self,
        experiment: &Experiment,
        approach: &Approach,
        seed: u64,
        watch: impl FnMut(&Progress),
    ) -> Result<Entry, String> {
        let directory = self.directory.join("config").join(folder(approach));
        let made = match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&directory),
        };
        made.map_err(|error| format!("{}: {error}", directory.display()))?;
        let source =
            Source { program: self.program.clone(), file: self.file.clone(), overrides: self.overrides.clone() };
        let name = approach.to_string();
        let trial = Trial { experiment, approach, source: &source, seed, directory: &directory, cpus: self.cpus };
        let Outcome { run, verdict, version, evidence, latency } = play(&trial, watch)?;
        let series = Some(Series::new(experiment, &run));
        Ok(Entry { approach: name, version, seed, verdict, series, evidence, latency, notes: Vec::new() })
    }
}

/// The approach as the name of a folder.
fn folder(approach: &Approach) -> String {
    approach.to_string().replace([':', ','], "-").replace('%', "pc")
}
