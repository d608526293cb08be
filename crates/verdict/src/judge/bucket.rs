//! Token bucket over the arrivals of one class: decides which of them its guaranteed rate covers.
//!
//! A reload may change the rate. Tokens left from the old rate stay, up to the new burst, as in the
//! gateway. A class without a guarantee has no tokens left.

use std::time::Duration;

/// A bucket that is full at the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Tokens per nanosecond.
    rate: f64,
    /// Maximum number of tokens.
    burst: f64,
    level: f64,
    /// Nanoseconds from the start.
    at: u64,
}

/// Tolerance for sums of fractions of a token, which come out a little below a whole token. Arrivals
/// exactly at the rate must all be covered. Doubles err by 1e-16 per step, and a run has fewer than 1e9 arrivals.
const ROUNDING: f64 = 1e-6;

impl Bucket {
    /// A bucket that gains `rate` tokens per second and holds as many as come in the time of `burst`. If
    /// that is less than `largest`, the number of tokens of the class's largest request, it holds
    /// `largest`. Otherwise nothing would ever be covered.
    pub(crate) fn new(rate: f64, burst: Duration, largest: f64) -> Bucket {
        let burst = (rate * burst.as_secs_f64()).max(largest);
        Bucket { rate: rate / 1e9, burst, level: burst, at: 0 }
    }

    /// The bucket of a class without a guarantee.
    pub(crate) fn nothing() -> Bucket {
        Bucket { rate: 0.0, burst: 0.0, level: 0.0, at: 0 }
    }

    /// Changes rate and burst to those of another bucket at `at`.
    pub(crate) fn change(&mut self, at: u64, to: &Bucket) {
        self.fill(at);
        *self = Bucket { level: self.level.clamp(-to.burst, to.burst), at: self.at, ..*to };
    }

    /// Takes `tokens` at `at`, which never decreases. All or nothing.
    pub(crate) fn take(&mut self, at: u64, tokens: f64) -> bool {
        self.fill(at);
        let covered = self.level + ROUNDING >= tokens;
        if covered {
            self.level -= tokens;
        }
        covered
    }

    /// Takes `tokens` at `at` even if there are not enough. The debt is bounded by the burst.
    pub(crate) fn charge(&mut self, at: u64, tokens: f64) {
        self.fill(at);
        self.level = (self.level - tokens).max(-self.burst);
    }

    fn fill(&mut self, at: u64) {
        let passed = at.saturating_sub(self.at) as f64;
        self.level = (self.level + passed * self.rate).min(self.burst);
        self.at = self.at.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: Duration = Duration::from_secs(1);

    fn covered(mut bucket: Bucket, gap: u64, n: u64, tokens: f64) -> usize {
        (0..n).filter(|i| bucket.take(i * gap, tokens)).count()
    }

    #[test]
    fn a_class_at_its_rate_is_covered_whole_and_above_it_by_rate_and_burst() {
        // 300 does not divide a second into whole nanoseconds.
        assert_eq!(covered(Bucket::new(300.0, BURST, 1.0), 3_333_334, 30_000, 1.0), 30_000);
        // Twice the rate for ten seconds: ten seconds of the rate and the burst are covered.
        let twice = covered(Bucket::new(300.0, BURST, 1.0), 1_666_667, 6_000, 1.0);
        assert!((3_299..=3_300).contains(&twice), "{twice}");
    }

    #[test]
    fn dear_requests_take_more() {
        assert_eq!(covered(Bucket::new(100.0, BURST, 5.0), 10_000_000, 1_000, 5.0), 219);
    }

    #[test]
    fn a_debt_is_forgotten_after_a_second() {
        let mut bucket = Bucket::new(100.0, BURST, 1.0);
        (0..1_000).for_each(|_| bucket.charge(0, 1.0));
        assert!(!bucket.take(1_000_000_000, 1.0));
        assert!(bucket.take(1_010_000_000, 1.0) && !bucket.take(1_010_000_000, 1.0));
    }

    #[test]
    fn another_rate_keeps_what_is_left_as_far_as_it_fits() {
        let second = 1_000_000_000;
        let mut bucket = Bucket::new(100.0, BURST, 1.0);
        bucket.change(second, &Bucket::new(40.0, BURST, 1.0));
        assert_eq!((0..100).filter(|_| bucket.take(second, 1.0)).count(), 40);
        bucket.change(second, &Bucket::new(300.0, BURST, 1.0));
        assert!(!bucket.take(second, 1.0), "a larger promise is not a full bucket");
        assert_eq!((0..400).filter(|_| bucket.take(2 * second, 1.0)).count(), 300);
        bucket.change(3 * second, &Bucket::nothing());
        assert!(!bucket.take(9 * second, 1.0));
        bucket.change(10 * second, &Bucket::new(100.0, BURST, 1.0));
        assert_eq!((0..100).filter(|_| bucket.take(10 * second + second / 2, 1.0)).count(), 50);
    }

    #[test]
    fn a_rate_below_one_covers_a_whole_request_now_and_then() {
        assert_eq!(covered(Bucket::new(0.1, BURST, 1.0), 1_000_000_000, 101, 1.0), 11);
        assert_eq!(covered(Bucket::new(1.0, BURST, 4.0), 1_000_000_000, 9, 4.0), 3);
    }
}
