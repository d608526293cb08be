//! What the classes are promised and what they ask for, as ratios of what was measured.

use std::time::Duration;

use weirgate_emulator::client::{Guarantee, Statistic};

use crate::calibration::{Calibration, DEAR};

/// Shares of the capacity that are guaranteed. What is left is for a machine that becomes slower after the
/// calibration: guarantees that do not fit any more cannot be kept.
const FLOORS: [f64; 2] = [0.3, 0.4];

/// Shares of their floors that the classes ask for.
const OFFERS: [f64; 2] = [0.8, 0.9];

/// A's limit in unloaded response times of its requests. The paper has 400 ms for 8.57 ms of work on 16 CPUs:
/// 750 requests end within the limit. On the one CPU here it is 100 requests. What counts is that a slot
/// that A has lent to B comes back within A's limit, also when B's request costs five times as much.
const LIMIT: u32 = 100;

/// The least limit, in unloaded 95th percentiles: the claim is about limits from there on.
const LEAST_LIMIT: u32 = 4;

/// How far B's rate surges.
pub(crate) const SURGE: f64 = 4.0;

/// What one class is promised and asks for.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// Guaranteed requests per second.
    pub throughput: f64,
    /// Limit of the 95th percentile of its response times.
    pub limit: Duration,
    /// Agreed cost of a request.
    pub cost: Duration,
    /// Requests per second that it sends, when it does not surge.
    pub offered: f64,
}

/// The contracts of both classes.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The class that stays within its guarantee.
    pub a: Contract,
    /// The class that does not.
    pub b: Contract,
}

impl Terms {
    /// From the figures of a calibration. B's limit has the same ratio as A's, to requests that cost five
    /// times as much.
    #[must_use]
    pub fn new(of: &Calibration) -> Terms {
        let contract = |class: usize, limit: Duration| {
            // A tenth of a request per second is what a policy file shows.
            let throughput = (FLOORS[class] * of.capacity * 10.0).round() / 10.0;
            // Whole milliseconds and tens of microseconds, for the same reason.
            let limit = Duration::from_millis(limit.as_millis() as u64);
            let cost = Duration::from_micros(of.p50.as_micros() as u64 / 10 * 10);
            Contract { throughput, limit, cost, offered: OFFERS[class] * throughput }
        };
        let a = (of.p50 * LIMIT).max(of.p95 * LEAST_LIMIT);
        let b = (a * DEAR).max(of.dear_p95 * LEAST_LIMIT);
        Terms { a: contract(0, a), b: contract(1, b) }
    }
}

impl Contract {
    /// As the judge of the load's clients needs it.
    #[must_use]
    pub fn guarantee(&self) -> Guarantee {
        Guarantee {
            throughput: Some(self.throughput),
            response_time: Some((Statistic::Percentile(95.0), self.limit)),
            cost: Some(self.cost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_follow_the_machine() {
        let ms = Duration::from_millis;
        let calibration = Calibration {
            rounds: 1,
            dear_rounds: 6,
            p50: ms(8),
            p95: ms(220),
            dear_p50: ms(40),
            dear_p95: ms(80),
            capacity: 120.0,
        };
        let Terms { a, b } = Terms::new(&calibration);
        assert!((a.throughput - 36.0).abs() < 1e-9 && (b.throughput - 48.0).abs() < 1e-9);
        assert!((a.offered - 28.8).abs() < 1e-9 && (b.offered - 43.2).abs() < 1e-9);
        assert_eq!((a.limit, b.limit, a.cost), (ms(880), ms(4400), ms(8)), "four times an uneven page's p95");
        let steady = Calibration { p95: ms(9), ..calibration };
        assert_eq!(Terms::new(&steady).a.limit, ms(800));
    }
}
