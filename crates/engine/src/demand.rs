//! What a request takes of a node, resource by resource.
//!
//! Source: Feng and Lin, mQoS (2005), Secs. 3.1 and 3.2: the page table knows of every page what share of each of the
//! server's resources a request for it consumes, per second; the resource of which that is the most is the request's
//! *tendency*.
//!
//! Departure: whole billionths instead of percent with fractions. What is taken and given back adds up exactly, however
//! often that is done, and needs no tolerance anywhere.

/// Resources that a request may be charged for, at most: processors, disks, network, and one to spare.
pub const RESOURCES: usize = 4;

/// What is known of what requests cost, and what it is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Costs {
    /// Nothing.
    Unknown,
    /// There is a page table, and what was used of each resource is counted.
    Recorded,
    /// Requests wait in a sub-queue per resource, and count as what they take of the resource of which they take most
    /// rather than as slots.
    Shared,
}

/// Billionths in the whole.
const WHOLE: f64 = 1e9;

/// Per resource of [`crate::Policy::resources`], in billionths of what a node has of it in a second: 10,000,000 is one
/// percent, or 10 ms of the whole node. Up to 4.29 node-seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand(pub [u32; RESOURCES]);

impl Demand {
    /// Of shares, 1 being what a node has in a second. What is not a number is 0, what is out of range the nearest
    /// that is in; shares after the first [`RESOURCES`] are left out.
    #[must_use]
    pub fn of_shares(shares: &[f64]) -> Demand {
        let mut demand = Demand::default();
        for (billionths, share) in demand.0.iter_mut().zip(shares) {
            // The cast saturates, and makes 0 of NaN.
            *billionths = (share * WHOLE).round() as u32;
        }
        demand
    }

    /// The share of one resource, 1 being what a node has in a second.
    ///
    /// # Panics
    /// If `resource` is not below [`RESOURCES`].
    #[must_use]
    pub fn share(&self, resource: usize) -> f64 {
        f64::from(self.0[resource]) / WHOLE
    }

    /// The shares of the first `N` resources, at most [`RESOURCES`].
    ///
    /// # Panics
    /// If `N` is more.
    #[must_use]
    pub fn shares<const N: usize>(&self) -> [f64; N] {
        core::array::from_fn(|resource| self.share(resource))
    }

    /// The same, but no more of any resource than `most` billionths.
    #[must_use]
    pub fn at_most(&self, most: u64) -> Demand {
        Demand(self.0.map(|share| u32::try_from(most).map_or(share, |most| share.min(most))))
    }

    /// The resource of which it takes most; of equals the first.
    #[must_use]
    pub fn tendency(&self) -> usize {
        (1..RESOURCES).fold(0, |most, next| if self.0[next] > self.0[most] { next } else { most })
    }

    /// What it takes of that, in billionths.
    #[must_use]
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
