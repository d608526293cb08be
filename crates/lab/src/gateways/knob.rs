//! Knobs: the figures of an approach that have no obvious value, and what may be written for them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A figure of an approach that can be set, as in `haproxy-tuned:maxconn=4`.
#[derive(Debug)]
pub struct Knob {
    /// What it is called.
    pub name: &'static str,
    /// What it is unless set.
    pub default: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Refuses what cannot be its value.
    pub(super) check: fn(&str) -> Result<(), String>,
}

/// For [`Knob::check`]: what is no `T` is refused in `T`'s words.
pub(super) fn is<T: FromStr<Err = String>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(|_| ())
}

/// What a class without a guarantee may have in a server of a peer with bounds for each class.
pub(super) const REST: Knob = Knob {
    name: "rest",
    default: "1",
    about: "most requests of a class without a guarantee in a server: a number, workers, or off",
    check: is_rest,
};

/// For [`Knob::check`] of the places of a class without a guarantee, which has no load that could be multiplied.
fn is_rest(text: &str) -> Result<(), String> {
    match text.parse() {
        Ok(Slots::Times(_)) | Err(_) => Err("write a number such as 1, workers, or off".to_owned()),
        Ok(_) => Ok(()),
    }
}

/// How many requests: `4`, `2x` (so many times what the guarantees take by Little's law), `workers`, or `off`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slots {
    /// So many.
    Count(u32),
    /// A multiple, > 0, of the slots that are taken at the guaranteed rates.
    Times(f64),
    /// As many as the servers work on at once; their operator has configured it.
    Workers,
    /// No bound.
    Off,
}

/// Most slots that are taken seriously: HAProxy and nginx count connections in 16 to 32 bits, and no server of
/// ours has more places than this.
const MOST_SLOTS: u32 = 65_535;

/// Largest multiple or share that is taken seriously.
const MOST_TIMES: f64 = 1000.0;

impl FromStr for Slots {
    type Err = String;

    fn from_str(text: &str) -> Result<Slots, String> {
        let sound = |times: &f64| *times > 0.0 && *times <= MOST_TIMES;
        let slots = match text.strip_suffix('x') {
            Some(times) => times.parse().ok().filter(sound).map(Slots::Times),
            None if text == "off" => Some(Slots::Off),
            None if text == "workers" => Some(Slots::Workers),
            None => text.parse().ok().filter(|count| (1..=MOST_SLOTS).contains(count)).map(Slots::Count),
        };
        slots.ok_or_else(|| {
            "write a number such as 4, a multiple of the guaranteed load such as 2x, workers, or off".into()
        })
    }
}

impl Slots {
    /// The bound where the guaranteed load takes `base` slots and servers have so many `workers`; `None` is no bound.
    ///
    /// # Errors
    /// A multiple of an unknown base.
    pub(super) fn of(self, base: Option<f64>, workers: Option<u32>) -> Result<Option<u32>, &'static str> {
        match (self, base) {
            (Slots::Off, _) => Ok(None),
            (Slots::Workers, _) => Ok(workers),
            (Slots::Count(count), _) => Ok(Some(count)),
            // Half a request is none: rounded up.
            (Slots::Times(times), Some(base)) => {
                Ok(Some((times * base).ceil().clamp(1.0, f64::from(MOST_SLOTS)) as u32))
            }
            (Slots::Times(_), None) => Err("a multiple needs `service_time` of every class with a floor, or \
                                            `capacity` of every node; write a number, such as 4, or `workers`"),
        }
    }
}

/// A share or a factor: `50%`, > 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(
    /// 1 is 100 %.
    pub f64,
);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let share = text.strip_suffix('%').and_then(|n| n.parse::<f64>().ok()).map(|percent| percent / 100.0);
        let sound = share.filter(|share| *share > 0.0 && *share <= MOST_TIMES);
        sound.map(Share).ok_or_else(|| "write a percentage above 0, such as 50%".into())
    }
}

/// A length of time: `500ms`, `5s`, above 0 and at most an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(
    /// The time.
    pub Duration,
);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        // "ms" ends in "s" as well.
        let number = |unit: &str, scale: f64| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * scale);
        let seconds = number("ms", 1e-3).or_else(|| number("s", 1.0)).filter(|s| (1e-3..=3600.0).contains(s));
        let seconds = seconds.ok_or_else(|| "write a time with its unit, such as 500ms or 5s".to_owned())?;
        Ok(Span(Duration::from_secs_f64(seconds)))
    }
}

/// A time as HAProxy, nginx and people write it, in whole milliseconds.
pub(super) struct Millis(pub(super) Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is shorter than a millisecond would be no time, which means "for ever" to some of them.
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
