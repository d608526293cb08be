//! Draws of a scenario: a seeded generator with the few distributions that scenarios need.

use weirgate_emulator::random::Random;
use weirgate_experiment::Distribution;

/// A seeded source of choices. The same seed gives the same choices on every machine.
pub(super) struct Draw(Random);

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw(Random::new(seed))
    }

    /// Returns a uniform number from `low` to `high`.
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.unit()
    }

    /// Returns a number from `low` to `high`, both > 0, with every decade equally likely.
    pub(super) fn decades(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.0.unit())
    }

    /// Returns a whole number from `low` to `high`, both included.
    pub(super) fn whole(&mut self, low: usize, high: usize) -> usize {
        low + (self.0.unit() * (high - low + 1) as f64) as usize
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.0.unit() < probability
    }

    /// Returns one element of `from`, which is not empty.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.whole(0, from.len() - 1)]
    }

    /// Returns `count` different numbers below `of`, in rising order, or all of them if there are fewer.
    pub(super) fn some(&mut self, count: usize, of: usize) -> Vec<usize> {
        let mut rest: Vec<usize> = (0..of).collect();
        let mut chosen: Vec<usize> =
            (0..count.min(of)).map(|_| rest.swap_remove(self.whole(0, rest.len() - 1))).collect();
        chosen.sort_unstable();
        chosen
    }

    /// Returns a time of `distribution`, in seconds.
    pub(super) fn time(&mut self, distribution: &Distribution) -> f64 {
        weirgate_experiment::random::draw(distribution, &mut self.0) as f64 / 1e9
    }
}
