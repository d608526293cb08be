//! The policy in proxy terms: pools of servers with weights and slots, classes with rates and limits.
//!
//! Proxies need one number that policies do not state: the number of requests in flight per server. It is
//! counted in *slots*. By Little's law, a class at its guaranteed rate keeps rate × service time requests
//! in flight. A server of known capacity has as many slots as its capacity.

use std::net::SocketAddr;
use std::time::Duration;

use weirgate_config::NodeTimeouts;
use weirgate_engine as engine;

use super::Setting;

/// A pool of servers and the classes that it serves, with at least one of each.
pub(super) struct Pool<'a> {
    pub(super) name: &'a str,
    pub(super) servers: Vec<Server<'a>>,
    pub(super) classes: Vec<Class<'a>>,
    pub(super) ejection: engine::Ejection,
    pub(super) health: Health,
    /// Number of idle connections kept per server, and how long they are kept.
    pub(super) idle: (usize, Duration),
}

#[derive(Clone)]
pub(super) struct Server<'a> {
    /// Index of its node in the policy.
    pub(super) node: usize,
    /// Name of that node.
    pub(super) label: &'a str,
    pub(super) address: SocketAddr,
    /// Weight from 1 to [`MAX_WEIGHT`].
    pub(super) weight: u32,
    /// Slots in use when the whole capacity, or else the guarantees, are used. `None` if unknown.
    pub(super) slots: Option<f64>,
    /// Requests that the server works on at once, as configured by its operator. `None` is no limit.
    pub(super) workers: Option<u32>,
}

pub(super) struct Class<'a> {
    /// Its number in the policy.
    pub(super) index: usize,
    pub(super) name: &'a str,
    /// Guaranteed requests per second.
    pub(super) floor: Option<f64>,
    /// Declared service time.
    pub(super) service: Option<Duration>,
    /// Guaranteed response time, for any statistic.
    pub(super) limit: Option<Duration>,
    /// Maximum wait, independent of the guarantees.
    pub(super) max_wait: Duration,
    pub(super) retry: engine::RetryBudget,
    pub(super) timeouts: NodeTimeouts,
    /// Whether this is the policy's last class, which takes all requests of unknown classes.
    pub(super) last: bool,
}

/// Parameters of the servers' health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) fall: u32,
    pub(super) rise: u32,
}

/// Path of health checks. An emulated node answers it without work, and a real service treats it as its
/// home page. Every status below 500 counts as healthy, because a service need not have that page.
pub(super) const HEALTH_PATH: &str = "/?demand=0us";

/// Health checks if the policy sets none. A dead server is out after 1.5 s and back after 1 s. A server
/// that is merely full gets 2 s to answer, because the 150 slots of the papers' servers, filled twice over,
/// turn over in 1.2 s.
const HEALTH: Health =
    Health { interval: Duration::from_millis(500), timeout: Duration::from_secs(2), fall: 3, rise: 2 };

/// Largest weight. HAProxy accepts up to 256, and with 100 one step is one percent.
pub(super) const MAX_WEIGHT: u32 = 100;

impl Class<'_> {
    /// Returns the slots at the guaranteed rate, by Little's law, or `None` if rate or service time is not declared.
    pub(super) fn slots(&self) -> Option<f64> {
        Some(self.floor? * self.service?.as_secs_f64())
    }

    /// Returns the share of these slots in `server` of `pool`, by the server's weight.
    pub(super) fn slots_in(&self, server: &Server<'_>, pool: &Pool<'_>) -> Option<f64> {
        let weight: u32 = pool.servers.iter().map(|server| server.weight).sum();
        Some(self.slots()? * f64::from(server.weight) / f64::from(weight))
    }
}

impl Pool<'_> {
    /// Returns the smallest limit of its classes, or else the smallest maximum wait.
    pub(super) fn strictest(&self) -> Duration {
        let limits = self.classes.iter().filter_map(|class| class.limit).min();
        limits.or_else(|| self.classes.iter().map(|class| class.max_wait).min()).unwrap_or(Duration::MAX)
    }

    /// Returns the total of the servers' workers, or `None` if one server has no limit.
    pub(super) fn workers(&self) -> Option<u32> {
        self.servers.iter().map(|server| server.workers).sum()
    }

    /// Returns the total of the servers' slots, or `None` if one is unknown.
    pub(super) fn slots(&self) -> Option<f64> {
        self.servers.iter().map(|server| server.slots).sum()
    }
}

/// Returns the pools of `setting` that serve a class.
///
/// # Errors
/// A node has no address, or a pool has no nodes.
pub(super) fn pools<'a>(setting: &Setting<'a>) -> Result<Vec<Pool<'a>>, String> {
    let site = &setting.experiment.site;
    let policy = &site.policy;
    if setting.addresses.len() != policy.nodes.len() {
        return Err(format!("{} addresses for {} nodes", setting.addresses.len(), policy.nodes.len()));
    }
    let mut pools = Vec::new();
    for (index, pool) in policy.pools.iter().enumerate() {
        let classes: Vec<Class<'a>> = classes(setting, index);
        if classes.is_empty() {
            continue;
        }
        let servers = servers(setting, index, &classes);
        if servers.is_empty() {
            return Err(format!("pool {} has no nodes", pool.name));
        }
        let place = &site.pools[index];
        let health = place.health.as_ref().map_or(HEALTH, |check| Health {
            interval: check.interval,
            timeout: check.timeout,
            fall: check.fall,
            rise: check.rise,
        });
        let idle = (place.idle_connections, place.idle_timeout);
        pools.push(Pool { name: &pool.name, servers, classes, ejection: pool.ejection, health, idle });
    }
    Ok(pools)
}

fn classes<'a>(setting: &Setting<'a>, pool: usize) -> Vec<Class<'a>> {
    let site = &setting.experiment.site;
    let all = site.policy.classes.iter().zip(&site.classes).enumerate();
    all.filter(|(_, (class, _))| class.pool == pool)
        .map(|(index, (class, place))| Class {
            index,
            name: &class.name,
            floor: class.guarantee.throughput,
            service: class.service_time,
            limit: class.guarantee.response_time.map(|time| time.limit),
            max_wait: class.queue.max_wait,
            retry: class.retry,
            timeouts: place.timeouts,
            last: index + 1 == site.policy.classes.len(),
        })
        .collect()
}

fn servers<'a>(setting: &Setting<'a>, pool: usize, classes: &[Class<'a>]) -> Vec<Server<'a>> {
    let experiment = setting.experiment;
    let nodes = &experiment.site.policy.nodes;
    let members = || nodes.iter().enumerate().filter(|(_, node)| node.pool == pool);
    let total: f64 = members().map(|(_, node)| node.weight).sum();
    let heaviest = members().map(|(_, node)| node.weight).fold(0.0, f64::max);
    // A class without a floor needs no slots. If a class has a floor but no service time, the sum is unknown.
    let owed: Option<f64> = classes.iter().filter(|class| class.floor.is_some()).map(Class::slots).sum();
    let owed = owed.filter(|slots| *slots > 0.0);
    members()
        .map(|(index, node)| {
            // All pools that use a machine share its capacity.
            let sharing = nodes.iter().filter(|other| other.machine == node.machine).count();
            let full = node.capacity.map(|capacity| capacity / sharing as f64);
            let machine = &experiment.machines[experiment.machine_of[index]];
            let workers = machine.concurrency.map(|each| each.saturating_mul(machine.servers));
            Server {
                node: index,
                label: &node.name,
                address: setting.addresses[index],
                weight: ((node.weight / heaviest * f64::from(MAX_WEIGHT)).round() as u32).max(1),
                slots: full.or_else(|| owed.map(|slots| slots * node.weight / total)),
                workers: [workers, node.max_outstanding].into_iter().flatten().min(),
            }
        })
        .collect()
}
