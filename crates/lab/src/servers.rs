//! The servers behind the gateway: emulated machines or real services.
//!
//! Emulated machines work exactly as specified and can play every fault. Real services can be removed from the
//! gateway, killed, and stopped where they are. Each node of the policy is one instance of its service.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use weirgate_emulator::{IdLog, NodeStats};
use weirgate_experiment::{Condition, Experiment, Fault, FaultKind, Occupied, Service};

use crate::load::Template;
use crate::nodes::Nodes;
use crate::services::{Instances, Kind};

/// Concurrency of a real machine if the experiment sets no limit. 150 is Apache's default.
const WORKERS: usize = 150;

/// The machines of a running experiment. Dropping it stops them.
#[derive(Debug)]
pub enum Servers {
    /// Emulated machines.
    Emulated(Nodes),
    /// Instances of real services.
    Real {
        /// One entry per service.
        services: Vec<Running>,
        /// Address of each node of the policy.
        addresses: Vec<SocketAddr>,
        /// Name and present condition of each machine.
        machines: Vec<(String, Condition)>,
        /// Machine of each node of the policy.
        machine_of: Vec<usize>,
    },
}

/// A running real service, with one instance for each of its nodes.
#[derive(Debug)]
pub struct Running {
    instances: Instances,
    /// Indices of its nodes in the policy.
    nodes: Vec<usize>,
    /// Its first machine, to which the work of all its instances is attributed.
    machine: usize,
}

/// The records of the machines at the end of a trial.
#[derive(Debug)]
pub struct Ledger {
    /// Request ids per machine, or per real service.
    pub logs: Vec<IdLog>,
    /// Counters of the emulated machines.
    pub stats: Vec<NodeStats>,
}

/// Returns the real program for a service of the experiment, or `None` if the service is emulated.
fn kind(service: Service) -> Option<Kind> {
    match service {
        Service::Emulated => None,
        Service::ApachePhp => Some(Kind::ApachePhp),
        Service::Tomcat => Some(Kind::Tomcat),
        Service::Xapian => Some(Kind::Xapian),
        Service::MediaWiki => Some(Kind::MediaWiki),
        Service::Gunicorn => Some(Kind::Gunicorn),
        Service::Cgit => Some(Kind::Cgit),
    }
}

/// Returns the real services of an experiment, each once.
pub fn services(experiment: &Experiment) -> Vec<Kind> {
    let used = |kind: &Kind| experiment.machines.iter().any(|machine| self::kind(machine.service) == Some(*kind));
    Kind::ALL.into_iter().filter(used).collect()
}

impl Servers {
    /// Starts the machines of `experiment`, on CPU number `cpu` if one is given. Real services keep their
    /// files in `directory` while they run.
    ///
    /// # Errors
    /// A machine cannot be started, emulated and real machines are mixed, or a fault needs something that a
    /// real machine cannot do.
    pub fn start(experiment: &Experiment, seed: u64, cpu: Option<usize>, directory: &Path) -> Result<Servers, String> {
        if experiment.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Restart { .. })) {
            return Err("`restart` and `takeover` of the gateway are simulated only: use `weirgate sim`".to_owned());
        }
        if experiment.machines.iter().all(|machine| machine.service == Service::Emulated) {
            return Nodes::start(experiment, seed, cpu).map(Servers::Emulated);
        }
        possible(experiment)?;
        let mut services = Vec::new();
        let mut addresses: Vec<Option<SocketAddr>> = vec![None; experiment.machine_of.len()];
        for kind in Kind::ALL {
            let service = |node: usize| self::kind(experiment.machines[experiment.machine_of[node]].service);
            let nodes: Vec<usize> = (0..addresses.len()).filter(|&node| service(node) == Some(kind)).collect();
            let Some(&first) = nodes.first() else { continue };
            let first = experiment.machine_of[first];
            let workers = experiment.machines[first].concurrency.map_or(WORKERS, |max| max as usize);
            let instances = Instances::start(kind, nodes.len(), workers, cpu, directory)?;
            for (&node, &address) in nodes.iter().zip(instances.addresses()) {
                addresses[node] = Some(address);
            }
            services.push(Running { instances, nodes, machine: first });
        }
        let addresses: Option<Vec<SocketAddr>> = addresses.into_iter().collect();
        let addresses = addresses.ok_or("a node of the policy has no machine")?;
        let machines = experiment.machines.iter().map(|machine| (machine.name.clone(), Condition::WELL)).collect();
        Ok(Servers::Real { services, addresses, machines, machine_of: experiment.machine_of.clone() })
    }

    /// Returns the address of each node of the policy.
    pub fn addresses(&self) -> &[SocketAddr] {
        match self {
            Servers::Emulated(nodes) => nodes.addresses(),
            Servers::Real { addresses, .. } => addresses,
        }
    }

    /// Returns the form of the requests of each traffic source in `experiment`. Unless the experiment sets
    /// another form, it is one that the machines of the class understand.
    ///
    /// # Errors
    /// A class has no node.
    pub fn templates(&self, experiment: &Experiment) -> Result<Vec<Template>, String> {
        let policy = &experiment.site.policy;
        let template = |(index, traffic): (usize, &weirgate_experiment::Traffic)| {
            let pool = traffic.class.class(policy).pool;
            let Servers::Real { services, .. } = self else { return Ok(Template::emulated(experiment, index)) };
            let node = policy.nodes.iter().position(|node| node.pool == pool);
            let service = node.and_then(|node| services.iter().find(|service| service.nodes.contains(&node)));
            let service = service.ok_or_else(|| format!("{} has no node", traffic.class.name(policy)))?;
            let Running { instances, .. } = service;
            Ok(Template { words: instances.words().to_vec(), ..Template::new(experiment, index, instances.path()) })
        };
        experiment.traffic.iter().enumerate().map(template).collect()
    }

    /// Sets the condition of machine `machine` from now on. Removing a machine is left to the gateway.
    ///
    /// # Errors
    /// As [`Nodes::set_condition`]. A real machine can crash and stall, and refuses every other condition.
    pub fn set_condition(&mut self, machine: usize, condition: Condition) -> Result<(), String> {
        let (services, machines, machine_of) = match self {
            Servers::Emulated(nodes) => return nodes.set_condition(machine, condition),
            Servers::Real { services, machines, machine_of, .. } => (services, machines, machine_of),
        };
        let Some((name, present)) = machines.get_mut(machine) else { return Ok(()) };
        let Condition { crashed, stalled, .. } = condition;
        if (Condition { crashed, stalled, ..Condition::WELL }) != condition {
            return Err(format!("machine {name} is a real service, which can only crash or stall"));
        }
        for service in services {
            let own = service.nodes.iter().enumerate().filter(|(_, node)| machine_of[**node] == machine);
            for (number, _) in own {
                if crashed != present.crashed {
                    service.instances.set_killed(number, crashed)?;
                }
                if stalled != present.stalled {
                    service.instances.set_frozen(number, stalled)?;
                }
            }
        }
        *present = condition;
        Ok(())
    }

    /// Returns the work of each machine since the start, in seconds of CPU, disk and link time, as in
    /// [`weirgate_experiment::Sample`]. The instances of a real service count as one machine, and only
    /// their CPU time is known.
    ///
    /// # Errors
    /// The machines have stopped early.
    pub fn done(&self) -> Result<Vec<[f64; 3]>, String> {
        match self {
            Servers::Emulated(nodes) => nodes.done(),
            Servers::Real { services, machines, .. } => {
                let mut done = vec![[0.0; 3]; machines.len()];
                for service in services {
                    done[service.machine][0] = service.instances.cpu_time().as_secs_f64();
                }
                Ok(done)
            }
        }
    }

    /// Returns how long each machine's resources were busy since the start. For real services only the CPU time is
    /// known and the number of busy workers is not. If the workers are limited, nothing counts as idle.
    ///
    /// # Errors
    /// The machines have stopped early.
    pub fn occupied(&self) -> Result<Vec<Occupied>, String> {
        match self {
            Servers::Emulated(nodes) => nodes.occupied(),
            Servers::Real { .. } => {
                let done = self.done()?.into_iter();
                Ok(done.map(|resources| Occupied { resources, workers: None }).collect())
            }
        }
    }

    /// Stops real machines and returns the records of all machines.
    ///
    /// # Errors
    /// The machines have stopped early, or a log cannot be read.
    pub fn close(self) -> Result<Ledger, String> {
        match self {
            Servers::Emulated(nodes) => {
                let mut stats = nodes.stats()?;
                let logs = stats.iter_mut().map(|node| std::mem::take(&mut node.ids)).collect();
                Ok(Ledger { logs, stats })
            }
            Servers::Real { mut services, .. } => {
                let log = |service: &mut Running| {
                    let answered: Vec<Arc<str>> = service.instances.answered()?.into_iter().map(Into::into).collect();
                    // Their logs list only answered requests, not requests that arrived and got no answer.
                    Ok(IdLog { received: answered.clone(), answered, unlogged: 0 })
                };
                let logs = services.iter_mut().map(log).collect::<Result<_, String>>()?;
                Ok(Ledger { logs, stats: Vec::new() })
            }
        }
    }
}

/// Checks that real machines can play `experiment`.
fn possible(experiment: &Experiment) -> Result<(), String> {
    if let Some(machine) = experiment.machines.iter().find(|machine| machine.service == Service::Emulated) {
        return Err(format!(
            "machine {} is emulated and others are real, but their capacities cannot be compared; make all emulated \
             or all real",
            machine.name
        ));
    }
    let pools = experiment.site.policy.pools.iter().zip(&experiment.site.pools);
    if let Some((pool, _)) = pools.into_iter().find(|(_, site)| site.collector.is_some()) {
        return Err(format!(
            "upstream {} has a `collector`, but real services do not have one here; make the machines emulated, or \
             the collector `off`",
            pool.name
        ));
    }
    if let Some(machine) = experiment.machines.iter().find(|machine| !machine.drift.is_constant()) {
        return Err(format!(
            "the speed of machine {} changes, but a real machine's cannot; make the machines emulated, or write one \
             `speed:`",
            machine.name
        ));
    }
    let of_services = experiment.machines.iter().filter_map(|machine| kind(machine.service));
    let all_stream = of_services.map(Kind::path).all(|path| path.contains("{stream_us}"));
    let streams = |(index, traffic): (usize, &weirgate_experiment::Traffic)| {
        let says = traffic.request.path.as_deref().map_or(all_stream, |path| path.contains("{stream_us}"));
        experiment.streams(index) && !says
    };
    if let Some((_, traffic)) = experiment.traffic.iter().enumerate().find(|stream| streams(*stream)) {
        return Err(format!(
            "replies to {} stream, but these real services send a reply in one piece; make the machines emulated or \
             `apache-php` or `gunicorn`, or give the traffic a `request:` whose `path` has `{{stream_us}}`",
            traffic.class.name(&experiment.site.policy)
        ));
    }
    for fault in &experiment.faults {
        let at = fault.at.as_secs_f64();
        match fault.kind {
            FaultKind::Slow(_) | FaultKind::FailFast(_) => {
                return Err(format!(
                    "the fault at {at:.0} s needs emulated machines; a real service can be `removed`, `crash` or `stall`"
                ));
            }
            FaultKind::Stall => shared_database(experiment, fault)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a stall of a service with one database for all its machines is one of all of them.
fn shared_database(experiment: &Experiment, fault: &Fault) -> Result<(), String> {
    let wiki = |machine: usize| experiment.machines[machine].service == Service::MediaWiki;
    let left = (0..experiment.machines.len()).find(|machine| wiki(*machine) && !fault.machines.contains(machine));
    match (fault.machines.iter().any(|machine| wiki(*machine)), left) {
        (true, Some(left)) => Err(format!(
            "the stall at {:.0} s is one of the database, which machine {} uses too; write all machines with `mediawiki`",
            fault.at.as_secs_f64(),
            experiment.machines[left].name
        )),
        _ => Ok(()),
    }
}
