//! Stage *classify*: which class a request belongs to.
//!
//! Rules are tried in order and the first that matches wins (Blanquer et al., *Quorum*, NSDI 2005,
//! Sec. 3.1, whose classifier knows only address and URL; mQoS Sec. 3.2 adds headers). Departure: a
//! linear scan over thousands of tenants would cost more than everything else that the gateway does
//! to a request, so rules are indexed by what they cannot match without:
//!
//! - rules that need one of some host names, by name (`a.test`) or by suffix (`*.a.test`);
//! - else rules that need a first path segment (`/mail/...`);
//! - and the rest, which is always tried.
//!
//! Each list keeps the order of the rules and is walked no further than the best match so far, so
//! the answer is that of the linear scan. A test proves it on random rules and requests.
//!
//! Nothing is allocated unless a rule looks at the query or at cookies.

mod canonical;
mod condition;
mod explain;
mod view;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use weirgate_config::{HostPattern, Key, Match, PathPattern, Rule, Target};
use weirgate_engine::{ClassId, TemplateId};

pub use canonical::Canonical;
pub use explain::Explained;
pub(crate) use explain::{Values, describe, describe_key};
pub use view::{MAX_KEY_BYTES, MAX_PAIRS, MAX_VALUE_BYTES, View};

use view::Fields;

/// Finds the class of a request.
#[derive(Debug)]
pub struct Classifier {
    rules: Vec<Rule>,
    /// Rules that need this host.
    by_host: HashMap<String, Vec<u32>>,
    /// Rules that need a host that ends with this suffix, which starts with a dot.
    by_suffix: HashMap<String, Vec<u32>>,
    /// Rules that need this first path segment.
    by_segment: HashMap<String, Vec<u32>>,
    /// Rules that may match anything.
    anywhere: Vec<u32>,
}

/// What a request was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified<'a> {
    /// Index of the rule that matched.
    pub rule: usize,
    /// Where that rule leads.
    pub class: ClassRef<'a>,
}

/// A class, or what is needed to make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRef<'a> {
    /// A class of the policy.
    Class(ClassId),
    /// The class of this key (at most [`MAX_KEY_BYTES`]) under a template.
    Template(TemplateId, &'a [u8]),
}

impl Classifier {
    /// Builds the index over `rules`.
    #[must_use]
    pub fn new(rules: &[Rule]) -> Classifier {
        let mut classifier = Classifier {
            rules: rules.to_vec(),
            by_host: HashMap::new(),
            by_suffix: HashMap::new(),
            by_segment: HashMap::new(),
            anywhere: Vec::new(),
        };
        for (index, rule) in (0u32..).zip(rules) {
            if let Some(hosts) = needed_hosts(&rule.matches) {
                for (how, name) in hosts {
                    let map = match how {
                        Compare::Whole => &mut classifier.by_host,
                        Compare::Suffix => &mut classifier.by_suffix,
                    };
                    map.entry(name.to_owned()).or_default().push(index);
                }
            } else if let Some(segments) = needed_segments(&rule.matches) {
                for segment in segments {
                    classifier.by_segment.entry(segment.to_owned()).or_default().push(index);
                }
            } else {
                classifier.anywhere.push(index);
            }
        }
        classifier
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The first rule that matches; `None` only if no rule matches everything.
    #[must_use]
    pub fn classify<'a>(&self, view: &View<'a>) -> Option<Classified<'a>> {
        let fields = Fields::new(view);
        let mut best = None;
        if let Some(list) = self.by_host.get(view.host) {
            self.walk(list, &fields, &mut best);
        }
        if !self.by_suffix.is_empty() {
            for (dot, _) in view.host.match_indices('.') {
                if let Some(list) = view.host.get(dot..).and_then(|suffix| self.by_suffix.get(suffix)) {
                    self.walk(list, &fields, &mut best);
                }
            }
        }
        if let Some(list) = self.by_segment.get(first_segment(view.path)) {
            self.walk(list, &fields, &mut best);
        }
        self.walk(&self.anywhere, &fields, &mut best);
        best
    }

    /// Finds the first rule of `list` that matches and precedes `best`.
    fn walk<'a>(&self, list: &[u32], fields: &Fields<'a, '_>, best: &mut Option<Classified<'a>>) {
        for &index in list {
            let index = index as usize;
            if best.is_some_and(|b| b.rule <= index) {
                return;
            }
            if let Some(class) = self.rules.get(index).and_then(|rule| target(rule, fields)) {
                *best = Some(Classified { rule: index, class });
                return;
            }
        }
    }
}

/// Where `rule` leads if it matches. A rule with a key does not match without exactly one value.
fn target<'a>(rule: &Rule, fields: &Fields<'a, '_>) -> Option<ClassRef<'a>> {
    if !condition::holds(&rule.matches, fields) {
        return None;
    }
    match &rule.target {
        Target::Class(class) => Some(ClassRef::Class(*class)),
        Target::Template(template, key) => key_of(key, fields).ok().map(|k| ClassRef::Template(*template, k)),
    }
}

/// The value that keys a template.
///
/// # Errors
/// Why there is none. Two values are none: the node might use the other one.
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
        Key::Header(name) => only(fields.view.headers.get_all(name).iter().map(http::HeaderValue::as_bytes)),
        Key::Cookie(name) => {
            only(fields.cookies().iter().filter(|(n, _)| *n == name.as_bytes()).map(|&(_, value)| value))
        }
    }
}

/// `mail` of `/mail/inbox`; empty for `/`.
fn first_segment(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path).split('/').next().unwrap_or_default()
}

/// Hosts of which a request must have one for `condition` to hold; `None` if any host may do.
fn needed_hosts(condition: &Match) -> Option<HashSet<(Compare, &str)>> {
    needed(condition, &|leaf| match leaf {
        Match::Host(HostPattern::Exact(name)) => Some((Compare::Whole, name.as_str())),
        Match::Host(HostPattern::Below(suffix)) => Some((Compare::Suffix, suffix.as_str())),
        _ => None,
    })
}

/// How a host is compared with a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Compare {
    Whole,
    Suffix,
}

/// First path segments of which a request must have one for `condition` to hold.
fn needed_segments(condition: &Match) -> Option<HashSet<&str>> {
    needed(condition, &|leaf| match leaf {
        Match::Path(PathPattern::Exact(path)) => Some(first_segment(path)),
        // The prefix `/` holds for every path.
        Match::Path(PathPattern::Prefix(path)) => Some(first_segment(path)).filter(|s| !s.is_empty()),
        _ => None,
    })
}

/// Values of which one is necessary for `condition`, given what a single comparison needs.
fn needed<'m, T: Eq + Hash>(condition: &'m Match, leaf: &impl Fn(&'m Match) -> Option<T>) -> Option<HashSet<T>> {
    match condition {
        // Each part alone is necessary: the smallest set is the best index.
        Match::All(parts) => parts.iter().filter_map(|part| needed(part, leaf)).min_by_key(HashSet::len),
        // Any part may be the one that holds: all sets together, if every part has one.
        Match::Either(parts) => parts.iter().try_fold(HashSet::new(), |mut all, part| {
            all.extend(needed(part, leaf)?);
            Some(all)
        }),
        single => leaf(single).map(|value| HashSet::from([value])),
    }
}

#[cfg(test)]
mod tests;
