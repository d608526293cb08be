//! Linear verification: does a page that is requested by several at once use that many times as much?
//!
//! Source: Feng and Lin, Sec. 3.1: a probed use counts if the use of n requests at once is n times that of one. What fails
//! it has no cost per request: a page that one request computes for all, say, or a server that does something else at
//! the same time.

use serde::{Deserialize, Serialize};

/// The fit below which a page has no cost per request: a tenth of how the use varies is not due to the number of requests.
pub const LEAST_FIT: f64 = 0.9;

/// The line through the origin that is closest to the points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Use per request.
    pub slope: f64,
    /// R²: the part of the variance that the line explains. 1 is a proportion; it has no lower end.
    pub fit: f64,
}

/// The line of points (requests at once, what a round of them uses); `None` if there are fewer than two numbers of requests.
#[must_use]
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    let squares: f64 = points.iter().map(|(x, _)| x * x).sum();
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread = points.iter().any(|(x, _)| points.first().is_some_and(|(first, _)| x != first));
    if !spread || squares <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|(x, y)| x * y).sum::<f64>() / squares;
    let around = |of: &dyn Fn(f64) -> f64| points.iter().map(|(x, y)| (y - of(*x)).powi(2)).sum::<f64>();
    let (left, all) = (around(&|x| slope * x), around(&|_| mean));
    // Where nothing varies, no line explains it: use that does not grow with the requests.
    let fit = if all > 0.0 { 1.0 - left / all } else { 0.0 };
    Some(Line { slope, fit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proportion_fits() {
        let line = line(&[(1.0, 2.0), (2.0, 4.0), (4.0, 8.0), (8.0, 16.0)]).expect("a line");
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.fit - 1.0).abs() < 1e-12, "{line:?}");
        let noisy = super::line(&[(1.0, 2.1), (2.0, 3.8), (4.0, 8.3), (8.0, 15.7)]).expect("a line");
        assert!((noisy.slope - 2.0).abs() < 0.05 && noisy.fit > 0.99, "{noisy:?}");
    }

    #[test]
    fn what_does_not_grow_with_the_requests_does_not_fit() {
        for points in [
            [(1.0, 5.0), (2.0, 5.0), (4.0, 5.0), (8.0, 5.0)],
            [(1.0, 5.0), (2.0, 1.0), (4.0, 6.0), (8.0, 2.0)],
            [(1.0, 8.0), (2.0, 4.0), (4.0, 2.0), (8.0, 1.0)],
            [(1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (8.0, 0.0)],
        ] {
            let line = line(&points).expect("a line");
            assert!(line.fit < LEAST_FIT, "{points:?}: {line:?}");
        }
    }

    #[test]
    fn one_number_of_requests_is_no_line() {
        assert_eq!(line(&[]), None);
        assert_eq!(line(&[(4.0, 1.0), (4.0, 2.0)]), None);
    }
}
