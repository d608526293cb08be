//! The design of `weirgate-site`: its machines in every gateway, with an elected coordinator.
//!
//! Every gateway holds a member and is ready to be the coordinator. etcd is modelled by what is used of it: one key on
//! a lease names the elected gateway, its revision counts elections, and the elected one records members.

use std::sync::Arc;
use std::time::Duration;

use weirgate_site::{Coordinator, Grant, Member, Record, Report, Site as Agreed};

use super::network::Network;
use super::{Sharing, Site, settings};

/// How long etcd keeps the key of an elected gateway that says nothing.
const KEY_LASTS: Duration = Duration::from_secs(2);

/// Interval between two questions to etcd: am I the elected one, is there one.
const ASK: Duration = Duration::from_millis(250);

enum Message {
    Report(Report),
    Grant(Grant),
}

struct Gateway {
    member: Member,
    coordinator: Option<Coordinator>,
    incarnation: u64,
    asks_at: u64,
}

pub(super) struct Leases {
    agreed: Arc<Agreed>,
    gateways: Vec<Gateway>,
    network: Network<Message>,
    /// The gateway with the key, how long it lasts, how often there was an election, and records of members.
    elected: usize,
    key_until: u64,
    revision: u64,
    records: Vec<Record>,
    etcd: u64,
}

impl Leases {
    pub(super) fn new(site: &Site, reserve: u32) -> Leases {
        let mut settings = settings(&site.scenario);
        settings.reserve = reserve;
        let agreed = Arc::new(settings.check().expect("the scenario is checked"));
        let gateway = |index| Gateway {
            member: Member::new(agreed.clone(), 1),
            coordinator: None,
            incarnation: 1,
            // Gateways do not start at the same instant.
            asks_at: 7_000_000 * index as u64 % ASK.as_nanos() as u64,
        };
        Leases {
            gateways: (0..site.scenario.gateways).map(gateway).collect(),
            agreed,
            network: Network::new(),
            elected: 0,
            key_until: 0,
            revision: 0,
            records: vec![Record::Nothing; site.scenario.gateways],
            etcd: 0,
        }
    }

    /// A gateway asks etcd whether it, or who else, is elected.
    fn ask(&mut self, site: &Site, index: usize) {
        let gateway = &mut self.gateways[index];
        if site.now < gateway.asks_at {
            return;
        }
        gateway.asks_at = site.now + ASK.as_nanos() as u64;
        if !site.reaches_etcd(index) {
            return;
        }
        self.etcd += 1;
        let local = site.clock(index);
        if self.key_until <= site.now {
            self.revision += 1;
            self.elected = index;
            self.key_until = site.now + KEY_LASTS.as_nanos() as u64;
            gateway.coordinator = Some(Coordinator::new(local, self.agreed.clone(), self.revision, &self.records));
        }
        let own = gateway.coordinator.as_mut().filter(|own| own.revision() == self.revision);
        match own {
            Some(own) => {
                own.proved(local);
                self.key_until = site.now + KEY_LASTS.as_nanos() as u64;
            }
            None => gateway.coordinator = None,
        }
        gateway.member.follow(self.revision);
    }

    /// The gateway that the members of this coordinator speak to.
    fn coordinator(&self, revision: u64) -> Option<usize> {
        self.gateways.iter().position(|gateway| {
            gateway.coordinator.as_ref().is_some_and(|coordinator| coordinator.revision() == revision)
        })
    }

    fn deliver(&mut self, site: &Site) {
        while let Some((from, to, message)) = self.network.next(site) {
            let (local, gateway) = (site.clock(to), &mut self.gateways[to]);
            // Refused messages are as good as lost.
            match message {
                Message::Report(report) => {
                    if let Some(coordinator) = &mut gateway.coordinator {
                        let _ = coordinator.report(local, from, report);
                    }
                }
                Message::Grant(grant) => {
                    let _ = gateway.member.granted(local, grant);
                }
            }
        }
    }

    fn coordinate(&mut self, site: &mut Site, index: usize) {
        let local = site.clock(index);
        let reaches = site.reaches_etcd(index);
        let Some(coordinator) = &mut self.gateways[index].coordinator else { return };
        if coordinator.next_timeout() > local {
            return;
        }
        coordinator.run(local);
        if reaches && coordinator.revision() == self.revision {
            while let Some((member, record)) = coordinator.poll_record() {
                self.etcd += 1;
                self.records[member] = record;
                coordinator.recorded(member, record);
            }
        }
        while let Some((member, grant)) = coordinator.poll_grant() {
            self.network.send(site, index, member, Message::Grant(grant));
        }
    }
}

impl Sharing for Leases {
    fn step(&mut self, site: &mut Site) {
        self.deliver(site);
        for index in 0..self.gateways.len() {
            if !site.runs(index) {
                continue;
            }
            self.ask(site, index);
            self.coordinate(site, index);
            let local = site.clock(index);
            let member = &mut self.gateways[index].member;
            for class in 0..site.scenario.classes {
                member.demand(class, site.demand(index, class));
            }
            if let Some(report) = member.poll_report(local)
                && let Some(to) = self.coordinator(report.revision)
            {
                self.network.send(site, index, to, Message::Report(report));
            }
        }
        self.deliver(site);
    }

    fn share(&self, site: &Site, gateway: usize, class: usize) -> f64 {
        self.gateways[gateway].member.share(site.clock(gateway), class) as f64 / 1e6
    }

    fn killed(&mut self, gateway: usize) {
        self.gateways[gateway].coordinator = None;
    }

    fn started(&mut self, site: &Site, gateway: usize) {
        let gateway = &mut self.gateways[gateway];
        gateway.incarnation += 1;
        gateway.member = Member::new(self.agreed.clone(), gateway.incarnation);
        gateway.asks_at = site.now;
    }

    fn sent(&self) -> (u64, u64) {
        (self.network.sent, self.etcd)
    }
}
