//! Routes that nobody wrote down, found in the traffic.
//!
//! A path is folded first: a segment becomes `*` if it looks like a key, which is a number (its extension apart), or has
//! [`DIGITS`] digits and [`KEY`] characters, or has [`LONG`] characters. Then it is counted. What was seen [`OFTEN`]
//! times is a route. What is seen seldom and has [`MANY`] such neighbours in one segment, as the titles of articles, is a
//! route together with them. Queries do not count: one that decides the cost is written into the policy.
//!
//! At most [`MOST_FOUND`] routes are found. The rest is of no route and has its class's cost. What is counted is bounded as
//! well: when [`MOST_SEEN`] paths are, all counts are halved and those that are gone make room (after Manku and Motwani,
//! "Approximate frequency counts over data streams", VLDB 2002), so that many strange paths do not hide the busy ones.

use std::collections::BTreeMap;

use crate::learner::MOST_APART;
use crate::pattern::{MOST_SEGMENTS, Pattern};

/// Most routes that are found: as many as are learned apart.
pub const MOST_FOUND: usize = MOST_APART;

/// Paths that are counted at a time; a few hundred bytes each at most.
const MOST_SEEN: usize = 1024;

/// Sightings that make a route: below, there is nothing to learn from.
const OFTEN: u32 = 8;

/// Neighbours that make one route together. A folder of scripts has fewer.
const MANY: usize = 32;

/// Digits and length of a key: hashes and UUIDs have more, names with a version fewer.
const DIGITS: usize = 4;
const KEY: usize = 16;

/// Length from which any segment is a key: names in addresses are shorter, encoded ones longer.
const LONG: usize = 40;

/// Longest path that is looked at, in bytes.
const LONGEST: usize = 512;

/// What was seen so far.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    seen: BTreeMap<Pattern, u32>,
    found: Vec<Pattern>,
}

impl Discovery {
    /// What is found already.
    #[must_use]
    pub fn found(&self) -> &[Pattern] {
        &self.found
    }

    /// No more will be found.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.found.len() >= MOST_FOUND
    }

    /// A request for this canonical path was of no route. Returns whether one was found.
    pub fn saw(&mut self, path: &str) -> bool {
        if self.is_full() {
            return false;
        }
        let Some(pattern) = fold(path) else { return false };
        if self.found.iter().any(|known| *known == pattern || known.matches(path, None)) {
            return false;
        }
        if self.seen.len() >= MOST_SEEN {
            self.seen.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
        let count = self.seen.entry(pattern.clone()).or_default();
        *count += 1;
        let often = *count >= OFTEN;
        let route = if often { Some(pattern) } else { self.together(&pattern) };
        let Some(route) = route else { return false };
        self.seen.retain(|seen, _| !covers(&route, seen));
        self.found.push(route);
        true
    }

    /// The pattern of this one and its neighbours, if they are many. The last segment is tried first.
    fn together(&self, pattern: &Pattern) -> Option<Pattern> {
        (0..pattern.segments.len())
            .rev()
            .filter(|at| pattern.segments[*at].as_deref().is_some_and(|s| !s.is_empty()))
            .find_map(|at| {
                let mut wide = pattern.clone();
                wide.segments[at] = None;
                let one = |seen: &&Pattern| {
                    seen.segments.len() == wide.segments.len()
                        && seen.segments.iter().zip(&wide.segments).enumerate().all(|(i, (a, b))| i == at || a == b)
                };
                (self.seen.keys().filter(one).count() >= MANY).then_some(wide)
            })
    }
}

/// The path with `*` for what looks like a key. `None`: it is no path, or too long.
fn fold(path: &str) -> Option<Pattern> {
    let inside = path.strip_prefix('/').filter(|_| path.len() <= LONGEST)?;
    let open = |segment: &str| {
        let stem = segment.split_once('.').map_or(segment, |(stem, _)| stem);
        let number = !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_digit());
        let key = segment.len() >= KEY && segment.bytes().filter(u8::is_ascii_digit).count() >= DIGITS;
        number || key || segment.len() >= LONG || segment == "*"
    };
    let segments: Vec<_> = inside.split('/').map(|s| if open(s) { None } else { Some(s.to_owned()) }).collect();
    (segments.len() <= MOST_SEGMENTS).then_some(Pattern { segments, parameters: Vec::new() })
}

/// Whether all that `narrow` matches is matched by `wide`.
fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    wide.segments.len() == narrow.segments.len()
        && wide.segments.iter().zip(&narrow.segments).all(|(wide, narrow)| wide.is_none() || wide == narrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(paths: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut discovery = Discovery::default();
        for path in paths {
            discovery.saw(&path);
        }
        discovery.found().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn keys_are_folded() {
        for (path, form) in [
            ("/", "/"),
            ("/album/17/photo.php", "/album/*/photo.php"),
            ("/img/0001.jpg", "/img/*"),
            ("/u/3f2504e0-4f89-11d3-9a0c-0305e82c3301/", "/u/*/"),
            ("/bootstrap-5.3.min.css", "/bootstrap-5.3.min.css"),
            ("/api/v2/users", "/api/v2/users"),
            ("/a-title-that-is-so-long-that-it-must-be-one", "/*"),
        ] {
            assert_eq!(fold(path).map(|p| p.to_string()).as_deref(), Some(form), "{path}");
        }
        assert_eq!(fold("*"), None);
        assert_eq!(fold(&format!("/{}", "a/".repeat(MOST_SEGMENTS))), None);
        assert_eq!(fold(&"/a".repeat(LONGEST)), None);
    }

    #[test]
    fn what_comes_often_is_a_route() {
        let seven = (0..7).map(|i| format!("/album/{i}/photo.php"));
        assert!(found(seven.clone()).is_empty());
        let more = seven.chain(["/album/7/photo.php".to_owned(), "/album/9/photo.php".to_owned()]);
        assert_eq!(found(more), ["/album/*/photo.php"]);
    }

    #[test]
    fn many_that_come_seldom_are_one_route() {
        let titles =
            (0..26 * 4).map(|i| format!("/wiki/{}-{}", char::from(b'a' + i % 26), "x".repeat(usize::from(i / 26))));
        let busy = std::iter::repeat_n("/wiki/start".to_owned(), 9);
        assert_eq!(found(busy.chain(titles)), ["/wiki/start", "/wiki/*"]);
    }

    #[test]
    fn strange_paths_do_not_hide_the_busy_one_and_all_is_bounded() {
        let mut discovery = Discovery::default();
        let name = |i: usize| (0..5).map(|at| char::from(b'a' + (i >> (at * 3) & 7) as u8)).collect::<String>();
        for i in 0..50_000 {
            // As deep as wide, so that nothing is a neighbour of much.
            discovery.saw(&format!("/{}/{}/{}", name(i), name(i / 7), name(i * 31)));
            if i % 50 == 0 {
                discovery.saw("/busy");
            }
            assert!(discovery.seen.len() <= MOST_SEEN && discovery.found.len() <= MOST_FOUND);
        }
        assert!(discovery.found().iter().any(|p| p.to_string() == "/busy"));
    }
}
