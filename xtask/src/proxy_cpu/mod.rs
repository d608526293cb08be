//! The experiment `proxy-cpu`: CPU time of a request in Weirgate, HAProxy, nginx and a bare relay, in several cases.
//!
//! `experiments/proxy-cpu/README.md` describes the measurement.

mod process;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::release;
use crate::steps::{read, run_folder, show, target, within};
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
/// The address of the node.
const NODE: &str = "127.0.0.1:18100";
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
    Case { name: "1 KB at 30 % load", script: "paced.lua", connections: 64, threads: 1, rate: Some(0.3) },
    Case { name: "1 KB at 90 % load", script: "paced.lua", connections: 64, threads: 1, rate: Some(0.9) },
    Case { name: "1 KB with two threads", script: "load.lua", connections: 64, threads: 2, rate: None },
];

/// A proxy: its name, its port and its process.
struct Proxy {
    name: &'static str,
    port: u16,
    process: Process,
}

/// Runs the experiment and writes `bench/runs/DATE-proxy-cpu/`.
pub(crate) fn run() -> Result<(), String> {
    let weirgate = release::program()?;
    let setup = report::setup()?;
    let runs = within("proxy-cpu", |directory| Bench::start(&weirgate, directory)?.measure())?;
    report::write(&run_folder("proxy-cpu")?, &setup, &runs)
}

/// Lets `weirgate` serve each load of [`CASES`] that has one thread and no pauses, for `seconds`.
pub(crate) fn play(weirgate: &Path, seconds: u32) -> Result<(), String> {
    within("proxy-cpu", |directory| {
        let bench = Bench::start(weirgate, directory)?;
        let proxy = bench.proxy(bench.weirgate(1)?, 1)?;
        for case in CASES.iter().filter(|case| case.threads == 1 && case.rate.is_none()) {
            println!("   {}: {seconds} s", case.name);
            bench.load(case, proxy.port, seconds, 0.0)?;
        }
        Ok(())
    })
}

/// Name, port and command of a proxy.
type Commanded = (&'static str, u16, Vec<PathBuf>);

/// The files of the experiment, and its node, which runs as long as this value lives.
struct Bench<'a> {
    /// The program that is measured.
    weirgate: &'a Path,
    /// Place of configurations and loads.
    experiment: PathBuf,
    /// Place of what a run writes.
    directory: &'a Path,
    /// The program that is the node and the relay.
    bare: PathBuf,
    _node: Process,
}

impl<'a> Bench<'a> {
    fn start(weirgate: &'a Path, directory: &'a Path) -> Result<Bench<'a>, String> {
        let build =
            ["build", "--locked", "--profile", "production", "--package", "weirgate-emulator", "--example", "bare"];
        show(Command::new(env!("CARGO")).args(build))?;
        let bare = target().join("production/examples/bare");
        let node = Process::start(LOAD_CORE, &[bare.clone(), "node".into(), NODE.into()], 18100)?;
        let experiment = crate::root().join("experiments/proxy-cpu");
        Ok(Bench { weirgate, experiment, directory, bare, _node: node })
    }

    fn measure(&self) -> Result<Vec<Run>, String> {
        let mut runs: Vec<Run> = Vec::new();
        let mut proxies = (0, Vec::new());
        for case in &CASES {
            if proxies.0 != case.threads {
                // The ports are those of the proxies before.
                proxies.1.clear();
                proxies = (case.threads, self.proxies(case.threads)?);
            }
            let full = report::rate_of("haproxy", CASES[0].name, &runs);
            let pause = case.rate.map_or(0.0, |part| 1e3 * f64::from(case.connections) / (part * full));
            for round in 0..ROUNDS {
                for turn in 0..proxies.1.len() {
                    let proxy: &Proxy = &proxies.1[(round + turn) % proxies.1.len()];
                    // It passes on the request to end the connection, and nobody ends it.
                    if proxy.name == report::RELAY && case.script == "close.lua" {
                        continue;
                    }
                    self.load(case, proxy.port, WARM_UP, pause)?;
                    let before = proxy.process.cpu_seconds()?;
                    let result = self.load(case, proxy.port, MEASURED, pause)?;
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
    fn proxies(&self, threads: u32) -> Result<Vec<Proxy>, String> {
        let haproxy = |file: &str| -> Result<Vec<PathBuf>, String> {
            Ok(vec![program("haproxy")?, "-db".into(), "-f".into(), self.configured(file, "nbthread", threads)?])
        };
        let (folder, file) = (self.directory.into(), self.configured("nginx.conf", "worker_processes", threads)?);
        let nginx = vec![program("nginx")?, "-p".into(), folder, "-e".into(), "stderr".into(), "-c".into(), file];
        let mut commands = vec![
            self.weirgate(threads)?,
            ("haproxy", 18102, haproxy("haproxy.cfg")?),
            (report::EQUAL, 18104, haproxy("haproxy-equal.cfg")?),
            ("nginx", 18103, nginx),
        ];
        // It has one thread.
        if threads == 1 {
            let relay = vec![self.bare.clone(), "relay".into(), "127.0.0.1:18105".into(), NODE.into()];
            commands.push((report::RELAY, 18105, relay));
        }
        commands.into_iter().map(|command| self.proxy(command, threads)).collect()
    }

    fn weirgate(&self, threads: u32) -> Result<Commanded, String> {
        let policy = self.configured("weirgate.yaml", "threads:", threads)?;
        Ok(("weirgate", 18101, vec![self.weirgate.into(), "run".into(), policy]))
    }

    fn proxy(&self, (name, port, command): Commanded, threads: u32) -> Result<Proxy, String> {
        let core = if threads == 1 { PROXY_CORE } else { BOTH_CORES };
        Ok(Proxy { name, port, process: Process::start(core, &command, port)? })
    }

    /// Copies `file` of the experiment with this number of threads in `setting`.
    fn configured(&self, file: &str, setting: &str, threads: u32) -> Result<PathBuf, String> {
        let text = std::fs::read_to_string(self.experiment.join(file)).map_err(|e| format!("{file}: {e}"))?;
        let place = self.directory.join(file);
        let text = text.replace(&format!("{setting} 1"), &format!("{setting} {threads}"));
        std::fs::write(&place, text).map_err(|e| format!("{}: {e}", place.display()))?;
        Ok(place)
    }

    /// Loads `port` for `seconds` and returns the output of `wrk`. `pause` is the mean time between two requests of a
    /// connection in milliseconds.
    fn load(&self, case: &Case, port: u16, seconds: u32, pause: f64) -> Result<String, String> {
        read(
            Command::new("taskset")
                .args(["-c", LOAD_CORE, "wrk", "--latency", "-t1", &format!("-c{}", case.connections)])
                .args([&format!("-d{seconds}s"), "-s"])
                .arg(self.experiment.join(case.script))
                .env("LUA_PATH", format!("{}/?.lua;;", self.experiment.display()))
                .arg(format!("http://127.0.0.1:{port}/"))
                .arg(pause.to_string()),
        )
        .map_err(|why| format!("{why}; `cargo xtask packages` installs wrk"))
    }
}
