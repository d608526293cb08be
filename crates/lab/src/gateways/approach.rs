//! Approaches: the ways of keeping guarantees that the lab compares, each with a name and its knobs.
//!
//! You write an approach as `NAME` or `NAME:knob=value,knob=value`. To add one, write a [`Kind`] in a
//! module of its own and add it to [`KINDS`].

use std::fmt;
use std::str::FromStr;

use weirgate_experiment::Reload;

use super::{Gateway, Knob, Setting, envoy, haproxy, nginx, weirgate};
use crate::programs::Program;

/// Every approach in the order of listings: Weirgate's own first, then the paper's.
const KINDS: &[&Kind] = &[
    &weirgate::WEIRGATE,
    &weirgate::QUORUM,
    &weirgate::NONE,
    &weirgate::SEDA,
    &weirgate::SWITCH_ADM,
    &weirgate::STATIC_PART,
    &weirgate::DYNAMIC_PART,
    &weirgate::MQOS,
    &weirgate::MQOS_DRFQ,
    &weirgate::SQOS,
    &haproxy::LEASTCONN,
    &haproxy::PARTITION,
    &haproxy::TUNED,
    &haproxy::CLASSES,
    &nginx::NGINX,
    &envoy::ADAPTIVE,
    &envoy::CLASSES,
    &envoy::ADMISSION,
];

/// A kind of approach, independent of the values of its knobs.
#[derive(Debug)]
pub struct Kind {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The program that it runs. `None` means Weirgate.
    pub program: Option<Program>,
    /// Its knobs.
    pub knobs: &'static [Knob],
    /// Settings to try in addition to the defaults, each written as after the colon. For each knob that the
    /// manual leaves to the operator they include a smaller and a larger value.
    pub sweep: &'static [&'static str],
    pub(super) start: Start,
}

/// Starts an approach with a setting and waits until it serves.
type Start = fn(&Setting<'_>, &Approach) -> Result<Gateway, String>;

/// A kind with its knobs set.
#[derive(Clone, Debug)]
pub struct Approach {
    kind: &'static Kind,
    /// The knobs that were set, in the order of the kind's knobs.
    given: Vec<(&'static str, String)>,
}

impl Approach {
    /// Returns every kind, in the order of listings.
    pub fn all() -> &'static [&'static Kind] {
        KINDS
    }

    /// Parses `NAME[:knob=value,...]`.
    ///
    /// # Errors
    /// The name or knob is unknown, a knob is set twice, or its value is invalid. The error lists the valid choices.
    pub fn parse(text: &str) -> Result<Approach, String> {
        let (name, knobs) = text.split_once(':').unwrap_or((text, ""));
        let kind = KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            format!("there is no approach `{name}`; write one of {}", names.join(", "))
        })?;
        kind.with(knobs)
    }

    /// Returns its kind.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Returns the approaches of this kind that are worth a trial, the defaults first.
    ///
    /// # Errors
    /// None in practice: the tests check every setting.
    pub fn sweep(&self) -> Result<Vec<Approach>, String> {
        std::iter::once("").chain(self.kind.sweep.iter().copied()).map(|knobs| self.kind.with(knobs)).collect()
    }

    /// Starts the approach with `setting` and waits until it serves.
    ///
    /// # Errors
    /// Its program is not installed, this policy cannot be expressed in its configuration, it rejects its
    /// configuration, or it does not come up. The error quotes the program's own message.
    pub fn start(&self, setting: &Setting<'_>) -> Result<Gateway, String> {
        let other = setting.experiment.reloads.first().filter(|_| !self.kind.is_ours());
        let started =
            other.map_or_else(|| (self.kind.start)(setting, self), |reload| Err(loads_no_other(setting, reload)));
        started.map_err(|why| format!("{self}: {why}"))
    }

    pub(super) fn knob<T: FromStr<Err: fmt::Display>>(&self, name: &str) -> Result<T, String> {
        let given = self.given.iter().find(|(knob, _)| *knob == name).map(|(_, value)| value.as_str());
        let default = || self.kind.knobs.iter().find(|knob| knob.name == name).map(|knob| knob.default);
        let value = given.or_else(default).ok_or_else(|| format!("it has no knob `{name}`"))?;
        value.parse().map_err(|why: T::Err| format!("{name}={value}: {why}"))
    }
}

/// Returns why a peer cannot play an experiment that loads another policy.
fn loads_no_other(setting: &Setting<'_>, reload: &Reload) -> String {
    let file = setting.source.map(|source| source.file.display().to_string());
    let file = file.unwrap_or_else(|| setting.experiment.name.clone());
    let (line, column, at) = (reload.position.line, reload.position.column, reload.at.as_secs_f64());
    format!(
        "{file}:{line}:{column}: another policy is loaded at {at} s, but the configuration of a peer is made before \
         it starts; play it with Weirgate's own approaches, or leave `policy:` out to load the same policy again"
    )
}

impl fmt::Display for Approach {
    /// Writes the approach in its text form, with the knobs that were set in the order of its kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)?;
        for (place, (knob, value)) in self.given.iter().enumerate() {
            write!(f, "{}{knob}={value}", if place == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl Kind {
    /// Returns whether this is one of Weirgate's own approaches.
    pub fn is_ours(&self) -> bool {
        self.program.is_none()
    }

    /// Checks that the approach can be started on this machine.
    ///
    /// # Errors
    /// Its program is not installed. The error names the command that installs it.
    pub fn installed(&self) -> Result<(), String> {
        self.program.map_or(Ok(()), |program| program.find().map(drop))
    }

    /// Returns this kind with `knobs`, written as after the colon.
    fn with(&'static self, knobs: &str) -> Result<Approach, String> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for setting in knobs.split(',').filter(|setting| !setting.is_empty()) {
            let name = self.name;
            let Some((key, value)) = setting.split_once('=') else {
                return Err(format!("{name}: `{setting}` sets nothing; write knob=value"));
            };
            let Some(knob) = self.knobs.iter().find(|knob| knob.name == key) else {
                let names: Vec<&str> = self.knobs.iter().map(|knob| knob.name).collect();
                return Err(format!("{name}: there is no knob `{key}`; write one of {}", names.join(", ")));
            };
            if given.iter().any(|(other, _)| *other == knob.name) {
                return Err(format!("{name}: `{key}` is set twice; keep one"));
            }
            (knob.check)(value).map_err(|why| format!("{name}: {key}={value}: {why}"))?;
            given.push((knob.name, value.to_owned()));
        }
        given.sort_by_key(|(name, _)| self.knobs.iter().position(|knob| knob.name == *name));
        Ok(Approach { kind: self, given })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::gateways::Slots;

    #[test]
    fn every_approach_is_found_by_its_name_and_its_sweep_and_defaults_can_be_set() {
        let mut names = BTreeSet::new();
        for kind in Approach::all() {
            assert!(names.insert(kind.name), "{} twice", kind.name);
            let plain = Approach::parse(kind.name).unwrap();
            assert_eq!(plain.to_string(), kind.name);
            for knob in kind.knobs {
                (knob.check)(knob.default).unwrap_or_else(|why| panic!("{}: {}: {why}", kind.name, knob.name));
                assert!((knob.check)("nonsense").is_err(), "{}: {} takes anything", kind.name, knob.name);
            }
            let sweep: BTreeSet<String> = plain.sweep().unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(sweep.len(), kind.sweep.len() + 1, "{}: a setting is swept twice", kind.name);
            for text in sweep {
                assert_eq!(Approach::parse(&text).unwrap().to_string(), text);
            }
        }
    }

    #[test]
    fn no_peer_that_is_told_the_policy_is_tuned_with_more_effort_than_another() {
        let told = Approach::all().iter().filter(|kind| !kind.is_ours());
        // Approaches that only spread load have two knobs, and neither expresses anything of the policy.
        for kind in told.filter(|kind| !["haproxy-leastconn", "partition"].contains(&kind.name)) {
            assert_eq!(kind.sweep.len(), 8, "{}", kind.name);
        }
    }

    #[test]
    fn knobs_come_in_the_order_of_the_kind_and_have_defaults() {
        let approach = Approach::parse("haproxy-tuned:queue=25%,maxconn=4").unwrap();
        assert_eq!(approach.to_string(), "haproxy-tuned:maxconn=4,queue=25%");
        assert_eq!(approach.knob::<Slots>("maxconn"), Ok(Slots::Count(4)));
        assert!(Approach::parse("haproxy-tuned").unwrap().knob::<Slots>("maxconn").is_ok());
        assert!(approach.knob::<Slots>("nothing").is_err());
    }

    #[test]
    fn what_cannot_be_understood_is_named_with_what_can() {
        for (text, words) in [
            ("haproxy", &["no approach `haproxy`", "haproxy-classes, nginx"][..]),
            ("", &["no approach ``"]),
            ("nginx:maxconn=4", &["nginx: there is no knob `maxconn`", "rate, burst"]),
            ("haproxy-tuned:maxconn", &["`maxconn` sets nothing", "knob=value"]),
            ("haproxy-tuned:maxconn=four", &["maxconn=four", "write a number"]),
            ("haproxy-tuned:maxconn=4,maxconn=5", &["set twice"]),
        ] {
            let error = Approach::parse(text).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{text}: {error}");
            }
        }
    }
}
