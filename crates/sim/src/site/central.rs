//! Central: an elected gateway decides on each request. Every request of another gateway waits for a round trip.
//!
//! A gateway that cannot reach the elected one must do something with its requests. It uses an even share, as Envoy's
//! rate limits do with their fallback. The election is that of the leases.

use std::time::Duration;

use super::{STEP, Sharing, Site};

/// How long a gateway that is gone stays the elected one.
const KEY_LASTS: Duration = Duration::from_secs(2);

pub(super) struct Central {
    elected: usize,
    heard_at: u64,
    asked: f64,
    requests: f64,
    delay: Duration,
}

impl Central {
    pub(super) fn new() -> Central {
        Central { elected: 0, heard_at: 0, asked: 0.0, requests: 0.0, delay: Duration::ZERO }
    }

    fn is_served(&self, site: &Site, gateway: usize) -> bool {
        let reaches = gateway == self.elected || (!site.cut[gateway] && !site.cut[self.elected]);
        reaches && site.runs(self.elected)
    }
}

impl Sharing for Central {
    fn step(&mut self, site: &mut Site) {
        let [least, most] = site.scenario.delay;
        self.delay = least + most;
        if site.runs(self.elected) && site.reaches_etcd(self.elected) {
            self.heard_at = site.now;
        } else if site.now >= self.heard_at + KEY_LASTS.as_nanos() as u64 {
            let next = (0..site.scenario.gateways).find(|index| site.runs(*index) && site.reaches_etcd(*index));
            if let Some(next) = next {
                (self.elected, self.heard_at) = (next, site.now);
            }
        }
        for gateway in 0..site.scenario.gateways {
            let requests = site.offered[gateway].iter().sum::<f64>() * STEP.as_secs_f64();
            self.requests += requests;
            if gateway != self.elected {
                self.asked += requests;
            }
        }
    }

    fn share(&self, site: &Site, gateway: usize, class: usize) -> f64 {
        if !self.is_served(site, gateway) {
            return site.scenario.floor / site.scenario.gateways as f64;
        }
        let served = (0..site.scenario.gateways).filter(|index| site.runs(*index) && self.is_served(site, *index));
        let offered: f64 = served.map(|index| site.offered[index][class]).sum();
        let all = (site.scenario.floor / offered.max(f64::MIN_POSITIVE)).min(1.0);
        // A lost question or answer costs its request.
        site.offered[gateway][class] * all * (1.0 - site.loss).powi(2)
    }

    fn killed(&mut self, _: usize) {}

    fn started(&mut self, _: &Site, _: usize) {}

    fn sent(&self) -> (u64, u64) {
        (2 * self.asked as u64, 0)
    }

    fn added_delay(&self) -> Duration {
        self.delay.mul_f64(self.asked / self.requests.max(1.0))
    }
}
