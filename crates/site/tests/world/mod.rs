//! A site in true time: processes with clocks of their own, etcd, and a network under the control of a test.
//!
//! The observer sees more than any process: the shares that all members believe to have, at the same true instant.

use core::time::Duration;
use std::sync::Arc;

use weirgate_engine::Time;
use weirgate_site::{Coordinator, Grant, Member, Record, Report, Site};

/// A process's clock: it shows `offset` at the beginning, and runs `rate.0 / rate.1` as fast as true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    pub offset: u64,
    pub rate: (u64, u64),
}

impl Clock {
    /// The time on the clock `nanos` after the beginning.
    pub fn at(self, nanos: u64) -> Time {
        Time::from_nanos(self.offset + nanos * self.rate.0 / self.rate.1)
    }
}

/// A message that a member or a coordinator may or may not receive, at any time and any number of times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Letter {
    Report { member: usize, report: Report },
    Grant { member: usize, grant: Grant },
}

/// One process of a member. It is gone after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gateway {
    pub machine: Option<Member>,
    pub clock: Clock,
    pub incarnation: u64,
}

/// One process that was elected. Earlier ones may not know that they are no longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Elected {
    pub machine: Coordinator,
    pub clock: Clock,
}

/// The whole site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// True time in nanoseconds.
    pub now: u64,
    pub site: Arc<Site>,
    pub gateways: Vec<Gateway>,
    /// In order of their election.
    pub elected: Vec<Elected>,
    /// The contents of etcd: the present revision, and the records of members.
    pub revision: u64,
    pub records: Vec<Record>,
    pub network: Vec<Letter>,
}

impl World {
    /// A site whose gateways run, and no coordinator.
    pub fn new(site: Arc<Site>, clocks: &[Clock]) -> World {
        let gateway =
            |clock: &Clock| Gateway { machine: Some(Member::new(site.clone(), 1)), clock: *clock, incarnation: 1 };
        World {
            now: 0,
            gateways: clocks.iter().map(gateway).collect(),
            elected: Vec::new(),
            revision: 0,
            records: vec![Record::Nothing; clocks.len()],
            network: Vec::new(),
            site,
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time.as_nanos() as u64;
    }

    /// Elects a new process, although the present one may be well.
    pub fn elect(&mut self, clock: Clock) {
        self.revision += 1;
        let machine = Coordinator::new(clock.at(self.now), self.site.clone(), self.revision, &self.records);
        self.elected.push(Elected { machine, clock });
    }

    /// Process `index` asks etcd now whether it is the elected one.
    pub fn prove(&mut self, index: usize) {
        let elected = &mut self.elected[index];
        if elected.machine.revision() == self.revision {
            elected.machine.proved(elected.clock.at(self.now));
        }
    }

    /// Process `index` runs and sends its messages that are due. It records members if it is still the elected one.
    pub fn run(&mut self, index: usize) {
        let elected = &mut self.elected[index];
        elected.machine.run(elected.clock.at(self.now));
        while let Some((member, record)) = elected.machine.poll_record() {
            if elected.machine.revision() == self.revision {
                self.records[member] = record;
                elected.machine.recorded(member, record);
            }
        }
        while let Some((member, grant)) = elected.machine.poll_grant() {
            self.network.push(Letter::Grant { member, grant });
        }
    }

    /// A gateway sends a report to the process that it follows, if one is due.
    pub fn send(&mut self, member: usize) {
        let gateway = &mut self.gateways[member];
        let now = gateway.clock.at(self.now);
        if let Some(report) = gateway.machine.as_mut().and_then(|machine| machine.poll_report(now)) {
            self.network.push(Letter::Report { member, report });
        }
    }

    /// A gateway learns of the elected process.
    pub fn follow(&mut self, member: usize) {
        if let Some(machine) = &mut self.gateways[member].machine {
            machine.follow(self.revision);
        }
    }

    /// Revision of the process that a gateway follows, or of the present one if it has ended.
    pub fn follows(&self, member: usize) -> u64 {
        self.gateways[member].machine.as_ref().map_or(self.revision, Member::revision)
    }

    pub fn demand(&mut self, member: usize, budget: usize, amount: u64) {
        if let Some(machine) = &mut self.gateways[member].machine {
            machine.demand(budget, amount);
        }
    }

    /// Delivers a copy of `letter`. Refusals are as good as losses.
    pub fn deliver(&mut self, letter: &Letter) {
        match letter.clone() {
            Letter::Report { member, report } => {
                let to = self.elected.iter_mut().find(|elected| elected.machine.revision() == report.revision);
                if let Some(elected) = to {
                    let _ = elected.machine.report(elected.clock.at(self.now), member, report);
                }
            }
            Letter::Grant { member, grant } => {
                let gateway = &mut self.gateways[member];
                if let Some(machine) = &mut gateway.machine {
                    let _ = machine.granted(gateway.clock.at(self.now), grant);
                }
            }
        }
    }

    /// The `n`-th grant or report under way.
    pub fn nth(&self, n: usize, grants: bool) -> Option<Letter> {
        self.network.iter().filter(|letter| matches!(letter, Letter::Grant { .. }) == grants).nth(n).cloned()
    }

    pub fn crash(&mut self, member: usize) {
        self.gateways[member].machine = None;
    }

    /// Starts the gateway again, after the end of its former process.
    pub fn restart(&mut self, member: usize) {
        let gateway = &mut self.gateways[member];
        gateway.incarnation += 1;
        gateway.machine = Some(Member::new(self.site.clone(), gateway.incarnation));
    }

    /// The share that `member` believes to have. A process that has ended uses nothing.
    pub fn share(&self, member: usize, budget: usize) -> u64 {
        let gateway = &self.gateways[member];
        gateway.machine.as_ref().map_or(0, |machine| machine.share(gateway.clock.at(self.now), budget))
    }

    /// The observer: the first budget whose shares add up to more than it, or a member that has nothing.
    pub fn broken(&self) -> Option<String> {
        (0..self.site.budgets()).find_map(|budget| {
            let shares: Vec<u64> = (0..self.gateways.len()).map(|member| self.share(member, budget)).collect();
            let too_much = shares.iter().sum::<u64>() > self.site.total(budget);
            let nothing = (0..shares.len()).any(|m| shares[m] == 0 && self.gateways[m].machine.is_some());
            (too_much || nothing).then(|| format!("budget {budget}: {shares:?} of {}", self.site.total(budget)))
        })
    }
}
