//! The machines: servers behind an address, and their faults.
//!
//! A server is the emulator's [`Computer`]: a disk with a memory cache, processor sharing over k CPUs (by
//! class, if classes have shares), a concurrency limit with a queue, an I/O stage parallel to the CPUs, and
//! thrashing. This module adds the rest. Several servers may stand behind one address and take turns. A
//! server may stand behind several addresses. A full queue answers 503. Faults act on a whole machine, or
//! on an address with shared servers.
//!
//! Departure: a server knows at once of a connection that the gateway cuts, not a network delay later, and
//! it drops the request together with the work done for it. (Apache and PHP notice only when they write. A
//! server that watches its connections is the easier case for every discipline.)

use std::collections::BTreeMap;

use weirgate_emulator::computer::{Computer, Usage, Work};
use weirgate_emulator::random::Random;
use weirgate_experiment::random::{Purpose, generator};
use weirgate_experiment::{Condition, Experiment, Machine, Occupied};

/// A machine and its present condition.
struct Host {
    servers: Vec<u32>,
    /// Whether other addresses may have the same servers.
    shares: bool,
    /// Index of the server that receives the next request.
    turn: usize,
    /// Maximum number of requests in a server, its queue included.
    max: usize,
    nominal: f64,
    condition: Condition,
    random: Random,
}

/// The outcome of a request's arrival at a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reception {
    /// The machine has crashed, and the connection is refused.
    Refused,
    /// Status 500, after a millisecond.
    Failed,
    /// Status 503, because the server's queue is full.
    Full,
    /// This server has taken the request.
    Taken(u32),
}

pub(crate) struct Machines {
    hosts: Vec<Host>,
    servers: Vec<Computer>,
    /// The machine of each server. A server behind several addresses counts for the first.
    host_of: Vec<u32>,
    /// Finished requests with their instants, in order. Collect them after every call that advances a
    /// server.
    pub(crate) finished: Vec<(u64, u64)>,
    /// Streaming replies that have begun and are not finished, in order. Collect them before `finished`.
    pub(crate) begun: Vec<u64>,
}

impl Machines {
    /// Creates the machines of `experiment`, at instant 0.
    pub(crate) fn new(experiment: &Experiment, seed: u64) -> Machines {
        let mut machines = Machines {
            hosts: Vec::new(),
            servers: Vec::new(),
            host_of: Vec::new(),
            finished: Vec::new(),
            begun: Vec::new(),
        };
        let shares = experiment.reserves.as_ref().map(|reserves| with_others(&reserves.shares));
        // A named server exists once.
        let mut named: BTreeMap<&str, u32> = BTreeMap::new();
        for (index, machine) in experiment.machines.iter().enumerate() {
            let mut servers = Vec::new();
            for server in 0..machine.servers.max(1) as usize {
                let known = machine.shared.get(server).and_then(|name| named.get(name.as_str()).copied());
                let place = known.unwrap_or(machines.servers.len() as u32);
                if known.is_none() {
                    machines.servers.push(computer(machine, shares.as_deref()));
                    machines.host_of.push(index as u32);
                    named.extend(machine.shared.get(server).map(|name| (name.as_str(), place)));
                }
                servers.push(place);
            }
            let max = machine.concurrency.zip(machine.backlog).map_or(usize::MAX, |(c, b)| c as usize + b as usize);
            let random = generator(seed, Purpose::FailFast, index);
            let (nominal, condition) = (machine.speed, Condition::WELL);
            let shares = !machine.shared.is_empty();
            machines.hosts.push(Host { servers, shares, turn: 0, max, nominal, condition, random });
        }
        machines
    }

    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    pub(crate) fn servers_of(&self, machine: usize) -> Vec<u32> {
        self.hosts[machine].servers.clone()
    }

    /// Returns whether a crash of this machine leaves its servers running, because other addresses may have
    /// them.
    pub(crate) fn shares(&self, machine: usize) -> bool {
        self.hosts[machine].shares
    }

    pub(crate) fn condition(&self, machine: usize) -> &Condition {
        &self.hosts[machine].condition
    }

    /// Request `id` reaches a machine at `now`.
    pub(crate) fn receive(&mut self, now: u64, machine: usize, id: u64, work: Work) -> Reception {
        let host = &mut self.hosts[machine];
        if host.condition.crashed {
            return Reception::Refused;
        }
        let server = host.servers[host.turn];
        host.turn = (host.turn + 1) % host.servers.len();
        let fails = host.condition.fails(work.class as usize);
        if fails > 0.0 && !host.condition.stalled && host.random.unit() < fails {
            return Reception::Failed;
        }
        let computer = &mut self.servers[server as usize];
        move_on(computer, now, &mut self.finished, &mut self.begun);
        // A stalled server answers nothing, and connections pile up in its kernel.
        if !host.condition.stalled && computer.in_flight() + computer.waiting() >= host.max {
            return Reception::Full;
        }
        computer.arrive(id, work);
        Reception::Taken(server)
    }

    /// Removes request `id`, which was given up.
    pub(crate) fn cut(&mut self, now: u64, server: u32, id: u64) {
        let computer = &mut self.servers[server as usize];
        move_on(computer, now, &mut self.finished, &mut self.begun);
        computer.remove(id);
    }

    pub(crate) fn next_event(&self, server: u32) -> Option<u64> {
        self.servers[server as usize].next_event()
    }

    pub(crate) fn advance(&mut self, now: u64, server: u32) {
        move_on(&mut self.servers[server as usize], now, &mut self.finished, &mut self.begun);
    }

    /// Sets the condition of a machine. Call [`Machines::advance`] for its servers first.
    pub(crate) fn set_condition(&mut self, machine: usize, condition: Condition) {
        let host = &mut self.hosts[machine];
        let speed = if condition.stalled { 0.0 } else { host.nominal * condition.speed };
        for server in &host.servers {
            let computer = &mut self.servers[*server as usize];
            computer.set_speed(speed);
            if condition.crashed && !host.shares {
                computer.clear();
            }
        }
        host.condition = condition;
    }

    /// Returns, per machine, the CPU-seconds done until `now` and the seconds its disks and links were
    /// busy.
    pub(crate) fn done(&mut self, now: u64) -> [Vec<f64>; 3] {
        let mut sums = [const { Vec::new() }; 3];
        sums.iter_mut().for_each(|sum| sum.resize(self.hosts.len(), 0.0));
        for (computer, host) in self.servers.iter_mut().zip(&self.host_of) {
            move_on(computer, now, &mut self.finished, &mut self.begun);
            let Usage { done, disk, link, .. } = computer.usage();
            for (sum, nanos) in sums.iter_mut().zip([done, disk, link]) {
                sum[*host as usize] += nanos / 1e9;
            }
        }
        sums
    }

    /// Returns, per machine, the occupied time of its resources until `now`. No event may lie before `now`
    /// in any server. Advances no server.
    pub(crate) fn occupied_until(&self, now: u64) -> Vec<Occupied> {
        let mut all = vec![[0.0; 4]; self.hosts.len()];
        for (computer, host) in self.servers.iter().zip(&self.host_of) {
            all[*host as usize].iter_mut().zip(computer.occupied_at(now)).for_each(|(sum, nanos)| *sum += nanos / 1e9);
        }
        let occupied =
            |[cpu, disk, link, workers]: [f64; 4]| Occupied { resources: [cpu, disk, link], workers: Some(workers) };
        all.into_iter().map(occupied).collect()
    }

    /// Returns the seconds for which a machine's CPUs, disks and links were occupied, up to the last
    /// advance. An agent on the machine counts the same: a slow CPU is occupied for longer.
    pub(crate) fn occupied(&self, machine: usize) -> [f64; 3] {
        let mut all = Usage::default();
        self.hosts[machine].servers.iter().for_each(|server| all += self.servers[*server as usize].usage());
        [all.busy, all.disk, all.link].map(|nanos| nanos / 1e9)
    }

    /// Returns the CPU-seconds done on a machine per class with a share, up to the last advance.
    pub(crate) fn done_of(&self, machine: usize) -> Vec<f64> {
        let mut done = Vec::new();
        for server in &self.hosts[machine].servers {
            let own = self.servers[*server as usize].done_of();
            for (class, own) in own.enumerate() {
                if done.len() <= class {
                    done.push(0.0);
                }
                done[class] += own / 1e9;
            }
        }
        done
    }

    /// Sets the classes' shares of a machine's CPUs.
    pub(crate) fn set_shares(&mut self, now: u64, machine: usize, shares: &[f64]) {
        let shares = with_others(shares);
        for server in self.servers_of(machine) {
            let computer = &mut self.servers[server as usize];
            move_on(computer, now, &mut self.finished, &mut self.begun);
            computer.set_shares(&shares);
        }
    }
}

/// Advances a server to `now` and notes the requests that have finished and the replies that have begun to
/// stream.
fn move_on(computer: &mut Computer, now: u64, finished: &mut Vec<(u64, u64)>, begun: &mut Vec<u64>) {
    computer.advance(now, finished);
    if computer.has_begun() {
        begun.extend(computer.begun().map(|(id, _)| id));
    }
}

/// Appends a share of zero for all other work: health checks, and classes made from templates.
fn with_others(shares: &[f64]) -> Vec<f64> {
    shares.iter().copied().chain([0.0]).collect()
}

/// Creates a server of `machine`. Its CPUs are shared by class if `shares` are given.
fn computer(machine: &Machine, shares: Option<&[f64]>) -> Computer {
    let mut computer = match shares {
        Some(shares) => Computer::shared(0, machine.cpus, machine.concurrency, shares),
        None => Computer::new(0, machine.cpus, machine.concurrency, machine.thrashing),
    };
    if let Some(disk) = machine.disk {
        computer = computer.with_disk(0, disk);
    }
    computer.set_speed(machine.speed);
    computer
}

#[cfg(test)]
mod tests {
    use super::*;
    use weirgate_emulator::station::Demand;

    const MS: u64 = 1_000_000;

    fn experiment(servers: u32) -> Experiment {
        let text = format!(
            "policy: {{ upstreams: {{ web: {{ nodes: ['a:1'] }} }}, classes: [{{ name: A }}] }}
machines: {{ speed: 2, servers: {servers}, concurrency: 1, backlog: 1 }}
traffic: [{{ class: A, rate: 1/s, demand: 1ms }}]
phases: [{{ name: all, until: 10s }}]"
        );
        let loaded = weirgate_experiment::load_experiment("test.yaml", &text, std::path::Path::new(""), &[]);
        loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment
    }

    fn demand() -> Work {
        Work { demand: Demand { cpu: 10 * MS, ..Demand::default() }, ..Work::default() }
    }

    #[test]
    fn servers_take_turns_and_are_full_one_by_one() {
        let mut machines = Machines::new(&experiment(2), 1);
        let receptions: Vec<Reception> = (0..5).map(|id| machines.receive(0, 0, id, demand())).collect();
        let taken = Reception::Taken;
        assert_eq!(receptions, [taken(0), taken(1), taken(0), taken(1), Reception::Full]);
        // At speed 2, 10 ms of work take 5 ms.
        assert_eq!(machines.next_event(0), Some(5 * MS));
        machines.advance(5 * MS, 0);
        assert_eq!(machines.finished, [(0, 5 * MS)]);
        assert_eq!(machines.done(5 * MS), [[0.020], [0.0], [0.0]]);
    }

    #[test]
    fn a_machine_that_is_gone_refuses_and_a_stalled_one_holds() {
        let mut machines = Machines::new(&experiment(1), 1);
        machines.receive(0, 0, 1, demand());
        machines.set_condition(0, Condition { stalled: true, ..Condition::WELL });
        let receptions = [2, 3, 4].map(|id| machines.receive(MS, 0, id, demand()));
        assert_eq!((receptions, machines.next_event(0)), ([Reception::Taken(0); 3], None));
        machines.cut(MS, 0, 1);
        machines.set_condition(0, Condition { crashed: true, ..Condition::WELL });
        assert_eq!(machines.receive(2 * MS, 0, 5, demand()), Reception::Refused);
        machines.set_condition(0, Condition::WELL);
        assert_eq!(
            (machines.receive(3 * MS, 0, 6, demand()), machines.next_event(0)),
            (Reception::Taken(0), Some(8 * MS))
        );
    }

    #[test]
    fn a_stream_that_begins_as_another_request_comes_is_noted() {
        let mut machines = Machines::new(&experiment(1), 1);
        let stream = Work { demand: Demand { cpu: 10 * MS, stream: 50 * MS, ..Demand::default() }, ..Work::default() };
        machines.receive(0, 0, 1, stream);
        assert_eq!(machines.receive(5 * MS, 0, 2, demand()), Reception::Taken(0));
        assert_eq!((machines.begun.as_slice(), machines.finished.len()), ([1].as_slice(), 0));
    }

    #[test]
    fn a_server_behind_two_addresses_is_one() {
        let mut experiment = experiment(2);
        let shared = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        experiment.machines[0].shared = shared(["s1", "s2"]);
        let second = Machine { name: "b".into(), shared: shared(["s2", "s3"]), ..experiment.machines[0].clone() };
        experiment.machines.push(second);
        let mut machines = Machines::new(&experiment, 1);
        assert_eq!((machines.servers(), machines.servers_of(0), machines.servers_of(1)), (3, vec![0, 1], vec![1, 2]));
        let mut next = 0;
        let mut receive = |machine| {
            next += 1;
            machines.receive(0, machine, next, demand())
        };
        // Each address has its own turn. The second server has room for one request at work and one that
        // waits, through either address.
        let taken = Reception::Taken;
        let found = [0, 0, 1, 1, 0, 0, 1].map(&mut receive);
        assert_eq!(found, [taken(0), taken(1), taken(1), taken(2), taken(0), Reception::Full, Reception::Full]);
        // The first address is gone. Requests that came through the other go on.
        machines.set_condition(0, Condition { crashed: true, ..Condition::WELL });
        machines.advance(100 * MS, 1);
        assert_eq!(machines.receive(100 * MS, 0, 9, demand()), Reception::Refused);
        assert_eq!(machines.finished.iter().filter(|(id, _)| [2, 3].contains(id)).count(), 2);
        assert_eq!(machines.receive(100 * MS, 1, 10, demand()), taken(2));
    }
}
