//! `weirgate lab list`: experiments, approaches and services.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weirgate_experiment::{is_experiment, load_experiment_file};
use weirgate_lab::gateways::Approach;
use weirgate_lab::services;

use crate::exit;

/// List experiments, approaches with their knobs, and services.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with experiments.
    #[arg(long, value_name = "FOLDER", default_value = "experiments")]
    folder: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let experiments = match experiments(&args.folder) {
        Ok(experiments) => experiments,
        Err(why) => return exit::fail(&why),
    };
    let mut text = format!("Experiments in {}\n", args.folder.display());
    let width = experiments.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in &experiments {
        text += &format!("  {name:width$}  {about}\n");
    }
    text += "\nApproaches (--approach NAME or NAME:knob=value,...)\n";
    let width = Approach::all().iter().map(|kind| kind.name.len()).max().unwrap_or(0);
    for kind in Approach::all() {
        text += &format!("  {:width$}  {}{}\n", kind.name, kind.about, installed(kind.installed()));
        for knob in kind.knobs {
            text += &format!("  {:width$}    {}={}: {}\n", "", knob.name, knob.default, knob.about);
        }
    }
    text += "\nServices (a machine's `service:` in an experiment; `emulated` needs nothing)\n";
    let width = services::Kind::ALL.iter().map(|kind| kind.as_str().len()).max().unwrap_or(0);
    for kind in services::Kind::ALL {
        text += &format!("  {:width$}  {}{}\n", kind.as_str(), kind.description(), installed(kind.check()));
    }
    exit::print(&text)
}

fn installed(check: Result<(), String>) -> &'static str {
    if check.is_ok() { "" } else { "  [not installed: weirgate lab install]" }
}

fn experiments(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let cannot = |error: std::io::Error| format!("{}: {error}; name the folder with --folder", folder.display());
    let entries = std::fs::read_dir(folder).map_err(cannot)?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(cannot)?.path();
        let text = match path.extension() {
            Some(ending) if ending == "yaml" => std::fs::read_to_string(&path).unwrap_or_default(),
            _ => continue,
        };
        if is_experiment(&text) {
            let title = match load_experiment_file(&path, &[]) {
                Ok(loaded) => loaded.experiment.title,
                Err(_) => "has errors: `weirgate check` shows them".to_owned(),
            };
            found.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), title));
        }
    }
    found.sort();
    Ok(found)
}
