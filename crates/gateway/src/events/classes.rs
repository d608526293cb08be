//! Changes of classes: refusals that begin and end, also those that there would be if an observed class were enforced,
//! guarantees that are missed and held, limits that are impossible.
//!
//! The classes of a template share one state, under its name. A change is told at once, and its end only after
//! [`QUIET`], so that a class at the edge is not told again and again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use weirgate_engine::{ClassSnapshot, ShedReason, Time};
use weirgate_spanned_yaml::unit::span_text;
use weirgate_wire::admin::{EventKind, Refusals, key_text};

use super::{QUIET, words};

/// Number of ended spans of refusals that are kept.
const KEPT: usize = 32;

/// Number of spans that are shown.
const SHOWN: usize = 20;

/// The classes of one name at one look.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Whether there is a class of this name.
    found: bool,
    offered: u64,
    shed: Shed,
    /// Requests that passed, and would have been refused.
    would_shed: Shed,
    throughput: Missing,
    response_time: Missing,
    impossible: Missing,
}

/// Refusals of the classes of one name.
#[derive(Debug, Default)]
struct Shed {
    counts: [u64; ShedReason::ALL.len()],
    /// The class with the most refusals a second, and their rate. `None` if none has ever refused a request. On the
    /// heap, because most of thousands of classes have none.
    most: Option<Box<(ClassSnapshot, f64)>>,
}

impl Shed {
    fn add(&mut self, class: &ClassSnapshot, counts: &[u64; ShedReason::ALL.len()], per_s: f64) {
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        let counts_more = self.most.as_ref().is_none_or(|most| most.1 < per_s);
        if counts_more && counts.iter().any(|count| *count > 0) {
            self.most = Some(Box::new((class.clone(), per_s)));
        }
    }
}

/// The classes to which something applies: the first one, and the number of others.
#[derive(Debug, Default)]
struct Missing {
    first: Option<Box<ClassSnapshot>>,
    others: u64,
}

impl Missing {
    fn add(&mut self, class: &ClassSnapshot) {
        match self.first {
            Some(_) => self.others += 1,
            None => self.first = Some(Box::new(class.clone())),
        }
    }

    /// Returns the name of the first class, with its key and the number of others.
    fn named(&self, class: &ClassSnapshot) -> String {
        let key = class.key.as_deref().map(key_text);
        match (key, self.others) {
            (None, _) => class.name.clone(),
            (Some(key), 0) => format!("{} (key {key})", class.name),
            (Some(key), others) => format!("{} (key {key}, and {others} more)", class.name),
        }
    }
}

/// Looks by the names of the classes. One look after the other uses the same memory, because they rest between two
/// looks, and the thread would keep what the one before has needed.
#[derive(Debug, Default)]
pub(super) struct Looks(BTreeMap<String, Look>);

impl Looks {
    /// Begins the next look, at which no class has been found yet.
    pub(super) fn begin(&mut self) {
        self.0.retain(|_, look| std::mem::take(look).found);
    }

    /// Adds a class.
    pub(super) fn add(&mut self, class: &ClassSnapshot) {
        match self.0.get_mut(&class.name) {
            Some(look) => look.add(class),
            None => self.0.entry(class.name.clone()).or_default().add(class),
        }
    }

    /// Returns the look at the classes of this name, if there are any.
    fn get(&self, name: &str) -> Option<&Look> {
        self.0.get(name).filter(|look| look.found)
    }

    fn iter(&self) -> impl Iterator<Item = (&String, &Look)> {
        self.0.iter().filter(|(_, look)| look.found)
    }
}

impl Look {
    fn add(&mut self, class: &ClassSnapshot) {
        self.found = true;
        self.offered += class.offered;
        self.shed.add(class, &class.shed, class.achieved.shed_per_s);
        self.would_shed.add(class, &class.would_shed, class.achieved.would_shed_per_s);
        if class.achieved.throughput_held == Some(false) {
            self.throughput.add(class);
        }
        if class.achieved.response_time_held == Some(false) {
            self.response_time.add(class);
        }
        if class.impossible {
            self.impossible.add(class);
        }
    }
}

/// What is known of the classes of one name.
#[derive(Debug, Default)]
struct State {
    offered: u64,
    shed: Refusing,
    /// The same of requests that passed, and would have been refused.
    would_shed: Refusing,
    /// Time of the latest look at which the guaranteed throughput was missed, until it is held again.
    throughput: Option<Time>,
    /// The same of the response time.
    response_time: Option<Time>,
    /// The limit that is impossible.
    impossible: Option<Duration>,
}

/// Refusals up to the latest look.
#[derive(Debug, Default)]
struct Refusing {
    counts: [u64; ShedReason::ALL.len()],
    /// The span that lasts.
    span: Option<Box<Span>>,
}

/// A span of time in which requests of a class were refused.
#[derive(Clone, Debug)]
struct Span {
    from: Time,
    to: Time,
    offered: u64,
    shed: [u64; ShedReason::ALL.len()],
    why: String,
}

impl Span {
    fn count(&self) -> u64 {
        self.shed.iter().sum()
    }

    /// Returns the figures of the span as a part of a sentence, with `refused` as its verb.
    fn summed(&self, refused: &str) -> String {
        let (count, lasted) = (self.count(), span_text(self.to.since(self.from).max(Duration::from_secs(1))));
        let reason = most(&self.shed).map_or("", ShedReason::as_str);
        let offered = self.offered.max(count);
        format!("{count} of {offered} {refused} within {lasted}, most of them with the reason {reason}")
    }

    fn shown(&self, class: &str, lasts: bool) -> Refusals {
        Refusals {
            class: class.to_owned(),
            from_seconds: self.from.as_secs_f64(),
            to_seconds: self.to.as_secs_f64(),
            lasts,
            count: self.count(),
            offered: self.offered,
            reason: most(&self.shed).map_or("", ShedReason::as_str).to_owned(),
            why: self.why.clone(),
        }
    }
}

/// Returns the most frequent reason.
fn most(shed: &[u64; ShedReason::ALL.len()]) -> Option<ShedReason> {
    let counted = ShedReason::ALL.into_iter().zip(shed);
    counted.filter(|(_, count)| **count > 0).max_by_key(|(_, count)| **count).map(|(reason, _)| reason)
}

/// All classes, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Classes {
    states: BTreeMap<String, State>,
    /// Spans that have ended, with the names of their classes, the latest last.
    ended: VecDeque<(String, Span)>,
    /// Whether there was a look before.
    looked: bool,
}

impl Classes {
    /// Compares `looks` with the look before, and passes the changes to `tell`.
    pub(super) fn compare(&mut self, now: Time, looks: &Looks, tell: &mut impl FnMut(EventKind, String)) {
        let (states, ended) = (&mut self.states, &mut self.ended);
        states.retain(|name, _| looks.get(name).is_some());
        for (name, look) in looks.iter() {
            let known = states.contains_key(name);
            if !known {
                states.insert(name.clone(), State::default());
            }
            let Some(state) = states.get_mut(name) else { continue };
            // Counts of the first look say nothing about now.
            if known || self.looked {
                let span = state.refusals(now, name, look, tell);
                if let Some(span) = span {
                    ended.push_back((name.clone(), span));
                    if ended.len() > KEPT {
                        ended.pop_front();
                    }
                }
            }
            state.offered = look.offered;
            (state.shed.counts, state.would_shed.counts) = (look.shed.counts, look.would_shed.counts);
            state.guarantees(now, name, look, tell);
            state.limit(name, &look.impossible, tell);
        }
        self.looked = true;
    }

    /// Returns the spans of refusals, the latest refusal first.
    pub(super) fn refusals(&self) -> Vec<Refusals> {
        let last = self.states.iter().filter_map(|(name, state)| Some(state.shed.span.as_ref()?.shown(name, true)));
        let ended = self.ended.iter().map(|(name, span)| span.shown(name, false));
        let mut all: Vec<Refusals> = last.chain(ended).collect();
        all.sort_by(|a, b| b.to_seconds.total_cmp(&a.to_seconds).then(b.count.cmp(&a.count)));
        all.truncate(SHOWN);
        all
    }
}

/// A change of refusals.
enum Change {
    /// They began, for this reason, which is also in words.
    Began(ShedReason, String),
    Ended(Box<Span>),
}

impl Refusing {
    /// Compares `shed` with the look before. `offered` requests have arrived since then.
    fn compare(&mut self, now: Time, offered: u64, shed: &Shed) -> Option<Change> {
        let mut counts = shed.counts;
        // Counts of a class that has been removed may be missing for a moment.
        counts.iter_mut().zip(self.counts).for_each(|(now, before)| *now = now.saturating_sub(before));
        if let (Some(reason), Some(most_refused)) = (most(&counts), &shed.most) {
            let begins = self.span.is_none();
            let span = self.span.get_or_insert_with(|| {
                Box::new(Span { from: now, to: now, offered: 0, shed: [0; _], why: String::new() })
            });
            span.to = now;
            span.offered += offered;
            span.shed.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            if begins || most(&span.shed) == Some(reason) {
                span.why = words::refused(reason, &most_refused.0);
            }
            return begins.then(|| Change::Began(reason, span.why.clone()));
        }
        if let Some(span) = &mut self.span
            && now.since(span.to) < QUIET
        {
            span.offered += offered;
            return None;
        }
        self.span.take().map(Change::Ended)
    }
}

impl State {
    /// Follows the refusals, and returns the span of real ones that has ended.
    fn refusals(
        &mut self,
        now: Time,
        name: &str,
        look: &Look,
        tell: &mut impl FnMut(EventKind, String),
    ) -> Option<Span> {
        let offered = look.offered.saturating_sub(self.offered);
        match self.would_shed.compare(now, offered, &look.would_shed) {
            Some(Change::Began(reason, why)) => tell(
                EventKind::WouldShedBegan,
                format!("class {name} is observed: requests pass that would be refused ({reason}): {why}"),
            ),
            Some(Change::Ended(span)) => {
                let text = format!(
                    "class {name} is observed: no request would have been refused for {}. Before, {}",
                    span_text(QUIET),
                    span.summed("would have been refused")
                );
                tell(EventKind::WouldShedEnded, text);
            }
            None => {}
        }
        match self.shed.compare(now, offered, &look.shed)? {
            Change::Began(reason, why) => {
                tell(EventKind::SheddingBegan, format!("class {name}: requests are refused ({reason}): {why}"));
                None
            }
            Change::Ended(span) => {
                let text = format!(
                    "class {name}: no request has been refused for {}. Before, {}",
                    span_text(QUIET),
                    span.summed("were refused")
                );
                tell(EventKind::SheddingEnded, text);
                Some(*span)
            }
        }
    }

    fn guarantees(&mut self, now: Time, name: &str, look: &Look, tell: &mut impl FnMut(EventKind, String)) {
        let parts = [
            (&mut self.throughput, &look.throughput, "throughput", words::throughput as fn(&ClassSnapshot) -> String),
            (&mut self.response_time, &look.response_time, "response time", words::response_time),
        ];
        for (missed, missing, what, figures) in parts {
            match (&missing.first, *missed) {
                (Some(class), before) => {
                    *missed = Some(now);
                    if before.is_none() {
                        let class = (missing.named(class), figures(class));
                        tell(
                            EventKind::GuaranteeMissed,
                            format!("class {}: the guaranteed {what} is missed: {}", class.0, class.1),
                        );
                    }
                }
                (None, Some(last)) if now.since(last) >= QUIET => {
                    *missed = None;
                    tell(EventKind::GuaranteeHeld, format!("class {name}: the guaranteed {what} is held again"));
                }
                (None, _) => {}
            }
        }
    }

    /// Tells of an impossible limit once, and again if the limit changes.
    fn limit(&mut self, name: &str, impossible: &Missing, tell: &mut impl FnMut(EventKind, String)) {
        let first = impossible.first.as_ref();
        let found = first.and_then(|class| Some((class, class.guarantee.response_time?, class.service_time?)));
        let Some((class, response_time, service_time)) = found else {
            if self.impossible.take().is_some() {
                tell(EventKind::LimitPossible, format!("class {name}: its limit is possible again"));
            }
            return;
        };
        let (limit, statistic) = (response_time.limit, response_time.statistic);
        if self.impossible.replace(limit) != Some(limit) {
            let text = format!(
                "class {}: its limit {statistic} <= {limit:?} is impossible: its requests take {service_time:.1?} on \
                 average without contention. Raise the limit or make the requests cheaper",
                impossible.named(class)
            );
            tell(EventKind::LimitImpossible, text);
        }
    }
}
