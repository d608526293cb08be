//! The experiment `proxy-cpu`: CPU time of a request in Weirgate, HAProxy and nginx.
//!
//! `experiments/proxy-cpu/README.md` describes the measurement.

mod process;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{read, show};
use process::Process;
pub(crate) use process::program;
use report::Run;

/// Number of rounds. They are many and short, so that other work on the machine affects every proxy alike. A few
/// bad rounds do not move the median of 15.
const ROUNDS: usize = 15;
/// Seconds before each measured run: connections are open and caches warm.
const WARM_UP: u32 = 1;
/// Seconds of a measured run: CPU time is counted in steps of 10 ms, which is then 0.3 %.
const MEASURED: u32 = 3;
/// The core of the proxies.
const PROXY_CORE: &str = "0";
/// The core of the node and the load.
const LOAD_CORE: &str = "1";

/// A proxy: its name, its port and how it is started.
struct Proxy {
    name: &'static str,
    port: u16,
    process: Process,
}

/// Runs the experiment and writes `bench/runs/DATE-proxy-cpu/`.
pub(crate) fn run() -> Result<(), String> {
    show(Command::new(env!("CARGO")).args(["build", "--locked", "--profile", "production", "--package", "weirgate"]))?;
    let experiment = crate::root().join("experiments/proxy-cpu");
    let directory = std::env::temp_dir().join(format!("weirgate-proxy-cpu-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let setup = report::setup()?;
    let runs = measure(&experiment, &directory);
    let removed = std::fs::remove_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()));
    let runs = runs?;
    removed?;
    let date = read(Command::new("date").arg("+%Y-%m-%d"))?;
    let place = crate::root().join(format!("bench/runs/{}-proxy-cpu", date.trim()));
    report::write(&place, &setup, &runs)
}

fn measure(experiment: &Path, directory: &Path) -> Result<Vec<Run>, String> {
    // The node's only page. Its content does not matter.
    let page = directory.join("page");
    std::fs::write(&page, [b'w'; 1024]).map_err(|e| format!("{}: {e}", page.display()))?;
    let nginx = |file: &str| -> Result<Vec<PathBuf>, String> {
        Ok(vec![
            program("nginx")?,
            "-p".into(),
            directory.into(),
            "-e".into(),
            "stderr".into(),
            "-c".into(),
            experiment.join(file),
        ])
    };
    let weirgate = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
    let _node = Process::start(LOAD_CORE, &nginx("node.conf")?, 18100)?;
    let commands = [
        ("weirgate", 18101, vec![weirgate.join("production/weirgate"), "run".into(), experiment.join("weirgate.yaml")]),
        ("haproxy", 18102, vec![program("haproxy")?, "-db".into(), "-f".into(), experiment.join("haproxy.cfg")]),
        ("nginx", 18103, nginx("nginx.conf")?),
    ];
    let mut proxies = Vec::new();
    for (name, port, command) in commands {
        proxies.push(Proxy { name, port, process: Process::start(PROXY_CORE, &command, port)? });
    }
    let mut runs = Vec::new();
    for round in 0..ROUNDS {
        for turn in 0..proxies.len() {
            let proxy = &proxies[(round + turn) % proxies.len()];
            load(experiment, proxy.port, WARM_UP)?;
            let before = proxy.process.cpu_seconds()?;
            let result = load(experiment, proxy.port, MEASURED)?;
            let cpu = proxy.process.cpu_seconds()? - before;
            let run = Run::new(round + 1, proxy.name, cpu, &result)?;
            println!("   round {} of {ROUNDS}: {run}", round + 1);
            runs.push(run);
        }
    }
    Ok(runs)
}

/// Loads `port` for `seconds` and returns the output of `wrk`.
fn load(experiment: &Path, port: u16, seconds: u32) -> Result<String, String> {
    read(
        Command::new("taskset")
            .args(["-c", LOAD_CORE, "wrk", "--latency", "-t1", "-c64", &format!("-d{seconds}s"), "-s"])
            .arg(experiment.join("load.lua"))
            .arg(format!("http://127.0.0.1:{port}/")),
    )
    .map_err(|why| format!("{why}; `cargo xtask packages` installs wrk"))
}
