//! `weirgate demo`: the gateway keeps its promises while one class surges, or breaks them without
//! control. Needs nothing but this program.
//!
//! Emulated nodes, the gateway and open-loop clients run in this process and meet over loopback
//! sockets; every figure shown was measured there. See `docs/guide/demo.md`.

mod plain;
mod progress;
mod scenario;
mod screen;
mod signals;
mod stage;
mod verdict;
#[cfg(test)]
mod virtual_time;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use weirgate_engine::Discipline;

use crate::exit;
use progress::{Progress, millis};
use scenario::Scenario;
use signals::Stop;
use stage::Stage;

/// Show the gateway keeping its promises: an emulated cluster, clients of three classes, a surge.
///
/// Starts the gateway with `policies/demo.yaml` in front of emulated nodes, all in this process and over real
/// sockets on free loopback ports, and loads it with three classes of requests. One class surges, then its
/// requests become five times as costly. A live view shows throughput and response time of each class
/// against its guarantee; a table at the end says which guarantees were held.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate demo
  weirgate demo --discipline none     # the same load without control
  weirgate demo --discipline quorum   # by the published rules
  weirgate demo --seconds 20 --plain | tee demo.txt

Exit codes:
  0  every guarantee was held, as far as it got
  1  a guarantee was missed, or the demo could not run or ended before anything was judged")]
pub(crate) struct Args {
    /// How the gateway keeps the guarantees; `none` is a plain reverse proxy.
    #[arg(long, value_enum, default_value_t = Control::Weirgate)]
    discipline: Control,
    /// How long it runs. Below 40 all phases are compressed.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..=3600))]
    seconds: u32,
    /// Names the random draws of the load.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A line per second instead of the live view. So without a terminal.
    #[arg(long)]
    plain: bool,
}

/// The disciplines that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Control {
    /// The default: windows that seek the knee, floors first, prediction at arrival.
    Weirgate,
    /// Quorum as published.
    Quorum,
    /// No control at all.
    None,
}

impl Control {
    /// The discipline with its own figures.
    fn discipline(self) -> Discipline {
        match self {
            Control::Weirgate => Discipline::weirgate(),
            Control::Quorum => Discipline::quorum(),
            Control::None => Discipline::none(),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: Args) -> ExitCode {
    match show(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::NO),
        Err(why) => exit::fail(&format!("demo: {why}")),
    }
}

/// Shows it; was every guarantee held?
fn show(args: &Args) -> Result<bool, String> {
    let live = !args.plain && io::stdout().is_terminal() && io::stdin().is_terminal();
    // Charts move twice a second, lines come once a second.
    let tick = Duration::from_millis(if live { 500 } else { 1000 });
    let scenario = Scenario::new(args.seconds, args.seed, args.discipline, tick)?;
    let stop = Stop::on_signals().map_err(|e| format!("signals: {e}"))?;
    let stage = Stage::start(&scenario)?;
    put(&introduction(&scenario, &stage));
    let mut progress = Progress::new(stage.snapshot());
    if live {
        screen::follow(&scenario, &stage, &mut progress, &stop).map_err(|e| format!("terminal: {e}"))?;
    } else {
        plain::follow(&scenario, &stage, &mut progress, &stop);
    }
    let (report, classes, nodes) = stage.end()?;
    let (text, held) = verdict::text(&scenario, &report, &classes, &nodes);
    put(&text);
    Ok(held)
}

/// Prints. A reader who has left is no reason to stop: the exit code still tells the verdict.
fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// What the demo does, how long, and where to look.
fn introduction(scenario: &Scenario, stage: &Stage) -> String {
    let (site, plan) = (&scenario.site, &scenario.plan);
    let nodes = site.policy.nodes.len();
    let capacity = f64::from(scenario::CPUS) * nodes as f64 / scenario::COST.as_secs_f64();
    let mut text = format!(
        "Weirgate demo: {:.0} s, discipline {}, seed {}. Ctrl-C ends it early.\n\n\
         Gateway  {}, policy policies/demo.yaml\n\
         Admin    {admin}/snapshot, {admin}/metrics\n\
         Cluster  {nodes} emulated nodes of {} CPUs: {capacity:.0} requests/s of {}\n\n",
        plan.length().as_secs_f64(),
        site.policy.discipline.name,
        plan.seed,
        stage.gateway_address,
        scenario::CPUS,
        millis(scenario::COST),
        admin = stage.admin_address,
    );
    for (i, class) in plan.classes.iter().enumerate() {
        let asks = plan.phases[0].loads[i].rate;
        text += &format!("{:<8} asks for {asks:.0}/s, is promised {}\n", class.name, promise(&class.guarantee));
    }
    text += "\nPhases\n";
    for (phase, story) in plan.phases.iter().zip(&scenario.stories) {
        text += &format!("{:<10} {:>5.1} s  {story}\n", phase.name, phase.length.as_secs_f64());
    }
    text += &format!("Clients do not wait for one another and leave after {}.\n", millis(scenario::PATIENCE));
    if scenario.compressed() {
        let settle = plan.settle.as_secs_f64();
        text += &format!("So short a run is compressed: not 5 s but {settle:.2} s of each phase are judged apart.\n");
    }
    text.push('\n');
    text
}

/// `at least 300/s and p95 at most 300 ms`.
fn promise(guarantee: &weirgate_emulator::client::Guarantee) -> String {
    let floor = guarantee.throughput.map(|rate| format!("at least {rate:.0}/s"));
    let ceiling = guarantee.response_time.map(|(which, limit)| format!("{which} at most {}", millis(limit)));
    let parts: Vec<String> = floor.into_iter().chain(ceiling).collect();
    if parts.is_empty() { "nothing (best effort)".to_owned() } else { parts.join(" and ") }
}
