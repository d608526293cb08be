//! Seeded randomness: one generator per purpose, and the distributions of an experiment.
//!
//! Every stream of requests draws its arrivals, demands, patience and keys from separate generators, and
//! every request draws the same number of times from each. Request n of a stream therefore comes at the
//! same instant and asks for the same work in every run of a seed, whatever the discipline does with it:
//! two disciplines are compared on the same traffic (common random numbers; Law, *Simulation Modeling and
//! Analysis*, Sec. 11.2). The generator is that of the emulator.

use std::time::Duration;

use weirgate_emulator::random::Random;

use crate::{Counts, Distribution, Tail, normal};

/// Purpose of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Instants of open-loop arrivals.
    Arrivals = 1,
    /// Starts and ends of bursts.
    Bursts,
    /// CPU time of requests.
    Cpu,
    /// Time of requests without a CPU.
    Io,
    /// Time for which clients wait for a reply.
    Patience,
    /// Time that clients wait before they retry.
    RetryAfter,
    /// Think time of users.
    Think,
    /// Key of a template.
    Keys,
    /// Flow that a request belongs to.
    Flows,
    /// Requests that a machine fails.
    FailFast,
    /// Instants of health checks.
    Checks,
    /// The engine's own generator.
    Engine,
    /// Sizes and contents of pages.
    Pages,
    /// Requested files.
    Documents,
    /// Time of requests at the disk.
    Disk,
    /// Time of replies at the link.
    Link,
    /// Time for which replies stream.
    Stream,
}

/// Seed for `purpose`, number `index` of its kind, in the run named by `seed`.
pub fn seed_for(seed: u64, purpose: Purpose, index: usize) -> u64 {
    let mixed = Random::new(seed ^ (purpose as u64).rotate_right(8)).bits();
    Random::new(mixed ^ index as u64).bits()
}

/// Generator for `purpose`, number `index` of its kind, in the run named by `seed`.
pub fn generator(seed: u64, purpose: Purpose, index: usize) -> Random {
    Random::new(seed_for(seed, purpose, index))
}

/// Two draws that determine a time of any [`Distribution`]. They are taken before the distribution in force
/// is known, so a change of the distribution does not shift the draws of later requests.
#[derive(Clone, Copy, Debug)]
pub struct Lot {
    /// Branch of a mixture, 0 to 1.
    branch: f64,
    /// Position within the branch, 0 to 1, 1 excluded.
    level: f64,
}

impl Lot {
    /// No draw. Sufficient for fixed times.
    pub const NONE: Lot = Lot { branch: 0.0, level: 0.0 };

    /// Draws the next lot.
    pub fn draw(random: &mut Random) -> Lot {
        Lot { branch: random.unit(), level: random.unit() }
    }

    /// Time, in nanoseconds, that the lot gives under `distribution`.
    pub fn nanos(self, distribution: &Distribution) -> f64 {
        let exponential = |mean: Duration| -(1.0 - self.level).ln() * nanos(mean);
        match *distribution {
            Distribution::Fixed(time) => nanos(time),
            Distribution::Exponential { mean } => exponential(mean),
            Distribution::HyperExponential { p, first, second, max } => {
                exponential(if self.branch < p { first } else { second }).min(nanos(max))
            }
            Distribution::Pareto { shape, min, max } => pareto(self.level, shape, min).min(nanos(max)),
            Distribution::LogNormal { median, sigma, tail, max } => {
                let body = |share: f64| nanos(median) * (sigma * normal::quantile(self.level * share)).exp();
                let time = match tail {
                    None => body(1.0),
                    Some(Tail { share, shape, from }) if self.branch < share => pareto(self.level, shape, from),
                    // The body is the part of the log-normal distribution below the tail.
                    Some(Tail { from, .. }) => {
                        let below = normal::share_below((nanos(from) / nanos(median)).ln() / sigma);
                        body(below).min(nanos(from))
                    }
                };
                time.min(nanos(max))
            }
        }
    }

    /// Time, in whole nanoseconds, that the lot gives under `distribution`.
    pub fn time(self, distribution: &Distribution) -> u64 {
        whole(self.nanos(distribution))
    }

    /// Number that the lot gives under `counts`.
    pub fn count(self, counts: &Counts) -> u32 {
        counts.at(self.branch, self.level)
    }
}

/// Quantile of a Pareto distribution at `level`, in nanoseconds.
fn pareto(level: f64, shape: f64, min: Duration) -> f64 {
    nanos(min) * (1.0 - level).powf(-1.0 / shape)
}

/// `time` in nanoseconds, exact up to a hundred days.
fn nanos(time: Duration) -> f64 {
    time.as_secs() as f64 * 1e9 + f64::from(time.subsec_nanos())
}

/// Nearest whole number of nanoseconds. Larger values saturate.
pub fn whole(nanos: f64) -> u64 {
    (nanos + 0.5) as u64
}

/// Draws a time in whole nanoseconds.
pub fn draw(distribution: &Distribution, random: &mut Random) -> u64 {
    Lot::draw(random).time(distribution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_numbers_have_their_own_sequences() {
        let mut seeds: Vec<u64> = [Purpose::Cpu, Purpose::Io]
            .iter()
            .flat_map(|purpose| (0..3).flat_map(|index| [1, 2].map(|seed| seed_for(seed, *purpose, index))))
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 12);
    }

    /// The RUBiS figures: median 101, mean 149, p95 457 ms.
    #[test]
    fn hyper_exponential_quantiles_are_those_of_the_mixture() {
        let ms = Duration::from_millis;
        let (p, first, second, max) = (0.65, ms(90), ms(260), ms(3088));
        let distribution = Distribution::HyperExponential { p, first, second, max };
        let mut random = generator(3, Purpose::Io, 0);
        let n = 400_000;
        let mut times: Vec<f64> = (0..n).map(|_| draw(&distribution, &mut random) as f64 / 1e6).collect();
        times.sort_by(f64::total_cmp);
        for q in [0.1, 0.5, 0.9, 0.95, 0.99] {
            let t = times[(f64::from(n) * q) as usize];
            let below = 1.0 - p * (-t / 90.0).exp() - (1.0 - p) * (-t / 260.0).exp();
            assert!((below - q).abs() < 0.003, "quantile {q}: {t} ms is the {below} quantile");
        }
        let mean = times.iter().sum::<f64>() / f64::from(n) / 1e3;
        assert!((mean / distribution.mean() - 1.0).abs() < 0.01, "mean {mean} s of {}", distribution.mean());
        assert!(times.last().is_some_and(|longest| *longest <= 3088.0));
    }

    /// SURGE's file sizes: 93 % log-normal (µ 9.357, σ 1.318), 7 % Pareto (α 1.1) from 133 kB on. Here a
    /// byte takes 100 ns.
    #[test]
    fn heavy_tails_have_the_quantiles_and_means_of_their_formulas() {
        let time = |bytes: f64| Duration::from_nanos((bytes * 100.0) as u64);
        let (median, from, max) = (time(9.357_f64.exp()), time(133e3), time(50e6));
        let tail = Tail { share: 0.07, shape: 1.1, from };
        let sizes = Distribution::LogNormal { median, sigma: 1.318, tail: Some(tail), max };
        let body = Distribution::LogNormal { median, sigma: 1.318, tail: None, max };
        let pauses = Distribution::Pareto { shape: 1.5, min: Duration::from_secs(1), max: Duration::from_secs(600) };
        let n = 400_000;
        let sorted = |distribution: &Distribution| {
            let mut random = generator(5, Purpose::Pages, 0);
            let mut times: Vec<f64> = (0..n).map(|_| draw(distribution, &mut random) as f64 / 1e9).collect();
            times.sort_by(f64::total_cmp);
            let mean = times.iter().sum::<f64>() / n as f64;
            assert!((mean / distribution.mean() - 1.0).abs() < 0.05, "mean {mean} s of {}", distribution.mean());
            times
        };
        let at = |times: &[f64], share: f64| times[(n as f64 * share) as usize];
        let sizes = sorted(&sizes);
        let below = sizes.iter().filter(|size| **size < from.as_secs_f64()).count() as f64 / n as f64;
        assert!((below - 0.93).abs() < 0.002, "{below} lie below the tail");
        // Half of the tail is longer than 2^(1/1.1) times its beginning.
        let middle = at(&sizes, 0.93 + 0.07 / 2.0) / from.as_secs_f64();
        assert!((middle / 2.0_f64.powf(1.0 / 1.1) - 1.0).abs() < 0.03, "{middle}");
        let body = sorted(&body);
        assert!((at(&body, 0.5) / median.as_secs_f64() - 1.0).abs() < 0.02);
        assert!(((at(&body, 0.841_345) / median.as_secs_f64()).ln() / 1.318 - 1.0).abs() < 0.02);
        let pauses = sorted(&pauses);
        assert!((at(&pauses, 0.75) / 4.0_f64.powf(1.0 / 1.5) - 1.0).abs() < 0.02 && pauses[0] >= 1.0);
        assert!(pauses.last().is_some_and(|longest| *longest <= 600.0));
    }
}
