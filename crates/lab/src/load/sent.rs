//! The results of a load.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connections::Ending;
use super::text::digits;
use hdrhistogram::Histogram;
use weirgate_experiment::{Experiment, Fate, Page, Record};

use super::Counts;

/// All attempts of a run, with their outcomes.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Every attempt, in order of its intended instant, which is `arrived`. `ended` is the instant of the last byte at
    /// the client, or of the failure, departure or cut. `released` is 0 until a node has answered, and then holds as
    /// much as a client can know. An emulated node reports how long it had the request, and `released` is that long
    /// before `ended`, which is an upper bound. For replies of other nodes it is `arrived` (1 at the very start),
    /// because waiting and service look the same to a client. This is a lower bound.
    pub records: Vec<Record>,
    /// Every page, in order of arrival.
    pub pages: Vec<Page>,
    /// Id of each record, as sent in `X-Request-Id`.
    pub ids: Vec<Id>,
    /// Results of each traffic source of the experiment.
    pub traffic: Vec<StreamSent>,
    /// Lateness of attempts after their intended instants, in microseconds. It is the error of the
    /// generator and part of every response time.
    pub lateness: Histogram<u32>,
    /// Response times of served attempts in microseconds: a row per class of the policy, then a row per
    /// template, each with a histogram per phase of sending.
    pub histograms: Vec<Vec<Histogram<u32>>>,
    /// The reason why sending ended.
    pub ended: Ended,
    /// Duration of the sending.
    pub elapsed: Duration,
}

/// Results of one traffic source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSent {
    /// Number of attempts per answer, without attempts that left or were cut off.
    pub answers: BTreeMap<Answer, u64>,
    /// Total number of opened connections.
    pub connections: u64,
    /// Attempts that had to wait for a connection of the load generator.
    pub delayed: u64,
}

/// The answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// A reply with `X-Node`.
    Node(u16),
    /// A reply without `X-Node`, from the gateway or from a service that does not sign.
    Unsigned(u16),
    /// No connection could be made.
    NoConnection,
    /// The connection ended before the reply did.
    Reset,
    /// The reply is not HTTP.
    Garbled,
}

/// The reason why sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The experiment was over.
    Schedule,
    /// A stop was requested.
    Asked,
    /// The plan's number of attempts was reached.
    Count,
}

/// The id of an attempt: its traffic source and its number, written as `2-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Index into [`Experiment::traffic`].
    pub traffic: u32,
    /// Counts from 0.
    pub number: u32,
}

impl Id {
    /// Appends its text form.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        digits(self.traffic.into(), out);
        out.push(b'-');
        digits(self.number.into(), out);
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.traffic, self.number)
    }
}

/// The error for a text that is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoId;

impl FromStr for Id {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Id, NoId> {
        let (traffic, number) = text.split_once('-').ok_or(NoId)?;
        let part = |text: &str| text.parse().map_err(|_| NoId);
        Ok(Id { traffic: part(traffic)?, number: part(number)? })
    }
}

impl Answer {
    pub(super) fn of(ending: Ending) -> Answer {
        match ending {
            Ending::Reply(reply) if reply.from_node => Answer::Node(reply.status),
            Ending::Reply(reply) => Answer::Unsigned(reply.status),
            Ending::NoConnection => Answer::NoConnection,
            Ending::Reset => Answer::Reset,
            Ending::Garbled => Answer::Garbled,
        }
    }

    /// Returns the fate of the attempt. `signed` says whether the service's nodes sign their replies.
    ///
    /// An attempt is served if a node replies with a status below 500. An unsigned 429 or 503 is a shed by
    /// the gateway. Everything else has failed: a node's 5xx, a gateway's other 4xx or 502, a connection
    /// that ended. If nodes do not sign, every status below 500 except 429 counts as served.
    #[must_use]
    pub fn fate(self, signed: bool) -> Fate {
        match self {
            Answer::Node(..500) => Fate::Served,
            Answer::Unsigned(429 | 503) => Fate::Shed,
            Answer::Unsigned(..500) if !signed => Fate::Served,
            _ => Fate::Failed,
        }
    }
}

/// Counters of one traffic source of a running load, readable from other threads.
#[derive(Debug)]
pub(super) struct Ledger {
    sent: AtomicU64,
    /// One counter per fate.
    fates: [AtomicU64; 5],
    /// Response times of attempts served since the last call of [`Ledger::take_responses`], in microseconds.
    responses: Mutex<Histogram<u32>>,
}

impl Ledger {
    pub(super) fn new() -> Ledger {
        Ledger { sent: AtomicU64::new(0), fates: Default::default(), responses: Mutex::new(histogram()) }
    }

    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the outcome of an attempt, `nanos` after its intended instant.
    pub(super) fn ended(&self, fate: Fate, nanos: u64) {
        if fate == Fate::Served {
            self.responses().saturating_record((nanos / 1000).max(1));
        }
        self.fates[fate as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        let of = |fate: Fate| self.fates[fate as usize].load(Ordering::Relaxed);
        let (served, shed, failed, left) = (of(Fate::Served), of(Fate::Shed), of(Fate::Failed), of(Fate::Left));
        // `sent` is read last, so that no end is counted without its beginning.
        Counts { sent: self.sent.load(Ordering::Relaxed), served, shed, failed, left }
    }

    pub(super) fn take_responses(&self) -> Histogram<u32> {
        std::mem::replace(&mut self.responses(), histogram())
    }

    fn responses(&self) -> MutexGuard<'_, Histogram<u32>> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest time that a histogram distinguishes: one hour, which exceeds every patience.
const LONGEST: Duration = Duration::from_secs(3600);

/// Returns a histogram of microseconds with three exact digits.
pub(crate) fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, LONGEST.as_micros() as u64, 3).expect("constant bounds are valid")
}

/// Returns the response times of served attempts, per class or template and per phase.
pub(super) fn histograms(experiment: &Experiment, records: &[Record]) -> Vec<Vec<Histogram<u32>>> {
    let policy = &experiment.site.policy;
    let row = || experiment.phases.iter().map(|_| histogram()).collect();
    let mut table: Vec<Vec<_>> = (0..policy.classes.len() + policy.templates.len()).map(|_| row()).collect();
    for record in records.iter().filter(|record| record.fate == Fate::Served) {
        let whose = experiment.traffic[record.traffic as usize].class.index(policy);
        let arrived = Duration::from_nanos(record.arrived);
        let phase = experiment.phases.partition_point(|phase| phase.until <= arrived);
        if let Some(histogram) = table[whose].get_mut(phase) {
            histogram.saturating_record(((record.ended - record.arrived) / 1000).max(1));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = Id { traffic: 3, number: u32::MAX };
        let mut out = Vec::new();
        id.write(&mut out);
        assert_eq!(id.to_string().as_bytes(), out);
        assert_eq!(id.to_string().parse(), Ok(id));
        // Emulated nodes log up to 64 bytes of an id.
        assert!(id.to_string().len() <= 64);
        assert_eq!("7".parse::<Id>(), Err(NoId));
        assert_eq!("7-x".parse::<Id>(), Err(NoId));
    }

    #[test]
    fn fates_follow_from_the_answers_and_their_source() {
        use Answer::{Garbled, NoConnection, Node, Reset, Unsigned};
        for (answer, signed, unsigned) in [
            (Node(200), Fate::Served, Fate::Served),
            (Node(404), Fate::Served, Fate::Served),
            (Node(503), Fate::Failed, Fate::Failed),
            (Node(500), Fate::Failed, Fate::Failed),
            (Unsigned(503), Fate::Shed, Fate::Shed),
            (Unsigned(429), Fate::Shed, Fate::Shed),
            (Unsigned(502), Fate::Failed, Fate::Failed),
            (Unsigned(200), Fate::Failed, Fate::Served),
            (Unsigned(404), Fate::Failed, Fate::Served),
            (NoConnection, Fate::Failed, Fate::Failed),
            (Reset, Fate::Failed, Fate::Failed),
            (Garbled, Fate::Failed, Fate::Failed),
        ] {
            assert_eq!((answer.fate(true), answer.fate(false)), (signed, unsigned), "{answer:?}");
        }
    }
}
