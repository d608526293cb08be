//! The machines of an experiment, as emulated nodes over real sockets.
//!
//! A machine here is the machine of the simulator: the same stations with the same parameters, a queue that
//! refuses, servers that take turns, faults that add up ([`Condition`]), and a request that is dropped when
//! the gateway closes its connection. One difference is that time is real, so replies begin late by
//! [`NodeStats::lateness`]. The other is that requests reach a machine over the loopback interface, so the
//! experiment's `network_delay` is not added.
//!
//! Each request states its demand (`?demand=8000us&io=0us`, and `&disk=…&link=…&stream=…` if it has some),
//! drawn by the client, so that lab and simulator serve the same requests. A request without a demand, such
//! as a health check, costs nothing.

use std::net::{Ipv4Addr, SocketAddr};

use weirgate_emulator::{Cluster, Health, NodeSpec, NodeStats};
use weirgate_experiment::random::{Purpose, seed_for};
use weirgate_experiment::{Condition, Experiment, Machine, Occupied};

use crate::process::on_cpu;

/// Maximum number of ids that a machine logs. It suffices for twelve minutes, longer than any published
/// experiment, at more requests per second than one emulating thread can serve. [`crate::proof`] refuses a
/// log that was too short.
const MAX_IDS: usize = 1 << 24;

/// The machines of a running experiment, all on one thread. Dropping it stops them.
#[derive(Debug)]
pub struct Nodes {
    cluster: Cluster,
    /// Name of each machine.
    machines: Vec<String>,
    /// Address of each node of the policy.
    addresses: Vec<SocketAddr>,
    /// Names of the policy's classes, then of its templates: the values of `X-Class` in requests.
    classes: Vec<String>,
}

impl Nodes {
    /// Starts the machines on loopback ports that the kernel chooses, on CPU number `cpu` if one is given.
    /// `seed` determines which requests a failing machine fails.
    ///
    /// # Errors
    /// The experiment has a machine that no node runs on or an invalid number, there is no such CPU, or the
    /// system has no descriptors left. The message names the cause.
    pub fn start(experiment: &Experiment, seed: u64, cpu: Option<usize>) -> Result<Nodes, String> {
        if let Some(machine) = experiment.machines.iter().find(|machine| !machine.shared.is_empty()) {
            return Err(format!(
                "machine {} lists its servers, which other addresses may share; emulated nodes cannot share servers: \
                 play it in the simulator, or write a number of `servers:`",
                machine.name
            ));
        }
        let machine_of = &experiment.machine_of;
        let ports_of = |machine| machine_of.iter().filter(|of| **of == machine).count();
        let machines = experiment.machines.iter().enumerate();
        let specs: Vec<NodeSpec> = machines.map(|(index, machine)| node(machine, ports_of(index))).collect();
        let mut next: Vec<usize> = Vec::with_capacity(specs.len());
        next.extend(specs.iter().scan(0, |ports, spec| Some(std::mem::replace(ports, *ports + spec.addresses.len()))));
        let seed = seed_for(seed, Purpose::FailFast, 0);
        let cluster =
            on_cpu(cpu, || Cluster::start(specs, seed)).map_err(|error| format!("emulated nodes: {error}"))?;
        let address = |machine: &usize| {
            let port = next.get_mut(*machine)?;
            *port += 1;
            cluster.addresses().get(*port - 1).copied()
        };
        let addresses: Option<Vec<SocketAddr>> = machine_of.iter().map(address).collect();
        let addresses = addresses.ok_or("a node of the policy runs on a machine that the experiment does not have")?;
        let machines = experiment.machines.iter().map(|machine| machine.name.clone()).collect();
        let classes = experiment.site.policy.all_classes().map(|class| class.name.clone()).collect();
        Ok(Nodes { cluster, machines, addresses, classes })
    }

    /// Returns the address of each node of the policy. Nodes of one machine have separate ports and share its CPUs.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sets the condition of machine number `machine` and returns when it is in effect. Removing nodes is
    /// left to the operator and the gateway, and the machine itself goes on.
    ///
    /// # Errors
    /// There is no such machine, a number is invalid, or the system did not give back the ports of a
    /// crashed machine.
    pub fn set_condition(&self, machine: usize, condition: Condition) -> Result<(), String> {
        let Condition { removed: _, crashed, stalled, speed, fails, fails_of } = condition;
        let name = |(class, share): (usize, f64)| Some((self.classes.get(class)?.clone(), share));
        let fails_of = fails_of.into_iter().filter_map(name).collect();
        let health = Health { crashed, stalled, speed, fails, fails_of, garbles: false };
        let name = self.machines.get(machine).map_or("unknown", String::as_str);
        self.cluster.set_health(machine, health).map_err(|error| format!("machine {machine} ({name}): {error}"))
    }

    /// Returns the work of each machine since the start, in seconds of nominal CPU, disk and link time, as
    /// in [`weirgate_experiment::Sample`].
    ///
    /// # Errors
    /// The thread of the nodes has stopped early.
    pub fn done(&self) -> Result<Vec<[f64; 3]>, String> {
        self.cluster.done().map_err(|error| error.to_string())
    }

    /// Returns how long each machine's resources and workers were busy since the start.
    ///
    /// # Errors
    /// The thread of the nodes has stopped early.
    pub fn occupied(&self) -> Result<Vec<Occupied>, String> {
        let occupied =
            |[cpu, disk, link, workers]: [f64; 4]| Occupied { resources: [cpu, disk, link], workers: Some(workers) };
        let all = self.cluster.occupied().map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(occupied).collect())
    }

    /// Returns all counters of each machine, with the ids of its requests. They are copied, so call this at the end.
    ///
    /// # Errors
    /// The thread of the nodes has stopped early.
    pub fn stats(&self) -> Result<Vec<NodeStats>, String> {
        self.cluster.stats().map_err(|error| error.to_string())
    }
}

fn node(machine: &Machine, ports: usize) -> NodeSpec {
    NodeSpec {
        addresses: vec![(Ipv4Addr::LOCALHOST, 0).into(); ports],
        servers: machine.servers,
        speed: machine.speed,
        concurrency: machine.concurrency,
        backlog: machine.backlog,
        thrashing: machine.thrashing,
        disk: machine.disk,
        drops_abandoned: true,
        log: MAX_IDS,
        ..NodeSpec::new(&machine.name, machine.cpus)
    }
}
