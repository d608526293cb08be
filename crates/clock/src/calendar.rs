//! Calendar times as text, in UTC. Source of the calendar: the proleptic Gregorian one of ISO 8601.

use std::time::{SystemTime, UNIX_EPOCH};

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
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let Civil { year, month, day, hour, minute, second, millis } = Civil::of(at);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Formats a time as `21/Nov/2026:20:15:03 +0000`, as the common log format of NCSA and Apache has it.
#[must_use]
pub fn common_log_time(at: SystemTime) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(at);
    let month = usize::try_from(month).ok().and_then(|month| MONTHS.get(month.wrapping_sub(1))).unwrap_or(&"");
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
