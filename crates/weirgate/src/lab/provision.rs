//! `weirgate lab provision`: the number of CPUs that each approach needs to keep the guarantees.

use std::path::PathBuf;
use std::process::ExitCode;

use weirgate_lab::campaign::Campaign;
use weirgate_lab::gateways::Approach;
use weirgate_lab::provision::{Provision, Size, Step, provision, size};
use weirgate_lab::report;

use super::Played;
use crate::bar::bar;
use crate::exit;

/// Find the smallest cluster with which each approach keeps the guarantees of an experiment, by trials on
/// real processes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The experiment file (YAML).
    file: PathBuf,
    /// Approach to provision, `NAME` or `NAME:knob=value,...`. Repeatable.
    #[arg(long = "approach", value_name = "A", required = true, value_parser = Approach::parse)]
    approaches: Vec<Approach>,
    #[command(flatten)]
    played: Played,
    /// Directory of configuration and logs. By default below `lab-runs/`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    match all(args) {
        Ok(text) => exit::print(&text),
        Err(why) => exit::cannot(&why),
    }
}

fn all(args: &Args) -> Result<String, String> {
    let date = super::now();
    let stem = args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let directory =
        args.output.clone().unwrap_or_else(|| report::default_directory(&date, &format!("{stem}-provision")));
    let campaign = args.played.campaign(&args.file, args.approaches.clone(), directory, date)?;
    let present = size(&campaign.experiment()?);
    let mut text = format!("{}: {} now\n", args.file.display(), told(present));
    for approach in &args.approaches {
        let found = watched(&campaign, approach)?;
        let words = match &found {
            Provision { needed: None, missed } => {
                format!("four times as many do not suffice: {}", missed.as_deref().unwrap_or("nothing was missed"))
            }
            Provision { needed: Some(size), missed: None } => format!("{} suffice", told(*size)),
            Provision { needed: Some(size), missed: Some(what) } => {
                format!("{} suffice; with fewer, {what}", told(*size))
            }
        };
        text += &format!("  {approach}: {words}\n");
    }
    Ok(text)
}

fn told(size: Size) -> String {
    format!("{} CPUs in {} machines", size.cpus, size.machines)
}

fn watched(campaign: &Campaign, approach: &Approach) -> Result<Provision, String> {
    let bar = bar(1000, "{prefix} {percent:>3} % {wide_bar}");
    let found = provision(campaign, approach, |step| match step {
        Step::Tries(size) => bar.set_prefix(format!("{approach}, {}", told(size))),
        Step::Goes(progress) => {
            let share = progress.elapsed.as_secs_f64() / progress.length.as_secs_f64().max(f64::MIN_POSITIVE);
            bar.set_position((share * 1000.0) as u64);
        }
        Step::Ends(size, held) => bar.suspend(|| {
            let word = if held { "held" } else { "did not suffice" };
            exit::say(&format!("{approach}: {} {word}", told(size)));
        }),
    });
    bar.finish_and_clear();
    found
}
