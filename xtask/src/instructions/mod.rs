//! The experiment `instructions`: user instructions, allocations and system calls of one request in Weirgate, HAProxy
//! and nginx.
//!
//! Callgrind counts every instruction of a process outside of the kernel, and strace every system call, so a count does
//! not depend on the other work of the machine. Each proxy serves [`FEW`] requests in one run and [`MANY`] in another,
//! all on one connection. The difference divided by the number of requests between is the cost of one request, without
//! start and end. The node is a thread of this program. `experiments/instructions/README.md` has figures.
//!
//! Weirgate's instructions and allocations have budgets. A change that exceeds one fails here, and not months later in
//! a comparison. System calls have none: a client alone wakes the gateway for each of its requests, and many at once do
//! not.

mod counts;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::exchange::{BROWSER, Client, Node, Stopped, occupy};
use crate::proxy_cpu::program;
use crate::steps::{becomes_true, built, within};

/// Requests of the two runs. The difference averages over timers and reallocations.
const FEW: u32 = 500;
const MANY: u32 = 2500;

/// Maximum number of allocations of a request, whatever its kind.
const ALLOCATIONS: f64 = 3.0;

/// A kind of request.
struct Case {
    name: &'static str,
    path: &'static str,
    fields: &'static str,
    /// Status of the response.
    status: &'static str,
    /// Maximum count for Weirgate: half a percent above the present one, which is more than two builds differ.
    budget: f64,
    /// The count that the project aims at.
    target: f64,
}

const CASES: [Case; 4] = [
    Case { name: "minimal head", path: "/gold/", fields: "", status: "200", budget: 22_500.0, target: 25_000.0 },
    Case { name: "browser's head", path: "/gold/", fields: BROWSER, status: "200", budget: 23_100.0, target: 37_000.0 },
    Case { name: "shed, minimal head", path: "/denied", fields: "", status: "503", budget: 9_440.0, target: 10_000.0 },
    Case {
        name: "shed, browser's head",
        path: "/denied",
        fields: BROWSER,
        status: "503",
        budget: 9_620.0,
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
        Proxy::weirgate(weirgate, case).serve(Command::new("env"), &node, case, requests)
    })
}

fn count_all(weirgate: &Path, directory: &Path) -> Result<Vec<&'static str>, String> {
    let node = Node::start()?;
    let tools = Tools { callgrind: tool("valgrind")?, strace: tool("strace")?, directory };
    let here = here();
    let (haproxy, nginx) = (program("haproxy").ok(), program("nginx").ok());
    println!("   user instructions, allocations and system calls of a request");
    println!("   {:22} {:>21} {:>7} {:>7} {:>21} {:>21}", "", "Weirgate", "budget", "target", "HAProxy", "nginx");
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
        let ours = tools.work(&ours, &node, case)?;
        let peer = |proxy: Option<Proxy>| match proxy {
            Some(proxy) => tools.work(&proxy, &node, case).map(|work| work.to_string()),
            None => Ok("-".to_owned()),
        };
        let (haproxy, nginx) = (peer(haproxy)?, peer(nginx)?);
        let Case { name, budget, target, .. } = case;
        println!("   {name:22} {ours:>21} {budget:>7} {target:>7} {haproxy:>21} {nginx:>21}");
        if ours.instructions > *budget || ours.allocations > ALLOCATIONS {
            exceeded.push(case.name);
        }
    }
    Ok(exceeded)
}

/// Place of the configurations.
fn here() -> PathBuf {
    crate::root().join("experiments/instructions")
}

fn tool(name: &str) -> Result<PathBuf, String> {
    program(name).map_err(|_| format!("{name} is missing: apt-get install {name}"))
}

/// What one request takes.
struct Work {
    instructions: f64,
    allocations: f64,
    system_calls: f64,
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Work { instructions, allocations, system_calls } = self;
        f.pad(&format!("{instructions:.0} {allocations:5.1} {system_calls:5.1}"))
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
    fn work(&self, proxy: &Proxy, node: &Node, case: &Case) -> Result<Work, String> {
        let [few, many] = [self.totals(proxy, node, case, FEW)?, self.totals(proxy, node, case, MANY)?];
        let each = |of: fn(&[u64; 3]) -> u64| of(&many).saturating_sub(of(&few)) as f64 / f64::from(MANY - FEW);
        Ok(Work { instructions: each(|t| t[0]), allocations: each(|t| t[1]), system_calls: each(|t| t[2]) })
    }

    /// Returns the instructions, allocations and system calls of a process that serves `requests`.
    fn totals(&self, proxy: &Proxy, node: &Node, case: &Case, requests: u32) -> Result<[u64; 3], String> {
        let file = self.directory.join("counts");
        let mut callgrind = Command::new(&self.callgrind);
        callgrind.args(["--tool=callgrind", "--quiet"]).arg(format!("--callgrind-out-file={}", file.display()));
        proxy.serve(callgrind, node, case, requests)?;
        let text = read(&file)?;
        let instructions = counts::instructions(&text).ok_or("callgrind gave no total")?;
        // The traced process stays the child of this one, which can so end it in an orderly way.
        let mut strace = Command::new(&self.strace);
        strace.args(["-D", "-f", "-c", "-o"]).arg(&file);
        proxy.serve(strace, node, case, requests)?;
        let mut calls = None;
        becomes_true(|| {
            calls = read(&file).ok().and_then(|text| counts::system_calls(&text));
            calls.is_some()
        });
        Ok([instructions, counts::allocations(&text), calls.ok_or("strace gave no total")?])
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

    /// Starts the proxy under `tool`, asks `requests` one after another, and ends it.
    fn serve(&self, mut tool: Command, node: &Node, case: &Case, requests: u32) -> Result<(), String> {
        let tool = tool.args(&self.command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = tool.spawn().map_err(|e| format!("{}: {e}", tool.get_program().to_string_lossy()))?;
        let mut process = Stopped(child);
        let line = || self.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let up = becomes_true(|| TcpStream::connect(("127.0.0.1", self.port)).is_ok() || process.has_ended());
        if !up || process.has_ended() {
            return Err(format!("`{}` does not serve under {}", line(), tool.get_program().to_string_lossy()));
        }
        let (held, mut client) = match case.status {
            "503" => occupy(self.port, node, case.path, case.fields)?,
            _ => (Vec::new(), Client::connect(self.port)?),
        };
        for _ in 0..requests {
            let answer = client.ask(case.path, case.fields)?;
            if answer != case.status {
                return Err(format!("`{}` answers {answer} to {}, not {}", line(), case.path, case.status));
            }
        }
        // Without requests in flight every proxy ends at the first signal.
        drop((held, client));
        process.stop()
    }
}
