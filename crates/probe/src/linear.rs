//! Linear verification: whether the use by concurrent requests for a page is proportional to their number.
//!
//! Source: Feng and Lin, Sec. 3.1: a measured use is valid if the use by n concurrent requests is n times
//! that of one. A page that fails has no cost per request. For example, one request may compute it for all,
//! or the server may do other work at the same time. Between one and eight concurrent requests almost any
//! growing use lies close to a line, so the fit alone says little. The use per request must also be about the
//! same at each concurrency.

use serde::{Deserialize, Serialize};

/// Minimum fit of a page with a cost per request. At this fit, a tenth of the variance of the use is not
/// explained by the number of requests.
pub const MIN_FIT: f64 = 0.9;

/// Maximum deviation of the use per request at some concurrency, as a fraction of the cost. Concurrent
/// requests save a server some wake-ups, so that the costs of cheap pages differ by a fifth. Pages with costs
/// that differ by more than a quarter are not folded into one route either.
pub const MAX_OFF: f64 = 0.25;

/// Use per request at one concurrency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Number of concurrent requests.
    pub at_once: f64,
    /// Use per request.
    pub used: f64,
    /// Standard error of the use per request.
    pub error: f64,
}

/// The line through the origin closest to the points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Use per request.
    pub slope: f64,
    /// R²: the fraction of the variance explained by the line. It is 1 for exact proportionality and has no
    /// lower bound.
    pub fit: f64,
    /// Maximum deviation of a point's use per request from the cost, less two standard errors, as a fraction
    /// of the cost.
    pub off: f64,
}

/// Fits the line to points (concurrency, and the use by all requests) of a page with this `cost` per request.
/// Returns `None` if there are fewer than two concurrencies.
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
    // Without any variance, the use does not grow with the number of requests, so the fit is 0.
    let fit = if all > 0.0 { 1.0 - left / all } else { 0.0 };
    let off =
        |point: &Point| ((point.used - cost).abs() - 2.0 * point.error).max(0.0) / cost.abs().max(f64::MIN_POSITIVE);
    Some(Line { slope, fit, off: points.iter().map(off).fold(0.0, f64::max) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fits the line to points with their mean as the cost.
    fn line(points: &[Point]) -> Option<Line> {
        super::line(points, points.iter().map(|point| point.used).sum::<f64>() / points.len() as f64)
    }

    /// Builds points with exact costs per request.
    fn points(used: [f64; 4]) -> Vec<Point> {
        [1.0, 2.0, 4.0, 8.0].into_iter().zip(used).map(|(at_once, used)| Point { at_once, used, error: 0.0 }).collect()
    }

    #[test]
    fn a_proportion_fits() {
        let exact = line(&points([2.0; 4])).expect("a line");
        assert!((exact.slope - 2.0).abs() < 1e-12 && (exact.fit - 1.0).abs() < 1e-12 && exact.off < 1e-12, "{exact:?}");
        let noisy = line(&points([2.1, 1.9, 2.07, 1.96])).expect("a line");
        assert!((noisy.slope - 2.0).abs() < 0.05 && noisy.fit > 0.99 && noisy.off < MAX_OFF, "{noisy:?}");
    }

    #[test]
    fn what_does_not_grow_with_the_requests_does_not_fit() {
        for used in [[5.0, 2.5, 1.25, 0.625], [5.0, 0.5, 1.5, 0.25], [8.0, 2.0, 0.5, 0.125], [0.0; 4]] {
            let line = line(&points(used)).expect("a line");
            assert!(line.fit < MIN_FIT, "{used:?}: {line:?}");
        }
    }

    #[test]
    fn what_grows_but_in_no_proportion_is_off() {
        for used in [[1.0, 1.3, 1.6, 2.0], [1.75, 1.4, 1.15, 1.0]] {
            let line = line(&points(used)).expect("a line");
            assert!(line.fit >= MIN_FIT && line.off > MAX_OFF, "{used:?}: {line:?}");
        }
        let unsure: Vec<Point> =
            points([1.5, 1.0, 1.0, 1.0]).into_iter().map(|point| Point { error: 0.1, ..point }).collect();
        let line = line(&unsure).expect("a line");
        assert!(line.off < MAX_OFF, "what is not known is not held against it: {line:?}");
    }

    #[test]
    fn one_number_of_requests_is_no_line() {
        assert_eq!(line(&[]), None);
        let point = Point { at_once: 4.0, used: 1.0, error: 0.0 };
        assert_eq!(line(&[point, Point { used: 2.0, ..point }]), None);
    }
}
