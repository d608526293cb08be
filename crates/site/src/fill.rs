//! Max-min shares: no want gets more than it asks for, and a share can only grow at the cost of one that is no larger.
//!
//! Source: Bertsekas and Gallager, *Data Networks*, 2nd ed., Sec. 6.5.2, for one resource ("water filling").

/// Shares `available` among `wants`. `out` receives one share for each want, in the same order. What cannot be divided
/// evenly, less than one unit for each, stays.
pub fn fill(available: u64, wants: &[u64], out: &mut Vec<u64>) {
    out.clear();
    out.extend_from_slice(wants);
    if wants.iter().map(|want| u128::from(*want)).sum::<u128>() <= u128::from(available) {
        return;
    }
    let mut order: Vec<u64> = wants.to_vec();
    order.sort_unstable();
    let (mut left, mut level) = (available, 0);
    for (index, want) in order.iter().enumerate() {
        let even = left / (order.len() - index) as u64;
        if *want > even {
            level = even;
            break;
        }
        left -= want;
    }
    for share in out.iter_mut() {
        *share = (*share).min(level);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(available: u64, wants: &[u64]) -> Vec<u64> {
        let mut out = Vec::new();
        fill(available, wants, &mut out);
        out
    }

    #[test]
    fn small_wants_are_served_and_large_ones_are_level() {
        assert_eq!(filled(100, &[10, 80, 60, 5]), [10, 42, 42, 5]);
        assert_eq!(filled(100, &[10, 20]), [10, 20]);
        assert_eq!(filled(0, &[10, 0]), [0, 0]);
        assert_eq!(filled(10, &[]), [0; 0]);
        assert_eq!(filled(10, &[u64::MAX, u64::MAX]), [5, 5]);
    }

    proptest! {
        /// The oracle hands out single units, each to the poorest that wants more.
        #[test]
        fn shares_are_those_of_handing_out_units(available in 0u64..200, wants in prop::collection::vec(0u64..60, 0..8)) {
            let mut units = vec![0; wants.len()];
            for _ in 0..available {
                let poorest = (0..wants.len()).filter(|&i| units[i] < wants[i]).min_by_key(|&i| units[i]);
                let Some(poorest) = poorest else { break };
                units[poorest] += 1;
            }
            let shares = filled(available, &wants);
            for (share, unit) in shares.iter().zip(&units) {
                // Units that do not divide evenly go to some of the level ones.
                prop_assert!(unit - share <= 1, "{shares:?} {units:?}");
            }
            prop_assert!(shares.iter().sum::<u64>() <= available);
        }
    }
}
