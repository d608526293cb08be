//! Distributions of times and of counts, all with an upper bound.
//!
//! The heavy-tailed ones are those of SURGE (Barford and Crovella, *Generating Representative Web Workloads*,
//! SIGMETRICS 1998): log-normal bodies with a Pareto tail, and Pareto counts of embedded objects. The number
//! of pages in a visit is inverse Gaussian, the law of surfing of Huberman, Pirolli, Pitkow and Lukose
//! (*Science* 280, 1998). Departure: larger values are cut to the upper bound, because no run may last for
//! ever and no client may ask without end.

use std::time::Duration;

use crate::normal;

/// A distribution of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// A constant.
    Fixed(Duration),
    /// Exponential.
    Exponential {
        /// Mean.
        mean: Duration,
    },
    /// A mixture of two exponentials, cut to `max`.
    HyperExponential {
        /// Probability of the first.
        p: f64,
        /// Mean of the first.
        first: Duration,
        /// Mean of the second.
        second: Duration,
        /// Longest time.
        max: Duration,
    },
    /// Pareto, cut to `max`: a time exceeds t with probability (`min` / t)^`shape`.
    Pareto {
        /// α, > 0.
        shape: f64,
        /// Shortest time.
        min: Duration,
        /// Longest time, not less than `min`.
        max: Duration,
    },
    /// Log-normal, or a log-normal body with a Pareto tail, cut to `max`.
    LogNormal {
        /// e^µ.
        median: Duration,
        /// σ, > 0.
        sigma: f64,
        /// The tail, which begins where the body ends. Without a tail the body extends to `max`.
        tail: Option<Tail>,
        /// Longest time.
        max: Duration,
    },
}

/// The tail of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Probability of the tail.
    pub share: f64,
    /// α of its Pareto distribution, > 0.
    pub shape: f64,
    /// Shortest time of the tail. All times of the body are shorter.
    pub from: Duration,
}

/// A distribution of whole numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counts {
    /// A constant.
    Fixed(u32),
    /// Pareto, rounded down.
    Pareto {
        /// α, > 0.
        shape: f64,
        /// Smallest number, at least 1.
        min: u32,
        /// Largest number.
        max: u32,
    },
    /// Inverse Gaussian, rounded, at least 1.
    InverseGaussian {
        /// µ, > 0.
        mean: f64,
        /// λ, > 0.
        shape: f64,
        /// Largest number.
        max: u32,
    },
}

impl Distribution {
    /// Returns the mean in seconds, with the cut taken into account.
    pub fn mean(&self) -> f64 {
        match *self {
            Distribution::Fixed(time) => time.as_secs_f64(),
            Distribution::Exponential { mean } => mean.as_secs_f64(),
            Distribution::HyperExponential { p, first, second, max } => {
                let max = max.as_secs_f64();
                // E[min(X, m)] of an exponential with mean a is a·(1 − e^(−m/a)).
                let cut = |a: f64| a * (1.0 - (-max / a).exp());
                p * cut(first.as_secs_f64()) + (1.0 - p) * cut(second.as_secs_f64())
            }
            Distribution::Pareto { shape, min, max } => pareto_mean(shape, min.as_secs_f64(), max.as_secs_f64()),
            Distribution::LogNormal { median, sigma, tail, max } => {
                let (median, max) = (median.as_secs_f64(), max.as_secs_f64());
                let whole = median * (sigma * sigma / 2.0).exp();
                // Of a log-normal X, E[X; X ≤ c] is its mean × Φ(z − σ), where Φ(z) is P(X ≤ c).
                let part = |z: f64| whole * normal::share_below(z - sigma);
                match tail {
                    None => {
                        let z = (max / median).ln() / sigma;
                        part(z) + max * normal::share_below(-z)
                    }
                    Some(Tail { share, shape, from }) => {
                        let from = from.as_secs_f64();
                        let z = (from / median).ln() / sigma;
                        let body = part(z) / normal::share_below(z).max(f64::MIN_POSITIVE);
                        (1.0 - share) * body + share * pareto_mean(shape, from, max)
                    }
                }
            }
        }
    }
}

impl Counts {
    /// Returns the mean. For random counts it is the mean before rounding, which is accurate enough to
    /// estimate load.
    pub fn mean(&self) -> f64 {
        match *self {
            Counts::Fixed(count) => f64::from(count),
            Counts::Pareto { shape, min, max } => pareto_mean(shape, f64::from(min), f64::from(max)),
            Counts::InverseGaussian { mean, max, .. } => mean.clamp(1.0, f64::from(max.max(1))),
        }
    }

    /// Returns the largest number.
    pub fn max(&self) -> u32 {
        match *self {
            Counts::Fixed(max) | Counts::Pareto { max, .. } | Counts::InverseGaussian { max, .. } => max,
        }
    }

    /// Returns the number for two draws from 0 to 1, 1 excluded.
    pub fn at(&self, branch: f64, level: f64) -> u32 {
        match *self {
            Counts::Fixed(count) => count,
            Counts::Pareto { shape, min, max } => {
                let x = f64::from(min) * (1.0 - level).powf(-1.0 / shape);
                (x.min(f64::from(max)) as u32).clamp(min, max)
            }
            Counts::InverseGaussian { mean, shape, max } => {
                // Michael, Schucany and Haas, *Generating Random Variates Using Transformations with Multiple
                // Roots* (The American Statistician 30, 1976). The smaller root is computed as a quotient,
                // which avoids cancellation.
                let y = mean * normal::quantile(level).powi(2);
                let root = (y * (4.0 * shape + y)).sqrt();
                let small = mean * (2.0 * shape) / (2.0 * shape + y + root);
                let x = if branch * (mean + small) <= mean { small } else { mean * (mean / small) };
                (x.round().min(f64::from(max)) as u32).clamp(1, max.max(1))
            }
        }
    }
}

/// Returns E[min(X, m)] of a Pareto X that starts at `min`.
fn pareto_mean(shape: f64, min: f64, max: f64) -> f64 {
    // least + ∫ P(X > t) dt from least to most. As the shape approaches 1 the integral becomes a logarithm.
    let (steps, off) = ((max / min).ln(), 1.0 - shape);
    let integral = if (off * steps).abs() < 1e-6 { steps } else { ((off * steps).exp() - 1.0) / off };
    min + min * integral
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(ours: f64, theirs: f64, within: f64) {
        assert!((ours / theirs - 1.0).abs() < within, "{ours} is not near {theirs}");
    }

    /// Returns the mean over a grid of draws.
    fn of_grid(at: impl Fn(f64, f64) -> f64) -> f64 {
        let n = 1000;
        let point = |i: u32| (f64::from(i) + 0.5) / f64::from(n);
        let sum: f64 = (0..n).map(|i| (0..n).map(|j| at(point(i), point(j))).sum::<f64>()).sum();
        sum / f64::from(n * n)
    }

    #[test]
    fn counts_have_their_means_and_bounds() {
        let surfing = Counts::InverseGaussian { mean: 8.0, shape: 16.0, max: 1000 };
        near(of_grid(|branch, level| f64::from(surfing.at(branch, level))), surfing.mean(), 0.005);
        let bounded = Counts::InverseGaussian { mean: 8.0, shape: 16.0, max: 5 };
        assert_eq!((bounded.at(0.999, 0.999), bounded.at(0.0, 0.999_999)), (5, 1));
        let embedded = Counts::Pareto { shape: 2.43, min: 1, max: 100 };
        assert_eq!((embedded.at(0.0, 0.0), embedded.at(0.0, 1.0 - 1e-16)), (1, 100));
        // P(N ≥ 2) is 2^−α.
        let two = of_grid(|branch, level| f64::from(u8::from(embedded.at(branch, level) >= 2)));
        near(two, 2.0_f64.powf(-2.43), 0.01);
        assert_eq!([Counts::Fixed(0), Counts::Fixed(7)].map(|count| count.at(0.5, 0.5)), [0, 7]);
    }

    #[test]
    fn the_mean_of_a_pareto_distribution_is_known() {
        near(pareto_mean(2.0, 1.0, 1e9), 2.0, 1e-6);
        near(pareto_mean(1.0, 1.0, 100.0), 1.0 + 100.0_f64.ln(), 1e-9);
        near(pareto_mean(1.0 + 1e-9, 1.0, 100.0), 1.0 + 100.0_f64.ln(), 1e-6);
        near(pareto_mean(3.0, 5.0, 5.0), 5.0, 1e-9);
    }
}
