//! Gossip: gateways tell one another the demands that they know, and each computes all shares from what it knows.
//!
//! Source of the form: Demers et al., "Epidemic Algorithms for Replicated Database Maintenance" (PODC 1987), push to
//! two random peers. An entry that nobody has renewed for [`FORGET`] is forgotten, so that the share of a dead gateway
//! comes back. Nothing bounds the sum of shares while gateways know different things.

use std::time::Duration;

use super::network::Network;
use super::{Sharing, Site, micro};
use weirgate_site::fill;

/// Interval of pushes, and peers of each. Four times less than the leases' fastest answer, and as many messages.
const PUSH: Duration = Duration::from_millis(100);
const PEERS: usize = 2;

/// As long as a lease of `weirgate-site`.
const FORGET: Duration = Duration::from_secs(5);

/// The demands of one gateway, and when it measured them. Clocks are taken to agree.
#[derive(Clone)]
struct Entry {
    at: u64,
    demands: Vec<u64>,
}

pub(super) struct Gossip {
    known: Vec<Vec<Option<Entry>>>,
    push_at: Vec<u64>,
    network: Network<Vec<Option<Entry>>>,
}

impl Gossip {
    pub(super) fn new(site: &Site) -> Gossip {
        let gateways = site.scenario.gateways;
        Gossip {
            known: vec![vec![None; gateways]; gateways],
            push_at: (0..gateways as u64).map(|index| 7_000_000 * index % PUSH.as_nanos() as u64).collect(),
            network: Network::new(),
        }
    }
}

impl Sharing for Gossip {
    fn step(&mut self, site: &mut Site) {
        for index in 0..self.known.len() {
            if !site.runs(index) || site.now < self.push_at[index] {
                continue;
            }
            self.push_at[index] = site.now + PUSH.as_nanos() as u64;
            let demands = (0..site.scenario.classes).map(|class| site.demand(index, class)).collect();
            self.known[index][index] = Some(Entry { at: site.now, demands });
            for entry in &mut self.known[index] {
                entry.take_if(|entry| entry.at + (FORGET.as_nanos() as u64) < site.now);
            }
            for _ in 0..PEERS {
                let others = self.known.len() - 1;
                let peer = (index + 1 + (site.random.unit() * others as f64) as usize) % self.known.len();
                self.network.send(site, index, peer, self.known[index].clone());
            }
        }
        while let Some((_, to, entries)) = self.network.next(site) {
            for (known, entry) in self.known[to].iter_mut().zip(entries) {
                let newer = |entry: &Entry| known.as_ref().is_none_or(|known| known.at < entry.at);
                if entry.as_ref().is_some_and(newer) {
                    *known = entry;
                }
            }
        }
    }

    fn share(&self, site: &Site, gateway: usize, class: usize) -> f64 {
        let known = &self.known[gateway];
        let demands: Vec<u64> =
            known.iter().map(|entry| entry.as_ref().map_or(0, |entry| entry.demands[class])).collect();
        let mut shares = Vec::new();
        fill(micro(site.scenario.floor), &demands, &mut shares);
        // What nobody wants is divided evenly.
        let left = micro(site.scenario.floor) - shares.iter().sum::<u64>();
        (shares[gateway] + left / known.len() as u64) as f64 / 1e6
    }

    fn killed(&mut self, _: usize) {}

    fn started(&mut self, site: &Site, gateway: usize) {
        self.known[gateway] = vec![None; site.scenario.gateways];
    }

    fn sent(&self) -> (u64, u64) {
        (self.network.sent, 0)
    }
}
