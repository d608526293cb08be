//! Index of the rules that can match a request, by a value that each rule requires.
//!
//! An *anchor* is a comparison with one exact value: a host, a host's suffix, a first path segment, or the
//! value of a header, a cookie or a query parameter. A rule that requires at least one of a set of anchors is
//! listed under each of them. It is evaluated only if the request has one of them. All other rules are listed
//! under no anchor and are always evaluated. If a rule can be listed in several ways, the one with the
//! shortest lists is used. For example, a thousand tenants distinguished by a header are listed by that
//! header, not by the path they share.

use std::collections::{HashMap, HashSet};

use http::HeaderName;
use weirgate_config::{HostPattern, Match, PathPattern, Rule, ValuePattern};

use super::view::Fields;

/// Indices of rules, ascending.
type List = Vec<u32>;

/// Lists by value.
type ByValue = HashMap<Vec<u8>, List>;

/// The index over some rules.
#[derive(Debug, Default)]
pub(super) struct Index {
    hosts: HashMap<String, List>,
    /// Keys start with a dot.
    suffixes: HashMap<String, List>,
    segments: HashMap<String, List>,
    /// Few header names occur in rules, so each of them is looked up in the request in turn.
    headers: Vec<(HeaderName, ByValue)>,
    cookies: HashMap<Vec<u8>, ByValue>,
    parameters: HashMap<Vec<u8>, ByValue>,
    anywhere: List,
}

/// A comparison with one exact value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Anchor<'r> {
    Host(&'r str),
    Suffix(&'r str),
    Segment(&'r str),
    Header(&'r HeaderName, &'r str),
    Cookie(&'r str, &'r str),
    Parameter(&'r str, &'r str),
}

impl Index {
    pub(super) fn new(rules: &[Rule]) -> Index {
        let mut counts: HashMap<Anchor<'_>, usize> = HashMap::new();
        for rule in rules {
            let mut all = HashSet::new();
            collect(&rule.matches, &mut all);
            all.into_iter().for_each(|anchor| *counts.entry(anchor).or_default() += 1);
        }
        let longest = |set: &HashSet<Anchor<'_>>| set.iter().map(|a| counts.get(a).copied().unwrap_or(0)).max();
        let mut index = Index::default();
        for (number, rule) in (0u32..).zip(rules) {
            match needed(&rule.matches, &longest) {
                Some(anchors) => anchors.into_iter().for_each(|anchor| index.list(anchor).push(number)),
                None => index.anywhere.push(number),
            }
        }
        index
    }

    fn list(&mut self, anchor: Anchor<'_>) -> &mut List {
        match anchor {
            Anchor::Host(name) => self.hosts.entry(name.to_owned()).or_default(),
            Anchor::Suffix(suffix) => self.suffixes.entry(suffix.to_owned()).or_default(),
            Anchor::Segment(segment) => self.segments.entry(segment.to_owned()).or_default(),
            Anchor::Header(name, value) => {
                let at = self.headers.iter().position(|(n, _)| n == name).unwrap_or_else(|| {
                    self.headers.push((name.clone(), ByValue::new()));
                    self.headers.len() - 1
                });
                self.headers[at].1.entry(value.into()).or_default()
            }
            Anchor::Cookie(name, value) => {
                self.cookies.entry(name.into()).or_default().entry(value.into()).or_default()
            }
            Anchor::Parameter(name, value) => {
                self.parameters.entry(name.into()).or_default().entry(value.into()).or_default()
            }
        }
    }

    /// Passes every list of rules that may match to `show`. The lists together contain every rule that
    /// matches.
    pub(super) fn each_list(&self, fields: &Fields<'_, '_>, mut show: impl FnMut(&[u32])) {
        let view = fields.view;
        let mut show = |list: Option<&List>| list.into_iter().for_each(|list| show(list));
        if !(self.hosts.is_empty() && self.suffixes.is_empty()) {
            let host = view.request.host();
            show(self.hosts.get(host));
            for (dot, _) in host.match_indices('.') {
                show(host.get(dot..).and_then(|suffix| self.suffixes.get(suffix)));
            }
        }
        show(self.segments.get(first_segment(view.path)));
        for (name, by_value) in &self.headers {
            view.request.values(name.as_str()).for_each(|value| show(by_value.get(value)));
        }
        if !self.cookies.is_empty() {
            for (name, value) in fields.cookies() {
                show(self.cookies.get(*name).and_then(|by_value| by_value.get(*value)));
            }
        }
        if !self.parameters.is_empty() {
            for (name, value) in fields.query() {
                show(self.parameters.get(name.as_ref()).and_then(|by_value| by_value.get(value.as_ref())));
            }
        }
        show(Some(&self.anywhere));
    }
}

/// Returns the first segment of `path`: `mail` for `/mail/inbox`, empty for `/`.
fn first_segment(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path).split('/').next().unwrap_or_default()
}

/// Returns the anchor that a single comparison requires, or `None` if it does not require one exact value.
fn anchor(leaf: &Match) -> Option<Anchor<'_>> {
    match leaf {
        Match::Host(HostPattern::Exact(name)) => Some(Anchor::Host(name)),
        Match::Host(HostPattern::Below(suffix)) => Some(Anchor::Suffix(suffix)),
        Match::Path(PathPattern::Exact(path)) => Some(Anchor::Segment(first_segment(path))),
        // The prefix `/` holds for every path.
        Match::Path(PathPattern::Prefix(path)) => {
            Some(first_segment(path)).filter(|segment| !segment.is_empty()).map(Anchor::Segment)
        }
        Match::Header(name, ValuePattern::Exact(value)) => Some(Anchor::Header(name, value)),
        Match::Cookie(name, ValuePattern::Exact(value)) => Some(Anchor::Cookie(name, value)),
        Match::Query(name, ValuePattern::Exact(value)) => Some(Anchor::Parameter(name, value)),
        _ => None,
    }
}

/// Collects every anchor of `condition` under which it could be listed.
fn collect<'r>(condition: &'r Match, into: &mut HashSet<Anchor<'r>>) {
    match condition {
        Match::All(parts) | Match::Either(parts) => parts.iter().for_each(|part| collect(part, into)),
        leaf => into.extend(anchor(leaf)),
    }
}

/// Returns a set of anchors of which a request must have at least one for `condition` to hold. Returns `None`
/// if the condition can hold without any.
fn needed<'r>(
    condition: &'r Match,
    longest: &impl Fn(&HashSet<Anchor<'r>>) -> Option<usize>,
) -> Option<HashSet<Anchor<'r>>> {
    match condition {
        // Each part is required, so the part with the shortest lists is used.
        Match::All(parts) => parts.iter().filter_map(|part| needed(part, longest)).min_by_key(|set| longest(set)),
        // Any part may hold, so all sets are needed, and every part must have one.
        Match::Either(parts) => parts.iter().try_fold(HashSet::new(), |mut all, part| {
            all.extend(needed(part, longest)?);
            Some(all)
        }),
        leaf => anchor(leaf).map(|anchor| HashSet::from([anchor])),
    }
}

#[cfg(test)]
mod tests {
    use weirgate_config::RuleTarget;
    use weirgate_engine::ClassId;

    use super::*;

    #[test]
    fn rules_are_listed_where_lists_are_short() {
        let path = || Match::Path(PathPattern::Prefix("/api/v1".into()));
        let host = |name: String| Match::Host(HostPattern::Exact(name));
        let key = |i: u32| Match::Header(HeaderName::from_static("x-key"), ValuePattern::Exact(format!("k{i}")));
        let rule = |matches| Rule { matches, target: RuleTarget::Class(ClassId(0)) };
        let by_key = (0..1000).map(|i| rule(Match::All(vec![path(), key(i), host("one.test".into())])));
        let by_host = (0..1000).map(|i| rule(Match::All(vec![path(), host(format!("h{i}.test"))])));
        let either = [rule(Match::Either(vec![host("a.test".into()), key(7)])), rule(Match::Not(Box::new(path())))];
        let rules: Vec<Rule> = by_key.chain(by_host).chain(either).collect();
        let index = Index::new(&rules);
        assert!(index.segments.is_empty() && !index.hosts.contains_key("one.test"));
        assert_eq!(index.headers[0].1[b"k7".as_slice()], [7, 2000]);
        assert_eq!((&index.hosts["h5.test"], &index.hosts["a.test"]), (&vec![1005], &vec![2000]));
        assert_eq!(index.anywhere, [2001]);
    }
}
