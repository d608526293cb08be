//! The experiment `instructions`: user instructions, allocations and system calls of one request in Weirgate, HAProxy
//! and nginx.
//!
//! Callgrind counts every instruction of a process outside of the kernel, and strace every system call, so a count does
//! not depend on the other work of the machine. Each proxy serves [`FEW`] requests in one run and [`MANY`] in another,
//! both spread over [`SPAN`]. So the runs share start, end and what a proxy does each second whatever it serves, and
//! their difference divided by the number of requests between is the cost of one request. The work of a second is the
//! difference of two runs with as many requests and different spans. Callgrind slows a proxy by a factor that depends
//! on the machine. Runs that ask as fast as they can would count more of the seconds' work on a slower one.
//!
//! The node is a thread of this program. `experiments/instructions/README.md` has figures.
//!
//! Weirgate's counts have budgets. A change that exceeds one fails here, and not months later in a comparison.

mod counts;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use weirgate_clock::{Clock, pause};

use crate::exchange::{BROWSER, Client, Node, Stopped, occupy};
use crate::proxy_cpu::program;
use crate::steps::{becomes_true, built, within};

/// Requests of the two runs. The difference averages over timers and reallocations.
const FEW: u32 = 512;
const MANY: u32 = 2560;

/// Duration of a run. 1,000 requests a second are a third of what the slowest machine so far served under callgrind.
const SPAN: Duration = Duration::from_millis(2_560);

/// Maximum delay of a run's end. The work of as much time is counted as that of the requests, less than 20
/// instructions each. A later run is repeated, up to this many times.
const LATE: Duration = Duration::from_millis(100);
const REPEATED: u32 = 3;

/// A kind of request.
struct Case {
    name: &'static str,
    path: &'static str,
    fields: &'static str,
    /// Status of the response.
    status: &'static str,
    /// Number of clients, which ask at the same moments. One alone wakes the proxy for each of its requests. Many let
    /// it take and send several at once, as under load.
    clients: u32,
    /// Maximum for Weirgate. Instructions are half a percent above the present count, which is more than two builds
    /// differ.
    budget: Work,
    /// The instructions that the project aims at.
    target: f64,
}

const CASES: [Case; 5] = [
    Case {
        name: "minimal head",
        path: "/gold/",
        fields: "",
        status: "200",
        clients: 1,
        budget: Work { instructions: 22_950.0, allocations: 3.0, system_calls: 6.5 },
        target: 25_000.0,
    },
    Case {
        name: "browser's head",
        path: "/gold/",
        fields: BROWSER,
        status: "200",
        clients: 1,
        budget: Work { instructions: 23_550.0, allocations: 3.0, system_calls: 6.5 },
        target: 37_000.0,
    },
    Case {
        name: "32 clients, browser's head",
        path: "/gold/",
        fields: BROWSER,
        status: "200",
        clients: 32,
        budget: Work { instructions: 22_600.0, allocations: 3.0, system_calls: 4.2 },
        target: 37_000.0,
    },
    Case {
        name: "shed, minimal head",
        path: "/denied",
        fields: "",
        status: "503",
        clients: 1,
        budget: Work { instructions: 9_440.0, allocations: 3.0, system_calls: 3.2 },
        target: 10_000.0,
    },
    Case {
        name: "shed, browser's head",
        path: "/denied",
        fields: BROWSER,
        status: "503",
        clients: 1,
        budget: Work { instructions: 9_620.0, allocations: 3.0, system_calls: 3.2 },
        target: 10_000.0,
    },
];

/// Counts all cases and prints a table.
pub(crate) fn run() -> Result<(), String> {
    let gateway = built(&["weirgate"])?.join("weirgate");
    let exceeded = within("instructions", |directory| count_all(&gateway, directory))?;
    if exceeded.is_empty() { Ok(()) } else { Err(format!("over their budget: {}", exceeded.join(", "))) }
}

/// Lets `weirgate` serve `requests` of each case, and counts nothing.
pub(crate) fn play(weirgate: &Path, requests: u32) -> Result<(), String> {
    let node = Node::start()?;
    CASES.iter().try_for_each(|case| {
        println!("   {}: {requests} requests", case.name);
        Proxy::weirgate(weirgate, case).serve(&Command::new("env"), &node, case, requests, Duration::ZERO)?;
        Ok(())
    })
}

fn count_all(weirgate: &Path, directory: &Path) -> Result<Vec<&'static str>, String> {
    let node = Node::start()?;
    let tools = Tools { callgrind: tool("valgrind")?, strace: tool("strace")?, directory };
    let here = here();
    let (haproxy, nginx) = (program("haproxy").ok(), program("nginx").ok());
    println!("   user instructions, allocations and system calls of a request");
    println!("   {:26} {:>17} {:>17} {:>7} {:>17} {:>17}", "", "Weirgate", "budget", "target", "HAProxy", "nginx");
    let mut exceeded = Vec::new();
    for case in &CASES {
        let ours = Proxy::weirgate(weirgate, case);
        let haproxy = haproxy.as_ref().map(|program| Proxy {
            port: 18_112,
            command: vec![program.clone(), "-db".into(), "-f".into(), here.join("haproxy.cfg")],
        });
        let nginx = nginx.as_ref().map(|program| {
            let mut command = vec![program.clone(), "-p".into(), directory.into(), "-e".into(), "stderr".into()];
            command.extend(["-c".into(), here.join("nginx.conf")]);
            Proxy { port: 18_113, command }
        });
        let ours = tools.request(&ours, &node, case)?;
        let peer = |proxy: Option<Proxy>| match proxy {
            Some(proxy) => tools.request(&proxy, &node, case).map(|work| work.to_string()),
            None => Ok("-".to_owned()),
        };
        let (haproxy, nginx) = (peer(haproxy)?, peer(nginx)?);
        let Case { name, budget, target, .. } = case;
        println!("   {name:26} {ours:>17} {budget:>17} {target:>7} {haproxy:>17} {nginx:>17}");
        if ours.exceeds(budget) {
            exceeded.push(*name);
        }
    }
    let [case, ..] = &CASES;
    let second = tools.second(&Proxy::weirgate(weirgate, case), &node, case)?;
    println!("   {:26} {second:>17}", "Weirgate, each second");
    Ok(exceeded)
}

/// Place of the configurations.
fn here() -> PathBuf {
    crate::root().join("experiments/instructions")
}

fn tool(name: &str) -> Result<PathBuf, String> {
    program(name).map_err(|_| format!("{name} is missing: apt-get install {name}"))
}

/// The cost of a request, a second or a run.
struct Work {
    instructions: f64,
    allocations: f64,
    system_calls: f64,
}

impl Work {
    /// Returns the difference to `less`, divided by `parts`.
    fn beyond(&self, less: &Work, parts: f64) -> Work {
        let part = |of: fn(&Work) -> f64| (of(self) - of(less)) / parts;
        Work {
            instructions: part(|work| work.instructions),
            allocations: part(|work| work.allocations),
            system_calls: part(|work| work.system_calls),
        }
    }

    fn exceeds(&self, budget: &Work) -> bool {
        self.instructions > budget.instructions
            || self.allocations > budget.allocations
            || self.system_calls > budget.system_calls
    }
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Work { instructions, allocations, system_calls } = self;
        f.pad(&format!("{instructions:.0} {allocations:.1} {system_calls:4.1}"))
    }
}

/// The programs that count.
struct Tools<'a> {
    callgrind: PathBuf,
    strace: PathBuf,
    /// Place of their files.
    directory: &'a Path,
}

impl Tools<'_> {
    /// Returns what one request takes.
    fn request(&self, proxy: &Proxy, node: &Node, case: &Case) -> Result<Work, String> {
        let few = self.total(proxy, node, case, FEW, SPAN)?;
        Ok(self.total(proxy, node, case, MANY, SPAN)?.beyond(&few, f64::from(MANY - FEW)))
    }

    /// Returns what one second takes, whatever is served.
    fn second(&self, proxy: &Proxy, node: &Node, case: &Case) -> Result<Work, String> {
        let short = self.total(proxy, node, case, FEW, SPAN)?;
        Ok(self.total(proxy, node, case, FEW, 2 * SPAN)?.beyond(&short, SPAN.as_secs_f64()))
    }

    /// Returns what a process takes that serves `requests` in `span`.
    fn total(&self, proxy: &Proxy, node: &Node, case: &Case, requests: u32, span: Duration) -> Result<Work, String> {
        let file = self.directory.join("counts");
        let mut callgrind = Command::new(&self.callgrind);
        callgrind.args(["--tool=callgrind", "--quiet"]).arg(format!("--callgrind-out-file={}", file.display()));
        let mut late = proxy.serve(&callgrind, node, case, requests, span)?;
        for _ in 0..REPEATED {
            if late > LATE {
                late = proxy.serve(&callgrind, node, case, requests, span)?;
            }
        }
        if late > LATE {
            let (requests, span) = (requests, span.as_secs_f64());
            return Err(format!(
                "{requests} requests took {:.1} s instead of {span:.1} s: this machine is busy or slow",
                span + late.as_secs_f64()
            ));
        }
        let text = read(&file)?;
        let instructions = counts::instructions(&text).ok_or("callgrind gave no total")?;
        // The traced process stays the child of this one, which can so end it in an orderly way.
        let mut strace = Command::new(&self.strace);
        strace.args(["-D", "-f", "-c", "-o"]).arg(&file);
        proxy.serve(&strace, node, case, requests, span)?;
        let mut calls = None;
        becomes_true(|| {
            calls = read(&file).ok().and_then(|text| counts::system_calls(&text));
            calls.is_some()
        });
        Ok(Work {
            instructions: instructions as f64,
            allocations: counts::allocations(&text) as f64,
            system_calls: calls.ok_or("strace gave no total")? as f64,
        })
    }
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))
}

/// A proxy that listens on `port`.
struct Proxy {
    port: u16,
    command: Vec<PathBuf>,
}

impl Proxy {
    fn weirgate(program: &Path, case: &Case) -> Proxy {
        let policy = if case.status == "503" { "shed.yaml" } else { "weirgate.yaml" };
        Proxy { port: 18_111, command: vec![program.into(), "run".into(), here().join(policy)] }
    }

    /// Starts the proxy under `tool`, sends it `requests` spread over `span`, and ends it. Returns how much later than
    /// planned the last answer came.
    fn serve(
        &self,
        tool: &Command,
        node: &Node,
        case: &Case,
        requests: u32,
        span: Duration,
    ) -> Result<Duration, String> {
        let mut command = Command::new(tool.get_program());
        command.args(tool.get_args()).args(&self.command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| format!("{}: {e}", tool.get_program().to_string_lossy()))?;
        let mut process = Stopped(child);
        let line = || self.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let up = becomes_true(|| TcpStream::connect(("127.0.0.1", self.port)).is_ok() || process.has_ended());
        if !up || process.has_ended() {
            return Err(format!("`{}` does not serve under {}", line(), tool.get_program().to_string_lossy()));
        }
        let (held, mut clients) = match case.status {
            "503" => occupy(self.port, node, case.path, case.fields).map(|(held, client)| (held, vec![client]))?,
            _ => (Vec::new(), (0..case.clients).map(|_| Client::connect(self.port)).collect::<Result<_, _>>()?),
        };
        let clock = Clock::start();
        let rounds = requests / case.clients;
        for round in 0..rounds {
            for client in &mut clients {
                client.send(case.path, case.fields)?;
            }
            for client in &mut clients {
                let answer = client.answer()?;
                if answer != case.status {
                    return Err(format!("`{}` answers {answer} to {}, not {}", line(), case.path, case.status));
                }
            }
            pause((span * (round + 1) / rounds).saturating_sub(clock.now()));
        }
        let late = clock.now().saturating_sub(span);
        // Without requests in flight every proxy ends at the first signal. nginx misses one that comes while it looks
        // at its connections.
        drop((held, clients));
        pause(LATE);
        process.stop()?;
        Ok(late)
    }
}
