//! The machines of an experiment, as emulated nodes over real sockets.
//!
//! A machine here is what it is in the simulator: the same stations with the same figures, a queue that
//! refuses, servers that take turns, faults that add up ([`Condition`]), and a request that is dropped when the
//! gateway cuts its connection. The difference is that time is real, so that replies are begun late by what
//! [`NodeStats::lateness`] says, and that the way to a machine is the loopback interface: the experiment's
//! `network_delay` is not added.
//!
//! What a request takes comes with it (`?demand=8000us&io=0us`, `&disk=…&link=…&stream=…` where it takes some of
//! these), drawn by the client, so that lab and simulator serve the same requests. One that says nothing, such as a
//! health check, takes nothing.

use std::net::{Ipv4Addr, SocketAddr};

use weirgate_emulator::{Cluster, Disk, Health, NodeSpec, NodeStats, Thrashing};
use weirgate_experiment::random::{Purpose, seed_for};
use weirgate_experiment::{Condition, Experiment, Machine, Occupied};
use weirgate_verdict::oracle;

use crate::process::on_cpu;

/// Most ids that a machine logs: twelve minutes, longer than any published experiment, at more requests a second
/// than one emulating thread can take. [`crate::proof`] refuses a log that was too short.
const MOST_IDS: usize = 1 << 24;

/// The machines of an experiment under way, all on one thread. Dropped, they are gone.
#[derive(Debug)]
pub struct Nodes {
    cluster: Cluster,
    /// Per machine its name.
    machines: Vec<String>,
    /// Per node of the policy.
    addresses: Vec<SocketAddr>,
    /// Names of the policy's classes, then of its templates: what requests say in `X-Class`.
    classes: Vec<String>,
}

impl Nodes {
    /// Starts the machines on loopback ports that the kernel chooses, on CPU number `cpu` (anywhere without
    /// one). `seed` says which requests a failing machine fails.
    ///
    /// # Errors
    /// The experiment has a machine that no node runs on or a figure that makes no sense, there is no such CPU,
    /// or the system has no descriptors left; the message says which.
    pub fn start(experiment: &Experiment, seed: u64, cpu: Option<usize>) -> Result<Nodes, String> {
        if let Some(machine) = experiment.machines.iter().find(|machine| !machine.shared.is_empty()) {
            return Err(format!(
                "machine {} has servers that other addresses may have too, which emulated nodes have not; play it in the \
                 simulator, or write how many `servers:` it has",
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
        let classes = oracle::classes(&experiment.site.policy).map(|class| class.name.clone()).collect();
        Ok(Nodes { cluster, machines, addresses, classes })
    }

    /// Per node of the policy where it listens. Nodes of one machine have ports of their own and share its CPUs.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Says what is wrong with machine number `machine` from now on, and returns when it is so. That its nodes
    /// are removed is between the operator and the gateway: the machine itself goes on.
    ///
    /// # Errors
    /// There is no such machine, a figure makes no sense, or the system did not give back the ports of a machine
    /// that had crashed.
    pub fn set_condition(&self, machine: usize, condition: Condition) -> Result<(), String> {
        let Condition { removed: _, crashed, stalled, speed, fails, fails_of } = condition;
        let name = |(class, share): (usize, f64)| Some((self.classes.get(class)?.clone(), share));
        let fails_of = fails_of.into_iter().filter_map(name).collect();
        let health = Health { crashed, stalled, speed, fails, fails_of, garbles: false };
        let name = self.machines.get(machine).map_or("unknown", String::as_str);
        self.cluster.set_health(machine, health).map_err(|error| format!("machine {machine} ({name}): {error}"))
    }

    /// Per machine the work done since the start, in seconds of a nominal CPU, of a disk and of a link, as in
    /// [`weirgate_experiment::Sample`].
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn done(&self) -> Result<Vec<[f64; 3]>, String> {
        self.cluster.done().map_err(|error| error.to_string())
    }

    /// Per machine what it was occupied with since the start.
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn occupied(&self) -> Result<Vec<Occupied>, String> {
        let occupied =
            |[cpu, disk, link, workers]: [f64; 4]| Occupied { resources: [cpu, disk, link], workers: Some(workers) };
        let all = self.cluster.occupied().map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(occupied).collect())
    }

    /// Per machine everything that it has counted, the ids of its requests included. They are copied: ask at the
    /// end.
    ///
    /// # Errors
    /// The thread of the nodes has ended early.
    pub fn stats(&self) -> Result<Vec<NodeStats>, String> {
        self.cluster.stats().map_err(|error| error.to_string())
    }
}

/// The emulated node that `machine` is, with so many ports.
fn node(machine: &Machine, ports: usize) -> NodeSpec {
    NodeSpec {
        addresses: vec![(Ipv4Addr::LOCALHOST, 0).into(); ports],
        servers: machine.servers,
        speed: machine.speed,
        concurrency: machine.concurrency,
        backlog: machine.backlog,
        thrashing: machine.thrashing.map(|t| Thrashing { beyond: t.beyond, penalty: t.penalty }),
        disk: machine.disk.map(|d| Disk { access: d.access, bytes_per_s: d.bytes_per_s, cache: d.memory }),
        drops_abandoned: true,
        log: MOST_IDS,
        ..NodeSpec::new(&machine.name, machine.cpus)
    }
}
