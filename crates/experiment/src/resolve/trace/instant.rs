//! Timestamps in the formats of logs.
//!
//! There are three formats: seconds, the date of the Common Log Format, `01/Aug/1995:00:00:01 -0400` (Apache
//! HTTP Server's manual, "Log Files"), and `2023-11-16T18:17:03Z` (RFC 3339, sec. 5.6). There are some
//! departures, which follow the output of real servers: a date may have a fraction of any length (HAProxy's
//! has milliseconds), may lack its zone and then is UTC, and may have a space or a tab in place of the `T`.

use std::time::Duration;

/// Seconds from this value on count from 1970, smaller ones from the start of the run. The web is younger
/// than March 1973, and no run takes three years.
const EPOCH_FROM: u64 = 100_000_000;

/// Maximum number of digits before the decimal point of seconds, so that they fit a `u64`.
const MAX_DIGITS: usize = 19;

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

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
        Cursor::whole(text, Cursor::seconds).or_else(|| Instant::leading_date(text))
    }

    /// Returns the date that `text` begins with.
    pub(super) fn leading_date(text: &str) -> Option<Instant> {
        Cursor::whole(text, Cursor::internet_date).or_else(|| Cursor::whole(text, Cursor::common_log_date))
    }
}

/// Returns the time since 1970 of a date in one of the formats of logs, such as `2023-11-16T18:17:03.97Z`.
#[must_use]
pub fn since_1970(date: &str) -> Option<Duration> {
    Instant::leading_date(date).map(|instant| instant.since)
}

/// Whether `c` ends a field.
pub(super) fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | '"')
}

/// The rest of a text.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// Returns the result of `read` on `text`, if the end, a separator or a closing bracket follows.
    fn whole(text: &'a str, read: fn(&mut Cursor<'a>) -> Option<Instant>) -> Option<Instant> {
        let mut cursor = Cursor(text.as_bytes());
        let instant = read(&mut cursor)?;
        cursor.0.first().is_none_or(|&byte| byte == b']' || is_separator(byte.into())).then_some(instant)
    }

    /// Reads seconds such as `12.345`.
    fn seconds(&mut self) -> Option<Instant> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > MAX_DIGITS || (digits == 0 && !matches!(self.0, [b'.', b'0'..=b'9', ..])) {
            return None;
        }
        let seconds = self.number(digits)?;
        let since = Duration::new(seconds, self.fraction());
        Some(Instant { since, origin: if seconds < EPOCH_FROM { Origin::Run } else { Origin::Epoch } })
    }

    /// Reads a date such as `2023-11-16T18:17:03.97Z`.
    fn internet_date(&mut self) -> Option<Instant> {
        let year = self.number(4)?;
        self.one_of(b"-")?;
        let month = self.number(2)?;
        self.one_of(b"-")?;
        let day = self.number(2)?;
        self.one_of(b"Tt \t")?;
        let (second, nanos) = self.time_of_day()?;
        let east = if self.one_of(b"Zz").is_some() { 0 } else { self.zone()? };
        instant(days(year, month, day)?, second, nanos, east)
    }

    /// Reads a date such as `01/Aug/1995:00:00:01 -0400`.
    fn common_log_date(&mut self) -> Option<Instant> {
        let day = self.number(2)?;
        self.one_of(b"/")?;
        let (name, rest) = self.0.split_at_checked(3)?;
        let month = MONTHS.iter().position(|&month| month == name)? as u64 + 1;
        self.0 = rest;
        self.one_of(b"/")?;
        let year = self.number(4)?;
        self.one_of(b":")?;
        let (second, nanos) = self.time_of_day()?;
        if let [b' ', b'+' | b'-', ..] = self.0 {
            self.one_of(b" ")?;
        }
        let east = self.zone()?;
        instant(days(year, month, day)?, second, nanos, east)
    }

    /// Reads a time such as `18:17:03.97` as second of the day and nanoseconds. A leap second, `:60`, is the
    /// first second of the next minute.
    fn time_of_day(&mut self) -> Option<(u64, u32)> {
        let hour = self.number(2)?;
        self.one_of(b":")?;
        let minute = self.number(2)?;
        self.one_of(b":")?;
        let second = self.number(2)?;
        (hour < 24 && minute < 60 && second <= 60).then(|| (hour * 3600 + minute * 60 + second, self.fraction()))
    }

    /// Reads a zone such as `-0400` or `-04:00` as seconds east of Greenwich. Returns 0 if no sign follows.
    fn zone(&mut self) -> Option<i64> {
        let Some(sign) = self.one_of(b"+-") else { return Some(0) };
        let hours = self.number(2)?;
        self.one_of(b":");
        let minutes = self.number(2)?;
        let seconds = i64::try_from(hours * 3600 + minutes * 60).ok()?;
        (hours < 24 && minutes < 60).then_some(if sign == b'-' { -seconds } else { seconds })
    }

    /// Reads a fraction as nanoseconds, if one follows. Finer digits are dropped.
    fn fraction(&mut self) -> u32 {
        if self.one_of(b".").is_none() {
            return 0;
        }
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, rest) = self.0.split_at(digits);
        self.0 = rest;
        (0..9).fold(0, |nanos, place| nanos * 10 + u32::from(fraction.get(place).map_or(0, |digit| digit - b'0')))
    }

    /// Reads a number of exactly `width` digits, at most [`MAX_DIGITS`].
    fn number(&mut self, width: usize) -> Option<u64> {
        let (digits, rest) = self.0.split_at_checked(width)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        Some(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    }

    /// Takes the next byte, if it is one of `bytes`.
    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (&first, rest) = self.0.split_first().filter(|(first, _)| bytes.contains(first))?;
        self.0 = rest;
        Some(first)
    }
}

/// Returns the timestamp `second` seconds into day `days` in a zone `east` seconds east of Greenwich, or
/// `None` before 1970.
fn instant(days: u64, second: u64, nanos: u32, east: i64) -> Option<Instant> {
    let seconds = (days * 86_400 + second).checked_add_signed(-east)?;
    Some(Instant { since: Duration::new(seconds, nanos), origin: Origin::Epoch })
}

/// Returns the days from 1970 to a date of the Gregorian calendar, or `None` if there is no such date or it
/// is before 1970.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    if year < 1970 || !(1..=*lengths.get(before)?).contains(&day) {
        return None;
    }
    // There are 477 leap days before 1970.
    let leap_days = (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400 - 477;
    Some((year - 1970) * 365 + leap_days + lengths[..before].iter().sum::<u64>() + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(seconds: u64, nanos: u32) -> Option<Instant> {
        Some(Instant { since: Duration::new(seconds, nanos), origin: Origin::Epoch })
    }

    #[test]
    fn every_way_of_writing_is_read() {
        // The expected values are from `date -u -d ... +%s`.
        for (text, seconds, nanos) in [
            ("01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.0\" 200 1839", 807_249_601, 0),
            ("06/Feb/2009:12:14:14.655] http-in static/srv1", 1_233_922_454, 655_000_000),
            ("2023-11-16 18:17:03.9799600,4808,10", 1_700_158_623, 979_960_000),
            ("2023-11-16T18:17:03Z", 1_700_158_623, 0),
            ("2023-11-16t20:17:03.5+02:00 x", 1_700_158_623, 500_000_000),
            ("2023-11-16T12:47:03-0530", 1_700_158_623, 0),
            ("2023-11-16\t18:17:03\tLAX1", 1_700_158_623, 0),
            ("2024-02-29T00:00:00Z", 1_709_164_800, 0),
            ("2024-03-01T00:00:00Z", 1_709_251_200, 0),
            ("2000-02-29T00:00:00Z", 951_782_400, 0),
            ("2100-03-01T00:00:00Z", 4_107_542_400, 0),
            ("2016-12-31T23:59:60Z", 1_483_228_800, 0),
            ("1970-01-01T00:00:00Z", 0, 0),
            ("1700000000.1234567899;x", 1_700_000_000, 123_456_789),
            ("100000000", 100_000_000, 0),
        ] {
            assert_eq!(Instant::leading(text), epoch(seconds, nanos), "{text}");
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
            "", ".", "-", "-5", "+5", "1e3", "127.0.0.1", "5s", "12345678901234567890", " 5", "inf", "é",
            "2023-02-29T00:00:00Z", "2100-02-29T00:00:00Z", "2023-00-01T00:00:00Z", "2023-13-01T00:00:00Z",
            "2023-04-31T00:00:00Z", "2023-04-00T00:00:00Z", "2023-04-01T24:00:00Z", "2023-04-01T00:60:00Z",
            "2023-04-01T00:00:61Z", "2023-04-01", "2023-04-01T00:00", "2023-04-01T00:00:00+2",
            "2023-04-01T00:00:00+24:00", "2023-04-01T00:00:00Zulu", "1969-12-31T23:59:59Z",
            "1970-01-01T00:30:00+01:00", "01/Agu/1995:00:00:01 -0400", "31/Jun/1995:00:00:01 -0400",
            "1/Aug/1995:00:00:01 -0400", "01/Aug/1995 00:00:01 -0400", "01/Aug/1995:00:00:01 -04",
        ] {
            assert_eq!(Instant::leading(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut next = 0;
        for year in 1970..2500 {
            for month in 1..=12 {
                for day in (1..=31).filter_map(|day| days(year, month, day)) {
                    assert_eq!(day, next);
                    next += 1;
                }
            }
        }
        assert_eq!(next, days(2500, 1, 1).unwrap());
    }
}
