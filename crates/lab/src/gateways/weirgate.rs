//! Weirgate itself, as operators run it: `weirgate run` on a policy file.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use weirgate_config::{Deployment, Override, admin, deployed_policy};

use super::{Gateway, Setting, State};
use crate::clock;
use crate::process::{Process, cpu_time};

/// What is needed beside the setting: the program, and the file whose policy it gets.
#[derive(Clone, Debug)]
pub struct Source {
    /// The command `weirgate`.
    pub program: PathBuf,
    /// The experiment file.
    pub file: PathBuf,
    /// Changes to it, the discipline among them.
    pub overrides: Vec<Override>,
}

/// `weirgate run` under way.
#[derive(Debug)]
pub struct Weirgate {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    version: String,
    /// Per node of the policy its upstream and name.
    nodes: Vec<(String, String)>,
}

/// How long it may take to be ready: a second is ample, a busy machine takes longer.
const START: Duration = Duration::from_secs(20);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long an answer of the admin API may take. It has a thread of its own, on the gateway's CPU.
const ANSWER: Duration = Duration::from_secs(5);

/// Longest answer that is read: a page of a few classes is some kilobytes.
const LONGEST: u64 = 4 << 20;

impl Weirgate {
    /// Starts it on `setting`.
    ///
    /// # Errors
    /// The policy cannot be deployed, or the gateway does not come up: with its own words.
    pub fn start(setting: &Setting<'_>, source: &Source) -> Result<Weirgate, String> {
        let [address, admin] = free_addresses()?;
        let nodes = setting.experiment.site.policy.nodes.iter().cloned().zip(setting.addresses.iter().copied());
        let deployment = Deployment { listen: address, admin, threads: 1, nodes: nodes.collect() };
        let text =
            deployed_policy(&source.file, &source.overrides, &deployment).map_err(|errors| errors.to_string())?;
        let file = setting.directory.join("policy.yaml");
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let log = setting.directory.join("weirgate.log");
        let mut command = Command::new(&source.program);
        command.arg("run").arg(&file);
        let process = Process::start("weirgate", &mut command, setting.cpu, &log).map_err(|error| error.to_string())?;
        let mut gateway = Weirgate { process, address, admin, version: version(&source.program)?, nodes: Vec::new() };
        gateway.wait(&log)?;
        // Its nodes in the order of the policy, under the names that the deployed policy gives them.
        let page = gateway.page()?;
        gateway.nodes = page.engine.nodes.into_iter().map(|node| (node.pool, node.name)).collect();
        Ok(gateway)
    }

    /// Waits until it is ready.
    fn wait(&mut self, log: &Path) -> Result<(), String> {
        let started = clock::now();
        loop {
            if let Ok((200, _)) = self.ask("GET", "/ready") {
                return Ok(());
            }
            let ended = self.process.ended().map_err(|error| error.to_string())?;
            if ended.is_some() || clock::now() - started > START {
                let words = std::fs::read_to_string(log).unwrap_or_default();
                return Err(format!("{}:\n{words}", ended.unwrap_or_else(|| format!("not ready after {START:?}"))));
            }
            clock::sleep(LOOK);
        }
    }

    /// The engine and its first classes, which are those of the policy.
    fn page(&self) -> Result<Page, String> {
        let (_, body) = self.ask("GET", "/snapshot?limit=1000")?;
        serde_json::from_str(&body).map_err(|error| format!("admin API at {}: /snapshot: {error}", self.admin))
    }

    /// Asks the admin API; the status and the body.
    fn ask(&self, method: &str, path: &str) -> Result<(u16, String), String> {
        let failed = |error: std::io::Error| format!("admin API at {}: {error}", self.admin);
        let mut stream = TcpStream::connect_timeout(&self.admin, ANSWER).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER)).map_err(failed)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.admin
        );
        stream.write_all(head.as_bytes()).map_err(failed)?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).map_err(failed)?;
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&answer) {
            Ok(httparse::Status::Complete(length)) => {
                Ok((response.code.unwrap_or(0), String::from_utf8_lossy(&answer[length..]).into_owned()))
            }
            _ => Err(format!("admin API at {}: the answer to {path} is not HTTP", self.admin)),
        }
    }
}

/// `/snapshot`.
#[derive(Debug, Deserialize)]
struct Page {
    engine: admin::Snapshot,
    classes: Vec<admin::Class>,
}

/// Two addresses on loopback that are free now. Another program may take them before the gateway does; it then
/// says so, and the trial fails with its words.
fn free_addresses() -> Result<[SocketAddr; 2], String> {
    let bind =
        || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let pair = bind().and_then(|first| Ok((first, bind()?)));
    let ((first, _held), (second, _)) = pair.map_err(|error| format!("no port is free on loopback: {error}"))?;
    Ok([first, second])
}

/// What `weirgate --version` says.
fn version(program: &Path) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| format!("{}: cannot be started: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().replacen("weirgate", "Weirgate", 1))
}

impl Gateway for Weirgate {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn set_out(&mut self, node: usize, out: bool) -> Result<(), String> {
        let (pool, name) = self.nodes.get(node).ok_or_else(|| format!("the policy has no node {node}"))?;
        let path = format!("/nodes/{pool}/{name}/{}", if out { "drain" } else { "undrain" });
        match self.ask("POST", &path)? {
            (200, _) => Ok(()),
            (status, body) => Err(format!("POST {path}: {status} {body}")),
        }
    }

    fn state(&mut self) -> Option<State> {
        let page = self.page().ok()?;
        let waiting = page.classes.iter().map(|class| class.waiting).collect();
        Some(State { window: page.engine.window, outstanding: page.engine.outstanding, waiting })
    }

    fn cpu_time(&self) -> Duration {
        // A process whose times cannot be read has just ended; the trial finds that out by itself.
        cpu_time(self.process.id()).unwrap_or_default()
    }

    fn ended(&mut self) -> Option<String> {
        self.process.ended().ok().flatten()
    }
}
