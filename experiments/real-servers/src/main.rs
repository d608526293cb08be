//! Runs the experiment and keeps what it measured. Exit code 0: it came out as claimed; 1: it did not; 2: it
//! could not be run.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use weirgate_real_servers::{Options, Outcome, Proxy, Scale, load_average, run, setup};

/// Two classes on four Apache servers, behind Weirgate and behind HAProxy.
#[derive(Parser)]
struct Arguments {
    /// A minute instead of fifteen: shorter phases, one round, Weirgate and HAProxy only.
    #[arg(long)]
    short: bool,
    /// Only this proxy, for study: then there is nothing to compare and the claim does not hold.
    #[arg(long, value_parser = Proxy::ALL.map(Proxy::name))]
    only: Option<String>,
    /// The weirgate command; the one beside this program if absent.
    #[arg(long)]
    weirgate: Option<PathBuf>,
    /// Where results go; `bench/runs/DATE-real-servers` if absent.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match work(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn work(arguments: Arguments) -> Result<bool, String> {
    let beside = || std::env::current_exe().map(|program| program.with_file_name("weirgate"));
    let weirgate = match arguments.weirgate {
        Some(weirgate) => weirgate,
        None => beside().map_err(|e| format!("this program's own place is unknown: {e}; give --weirgate"))?,
    };
    if !weirgate.exists() {
        return Err(format!("{} is missing: experiments/real-servers/run builds it", weirgate.display()));
    }
    let scale = if arguments.short { Scale::Short } else { Scale::Full };
    let turns = match (arguments.only, scale) {
        (Some(name), _) => {
            Proxy::ALL.into_iter().filter(|proxy| proxy.name() == name).map(|proxy| (1, proxy)).collect()
        }
        (None, Scale::Short) => vec![(1, Proxy::Weirgate), (1, Proxy::HaProxy)],
        (None, Scale::Full) => {
            let second = [Proxy::Weirgate, Proxy::HaProxy].map(|proxy| (2, proxy));
            Proxy::ALL.map(|proxy| (1, proxy)).into_iter().chain(second).collect()
        }
    };
    let place = match arguments.out {
        Some(place) => place,
        None => default_place()?,
    };
    let load = load_average();
    let outcome = run(&Options { weirgate, scale, turns }, &mut |line| println!("{line}"))?;
    keep(&place, &outcome, &setup(if arguments.short { " --short" } else { "" }, &load))?;
    println!("{}\nwritten to {}", outcome.summary(), place.display());
    Ok(outcome.as_claimed())
}

fn default_place() -> Result<PathBuf, String> {
    let date = Command::new("date").arg("+%Y-%m-%d").output().map_err(|e| format!("cannot start date: {e}"))?;
    let date = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    let numbered = |n: u32| if n == 1 { String::new() } else { format!("-{n}") };
    let places = (1..).map(|n| root.join("bench/runs").join(format!("{date}-real-servers{}", numbered(n))));
    // A run never overwrites another.
    places.take(100).find(|place| !place.exists()).ok_or_else(|| format!("{date} has a hundred runs already"))
}

fn keep(place: &Path, outcome: &Outcome, setup: &str) -> Result<(), String> {
    std::fs::create_dir_all(place).map_err(|e| format!("{}: {e}", place.display()))?;
    let files = [("raw.csv", outcome.csv()), ("summary.md", outcome.summary()), ("SETUP.md", setup.to_owned())];
    let configurations = outcome.configurations.iter().map(|(name, text)| (name.as_str(), text.clone()));
    for (name, text) in files.into_iter().chain(configurations) {
        let file = place.join(name);
        std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(())
}
