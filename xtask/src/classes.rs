//! The experiment `classes`: a policy with 10,000 classes. How long the gateway takes to start and to reload it, and
//! whether its memory grows with each reload.
//!
//! Times are those until the gateway says that it is ready, or that the policy is in force. All figures have targets
//! and no budgets: the times depend on the machine, and the memory on how pages of old and new configurations mix.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;

use weirgate_clock::{Clock, pause};

use crate::exchange::Stopped;
use crate::memory::resident;
use crate::steps::{built, within};

/// Number of classes, each with a host, a path and a promise.
const CLASSES: u32 = 10_000;

const STARTS: usize = 5;
const RELOADS: usize = 10;

/// The time that the project aims at.
const TARGET: Duration = Duration::from_millis(300);

/// Memory after all reloads, as a part of that after the first one, that the project aims at.
const GROWTH: f64 = 1.1;

/// Time after which the gateway has given back what it needed for a reload.
const REST: Duration = Duration::from_secs(4);

/// Port of the gateway. Nobody asks it anything, and no node listens.
const PORT: u16 = 18_141;

/// Measures starts and reloads, and prints them.
pub(crate) fn run() -> Result<(), String> {
    let program = built(&["weirgate"])?.join("weirgate");
    within("classes", |directory| measure(&program, &directory.join("policy.yaml")))
}

fn measure(program: &Path, policy: &Path) -> Result<(), String> {
    write(policy, 1)?;
    let mut starts = Vec::new();
    for _ in 1..STARTS {
        let (mut gateway, took) = Gateway::start(program, policy)?;
        starts.push(took);
        gateway.process.stop()?;
    }
    let (mut gateway, took) = Gateway::start(program, policy)?;
    starts.push(took);
    print("start", starts);
    let id = gateway.process.0.id();
    let rested = || {
        pause(REST);
        resident(id)
    };
    let before = rested()?;
    // Another promise for each class, so that everything is new.
    let mut reload = |round| write(policy, 2 - round % 2).and_then(|()| gateway.reload());
    let mut reloads = vec![reload(0)?];
    let first = rested()?;
    for round in 1..RELOADS {
        reloads.push(reload(round)?);
    }
    let last = rested()?;
    gateway.process.stop()?;
    print("reload", reloads);

    let mb = |kb: u64| kb as f64 / 1024.0;
    let grown = last as f64 / first as f64;
    println!(
        "   memory: {:.0} MB after the start, {:.0} MB after a reload, {:.0} MB after {RELOADS}",
        mb(before),
        mb(first),
        mb(last)
    );
    println!("   {grown:.2} of that after one, target {GROWTH}");
    Ok(())
}

/// Prints the times of an operation, in seconds.
fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let [low, median, high] = [0, times.len() / 2, times.len() - 1].map(|at| times[at].as_secs_f64());
    let target = TARGET.as_secs_f64();
    println!(
        "   {what}: {median:.2} s ({low:.2}-{high:.2}), target {target:.1} s, {CLASSES} classes, {} times",
        times.len()
    );
}

/// Writes a policy that promises each class `rate` requests a second.
fn write(policy: &Path, rate: usize) -> Result<(), String> {
    let mut text = format!(
        "listen: 127.0.0.1:{PORT}\nadmin: off\nupstreams: {{ web: {{ nodes: [127.0.0.1:{}] }} }}\nclasses:\n",
        PORT + 1
    );
    for class in 0..CLASSES {
        let matched = format!("host: h{class}.test, path_prefix: /p{class}");
        let promise = format!("throughput: {rate}/s, response_time: {{ p95: 1s }}");
        let _ = writeln!(text, "  - {{ name: c{class}, match: {{ {matched} }}, guarantee: {{ {promise} }} }}");
    }
    text += "  - { name: other }\n";
    std::fs::write(policy, text).map_err(|e| format!("{}: {e}", policy.display()))
}

struct Gateway {
    process: Stopped,
    messages: BufReader<ChildStderr>,
}

impl Gateway {
    /// Starts the gateway, and returns the time until it is ready.
    fn start(program: &Path, policy: &Path) -> Result<(Gateway, Duration), String> {
        let clock = Clock::start();
        let mut command = Command::new(program);
        command.arg("run").arg(policy).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
        let messages = child.stderr.take().ok_or("the gateway has no messages")?;
        let mut gateway = Gateway { process: Stopped(child), messages: BufReader::new(messages) };
        gateway.wait_for("weirgate: ready")?;
        Ok((gateway, clock.now()))
    }

    /// Lets it reload its policy, and returns the time until that is in force.
    fn reload(&mut self) -> Result<Duration, String> {
        let clock = Clock::start();
        let id = self.process.0.id().to_string();
        let told = Command::new("kill").args(["-s", "HUP", &id]).status();
        told.map_err(|e| format!("kill: {e}"))?;
        self.wait_for("SIGHUP")?;
        Ok(clock.now())
    }

    /// Reads the gateway's messages up to the first one with `text`.
    fn wait_for(&mut self, text: &str) -> Result<(), String> {
        let mut said = String::new();
        loop {
            let from = said.len();
            let read = self.messages.read_line(&mut said).map_err(|e| format!("the gateway's messages: {e}"))?;
            if said[from..].contains(text) {
                return Ok(());
            }
            if read == 0 {
                return Err(format!("the gateway ends without {text:?}: {said}"));
            }
        }
    }
}
