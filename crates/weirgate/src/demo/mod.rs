//! `weirgate demo`: the gateway keeps its guarantees while one class surges, or breaks them without control.
//!
//! The demo is the experiment `experiments/demo.yaml`, played by the lab: emulated nodes and clients run in this
//! process, and the gateway runs as `weirgate run` in another. They communicate over loopback sockets. The experiment
//! and its policy are compiled in, so the demo needs nothing but this program. Simulator and lab share its judge.
//! `docs/guide/demo.md` explains the figures, and `docs/guide/people.md` those of `--siege`.

mod plain;
mod progress;
mod screen;
mod siege;
mod signals;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use weirgate_engine::Guarantee;
use weirgate_experiment::{Experiment, lasting, load_experiment_file, under_discipline};
use weirgate_lab::gateways::{Approach, Source};
use weirgate_lab::report::Evidence;
use weirgate_lab::trial::{self, Cpus, Outcome, Trial};
use weirgate_verdict::report::{self, Group, Played};

use crate::exit;
use progress::{Progress, millis};
use signals::Stop;

/// An experiment that can be shown.
struct Scene {
    /// Name of the files of experiment and policy.
    name: &'static str,
    /// The experiment, as committed.
    experiment: &'static str,
    /// Its policy, as committed.
    policy: &'static str,
    /// Names of the traffic sources. If there are none, each class has one, in the order of the policy.
    clients: &'static [&'static str],
}

/// One class surges.
const SURGE: Scene = Scene {
    name: "demo",
    experiment: include_str!("../../../../experiments/demo.yaml"),
    policy: include_str!("../../../../policies/demo.yaml"),
    clients: &[],
};

/// Ten thousand addresses crawl a web application.
const SIEGE: Scene = Scene {
    name: "siege",
    experiment: include_str!("../../../../experiments/siege.yaml"),
    policy: include_str!("../../../../policies/siege.yaml"),
    clients: &siege::CLIENTS,
};

/// Show the gateway keeping its guarantees: an emulated cluster, clients of three classes, a surge.
///
/// Starts the gateway with `policies/demo.yaml` in front of emulated nodes, over real sockets on free loopback
/// ports, and loads it with three classes of requests. One class surges, then its requests become five times as
/// expensive. A live view shows throughput and response time of each class against its guarantee. A table at the
/// end shows which guarantees were held.
///
/// `--siege` shows a web application whose readers are known by a cookie, with `policies/siege.yaml`. Ten thousand
/// addresses crawl it, and then one of the readers hammers.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate demo
  weirgate demo --discipline none     # the same load without control
  weirgate demo --discipline quorum   # by the published rules
  weirgate demo --seconds 20 --plain | tee demo.txt
  weirgate demo --siege               # readers first, while 10,000 addresses crawl

Exit codes:
  0  every guarantee was held until the end, also if you ended it early
  1  a guarantee was missed, owed requests were refused although machines idled, or the demo could not run or
     ended before any phase was judged")]
pub(crate) struct Args {
    /// Method that keeps the guarantees. `none` is a plain reverse proxy.
    #[arg(long, value_enum, default_value_t = Control::Weirgate)]
    discipline: Control,
    /// Show readers of a web application while 10,000 addresses crawl it.
    #[arg(long)]
    siege: bool,
    /// Length of the demo. All phases shrink or grow with it. By default 40 s, and 110 s with `--siege`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=3600))]
    seconds: Option<u32>,
    /// Seed of the random draws of the load.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print a line per second instead of the live view, as without a terminal.
    #[arg(long)]
    plain: bool,
}

/// The disciplines that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Control {
    /// The default: windows at the knee, guaranteed throughput first, refusal at arrival.
    Weirgate,
    /// Quorum as published.
    Quorum,
    /// No control at all.
    None,
}

impl Control {
    fn name(self) -> &'static str {
        match self {
            Control::Weirgate => "weirgate",
            Control::Quorum => "quorum",
            Control::None => "none",
        }
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    match show(&args) {
        Ok(held) => exit::answer(held),
        Err(why) => exit::fail(&format!("demo: {why}")),
    }
}

/// Plays the demo, and returns whether something was judged and every guarantee was held.
fn show(args: &Args) -> Result<bool, String> {
    let scene = if args.siege { &SIEGE } else { &SURGE };
    let directory = Directory::new()?;
    let file = directory.written(scene)?;
    let experiment = experiment(&file, args)?;
    let approach = Approach::parse(args.discipline.name())?;
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    // Ctrl-C ends the demo with the verdict on the part that was played, which needs the gateway.
    let source = Source { program, file, overrides: Vec::new(), detached: true };
    let trial = Trial {
        experiment: &experiment,
        approach: &approach,
        source: &source,
        seed: args.seed,
        directory: &directory.0,
        cpus: Cpus::default(),
    };
    let stop = Stop::on_signals().map_err(|error| format!("signals: {error}"))?;
    let mut progress = Progress::new(&experiment, scene.clients);
    put(&introduction(&progress, scene, args));
    let live = !args.plain && io::stdout().is_terminal() && io::stdin().is_terminal();
    let outcome =
        if live { screen::follow(&trial, &mut progress, &stop)? } else { plain::follow(&trial, &mut progress, &stop)? };
    let said = args.siege.then(|| siege::figures(&outcome));
    let held = conclude(&experiment, outcome);
    put(&said.unwrap_or_default());
    Ok(held)
}

/// Plays `trial`. `look` gets its progress every half second. The demo ends once `stop` is set.
fn play(
    trial: &Trial<'_>,
    progress: &mut Progress,
    stop: &Stop,
    mut look: impl FnMut(&Progress),
) -> Result<Outcome, String> {
    trial::play(trial, |now, load| {
        progress.add(now, &load.take_responses());
        look(progress);
        if stop.asked() { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    })
}

/// Reads the experiment in `file` and gives it the length of `--seconds`.
fn experiment(file: &Path, args: &Args) -> Result<Experiment, String> {
    let overrides = [under_discipline(args.discipline.name())];
    let experiment = load_experiment_file(file, &overrides).map_err(|errors| errors.to_string())?.experiment;
    match args.seconds {
        Some(seconds) => lasting(&experiment, f64::from(seconds)),
        None => Ok(experiment),
    }
}

/// Prints the verdict and the evidence, and returns whether something was judged and every guarantee was held.
fn conclude(experiment: &Experiment, outcome: Outcome) -> bool {
    let Outcome { run, played, verdict, evidence, .. } = outcome;
    let mut text = String::from("\n");
    if played.duration() < experiment.duration() {
        let after = played.duration().as_secs_f64();
        text += &format!("Ended early, after {after:.1} s: the verdict covers the part that was played.\n\n");
    }
    let (judged, held) = (verdict.judged() > 0, verdict.sound());
    let group = Group { discipline: run.discipline.clone(), verdicts: vec![verdict], series: None };
    text += &report::text::text(&Played { experiment: played, groups: vec![group] });
    if !judged {
        text += "Nothing was judged: the demo ended before any phase had settled.\n";
    }
    text += &accounts(&evidence);
    put(&text);
    judged && held
}

/// Mean delay in ms of requests or replies above which the machine itself explains long response times.
const LATE_MS: f64 = 20.0;

/// Returns the account of all requests, and the measurement errors.
fn accounts(evidence: &Evidence) -> String {
    let Evidence { sent, served, shed, failed, left, cut, .. } = evidence;
    let (load, nodes) = (evidence.generator_late_ms.p99, evidence.node_late_ms.p99);
    let mut text = format!(
        "\nrequests  {sent} sent: {served} served, {shed} shed, {failed} failed, {left} left by their clients, \
         {cut} cut off at the end\n\
         errors    requests left {load:.1} ms late, replies {nodes:.1} ms (p99). Both count as response time.\n"
    );
    for doubt in evidence.doubts() {
        text += &format!("doubt     {doubt}\n");
    }
    if load > LATE_MS {
        text += "          This machine is too busy for the demo, which alone can make it miss guarantees.\n";
    }
    text
}

/// Prints `text`. Errors are ignored: if the reader has closed the output, the exit code still gives the verdict.
fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns the description of the demo.
fn introduction(progress: &Progress, scene: &Scene, args: &Args) -> String {
    let experiment = &progress.experiment;
    let (policy, machines) = (&experiment.site.policy, &experiment.machines);
    let mut text = format!(
        "Weirgate demo: {} s, discipline {}, seed {}. Ctrl-C ends it early.\n\
         {} emulated nodes of {} CPUs, policy policies/{}.yaml\n\n",
        experiment.duration().as_secs(),
        args.discipline.name(),
        args.seed,
        machines.len(),
        machines.first().map_or(0, |machine| machine.cpus),
        scene.name,
    );
    for class in &policy.classes {
        let fallback = if class.name.ends_with("/fallback") { ", at another upstream" } else { "" };
        text += &format!("{:<8} {}{fallback}\n", class.name, guarantee(&class.guarantee));
    }
    text += "\nPhases\n";
    for (index, phase) in experiment.phases.iter().enumerate() {
        let length = phase.until.saturating_sub(experiment.phase_from(index)).as_secs_f64();
        text += &format!("{:<11} {length:>5.1} s  {}\n", phase.name, story(progress, index));
    }
    text.push('\n');
    text
}

/// Returns the rate and the cost of each traffic source in phase `index`.
fn story(progress: &Progress, index: usize) -> String {
    let experiment = &progress.experiment;
    let from = experiment.phase_from(index);
    let middle = from + experiment.phases[index].until.saturating_sub(from) / 2;
    let of = |(row, traffic): (usize, &weirgate_experiment::Traffic)| {
        let (name, cost) = (progress.name(row), millis(traffic.cpu_at(middle)));
        match traffic.rate_at(middle) {
            Some(0.0) => None,
            Some(rate) => Some(format!("{name} {rate:.0}/s of {cost}")),
            None => Some(format!("{name} of {cost}")),
        }
    };
    experiment.traffic.iter().enumerate().filter_map(|(row, traffic)| of((row, traffic))).collect::<Vec<_>>().join(", ")
}

/// Returns a guarantee in words: `at least 300/s and p95 at most 300 ms`.
fn guarantee(guarantee: &Guarantee) -> String {
    let floor = guarantee.throughput.map(|rate| format!("at least {rate:.0}/s"));
    let ceiling = guarantee.response_time.map(|time| format!("{} at most {}", time.statistic, millis(time.limit)));
    let parts: Vec<String> = floor.into_iter().chain(ceiling).collect();
    if parts.is_empty() { "nothing (best effort)".to_owned() } else { parts.join(" and ") }
}

/// A directory for the experiment, the gateway's policy and its log. Dropping it removes it.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Directory, String> {
        let path = std::env::temp_dir().join(format!("weirgate-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Directory(path))
    }

    /// Writes the experiment and its policy, and returns the path of the experiment.
    fn written(&self, scene: &Scene) -> Result<PathBuf, String> {
        let files = [("policies", scene.policy), ("experiments", scene.experiment)];
        for (folder, text) in files {
            let path = self.0.join(folder).join(format!("{}.yaml", scene.name));
            let folder = path.parent().unwrap_or(&self.0);
            let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(self.0.join("experiments").join(format!("{}.yaml", scene.name)))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Files in the system's temporary directory do no harm if they stay.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
