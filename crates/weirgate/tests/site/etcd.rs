//! An etcd of several members with empty folders.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::gateway::{free_port, kill};

pub(crate) struct Etcd {
    members: Vec<Member>,
    _data: TempDir,
}

struct Member {
    address: String,
    arguments: Vec<String>,
    process: Option<Child>,
}

impl Etcd {
    /// Starts so many members, or says that the test is skipped.
    pub(crate) fn start(count: usize) -> Option<Etcd> {
        let data = tempfile::tempdir().expect("a folder");
        let address = |_| format!("127.0.0.1:{}", free_port());
        let clients: Vec<String> = (0..count).map(address).collect();
        let peers: Vec<String> = (0..count).map(|index| format!("http://{}", address(index))).collect();
        let all: Vec<String> = peers.iter().enumerate().map(|(index, peer)| format!("m{index}={peer}")).collect();
        let member = |(index, (address, peer)): (usize, (&String, &String))| {
            let folder = data.path().join(format!("m{index}")).display().to_string();
            let client = format!("http://{address}");
            let arguments = [
                ["--name", &format!("m{index}")],
                ["--initial-cluster", &all.join(",")],
                ["--data-dir", &folder],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", peer],
                ["--initial-advertise-peer-urls", peer],
            ];
            let arguments = arguments.concat().into_iter().map(str::to_owned).collect();
            Member { address: address.clone(), arguments, process: None }
        };
        let members = clients.iter().zip(&peers).enumerate().map(member).collect();
        let mut etcd = Etcd { members, _data: data };
        (0..count).all(|index| etcd.begin(index)).then_some(etcd)
    }

    /// URLs of the members, as a policy names them.
    pub(crate) fn endpoints(&self) -> String {
        let urls: Vec<String> = self.members.iter().map(|member| format!("\"http://{}\"", member.address)).collect();
        urls.join(", ")
    }

    /// Starts a member, with the folder that it has.
    pub(crate) fn begin(&mut self, index: usize) -> bool {
        let member = &mut self.members[index];
        let started = Command::new("etcd").args(&member.arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
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
