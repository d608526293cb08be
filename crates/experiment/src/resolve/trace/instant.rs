//! Timestamps of logs: seconds, or dates as [`weirgate_clock::leading_date`] reads them.

use std::time::Duration;

use weirgate_clock::leading_date;

/// Seconds from this value on count from 1970, smaller ones from the start of the run. The web is younger
/// than March 1973, and no run takes three years.
const EPOCH_FROM: u64 = 100_000_000;

/// Maximum number of digits before the decimal point of seconds, so that they fit a `u64`.
const MAX_DIGITS: usize = 19;

/// Origin of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The start of the run.
    Run,
    /// 1970-01-01T00:00:00Z.
    Epoch,
}

/// Arrival time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instant {
    pub(super) since: Duration,
    pub(super) origin: Origin,
}

impl Instant {
    /// Returns the timestamp that `text` begins with, or `None` if there is none, or if other text follows it
    /// without a separator.
    pub(super) fn leading(text: &str) -> Option<Instant> {
        Instant::seconds(text).or_else(|| Instant::leading_date(text))
    }

    /// Returns the date that `text` begins with.
    pub(super) fn leading_date(text: &str) -> Option<Instant> {
        let (since, rest) = leading_date(text)?;
        ends(rest).then_some(Instant { since, origin: Origin::Epoch })
    }

    /// Returns the seconds that `text` begins with, such as `12.345`. Digits beyond nanoseconds are dropped.
    fn seconds(text: &str) -> Option<Instant> {
        let (whole, rest) = text.split_at(digits(text));
        let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), |rest| rest.split_at(digits(rest)));
        if whole.len() > MAX_DIGITS || whole.is_empty() && fraction.is_empty() || !ends(rest) {
            return None;
        }
        let number = |text: &str| text.bytes().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        let (seconds, nanos) = (number(whole), number(&format!("{fraction:0<9.9}")));
        let origin = if seconds < EPOCH_FROM { Origin::Run } else { Origin::Epoch };
        Some(Instant { since: Duration::new(seconds, u32::try_from(nanos).ok()?), origin })
    }
}

/// Number of digits that a text begins with.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Whether `rest` begins with the end of a field.
fn ends(rest: &str) -> bool {
    rest.chars().next().is_none_or(|c| c == ']' || is_separator(c))
}

/// Whether `c` ends a field.
pub(super) fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | '"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        for (text, seconds, nanos) in [
            ("01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 1839", 807_249_601, 0),
            ("2023-11-16 18:17:03.9799600,4808,10", 1_700_158_623, 979_960_000),
            ("1700000000.1234567899;x", 1_700_000_000, 123_456_789),
            ("100000000", 100_000_000, 0),
        ] {
            let since = Duration::new(seconds, nanos);
            assert_eq!(Instant::leading(text), Some(Instant { since, origin: Origin::Epoch }), "{text}");
        }
        for (text, seconds, nanos) in
            [("0", 0, 0), ("5. /a", 5, 0), (".5,1", 0, 500_000_000), ("99999999.25\r\n", 99_999_999, 250_000_000)]
        {
            let since = Duration::new(seconds, nanos);
            assert_eq!(Instant::leading(text), Some(Instant { since, origin: Origin::Run }), "{text}");
        }
    }

    #[test]
    fn what_is_no_instant_is_not_read() {
        for text in [
            "", ".", "-", "-5", "+5", "1e3", "127.0.0.1", "5s", "12345678901234567890", " 5", "inf", "é", "5é",
            "2023-04-01T00:00:00Zulu", "2023-04-01T00:00:00é", "01/Aug/1995:00:00:01 -0400x",
        ] {
            assert_eq!(Instant::leading(text), None, "{text}");
        }
    }
}
