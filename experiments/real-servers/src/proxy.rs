//! The proxies that stand before the servers in turn.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use crate::cluster::{Cluster, SERVERS, WORKERS, haproxy};
use crate::machine::{Cores, free_addresses};
use crate::process::{Directory, Process};
use crate::template::fill;
use crate::terms::Terms;

/// Most requests that the bounded Quorum and the second HAProxy let into a server at once. A server of one
/// core gains nothing from more, and slots that one class lends another come back sooner.
const INSIDE: usize = 2;

/// What stands before the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Weirgate as it comes.
    Weirgate,
    /// Weirgate with Quorum and a bound on its window.
    QuorumBounded,
    /// Weirgate with Quorum as it comes: the window is not bounded, and grows while it is full.
    Quorum,
    /// The same, but the window grows in any calm.
    QuorumAlways,
    /// Debian's HAProxy, which sends each request to the server with the fewest connections, and to none more
    /// than it has workers.
    HaProxy,
    /// The same with as few requests in the servers as Weirgate lets in.
    HaProxyBounded,
}

impl Proxy {
    /// All of them.
    pub const ALL: [Proxy; 6] = [
        Proxy::Weirgate,
        Proxy::HaProxy,
        Proxy::HaProxyBounded,
        Proxy::QuorumBounded,
        Proxy::Quorum,
        Proxy::QuorumAlways,
    ];

    /// Its name in tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Proxy::Weirgate => "weirgate",
            Proxy::QuorumBounded => "weirgate-quorum-bounded",
            Proxy::Quorum => "weirgate-quorum",
            Proxy::QuorumAlways => "weirgate-quorum-always",
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
        let (name, text) = self.configuration(address, cluster.addresses(), terms);
        let file = directory.write(&name, &text)?;
        let program = haproxy();
        let command = match self {
            Proxy::HaProxy | Proxy::HaProxyBounded => vec![&*program, Path::new("-db"), Path::new("-f"), &file],
            _ => vec![weirgate, Path::new("run"), &file],
        };
        let process = Process::start(&command, cores.front, &directory.path().join("proxy-output"), address)?;
        Ok(Running { address, configuration: (name, text), _process: process })
    }

    /// Name and text of its configuration file.
    fn configuration(self, listen: SocketAddr, servers: &[SocketAddr], terms: &Terms) -> (String, String) {
        let window = INSIDE * SERVERS;
        let haproxy = |inside| ("cfg", haproxy_cfg(listen, inside, servers));
        let weirgate = |discipline: &str| ("yaml", policy(listen, discipline, servers, terms));
        let (extension, text) = match self {
            Proxy::Weirgate => weirgate("weirgate"),
            Proxy::QuorumBounded => {
                weirgate(&format!("{{ quorum: {{ first_window: {window}, most_window: {window} }} }}"))
            }
            Proxy::Quorum => weirgate("quorum"),
            Proxy::QuorumAlways => weirgate("{ quorum: { grow: always } }"),
            Proxy::HaProxy => haproxy(WORKERS),
            Proxy::HaProxyBounded => haproxy(INSIDE),
        };
        (format!("{self}.{extension}"), text)
    }
}

fn haproxy_cfg(listen: SocketAddr, inside: usize, servers: &[SocketAddr]) -> String {
    let servers: Vec<_> = servers.iter().enumerate().map(|(i, at)| format!("    server web{i} {at}")).collect();
    let values =
        [("LISTEN", listen.port().to_string()), ("INSIDE", inside.to_string()), ("SERVERS", servers.join("\n"))];
    fill(include_str!("../haproxy.cfg"), &values)
}

fn policy(listen: SocketAddr, discipline: &str, servers: &[SocketAddr], terms: &Terms) -> String {
    let nodes: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let rate = |rate: f64| format!("{rate:.1}");
    let values = [
        ("LISTEN", listen.port().to_string()),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::terms::Contract;

    #[test]
    fn configurations_are_filled_in_and_differ() {
        let ms = Duration::from_millis;
        let contract = Contract { throughput: 59.24, limit: ms(216), cost: Duration::from_micros(4310), offered: 47.4 };
        let terms = Terms { a: contract, b: contract };
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let texts = Proxy::ALL.map(|proxy| proxy.configuration(at(80), &[at(81), at(82)], &terms));
        for (i, (name, text)) in texts.iter().enumerate() {
            let orders = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            assert!(orders.clone().all(|line| !line.contains('%')), "{name}: {text}");
            assert!(orders.clone().any(|line| line.contains("127.0.0.1:82")), "{name}: {text}");
            assert!(texts[..i].iter().all(|(other, earlier)| other != name && earlier != text), "{name}");
        }
        assert!(texts[0].1.contains("throughput: 59.2/s, response_time: { p95: 216ms }"), "{}", texts[0].1);
        assert!(texts[0].1.contains("service_time: 4.31ms"), "{}", texts[0].1);
    }
}
