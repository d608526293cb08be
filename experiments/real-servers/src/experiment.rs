//! The order of things: calibration, then the proxies in turn under one load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weirgate_emulator::Distribution;
use weirgate_emulator::client::{ClassPlan, ClassPoint, Load, Phase, Plan, Point, Running};
use weirgate_emulator::clock;

use crate::calibration::Calibration;
use crate::cluster::{Cluster, missing_packages, page};
use crate::machine;
use crate::outcome::{Outcome, Run};
use crate::process::Directory;
use crate::proxy::Proxy;
use crate::terms::{Contract, SURGE, Terms};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weirgate` command.
    pub weirgate: PathBuf,
    /// How long a run is.
    pub scale: Scale,
    /// What stands before the servers in turn, each with the number of its round: the load's instants are the
    /// same within a round.
    pub turns: Vec<(usize, Proxy)>,
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Five phases of 20 s.
    Full,
    /// Three short phases, so that two proxies take a minute.
    Short,
}

/// Seconds of the phases of [`Scale::Full`]: 15 are judged.
const PHASE: u64 = 20;

/// Between two looks at a run.
const LOOK: Duration = Duration::from_millis(200);

/// Seconds between two lines of progress.
const PROGRESS: u64 = 5;

/// What class B does in a phase.
#[derive(Clone, Copy)]
enum B {
    Within,
    Surges,
    IsDear,
}

impl Scale {
    fn phases(self) -> Vec<(&'static str, u64, B)> {
        match self {
            Scale::Full => vec![
                ("calm", PHASE, B::Within),
                ("surge", PHASE, B::Surges),
                ("calm again", PHASE, B::Within),
                ("dear", PHASE, B::IsDear),
                ("calm at last", PHASE, B::Within),
            ],
            // Each a little longer than the five seconds that are not judged.
            Scale::Short => vec![("calm", 6, B::Within), ("dear", 8, B::IsDear), ("surge", 7, B::Surges)],
        }
    }

    /// How long each of the calibration's longer measurements takes.
    fn calibration(self) -> Duration {
        Duration::from_millis(if self == Scale::Full { 4000 } else { 1000 })
    }

    /// How long a client waits. In the short run what is late is given up early.
    fn timeout(self) -> Duration {
        Duration::from_secs(if self == Scale::Full { 10 } else { 5 })
    }
}

/// Runs the experiment; `say` gets lines of progress.
///
/// # Errors
/// Packages are missing, a server or proxy does not start, or the machine has one core only.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Outcome, String> {
    let missing = missing_packages();
    if !missing.is_empty() {
        let install = format!("apt-get install --no-install-recommends {}", missing.join(" "));
        return Err(format!("Debian packages are missing: `{install}` or `cargo xtask packages` installs them"));
    }
    let (cores, _priority) = machine::divide()?;
    let directory = Directory::new()?;
    say("measuring what the page costs");
    let calibration =
        Calibration::measure(&Cluster::start(&directory, "calibration", cores)?, options.scale.calibration())?;
    let terms = Terms::new(&calibration);
    say(&format!("{calibration}"));
    say(&format!("A: {}; B: {}", terms.a, terms.b));
    let mut outcome = Outcome { calibration, terms, runs: Vec::new(), configurations: BTreeMap::new() };
    for &(round, proxy) in &options.turns {
        // Fresh servers for each: some runs leave seconds of abandoned work behind.
        let cluster = Cluster::start(&directory, &format!("{proxy}-{round}"), cores)?;
        let running = proxy.start(&options.weirgate, &cluster, &terms, &directory, cores)?;
        let plan = plan(options.scale, running.address, round, &calibration, &terms);
        let clients = plan.clone().start().map_err(|e| format!("the load's clients do not start: {e}"))?;
        follow(&plan, &clients, &format!("{proxy}, round {round}"), say);
        let report = clients.join().map_err(|e| format!("the load's clients failed: {e}"))?;
        outcome.runs.push(Run { proxy, round, report });
        outcome.configurations.insert(running.configuration.0, running.configuration.1);
    }
    Ok(outcome)
}

/// The load of one run. Rounds differ in the instants of requests, proxies do not.
fn plan(scale: Scale, target: SocketAddr, round: usize, calibration: &Calibration, terms: &Terms) -> Plan {
    let class = |name: &str, host: &str, contract: &Contract| {
        let mut class = ClassPlan::new(name, target, host);
        class.guarantee = contract.guarantee();
        class.timeout = scale.timeout();
        // More than ever wait at once, so that the clients hold nothing back.
        class.connections = 4096;
        class
    };
    let load = |rate: f64, dear: bool| {
        let (rounds, cost) =
            if dear { (calibration.dear_rounds, calibration.dear_p50) } else { (calibration.rounds, terms.a.cost) };
        Load::poisson(rate, Distribution::Fixed(cost), page(rounds))
    };
    let phases = scale.phases().into_iter().map(|(name, seconds, b)| {
        let b = match b {
            B::Within => load(terms.b.offered, false),
            B::Surges => load(terms.b.offered * SURGE, false),
            B::IsDear => load(terms.b.offered, true),
        };
        Phase::new(name, Duration::from_secs(seconds), vec![load(terms.a.offered, false), b])
    });
    let classes = vec![class("A", "a.test", &terms.a), class("B", "b.test", &terms.b)];
    Plan { seed: round as u64, ..Plan::new(classes, phases.collect()) }
}

/// Says from time to time what the classes get.
fn follow(plan: &Plan, clients: &Running, title: &str, say: &mut dyn FnMut(&str)) {
    let mut seen = 0;
    loop {
        let finished = clients.is_finished();
        for point in clients.points(seen) {
            seen += 1;
            if (seen as u64).is_multiple_of(PROGRESS) {
                say(&line(plan, title, &point));
            }
        }
        if finished {
            return;
        }
        clock::pause(LOOK);
    }
}

fn line(plan: &Plan, title: &str, point: &Point) -> String {
    let class = |of: &ClassPoint| {
        let p95 = of.response.map_or("-".into(), |p95| format!("{} ms", p95.as_millis()));
        format!("{}/s of {}/s, p95 {p95}", of.served, of.arrivals)
    };
    let classes: Vec<_> =
        plan.classes.iter().zip(&point.classes).map(|(plan, of)| format!("{} {}", plan.name, class(of))).collect();
    let (at, length) = (point.at.as_secs(), plan.length().as_secs());
    format!("{title}: {at} of {length} s, {}: {}", plan.phases[point.phase].name, classes.join("; "))
}
