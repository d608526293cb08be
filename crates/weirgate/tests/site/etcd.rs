//! An etcd of several members with empty folders.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use tempfile::TempDir;
use weirgate_http_client::Address;

use crate::gateway::{free_port, get, kill};
use crate::net::Net;

/// End of the name of a member's metrics socket. etcd wants the form of an address with a port.
const METRICS: &str = ":1";

pub(crate) struct Etcd {
    members: Vec<Member>,
    data: TempDir,
}

struct Member {
    name: String,
    address: String,
    arguments: Vec<String>,
    process: Option<Child>,
}

impl Etcd {
    /// Starts the members of these names, or says that the test is skipped.
    pub(crate) fn start(names: &[&str], net: &Net) -> Option<Etcd> {
        let data = tempfile::tempdir().expect("a folder");
        let address = |name: &&str| format!("{}:{}", net.control(name), free_port());
        let clients: Vec<String> = names.iter().map(address).collect();
        let peers: Vec<String> = names.iter().map(|name| format!("http://{}", address(name))).collect();
        let all: Vec<String> = names.iter().zip(&peers).map(|(name, peer)| format!("{name}={peer}")).collect();
        let member = |(name, (address, peer)): (&&str, (&String, &String))| {
            let folder = data.path().join(name).display().to_string();
            let client = format!("http://{address}");
            let arguments = [
                ["--name", *name],
                ["--initial-cluster", &all.join(",")],
                ["--data-dir", &folder],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", peer],
                ["--initial-advertise-peer-urls", peer],
                ["--listen-metrics-urls", &format!("unix://{name}{METRICS}")],
            ];
            let arguments = arguments.concat().into_iter().map(str::to_owned).collect();
            Member { name: (*name).to_owned(), address: address.clone(), arguments, process: None }
        };
        let members = names.iter().zip(clients.iter().zip(&peers)).map(member).collect();
        let mut etcd = Etcd { members, data };
        (0..names.len()).all(|index| etcd.begin(index, net)).then_some(etcd)
    }

    /// URLs of the members, as a policy names them.
    pub(crate) fn endpoints(&self) -> String {
        let urls: Vec<String> = self.members.iter().map(|member| format!("\"http://{}\"", member.address)).collect();
        urls.join(", ")
    }

    /// Calls that all members have answered so far, and entries that their log has: elections, leases, and writes of
    /// keys.
    pub(crate) fn counts(&self) -> [f64; 2] {
        let figures = self.members.iter().filter_map(|member| {
            let (_, page) = get(&Address::Unix(self.metrics(member)), "/metrics")?;
            let page = String::from_utf8(page).ok()?;
            let sum = |name: &str| -> f64 {
                let lines = page.lines().filter(|line| line.starts_with(name));
                lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
            };
            Some([sum("grpc_server_handled_total{"), sum("etcd_server_proposals_committed_total ")])
        });
        // Every member has the same log.
        figures.fold([0.0; 2], |all, of| [all[0] + of[0], all[1].max(of[1])])
    }

    /// The socket of a member's metrics, which is reached from every network namespace.
    fn metrics(&self, member: &Member) -> PathBuf {
        self.data.path().join(format!("{}{METRICS}", member.name))
    }

    /// Starts a member, with the folder that it has.
    pub(crate) fn begin(&mut self, index: usize, net: &Net) -> bool {
        // A killed member leaves its socket, and would not start beside it.
        let _ = std::fs::remove_file(self.metrics(&self.members[index]));
        let member = &mut self.members[index];
        let mut command = net.command(&member.name, "etcd");
        let started = command
            .current_dir(self.data.path())
            .args(&member.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            Ok(process) => {
                member.process = Some(process);
                true
            }
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: etcd cannot be started: {error}");
                false
            }
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn signal(&self, index: usize, signal: &str) {
        if let Some(process) = &self.members[index].process {
            kill(signal, process.id());
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
    }
}
