//! Quantities as written in a file: durations, rates, shares, bytes, counts, names.
//!
//! A quantity with a dimension carries its unit, because `400` means seconds to one reader and milliseconds
//! to another. Shares are `0.34` or `34%`. Nothing here accepts `inf` or `nan`, and only a number without a
//! unit may have an exponent.

use std::time::Duration;

use crate::decode::FromText;
use crate::errors::{Complaint, quoted};

/// A duration of more than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A duration, or an instant from the start of a run, of zero or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

/// Events per second, of zero or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frequency(pub f64);

/// Requests per second, of more than zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

/// A share from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    /// Formats it as it is written in a file, such as `64KiB`, rounded to three digits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (factor, unit) = match self.0 {
            bytes if bytes >= 1 << 30 => (1u64 << 30, "GiB"),
            bytes if bytes >= 1 << 20 => (1 << 20, "MiB"),
            bytes if bytes >= 1 << 10 => (1 << 10, "KiB"),
            _ => (1, "B"),
        };
        write!(f, "{}{unit}", number_text(self.0 as f64 / factor as f64))
    }
}

/// A whole number from 1 to 4294967295.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u32);

/// A whole number from 0 to 4294967295.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole(pub u32);

/// A number of zero or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount(pub f64);

/// The speed of a machine as a multiple of a nominal one: a number of zero or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed(pub f64);

/// A name chosen by the operator. It is a label of metrics and logs, so it is short and plain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub String);

/// A choice of yes or no, written as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer(pub bool);

/// Any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

/// Maximum length of a name. It fits a column of a terminal.
const MAX_NAME: usize = 64;

/// Maximum duration, a year. A longer one is a typing error.
const MAX_SPAN_S: f64 = 366.0 * 86_400.0;

/// Maximum of every number. No gateway needs larger ones, and far larger ones are not exact as 64-bit floats.
const MAX_NUMBER: f64 = 1e12;

/// Returns the length of `text` if it is an exponent such as `e-4`, which plain numbers of YAML and JSON may
/// have, else 0.
fn exponent(text: &str) -> usize {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return 0 };
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let sound = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if sound { text.len() } else { 0 }
}

/// Splits `12.5ms` into a number and its unit.
pub fn number_and_unit(text: &str) -> Result<(f64, &str), Complaint> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end + exponent(&text[end..]));
    let sound = digits.starts_with(|c: char| c.is_ascii_digit()) && digits.ends_with(|c: char| c.is_ascii_digit());
    match digits.parse::<f64>() {
        Ok(number) if sound && number <= MAX_NUMBER => Ok((number, unit.trim_start())),
        Ok(_) if sound => Err(Complaint::about(text, "is too large", "write at most 1000000000000")),
        _ if text.starts_with('-') => Err(Complaint::about(text, "is negative", "write a number of zero or more")),
        _ => Err(Complaint::about(
            text,
            "does not start with a number",
            "write digits with at most one dot, such as `12` or `0.5`",
        )),
    }
}

impl FromText for Moment {
    const EXPECTED: &'static str = "a duration such as `400ms`, `2s` or `5min`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let (number, unit) = number_and_unit(text)?;
        let seconds_per_unit = match unit {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" => 60.0,
            "h" => 3600.0,
            "" => {
                let hint = format!("write `{text}ms` or `{text}s`");
                return Err(Complaint::about(text, "has no unit", hint));
            }
            "m" => {
                let hint = format!("write `{number}min` for minutes or `{number}ms` for milliseconds");
                return Err(Complaint::about(text, "may mean two things", hint));
            }
            _ => {
                return Err(Complaint::about(unit, "is not a unit of time", "write `us`, `ms`, `s`, `min` or `h`"));
            }
        };
        let seconds = number * seconds_per_unit;
        if seconds > MAX_SPAN_S {
            return Err(Complaint::about(text, "is longer than a year", "write a shorter time"));
        }
        // Rounded to the nanosecond, because 0.1 ms has no exact binary form.
        Ok(Moment(Duration::from_nanos((seconds * 1e9).round() as u64)))
    }
}

impl FromText for Span {
    const EXPECTED: &'static str = Moment::EXPECTED;

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let Moment(span) = Moment::from_text(text)?;
        if span.is_zero() {
            return Err(Complaint::about(text, "is no time at all", "write more than zero"));
        }
        Ok(Span(span))
    }
}

impl FromText for Frequency {
    const EXPECTED: &'static str = "a rate such as `800/s` or `60/min`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let (number, unit) = number_and_unit(text)?;
        let seconds = match unit.strip_prefix('/').map(str::trim_start) {
            Some("s") => 1.0,
            Some("min") => 60.0,
            Some("h") => 3600.0,
            _ if unit.is_empty() => {
                let hint = format!("write `{text}/s` or `{text}/min`");
                return Err(Complaint::about(text, "has no unit", hint));
            }
            _ => {
                return Err(Complaint::about(unit, "is not a unit of a rate", "write `/s`, `/min` or `/h`"));
            }
        };
        Ok(Frequency(number / seconds))
    }
}

impl FromText for Rate {
    const EXPECTED: &'static str = Frequency::EXPECTED;

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let Frequency(rate) = Frequency::from_text(text)?;
        if rate == 0.0 {
            let hint = "leave the field out for best effort, or write more than zero";
            return Err(Complaint::about(text, "promises nothing", hint));
        }
        Ok(Rate(rate))
    }
}

impl FromText for Share {
    const EXPECTED: &'static str = "a share such as `0.34` or `34%`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let (number, unit) = number_and_unit(text)?;
        let share = match unit {
            "" => number,
            "%" => number / 100.0,
            _ => return Err(Complaint::about(text, "is no share", "write `0.34` or `34%`")),
        };
        if share > 1.0 {
            let hint = if unit.is_empty() {
                format!("write a share from 0 to 1, or `{text}%`")
            } else {
                "write at most `100%`".to_owned()
            };
            return Err(Complaint::about(text, "is more than 100 %", hint));
        }
        Ok(Share(share))
    }
}

impl Bytes {
    /// Returns the number of bytes in a unit.
    ///
    /// # Errors
    /// Returns an error if it is not a unit of size.
    pub fn factor(unit: &str) -> Result<f64, Complaint> {
        match unit {
            "B" => Ok(1.0),
            "KiB" => Ok(1024.0),
            "MiB" => Ok(1024.0 * 1024.0),
            "GiB" => Ok(1024.0 * 1024.0 * 1024.0),
            _ => Err(Complaint::about(unit, "is no unit of size", "write `B`, `KiB`, `MiB` or `GiB` (1 KiB = 1024 B)")),
        }
    }
}

impl FromText for Bytes {
    const EXPECTED: &'static str = "a size such as `64KiB` or `1MiB`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let (number, unit) = number_and_unit(text)?;
        if unit.is_empty() {
            let hint = format!("write `{text}B` or `{text}KiB`");
            return Err(Complaint::about(text, "has no unit", hint));
        }
        let bytes = number * Bytes::factor(unit)?;
        if bytes.fract() != 0.0 || bytes > MAX_NUMBER {
            return Err(Complaint::about(text, "is not a whole number of bytes below 1 TB", "write a whole number"));
        }
        Ok(Bytes(bytes as u64))
    }
}

impl FromText for Count {
    const EXPECTED: &'static str = "a whole number of at least 1";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text.parse::<u32>() {
            Ok(count) if count > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(Count(count)),
            _ => Err(Complaint::new(
                format!("{} is not a whole number from 1 to {}", quoted(text), u32::MAX),
                "write one, in digits alone",
            )),
        }
    }
}

impl FromText for Whole {
    const EXPECTED: &'static str = "a whole number";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text.parse::<u32>() {
            Ok(number) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(Whole(number)),
            _ => Err(Complaint::new(
                format!("{} is not a whole number from 0 to {}", quoted(text), u32::MAX),
                "write one, in digits alone",
            )),
        }
    }
}

impl FromText for Amount {
    const EXPECTED: &'static str = "a number such as `2` or `0.5`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match number_and_unit(text)? {
            (number, "") => Ok(Amount(number)),
            (_, unit) => Err(Complaint::about(unit, "does not belong after this number", "write the number alone")),
        }
    }
}

impl FromText for Speed {
    const EXPECTED: &'static str = Amount::EXPECTED;

    fn from_text(text: &str) -> Result<Self, Complaint> {
        Amount::from_text(text).map(|Amount(speed)| Speed(speed))
    }
}

impl FromText for Name {
    const EXPECTED: &'static str = "a name";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let rest = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if text.len() > MAX_NAME {
            let hint = format!("write at most {MAX_NAME}");
            return Err(Complaint::new(format!("this name has {} bytes", text.len()), hint));
        }
        if !first || !rest {
            let hint = "use letters, digits, `-`, `_` and `.`, a letter or digit first";
            return Err(Complaint::about(text, "is not a valid name", hint));
        }
        Ok(Name(text.to_owned()))
    }
}

impl FromText for Answer {
    const EXPECTED: &'static str = "`true` or `false`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text {
            "true" => Ok(Answer(true)),
            "false" => Ok(Answer(false)),
            _ => Err(Complaint::about(text, "is no answer", "write `true` or `false`")),
        }
    }
}

impl FromText for Text {
    const EXPECTED: &'static str = "a text";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        Ok(Text(text.to_owned()))
    }
}

/// The JSON Schema of types that are written as text, or as a number without a unit where that is allowed.
#[macro_export]
macro_rules! text_schema {
    ($($Name:ident: $schema:tt;)+) => {
        $( impl schemars::JsonSchema for $Name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        } )+
    };
}
text_schema! {
    Span: { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *(us|µs|ms|s|min|h)$", "examples": ["400ms", "2s", "5min"] };
    Moment: { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *(us|µs|ms|s|min|h)$", "examples": ["0s", "120s", "5min"] };
    Frequency: { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? */ *(s|min|h)$", "examples": ["800/s", "0/s"] };
    Rate: { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? */ *(s|min|h)$", "examples": ["800/s", "60/min"] };
    Share: { "anyOf": [
        { "type": "number", "minimum": 0, "maximum": 1 },
        { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *%$" },
    ], "examples": [0.34, "34%"] };
    Bytes: { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *(B|KiB|MiB|GiB)$", "examples": ["64KiB", "1MiB"] };
    Count: { "type": "integer", "minimum": 1, "maximum": 4_294_967_295u32 };
    Whole: { "type": "integer", "minimum": 0, "maximum": 4_294_967_295u32 };
    Amount: { "type": "number", "minimum": 0 };
    Speed: { "type": "number", "exclusiveMinimum": 0 };
    Name: { "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": 64 };
    Answer: { "type": "boolean" };
    Text: { "type": ["string", "number", "boolean"] };
}

/// Formats a duration for messages: `41 ms`, `1.5 s`, `5 min`.
pub fn span_text(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let (number, unit) = match seconds {
        s if s >= 120.0 => (s / 60.0, "min"),
        s if s >= 1.0 || s == 0.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "µs"),
    };
    format!("{} {unit}", number_text(number))
}

/// Formats a number with three significant digits, or all digits before the decimal point.
pub fn number_text(number: f64) -> String {
    let digits = match number.abs() {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{number:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong<T: FromText>(text: &str) -> String {
        match T::from_text(text) {
            Ok(_) => panic!("{text} was accepted"),
            Err(Complaint { what, hint }) => format!("{what}; {hint}"),
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [("400ms", 400.0), ("2s", 2_000.0), ("1.5 s", 1_500.0), ("0.1ms", 0.1), ("5min", 300_000.0)] {
            assert_eq!(Span::from_text(text).unwrap().0, Duration::from_nanos((ms * 1e6) as u64), "{text}");
        }
        assert_eq!(Span::from_text("250us").unwrap().0, Duration::from_micros(250));
        assert_eq!(Span::from_text("1h").unwrap().0, Duration::from_secs(3_600));
        assert_eq!(wrong::<Span>("400"), "`400` has no unit; write `400ms` or `400s`");
        assert_eq!(wrong::<Span>("5m"), "`5m` may mean two things; write `5min` for minutes or `5ms` for milliseconds");
        assert_eq!(wrong::<Span>("0s"), "`0s` is no time at all; write more than zero");
        for text in ["", "s", "-1s", "1e3s", "infs", "nan", ".5s", "5.s", "1..5s", "4sec", "400d", "9999999h"] {
            wrong::<Span>(text);
        }
    }

    #[test]
    fn rates() {
        for (text, per_second) in [("800/s", 800.0), ("60/min", 1.0), ("36/h", 0.01), ("0.5 / s", 0.5)] {
            assert_eq!(Rate::from_text(text).unwrap().0, per_second, "{text}");
        }
        assert_eq!(wrong::<Rate>("800"), "`800` has no unit; write `800/s` or `800/min`");
        for text in ["0/s", "800/m", "800rps", "-1/s", "inf/s", "800/ s s"] {
            wrong::<Rate>(text);
        }
        assert_eq!(Frequency::from_text("0/s").unwrap().0, 0.0);
        assert_eq!(Moment::from_text("0s").unwrap().0, Duration::ZERO);
        wrong::<Moment>("0");
    }

    #[test]
    fn shares_and_sizes() {
        assert_eq!(Share::from_text("34%").unwrap().0, 0.34);
        assert_eq!(Share::from_text("1").unwrap().0, 1.0);
        assert_eq!(wrong::<Share>("34"), "`34` is more than 100 %; write a share from 0 to 1, or `34%`");
        wrong::<Share>("101%");
        assert_eq!(Bytes::from_text("64KiB").unwrap().0, 65_536);
        assert_eq!(Bytes::from_text("1.5MiB").unwrap().0, 1_572_864);
        for text in ["64", "64KB", "0.3B", "99999999GiB"] {
            wrong::<Bytes>(text);
        }
    }

    #[test]
    fn counts_and_names() {
        assert_eq!(Count::from_text("4294967295").unwrap().0, u32::MAX);
        for text in ["0", "-1", "1.5", "4294967296", "+5", "ten", ""] {
            wrong::<Count>(text);
        }
        assert_eq!(Amount::from_text("0.5").unwrap().0, 0.5);
        wrong::<Amount>("0.5s");
        assert_eq!(Whole::from_text("0").unwrap().0, 0);
        for text in ["", "-1", "0.5", "+1", "4294967296"] {
            wrong::<Whole>(text);
        }
        assert_eq!(Name::from_text("web-1.a_b").unwrap().0, "web-1.a_b");
        for text in ["", "a/b", ".a", "a b", "é", &"x".repeat(65)] {
            wrong::<Name>(text);
        }
    }

    #[test]
    fn figures_for_people() {
        for (micros, text) in
            [(41_000, "41 ms"), (1_500_000, "1.5 s"), (300_000_000, "5 min"), (12, "12 µs"), (0, "0 s")]
        {
            assert_eq!(span_text(Duration::from_micros(micros)), text);
        }
        for (number, text) in [(0.0, "0"), (12.34, "12.3"), (1234.5, "1234"), (0.126, "0.13"), (100.0, "100")] {
            assert_eq!(number_text(number), text);
        }
    }
}
