//! Times of logs.
//!
//! Sources: the format `[10/Oct/2000:13:55:36 -0700]` of the Common Log Format (Apache `%t`, nginx `$time_local`), the
//! same with milliseconds and without a zone (HAProxy `%tr`), RFC 3339 (nginx `$time_iso8601`, Weirgate), and seconds
//! since 1970. A time without a zone counts as UTC. Only differences matter here.

use std::time::Duration;

use time::{Date, Month, PrimitiveDateTime, Time, UtcOffset};

/// Names of months in the Common Log Format.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses `10/Oct/2000:13:55:36 -0700`, `06/Feb/2009:12:14:14.655` and mixtures of both. Returns milliseconds since
/// 1970.
pub(super) fn common(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(':')?;
    let mut parts = date.split('/');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let (clock, zone) = match rest.split_once(' ') {
        Some((clock, zone)) => (clock, offset(zone)?),
        None => (rest, UtcOffset::UTC),
    };
    instant(number(year)?, u8::try_from(month).ok()?, number(day)?, clock, zone)
}

/// Parses `2026-11-26T10:00:00.042Z` and `2026-11-26T10:00:00+01:00`.
pub(super) fn rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let (clock, zone) = match rest.find(['Z', '+', '-']) {
        Some(at) => (rest.get(..at)?, offset(rest.get(at..)?)?),
        None => (rest, UtcOffset::UTC),
    };
    instant(number(year)?, number(month)?, number(day)?, clock, zone)
}

/// Parses a time in units of which `per_second` are a second, such as `1700000000.123`. Returns milliseconds.
pub(super) fn since_1970(text: &str, per_second: f64) -> Option<i64> {
    let value: f64 = text.parse().ok()?;
    let ms = value / per_second * 1e3;
    // The year 9999, as in a calendar.
    (ms.is_finite() && (0.0..253_402_300_800_000.0).contains(&ms)).then_some(ms as i64)
}

/// Parses a duration in units of which `per_second` are a second. `-` and negative ones are no duration.
pub(super) fn duration(text: &str, per_second: f64) -> Option<Duration> {
    let seconds = text.parse::<f64>().ok()? / per_second;
    Duration::try_from_secs_f64(seconds).ok()
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

/// Parses `-0700`, `+01:00` and `Z`.
fn offset(text: &str) -> Option<UtcOffset> {
    if text == "Z" {
        return Some(UtcOffset::UTC);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = (number::<i8>(text.get(1..3)?)?, text.get(3..)?);
    let minutes = number::<i8>(minutes.strip_prefix(':').unwrap_or(minutes))?;
    UtcOffset::from_hms(sign * hours, sign * minutes, 0).ok()
}

fn instant(year: i32, month: u8, day: u8, clock: &str, zone: UtcOffset) -> Option<i64> {
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    // A leap second counts as the second before it.
    let second = number::<u8>(second)?.min(59);
    let millisecond = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(3)
        .try_fold(0u16, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u16::from(digit - b'0')))?;
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    let time = Time::from_hms_milli(number(hour)?, number(minute)?, second, millisecond).ok()?;
    let instant = PrimitiveDateTime::new(date, time).assume_offset(zone);
    i64::try_from(instant.unix_timestamp_nanos() / 1_000_000).ok()
}

/// Formats milliseconds since 1970 for people: `2026-11-26 10:00 UTC`.
#[must_use]
pub fn calendar_text(ms: i64) -> String {
    match time::OffsetDateTime::from_unix_timestamp(ms.div_euclid(1000)) {
        Ok(at) => {
            let month = u8::from(at.month());
            format!("{:04}-{month:02}-{:02} {:02}:{:02} UTC", at.year(), at.day(), at.hour(), at.minute())
        }
        Err(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        assert_eq!(common("10/Oct/2000:13:55:36 -0700"), Some(971_211_336_000));
        assert_eq!(common("06/Feb/2009:12:14:14.655"), Some(1_233_922_454_655));
        assert_eq!(rfc3339("1970-01-01T00:00:00.042Z"), Some(42));
        assert_eq!(rfc3339("2000-10-10T13:55:36-07:00"), Some(971_211_336_000));
        assert_eq!(since_1970("971211336.5", 1.0), Some(971_211_336_500));
        assert_eq!(calendar_text(971_211_336_500), "2000-10-10 20:55 UTC");
    }

    #[test]
    fn nonsense_is_no_time() {
        for text in
            ["", ":", "10/Oct/2000", "32/Oct/2000:13:55:36 -0700", "10/Foo/2000:13:55:36 -0700", "+1/Oct/2000:0:0:0"]
        {
            assert_eq!(common(text), None, "{text}");
        }
        for text in
            ["", "T", "2000-13-01T00:00:00Z", "2000-01-01T24:00:00Z", "2000-01-01T00:00:00é", "99999-01-01T00:00:00Z"]
        {
            assert_eq!(rfc3339(text), None, "{text}");
        }
        for text in ["", "-1", "inf", "nan", "1e300"] {
            assert_eq!(since_1970(text, 1.0), None, "{text}");
        }
        assert_eq!(duration("-0.1", 1.0), None);
        assert_eq!(duration("1e400", 1.0), None);
        assert_eq!(calendar_text(i64::MAX), "unknown");
    }
}
