//! Calendar times as text. Source of the calendar: the proleptic Gregorian one of ISO 8601.
//!
//! Times are written in UTC. Two formats are read: the date of the Common Log Format, `01/Aug/1995:00:00:01 -0400`
//! (Apache HTTP Server's manual, "Log Files"), and `2023-11-16T18:17:03Z` (RFC 3339, sec. 5.6). There are some
//! departures, which follow the output of real servers: a date may have a fraction of any length (HAProxy's has
//! milliseconds), may lack its zone and then is UTC, and may have a space or a tab in place of the `T`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names of the months in the common log format.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Date and time of a moment. Times before 1970 are taken for its beginning.
struct Civil {
    year: u64,
    /// 1 to 12.
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    millis: u32,
}

impl Civil {
    /// The calendar starts each year in March, so that the leap day is the last day of a year. 400 such years always
    /// have 146,097 days.
    fn of(at: SystemTime) -> Civil {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        // 719,468 days lie between 1 March of year 0 and 1 January 1970.
        let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        Civil { year, month, day, hour, minute, second, millis: since.subsec_millis() }
    }
}

/// Formats a time as `2026-11-21T20:15:03.042Z` (RFC 3339).
pub fn rfc3339(at: SystemTime) -> String {
    let Civil { year, month, day, hour, minute, second, millis } = Civil::of(at);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Formats a time as `2026-11-21T20:15:03Z` (RFC 3339), without the fraction of the second.
pub fn rfc3339_seconds(at: SystemTime) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(at);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats a time as `21/Nov/2026:20:15:03 +0000`, as the common log format of NCSA and Apache has it.
pub fn common_log_time(at: SystemTime) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(at);
    let month = usize::try_from(month).ok().and_then(|month| MONTHS.get(month.wrapping_sub(1))).unwrap_or(&"");
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

/// Returns the time since 1970 of a date, such as `2023-11-16T18:17:03.97Z`, or `None` if it is none, or before 1970.
pub fn since_1970(text: &str) -> Option<Duration> {
    leading_date(text).and_then(|(since, rest)| rest.is_empty().then_some(since))
}

/// Returns the time since 1970 of the date that `text` begins with, and the rest of the text.
pub fn leading_date(text: &str) -> Option<(Duration, &str)> {
    [Cursor::internet_date, Cursor::common_log_date].into_iter().find_map(|read| {
        let mut cursor = Cursor(text.as_bytes());
        let since = read(&mut cursor)?;
        // Only ASCII was read.
        Some((since, text.get(text.len() - cursor.0.len()..)?))
    })
}

/// The rest of a text.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// Reads a date such as `2023-11-16T18:17:03.97Z`.
    fn internet_date(&mut self) -> Option<Duration> {
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
    fn common_log_date(&mut self) -> Option<Duration> {
        let day = self.number(2)?;
        self.one_of(b"/")?;
        let (name, rest) = self.0.split_at_checked(3)?;
        let month = MONTHS.iter().position(|month| month.as_bytes() == name)? as u64 + 1;
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

    /// Reads a number of exactly `width` digits, at most 19.
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

/// Returns the time `second` seconds into day `days` in a zone `east` seconds east of Greenwich, or `None` before 1970.
fn instant(days: u64, second: u64, nanos: u32, east: i64) -> Option<Duration> {
    Some(Duration::new((days * 86_400 + second).checked_add_signed(-east)?, nanos))
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

    fn stamp(seconds: u64, millis: u64) -> String {
        rfc3339(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + millis))
    }

    #[test]
    fn timestamps_follow_the_calendar() {
        assert_eq!(stamp(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(stamp(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(stamp(1_709_251_199, 999), "2024-02-29T23:59:59.999Z");
        assert_eq!(stamp(1_709_251_200, 0), "2024-03-01T00:00:00.000Z");
        assert_eq!(stamp(1_798_761_599, 0), "2026-12-31T23:59:59.000Z");
        assert_eq!(stamp(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
        assert_eq!(rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(1_735_689_599)), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn the_common_log_format_names_months() {
        assert_eq!(common_log_time(UNIX_EPOCH + Duration::from_secs(971_211_336)), "10/Oct/2000:20:55:36 +0000");
        for (nth, month) in MONTHS.iter().enumerate() {
            // The middle of each month of 1970.
            let days = [14, 45, 73, 104, 134, 165, 195, 226, 257, 287, 318, 348][nth];
            assert!(common_log_time(UNIX_EPOCH + Duration::from_secs(days * 86_400)).contains(month), "{month}");
        }
    }

    #[test]
    fn every_way_of_writing_is_read() {
        // The expected values are from `date -u -d ... +%s`.
        for (text, seconds, nanos, rest) in [
            ("01/Aug/1995:00:00:01 -0400] \"GET /", 807_249_601, 0, "] \"GET /"),
            ("06/Feb/2009:12:14:14.655] http-in", 1_233_922_454, 655_000_000, "] http-in"),
            ("2023-11-16 18:17:03.9799600,4808,10", 1_700_158_623, 979_960_000, ",4808,10"),
            ("2023-11-16T18:17:03Z", 1_700_158_623, 0, ""),
            ("2023-11-16t20:17:03.5+02:00 x", 1_700_158_623, 500_000_000, " x"),
            ("2023-11-16T12:47:03-0530", 1_700_158_623, 0, ""),
            ("2023-11-16\t18:17:03\tLAX1", 1_700_158_623, 0, "\tLAX1"),
            ("2024-02-29T00:00:00Z", 1_709_164_800, 0, ""),
            ("2024-03-01T00:00:00Z", 1_709_251_200, 0, ""),
            ("2000-02-29T00:00:00Z", 951_782_400, 0, ""),
            ("2100-03-01T00:00:00Z", 4_107_542_400, 0, ""),
            ("2016-12-31T23:59:60Zé", 1_483_228_800, 0, "é"),
            ("1970-01-01T00:00:00Z", 0, 0, ""),
        ] {
            assert_eq!(leading_date(text), Some((Duration::new(seconds, nanos), rest)), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_not_read() {
        for text in [
            "", ":", "T", "é", "5", "2023-02-29T00:00:00Z", "2100-02-29T00:00:00Z", "2023-00-01T00:00:00Z",
            "2023-13-01T00:00:00Z", "2023-04-31T00:00:00Z", "2023-04-00T00:00:00Z", "2023-04-01T24:00:00Z",
            "2023-04-01T00:60:00Z", "2023-04-01T00:00:61Z", "2023-04-01", "2023-04-01T00:00", "2023-04-01T00:00:00+2",
            "2023-04-01T00:00:00+24:00", "2023-04-01T00:00:00Zulu", "2023-04-01T00:00:00é", "1969-12-31T23:59:59Z",
            "1970-01-01T00:30:00+01:00", "99999-01-01T00:00:00Z", "10/Oct/2000", "01/Agu/1995:00:00:01 -0400",
            "31/Jun/1995:00:00:01 -0400", "1/Aug/1995:00:00:01 -0400", "01/Aug/1995 00:00:01 -0400",
            "01/Aug/1995:00:00:01 -04",
        ] {
            assert_eq!(since_1970(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before_and_is_written_as_it_is_read() {
        let mut next = 0;
        for year in 1970..2500 {
            for month in 1..=12 {
                for day in (1..=31).filter_map(|day| days(year, month, day)) {
                    assert_eq!(day, next);
                    let since = Duration::from_millis(day * 86_400_000 + 86_399_042);
                    assert_eq!(since_1970(&rfc3339(UNIX_EPOCH + since)), Some(since));
                    next += 1;
                }
            }
        }
        assert_eq!(next, days(2500, 1, 1).expect("a date"));
    }
}
