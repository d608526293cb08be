//! `weirgate lab`: experiments on real processes that compare Weirgate with today's usual gateways.

mod install;
mod list;
mod play;
mod provision;
mod real;
mod reports;
mod reserves;
mod table1;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use weirgate_clock::rfc3339;
use weirgate_lab::campaign::Campaign;
use weirgate_lab::gateways::Approach;
use weirgate_lab::trial::Cpus;
use weirgate_spanned_yaml::overrides::Override;

use crate::sim;

/// Play experiments on real processes: Weirgate and its peers in front of the same nodes, under the same
/// load.
///
/// The lab starts everything itself: emulated nodes (or real services) on loopback, the gateways in turn,
/// each as a process of its own, and an open-loop load generator. The judge is the simulator's.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = "\
Examples:
  weirgate lab list
  weirgate lab install
  weirgate lab run experiments/quorum-fig9.yaml --compress 4
  weirgate lab run experiments/quorum-fig9.yaml --approach weirgate --approach haproxy-tuned:maxconn=4 --seeds 3
  weirgate lab run experiments/quorum-fig9.yaml --approach nginx --sweep
  weirgate lab real --seeds 5
  weirgate lab compare lab-runs/A lab-runs/B
  weirgate lab figures lab-runs/mqos/* > mqos.html
  weirgate lab provision experiments/quorum-table3.yaml --approach haproxy-leastconn

Exit codes:
  0  done; `run`: Weirgate's approaches held every guarantee that can be held, and no request was lost or doubled
  1  a guarantee was missed, requests were lost or doubled, or two runs differ
  2  something could not be played: standard error says why and how to fix it")]
#[group(id = "lab")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::Args),
    Install(install::Args),
    Run(play::Args),
    Real(real::Args),
    Report(reports::ReportArgs),
    Compare(reports::CompareArgs),
    Figures(reports::FiguresArgs),
    Provision(provision::Args),
    ClusterReserves(reserves::Args),
    ClusterReservesTable1(table1::Args),
}

/// An experiment with the options of the lab.
#[derive(Clone, Debug, ClapArgs)]
struct Played {
    /// Set a value in the experiment before it is played, such as `traffic.A.rate=800/s`. Repeatable.
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = |text: &str| text.parse::<Override>())]
    sets: Vec<Override>,
    /// Divide all instants (phases, faults, changes) by N. Rates and demands stay.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    compress: f64,
    /// Play with this seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// CPUs of gateway, load generator and nodes. By default one each. On a machine with two CPUs, gateway
    /// and load generator share the first and the nodes have the last.
    #[arg(long, value_name = "G,L,N", value_parser = |text: &str| text.parse::<Cpus>())]
    cpus: Option<Cpus>,
}

impl Played {
    /// Returns a campaign of the experiment in `file` under `approaches`, with one seed, that writes to
    /// `directory`.
    fn campaign(
        &self,
        file: &Path,
        approaches: Vec<Approach>,
        directory: PathBuf,
        date: String,
    ) -> Result<Campaign, String> {
        let program = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
        Ok(Campaign {
            file: file.to_owned(),
            overrides: self.sets.clone(),
            compression: self.compress,
            approaches,
            seeds: vec![self.seed],
            directory,
            // Weirgate's own approaches are other processes of the running program.
            program,
            cpus: self.cpus.map_or_else(Cpus::of_this_machine, Ok)?,
            command: sim::command_line(),
            date,
        })
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    match args.command {
        Command::List(args) => list::run(&args),
        Command::Install(args) => install::run(&args),
        Command::Run(args) => play::run(&args),
        Command::Real(args) => real::run(&args),
        Command::Report(args) => reports::report(&args),
        Command::Compare(args) => reports::compare(&args),
        Command::Figures(args) => reports::figures(&args),
        Command::Provision(args) => provision::run(&args),
        Command::ClusterReserves(args) => reserves::run(&args),
        Command::ClusterReservesTable1(args) => table1::run(&args),
    }
}

/// Returns the date and time, to the second.
fn now() -> String {
    let now = rfc3339(weirgate_clock::calendar());
    now.split_once('.').map_or_else(|| now.clone(), |(seconds, _)| format!("{seconds}Z"))
}
