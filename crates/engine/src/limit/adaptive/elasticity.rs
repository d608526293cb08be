//! The elasticity that the latest cycles of a window show, for [`super::probe`].
//!
//! Source: our own. Each cycle counts by its precision, 1/variance. Earlier cycles fade, because the base has moved
//! since then and conditions change. If each cycle has few answers, the average stays imprecise, and the window takes
//! no step. A memory that lasts until a step is certain was tried. It moved a window by the evidence of other
//! conditions.

/// Elasticity from which the window is certainly above the knee: about halfway between `found`, below which a search
/// goes up, and `target`, below which the base drifts up. With 0.6 a search went further down than the base then stays,
/// and half of Table 3's runs kept fewer than 99.5 % of their processors busy while it drifted back. With 0.75 a
/// percentile of Fig. 9 leaves its band.
pub(super) const FLAT: f64 = 0.7;

/// Factor by which the evidence of earlier cycles fades per cycle: a memory of two and a half cycles.
const KEPT: f64 = 0.6;

/// Range in which a cycle's elasticity counts. It is symmetric about the one at which a search turns.
const RANGE: [f64; 2] = [-0.5, 1.5];

/// The mean elasticity of the latest cycles. None is known by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elasticity {
    /// Sum of the elasticities, weighted by their precision, and sum of the precisions.
    sum: f64,
    precision: f64,
}

impl Elasticity {
    /// Learns from a cycle.
    pub(super) fn learn(&mut self, elasticity: f64, precision: f64) {
        self.precision = KEPT * self.precision + precision;
        self.sum = KEPT * self.sum + precision * elasticity.clamp(RANGE[0], RANGE[1]);
    }

    /// Returns the mean, if any cycle has been seen.
    pub(super) fn known(self) -> Option<f64> {
        (self.precision > 0.0).then(|| self.sum / self.precision)
    }

    /// Returns the mean and its standard error. Without a cycle the error is larger than any elasticity.
    pub(super) fn estimate(self) -> (f64, f64) {
        let precision = self.precision.max(1e-9);
        (self.sum / precision, precision.sqrt().recip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the estimate after this many equal cycles.
    fn after(cycles: usize, elasticity: f64, precision: f64) -> (f64, f64) {
        let mut of = Elasticity::default();
        (0..cycles).for_each(|_| of.learn(elasticity, precision));
        of.estimate()
    }

    #[test]
    fn two_and_a_half_cycles_count() {
        assert_eq!(Elasticity::default().known(), None);
        assert_eq!(after(1, 0.9, 4.0), (0.9, 0.5));
        let (mean, error) = after(400, 0.9, 4.0);
        assert!((mean - 0.9).abs() < 1e-9 && (error - 10.0_f64.sqrt().recip()).abs() < 1e-9, "{mean} {error}");
    }

    #[test]
    fn cycles_are_forgotten_after_a_few() {
        let mut of = Elasticity::default();
        (0..50).for_each(|_| of.learn(1.0, 100.0));
        (0..8).for_each(|_| of.learn(0.0, 100.0));
        assert!(of.known().is_some_and(|mean| mean < 0.02), "{of:?}");
    }

    #[test]
    fn a_cycle_beyond_belief_counts_as_one_at_the_edge() {
        assert_eq!((after(1, 40.0, 1.0).0, after(1, -40.0, 1.0).0), (1.5, -0.5));
    }
}
