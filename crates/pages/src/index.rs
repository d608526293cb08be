//! Finds the most specific of many routes in one pass over a path.
//!
//! Of the patterns that match, the most specific one has literal segments where the others have `*`, compared
//! from the left. A path without `*` therefore comes before all others. Among patterns with the same path,
//! the one with more parameters wins, then the one with more literal values, then the one with names that
//! come first in the alphabet.
//!
//! The index is a tree over segments. Each branch has its literal children in order and at most one `*`. A
//! lookup allocates nothing. It backtracks only where a literal segment led nowhere and there is a `*` at the
//! same level. The cost of this is bounded by the number of patterns, which the operator writes, and does not
//! depend on clients. Patterns with the same path and the same names are found by binary search, so that a
//! site with one script and a thousand values of `page` is not slow.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::pattern::{Pattern, value_of};

/// The patterns, ready to be searched.
#[derive(Clone, Debug, Default)]
pub struct Index {
    root: Branch,
    patterns: Vec<Pattern>,
}

/// The patterns that share the beginning of a path.
#[derive(Clone, Debug, Default)]
struct Branch {
    literal: BTreeMap<String, Branch>,
    any: Option<Box<Branch>>,
    /// Patterns that end here, most specific first.
    ends: Vec<Shape>,
}

/// Patterns with the same parameter names of which the same values are open.
#[derive(Clone, Debug)]
struct Shape {
    /// Each name, and whether its value is literal.
    names: Vec<(String, bool)>,
    /// Literal values in the order of the names, and the index of the pattern. Sorted by values.
    values: Vec<(Vec<String>, usize)>,
}

impl Index {
    /// Builds the index. Of two equal patterns the first one is found.
    pub fn new(patterns: Vec<Pattern>) -> Index {
        let mut root = Branch::default();
        for (at, pattern) in patterns.iter().enumerate() {
            let mut branch = &mut root;
            for segment in &pattern.segments {
                branch = match segment {
                    Some(literal) => branch.literal.entry(literal.clone()).or_default(),
                    None => branch.any.get_or_insert_default(),
                };
            }
            branch.add(pattern, at);
        }
        Index { root, patterns }
    }

    /// Returns the index of the most specific pattern that matches a canonical path and a raw query.
    pub fn find(&self, path: &str, query: Option<&str>) -> Option<usize> {
        if self.patterns.is_empty() {
            return None;
        }
        self.root.find(path.strip_prefix('/'), query)
    }

    /// Returns the patterns in the order in which they were given.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }
}

impl Branch {
    fn add(&mut self, pattern: &Pattern, at: usize) {
        let names = pattern.parameters.iter().map(|(name, value)| (name.clone(), value.is_some())).collect();
        let values = pattern.parameters.iter().filter_map(|(_, value)| value.clone()).collect();
        let shape = Shape { names, values: vec![(values, at)] };
        match self.ends.binary_search_by(|other| other.order(&shape)) {
            Err(place) => self.ends.insert(place, shape),
            Ok(place) => {
                let known = &mut self.ends[place].values;
                let [new] = shape.values.try_into().unwrap_or_default();
                if let Err(place) = known.binary_search_by(|other| other.0.cmp(&new.0)) {
                    known.insert(place, new);
                }
            }
        }
    }

    /// Searches below this branch. `rest` holds the remaining segments, or `None` after the last one.
    fn find(&self, rest: Option<&str>, query: Option<&str>) -> Option<usize> {
        let Some(rest) = rest else {
            return self.ends.iter().find_map(|shape| shape.find(query));
        };
        let (segment, rest) = match rest.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        let literal = self.literal.get(segment).and_then(|branch| branch.find(rest, query));
        let any = || self.any.as_ref().filter(|_| !segment.is_empty())?.find(rest, query);
        literal.or_else(any)
    }
}

impl Shape {
    /// Orders the more specific shape first. Shapes are equal only if their names and open values are.
    fn order(&self, other: &Shape) -> Ordering {
        let literal = |shape: &Shape| shape.names.iter().filter(|(_, literal)| *literal).count();
        (other.names.len(), literal(other))
            .cmp(&(self.names.len(), literal(self)))
            .then_with(|| self.names.cmp(&other.names))
    }

    fn find(&self, query: Option<&str>) -> Option<usize> {
        if self.names.iter().any(|(name, literal)| !literal && value_of(query, name).is_none()) {
            return None;
        }
        let found = self.values.binary_search_by(|(values, _)| {
            let names = self.names.iter().filter(|(_, literal)| *literal);
            // A missing value sorts before any value.
            names
                .zip(values)
                .map(|((name, _), value)| Some(value.as_str()).cmp(&value_of(query, name)))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        });
        found.ok().map(|place| self.values[place].1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(patterns: &[&str]) -> Index {
        Index::new(patterns.iter().map(|text| Pattern::parse(text).expect("a pattern")).collect())
    }

    #[test]
    fn the_most_specific_pattern_wins() {
        let patterns =
            ["/*/*", "/a/*", "/*/b", "/a/b", "/a/b?x=*", "/a/b?x=1", "/a/b?x=*&y=*", "/a/c?k=1", "/a/b?x=1", "/"];
        let index = index(&patterns);
        for (target, found) in [
            ("/z/z", Some(0)),
            ("/a/z", Some(1)),
            ("/z/b", Some(2)),
            ("/a/b", Some(3)),
            ("/a/b?y=1", Some(3)),
            ("/a/b?x=2", Some(4)),
            ("/a/b?y=1&x=1", Some(6)),
            ("/a/b?x=1", Some(5)),
            ("/a/c", Some(1)),
            ("/a/c?k=1", Some(7)),
            ("/", Some(9)),
            ("/a", None),
            ("/a/", None),
            ("/a/b/c", None),
            ("*", None),
            ("", None),
        ] {
            let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
            assert_eq!(index.find(path, query), found, "{target}");
        }
        assert_eq!(index.patterns().len(), patterns.len());
    }

    #[test]
    fn a_thousand_values_of_one_parameter() {
        let patterns: Vec<String> = (0..1000).map(|page| format!("/index.php?page=p{page}&lang=*")).collect();
        let index = index(&patterns.iter().map(String::as_str).collect::<Vec<_>>());
        for page in 0..1000 {
            assert_eq!(index.find("/index.php", Some(&format!("lang=en&page=p{page}"))), Some(page));
        }
        assert_eq!(index.find("/index.php", Some("lang=en&page=q")), None);
        assert_eq!(index.find("/index.php", Some("page=p1")), None);
    }

    /// Compares all matching patterns one by one, on split lists and without the tree.
    fn naive(patterns: &[String], path: &str, query: Option<&str>) -> Option<usize> {
        let sent: Vec<&str> = path.split('/').skip(1).collect();
        let mut values: BTreeMap<&str, &str> = BTreeMap::new();
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(name).or_insert(value);
        }
        let mut best: Option<(Vec<bool>, usize, usize, usize)> = None;
        for (at, pattern) in patterns.iter().enumerate() {
            let (path, query) = pattern.split_once('?').unwrap_or((pattern, ""));
            let segments: Vec<&str> = path.split('/').skip(1).collect();
            let named: Vec<(&str, &str)> =
                query.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| pair.split_once('=')).collect();
            let path_fits = segments.len() == sent.len()
                && segments.iter().zip(&sent).all(|(p, s)| p == s || (*p == "*" && !s.is_empty()));
            let query_fits = named.iter().all(|(n, v)| values.get(n).is_some_and(|s| *v == "*" || v == s));
            if path_fits && query_fits {
                let literal = segments.iter().map(|s| *s != "*").collect();
                let values = named.iter().filter(|(_, v)| *v != "*").count();
                let key = (literal, named.len(), values, at);
                if best.as_ref().is_none_or(|best| (&best.0, best.1, best.2) < (&key.0, key.1, key.2)) {
                    best = Some(key);
                }
            }
        }
        best.map(|best| best.3)
    }

    /// Returns the rank of a pattern. Of patterns with equal rank either may be found.
    fn rank(pattern: &str) -> (Vec<bool>, usize, usize) {
        let (path, query) = pattern.split_once('?').unwrap_or((pattern, ""));
        let named: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
        let literal = path.split('/').skip(1).map(|s| s != "*").collect();
        (literal, named.len(), named.iter().filter(|pair| !pair.ends_with('*')).count())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn finds_what_a_look_at_every_pattern_finds(
            patterns in proptest::collection::vec("(/[ab*]){1,4}/?([?]x=[12*](&y=[12*])?)?", 0..30),
            path in "(/[abc]){0,4}/?",
            query in proptest::option::of("([xyz](=[123])?)(&[xyz]=[123]){0,3}"),
        ) {
            let parsed: Vec<Pattern> = patterns.iter().map(|p| Pattern::parse(p).expect("a pattern")).collect();
            let one_by_one: Vec<bool> = parsed.iter().map(|p| p.matches(&path, query.as_deref())).collect();
            let each: Vec<bool> =
                patterns.iter().map(|p| naive(std::slice::from_ref(p), &path, query.as_deref()).is_some()).collect();
            prop_assert_eq!(&one_by_one, &each);
            let found = Index::new(parsed).find(&path, query.as_deref());
            let best = naive(&patterns, &path, query.as_deref());
            prop_assert_eq!(found.map(|at| rank(&patterns[at])), best.map(|at| rank(&patterns[at])));
            prop_assert!(found.is_none_or(|at| each[at]));
        }
    }
}
