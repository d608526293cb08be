//! `weirgate lab real`: the campaign on real servers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use weirgate_lab::gateways::Approach;
use weirgate_lab::report::{self, RunFile};

use super::{CANNOT, Played, play};
use crate::exit;

/// The experiments of the campaign with the approaches of each, and the settings of peers that differ from their
/// defaults. Every peer is set up as someone would who knows it and the application: with the classes, and with a limit
/// per address where crawlers come.
const CAMPAIGN: [(&str, &[&str]); 6] = [
    ("day-mediawiki", USUAL),
    (
        "siege-mediawiki",
        // The policy declares no cost, so the peers are told numbers: eight PHP processes in each of two servers, some
        // of them for readers alone.
        &[
            "weirgate",
            "none",
            "haproxy-leastconn:source=1",
            "haproxy-tuned:maxconn=4,source=1",
            "haproxy-classes:maxconn=4,rest=1,source=1",
            "nginx:source=1,rate=off,conn=8,rest=2,max_conns=workers",
            "envoy-classes:requests=4,rest=1,source=1",
        ],
    ),
    ("real-servers", USUAL),
    ("search", USUAL),
    ("everyday-sockets/slow-dependency-apache", USUAL),
    ("everyday-sockets/expensive-tenant-apache", USUAL),
];

/// Approaches in their default settings, which docs/guide/peers.md explains.
const USUAL: &[&str] = &[
    "weirgate", "none", "haproxy-leastconn", "haproxy-tuned", "haproxy-classes", "nginx", "envoy-adaptive",
    "envoy-classes",
];

/// Play the campaign on real servers: MediaWiki, Apache with PHP and Xapian behind Weirgate and its peers.
///
/// Six experiments under six to eight approaches with five seeds take most of a day. What has been played stays: give
/// the same `--output` again to go on where a campaign has ended, or to play more of it. Peers and services that are
/// not installed are left out, and named.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate lab install
  weirgate lab real --output lab-runs/real
  weirgate lab real --only siege-mediawiki --seeds 1 --compress 4   # a first look, in five minutes
  weirgate lab real --output lab-runs/real --print > real.md        # the table again

Exit codes:
  0  Weirgate held every guarantee that can be held, and no request was lost or doubled
  1  a guarantee was missed, or requests were lost or doubled
  2  something could not be played: standard error says why and how to fix it")]
pub(super) struct Args {
    /// Play with the seeds 1 to N.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Only these experiments, by the names of their files. Repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Folder with the experiments.
    #[arg(long, value_name = "FOLDER", default_value = "experiments")]
    experiments: PathBuf,
    #[command(flatten)]
    played: Played,
    /// Directory of the results, with one subdirectory for each experiment. By default below `lab-runs/`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Play nothing, and print the table of what is there.
    #[arg(long, requires = "output")]
    print: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    match campaign(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::NO),
        Err(why) => {
            exit::say(&why);
            ExitCode::from(CANNOT)
        }
    }
}

/// Returns whether Weirgate held every guarantee.
fn campaign(args: &Args) -> Result<bool, String> {
    let name = |file: &str| Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let known: Vec<String> = CAMPAIGN.iter().map(|(file, _)| name(file)).collect();
    if let Some(unknown) = args.only.iter().find(|only| !known.contains(only)) {
        return Err(format!("`{unknown}` is no experiment of the campaign; write some of {}", known.join(", ")));
    }
    let date = super::now();
    let output = args.output.clone().unwrap_or_else(|| report::default_directory(&date, "real"));
    let wanted = CAMPAIGN.iter().filter(|(file, _)| args.only.is_empty() || args.only.contains(&name(file)));
    let mut runs: Vec<RunFile> = Vec::new();
    for (file, approaches) in wanted {
        let directory = output.join(name(file));
        if directory.join("run.json").exists() {
            runs.push(report::read(&directory)?);
            continue;
        }
        if args.print {
            exit::say(&format!("{} has not been played", name(file)));
            continue;
        }
        let path = args.experiments.join(format!("{file}.yaml"));
        let mut campaign = args.played.campaign(&path, Vec::new(), directory, date.clone())?;
        campaign.seeds = (1..=args.seeds).collect();
        let experiment = campaign.experiment()?;
        let services = weirgate_lab::servers::services(&experiment);
        if let Some(why) = services.into_iter().find_map(|service| service.check().err()) {
            exit::say(&format!("{} is left out: {why}", name(file)));
            continue;
        }
        campaign.approaches = installed(approaches)?;
        let trials = campaign.approaches.len() * campaign.seeds.len();
        let length = experiment.duration() * u32::try_from(trials).unwrap_or(u32::MAX);
        exit::say(&format!("{}: {trials} trials, {}", name(file), about(length)));
        runs.push(play::watched(&campaign)?);
    }
    if runs.is_empty() {
        return Err("nothing has been played".to_owned());
    }
    let table = report::overview(&runs);
    exit::write(&table).map_err(|error| format!("cannot write to standard output: {error}"))?;
    let place = output.join("overview.md");
    std::fs::write(&place, &table).map_err(|error| format!("{}: {error}", place.display()))?;
    exit::say(&format!("{} has this table, and the directories beside it the figures", place.display()));
    let ours = |trial: &&report::Trial| trial.approach == "weirgate";
    Ok(runs.iter().flat_map(|run| &run.trials).filter(ours).all(|trial| trial.verdict.sound()))
}

/// Returns the approaches whose program is installed, and names the others.
fn installed(approaches: &[&str]) -> Result<Vec<Approach>, String> {
    let all = approaches.iter().map(|name| Approach::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let (here, missing): (Vec<Approach>, Vec<Approach>) =
        all.into_iter().partition(|approach| approach.kind().installed().is_ok());
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        exit::say(&format!("not installed and left out: {}; `weirgate lab install` installs them", names.join(", ")));
    }
    Ok(here)
}

/// Returns a time in words.
fn about(time: Duration) -> String {
    match time.as_secs().div_ceil(60) {
        minutes @ 0..=120 => format!("about {minutes} minutes"),
        minutes => format!("about {} hours", minutes.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_and_every_setting_of_the_campaign_exists() {
        for (file, approaches) in CAMPAIGN {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/{file}.yaml"));
            let loaded =
                weirgate_experiment::load_experiment_file(&path, &[]).unwrap_or_else(|errors| panic!("{errors}"));
            assert!(!weirgate_lab::servers::services(&loaded.experiment).is_empty(), "{file} is on real servers");
            for approach in approaches {
                Approach::parse(approach).unwrap_or_else(|why| panic!("{file}: {why}"));
            }
        }
    }

    #[test]
    fn times_are_told_in_minutes_and_hours() {
        assert_eq!(about(Duration::from_secs(601)), "about 11 minutes");
        assert_eq!(about(Duration::from_secs(4 * 3600 + 1)), "about 5 hours");
    }
}
