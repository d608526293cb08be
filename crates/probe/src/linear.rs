//! Linear verification: does a page that is requested by several at once use that many times as much?
//!
//! Source: Feng and Lin, Sec. 3.1: a probed use counts if the use of n requests at once is n times that of one. What
//! fails it has no cost per request: a page that one request computes for all, say, or a server that does something
//! else at the same time. Over one to eight requests at once almost anything that grows lies close to a line, so the
//! fit alone says little; what a request uses must also be about the same with each number of them.

use serde::{Deserialize, Serialize};

/// The fit below which a page has no cost per request: a tenth of how the use varies is not due to the number of
/// requests.
pub const LEAST_FIT: f64 = 0.9;

/// By which part of its cost a request may use more or less with some number of requests at once. Many at once save a
/// server some wakeups, so that cheap pages differ by a fifth; pages that differ by more than a quarter are not folded
/// into one route either.
pub const MOST_OFF: f64 = 0.25;

/// What a request uses with some number of them at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Requests at once.
    pub at_once: f64,
    /// Use per request.
    pub used: f64,
    /// Its standard error.
    pub error: f64,
}

/// The line through the origin that is closest to the points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Use per request.
    pub slope: f64,
    /// R²: the part of the variance that the line explains. 1 is a proportion; it has no lower end.
    pub fit: f64,
    /// The largest deviation of a point's use per request from the cost, as a part of that, without two standard
    /// errors.
    pub off: f64,
}

/// The line of points (requests at once, and what all of them use), for a page of this `cost` per request; `None` if
/// there are fewer than two numbers of requests.
#[must_use]
pub fn line(points: &[Point], cost: f64) -> Option<Line> {
    let count = points.len() as f64;
    let squares: f64 = points.iter().map(|point| point.at_once.powi(2)).sum();
    let mean = points.iter().map(|point| point.at_once * point.used).sum::<f64>() / count;
    let spread = points.iter().any(|point| points.first().is_some_and(|first| point.at_once != first.at_once));
    if !spread || squares <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|point| point.at_once.powi(2) * point.used).sum::<f64>() / squares;
    let around = |of: &dyn Fn(&Point) -> f64| {
        points.iter().map(|point| (point.at_once * point.used - of(point)).powi(2)).sum::<f64>()
    };
    let (left, all) = (around(&|point| slope * point.at_once), around(&|_| mean));
    // Where nothing varies, no line explains it: use that does not grow with the requests.
    let fit = if all > 0.0 { 1.0 - left / all } else { 0.0 };
    let off =
        |point: &Point| ((point.used - cost).abs() - 2.0 * point.error).max(0.0) / cost.abs().max(f64::MIN_POSITIVE);
    Some(Line { slope, fit, off: points.iter().map(off).fold(0.0, f64::max) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of points whose mean is the cost.
    fn line(points: &[Point]) -> Option<Line> {
        super::line(points, points.iter().map(|point| point.used).sum::<f64>() / points.len() as f64)
    }

    /// Points of exact costs per request.
    fn points(used: [f64; 4]) -> Vec<Point> {
        [1.0, 2.0, 4.0, 8.0].into_iter().zip(used).map(|(at_once, used)| Point { at_once, used, error: 0.0 }).collect()
    }

    #[test]
    fn a_proportion_fits() {
        let exact = line(&points([2.0; 4])).expect("a line");
        assert!((exact.slope - 2.0).abs() < 1e-12 && (exact.fit - 1.0).abs() < 1e-12 && exact.off < 1e-12, "{exact:?}");
        let noisy = line(&points([2.1, 1.9, 2.07, 1.96])).expect("a line");
        assert!((noisy.slope - 2.0).abs() < 0.05 && noisy.fit > 0.99 && noisy.off < MOST_OFF, "{noisy:?}");
    }

    #[test]
    fn what_does_not_grow_with_the_requests_does_not_fit() {
        for used in [[5.0, 2.5, 1.25, 0.625], [5.0, 0.5, 1.5, 0.25], [8.0, 2.0, 0.5, 0.125], [0.0; 4]] {
            let line = line(&points(used)).expect("a line");
            assert!(line.fit < LEAST_FIT, "{used:?}: {line:?}");
        }
    }

    #[test]
    fn what_grows_but_in_no_proportion_is_off() {
        for used in [[1.0, 1.3, 1.6, 2.0], [1.75, 1.4, 1.15, 1.0]] {
            let line = line(&points(used)).expect("a line");
            assert!(line.fit >= LEAST_FIT && line.off > MOST_OFF, "{used:?}: {line:?}");
        }
        let unsure: Vec<Point> =
            points([1.5, 1.0, 1.0, 1.0]).into_iter().map(|point| Point { error: 0.1, ..point }).collect();
        let line = line(&unsure).expect("a line");
        assert!(line.off < MOST_OFF, "what is not known is not held against it: {line:?}");
    }

    #[test]
    fn one_number_of_requests_is_no_line() {
        assert_eq!(line(&[]), None);
        let point = Point { at_once: 4.0, used: 1.0, error: 0.0 };
        assert_eq!(line(&[point, Point { used: 2.0, ..point }]), None);
    }
}
