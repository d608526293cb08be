//! Finds routes in the traffic that the policy does not list.
//!
//! A path is folded before it is counted. A segment becomes `*` if it looks like a key: it is a number (apart
//! from its extension), it has [`DIGITS`] digits and [`KEY`] characters, or it has [`LONG`] characters. A
//! folded path that was seen [`OFTEN`] times becomes a route. Rare paths that differ in one segment only,
//! such as titles of articles, become one route together if there are [`MANY`] of them. Queries are ignored.
//! A query that affects the cost has to be written into the policy.
//!
//! At most [`MAX_FOUND`] routes are found. After that, a frequent path replaces an idle route, so that
//! strange paths that came first do not stay for ever. A path that matches a joint route is still counted,
//! and becomes a route of its own after [`APART`] sightings. Other paths have no route, and their requests
//! have the cost of their class. The counts are bounded too. When [`MAX_SEEN`] paths are counted, all counts
//! are halved and paths with a count of zero are dropped (after Manku and Motwani, "Approximate frequency
//! counts over data streams", VLDB 2002), so that many strange paths do not hide the busy ones.

use std::collections::BTreeMap;

use crate::learner::MAX_APART;
use crate::pattern::Pattern;

/// Maximum number of routes found: as many as are learned separately.
pub const MAX_FOUND: usize = MAX_APART;

/// Maximum number of paths counted at a time. Each takes a few hundred bytes at most.
const MAX_SEEN: usize = 1024;

/// Sightings that make a path a route. Fewer requests are not enough to learn from.
pub const OFTEN: u32 = 8;

/// Sightings that make a separate route of a path in a joint route. Each of its neighbours has far fewer.
const APART: u32 = 64;

/// Maximum number of segments of a path that is counted. Sites have fewer than ten, and each one is searched
/// for neighbours.
const MAX_SEGMENTS: usize = 12;

/// Number of neighbours that become one joint route. A folder of scripts has fewer.
const MANY: usize = 32;

/// Minimum digits and length of a key. Hashes and UUIDs have more, and names with a version have fewer.
const DIGITS: usize = 4;
const KEY: usize = 16;

/// Length from which any segment is a key. Names in addresses are shorter, and encoded values are longer.
const LONG: usize = 40;

/// Maximum length of a path that is counted, in bytes.
const LONGEST: usize = 512;

/// Counts of paths and the routes found so far.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    seen: BTreeMap<Pattern, u32>,
    found: Vec<Pattern>,
    /// Per found route, whether it is a joint route of several neighbours.
    wide: Vec<bool>,
}

impl Discovery {
    /// Returns the routes found so far.
    pub fn found(&self) -> &[Pattern] {
        &self.found
    }

    /// Returns whether this route of [`Discovery::found`] is a joint route. Paths that match it must still be
    /// passed to [`Discovery::saw`].
    pub fn is_wide(&self, route: usize) -> bool {
        self.wide.get(route).copied().unwrap_or(false)
    }

    /// Returns whether a new route can only replace an old one.
    pub fn is_full(&self) -> bool {
        self.found.len() >= MAX_FOUND
    }

    /// Counts a request for a canonical path that matched no route, or a joint one. Returns whether this made
    /// a new route. If there is no room, the new route replaces the route `idle`.
    pub fn saw(&mut self, path: &str, idle: Option<usize>) -> bool {
        let Some(pattern) = fold(path) else { return false };
        let mut within = false;
        for (known, wide) in self.found.iter().zip(&self.wide).filter(|(known, _)| known.matches(path, None)) {
            if !wide || *known == pattern {
                return false;
            }
            within = true;
        }
        if self.seen.len() >= MAX_SEEN {
            self.seen.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
        let count = self.seen.entry(pattern.clone()).or_default();
        *count = count.saturating_add(1);
        let (route, wide) = match *count {
            count if count >= if within { APART } else { OFTEN } => (pattern, false),
            _ if within => return false,
            _ => match self.together(&pattern) {
                Some(route) => (route, true),
                None => return false,
            },
        };
        if !self.is_full() {
            self.found.push(route.clone());
            self.wide.push(wide);
        } else if let Some(idle) = idle.filter(|idle| *idle < self.found.len()) {
            self.found[idle] = route.clone();
            self.wide[idle] = wide;
        } else {
            return false;
        }
        self.seen.retain(|seen, _| !covers(&route, seen));
        true
    }

    /// Adds a route that was found elsewhere, if it is new and there is room. `wide` says whether it is a joint route.
    /// Returns whether it was added.
    pub fn add(&mut self, route: &Pattern, wide: bool) -> bool {
        let possible = route.segments.len() <= MAX_SEGMENTS && route.parameters.is_empty();
        let new = possible && !self.is_full() && !self.found.contains(route);
        if new {
            self.found.push(route.clone());
            self.wide.push(wide);
            self.seen.retain(|seen, _| !covers(route, seen));
        }
        new
    }

    /// Returns the joint pattern of this one and its neighbours, if there are many. The last segment is tried
    /// first.
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

/// Returns the path with `*` for segments that look like keys, or `None` for a text that is no path or is too
/// long.
fn fold(path: &str) -> Option<Pattern> {
    let in_flight = path.strip_prefix('/').filter(|_| path.len() <= LONGEST)?;
    let open = |segment: &str| {
        let stem = segment.split_once('.').map_or(segment, |(stem, _)| stem);
        let number = !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_digit());
        let key = segment.len() >= KEY && segment.bytes().filter(u8::is_ascii_digit).count() >= DIGITS;
        number || key || segment.len() >= LONG || segment == "*"
    };
    let segments: Vec<_> = in_flight.split('/').map(|s| if open(s) { None } else { Some(s.to_owned()) }).collect();
    (segments.len() <= MAX_SEGMENTS).then_some(Pattern { segments, parameters: Vec::new() })
}

/// Returns whether `wide` matches everything that `narrow` matches.
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
            discovery.saw(&path, None);
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
        assert_eq!(fold(&format!("/{}", "a/".repeat(MAX_SEGMENTS))), None);
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
            // Three segments that all vary, so that no path has many neighbours.
            discovery.saw(&format!("/{}/{}/{}", name(i), name(i / 7), name(i * 31)), None);
            if i % 50 == 0 {
                discovery.saw("/busy", None);
            }
            assert!(discovery.seen.len() <= MAX_SEEN && discovery.found.len() <= MAX_FOUND);
        }
        assert!(discovery.found().iter().any(|p| p.to_string() == "/busy"));
    }

    #[test]
    fn what_comes_often_takes_the_place_of_what_is_idle() {
        let mut discovery = Discovery::default();
        for strange in 0..MAX_FOUND as u8 {
            let path = format!("/{}/{}/x", char::from(b'a' + strange / 8), char::from(b'a' + strange % 8));
            (0..OFTEN).for_each(|_| _ = discovery.saw(&path, None));
        }
        assert!(discovery.is_full());
        assert!((0..100).all(|_| !discovery.saw("/checkout", None)), "none is idle");
        assert!(discovery.saw("/checkout", Some(3)));
        assert_eq!((discovery.found()[3].to_string().as_str(), discovery.found().len()), ("/checkout", MAX_FOUND));
    }

    #[test]
    fn what_comes_often_leaves_its_neighbours() {
        let mut discovery = Discovery::default();
        let name = |i: usize| format!("/{}{}", char::from(b'a' + (i / 26) as u8), char::from(b'a' + (i % 26) as u8));
        (0..MANY).for_each(|i| _ = discovery.saw(&name(i), None));
        assert_eq!((discovery.found()[0].to_string().as_str(), discovery.is_wide(0)), ("/*", true));
        for _ in 1..APART {
            assert!(!discovery.saw("/search", None));
        }
        assert!(discovery.saw("/search", None) && !discovery.is_wide(1));
        assert_eq!(discovery.found()[1].to_string(), "/search");
        assert!((0..2 * APART).all(|_| !discovery.saw("/search", None)), "it is one already");
    }

    #[test]
    fn deep_paths_are_not_looked_at() {
        let deep = |segments: usize| "/a".repeat(segments);
        assert!(fold(&deep(MAX_SEGMENTS)).is_some() && fold(&deep(MAX_SEGMENTS + 1)).is_none());
    }
}
