//! What a load leaves behind.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use weirgate_emulator::client::connections::Ending;
use weirgate_emulator::client::digits;
use weirgate_emulator::station::Demand;
use weirgate_experiment::{Experiment, Fate, Page, Record, TrafficClass};

use super::Counts;

/// Everything that was sent, and what became of it.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Every attempt, in order of its intended instant: see [`record`] for what a record means here.
    pub records: Vec<Record>,
    /// Every page, in order of arrival.
    pub pages: Vec<Page>,
    /// Per record its id, as sent in `X-Request-Id`.
    pub ids: Vec<Id>,
    /// Per traffic of the experiment.
    pub traffic: Vec<StreamSent>,
    /// How late after their intended instants attempts were begun, in microseconds: the error of the generator. It is
    /// part of every response time.
    pub lateness: Histogram<u32>,
    /// Per class of the policy, then per template, and per phase of the experiment: response times of the attempts
    /// sent in it that were served, in microseconds.
    pub histograms: Vec<Vec<Histogram<u32>>>,
    /// Why sending ended.
    pub ended: Ended,
    /// How long it took.
    pub elapsed: Duration,
}

/// What one traffic got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSent {
    /// What came back, and how often. Attempts that left or were cut are not in it.
    pub answers: BTreeMap<Answer, u64>,
    /// Connections opened over all.
    pub connections: u64,
    /// Attempts that had to wait for a connection of the load's own.
    pub delayed: u64,
}

/// What came back for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// A reply with `X-Node`.
    Node(u16),
    /// A reply without: from the gateway, or from a service that does not sign.
    Unsigned(u16),
    /// No connection could be made.
    NoConnection,
    /// The connection ended before the reply did.
    Reset,
    /// What came is not HTTP.
    Garbled,
}

/// Why sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The experiment was over.
    Schedule,
    /// Someone asked for it.
    Asked,
    /// The plan's number of attempts was reached.
    Count,
}

/// The id of an attempt: attempt number `number` of a traffic. Written `2-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Index into [`Experiment::traffic`].
    pub traffic: u32,
    /// Counts from 0.
    pub number: u32,
}

impl Id {
    /// Appends it as it is written.
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

/// A text that is no id.
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
    /// What this ending is.
    pub(super) fn of(ending: Ending) -> Answer {
        match ending {
            Ending::Reply(reply) if reply.from_node => Answer::Node(reply.status),
            Ending::Reply(reply) => Answer::Unsigned(reply.status),
            Ending::NoConnection => Answer::NoConnection,
            Ending::Reset => Answer::Reset,
            Ending::Garbled => Answer::Garbled,
        }
    }

    /// What became of the attempt. `signed`: the service's nodes sign their replies.
    ///
    /// Served is a reply below 500 from a node. 429 and 503 that no node signed are the gateway's shed. Everything
    /// else has failed: a node's 5xx, a gateway's 4xx or 502, a connection that ended. Where nodes do not sign, every
    /// status below 500 but 429 is served.
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

/// The record of an attempt that is being sent.
///
/// `arrived` is the intended instant, `ended` the last byte's at the client (or when it failed, left or was cut).
/// `demand` is what was drawn. `released` is what a client can know: 0 while no node has answered. An emulated node
/// says how long the request was inside it: so long before `ended` it was released at the latest. Of other nodes'
/// replies it is `arrived` (1 at the very start), as waiting and serving look the same from here; a lower bound.
#[must_use]
pub fn record(traffic: u32, arrived: u64, demand: Demand) -> Record {
    let seconds = |nanos: u64| (nanos as f64 / 1e9) as f32;
    Record {
        traffic,
        fate: Fate::Cut,
        arrived,
        released: 0,
        ended: arrived,
        cpu: seconds(demand.cpu),
        io: seconds(demand.io.saturating_add(demand.stream)),
        disk: seconds(demand.disk),
        link: seconds(demand.link),
        page: None,
    }
}

/// What the load counts while it runs, for whoever looks from another thread.
#[derive(Debug, Default)]
pub(super) struct Books {
    sent: AtomicU64,
    /// Per fate.
    fates: [AtomicU64; 5],
}

impl Books {
    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, fate: Fate) {
        self.fates[fate as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        let of = |fate: Fate| self.fates[fate as usize].load(Ordering::Relaxed);
        let (served, shed, failed, left) = (of(Fate::Served), of(Fate::Shed), of(Fate::Failed), of(Fate::Left));
        // What is begun is read last: no end is counted without its beginning.
        Counts { sent: self.sent.load(Ordering::Relaxed), served, shed, failed, left }
    }
}

/// Longest time that is told apart from longer ones: an hour, more than anybody waits.
const LONGEST: Duration = Duration::from_secs(3600);

/// A histogram of microseconds, three digits exact.
pub(crate) fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, LONGEST.as_micros() as u64, 3).expect("constant bounds are valid")
}

/// Response times of what was served, per class or template and phase.
pub(super) fn histograms(experiment: &Experiment, records: &[Record]) -> Vec<Vec<Histogram<u32>>> {
    let policy = &experiment.site.policy;
    let row = || experiment.phases.iter().map(|_| histogram()).collect();
    let mut table: Vec<Vec<_>> = (0..policy.classes.len() + policy.templates.len()).map(|_| row()).collect();
    for record in records.iter().filter(|record| record.fate == Fate::Served) {
        let whose = match experiment.traffic[record.traffic as usize].class {
            TrafficClass::Class(class) => class,
            TrafficClass::Template { template, .. } => policy.classes.len() + template,
        };
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
        // Emulated nodes log 64 bytes of an id.
        assert!(id.to_string().len() <= 64);
        assert_eq!("7".parse::<Id>(), Err(NoId));
        assert_eq!("7-x".parse::<Id>(), Err(NoId));
    }

    #[test]
    fn fates_follow_from_who_answered_what() {
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
