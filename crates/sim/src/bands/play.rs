//! One run for the bands: an experiment of this repository, a discipline, and the changes to the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use weirgate_experiment::{Experiment, Fate, Sample, load_experiment, under_discipline};
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::{Verdict, judge};

use crate::run;

/// The experiments. They are compiled into the program, so it needs no files.
const EXPERIMENTS: [(&str, &str); 21] = [
    ("mqos-cluster", include_str!("../../../../experiments/mqos-cluster.yaml")),
    ("mqos-guarantees", include_str!("../../../../experiments/mqos-guarantees.yaml")),
    ("mqos-latency", include_str!("../../../../experiments/mqos-latency.yaml")),
    ("mqos-sharing", include_str!("../../../../experiments/mqos-sharing.yaml")),
    ("mqos-throughput", include_str!("../../../../experiments/mqos-throughput.yaml")),
    ("mqos-utilisation", include_str!("../../../../experiments/mqos-utilisation.yaml")),
    ("quorum-fig10", include_str!("../../../../experiments/quorum-fig10.yaml")),
    ("quorum-fig11", include_str!("../../../../experiments/quorum-fig11.yaml")),
    ("quorum-fig13", include_str!("../../../../experiments/quorum-fig13.yaml")),
    ("quorum-fig9", include_str!("../../../../experiments/quorum-fig9.yaml")),
    ("quorum-infeasible", include_str!("../../../../experiments/quorum-infeasible.yaml")),
    ("quorum-table3", include_str!("../../../../experiments/quorum-table3.yaml")),
    ("reserves-balanced", include_str!("../../../../experiments/reserves-balanced.yaml")),
    ("reserves-geographic", include_str!("../../../../experiments/reserves-geographic.yaml")),
    ("reserves-lard3", include_str!("../../../../experiments/reserves-lard3.yaml")),
    ("reserves-sparse", include_str!("../../../../experiments/reserves-sparse.yaml")),
    ("reserves-table3", include_str!("../../../../experiments/reserves-table3.yaml")),
    ("seda-set1", include_str!("../../../../experiments/seda-set1.yaml")),
    ("seda-set2", include_str!("../../../../experiments/seda-set2.yaml")),
    ("web-switch-dynamic", include_str!("../../../../experiments/web-switch-dynamic.yaml")),
    ("web-switch-static", include_str!("../../../../experiments/web-switch-static.yaml")),
];

/// Data that an experiment may read in addition to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// The files in NASA's log of 1 August 1995, in place of a synthetic set of files.
    NasaLog,
}

/// The input of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Play {
    pub(super) experiment: &'static str,
    pub(super) discipline: &'static str,
    /// Changes as `PATH=VALUE`, as in `weirgate sim --set`.
    pub(super) changes: Vec<&'static str>,
    pub(super) data: Option<Data>,
}

/// The result of a run: its verdict, its samples, and the number of requests served per stream. The records
/// are dropped, because there are millions.
pub struct Played {
    pub(super) experiment: Experiment,
    pub(super) verdict: Verdict,
    pub(super) samples: Vec<Sample>,
    /// Number of requests served, per stream.
    pub(super) served: Vec<u64>,
}

impl Play {
    pub(super) fn of(experiment: &'static str, discipline: &'static str) -> Play {
        Play { experiment, discipline, changes: Vec::new(), data: None }
    }

    pub(super) fn with(self, changes: &[&'static str]) -> Play {
        Play { changes: self.changes.iter().chain(changes).copied().collect(), ..self }
    }

    pub(super) fn from(self, data: Data) -> Play {
        Play { data: Some(data), ..self }
    }

    /// Loads the experiment and applies the changes.
    ///
    /// # Panics
    /// Panics if it cannot be loaded.
    pub(super) fn load(&self) -> Experiment {
        let Some((_, text)) = EXPERIMENTS.iter().find(|(name, _)| *name == self.experiment) else {
            panic!("there is no experiment {}", self.experiment);
        };
        let discipline = match self.discipline {
            // Keep the discipline of the file.
            "" => None,
            name => Some(under_discipline(name)),
        };
        let changes = self.changes.iter().map(|text| match text.parse() {
            Ok(change) => change,
            Err(why) => panic!("{text}: {why}"),
        });
        let overrides: Vec<Override> = discipline.into_iter().chain(changes).collect();
        let name = format!("{}.yaml", self.experiment);
        match load_experiment(&name, text, Path::new(""), &overrides) {
            Ok(loaded) => loaded.experiment,
            Err(errors) => panic!("{self:?}: {errors}"),
        }
    }

    /// Plays the run with `seed`. An error says which data is missing.
    ///
    /// # Panics
    /// Panics if the experiment cannot be loaded, or if an invariant is violated.
    pub(super) fn played(&self, seed: u64) -> Result<Played, String> {
        let mut experiment = self.load();
        match self.data {
            None => {}
            Some(Data::NasaLog) => nasa_log(&mut experiment)?,
        }
        let run = run(&experiment, seed, |_| ());
        assert!(run.violations.is_empty(), "{self:?}, seed {seed}: {:?}", run.violations[0]);
        let mut served = vec![0; experiment.traffic.len()];
        for record in run.records.iter().filter(|record| record.fate == Fate::Served) {
            if let Some(count) = served.get_mut(record.traffic as usize) {
                *count += 1;
            }
        }
        let verdict = judge(&experiment, &run);
        Ok(Played { experiment, verdict, samples: run.samples, served })
    }
}

/// Returns the possible places of the log: next to the repository, seen from its folder or from one of its crates. No
/// path of the machine that built the program, so that the same source gives the same program everywhere.
fn nasa_log_places() -> [PathBuf; 2] {
    ["..", "../../.."].map(|folder| Path::new(folder).join("shared/data/nasa_19950801.tsv.gz"))
}

/// Replaces the files of the first stream by those of the log. The same share of them fits into a node's
/// memory as in the paper, 85 of 1,015 MB.
fn nasa_log(experiment: &mut Experiment) -> Result<(), String> {
    let places = nasa_log_places();
    let Some(file) = places.iter().find_map(|place| File::open(place).ok()) else {
        return Err("../shared/data/nasa_19950801.tsv.gz is not there".to_owned());
    };
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).map_err(|error| format!("{}: {error}", places[0].display()))?;
    let mut files: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    // The first row has the column names: logname, time, method, url, response, bytes, referer, useragent.
    for row in text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>()) {
        let [_, _, method, url, _, bytes, ..] = row.as_slice() else { continue };
        let bytes: u64 = bytes.parse().unwrap_or(0);
        if *method == "GET" && bytes > 0 {
            let file = files.entry(url).or_default();
            *file = (file.0.max(bytes), file.1 + 1);
        }
    }
    let mut files: Vec<(u64, u64)> = files.into_values().collect();
    files.sort_by_key(|(bytes, requests)| (std::cmp::Reverse(*requests), *bytes));
    let whole: u64 = files.iter().map(|(bytes, _)| bytes).sum();
    for machine in &mut experiment.machines {
        if let Some(disk) = &mut machine.disk {
            disk.cache = whole * 85 / 1015;
        }
    }
    if let Some(documents) = &mut experiment.traffic[0].documents {
        documents.counted = files;
    }
    Ok(())
}
