//! Instants of open-loop arrivals, by inversion of the integrated rate.
//!
//! Arrivals of a Poisson process with rate λ(t) are those of a unit process on the axis Λ(t) = ∫λ (Çinlar,
//! *Introduction to Stochastic Processes*, Sec. 4.7). The rate is piecewise linear, so Λ is inverted
//! exactly, with one quadratic per segment and without thinning. Equal gaps are unit steps on the same
//! axis. A Markov-modulated process multiplies the rate by one factor in bursts and by another in calm, and
//! both have exponential lengths (Fischer and Meier-Hellstern, *The MMPP cookbook*, 1993). The factors keep
//! the mean over time at the requested rate.
//!
//! Departure: where a ramp of a profile begins before the previous one has ended, the rate between two such
//! instants is assumed to be linear.

use std::time::Duration;

use weirgate_emulator::random::Random;

use crate::random::{Purpose, generator, whole};
use crate::{Arrivals, Profile};

/// An interval with a linear rate, in seconds and arrivals per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Segment {
    from: f64,
    until: f64,
    rate: f64,
    slope: f64,
}

/// An arrival process up to an end.
#[derive(Debug)]
pub(crate) struct Process {
    even: bool,
    segments: Vec<Segment>,
    /// Index of the segment that contains `now`.
    segment: usize,
    /// Instant of the latest arrival, in seconds.
    now: f64,
    first: bool,
    random: Random,
    bursts: Option<Bursts>,
}

/// State of a modulated process.
#[derive(Debug)]
struct Bursts {
    random: Random,
    /// Factors of the rate in calm and in bursts.
    factors: [f64; 2],
    /// Mean lengths of calm and bursts, in seconds.
    lengths: [f64; 2],
    is_burst: bool,
    /// End of the present state, in seconds.
    until: f64,
}

impl Process {
    /// The arrivals of stream `index` in the run named by `seed`.
    pub(crate) fn new(arrivals: Arrivals, rate: &Profile, end: Duration, seed: u64, index: usize) -> Process {
        let bursts = match arrivals {
            Arrivals::Mmpp { burst, share, length } => {
                Some(Bursts::new(burst, share, length.as_secs_f64(), generator(seed, Purpose::Bursts, index)))
            }
            Arrivals::Poisson | Arrivals::Even => None,
        };
        Process {
            even: arrivals == Arrivals::Even,
            segments: segments(rate, end),
            segment: 0,
            now: 0.0,
            first: true,
            random: generator(seed, Purpose::Arrivals, index),
            bursts,
        }
    }

    /// Returns the next arrival in nanoseconds, if there is one before the end.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let mut need = match self.even {
            // The first gap is a fraction of a full one, so that even streams do not move in step.
            true if self.first => 1.0 - self.random.unit(),
            true => 1.0,
            false => self.random.exponential(),
        };
        self.first = false;
        loop {
            let segment = *self.segments.get(self.segment)?;
            let (factor, state_ends) = self.bursts.as_ref().map_or((1.0, f64::INFINITY), Bursts::now);
            let stop = segment.until.min(state_ends);
            let rate = factor * (segment.rate + segment.slope * (self.now - segment.from)).max(0.0);
            let slope = factor * segment.slope;
            let span = stop - self.now;
            let area = span * (rate + slope * span / 2.0);
            if area >= need {
                // The root of rate·x + slope·x²/2 = need, in the form that never cancels.
                let root = if slope == 0.0 { rate } else { (rate * rate + 2.0 * slope * need).max(0.0).sqrt() };
                self.now = (self.now + 2.0 * need / (rate + root)).min(stop);
                return Some(whole(self.now * 1e9));
            }
            need -= area.max(0.0);
            self.now = stop;
            if stop >= segment.until {
                self.segment += 1;
            }
            if let Some(bursts) = self.bursts.as_mut().filter(|b| stop >= b.until) {
                bursts.turn();
            }
        }
    }
}

impl Bursts {
    fn new(burst: f64, share: f64, length: f64, random: Random) -> Bursts {
        let calm = (1.0 - burst * share) / (1.0 - share);
        let mut bursts = Bursts {
            random,
            factors: [calm, burst],
            lengths: [length * (1.0 - share) / share, length],
            is_burst: false,
            until: 0.0,
        };
        // Starts in equilibrium. The rest of an exponential length has the same distribution as a new one.
        bursts.is_burst = bursts.random.unit() >= share;
        bursts.turn();
        bursts
    }

    /// The factor in force and the instant at which it ends.
    fn now(&self) -> (f64, f64) {
        (self.factors[usize::from(self.is_burst)], self.until)
    }

    fn turn(&mut self) {
        self.is_burst = !self.is_burst;
        self.until += self.random.exponential() * self.lengths[usize::from(self.is_burst)];
    }
}

/// Linear segments of `profile` from 0 to `end`.
fn segments(profile: &Profile, end: Duration) -> Vec<Segment> {
    let mut cuts: Vec<Duration> = profile.0.iter().flat_map(|knot| [knot.at, knot.at + knot.over]).collect();
    cuts.extend([Duration::ZERO, end]);
    cuts.retain(|cut| *cut <= end);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2)
        .map(|pair| {
            let (rate, last) = (profile.at(pair[0]), just_before(profile, pair[1]));
            let (from, until) = (pair[0].as_secs_f64(), pair[1].as_secs_f64());
            Segment { from, until, rate, slope: (last - rate) / (until - from) }
        })
        .collect()
}

/// Limit of `profile` at `at` from below. A step at `at` has not happened.
fn just_before(profile: &Profile, at: Duration) -> f64 {
    Profile(profile.0.iter().copied().take_while(|knot| knot.at < at).collect()).at(at)
}

/// Changes, up to `end`, of a whole number that follows `profile`, rounded: nanoseconds and the new number.
/// The first is at 0.
pub(crate) fn changes(profile: &Profile, end: Duration) -> Vec<(u64, u32)> {
    let mut changes = vec![(0, profile.at(Duration::ZERO).round() as u32)];
    let mut note = |at: f64, count: f64| {
        let count = count.round().max(0.0) as u32;
        if changes.last().is_some_and(|last| last.1 != count) {
            changes.push((whole(at * 1e9), count));
        }
    };
    for segment in segments(profile, end) {
        note(segment.from, segment.rate);
        let last = segment.rate + segment.slope * (segment.until - segment.from);
        // On a slope the number changes where the value passes a half.
        let step = if segment.slope > 0.0 { 1.0 } else { -1.0 };
        let mut count = segment.rate.round();
        while segment.slope != 0.0 && (count + step / 2.0 - last) * step < 0.0 {
            let passes = (count + step / 2.0 - segment.rate) / segment.slope;
            count += step;
            note(segment.from + passes.max(0.0), count);
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Knot;

    const S: Duration = Duration::from_secs(1);

    fn knot(at: u32, over: u32, value: f64) -> Knot {
        Knot { at: S * at, over: S * over, value }
    }

    fn times(arrivals: Arrivals, profile: &Profile, end: u32, seed: u64) -> Vec<f64> {
        let mut process = Process::new(arrivals, profile, S * end, seed, 0);
        std::iter::from_fn(|| process.next()).map(|at| at as f64 / 1e9).collect()
    }

    #[test]
    fn steps_and_ramps_become_lines() {
        let profile = Profile(vec![knot(0, 0, 10.0), knot(5, 10, 30.0), knot(20, 0, 0.0)]);
        let lines = segments(&profile, S * 30);
        let line = |from, until, rate, slope| Segment { from, until, rate, slope };
        assert_eq!(
            lines,
            [
                line(0.0, 5.0, 10.0, 0.0),
                line(5.0, 15.0, 10.0, 2.0),
                line(15.0, 20.0, 30.0, 0.0),
                line(20.0, 30.0, 0.0, 0.0)
            ]
        );
    }

    #[test]
    fn even_arrivals_follow_the_integral_of_a_ramp() {
        // Λ(t) = 10·t², so arrival n is at √((n − phase) / 10).
        let profile = Profile(vec![knot(0, 10, 200.0)]);
        let at = times(Arrivals::Even, &profile, 10, 1);
        assert!(at.len() == 999 || at.len() == 1000, "{}", at.len());
        let phase = at[0] * at[0] * 10.0;
        for (n, t) in at.iter().enumerate() {
            assert!((t * t * 10.0 - phase - n as f64).abs() < 1e-4, "arrival {n} at {t}");
        }
    }

    #[test]
    fn poisson_arrivals_follow_the_integral_of_the_rate() {
        let profile = Profile(vec![knot(0, 0, 500.0), knot(10, 20, 2500.0), knot(40, 0, 0.0), knot(50, 0, 1000.0)]);
        let at = times(Arrivals::Poisson, &profile, 60, 7);
        let count = |from: f64, to: f64| at.iter().filter(|t| (from..to).contains(*t)).count() as f64;
        for (from, to, expected) in
            [(0.0, 10.0, 5e3), (10.0, 20.0, 10e3), (20.0, 30.0, 20e3), (30.0, 40.0, 25e3), (50.0, 60.0, 10e3)]
        {
            assert!((count(from, to) - expected).abs() < 4.0 * expected.sqrt(), "{from}: {}", count(from, to));
        }
        assert_eq!(count(40.0, 50.0), 0.0);
        assert!(at.is_sorted());
        // Gaps are exponential, so their variance is their mean squared.
        let gaps: Vec<f64> = at.windows(2).filter(|w| w[1] < 10.0).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance / (mean * mean) - 1.0).abs() < 0.1);
    }

    #[test]
    fn a_modulated_process_keeps_the_mean_rate_and_bursts() {
        let arrivals = Arrivals::Mmpp { burst: 4.0, share: 0.2, length: Duration::from_millis(500) };
        let mut counts = Vec::new();
        for seed in 0..4 {
            let at = times(arrivals, &Profile::constant(200.0), 2000, seed);
            let mut bins = vec![0.0; 20_000];
            at.iter().for_each(|t| bins[(t * 10.0) as usize] += 1.0);
            counts.extend(bins);
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        assert!((mean / 20.0 - 1.0).abs() < 0.04, "mean {mean} a tenth of a second");
        // The rate is 800 for a fifth of the time and 50 otherwise, so the index of dispersion is far from 1.
        let variance = counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / counts.len() as f64;
        assert!(variance / mean > 20.0, "dispersion {}", variance / mean);
        let calm = counts.iter().filter(|c| **c < 15.0).count() as f64 / counts.len() as f64;
        assert!((0.6..0.85).contains(&calm), "calm {calm}");
    }

    #[test]
    fn a_seed_names_the_arrivals() {
        let profile = Profile::constant(100.0);
        let run = |seed| times(Arrivals::Poisson, &profile, 5, seed);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(times(Arrivals::Poisson, &Profile::constant(0.0), 5, 1).is_empty());
    }

    #[test]
    fn a_number_changes_where_the_figure_passes_a_half() {
        let profile = Profile(vec![knot(0, 0, 2.0), knot(10, 4, 0.0), knot(20, 0, 3.0)]);
        let ms = 1_000_000;
        assert_eq!(changes(&profile, S * 30), [(0, 2), (11_000 * ms, 1), (13_000 * ms, 0), (20_000 * ms, 3)]);
        assert_eq!(changes(&Profile::constant(7.0), S), [(0, 7)]);
    }
}
