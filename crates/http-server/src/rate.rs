//! Limits of how often a sender is served, and of how many lines people get about it.

use std::time::Duration;

/// Maximum rate of lines about one matter, per second, and the size of a burst. Strangers must not fill the log.
const LINES_PER_SECOND: f64 = 10.0;

/// A limit of a rate. Its burst is the number of a second.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    per_second: f64,
    left: f64,
    at: Duration,
}

impl Rate {
    /// Creates a limit with its whole burst left.
    pub fn new(per_second: f64, now: Duration) -> Rate {
        Rate { per_second, left: per_second, at: now }
    }

    /// Counts one more, and returns whether it is within the limit.
    pub fn takes(&mut self, now: Duration) -> bool {
        let since = now.saturating_sub(self.at).as_secs_f64();
        let left = (self.left + self.per_second * since).min(self.per_second);
        let takes = left >= 1.0;
        (self.left, self.at) = (if takes { left - 1.0 } else { left }, now);
        takes
    }
}

/// A limit of lines for people. Lines beyond it are left out and counted.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    rate: Rate,
    left_out: u64,
}

impl Lines {
    /// Creates a limit with its whole burst left.
    pub fn new(now: Duration) -> Lines {
        Lines { rate: Rate::new(LINES_PER_SECOND, now), left_out: 0 }
    }

    /// Returns the line to write, with the number of those left out before it, or `None` if there were too many.
    pub fn limit(&mut self, line: String, now: Duration) -> Option<String> {
        if !self.rate.takes(now) {
            self.left_out += 1;
            return None;
        }
        match std::mem::take(&mut self.left_out) {
            0 => Some(line),
            more => Some(format!("{line} ({more} lines before it were left out)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate_are_taken() {
        let mut rate = Rate::new(20.0, Duration::ZERO);
        let mut taken = |at| (0..100).filter(|_| rate.takes(Duration::from_millis(at))).count();
        assert_eq!([taken(0), taken(100), taken(60_000)], [20, 2, 20]);
    }

    #[test]
    fn lines_that_are_left_out_are_counted() {
        let mut lines = Lines::new(Duration::ZERO);
        let written = (0..100).filter_map(|_| lines.limit("x".to_owned(), Duration::ZERO)).count();
        assert_eq!(written, 10);
        let next = lines.limit("y".to_owned(), Duration::from_secs(1));
        assert_eq!(next.as_deref(), Some("y (90 lines before it were left out)"));
        assert_eq!(lines.limit("z".to_owned(), Duration::from_secs(1)).as_deref(), Some("z"));
    }
}
