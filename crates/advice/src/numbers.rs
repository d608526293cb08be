//! Figures: rounded, and as a policy or a comment has them.

use std::time::Duration;

use weirgate_spanned_yaml::unit::span_text;

/// Steps of limits of response times within a power of ten. Finer ones would claim to know more than a log tells.
const LIMITS: [f64; 10] = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];

/// Returns a limit of at least `seconds`.
pub(crate) fn limit_above(seconds: f64) -> f64 {
    let power = 10f64.powf(seconds.max(1e-6).log10().floor());
    let step = LIMITS.iter().map(|step| step * power).find(|limit| *limit >= seconds * (1.0 - 1e-9));
    step.unwrap_or(10.0 * power)
}

/// Rounds to two significant digits, up or down. Smaller numbers than 0.01 become 0.01 or 0.
pub(crate) fn two_digits(number: f64, up: bool) -> f64 {
    let power = 10f64.powf(number.max(1e-9).log10().floor() - 1.0).max(0.01);
    // 0.3 / 0.1 is a little less than 3, and must not become 2 steps. Sums of many times are less exact than that, but
    // a number that is rounded down has to fit.
    let steps = number / power;
    let whole = if (steps - steps.round()).abs() < if up { 1e-3 } else { 1e-7 } {
        steps.round()
    } else if up {
        steps.ceil()
    } else {
        steps.floor()
    };
    whole * power
}

/// Returns a number without an exponent and without zeros at its end.
pub(crate) fn plain(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a rate as a policy has it.
pub(crate) fn rate(per_second: f64) -> String {
    format!("{}/s", plain(per_second))
}

/// Returns a time as a policy has it: `250us`, `24ms`, `1.5s`. It is at least 1 µs and rounded to three digits or more.
pub(crate) fn span(seconds: f64) -> String {
    let micros = (seconds * 1e6).round().max(1.0);
    match micros {
        m if m < 1_000.0 => format!("{m:.0}us"),
        m if m < 100_000.0 => format!("{}ms", plain((m / 100.0).round() / 10.0)),
        m if m < 1e6 || m < 1e7 && (m / 1e3).round() % 100.0 != 0.0 => format!("{:.0}ms", m / 1e3),
        m => format!("{}s", plain((m / 1e5).round() / 10.0)),
    }
}

/// Returns the time that [`span`] writes.
pub(crate) fn written(seconds: f64) -> f64 {
    let text = span(seconds);
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let number: f64 = number.parse().unwrap_or(seconds);
    match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        _ => number,
    }
}

/// Returns a time for people.
pub(crate) fn told(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or("-".to_owned(), span_text)
}

/// Returns a time of minutes to days for people.
pub(crate) fn long(seconds: f64) -> String {
    match seconds {
        s if s >= 2.0 * 86_400.0 => format!("{:.1} days", s / 86_400.0),
        s if s >= 2.0 * 3_600.0 => format!("{:.1} hours", s / 3_600.0),
        s => told(s),
    }
}

/// Returns a count for people: `30,969`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a share for people.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p >= 9.95 => format!("{p:.0} %"),
        p => format!("{p:.1} %"),
    }
}

/// Returns the smallest value that is at least as large as a share `q` of all values (nearest rank). Sorts them.
pub(crate) fn quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (q * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_to_what_is_known() {
        for (seconds, limit) in
            [(0.28, 0.3), (0.3, 0.3), (0.31, 0.4), (0.81, 1.0), (1.0, 1.0), (0.0, 1e-6), (900.0, 1000.0)]
        {
            assert!((limit_above(seconds) - limit).abs() < 1e-9, "{seconds}: {}", limit_above(seconds));
        }
        for (number, up, rounded) in [
            (57.6, true, 58.0),
            (57.6, false, 57.0),
            (0.3, true, 0.3),
            (1234.0, false, 1200.0),
            (0.001, true, 0.01),
            (0.001, false, 0.0),
        ] {
            assert!((two_digits(number, up) - rounded).abs() < 1e-9, "{number}: {}", two_digits(number, up));
        }
    }

    #[test]
    fn figures_are_written_with_units() {
        for (seconds, text) in [
            (0.024, "24ms"),
            (0.0215, "21.5ms"),
            (0.00025, "250us"),
            (0.3, "300ms"),
            (1.5, "1.5s"),
            (0.28, "280ms"),
            (1.234, "1234ms"),
            (12.34, "12.3s"),
            (0.0, "1us"),
            (1.0, "1s"),
            (345_600.0, "345600s"),
        ] {
            assert_eq!(span(seconds), text);
        }
        assert_eq!((rate(60.0), rate(0.5), rate(1200.0)), ("60/s".into(), "0.5/s".into(), "1200/s".into()));
        assert_eq!((count(30_969), count(999), count(1_000_000)), ("30,969".into(), "999".into(), "1,000,000".into()));
        assert!((written(0.12345) - 0.123).abs() < 1e-9);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0, 4.0], 0.5), Some(2.0));
        assert_eq!(quantile(&mut [3.0, 1.0], 0.99), Some(3.0));
        assert_eq!(quantile(&mut [], 0.99), None);
    }
}
