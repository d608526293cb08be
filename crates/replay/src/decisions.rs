//! Requests of a log that two policies treat differently: another class, another upstream, another decision.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use weirgate_clock::rfc3339;
use weirgate_experiment::{Fate, Run};
use weirgate_wire::access_log::LoggedRequest;

use crate::build::Recording;
use crate::side::{Assigned, Side};

/// Examples that are kept of each difference. Three show whether they have something in common.
const MAX_EXAMPLES: usize = 3;

/// Longest example, in characters, so that it fits a line.
const MAX_EXAMPLE: usize = 100;

/// Requests that change from one class or upstream to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Move {
    /// Class under the older policy.
    pub old_class: String,
    /// Its upstream.
    pub old_upstream: String,
    /// Class under the newer policy.
    pub new_class: String,
    /// Its upstream.
    pub new_upstream: String,
    /// Number of requests.
    pub requests: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

/// Requests with another decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Class under the newer policy.
    pub class: String,
    /// What the older policy does with them: `served`, `shed`, `failed`, `left`, `unfinished`.
    pub old: &'static str,
    /// What the newer policy does with them.
    pub new: &'static str,
    /// Number of requests.
    pub requests: u64,
    /// Arrivals of some of them, RFC 3339.
    pub examples: Vec<String>,
}

/// Requests that change their class or upstream, counted while a log is read.
#[derive(Debug, Default)]
pub struct Moves {
    all: BTreeMap<(u32, u32), (f64, Vec<String>)>,
}

impl Moves {
    /// Notes a request that stands for `copies` requests.
    pub fn note(&mut self, sides: &[Side; 2], [old, new]: [Assigned; 2], line: &LoggedRequest<'_>, copies: f32) {
        let [before, after] = [sides[0].spec(old.spec), sides[1].spec(new.spec)];
        if before == after {
            return;
        }
        let (count, examples) = self.all.entry((old.spec, new.spec)).or_default();
        *count += f64::from(copies);
        if examples.len() < MAX_EXAMPLES {
            let [method, host, path, client] =
                [&line.method, &line.host, &line.path, &line.client].map(|field| field.as_deref().unwrap_or_default());
            let text = format!("{method} {host}{path} from {client}");
            examples.push(text.chars().filter(|c| !c.is_control()).take(MAX_EXAMPLE).collect());
        }
    }

    /// Returns the differences, the most frequent first.
    #[must_use]
    pub fn finish(self, [old, new]: &[Side; 2]) -> Vec<Move> {
        let one = |((from, to), (count, examples)): ((u32, u32), (f64, Vec<String>))| {
            let ((old_class, old_upstream), (new_class, new_upstream)) = (old.spec(from), new.spec(to));
            Move {
                old_class: old_class.to_owned(),
                old_upstream: old_upstream.to_owned(),
                new_class: new_class.to_owned(),
                new_upstream: new_upstream.to_owned(),
                requests: count.round() as u64,
                examples,
            }
        };
        let mut all: Vec<Move> = self.all.into_iter().map(one).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.requests));
        all
    }
}

/// Returns what became of each arrival of a recording in a run of its experiment under these classes.
pub fn fates(recording: &Recording, assigned: &[Assigned], run: &Run) -> Vec<Fate> {
    let stream_of = |number: u32| (assigned[number as usize].spec, assigned[number as usize].route);
    // Streams are in the order of class and route, and each has its requests in order of arrival.
    let mut streams: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    for (index, (_, number)) in recording.arrivals.iter().enumerate() {
        streams.entry(stream_of(*number)).or_default().push(index);
    }
    let mut streams: Vec<std::vec::IntoIter<usize>> = streams.into_values().map(Vec::into_iter).collect();
    let mut fates = vec![Fate::Cut; recording.arrivals.len()];
    for record in &run.records {
        // Clients of a replay do not retry, so a request is one record.
        if let Some(index) = streams.get_mut(record.traffic as usize).and_then(Iterator::next) {
            fates[index] = record.fate;
        }
    }
    fates
}

fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Served => "served",
        Fate::Shed => "shed",
        Fate::Failed => "failed",
        Fate::Left => "left",
        Fate::Cut => "unfinished",
    }
}

/// Returns the arrivals with another fate under the newer policy, by class and decision, the most frequent first.
pub fn decisions(recording: &Recording, new: &Side, assigned: &[Assigned], fates: &[Vec<Fate>; 2]) -> Vec<Decision> {
    let first = recording.requests.span().map_or(0, |(first, _)| first);
    let mut all: BTreeMap<(u32, Fate, Fate), (u64, Vec<String>)> = BTreeMap::new();
    for ((at, number), (was, is)) in recording.arrivals.iter().zip(fates[0].iter().zip(&fates[1])) {
        if was == is {
            continue;
        }
        let (count, examples) = all.entry((assigned[*number as usize].spec, *was, *is)).or_default();
        *count += 1;
        if examples.len() < MAX_EXAMPLES {
            examples.push(rfc3339(UNIX_EPOCH + Duration::from_nanos(first) + *at));
        }
    }
    let one = |((spec, was, is), (requests, examples)): ((u32, Fate, Fate), (u64, Vec<String>))| Decision {
        class: new.spec_name(spec as usize).to_owned(),
        old: word(was),
        new: word(is),
        requests,
        examples,
    };
    let mut all: Vec<Decision> = all.into_iter().map(one).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.requests));
    all
}
