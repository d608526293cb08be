//! Figures from stored runs of the lab instead of the simulator.
//!
//! A run of the lab (`weirgate lab run`) writes `run.json`, with a verdict of the same judge for every approach and
//! seed. A stored trial is one of a [`Play`] if the experiment has the same name, the approach is the discipline, and
//! the command line had the same changes (`--set`). So a figure is read by the declaration that the simulator has, and
//! is held to the same band. A trial has no samples and no records, so the few
//! figures that need them are left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use weirgate_verdict::Verdict;

use super::play::{Play, Played};
use super::{Figure, Found, Table};

/// Folders below the given one in which runs are looked for: a campaign, and the runs in it.
const DEPTH: usize = 3;

/// The stored runs below a folder.
pub struct Stored {
    runs: Vec<Run>,
}

/// One `run.json`.
struct Run {
    /// Its folder, relative to the one that was read.
    folder: String,
    file: File,
}

/// The parts of `run.json` that figures need. The lab's own type has all of them.
#[derive(Deserialize)]
struct File {
    command: String,
    experiment: Outline,
    trials: Vec<Trial>,
}

#[derive(Deserialize)]
struct Outline {
    name: String,
}

#[derive(Deserialize)]
struct Trial {
    approach: String,
    seed: u64,
    verdict: Verdict,
}

/// A trial, and the folder of its run.
struct Of<'a> {
    folder: &'a str,
    trial: &'a Trial,
}

impl Stored {
    /// Reads every `run.json` of the lab below `folder`.
    ///
    /// # Errors
    /// Returns an error that names the file or folder that cannot be read, or says that there is no run.
    pub fn read(folder: &Path) -> Result<Stored, String> {
        let mut files = Vec::new();
        find(folder, DEPTH, &mut files)?;
        files.sort_unstable();
        let mut runs = Vec::new();
        for path in files {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let value: serde_json::Value =
                serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
            // Other programs of the lab write a file of this name too, for example that of Cluster Reserves.
            if value.get("trials").is_none() {
                continue;
            }
            let file = serde_json::from_value(value).map_err(|e| format!("{}: {e}", path.display()))?;
            let within = path.parent().and_then(|parent| parent.strip_prefix(folder).ok()).unwrap_or(Path::new(""));
            runs.push(Run { folder: within.display().to_string(), file });
        }
        if runs.is_empty() {
            return Err(format!("{}: no run of `weirgate lab run` is in it", folder.display()));
        }
        Ok(Stored { runs })
    }

    /// Reads those of `figures` that the runs have. Also returns the commands that would make the runs of the others.
    ///
    /// # Panics
    /// Panics if an experiment of this repository cannot be loaded with a declaration's changes, which is a defect of
    /// the declaration.
    pub fn measure(&self, figures: Vec<Figure>) -> (Table, BTreeSet<String>) {
        let (mut table, mut missing) =
            (Table { figures: Vec::new(), found: Vec::new(), raw: Some(Vec::new()) }, BTreeSet::new());
        for figure in figures {
            match self.found(&figure) {
                Ok((found, folders)) => {
                    table.figures.push(figure);
                    table.found.push(found);
                    table.raw.get_or_insert_default().push(folders);
                }
                Err(play) => missing.extend(play.map(command)),
            }
        }
        (table, missing)
    }

    /// Returns the figure for each seed of which every run that it needs is stored, and the folders of these runs. An
    /// error has the run that is missing, or nothing if no run of the lab has the figure.
    fn found<'a>(&self, figure: &'a Figure) -> Result<(Found, Vec<String>), Option<&'a Play>> {
        let (first, others) = figure.plays.split_first().ok_or(None)?;
        let mut missing = first;
        let (mut figures, mut folders) = (Vec::new(), BTreeSet::new());
        'trials: for trial in self.of(first) {
            let mut trials = vec![trial];
            for other in others {
                let Some(same) = self.of(other).find(|other| other.trial.seed == trials[0].trial.seed) else {
                    missing = other;
                    continue 'trials;
                };
                trials.push(same);
            }
            let played: Vec<Played> = figure.plays.iter().zip(&trials).map(|(play, of)| of.played(play)).collect();
            figures.push(Some((figure.reading)(&played.iter().collect::<Vec<&Played>>()).ok_or(None)?));
            folders.extend(trials.iter().map(|of| of.folder.to_owned()));
        }
        let makes_one = missing.data.is_none() && !missing.discipline.is_empty();
        if figures.is_empty() {
            Err(makes_one.then_some(missing))
        } else {
            Ok((Found::Figures(figures), folders.into_iter().collect()))
        }
    }

    /// Returns the trials of a play. A play with data of its own has none, because the lab has no such data.
    fn of<'a>(&'a self, play: &'a Play) -> impl Iterator<Item = Of<'a>> {
        let changes: BTreeSet<&str> = play.changes.iter().copied().collect();
        let runs = self.runs.iter().filter(move |run| {
            play.data.is_none() && run.file.experiment.name == play.experiment && changed(&run.file.command) == changes
        });
        runs.flat_map(|run| {
            let trials = run.file.trials.iter().filter(|trial| trial.approach == play.discipline);
            trials.map(|trial| Of { folder: &run.folder, trial })
        })
    }
}

impl Of<'_> {
    fn played(&self, play: &Play) -> Played {
        let (samples, served) = (Vec::new(), Vec::new());
        Played { experiment: play.load(), verdict: self.trial.verdict.clone(), samples, served }
    }
}

/// Returns the changes (`--set`) of a command line.
fn changed(command: &str) -> BTreeSet<&str> {
    let mut changes = BTreeSet::new();
    let mut words = command.split_whitespace();
    while let Some(word) = words.next() {
        let change = if word == "--set" { words.next() } else { word.strip_prefix("--set=") };
        changes.extend(change.map(|change| change.trim_matches('\'')));
    }
    changes
}

/// Returns the command that stores a trial of a play.
fn command(play: &Play) -> String {
    let mut words = format!("weirgate lab run experiments/{}.yaml --approach {}", play.experiment, play.discipline);
    for change in &play.changes {
        words += &format!(" --set '{change}'");
    }
    words
}

/// Collects the files `run.json` in `folder` and in folders of it, `depth` levels down.
fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let told = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        if path.is_dir() && depth > 0 {
            find(&path, depth - 1, files)?;
        } else if path.file_name().is_some_and(|name| name == "run.json") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Source, figures};
    use super::*;

    /// A folder with the run of a simulated verdict, as the lab would write it.
    fn folder(command: &str) -> tempfile::TempDir {
        let played =
            Play::of("quorum-fig9", "quorum").with(super::super::quorum::TRUE_TIMES).played(3).expect("played");
        let trial = serde_json::json!({ "approach": "quorum", "seed": 3, "verdict": played.verdict });
        let run = serde_json::json!({
            "command": command, "experiment": { "name": "quorum-fig9" }, "trials": [trial], "other": 1,
        });
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("campaign/fig9")).expect("made");
        fs::write(folder.path().join("campaign/fig9/run.json"), run.to_string()).expect("written");
        fs::write(folder.path().join("campaign/run.json"), "[{}]").expect("a run of another kind");
        folder
    }

    fn fig9() -> Vec<Figure> {
        let wanted =
            |figure: &Figure| (figure.paper, figure.figure) == ("Quorum", "Fig. 9") && figure.source != Source::Target;
        figures().into_iter().filter(wanted).collect()
    }

    #[test]
    fn a_stored_run_gives_the_figures_of_its_play() {
        let folder =
            folder("weirgate lab run experiments/quorum-fig9.yaml --set 'policy.classes.*.service_time=8.57ms'");
        let (table, missing) = Stored::read(folder.path()).expect("runs").measure(fig9());
        assert_eq!((table.counts(), missing.len()), ((3, 0, 0), 0), "{table}");
        let text = table.to_string();
        assert!(text.contains("campaign/fig9"), "{text}");
    }

    #[test]
    fn a_run_with_other_changes_is_not_one_of_the_play() {
        for command in ["weirgate lab run experiments/quorum-fig9.yaml", "weirgate lab run x --set=settle=2s"] {
            let folder = folder(command);
            let (table, missing) = Stored::read(folder.path()).expect("runs").measure(fig9());
            assert_eq!(table.counts(), (0, 0, 0), "{table}");
            let asked = "weirgate lab run experiments/quorum-fig9.yaml --approach quorum \
                         --set 'policy.classes.*.service_time=8.57ms'";
            assert_eq!(missing.into_iter().collect::<Vec<String>>(), [asked]);
        }
    }

    #[test]
    fn a_folder_without_runs_and_a_broken_run_are_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = |folder: &Path| Stored::read(folder).err().expect("an error");
        assert!(error(folder.path()).ends_with("no run of `weirgate lab run` is in it"));
        assert!(error(&folder.path().join("none")).contains("No such file"));
        fs::write(folder.path().join("run.json"), "{\"trials\": 3}").expect("written");
        assert!(error(folder.path()).contains("run.json: "));
    }
}
