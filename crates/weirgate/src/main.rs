//! The `weirgate` command: `run`, `check`, `explain`, `schema`, `demo`, `top`, `tap`, `init`, `recommend`, `sim`,
//! `plan`, `replay`, `policy`, `bands`, `lab`, `probe`, `agent`, `coordinator`, `reserves`, `pki`, `site`,
//! `completions`, and `man` for packages.
//!
//! Only this crate uses gateway, lab, agent, coordinator and probe together. Messages go to standard error
//! and results to standard output. For exit codes see [`exit`].

mod admin_api;
mod agent;
mod args;
mod bands;
mod bar;
mod best_of;
mod check;
mod coordinator;
mod demo;
mod exit;
mod explain;
mod grid;
mod init;
mod keys;
mod lab;
mod manual;
mod pki;
mod plan;
mod policy;
mod probe;
mod recommend;
mod replay;
mod reserves;
mod run;
mod sim;
mod site;
mod swarm;
mod tap;
mod top;

use std::process::ExitCode;

use args::{Cli, Command, SchemaOf};
use clap::Parser;

/// Gives the memory of connections back to the system when their clients have left (ADR 19).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Schema(args) => exit::print(&format!("{:#}\n", schema(args.of))),
        Command::Demo(args) => demo::run(args),
        Command::Top(args) => top::run(&args),
        Command::Tap(args) => tap::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Recommend(args) => recommend::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Plan(args) => plan::run(args),
        Command::Policy(args) => policy::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Bands(args) => bands::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::Probe(args) => probe::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Coordinator(args) => coordinator::run(&args),
        Command::Pki(args) => pki::run(&args),
        Command::Site(args) => site::run(&args),
        Command::Reserves(args) => reserves::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::pages(&args),
    }
}

fn schema(of: SchemaOf) -> serde_json::Value {
    match of {
        SchemaOf::Policy => weirgate_config::schema(),
        SchemaOf::Experiment => weirgate_experiment::experiment_schema(),
        SchemaOf::PageTable => weirgate_config::page_table_schema(),
    }
}
