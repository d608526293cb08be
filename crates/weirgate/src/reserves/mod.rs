//! `weirgate reserves`: the shares that the coordinator of Cluster Reserves would set.

mod solve;

use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};

/// Compute the shares of the nodes that the coordinator would set.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Solve(solve::Args),
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.command {
        Command::Solve(args) => solve::run(args),
    }
}
