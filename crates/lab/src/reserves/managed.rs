//! Coordinator and agents of a run, as processes.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cluster::Cluster;
use super::scenario::Coordinator;
use super::{CLASSES, NODES, SHARE};
use crate::process::Process;

/// Name of the policy file in a run's directory.
const POLICY: &str = "policy.yaml";

/// Coordinator and agents. Dropping it kills them.
pub(super) struct Managed {
    program: PathBuf,
    directory: PathBuf,
    agents: Vec<Option<Process>>,
    coordinator: Option<Process>,
    /// Socket of the coordinator's page.
    pub(super) admin: PathBuf,
    log: Vec<String>,
}

impl Managed {
    /// Prepares a run. No process is started yet.
    ///
    /// # Errors
    /// The policy cannot be written.
    pub(super) fn new(terms: Coordinator, program: &Path, directory: &Path) -> Result<Managed, String> {
        let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = listener.map_err(|error| format!("a port on loopback: {error}"))?.port();
        // The path of a socket has at most 107 bytes, and that of a run directory may be longer.
        let admin = std::env::temp_dir().join(format!("weirgate-lab-{}-coordinator.sock", std::process::id()));
        let file = directory.join(POLICY);
        fs::write(&file, policy(terms, port, &admin)).map_err(|error| format!("{}: {error}", file.display()))?;
        let agents = (0..NODES).map(|_| None).collect();
        let (program, directory) = (program.to_owned(), directory.to_owned());
        Ok(Managed { program, directory, agents, coordinator: None, admin, log: Vec::new() })
    }

    /// Starts a node's agent.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start_agent(&mut self, cluster: &Cluster, node: usize) -> Result<(), String> {
        let name = name(node);
        let (root, size) = (cluster.node(node), cluster.size.to_string());
        let mut command = Command::new(&self.program);
        command.arg("agent").arg(self.directory.join(POLICY)).args(["--node", &name, "--cgroup-root", &root]);
        command.args(["--cpus", &size, "--state"]).arg(self.directory.join(format!("state-{name}")));
        self.agents[node] = Some(self.start(&name, &mut command)?);
        Ok(())
    }

    /// Starts the coordinator.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start_coordinator(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.arg("coordinator").arg(self.directory.join(POLICY));
        self.coordinator = Some(self.start(COORDINATOR, &mut command)?);
        Ok(())
    }

    fn start(&mut self, name: &str, command: &mut Command) -> Result<Process, String> {
        // The log of a killed process is kept.
        self.take_log(name);
        Process::start(name, command, None, &self.log_file(name)).map_err(|error| error.to_string())
    }

    pub(super) fn kill_agent(&mut self, node: usize) {
        self.agents[node] = None;
    }

    pub(super) fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// Returns whether the coordinator was started and not killed since.
    pub(super) fn has_coordinator(&self) -> bool {
        self.coordinator.is_some()
    }

    /// Checks that all started processes still run.
    ///
    /// # Errors
    /// A process has exited. The error quotes its output.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for process in self.agents.iter_mut().flatten().chain(&mut self.coordinator) {
            if let Some(words) = process.ended().map_err(|error| error.to_string())? {
                let name = words.split(' ').next().unwrap_or_default();
                let said = fs::read_to_string(self.directory.join(format!("{name}.log"))).unwrap_or_default();
                return Err(format!("{words}\n{said}"));
            }
        }
        Ok(())
    }

    /// Asks all processes to stop, waits for their end, and returns their logs.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn stop(mut self) -> Result<Vec<String>, String> {
        for process in self.agents.iter_mut().filter_map(Option::take).chain(self.coordinator.take()) {
            process.stop().map_err(|error| error.to_string())?;
        }
        (0..NODES).map(name).chain([COORDINATOR.to_owned()]).for_each(|name| self.take_log(&name));
        Ok(self.log)
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    fn take_log(&mut self, name: &str) {
        let file = self.log_file(name);
        let text = fs::read_to_string(&file).unwrap_or_default();
        self.log.extend(text.lines().map(|line| format!("{name}: {line}")));
        // The text is in `log` now. The file may be missing, and then there is nothing to empty.
        let _ = OpenOptions::new().write(true).truncate(true).open(&file);
    }
}

/// Name of the coordinator's process.
const COORDINATOR: &str = "coordinator";

pub(super) fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

fn policy(terms: Coordinator, port: u16, admin: &Path) -> String {
    let every = terms.every.map_or_else(|| "off".to_owned(), |every| format!("{}s", every.as_secs()));
    let on_demand = if terms.on_demand { "true" } else { "false" };
    let nodes: Vec<String> = (0..NODES).map(name).collect();
    let mut text = format!(
        "reserves:\n  listen: 127.0.0.1:{port}\n  admin: \"unix:{}\"\n  every: {every}\n  on_demand: {on_demand}\n  \
         nodes: [{}]\n  classes:\n",
        admin.display(),
        nodes.join(", ")
    );
    for class in 1..=CLASSES {
        let _ = writeln!(text, "    - {{ name: c{class}, share: {SHARE}%, cgroup: c{class} }}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_policy_is_sound() {
        for (every, on_demand) in [(None, true), (Some(Duration::from_secs(5)), false)] {
            let terms = Coordinator { from: Duration::ZERO, every, on_demand };
            let text = policy(terms, 9903, Path::new("/run/x.sock"));
            let loaded = weirgate_config::load("policy.yaml", &text);
            let reserves = loaded.unwrap_or_else(|errors| panic!("{errors}")).site.reserves.expect("it has reserves");
            assert_eq!((reserves.cluster.nodes.len(), reserves.cluster.classes.len()), (NODES, CLASSES));
            assert_eq!((reserves.every, reserves.on_demand), (every, on_demand));
        }
    }
}
