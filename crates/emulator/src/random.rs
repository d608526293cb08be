//! Seeded random numbers and the distributions of demands and gaps.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, 2019), seeded through splitmix64. It is small, fast,
//! good enough for experiments, and the same on every machine, so a seed identifies a run. Do not use it for secrets.

use std::time::Duration;

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// The generator for `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        let mut state = seed;
        Random(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Returns a number that is uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an exponential number with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

/// Distribution of a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Always the same time.
    Fixed(Duration),
    /// Exponential.
    Exponential {
        /// Its mean.
        mean: Duration,
    },
    /// One of two exponentials.
    HyperExponential {
        /// Probability of the first one, 0 to 1.
        first: f64,
        /// Mean of each.
        means: [Duration; 2],
    },
}

impl Distribution {
    /// Always zero.
    pub const ZERO: Distribution = Distribution::Fixed(Duration::ZERO);

    /// A hyper-exponential of mean `mean` and squared coefficient of variation `scv` ≥ 1, by balanced
    /// means: each of the two exponentials carries half of the total.
    #[must_use]
    pub fn hyper_exponential(mean: Duration, scv: f64) -> Distribution {
        let scv = scv.max(1.0);
        let first = f64::midpoint(1.0, ((scv - 1.0) / (scv + 1.0)).sqrt());
        let part = |p: f64| mean.div_f64(2.0 * p);
        Distribution::HyperExponential { first, means: [part(first), part(1.0 - first)] }
    }

    /// Mean of the distribution.
    #[must_use]
    pub fn mean(&self) -> Duration {
        match *self {
            Distribution::Fixed(d) | Distribution::Exponential { mean: d } => d,
            Distribution::HyperExponential { first, means: [a, b] } => a.mul_f64(first) + b.mul_f64(1.0 - first),
        }
    }

    /// Draws a time.
    pub fn draw(&self, random: &mut Random) -> Duration {
        match *self {
            Distribution::Fixed(d) => d,
            Distribution::Exponential { mean } => mean.mul_f64(random.exponential()),
            Distribution::HyperExponential { first, means: [a, b] } => {
                let mean = if random.unit() < first { a } else { b };
                mean.mul_f64(random.exponential())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(distribution: Distribution) -> (f64, f64) {
        let mut random = Random::new(7);
        let n = 200_000;
        let draws: Vec<f64> = (0..n).map(|_| distribution.draw(&mut random).as_secs_f64()).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
        (mean, variance / (mean * mean))
    }

    #[test]
    fn distributions_have_the_moments_they_claim() {
        let mean = Duration::from_millis(10);
        assert!(moments(Distribution::Fixed(mean)).1 < 1e-12);
        let (m, scv) = moments(Distribution::Exponential { mean });
        assert!((m / 0.010 - 1.0).abs() < 0.01 && (scv - 1.0).abs() < 0.03, "mean {m}, scv {scv}");
        let hyper = Distribution::hyper_exponential(mean, 4.0);
        assert!(hyper.mean().abs_diff(mean) < Duration::from_micros(1));
        let (m, scv) = moments(hyper);
        assert!((m / 0.010 - 1.0).abs() < 0.02 && (scv / 4.0 - 1.0).abs() < 0.05, "mean {m}, scv {scv}");
    }

    #[test]
    fn a_seed_names_a_sequence() {
        let run = |seed| {
            let mut random = Random::new(seed);
            (0..4).map(|_| random.bits()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
