//! A scenario before its figures: the demands of the classes in relation to each other.
//!
//! Families draw these relations. `figures` turns them into rates, times and guarantees that fit the
//! cluster by construction.

use std::time::Duration;

use weirgate_engine::Statistic;
use weirgate_experiment::{Distribution, FaultKind, Thrashing};

use super::rule::Usable as _;

/// A scenario in relative terms.
pub(super) struct Sketch {
    /// A description of the difficulty in words.
    pub(super) about: String,
    /// One-way delay between the gateway and a machine, in milliseconds.
    pub(super) delay_ms: f64,
    pub(super) machines: Vec<MachineSketch>,
    pub(super) pools: Vec<PoolSketch>,
    pub(super) classes: Vec<ClassSketch>,
    pub(super) phases: Vec<PhaseSketch>,
    pub(super) faults: Vec<FaultSketch>,
    /// Whether the policy gives up on nodes that do not answer within twice the limit.
    pub(super) timeouts: bool,
    /// Requests per second of all classes in the first phase, unless `cpu_ms` sets their CPU time.
    pub(super) rate: f64,
    /// Mean CPU time of a request of cost 1 in milliseconds, if the family sets it.
    pub(super) cpu_ms: Option<f64>,
    /// Whether guarantees fit at the true cost of the requests and within the worker slots, on machines
    /// that do not fail.
    pub(super) at_true_cost: bool,
    /// Time at the start of a phase that is judged apart, in seconds, if it is not the default.
    pub(super) settle_s: Option<f64>,
    /// Guaranteed work over the work that fits by the rule (see `rule`), at most 1.
    pub(super) tight: f64,
}

pub(super) struct MachineSketch {
    pub(super) cpus: u32,
    pub(super) speed: f64,
    pub(super) servers: u32,
    pub(super) concurrency: Option<u32>,
    pub(super) thrashing: Option<Thrashing>,
    /// Whether the policy declares its capacity.
    pub(super) declared: bool,
}

pub(super) struct PoolSketch {
    pub(super) name: &'static str,
    /// Indices of its machines.
    pub(super) machines: Vec<usize>,
    pub(super) health_check: bool,
}

pub(super) struct PhaseSketch {
    pub(super) name: &'static str,
    pub(super) until_s: f64,
    pub(super) judged: bool,
}

pub(super) struct FaultSketch {
    pub(super) kind: FaultKind,
    pub(super) from_s: f64,
    pub(super) until_s: Option<f64>,
    pub(super) machines: Vec<usize>,
}

/// One class or template with its traffic.
#[derive(Clone)]
pub(super) struct ClassSketch {
    pub(super) pool: usize,
    /// Number of keys of a template. `None` is a plain class.
    pub(super) tenants: Option<u32>,
    /// Its part of the guaranteed work, relative to the others'. `None` means no guaranteed throughput.
    pub(super) share: Option<f64>,
    /// CPU time of a request, relative to the others'.
    pub(super) cost: f64,
    pub(super) shape: Shape,
    /// Time without a CPU, relative to its CPU time.
    pub(super) io: Option<(f64, Shape)>,
    /// CPU time over the normal one, per phase.
    pub(super) cost_ratio: Vec<f64>,
    /// Time without a CPU over the normal one, per phase.
    pub(super) slower: Vec<f64>,
    /// Requests sent over requests guaranteed, per phase. Without a guarantee: work wanted over the pool's
    /// capacity.
    pub(super) offers: Vec<f64>,
    /// Declared service time over the true one. `None` is not declared.
    pub(super) declared: Option<f64>,
    /// The limited statistic, and the limit over the unloaded p95 (`figures` may raise it).
    pub(super) limit: Option<(Statistic, f64)>,
    pub(super) stream: Stream,
    /// Patience of the clients over the limit. `None` is for ever.
    pub(super) patience: Option<f64>,
    pub(super) retries: u32,
}

/// The arrival process of requests.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stream {
    Poisson,
    Even,
    Mmpp {
        burst: f64,
        share: f64,
        length_s: f64,
    },
    /// Users who think this long between a reply and the next request, in seconds.
    Users {
        think_s: f64,
    },
}

/// The shape of a distribution of times.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Fixed,
    Exponential,
    /// Squared coefficient of variation 4, cut off at twenty times the mean. RUBiS is similar (median 101,
    /// mean 149, p95 457, max 3088 ms): its largest time is 20 times its mean.
    Hyper,
    /// This share of the requests takes this many times as long as the others in the mean.
    Tail {
        share: f64,
        times: f64,
    },
}

impl Shape {
    /// Returns the distribution of this shape and mean in milliseconds, with its figures rounded as files
    /// have them.
    pub(super) fn of(self, mean_ms: f64) -> Distribution {
        let time = |ms: f64| Duration::from_nanos((tidy(ms) * 1e6).round() as u64);
        match self {
            Shape::Fixed => Distribution::Fixed(time(mean_ms)),
            Shape::Exponential => Distribution::Exponential { mean: time(mean_ms) },
            Shape::Hyper => {
                // Balanced means: each of the two carries half of the work. p = (1 + √((c² − 1)/(c² +
                // 1)))/2.
                let p = 0.887;
                let [first, second] = [p, 1.0 - p].map(|p| time(mean_ms / (2.0 * p)));
                Distribution::HyperExponential { p, first, second, max: time(20.0 * mean_ms) }
            }
            Shape::Tail { share, times } => {
                let body_ms = mean_ms / (1.0 - share + share * times);
                let tail_ms = body_ms * times;
                // Five times its mean: one in 150 of the long requests is cut.
                Distribution::HyperExponential {
                    p: tidy(1.0 - share),
                    first: time(body_ms),
                    second: time(tail_ms),
                    max: time(5.0 * tail_ms),
                }
            }
        }
    }

    /// Returns the squared coefficient of variation.
    pub(super) fn variation(self) -> f64 {
        match self {
            Shape::Fixed => 0.0,
            Shape::Exponential => 1.0,
            Shape::Hyper => 4.0,
            Shape::Tail { share, times } => {
                let mean = 1.0 - share + share * times;
                2.0 * (1.0 - share + share * times * times) / (mean * mean) - 1.0
            }
        }
    }
}

impl Sketch {
    /// Returns the start of phase `index`, in seconds.
    pub(super) fn phase_from(&self, index: usize) -> f64 {
        index.checked_sub(1).map_or(0.0, |before| self.phases[before].until_s)
    }

    /// Returns the share of its speed that machine `machine` has all through phase `phase`.
    pub(super) fn usable(&self, machine: usize, phase: usize) -> f64 {
        let (from, until) = (self.phase_from(phase), self.phases[phase].until_s);
        let of = self.faults.iter().filter(|fault| fault.machines.contains(&machine));
        let during = of.filter(|f| f.from_s < until && f.until_s.is_none_or(|end| end > from));
        let usable = during.map(|fault| fault.kind.usable()).fold(1.0, f64::min);
        // A scheduler that knows everything sends nothing to a machine that fails some of its requests.
        let fails = self.at_true_cost && self.fails(machine, from, until);
        if fails { 0.0 } else { usable }
    }

    /// Returns whether `machine` fails requests at some time between these instants.
    fn fails(&self, machine: usize, from_s: f64, until_s: f64) -> bool {
        self.faults.iter().any(|fault| {
            matches!(fault.kind, FaultKind::FailFast(_))
                && fault.machines.contains(&machine)
                && fault.from_s < until_s
                && fault.until_s.is_none_or(|end| end > from_s)
        })
    }
}

impl MachineSketch {
    /// Returns the capacity in CPU-seconds of a nominal CPU per second.
    pub(super) fn capacity(&self) -> f64 {
        f64::from(self.cpus * self.servers) * self.speed
    }
}

/// Rounds `x` ≥ 0 to three significant digits, as in files written by hand.
pub(super) fn tidy(x: f64) -> f64 {
    scaled(x, f64::round)
}

/// Rounds like [`tidy`], but never above `x`.
pub(super) fn tidy_down(x: f64) -> f64 {
    scaled(x, f64::floor)
}

/// Rounds like [`tidy`], but never below `x`.
pub(super) fn tidy_up(x: f64) -> f64 {
    scaled(x, f64::ceil)
}

fn scaled(x: f64, round: fn(f64) -> f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // Powers of ten as decimal text are exact. 10^-n in binary is not.
    let digits = 2 - x.log10().floor() as i32;
    let power = 10f64.powi(digits.abs());
    if digits >= 0 { round(x * power) / power } else { round(x / power) * power }
}
