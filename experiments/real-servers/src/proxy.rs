//! The proxies that stand before the servers in turn.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::cluster::{Cluster, haproxy};
use crate::machine::{Cores, free_addresses};
use crate::process::{Directory, Process};
use crate::template::fill;
use crate::terms::Terms;

/// What stands before the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Weirgate with a window that grows only while it is full.
    Weirgate,
    /// Weirgate with Quorum exactly as published: the window grows in any calm.
    WeirgateAsPublished,
    /// Debian's HAProxy, which sends each request to the server with the fewest connections.
    HaProxy,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Proxy::Weirgate => "weirgate",
            Proxy::WeirgateAsPublished => "as published",
            Proxy::HaProxy => "haproxy",
        })
    }
}

/// A proxy that runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Name and text of the configuration with which it runs.
    pub(crate) configuration: (&'static str, String),
    _process: Process,
}

impl Proxy {
    /// Starts it before `cluster`.
    pub(crate) fn start(
        self,
        weirgate: &Path,
        cluster: &Cluster,
        terms: &Terms,
        directory: &Directory,
        cores: Cores,
    ) -> Result<Running, String> {
        let [address] = free_addresses()?;
        let listen = ("LISTEN", address.port().to_string());
        let (name, text) = match self {
            Proxy::Weirgate => ("policy.yaml", policy(listen, "{ quorum: { grow: while_full } }", cluster, terms)),
            Proxy::WeirgateAsPublished => ("policy-as-published.yaml", policy(listen, "quorum", cluster, terms)),
            Proxy::HaProxy => {
                let servers = cluster.addresses().iter().enumerate();
                let servers: Vec<_> = servers.map(|(i, address)| format!("    server web{i} {address}")).collect();
                let servers = ("SERVERS", servers.join("\n"));
                ("haproxy.cfg", fill(include_str!("../haproxy.cfg"), &[listen, servers]))
            }
        };
        let file = directory.write(name, &text)?;
        let program = haproxy();
        let command = match self {
            Proxy::HaProxy => vec![&*program, Path::new("-db"), Path::new("-f"), &file],
            _ => vec![weirgate, Path::new("run"), &file],
        };
        let process = Process::start(&command, cores.front, &directory.path().join("proxy-output"), address)?;
        Ok(Running { address, configuration: (name, text), _process: process })
    }
}

fn policy(listen: (&'static str, String), discipline: &str, cluster: &Cluster, terms: &Terms) -> String {
    let nodes: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    let rate = |rate: f64| format!("{rate:.1}");
    let values = [
        listen,
        ("DISCIPLINE", discipline.to_owned()),
        ("NODES", nodes.join(", ")),
        ("A_RATE", rate(terms.a.throughput)),
        ("A_LIMIT", terms.a.limit.as_millis().to_string()),
        ("B_RATE", rate(terms.b.throughput)),
        ("B_LIMIT", terms.b.limit.as_millis().to_string()),
        ("SERVICE", format!("{:.2}", terms.a.cost.as_secs_f64() * 1e3)),
    ];
    fill(include_str!("../policy.yaml"), &values)
}
