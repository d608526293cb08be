//! The experiment `proxy-cpu`: CPU time of a request in Weirgate, HAProxy, nginx and a bare relay, in several cases.
//!
//! `experiments/proxy-cpu/README.md` describes the measurement.

mod process;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::release;
use crate::steps::{new_run_folder, read, show, target, within};
use process::Process;
pub(crate) use process::program;
use report::Run;

/// Number of rounds, unless another one is asked for. They are many and short, so that other work on the machine
/// affects every proxy alike. A few bad rounds do not move the median of nine.
const ROUNDS: usize = 9;
/// Seconds before each measured run: connections are open and caches warm.
const WARM_UP: u32 = 1;
/// Seconds of a measured run: CPU time is counted in steps of 10 ms, which is then 0.3 %.
const MEASURED: u32 = 3;
/// The port of the nodes, and the first address, which the configurations have. All are one process, so that the number
/// of nodes changes only the work of the proxies.
const NODE_PORT: u16 = 18100;
const NODE: &str = "127.0.0.1:18100";
/// Number of nodes in the case with many.
const MANY: usize = 1000;
/// Number of nodes of the relay in that case. Each of the 64 clients has a connection of its own to every one of them,
/// so that it uses a thousand connections in turn, as a proxy in front of a thousand nodes does.
const RELAYED: usize = MANY / 64 + 1;
/// The core of the proxies with one thread.
const PROXY_CORE: &str = "0";
/// The core of the node and the load.
const LOAD_CORE: &str = "1";
/// The cores of the proxies with two threads, which share the second one with the load.
const BOTH_CORES: &str = "0,1";

/// A kind of load.
#[derive(Debug)]
struct Case {
    name: &'static str,
    /// Script of `wrk`, in `experiments/proxy-cpu`.
    script: &'static str,
    connections: u32,
    set: Set,
    /// Part of HAProxy's rate in the first case at which requests are sent. `None` sends as many as are answered.
    rate: Option<f64>,
}

/// A set of proxies that run beside one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// With one thread in front of one node, and the way without a proxy.
    One,
    /// With two threads in front of one node.
    TwoThreads,
    /// With one thread in front of one node, and again in front of [`MANY`].
    ManyNodes,
}

impl Set {
    fn threads(self) -> u32 {
        if self == Set::TwoThreads { 2 } else { 1 }
    }
}

const CASES: [Case; 7] = [
    Case { name: "1 KB", script: "load.lua", connections: 64, set: Set::One, rate: None },
    Case { name: "10 MB", script: "large.lua", connections: 4, set: Set::One, rate: None },
    Case { name: "connection per request", script: "close.lua", connections: 64, set: Set::One, rate: None },
    Case { name: "1 KB at 30 % load", script: "paced.lua", connections: 64, set: Set::One, rate: Some(0.3) },
    Case { name: "1 KB at 90 % load", script: "paced.lua", connections: 64, set: Set::One, rate: Some(0.9) },
    Case { name: "1 KB with two threads", script: "load.lua", connections: 64, set: Set::TwoThreads, rate: None },
    Case { name: report::MANY_NODES, script: "load.lua", connections: 64, set: Set::ManyNodes, rate: None },
];

/// A proxy: its name, its port and its process. The way without a proxy has none.
struct Proxy {
    name: &'static str,
    port: u16,
    process: Option<Process>,
}

/// Runs the experiment and writes `bench/runs/DATE-proxy-cpu/`.
pub(crate) fn run() -> Result<(), String> {
    let asked = Asked::read(std::env::args().skip(3))?;
    let weirgate = release::program()?;
    let setup = report::setup(&asked)?;
    let runs = within("proxy-cpu", |directory| Bench::start(&weirgate, directory)?.measure(&asked))?;
    report::write(&new_run_folder("proxy-cpu")?, &setup, &runs)
}

/// The cases and the number of rounds that a run plays.
#[derive(Debug)]
struct Asked {
    /// The options, as they follow the command.
    options: String,
    cases: Vec<&'static Case>,
    rounds: usize,
}

impl Asked {
    /// Reads `--case NAME` and `--rounds N`. The first case is played before any that sends a part of its rate.
    fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut asked = Asked { options: String::new(), cases: CASES.iter().collect(), rounds: ROUNDS };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            asked.options += &format!(" {option} {value:?}");
            match option.as_str() {
                "--case" => {
                    asked.cases.retain(|case| case.name == value);
                    let Some(case) = asked.cases.first() else {
                        return Err(format!(
                            "there is no case {value:?}, but {}",
                            CASES.map(|case| case.name).join("; ")
                        ));
                    };
                    if case.rate.is_some() {
                        asked.cases.insert(0, &CASES[0]);
                    }
                }
                "--rounds" => match value.parse() {
                    Ok(rounds) if rounds > 0 => asked.rounds = rounds,
                    _ => return Err(format!("--rounds {value}: not a number of rounds")),
                },
                _ => return Err(format!("{option} is unknown: there are --case NAME and --rounds N")),
            }
        }
        Ok(asked)
    }
}

/// Lets `weirgate` serve each load of [`CASES`] that has one thread and no pauses, for `seconds`.
pub(crate) fn play(weirgate: &Path, seconds: u32) -> Result<(), String> {
    within("proxy-cpu", |directory| {
        let bench = Bench::start(weirgate, directory)?;
        let proxy = bench.proxy(bench.weirgate("weirgate", Setting::of(Set::One, 18101))?, Set::One)?;
        for case in CASES.iter().filter(|case| case.set == Set::One && case.rate.is_none()) {
            println!("   {}: {seconds} s", case.name);
            bench.load(case, proxy.port, seconds, 0.0)?;
        }
        Ok(())
    })
}

/// Returns the addresses of this many nodes.
fn addresses(nodes: usize) -> impl Iterator<Item = String> {
    // 127.0.0.1, 127.0.0.2 and so on.
    (0..nodes).map(|at| format!("127.0.{}.{}:{NODE_PORT}", at / 250, at % 250 + 1))
}

/// Changes to a configuration of the experiment.
#[derive(Clone, Copy, Debug)]
struct Setting {
    threads: u32,
    nodes: usize,
    /// Port of the proxy.
    port: u16,
}

impl Setting {
    fn of(set: Set, port: u16) -> Setting {
        Setting { threads: set.threads(), nodes: 1, port }
    }

    fn many_nodes(port: u16) -> Setting {
        Setting { threads: 1, nodes: MANY, port }
    }

    /// Changes a configuration: the number of threads, the port, and the node with its idle connections.
    fn apply(self, text: &str) -> String {
        let mut out = String::new();
        for line in text.lines() {
            // A list of a policy, or one line for each node.
            if let Some((before, after)) = line.split_once(&format!("[{NODE}]")) {
                out += &format!("{before}[{}]{after}\n", addresses(self.nodes).collect::<Vec<_>>().join(", "));
            } else if line.contains(NODE) {
                for (at, node) in addresses(self.nodes).enumerate() {
                    let server = format!("server node{at} ");
                    out += &format!("{}\n", line.replace(NODE, &node).replace("server node ", &server));
                }
            } else {
                let mut line = line.to_owned();
                for word in ["nbthread", "worker_processes", "threads:"] {
                    line = line.replace(&format!("{word} 1"), &format!("{word} {}", self.threads));
                }
                if let Some((before, port)) = line.split_once("127.0.0.1:") {
                    let rest = port.trim_start_matches(|c: char| c.is_ascii_digit());
                    line = format!("{before}127.0.0.1:{}{rest}", self.port);
                }
                // nginx has one limit for the idle connections to all servers.
                line = line.replace("keepalive 128;", &format!("keepalive {};", self.nodes.max(128)));
                out += &format!("{line}\n");
            }
        }
        out
    }
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
        let mut node = vec![bare.clone(), "node".into()];
        node.extend(addresses(MANY).map(PathBuf::from));
        let node = Process::start(LOAD_CORE, &node, NODE_PORT)?;
        let experiment = crate::root().join("experiments/proxy-cpu");
        Ok(Bench { weirgate, experiment, directory, bare, _node: node })
    }

    fn measure(&self, asked: &Asked) -> Result<Vec<Run>, String> {
        let mut runs: Vec<Run> = Vec::new();
        let mut proxies = (None, Vec::new());
        for &case in &asked.cases {
            if proxies.0 != Some(case.set) {
                // The ports are those of the proxies before.
                proxies.1.clear();
                proxies = (Some(case.set), self.proxies(case.set)?);
            }
            let full = report::rate_of("haproxy", CASES[0].name, &runs);
            let pause = case.rate.map_or(0.0, |part| 1e3 * f64::from(case.connections) / (part * full));
            for round in 0..asked.rounds {
                for turn in 0..proxies.1.len() {
                    let proxy: &Proxy = &proxies.1[(round + turn) % proxies.1.len()];
                    // It passes on the request to end the connection, and nobody ends it.
                    if proxy.name == report::RELAY && case.script == "close.lua" {
                        continue;
                    }
                    self.load(case, proxy.port, WARM_UP, pause)?;
                    let used = || proxy.process.as_ref().map_or(Ok(0.0), Process::cpu_seconds);
                    let before = used()?;
                    let result = self.load(case, proxy.port, MEASURED, pause)?;
                    let cpu = used()? - before;
                    let run = Run::new(case.name, round + 1, proxy.name, cpu, &result)?;
                    println!("   {}, round {} of {}: {run}", case.name, round + 1, asked.rounds);
                    runs.push(run);
                }
            }
        }
        Ok(runs)
    }

    /// Starts all proxies of a set.
    fn proxies(&self, set: Set) -> Result<Vec<Proxy>, String> {
        let few = |port| Setting::of(set, port);
        let mut commands = vec![
            self.weirgate("weirgate", few(18101))?,
            self.haproxy("haproxy", "haproxy.cfg", few(18102))?,
            self.nginx("nginx", few(18103))?,
        ];
        if set == Set::ManyNodes {
            commands.push(self.weirgate("weirgate-1000", Setting::many_nodes(18106))?);
            commands.push(self.haproxy("haproxy-1000", "haproxy.cfg", Setting::many_nodes(18107))?);
            commands.push(self.nginx("nginx-1000", Setting::many_nodes(18108))?);
            commands.push(self.relay("relay-1000", 18109, RELAYED));
        } else {
            commands.push(self.haproxy(report::EQUAL, "haproxy-equal.cfg", few(18104))?);
        }
        // It has one thread.
        if set != Set::TwoThreads {
            commands.push(self.relay(report::RELAY, 18105, 1));
        }
        let mut proxies =
            commands.into_iter().map(|command| self.proxy(command, set)).collect::<Result<Vec<_>, _>>()?;
        if set == Set::One {
            proxies.push(Proxy { name: report::DIRECT, port: NODE_PORT, process: None });
        }
        Ok(proxies)
    }

    fn weirgate(&self, name: &'static str, setting: Setting) -> Result<Commanded, String> {
        let policy = self.configured("weirgate.yaml", setting)?;
        Ok((name, setting.port, vec![self.weirgate.into(), "run".into(), policy]))
    }

    fn haproxy(&self, name: &'static str, file: &str, setting: Setting) -> Result<Commanded, String> {
        let file = self.configured(file, setting)?;
        Ok((name, setting.port, vec![program("haproxy")?, "-db".into(), "-f".into(), file]))
    }

    fn nginx(&self, name: &'static str, setting: Setting) -> Result<Commanded, String> {
        let (folder, file) = (self.directory.into(), self.configured("nginx.conf", setting)?);
        let command = vec![program("nginx")?, "-p".into(), folder, "-e".into(), "stderr".into(), "-c".into(), file];
        Ok((name, setting.port, command))
    }

    fn relay(&self, name: &'static str, port: u16, nodes: usize) -> Commanded {
        let mut command = vec![self.bare.clone(), "relay".into(), format!("127.0.0.1:{port}").into()];
        command.extend(addresses(nodes).map(PathBuf::from));
        (name, port, command)
    }

    fn proxy(&self, (name, port, command): Commanded, set: Set) -> Result<Proxy, String> {
        let core = if set.threads() == 1 { PROXY_CORE } else { BOTH_CORES };
        Ok(Proxy { name, port, process: Some(Process::start(core, &command, port)?) })
    }

    /// Copies `file` of the experiment with a setting.
    fn configured(&self, file: &str, setting: Setting) -> Result<PathBuf, String> {
        let text = std::fs::read_to_string(self.experiment.join(file)).map_err(|e| format!("{file}: {e}"))?;
        let place = self.directory.join(format!("{}-{file}", setting.port));
        std::fs::write(&place, setting.apply(&text)).map_err(|e| format!("{}: {e}", place.display()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose_cases_and_rounds() {
        let read = |words: &[&str]| Asked::read(words.iter().map(|&word| word.to_owned()));
        let names =
            |words: &[&str]| read(words).map(|asked| asked.cases.iter().map(|case| case.name).collect::<Vec<_>>());
        assert_eq!(names(&[]).map(|all| all.len()), Ok(CASES.len()));
        assert_eq!(names(&["--case", "10 MB"]), Ok(vec!["10 MB"]));
        assert_eq!(names(&["--case", "1 KB at 90 % load"]), Ok(vec!["1 KB", "1 KB at 90 % load"]));
        let options = read(&["--case", "10 MB", "--rounds", "27"]).map(|asked| asked.options);
        assert_eq!(options.as_deref(), Ok(r#" --case "10 MB" --rounds "27""#));
        assert_eq!(read(&["--rounds", "45"]).map(|asked| asked.rounds), Ok(45));
        for wrong in [&["--case", "11 MB"][..], &["--rounds", "0"], &["--rounds"], &["--quick", "1"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_setting_changes_nothing_but_threads_ports_and_nodes() {
        let file = |name: &str| {
            std::fs::read_to_string(crate::root().join("experiments/proxy-cpu").join(name)).expect("it is there")
        };
        for (name, port, threads) in [
            ("weirgate.yaml", 18101, "threads: 2"),
            ("haproxy.cfg", 18102, "nbthread 2"),
            ("nginx.conf", 18103, "worker_processes 2;"),
        ] {
            let text = file(name);
            let same = Setting::of(Set::One, port).apply(&text);
            // Servers of HAProxy are numbered.
            assert_eq!(same.replace("server node0 ", "server node "), text, "{name}");
            assert!(Setting::of(Set::TwoThreads, port).apply(&text).contains(threads), "{name}");
            let many = Setting::many_nodes(port + 5).apply(&text);
            assert!(many.contains(&format!("127.0.0.1:{}", port + 5)), "{name}");
            assert!(!many.contains(&format!("127.0.0.1:{port}")), "{name}");
            assert_eq!(many.matches(&format!(":{NODE_PORT}")).count(), MANY, "{name}");
            assert!(many.contains("127.0.3.250:18100"), "{name}");
        }
        assert!(Setting::many_nodes(18108).apply(&file("nginx.conf")).contains("keepalive 1000;"));
    }
}
