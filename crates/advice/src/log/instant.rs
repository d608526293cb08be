//! Times of logs.
//!
//! Sources: the format `[10/Oct/2000:13:55:36 -0700]` of the Common Log Format (Apache `%t`, nginx `$time_local`), the
//! same with milliseconds and without a zone (HAProxy `%tr`), RFC 3339 (nginx `$time_iso8601`, Weirgate), and seconds
//! since 1970. A time without a zone counts as UTC. Only differences matter here.

use std::time::{Duration, UNIX_EPOCH};

/// Parses `10/Oct/2000:13:55:36 -0700`, `2026-11-26T10:00:00.042Z` and their like. Returns milliseconds since 1970.
pub(super) fn date(text: &str) -> Option<i64> {
    weirgate_clock::since_1970(text)?.as_millis().try_into().ok()
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

/// Formats milliseconds since 1970 for people: `2026-11-26 10:00 UTC`.
pub fn calendar_text(ms: i64) -> String {
    let text = weirgate_clock::rfc3339(UNIX_EPOCH + Duration::from_millis(ms.try_into().unwrap_or(0)));
    // The seconds and their fraction are left out.
    let minutes = text.rsplit_once(':').map_or("", |(minutes, _)| minutes);
    format!("{} UTC", minutes.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        assert_eq!(date("10/Oct/2000:13:55:36 -0700"), Some(971_211_336_000));
        assert_eq!(date("06/Feb/2009:12:14:14.655"), Some(1_233_922_454_655));
        assert_eq!(date("1970-01-01T00:00:00.042Z"), Some(42));
        assert_eq!(since_1970("971211336.5", 1.0), Some(971_211_336_500));
        assert_eq!(calendar_text(971_211_336_500), "2000-10-10 20:55 UTC");
    }

    #[test]
    fn nonsense_is_no_time() {
        for text in ["", "-1", "inf", "nan", "1e300"] {
            assert_eq!((date(text), since_1970(text, 1.0)), (None, None), "{text}");
        }
        assert_eq!(duration("-0.1", 1.0), None);
        assert_eq!(duration("1e400", 1.0), None);
    }
}
