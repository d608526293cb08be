//! Static split: every gateway has the same share at all times. Nothing is said, and nothing follows the load.

use super::{Sharing, Site};

pub(super) struct Split;

impl Sharing for Split {
    fn step(&mut self, _: &mut Site) {}

    fn share(&self, site: &Site, _: usize, _: usize) -> f64 {
        site.scenario.floor / site.scenario.gateways as f64
    }

    fn killed(&mut self, _: usize) {}

    fn started(&mut self, _: &Site, _: usize) {}

    fn sent(&self) -> (u64, u64) {
        (0, 0)
    }
}
