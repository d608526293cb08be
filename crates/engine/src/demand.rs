//! The cost of a request on a node, resource by resource.
//!
//! Source: Feng and Lin, mQoS (2005), Secs. 3.1 and 3.2. A page table holds, for every page, the share of
//! each server resource that a request for that page consumes, per second. The resource with the largest
//! share is the request's *tendency*.
//!
//! Departure: integer billionths instead of fractional percentages. Costs that are added and subtracted any
//! number of times stay exact, so no comparison needs a tolerance.

/// Maximum number of resources with a cost: processors, disks, network, and one spare.
pub const RESOURCES: usize = 4;

/// Knowledge of request costs, and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Costs {
    /// Costs are unknown.
    Unknown,
    /// A page table exists, and the use of each resource is recorded.
    Recorded,
    /// Requests wait in one sub-queue per resource. A request counts by its cost on its dominant resource,
    /// not as a slot.
    Shared,
}

/// Billionths in one whole.
const WHOLE: f64 = 1e9;

/// Cost of a request, per resource of [`crate::Policy::resources`], in billionths of a node's capacity for
/// one second. 10,000,000 is one percent, or 10 ms of the whole node. The maximum is 4.29 node-seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand(pub [u32; RESOURCES]);

impl Demand {
    /// Converts shares, where 1 is a node's capacity for one second. NaN becomes 0. A value out of range
    /// becomes the nearest one in range. Shares after the first [`RESOURCES`] are ignored.
    pub fn of_shares(shares: &[f64]) -> Demand {
        let mut demand = Demand::default();
        for (billionths, share) in demand.0.iter_mut().zip(shares) {
            // The cast saturates, and turns NaN into 0.
            *billionths = (share * WHOLE).round() as u32;
        }
        demand
    }

    /// The share of one resource. 1 is a node's capacity for one second.
    ///
    /// # Panics
    /// If `resource` is not below [`RESOURCES`].
    pub fn share(&self, resource: usize) -> f64 {
        f64::from(self.0[resource]) / WHOLE
    }

    /// The shares of the first `N` resources, where `N` is at most [`RESOURCES`].
    ///
    /// # Panics
    /// If `N` is larger.
    pub fn shares<const N: usize>(&self) -> [f64; N] {
        core::array::from_fn(|resource| self.share(resource))
    }

    /// The same cost, with each resource capped at `max` billionths.
    pub fn at_most(&self, max: u64) -> Demand {
        Demand(self.0.map(|share| u32::try_from(max).map_or(share, |max| share.min(max))))
    }

    /// The resource with the highest cost, the first one of equals.
    pub fn tendency(&self) -> usize {
        (1..RESOURCES).fold(0, |max, next| if self.0[next] > self.0[max] { next } else { max })
    }

    /// The cost on the dominant resource, in billionths.
    pub fn dominant(&self) -> u32 {
        self.0[self.tendency()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_billionths_and_the_largest_is_the_tendency() {
        let demand = Demand::of_shares(&[0.088, 0.12, 0.12]);
        assert_eq!(demand, Demand([88_000_000, 120_000_000, 120_000_000, 0]));
        assert_eq!((demand.tendency(), demand.dominant()), (1, 120_000_000));
        assert_eq!((Demand::default().tendency(), demand.share(0)), (0, 0.088));
        let odd = Demand::of_shares(&[f64::NAN, -1.0, 1e9, 0.5, 0.9]);
        assert_eq!(odd, Demand([0, 0, u32::MAX, 500_000_000]));
    }
}
