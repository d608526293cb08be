//! Long runs and attacks on a real gateway: `door`, `soak`. `cargo xtask bench NAME` builds the gateway and runs them.
//!
//! The gateway runs as a process under its default discipline, before emulated nodes. The lab starts both and sends
//! the requests of ordinary clients ([`weirgate_lab`]). This program adds the clients that misbehave ([`hostile`]), and
//! looks at the resources that the gateway uses ([`usage`]).
//!
//! [`door`] plays mixes of hostile clients beside a class within its guarantee. [`soak`] reloads the policy and kills
//! nodes for as long as you like. [`stage`] starts an experiment, [`meter`] counts its requests, [`interim`] is a node
//! that never ends its interim responses, [`group`] limits the gateway's memory, and [`report`] writes the page.

mod door;
mod group;
mod hostile;
mod interim;
mod meter;
mod report;
mod soak;
mod stage;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use hostile::Mix;
use stage::Files;

/// Long runs and attacks on a real gateway.
#[derive(Debug, Parser)]
struct Cli {
    /// The program `weirgate`.
    #[arg(long, global = true, default_value = "target/release/weirgate")]
    gateway: PathBuf,
    /// Directory of the experiments.
    #[arg(long, global = true, default_value = "experiments/endurance")]
    experiments: PathBuf,
    /// A change to the experiment, as `path=value`. May be repeated.
    #[arg(long, global = true, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Directory for the page with the results.
    #[arg(long, global = true)]
    output: Option<PathBuf>,
    #[command(subcommand)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Run {
    /// 50 random mixes of hostile clients beside a class within its guarantee, which must lose nothing.
    Door {
        /// Length of all mixes together.
        #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(5..=86_400))]
        seconds: u64,
        /// Seed of the mixes. A new one by default, which is printed.
        #[arg(long)]
        seed: Option<u64>,
        /// Plays this mix instead, for `--seconds`, such as `15 slow readers, 200 silent`.
        #[arg(long, conflicts_with = "seed")]
        mix: Option<Mix>,
        /// Runs the gateway in a control group with this much memory, in megabytes. Needs root.
        #[arg(long)]
        memory: Option<u64>,
    },
    /// Half load for a long time with reloads and crashes: nothing lost or doubled, memory and descriptors flat.
    Soak {
        /// Length of the run.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
        minutes: u64,
        /// Seed of the traffic. A new one by default, which is printed.
        #[arg(long)]
        seed: Option<u64>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Runs the command and returns whether everything held.
fn run(cli: Cli) -> Result<bool, String> {
    let file =
        |name: &str| Files { program: cli.gateway.clone(), experiment: cli.experiments.join(name), changes: &cli.set };
    let output = cli.output.as_deref();
    match cli.run {
        Run::Door { seconds, seed, mix, memory } => {
            let (files, seed) = (file("door.yaml"), fresh(seed));
            door::run(&files, seconds, seed, mix.as_ref(), memory, output).map(|lost| lost == 0)
        }
        Run::Soak { minutes, seed } => soak::run(&file("soak.yaml"), minutes, fresh(seed), output),
    }
}

/// Returns the given seed, or a new one of at most six digits.
fn fresh(seed: Option<u64>) -> u64 {
    seed.unwrap_or_else(|| weirgate_clock::seed() % 1_000_000)
}
