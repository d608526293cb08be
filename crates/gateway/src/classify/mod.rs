//! Stage *classify*: finds the class of a request.
//!
//! Rules are tried in order and the first one that matches applies (Blanquer et al., *Quorum*, NSDI 2005,
//! Sec. 3.1, with a classifier that uses only address and URL; mQoS Sec. 3.2 adds headers). Departure: a
//! linear scan over thousands of tenants would cost more than all the gateway's other work on a request. So
//! only the rules that the `index` finds possible are evaluated. Each list in the index keeps the order of
//! the rules. A list is followed only up to the best match so far, so the result is the same as with a linear
//! scan. A test checks this on random rules and requests.
//!
//! Nothing is allocated unless a rule uses the query or cookies.

mod condition;
mod explain;
mod index;
mod json;
mod logged;
mod payload;
mod view;

use weirgate_config::{IpNet, Key, Match, Rule, RuleTarget};
use weirgate_engine::{ClassId, Policy, TemplateId};

use crate::client;
use crate::record::ClassIndex;

pub use explain::{Explained, described, described_key};
pub(crate) use explain::{Values, describe, describe_key};
pub use logged::{Candidates, unlogged};
pub use payload::Payload;
pub(crate) use view::cookies_of;
pub use view::{MAX_KEY_BYTES, MAX_PAIRS, MAX_VALUE_BYTES, View};

use index::Index;
use view::Fields;

/// Finds the class of a request.
#[derive(Debug)]
pub struct Classifier {
    rules: Vec<Rule>,
    index: Index,
    /// Whether a rule has a condition on the body.
    reads_bodies: bool,
}

/// The class depends on the first bytes of the request's body, which have not been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsBody;

/// Result of classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified<'a> {
    /// Index of the rule that matched.
    pub rule: usize,
    /// The class that the rule selects.
    pub class: ClassRef<'a>,
    /// The form of the path for which it matched.
    pub path: &'a str,
}

/// A class of the policy, or a template with the key of the class to make from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRef<'a> {
    /// A class of the policy.
    Class(ClassId),
    /// The class of this key (at most [`MAX_KEY_BYTES`]) under a template.
    Template(TemplateId, &'a [u8]),
    /// The class of this network under a template.
    Network(TemplateId, IpNet),
}

impl ClassRef<'_> {
    /// Returns the class as the policy file has it.
    pub(crate) fn index(self) -> ClassIndex {
        match self {
            ClassRef::Class(class) => ClassIndex::Class(class.0),
            ClassRef::Template(template, _) | ClassRef::Network(template, _) => ClassIndex::Template(template),
        }
    }
}

impl Classifier {
    /// Builds the index over `rules`.
    pub fn new(rules: Vec<Rule>) -> Classifier {
        let reads_bodies = rules.iter().any(|rule| reads_body(&rule.matches));
        Classifier { index: Index::new(&rules), rules, reads_bodies }
    }

    /// Whether a rule has a condition on the body.
    pub fn reads_bodies(&self) -> bool {
        self.reads_bodies
    }

    /// Returns the rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the first rule that matches, or `None` if there is none. A last rule that matches everything
    /// prevents that.
    ///
    /// # Errors
    /// It is not known whether the first rule that may match does, before the body has been received.
    pub fn classify<'a>(&self, view: &View<'a>, payload: Payload<'_>) -> Result<Option<Classified<'a>>, NeedsBody> {
        let fields = Fields::new(view, payload);
        let mut best = None;
        self.index.each_list(&fields, |list| self.walk(list, &fields, &mut best));
        let Some((rule, found)) = best else { return Ok(None) };
        Ok(Some(Classified { rule, class: found?, path: view.path }))
    }

    /// Classifies a request in all readings of its path ([`crate::Request::readings`]). Returns the result that
    /// promises least: throughput first, then a response time, then a weight. So no spelling of a path leads to a
    /// better class than every node would agree to. `policy` has the classes that the rules select.
    ///
    /// # Errors
    /// As [`Classifier::classify`].
    pub fn classify_readings<'a>(
        &self,
        policy: &Policy,
        view: &View<'a>,
        payload: Payload<'_>,
    ) -> Result<Option<Classified<'a>>, NeedsBody> {
        let Some(mut found) = self.classify(view, payload)? else { return Ok(None) };
        for path in view.request.readings() {
            if let Some(other) = self.classify(&View { path, ..*view }, payload)?
                && promise(policy, other.class) < promise(policy, found.class)
            {
                found = other;
            }
        }
        Ok(Some(found))
    }

    /// Finds the first rule of `list` that matches, or may match, and precedes `best`.
    fn walk<'a>(&self, list: &[u32], fields: &Fields<'a, '_>, best: &mut Option<Found<'a>>) {
        for &index in list {
            let index = index as usize;
            if best.as_ref().is_some_and(|(rule, _)| *rule <= index) {
                return;
            }
            if let Some(found) = self.rules.get(index).and_then(|rule| target(rule, fields)) {
                *best = Some((index, found));
                return;
            }
        }
    }
}

/// Index of a rule that matches with its class, or of one that may match.
type Found<'a> = (usize, Result<ClassRef<'a>, NeedsBody>);

/// Whether a condition depends on the body.
fn reads_body(condition: &Match) -> bool {
    match condition {
        Match::All(parts) | Match::Either(parts) => parts.iter().any(reads_body),
        Match::Not(part) => reads_body(part),
        Match::Body(_) => true,
        _ => false,
    }
}

/// Returns the promise to a class, in an order of its worth.
fn promise(policy: &Policy, class: ClassRef<'_>) -> Option<(f64, bool, f64)> {
    let class = match class {
        ClassRef::Class(id) => policy.classes.get(id.0 as usize)?,
        ClassRef::Template(id, _) | ClassRef::Network(id, _) => &policy.templates.get(id.0 as usize)?.class,
    };
    let guarantee = &class.guarantee;
    Some((guarantee.throughput.unwrap_or(0.0), guarantee.response_time.is_some(), class.weight))
}

/// Returns the class that `rule` selects, if it matches. A rule with a key matches only a request with
/// exactly one value for it.
fn target<'a>(rule: &Rule, fields: &Fields<'a, '_>) -> Option<Result<ClassRef<'a>, NeedsBody>> {
    let holds = condition::holds(&rule.matches, fields);
    if holds == Some(false) {
        return None;
    }
    let class = match &rule.target {
        RuleTarget::Class(class) => ClassRef::Class(*class),
        RuleTarget::Template(template, Key::Network(size)) => {
            ClassRef::Network(*template, size.network_of(fields.view.client))
        }
        RuleTarget::Template(template, key) => ClassRef::Template(*template, key_of(key, fields).ok()?),
    };
    Some(holds.map(|_| class).ok_or(NeedsBody))
}

/// Returns the position of the source of a request in the order of all sources, for classes that are enforced for a
/// share of them. `by` names the value that identifies the source.
pub fn source_position(by: &Key, view: &View<'_>) -> u16 {
    let any = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
    client::source(&any, by, view.client, true, |by| value_of(by, view)).position
}

/// Returns the value of a header or cookie of a request, if it can serve as a key.
pub(crate) fn value_of<'a>(key: &Key, view: &View<'a>) -> Option<&'a [u8]> {
    key_of(key, &Fields::new(view, Payload::Awaited)).ok()
}

/// Returns the value that is the key for a template.
///
/// # Errors The reason why there is no key. Two values give no key, because the node might use the other one.
fn key_of<'a>(key: &Key, fields: &Fields<'a, '_>) -> Result<&'a [u8], &'static str> {
    fn only<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<&'a [u8], &'static str> {
        let value = values.next().ok_or("is missing")?;
        match (value, values.next()) {
            (_, Some(_)) => Err("is there more than once"),
            ([], _) => Err("is empty"),
            (value, _) if value.len() > MAX_KEY_BYTES => Err("is longer than 256 bytes"),
            (value, None) => Ok(value),
        }
    }
    match key {
        Key::Network(_) => Err("is a network"),
        Key::Visitor => fields.view.visitor.map(|visitor| &visitor.id[..]).ok_or("is not known"),
        // If proxies are listed, only they can state the origin of a request.
        Key::Header(_) if !fields.view.vouched => Err("does not come from a listed proxy"),
        Key::Header(name) => only(fields.view.request.values(name.as_str())),
        Key::Cookie(name) => {
            only(fields.cookies().iter().filter(|(n, _)| *n == name.as_bytes()).map(|&(_, value)| value))
        }
    }
}

#[cfg(test)]
mod tests;
