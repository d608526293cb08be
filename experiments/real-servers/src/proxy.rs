//! The proxies that stand before the servers in turn.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::cluster::{Cluster, SERVERS, WORKERS, haproxy};
use crate::machine::{Cores, free_addresses};
use crate::process::{Directory, Process};
use crate::template::fill;
use crate::terms::Terms;

/// Most requests that Weirgate, and the second HAProxy, let into a server at once. A server of one core gains
/// nothing from more, and slots that one class lends another come back sooner.
const INSIDE: usize = 2;

/// What stands before the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Weirgate with Quorum and a bound on its window.
    Weirgate,
    /// Weirgate with Quorum exactly as published: the window is not bounded, and grows in any calm.
    AsPublished,
    /// The same, but the window grows only while it is full.
    WhileFull,
    /// Debian's HAProxy, which sends each request to the server with the fewest connections, and to none more
    /// than it has workers.
    HaProxy,
    /// The same with as few requests in the servers as Weirgate lets in.
    HaProxyBounded,
}

impl Proxy {
    /// All of them.
    pub const ALL: [Proxy; 5] =
        [Proxy::Weirgate, Proxy::HaProxy, Proxy::HaProxyBounded, Proxy::AsPublished, Proxy::WhileFull];

    /// Its name in tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Proxy::Weirgate => "weirgate",
            Proxy::AsPublished => "weirgate-as-published",
            Proxy::WhileFull => "weirgate-while-full",
            Proxy::HaProxy => "haproxy",
            Proxy::HaProxyBounded => "haproxy-bounded",
        }
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A proxy that runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Name and text of the configuration with which it runs.
    pub(crate) configuration: (String, String),
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
        let window = INSIDE * SERVERS;
        let (extension, text) = match self {
            Proxy::Weirgate => {
                let discipline = format!("{{ quorum: {{ first_window: {window}, most_window: {window} }} }}");
                ("yaml", policy(listen, &discipline, cluster, terms))
            }
            Proxy::AsPublished => ("yaml", policy(listen, "quorum", cluster, terms)),
            Proxy::WhileFull => ("yaml", policy(listen, "{ quorum: { grow: while_full } }", cluster, terms)),
            Proxy::HaProxy => ("cfg", haproxy_cfg(listen, WORKERS, cluster)),
            Proxy::HaProxyBounded => ("cfg", haproxy_cfg(listen, INSIDE, cluster)),
        };
        let file = directory.write(&format!("{self}.{extension}"), &text)?;
        let program = haproxy();
        let command = match self {
            Proxy::HaProxy | Proxy::HaProxyBounded => vec![&*program, Path::new("-db"), Path::new("-f"), &file],
            _ => vec![weirgate, Path::new("run"), &file],
        };
        let process = Process::start(&command, cores.front, &directory.path().join("proxy-output"), address)?;
        Ok(Running { address, configuration: (format!("{self}.{extension}"), text), _process: process })
    }
}

fn haproxy_cfg(listen: (&'static str, String), inside: usize, cluster: &Cluster) -> String {
    let servers = cluster.addresses().iter().enumerate();
    let servers: Vec<_> = servers.map(|(i, address)| format!("    server web{i} {address}")).collect();
    let values = [listen, ("INSIDE", inside.to_string()), ("SERVERS", servers.join("\n"))];
    fill(include_str!("../haproxy.cfg"), &values)
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
