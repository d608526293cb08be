//! `weirgate lab real`: the campaign on real servers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use weirgate_lab::gateways::Approach;
use weirgate_lab::report::{self, RunFile};

use super::{Played, play};
use crate::exit;

/// An experiment of the campaign.
struct Entry {
    /// Its name, and that of its directory.
    name: &'static str,
    /// Its file.
    file: &'static str,
    /// A change to the file.
    set: Option<&'static str>,
    /// Its approaches. Every peer is set up as someone would who knows it and the application: with the classes, and
    /// with a limit per address where crawlers come.
    approaches: &'static [&'static str],
}

const CAMPAIGN: [Entry; 9] = [
    Entry {
        name: "day-mediawiki",
        file: "day-mediawiki",
        set: None,
        // As in the sieges, half of the eight PHP processes of a server are enough to keep its half of a CPU busy.
        approaches: &[
            "weirgate",
            "none",
            "haproxy-leastconn",
            "haproxy-tuned:maxconn=4",
            "haproxy-classes:maxconn=2",
            "nginx:rate=off,conn=4,max_conns=workers",
            "envoy-classes:requests=2,deadline=1000%,rtt=off",
        ],
    },
    Entry {
        name: "siege-mediawiki",
        file: "siege-mediawiki",
        set: None,
        // The policy declares no cost, so the peers are told numbers: of the eight PHP processes of each server four
        // for readers and one for others. Envoy's queue has no timeout, so few may wait in it.
        approaches: &[
            "weirgate",
            "haproxy-leastconn:source=1",
            "haproxy-tuned:maxconn=4,source=1",
            "haproxy-classes:maxconn=4,rest=1,source=1",
            "nginx:source=1,rate=off,conn=8,rest=1,max_conns=workers",
            "envoy-classes:requests=4,rest=1,waiting=4,deadline=1000%,rtt=off,source=1",
        ],
    },
    Entry {
        name: "siege-cgit",
        file: "siege-cgit",
        set: None,
        approaches: &[
            "weirgate",
            "haproxy-leastconn:source=3",
            "haproxy-tuned:maxconn=4,source=3",
            "haproxy-classes:maxconn=4,rest=1,source=3",
            "nginx:source=3,rate=off,conn=8,rest=1,max_conns=workers",
            "envoy-classes:requests=4,rest=1,waiting=4,deadline=1000%,rtt=off,source=3",
        ],
    },
    Entry {
        name: "api-gunicorn",
        file: "api-gunicorn",
        set: None,
        // The same eight threads for all, and of these up to five for a class: with a slow database the app needs five.
        approaches: &[
            "weirgate",
            "none",
            "haproxy-leastconn",
            "haproxy-tuned:maxconn=8",
            "haproxy-classes:maxconn=5",
            "nginx:rate=off,conn=10,max_conns=workers",
            "envoy-classes:requests=5,deadline=1000%,rtt=off",
        ],
    },
    Entry { name: "real-servers", file: "real-servers", set: None, approaches: USUAL },
    Entry {
        name: "real-servers-tomcat",
        file: "real-servers",
        set: Some("machines.service=tomcat"),
        approaches: USUAL,
    },
    Entry { name: "search", file: "search", set: None, approaches: USUAL },
    Entry {
        name: "slow-dependency",
        file: "everyday-sockets/slow-dependency-apache",
        set: None,
        // Their defaults come from the number of CPUs, which says nothing about requests that wait. So peers are also
        // told the eight workers: seven for gold, and one for others.
        approaches: &[
            "weirgate",
            "none",
            "haproxy-leastconn",
            "haproxy-tuned",
            "haproxy-tuned:maxconn=8",
            "haproxy-classes",
            "haproxy-classes:maxconn=7,rest=1",
            "nginx",
            "nginx:rate=off,conn=8,rest=1,max_conns=workers",
            "envoy-adaptive",
            "envoy-classes",
            "envoy-classes:requests=7,rest=1,waiting=4,deadline=1000%,rtt=off",
        ],
    },
    Entry { name: "expensive-tenant", file: "everyday-sockets/expensive-tenant-apache", set: None, approaches: USUAL },
];

/// Approaches in their default settings, which docs/guide/peers.md explains.
const USUAL: &[&str] = &[
    "weirgate", "none", "haproxy-leastconn", "haproxy-tuned", "haproxy-classes", "nginx", "envoy-adaptive",
    "envoy-classes",
];

/// Play the campaign on real servers: MediaWiki, cgit, an API in Python, Apache with PHP, Tomcat and Xapian behind
/// Weirgate and its peers.
///
/// Nine experiments under six to twelve approaches with five seeds take most of a day. What has been played stays:
/// give the same `--output` again to go on where a campaign has ended, or to play more of it. Peers and services that
/// are not installed are left out, and named.
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
        Ok(holds) => exit::answer(holds),
        Err(why) => exit::cannot(&why),
    }
}

/// Returns whether Weirgate held every guarantee.
fn campaign(args: &Args) -> Result<bool, String> {
    if let Some(unknown) = args.only.iter().find(|only| CAMPAIGN.iter().all(|entry| entry.name != **only)) {
        let known = CAMPAIGN.map(|entry| entry.name).join(", ");
        return Err(format!("`{unknown}` is no experiment of the campaign; write some of {known}"));
    }
    let date = super::now();
    let output = args.output.clone().unwrap_or_else(|| report::default_directory(&date, "real"));
    let wanted = |entry: &&Entry| args.only.is_empty() || args.only.iter().any(|only| only == entry.name);
    let mut runs: Vec<RunFile> = Vec::new();
    for Entry { name, file, set, approaches } in CAMPAIGN.iter().filter(wanted) {
        let directory = output.join(name);
        if args.print {
            match directory.join("run.json").exists() {
                true => runs.push(report::read(&directory)?),
                false => exit::say(&format!("{name} has not been played")),
            }
            continue;
        }
        let path = args.experiments.join(format!("{file}.yaml"));
        let mut campaign = args.played.campaign(&path, Vec::new(), directory, date.clone())?;
        let set = set.map(str::parse).transpose().map_err(|error| format!("{name}: {error}"))?;
        campaign.overrides.extend(set);
        campaign.seeds = (1..=args.seeds).collect();
        let experiment = campaign.experiment()?;
        let services = weirgate_lab::servers::services(&experiment);
        if let Some(why) = services.into_iter().find_map(|service| service.check().err()) {
            exit::say(&format!("{name} is left out: {why}"));
            continue;
        }
        let approaches = approaches.iter().map(|name| Approach::parse(name)).collect::<Result<Vec<_>, _>>()?;
        campaign.approaches = play::installed(approaches);
        let trials = campaign.approaches.len() * campaign.seeds.len();
        let length = experiment.duration() * u32::try_from(trials).unwrap_or(u32::MAX);
        exit::say(&format!("{name}: {trials} trials, {}", about(length)));
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

/// Returns a time in words.
fn about(time: Duration) -> String {
    match time.as_secs().div_ceil(60) {
        minutes @ 0..=120 => format!("about {minutes} minutes"),
        minutes => format!("about {} hours", minutes.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_experiment_and_every_setting_of_the_campaign_exists() {
        for Entry { name, file, set, approaches } in CAMPAIGN {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/{file}.yaml"));
            let overrides: Vec<_> = set.iter().map(|set| set.parse().expect("a change")).collect();
            let loaded = weirgate_experiment::load_experiment_file(&path, &overrides);
            let experiment = loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment;
            assert!(!weirgate_lab::servers::services(&experiment).is_empty(), "{name} is on real servers");
            for approach in approaches {
                Approach::parse(approach).unwrap_or_else(|why| panic!("{name}: {why}"));
            }
        }
    }

    #[test]
    fn times_are_told_in_minutes_and_hours() {
        assert_eq!(about(Duration::from_secs(601)), "about 11 minutes");
        assert_eq!(about(Duration::from_secs(4 * 3600 + 1)), "about 5 hours");
    }
}
