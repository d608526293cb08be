//! The policy in the words of proxies: pools of servers with weights and places, classes with rates and limits.
//!
//! The one figure that proxies want and policies do not have is how many requests a server shall have inside. It is
//! reckoned in *slots*: by Little's law, a class at its guaranteed rate keeps rate × service time requests inside the
//! servers; a server of known capacity is full with as many as its capacity.

use std::net::SocketAddr;
use std::time::Duration;

use weirgate_config::NodeTimeouts;
use weirgate_engine as engine;

use super::Setting;

/// A pool of servers and the classes that it serves; at least one of each.
pub(super) struct Pool<'a> {
    pub(super) name: &'a str,
    pub(super) servers: Vec<Server<'a>>,
    pub(super) classes: Vec<Class<'a>>,
    pub(super) ejection: engine::Ejection,
    pub(super) health: Health,
    /// Idle connections kept per server, and for how long.
    pub(super) idle: (usize, Duration),
}

/// A server.
#[derive(Clone)]
pub(super) struct Server<'a> {
    /// Its node of the policy.
    pub(super) node: usize,
    /// The name of that node.
    pub(super) label: &'a str,
    pub(super) address: SocketAddr,
    /// 1 to [`MOST_WEIGHT`].
    pub(super) weight: u32,
    /// Slots that are taken when the guarantees, or the whole capacity, are used; `None` is unknown.
    pub(super) slots: Option<f64>,
    /// Requests that it works on at once, as its operator has configured it; `None` is no limit.
    pub(super) workers: Option<u32>,
}

/// A class.
pub(super) struct Class<'a> {
    /// Its number in the policy.
    pub(super) index: usize,
    pub(super) name: &'a str,
    /// Guaranteed requests per second.
    pub(super) floor: Option<f64>,
    /// Agreed service time.
    pub(super) service: Option<Duration>,
    /// Guaranteed response time, whatever the statistic.
    pub(super) limit: Option<Duration>,
    /// Longest wait, whatever is guaranteed.
    pub(super) max_wait: Duration,
    pub(super) retry: engine::RetryBudget,
    pub(super) timeouts: NodeTimeouts,
    /// Is it the policy's last class, which takes what nobody else does?
    pub(super) last: bool,
}

/// How servers are asked whether they live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) fall: u32,
    pub(super) rise: u32,
}

/// What is asked for: an emulated node answers it without work, and a real one like its home page. Every status below
/// 500 is a sign of life: a service need not have that page.
pub(super) const HEALTH_PATH: &str = "/?demand=0us";

/// Without word of the policy: a dead server is out after a second and a half and back after one. A server that is
/// merely full has 2 s: the 150 places of the papers' servers, taken twice, turn over in 1.2 s.
const HEALTH: Health =
    Health { interval: Duration::from_millis(500), timeout: Duration::from_secs(2), fall: 3, rise: 2 };

/// Largest weight: HAProxy takes 256; 100 is a difference of one percent.
pub(super) const MOST_WEIGHT: u32 = 100;

impl Class<'_> {
    /// Slots at the guaranteed rate, by Little's law; `None` if rate or service time is not agreed.
    pub(super) fn slots(&self) -> Option<f64> {
        Some(self.floor? * self.service?.as_secs_f64())
    }

    /// The part of them in `server` of `pool`, by its weight.
    pub(super) fn slots_in(&self, server: &Server<'_>, pool: &Pool<'_>) -> Option<f64> {
        let weight: u32 = pool.servers.iter().map(|server| server.weight).sum();
        Some(self.slots()? * f64::from(server.weight) / f64::from(weight))
    }
}

impl Pool<'_> {
    /// The smallest limit of its classes, or else their shortest longest wait.
    pub(super) fn strictest(&self) -> Duration {
        let limits = self.classes.iter().filter_map(|class| class.limit).min();
        limits.or_else(|| self.classes.iter().map(|class| class.max_wait).min()).unwrap_or(Duration::MAX)
    }

    /// The servers' workers together; `None` if one has no limit.
    pub(super) fn workers(&self) -> Option<u32> {
        self.servers.iter().map(|server| server.workers).sum()
    }

    /// The servers' slots together; `None` if one is unknown.
    pub(super) fn slots(&self) -> Option<f64> {
        self.servers.iter().map(|server| server.slots).sum()
    }
}

/// The pools of `setting` that serve a class.
///
/// # Errors
/// A node has no address, or a pool no nodes.
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
    // A class without a floor is owed nothing; one with a floor but no service time makes the sum unknown.
    let owed: Option<f64> = classes.iter().filter(|class| class.floor.is_some()).map(Class::slots).sum();
    let owed = owed.filter(|slots| *slots > 0.0);
    members()
        .map(|(index, node)| {
            // What a machine has is for all pools that use it.
            let sharing = nodes.iter().filter(|other| other.machine == node.machine).count();
            let full = node.capacity.map(|capacity| capacity / sharing as f64);
            let machine = &experiment.machines[experiment.machine_of[index]];
            let workers = machine.concurrency.map(|each| each.saturating_mul(machine.servers));
            Server {
                node: index,
                label: &node.name,
                address: setting.addresses[index],
                weight: ((node.weight / heaviest * f64::from(MOST_WEIGHT)).round() as u32).max(1),
                slots: full.or_else(|| owed.map(|slots| slots * node.weight / total)),
                workers: [workers, node.max_outstanding].into_iter().flatten().min(),
            }
        })
        .collect()
}
