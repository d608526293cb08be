//! Knobs: the parameters of an approach without an obvious value, and the syntax of their values.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A parameter of an approach that you can set, as in `haproxy-tuned:maxconn=4`.
#[derive(Debug)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// Its value unless set.
    pub default: &'static str,
    /// Its effect, in one line.
    pub about: &'static str,
    /// Rejects invalid values.
    pub(super) check: fn(&str) -> Result<(), String>,
}

/// For [`Knob::check`]: rejects a text that is no `T`, with the parser's message.
pub(super) fn is<T: FromStr<Err = String>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(|_| ())
}

/// Slots of a class without a guarantee in each server of a peer that has bounds per class.
pub(super) const REST: Knob = Knob {
    name: "rest",
    default: "1",
    about: "maximum number of requests of a class without a guarantee in a server: a number, workers, or off",
    check: is_rest,
};

/// For [`Knob::check`] of [`REST`]: a class without a guarantee has no load to multiply.
fn is_rest(text: &str) -> Result<(), String> {
    match text.parse() {
        Ok(Slots::Times(_)) | Err(_) => Err("write a number such as 1, workers, or off".to_owned()),
        Ok(_) => Ok(()),
    }
}

/// Limit on the requests of one client address.
pub(super) const SOURCE: Knob = Knob {
    name: "source",
    default: "off",
    about: "requests per second of one client address, beyond which they are refused, or off. Ten seconds' worth may \
            come at once",
    check: is::<PerSource>,
};

/// Requests per second of one client address: `2` or `0.5`. `off` is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerSource(
    /// Above 0. `None` is no limit.
    pub Option<f64>,
);

impl PerSource {
    /// Time over which the rate is an average. People open several pages at once, and then read them.
    pub(super) const WINDOW: Duration = Duration::from_secs(10);

    /// Returns the number of requests that may come within [`PerSource::WINDOW`], at least one.
    pub(super) fn burst(rate: f64) -> u32 {
        (rate * PerSource::WINDOW.as_secs_f64()).round().max(1.0) as u32
    }
}

impl FromStr for PerSource {
    type Err = String;

    fn from_str(text: &str) -> Result<PerSource, String> {
        let sound = |rate: &f64| *rate > 0.0 && *rate <= f64::from(MAX_SLOTS);
        match text.parse().ok().filter(sound) {
            Some(rate) => Ok(PerSource(Some(rate))),
            None if text == "off" => Ok(PerSource(None)),
            None => Err("write requests per second, such as 2 or 0.5, or off".to_owned()),
        }
    }
}

/// A number of requests: `4`, `2x` (a multiple of the slots that the guarantees need by Little's law),
/// `workers`, or `off`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slots {
    /// This number.
    Count(u32),
    /// A multiple, above 0, of the slots in use at the guaranteed rates.
    Times(f64),
    /// The number of requests that the servers work on at once, as configured by their operator.
    Workers,
    /// No bound.
    Off,
}

/// Largest accepted number of slots. HAProxy and nginx count connections in 16 to 32 bits, and no server in
/// the lab has more slots than this.
const MAX_SLOTS: u32 = 65_535;

/// Largest accepted multiple or share.
const MAX_TIMES: f64 = 1000.0;

impl FromStr for Slots {
    type Err = String;

    fn from_str(text: &str) -> Result<Slots, String> {
        let sound = |times: &f64| *times > 0.0 && *times <= MAX_TIMES;
        let slots = match text.strip_suffix('x') {
            Some(times) => times.parse().ok().filter(sound).map(Slots::Times),
            None if text == "off" => Some(Slots::Off),
            None if text == "workers" => Some(Slots::Workers),
            None => text.parse().ok().filter(|count| (1..=MAX_SLOTS).contains(count)).map(Slots::Count),
        };
        slots.ok_or_else(|| {
            "write a number such as 4, a multiple of the guaranteed load such as 2x, workers, or off".into()
        })
    }
}

impl Slots {
    /// Returns the bound if the guaranteed load needs `base` slots and the servers have `workers` workers.
    /// `None` is no bound.
    ///
    /// # Errors
    /// A multiple of an unknown base.
    pub(super) fn of(self, base: Option<f64>, workers: Option<u32>) -> Result<Option<u32>, &'static str> {
        match (self, base) {
            (Slots::Off, _) => Ok(None),
            (Slots::Workers, _) => Ok(workers),
            (Slots::Count(count), _) => Ok(Some(count)),
            // Rounded up, because a fraction of a slot serves no request.
            (Slots::Times(times), Some(base)) => {
                Ok(Some((times * base).ceil().clamp(1.0, f64::from(MAX_SLOTS)) as u32))
            }
            (Slots::Times(_), None) => Err("a multiple needs `service_time` of every class with a floor, or \
                                            `capacity` of every node; write a number, such as 4, or `workers`"),
        }
    }
}

/// A share or a factor above 0, such as `50%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(
    /// 1 means 100 %.
    pub f64,
);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let share = text.strip_suffix('%').and_then(|n| n.parse::<f64>().ok()).map(|percent| percent / 100.0);
        let sound = share.filter(|share| *share > 0.0 && *share <= MAX_TIMES);
        sound.map(Share).ok_or_else(|| "write a percentage above 0, such as 50%".into())
    }
}

/// A duration such as `500ms` or `5s`, from 1 ms to one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(
    /// The time.
    pub Duration,
);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        // "ms" also ends in "s".
        let number = |unit: &str, scale: f64| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * scale);
        let seconds = number("ms", 1e-3).or_else(|| number("s", 1.0)).filter(|s| (1e-3..=3600.0).contains(s));
        let seconds = seconds.ok_or_else(|| "write a time with its unit, such as 500ms or 5s".to_owned())?;
        Ok(Span(Duration::from_secs_f64(seconds)))
    }
}

/// A time in whole milliseconds, in the notation of HAProxy and nginx.
pub(super) struct Millis(pub(super) Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A time below one millisecond would print as 0, which some of them read as unlimited.
        write!(f, "{}ms", self.0.as_millis().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counts_multiples_or_none() {
        assert_eq!("4".parse(), Ok(Slots::Count(4)));
        assert_eq!("1.5x".parse(), Ok(Slots::Times(1.5)));
        assert_eq!("off".parse(), Ok(Slots::Off));
        assert_eq!("workers".parse(), Ok(Slots::Workers));
        for bad in ["", "0", "-1", "4.5", "x", "0x", "-2x", "nanx", "infx", "70000"] {
            assert!(bad.parse::<Slots>().is_err(), "{bad}");
        }
        assert_eq!(Slots::Times(2.0).of(Some(1.8), None), Ok(Some(4)));
        assert_eq!(Slots::Times(2.0).of(Some(0.0), None), Ok(Some(1)));
        assert_eq!(Slots::Count(3).of(None, Some(8)), Ok(Some(3)));
        assert_eq!(Slots::Off.of(None, Some(8)), Ok(None));
        assert_eq!(Slots::Workers.of(Some(1.8), Some(8)), Ok(Some(8)));
        assert_eq!(Slots::Workers.of(Some(1.8), None), Ok(None));
        assert!(Slots::Times(2.0).of(None, Some(8)).is_err_and(|why| why.contains("service_time")));
    }

    #[test]
    fn shares_and_times_have_units() {
        assert_eq!("50%".parse(), Ok(Share(0.5)));
        assert_eq!("250%".parse(), Ok(Share(2.5)));
        assert_eq!("500ms".parse(), Ok(Span(Duration::from_millis(500))));
        assert_eq!("1.5s".parse(), Ok(Span(Duration::from_millis(1500))));
        for bad in ["", "%", "0%", "50", "nan%", "-1%"] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
        for bad in ["", "5", "0s", "-1s", "2h", "nans"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        assert_eq!(Millis(Duration::from_micros(10)).to_string(), "1ms");
    }
}
