//! Changes of classes: refusals that begin and end, guarantees that are missed and held, limits that are impossible.
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
    offered: u64,
    shed: [u64; ShedReason::ALL.len()],
    /// The class with most refusals.
    most_shed: Option<ClassSnapshot>,
    throughput: Missing,
    response_time: Missing,
    impossible: Missing,
}

/// The classes to which something applies: the first one, and the number of others.
#[derive(Debug, Default)]
struct Missing {
    first: Option<ClassSnapshot>,
    others: u64,
}

impl Missing {
    fn add(&mut self, class: &ClassSnapshot) {
        match self.first {
            Some(_) => self.others += 1,
            None => self.first = Some(class.clone()),
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

/// Looks by the names of the classes.
pub(super) type Looks = BTreeMap<String, Look>;

/// Adds a class to the looks.
pub(super) fn add(looks: &mut Looks, class: &ClassSnapshot) {
    if !looks.contains_key(&class.name) {
        looks.insert(class.name.clone(), Look::default());
    }
    let Some(look) = looks.get_mut(&class.name) else { return };
    look.offered += class.offered;
    for (sum, shed) in look.shed.iter_mut().zip(class.shed) {
        *sum += shed;
    }
    if look.most_shed.as_ref().is_none_or(|most| most.achieved.shed_per_s < class.achieved.shed_per_s) {
        look.most_shed = Some(class.clone());
    }
    if class.achieved.throughput_held == Some(false) {
        look.throughput.add(class);
    }
    if class.achieved.response_time_held == Some(false) {
        look.response_time.add(class);
    }
    if class.impossible {
        look.impossible.add(class);
    }
}

/// What is known of the classes of one name.
#[derive(Debug, Default)]
struct State {
    offered: u64,
    shed: [u64; ShedReason::ALL.len()],
    refusing: Option<Span>,
    /// Time of the latest look at which the guaranteed throughput was missed, until it is held again.
    throughput: Option<Time>,
    /// The same of the response time.
    response_time: Option<Time>,
    /// The limit that is impossible.
    impossible: Option<Duration>,
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
    pub(super) fn compare(&mut self, now: Time, looks: Looks, tell: &mut impl FnMut(EventKind, String)) {
        let (states, ended) = (&mut self.states, &mut self.ended);
        states.retain(|name, _| looks.contains_key(name));
        for (name, look) in looks {
            let known = states.contains_key(&name);
            let state = states.entry(name.clone()).or_default();
            // Counts of the first look say nothing about now.
            if (known || self.looked)
                && let Some(span) = state.refusals(now, &name, &look, tell)
            {
                ended.push_back((name.clone(), span));
                if ended.len() > KEPT {
                    ended.pop_front();
                }
            }
            (state.offered, state.shed) = (look.offered, look.shed);
            state.guarantees(now, &name, &look, tell);
            state.limit(&name, &look.impossible, tell);
        }
        self.looked = true;
    }

    /// Returns the spans of refusals, the latest refusal first.
    pub(super) fn refusals(&self) -> Vec<Refusals> {
        let last = self.states.iter().filter_map(|(name, state)| Some(state.refusing.as_ref()?.shown(name, true)));
        let ended = self.ended.iter().map(|(name, span)| span.shown(name, false));
        let mut all: Vec<Refusals> = last.chain(ended).collect();
        all.sort_by(|a, b| b.to_seconds.total_cmp(&a.to_seconds).then(b.count.cmp(&a.count)));
        all.truncate(SHOWN);
        all
    }
}

impl State {
    /// Follows the refusals, and returns the span that has ended.
    fn refusals(
        &mut self,
        now: Time,
        name: &str,
        look: &Look,
        tell: &mut impl FnMut(EventKind, String),
    ) -> Option<Span> {
        let mut shed = look.shed;
        // Counts of a class that has been removed may be missing for a moment.
        shed.iter_mut().zip(self.shed).for_each(|(now, before)| *now = now.saturating_sub(before));
        let offered = look.offered.saturating_sub(self.offered);
        if let (Some(reason), Some(class)) = (most(&shed), &look.most_shed) {
            let begins = self.refusing.is_none();
            let span = self.refusing.get_or_insert_with(|| Span {
                from: now,
                to: now,
                offered: 0,
                shed: [0; _],
                why: String::new(),
            });
            span.to = now;
            span.offered += offered;
            span.shed.iter_mut().zip(shed).for_each(|(sum, count)| *sum += count);
            if begins || most(&span.shed) == Some(reason) {
                span.why = words::refused(reason, class);
            }
            if begins {
                tell(EventKind::SheddingBegan, format!("class {name}: requests are refused ({reason}): {}", span.why));
            }
            return None;
        }
        if let Some(span) = &mut self.refusing
            && now.since(span.to) < QUIET
        {
            span.offered += offered;
            return None;
        }
        let span = self.refusing.take()?;
        let (count, lasted) = (span.count(), span_text(span.to.since(span.from).max(Duration::from_secs(1))));
        let reason = most(&span.shed).map_or("", ShedReason::as_str);
        let text = format!(
            "class {name}: no request has been refused for {}. Before, {count} of {} were refused within {lasted}, most \
             of them with the reason {reason}",
            span_text(QUIET),
            span.offered.max(count),
        );
        tell(EventKind::SheddingEnded, text);
        Some(span)
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
