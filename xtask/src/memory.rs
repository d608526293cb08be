//! The experiment `memory`: resident memory of a connection to Weirgate, and what is given back when clients leave.
//!
//! `experiments/memory/README.md` describes the measurement.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::exchange::{BROWSER, Client, Node, Stopped};
use crate::steps::{asked, becomes_true, built, read};

/// Number of connections, unless another one is asked for.
const CONNECTIONS: u32 = 20_000;

/// Open files of a process for each connection. The gateway keeps one for the connection to a node.
const FILES: u32 = 2;

/// Open files of a process besides its connections.
const SPARE: u32 = 200;

/// Time after the last client has left.
const AFTERWARDS: Duration = Duration::from_secs(15);

/// Time without a change after which the gateway has served all that it has received.
const QUIET: Duration = Duration::from_secs(1);

/// A state of connections.
struct State {
    name: &'static str,
    port: u16,
    /// Maximum kilobytes (1024 bytes) of a connection: about 5 % above the present ones.
    budget: f64,
    /// The figure that the project aims at.
    target: f64,
    enter: fn(&mut Client) -> Result<(), String>,
}

const STATES: [State; 3] = [
    State { name: "silent", port: 18_121, budget: 1.3, target: 2.0, enter: |_| Ok(()) },
    State { name: "idle", port: 18_122, budget: 3.1, target: 6.0, enter: |client| client.ask("/", BROWSER).map(drop) },
    State { name: "waiting", port: 18_123, budget: 4.8, target: 9.0, enter: |client| client.send("/", BROWSER) },
];

/// Maximum part of the memory of connections that the process keeps after they have ended.
const KEPT: f64 = 0.5;

/// Measures all states and prints a table.
pub(crate) fn run() -> Result<(), String> {
    let gateway = built(&["weirgate"])?.join("weirgate");
    let asked = asked("--connections", CONNECTIONS)?;
    let connections = allow_files(asked * FILES + SPARE)?.saturating_sub(SPARE) / FILES;
    let node = Node::start()?;
    println!("   {connections} connections of each kind, of {asked} that were asked for");
    println!(
        "   {:8} {:>9} {:>7} {:>7} {:>9} {:>9} {:>9}",
        "", "KB each", "budget", "target", "MB before", "with", "after"
    );
    let mut broken = Vec::new();
    for state in &STATES {
        let [before, with, after] = measure(&gateway, &node, state, connections)?;
        let each = with.saturating_sub(before) as f64 / f64::from(connections);
        let kept = after.saturating_sub(before) as f64 / with.saturating_sub(before).max(1) as f64;
        let mb = |kb: u64| kb as f64 / 1024.0;
        let State { name, budget, target, .. } = state;
        println!(
            "   {name:8} {each:>9.2} {budget:>7} {target:>7} {:>9.1} {:>9.1} {:>9.1}, {:.0} % kept",
            mb(before),
            mb(with),
            mb(after),
            kept * 100.0
        );
        if each > *budget || kept > KEPT {
            broken.push(*name);
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("over their budget: {}", broken.join(", "))) }
}

/// Returns the resident kilobytes of the gateway before its connections, with them and after them.
fn measure(weirgate: &Path, node: &Node, state: &State, connections: u32) -> Result<[u64; 3], String> {
    let child = Command::new(weirgate)
        .arg("run")
        .arg(crate::root().join("experiments/memory/weirgate.yaml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("{}: {e}", weirgate.display()))?;
    let id = child.id();
    let mut process = Stopped(child);
    let mut client = None;
    if !becomes_true(|| {
        client = Client::connect(state.port).ok();
        client.is_some() || process.has_ended()
    }) || process.has_ended()
    {
        return Err("the gateway does not serve".to_owned());
    }
    let mut first = client.ok_or("the gateway does not serve")?;
    first.ask("/", "")?;
    let before = settled(id)?;
    if state.name == "waiting" {
        let held = node.held();
        first.send("/hold", "")?;
        if !becomes_true(|| node.held() > held) {
            return Err("the node gets no request".to_owned());
        }
    }
    let mut clients = Vec::new();
    for _ in 0..connections {
        let mut client = Client::connect(state.port)?;
        (state.enter)(&mut client)?;
        clients.push(client);
    }
    let with = settled(id)?;
    drop((clients, first));
    weirgate_clock::pause(AFTERWARDS);
    let after = resident(id)?;
    process.stop()?;
    Ok([before, with, after])
}

/// Returns the resident memory of a process in kilobytes, once it no longer changes.
fn settled(id: u32) -> Result<u64, String> {
    let mut last = resident(id)?;
    loop {
        weirgate_clock::pause(QUIET);
        let now = resident(id)?;
        if now.abs_diff(last) < 16 {
            return Ok(now);
        }
        last = now;
    }
}

/// Returns the resident memory of a process in kilobytes.
pub(crate) fn resident(id: u32) -> Result<u64, String> {
    let file = format!("/proc/{id}/status");
    let status = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the gateway has ended")?;
    line.trim().trim_end_matches(" kB").parse().map_err(|_| format!("{file}: VmRSS:{line}"))
}

/// Raises the limit on open files of this process, which the gateway inherits, to `count`. Returns the number of them
/// that it may have.
fn allow_files(count: u32) -> Result<u32, String> {
    let own = std::process::id().to_string();
    let set = |limit: &str| read(Command::new("prlimit").args(["--pid", &own, &format!("--nofile={limit}")]));
    if set(&format!("{count}:{count}")).is_ok() {
        return Ok(count);
    }
    let hard = read(Command::new("prlimit").args(["--pid", &own, "--nofile", "--output=HARD", "--noheadings"]))?;
    let hard = hard.trim();
    set(&format!("{hard}:{hard}"))?;
    hard.parse::<u32>().map(|hard| hard.min(count)).map_err(|_| format!("prlimit says {hard:?}"))
}
