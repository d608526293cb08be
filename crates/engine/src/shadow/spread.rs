//! How much the costs of a class's requests differ.
//!
//! Load control treats a class with a few long requests in another way than one with equal ones. So requests of the
//! shadow differ in cost as the real ones do: by the times in flight that were seen while the class was not slowed
//! down.

use crate::random::Random;

/// Times that are kept: their 95th percentile is that of the class within a few percent of all requests.
const KEPT: usize = 64;

/// Ratio of the mean time in flight to the service time up to which a class is not slowed down.
const QUIET: f64 = 1.5;

/// Recent times in flight of a class or template.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    kept: [f32; KEPT],
    count: usize,
    sum: f64,
}

impl Spread {
    /// No times yet. Then all requests cost the same.
    pub(super) const UNKNOWN: Spread = Spread { kept: [0.0; KEPT], count: 0, sum: 0.0 };

    /// Adds a time in flight in seconds. `mean` is the recent mean, and `service` the service time.
    pub(super) fn add(&mut self, seconds: f64, mean: f64, service: f64) {
        if mean > QUIET * service {
            return;
        }
        let place = &mut self.kept[self.count % KEPT];
        self.sum += f64::from(seconds as f32) - f64::from(core::mem::replace(place, seconds as f32));
        self.count += 1;
    }

    /// Draws the ratio of a request's cost to the mean.
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        if self.count < KEPT || self.sum <= 0.0 {
            return 1.0;
        }
        f64::from(self.kept[random.below(KEPT as u64) as usize]) * KEPT as f64 / self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_and_the_spread_of_what_was_seen() {
        let mut random = Random::new(5);
        let mut spread = Spread::UNKNOWN;
        for _ in 0..KEPT - 1 {
            spread.add(0.01, 0.01, 0.01);
        }
        assert!((spread.draw(&mut random) - 1.0).abs() < 1e-9, "too few are known");
        // One in four requests takes seven times as long as the others.
        (0..1_000).for_each(|n| spread.add(if n % 4 == 0 { 0.07 } else { 0.01 }, 0.025, 0.02));
        let draws: Vec<f64> = (0..40_000).map(|_| spread.draw(&mut random)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let long = draws.iter().filter(|ratio| **ratio > 2.0).count() as f64 / draws.len() as f64;
        assert!((mean - 1.0).abs() < 0.03 && (long - 0.25).abs() < 0.01, "{mean} {long}");
        // Times of overloaded nodes are not added.
        (0..1_000).for_each(|_| spread.add(10.0, 10.0, 0.02));
        assert!(spread.draw(&mut random) < 3.0);
    }
}
