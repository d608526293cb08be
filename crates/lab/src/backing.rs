//! What stands behind the gateway: emulated machines, or real services.
//!
//! Emulated machines are exact and do whatever a fault wants. Real services are what they are: they can be
//! taken out of the gateway, and nothing else. Each node of the policy is an instance.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use weirgate_emulator::{IdLog, NodeStats};
use weirgate_experiment::{Condition, Experiment, FaultKind, Occupied, Service, TrafficClass};

use crate::load::Template;
use crate::nodes::Nodes;
use crate::services::{Instances, Kind};

/// Requests inside a real machine whose experiment names no limit: as many as Apache takes by default.
const WORKERS: usize = 150;

/// The machines of an experiment under way. Dropped, they are gone.
#[derive(Debug)]
pub enum Backing {
    /// Emulated.
    Emulated(Nodes),
    /// Instances of real services.
    Real {
        /// One entry per service.
        services: Vec<Running>,
        /// Per node of the policy.
        addresses: Vec<SocketAddr>,
        /// How many machines there are.
        machines: usize,
    },
}

/// A real service under way: an instance for each of its nodes.
#[derive(Debug)]
pub struct Running {
    instances: Instances,
    /// Indices of the policy's nodes.
    nodes: Vec<usize>,
    /// The first of its machines, in whose name the work of all is counted.
    machine: usize,
}

/// What the machines tell at the end.
#[derive(Debug)]
pub struct Books {
    /// Ids per machine, or per service.
    pub logs: Vec<IdLog>,
    /// What emulated machines have counted.
    pub stats: Vec<NodeStats>,
}

/// What the lab puts in the place of a service of the experiment.
fn kind(service: Service) -> Option<Kind> {
    match service {
        Service::Emulated => None,
        Service::ApachePhp => Some(Kind::ApachePhp),
        Service::Tomcat => Some(Kind::Tomcat),
        Service::Xapian => Some(Kind::Xapian),
    }
}

impl Backing {
    /// Starts the machines of `experiment` on CPU number `cpu` (anywhere without one). Real services live in
    /// `directory` while they run.
    ///
    /// # Errors
    /// A machine cannot be started; emulated and real machines are mixed; a fault asks a real one for what it cannot
    /// do.
    pub fn start(experiment: &Experiment, seed: u64, cpu: Option<usize>, directory: &Path) -> Result<Backing, String> {
        if experiment.machines.iter().all(|machine| machine.service == Service::Emulated) {
            return Nodes::start(experiment, seed, cpu).map(Backing::Emulated);
        }
        possible(experiment)?;
        let mut services = Vec::new();
        let mut addresses: Vec<Option<SocketAddr>> = vec![None; experiment.machine_of.len()];
        for kind in Kind::ALL {
            let service = |node: usize| self::kind(experiment.machines[experiment.machine_of[node]].service);
            let nodes: Vec<usize> = (0..addresses.len()).filter(|&node| service(node) == Some(kind)).collect();
            let Some(&first) = nodes.first() else { continue };
            let first = experiment.machine_of[first];
            let workers = experiment.machines[first].concurrency.map_or(WORKERS, |most| most as usize);
            let instances = Instances::start(kind, nodes.len(), workers, cpu, directory)?;
            for (&node, &address) in nodes.iter().zip(instances.addresses()) {
                addresses[node] = Some(address);
            }
            services.push(Running { instances, nodes, machine: first });
        }
        let addresses: Option<Vec<SocketAddr>> = addresses.into_iter().collect();
        let addresses = addresses.ok_or("a node of the policy has no machine")?;
        Ok(Backing::Real { services, addresses, machines: experiment.machines.len() })
    }

    /// Per node of the policy where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        match self {
            Backing::Emulated(nodes) => nodes.addresses(),
            Backing::Real { addresses, .. } => addresses,
        }
    }

    /// Per traffic of `experiment` what its requests look like: what the machines of its class understand, unless the
    /// experiment says another.
    ///
    /// # Errors
    /// A class has no node.
    pub fn templates(&self, experiment: &Experiment) -> Result<Vec<Template>, String> {
        let policy = &experiment.site.policy;
        let template = |(index, traffic): (usize, &weirgate_experiment::Traffic)| {
            let pool = match traffic.class {
                TrafficClass::Class(class) => policy.classes[class].pool,
                TrafficClass::Template { template, .. } => policy.templates[template].class.pool,
            };
            let Backing::Real { services, .. } = self else { return Ok(Template::emulated(experiment, index)) };
            let node = policy.nodes.iter().position(|node| node.pool == pool);
            let service = node.and_then(|node| services.iter().find(|service| service.nodes.contains(&node)));
            let service = service.ok_or_else(|| format!("{} has no node", traffic.class.name(policy)))?;
            let Running { instances, .. } = service;
            Ok(Template { words: instances.words().to_vec(), ..Template::new(experiment, index, instances.path()) })
        };
        experiment.traffic.iter().enumerate().map(template).collect()
    }

    /// Says what is wrong with machine number `machine` from now on; that it is removed is the gateway's business.
    ///
    /// # Errors
    /// As [`Nodes::set_condition`]. Real machines refuse.
    pub fn set_condition(&self, machine: usize, condition: Condition) -> Result<(), String> {
        match self {
            Backing::Emulated(nodes) => nodes.set_condition(machine, condition),
            Backing::Real { .. } => Err(format!("machine {machine} is a real service: nothing can be wrong with it")),
        }
    }

    /// Per machine the work done since the start, in seconds of a CPU, of a disk and of a link, as in
    /// [`weirgate_experiment::Sample`]. The instances of a real service count as one, and only their CPU time is known.
    ///
    /// # Errors
    /// The machines have ended early.
    pub fn done(&self) -> Result<Vec<[f64; 3]>, String> {
        match self {
            Backing::Emulated(nodes) => nodes.done(),
            Backing::Real { services, machines, .. } => {
                let mut done = vec![[0.0; 3]; *machines];
                for service in services {
                    done[service.machine][0] = service.instances.cpu_time().as_secs_f64();
                }
                Ok(done)
            }
        }
    }

    /// Per machine what it was occupied with since the start. Of real services the CPU time is known, and not how many
    /// of their workers are held: where these are limited nothing counts as idle.
    ///
    /// # Errors
    /// The machines have ended early.
    pub fn occupied(&self) -> Result<Vec<Occupied>, String> {
        match self {
            Backing::Emulated(nodes) => nodes.occupied(),
            Backing::Real { .. } => {
                let done = self.done()?.into_iter();
                Ok(done.map(|resources| Occupied { resources, workers: None }).collect())
            }
        }
    }

    /// What the machines have written down. Real ones end.
    ///
    /// # Errors
    /// The machines have ended early, or a log cannot be read.
    pub fn close(self) -> Result<Books, String> {
        match self {
            Backing::Emulated(nodes) => {
                let mut stats = nodes.stats()?;
                let logs = stats.iter_mut().map(|node| std::mem::take(&mut node.ids)).collect();
                Ok(Books { logs, stats })
            }
            Backing::Real { mut services, .. } => {
                let log = |service: &mut Running| {
                    let answered: Vec<Arc<str>> = service.instances.answered()?.into_iter().map(Into::into).collect();
                    // Their logs have what was answered; that something was received and not answered they do not say.
                    Ok(IdLog { received: answered.clone(), answered, unlogged: 0 })
                };
                let logs = services.iter_mut().map(log).collect::<Result<_, String>>()?;
                Ok(Books { logs, stats: Vec::new() })
            }
        }
    }
}

/// Can real machines play this?
fn possible(experiment: &Experiment) -> Result<(), String> {
    if let Some(machine) = experiment.machines.iter().find(|machine| machine.service == Service::Emulated) {
        return Err(format!(
            "machine {} is emulated and others are real: capacities of both cannot be compared; make all of them one",
            machine.name
        ));
    }
    let pools = experiment.site.policy.pools.iter().zip(&experiment.site.pools);
    if let Some((pool, _)) = pools.into_iter().find(|(_, site)| site.collector.is_some()) {
        return Err(format!(
            "upstream {} asks collectors, which real services do not have here; make the machines emulated or the \
             collector `off`",
            pool.name
        ));
    }
    if let Some(machine) = experiment.machines.iter().find(|machine| !machine.drift.is_constant()) {
        return Err(format!(
            "the speed of machine {} changes, which a real one's cannot; make the machines emulated, or write one `speed:`",
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
            "replies to {} stream, and those of the real services here come in one piece; make the machines emulated or \
             `apache-php`, or give the traffic a `request:` whose `path` has `{{stream_us}}`",
            traffic.class.name(&experiment.site.policy)
        ));
    }
    let strikes = |kind: &FaultKind| !matches!(kind, FaultKind::Removed | FaultKind::Reload | FaultKind::LostReports);
    match experiment.faults.iter().find(|fault| strikes(&fault.kind)) {
        Some(fault) => Err(format!(
            "the fault at {:.0} s needs emulated machines; a real service can only be `removed`",
            fault.at.as_secs_f64()
        )),
        None => Ok(()),
    }
}
