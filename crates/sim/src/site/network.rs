//! Messages between gateways: late, lost, and not delivered to gateways that are cut off or do not run.

use std::collections::BTreeMap;

use super::Site;

/// Messages under way, by the time of their arrival and the order in which they were sent.
pub(super) struct Network<M> {
    under_way: BTreeMap<(u64, u64), (usize, usize, M)>,
    pub(super) sent: u64,
    order: u64,
}

impl<M> Network<M> {
    pub(super) fn new() -> Network<M> {
        Network { under_way: BTreeMap::new(), sent: 0, order: 0 }
    }

    /// Sends a message. One to the own machine arrives at once and is not counted.
    pub(super) fn send(&mut self, site: &mut Site, from: usize, to: usize, message: M) {
        self.order += 1;
        if from == to {
            self.under_way.insert((site.now, self.order), (from, to, message));
            return;
        }
        self.sent += 1;
        if site.random.unit() < site.loss || site.cut[from] || site.cut[to] {
            return;
        }
        let [least, most] = site.scenario.delay.map(|delay| delay.as_nanos() as f64);
        let delay = least + (most - least) * site.random.unit();
        self.under_way.insert((site.now + delay as u64, self.order), (from, to, message));
    }

    /// The next message that has arrived, as sender, receiver and contents.
    pub(super) fn next(&mut self, site: &Site) -> Option<(usize, usize, M)> {
        loop {
            let first = self.under_way.first_entry().filter(|entry| entry.key().0 <= site.now)?;
            let (from, to, message) = first.remove();
            // A stopped process finds its messages when it goes on, at worst too late. Here they are lost.
            if from == to || (!site.cut[to] && !site.cut[from]) && site.runs(to) {
                return Some((from, to, message));
            }
        }
    }
}
