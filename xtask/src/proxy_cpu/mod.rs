//! The experiment `proxy-cpu`: CPU time of a request in Weirgate, HAProxy, nginx and a bare relay, in several cases.
//!
//! `experiments/proxy-cpu/README.md` describes the measurement.

mod process;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{read, show, target};
use process::Process;
pub(crate) use process::program;
use report::Run;

/// Number of rounds. They are many and short, so that other work on the machine affects every proxy alike. A few
/// bad rounds do not move the median of nine.
const ROUNDS: usize = 9;
/// Seconds before each measured run: connections are open and caches warm.
const WARM_UP: u32 = 1;
/// Seconds of a measured run: CPU time is counted in steps of 10 ms, which is then 0.3 %.
const MEASURED: u32 = 3;
/// The core of the proxies with one thread.
const PROXY_CORE: &str = "0";
/// The core of the node and the load.
const LOAD_CORE: &str = "1";
/// The cores of the proxies with two threads, which share the second one with the load.
const BOTH_CORES: &str = "0,1";

/// A kind of load.
struct Case {
    name: &'static str,
    /// Script of `wrk`, in `experiments/proxy-cpu`.
    script: &'static str,
    connections: u32,
    threads: u32,
    /// Part of HAProxy's rate in the first case at which requests are sent. `None` sends as many as are answered.
    rate: Option<f64>,
}

const CASES: [Case; 6] = [
    Case { name: "1 KB", script: "load.lua", connections: 64, threads: 1, rate: None },
    Case { name: "10 MB", script: "large.lua", connections: 4, threads: 1, rate: None },
    Case { name: "connection per request", script: "close.lua", connections: 64, threads: 1, rate: None },
    Case { name: "1 KB, 30 % load", script: "paced.lua", connections: 64, threads: 1, rate: Some(0.3) },
    Case { name: "1 KB, 90 % load", script: "paced.lua", connections: 64, threads: 1, rate: Some(0.9) },
    Case { name: "1 KB, two threads", script: "load.lua", connections: 64, threads: 2, rate: None },
];

/// A proxy: its name, its port and its process.
struct Proxy {
    name: &'static str,
    port: u16,
    process: Process,
}

/// Runs the experiment and writes `bench/runs/DATE-proxy-cpu/`.
pub(crate) fn run() -> Result<(), String> {
    for what in [&["--package", "weirgate"][..], &["--package", "weirgate-emulator", "--example", "relay"]] {
        show(Command::new(env!("CARGO")).args(["build", "--locked", "--profile", "production"]).args(what))?;
    }
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
    // The node's two pages. Their content does not matter.
    for (name, bytes) in [("page", 1024), ("large", 10 << 20)] {
        let page = directory.join(name);
        std::fs::write(&page, vec![b'w'; bytes]).map_err(|e| format!("{}: {e}", page.display()))?;
    }
    let node = nginx(directory, &experiment.join("node.conf"))?;
    let _node = Process::start(LOAD_CORE, &node, 18100)?;
    let mut runs: Vec<Run> = Vec::new();
    let mut proxies = (0, Vec::new());
    for case in &CASES {
        if proxies.0 != case.threads {
            // The ports are those of the proxies before.
            proxies.1.clear();
            proxies = (case.threads, start(experiment, directory, case.threads)?);
        }
        let full = report::rate_of("haproxy", CASES[0].name, &runs);
        let pause = case.rate.map_or(0.0, |part| 1e3 * f64::from(case.connections) / (part * full));
        for round in 0..ROUNDS {
            for turn in 0..proxies.1.len() {
                let proxy: &Proxy = &proxies.1[(round + turn) % proxies.1.len()];
                load(experiment, case, proxy.port, WARM_UP, pause)?;
                let before = proxy.process.cpu_seconds()?;
                let result = load(experiment, case, proxy.port, MEASURED, pause)?;
                let cpu = proxy.process.cpu_seconds()? - before;
                let run = Run::new(case.name, round + 1, proxy.name, cpu, &result)?;
                println!("   {}, round {} of {ROUNDS}: {run}", case.name, round + 1);
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// Starts all proxies with this number of threads.
fn start(experiment: &Path, directory: &Path, threads: u32) -> Result<Vec<Proxy>, String> {
    let configured = |file: &str, setting: &str| -> Result<PathBuf, String> {
        let text = std::fs::read_to_string(experiment.join(file)).map_err(|e| format!("{file}: {e}"))?;
        let place = directory.join(file);
        let text = text.replace(&format!("{setting} 1"), &format!("{setting} {threads}"));
        std::fs::write(&place, text).map_err(|e| format!("{}: {e}", place.display()))?;
        Ok(place)
    };
    let weirgate = target().join("production/weirgate");
    let haproxy = |file: &str| -> Result<Vec<PathBuf>, String> {
        Ok(vec![program("haproxy")?, "-db".into(), "-f".into(), configured(file, "nbthread")?])
    };
    let mut commands = vec![
        ("weirgate", 18101, vec![weirgate, "run".into(), configured("weirgate.yaml", "threads:")?]),
        ("haproxy", 18102, haproxy("haproxy.cfg")?),
        (report::EQUAL, 18104, haproxy("haproxy-equal.cfg")?),
        ("nginx", 18103, nginx(directory, &configured("nginx.conf", "worker_processes")?)?),
    ];
    // It has one thread.
    if threads == 1 {
        let relay = target().join("production/examples/relay");
        commands.push(("relay", 18105, vec![relay, "127.0.0.1:18105".into(), "127.0.0.1:18100".into()]));
    }
    let core = if threads == 1 { PROXY_CORE } else { BOTH_CORES };
    let start = |(name, port, command): (_, _, Vec<PathBuf>)| {
        Ok(Proxy { name, port, process: Process::start(core, &command, port)? })
    };
    commands.into_iter().map(start).collect()
}

fn nginx(directory: &Path, file: &Path) -> Result<Vec<PathBuf>, String> {
    let options = ["-p".into(), directory.into(), "-e".into(), "stderr".into(), "-c".into(), file.into()];
    Ok([program("nginx")?].into_iter().chain(options).collect())
}

/// Loads `port` for `seconds` and returns the output of `wrk`. `pause` is the mean time between two requests of a
/// connection in milliseconds.
fn load(experiment: &Path, case: &Case, port: u16, seconds: u32, pause: f64) -> Result<String, String> {
    read(
        Command::new("taskset")
            .args(["-c", LOAD_CORE, "wrk", "--latency", "-t1", &format!("-c{}", case.connections)])
            .args([&format!("-d{seconds}s"), "-s"])
            .arg(experiment.join(case.script))
            .env("LUA_PATH", format!("{}/?.lua;;", experiment.display()))
            .arg(format!("http://127.0.0.1:{port}/"))
            .arg(pause.to_string()),
    )
    .map_err(|why| format!("{why}; `cargo xtask packages` installs wrk"))
}
