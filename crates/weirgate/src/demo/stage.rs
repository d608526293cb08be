//! The running pieces: emulated nodes, the gateway in front of them, its admin API, the clients.
//!
//! The gateway is the one that `weirgate run` starts; it knows nothing of the demo. Clients and nodes
//! reach it over loopback sockets only.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weirgate_emulator::client::{Report, Running};
use weirgate_emulator::{Cluster, NodeStats};
use weirgate_engine::{ClassId, ClassSnapshot, Snapshot};
use weirgate_gateway::access_log::AccessLog;
use weirgate_gateway::admin::{AdminListener, AdminServer, Operations};
use weirgate_gateway::metrics::Metrics;
use weirgate_gateway::{Gateway, ReloadSource};

use super::scenario::{POLICY, Scenario};

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Stage {
    clients: Running,
    gateway: Gateway,
    admin: Option<AdminServer>,
    cluster: Cluster,
    /// Where the gateway listens.
    pub(crate) gateway_address: String,
    /// Where its admin API is.
    pub(crate) admin_address: String,
}

/// Descriptors that one request under way takes: a socket at either end of both connections.
const DESCRIPTORS: u64 = 4;

/// Descriptors kept back for listeners, timers, the terminal and idle connections.
const RESERVE: u64 = 400;

/// More connections of one class are never of use: as many requests as the surge makes within a
/// client's patience, and some.
const MOST_CONNECTIONS: u64 = 2048;

impl Stage {
    /// Starts everything, the clients last.
    ///
    /// # Errors
    /// What could not be started, and why.
    pub(crate) fn start(scenario: &Scenario) -> Result<Stage, String> {
        let connections = connections(scenario.plan.classes.len() as u64)?;
        let seed = scenario.plan.seed;
        let cluster = Cluster::start(scenario.nodes(), seed).map_err(|e| format!("emulated nodes: {e}"))?;
        let mut site = scenario.site.clone();
        for (node, address) in site.nodes.iter_mut().zip(cluster.addresses()) {
            node.address = address.to_string();
        }
        let log = AccessLog::start(site.access_log.as_ref()).map_err(|e| format!("access log: {e}"))?;
        let (log, metrics) = (Arc::new(log), Arc::new(Metrics::new()));
        let listener = site.admin.clone().map(|config| AdminListener::open(config, None)).transpose();
        let listener = listener.map_err(|e| format!("admin API: {e}"))?;
        let admin_address = listener.as_ref().and_then(AdminListener::address);
        let admin_address = admin_address.map_or("off".to_owned(), |address| format!("http://{address}"));
        let gateway = Gateway::start(site, POLICY, ReloadSource::Nowhere, vec![Box::new(Arc::clone(&metrics))]);
        let gateway = gateway.map_err(|e| format!("gateway: {e}"))?;
        let address = *gateway.addresses().first().ok_or("the gateway has no address")?;
        let operations = Arc::new(Operations::new(gateway.clone(), metrics, log));
        let admin = listener.map(|l| l.serve(operations)).transpose().map_err(|e| format!("admin API: {e}"))?;
        let mut plan = scenario.plan.clone();
        for class in &mut plan.classes {
            class.target = address;
            class.connections = connections;
        }
        let clients = plan.start().map_err(|e| format!("clients: {e}"))?;
        let gateway_address = format!("http://{address}");
        Ok(Stage { clients, gateway, admin, cluster, gateway_address, admin_address })
    }

    /// The clients.
    pub(crate) fn clients(&self) -> &Running {
        &self.clients
    }

    /// What the gateway says of itself.
    pub(crate) fn snapshot(&self) -> (Snapshot, Vec<ClassSnapshot>) {
        let control = self.gateway.control();
        // Three classes: far more than there are.
        (control.snapshot(), control.classes(ClassId(0), 64))
    }

    /// Waits for the clients' last replies and stops everything. Returns what the clients measured, what
    /// the gateway says of its classes, and what the nodes counted.
    ///
    /// # Errors
    /// A thread has failed.
    pub(crate) fn end(self) -> Result<(Report, Vec<ClassSnapshot>, Vec<NodeStats>), String> {
        let Stage { clients, gateway, admin, cluster, .. } = self;
        let report = clients.join().map_err(|e| format!("clients: {e}"))?;
        let classes = gateway.control().classes(ClassId(0), 64);
        let nodes = cluster.stats().map_err(|e| format!("emulated nodes: {e}"))?;
        drop(admin);
        gateway.drain();
        gateway.join();
        Ok((report, classes, nodes))
    }
}

/// Allows this process as many descriptors as the system does, and says how many connections each of so
/// many classes may then open.
fn connections(classes: u64) -> Result<usize, String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Without leave for more the present limit stands; the figure below follows it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let each = (descriptors.saturating_sub(RESERVE) / DESCRIPTORS / classes).min(MOST_CONNECTIONS);
    // Fewer than the requests inside and waiting under control would make the clients wait for themselves.
    if each < 64 {
        return Err(format!("this process may open only {descriptors} files: allow 2,000 (`ulimit -n 2000`)"));
    }
    Ok(each as usize)
}
