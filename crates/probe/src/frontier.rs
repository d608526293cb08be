//! Pages of a site still to be visited: found, not yet seen, and allowed.
//!
//! Source: Feng and Lin, Sec. 3.1, which traverses a site completely. Today's sites are unbounded: a shop has
//! a page for each article and each sort order, a calendar one for every future day. So the number of pages
//! and the distance from the home page are limited. Of pages that look alike only a few are visited. Pages
//! look alike if their paths differ only in segments with digits and their parameters have the same names.
//! Their costs are applied to all such pages (`fold`).
//!
//! Links that would end a session or change something are skipped. A GET should do neither, but some do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use url::{Origin, Url, form_urlencoded};
use weirgate_pages::Pattern;

use crate::robots::Robots;

/// Maximum number of visited pages that look alike. Two show whether they cost the same, and more show it
/// better.
const ALIKE: u32 = 4;

/// Maximum length of a visited address, in bytes. Servers refuse longer ones.
const LONGEST: usize = 2048;

/// Words in the path or the query of links that perform an action. Compound words are also found in the forms
/// `sign-out`, `sign_out` and `signOut`. The words are from the routes of web frameworks and from common
/// shops, forums and blogs.
const DOING: [&str; 20] = [
    "logout", "logoff", "signout", "signoff", "delete", "remove", "trash", "destroy", "subscribe", "unsubscribe",
    "add", "addtocart", "edit", "buy", "purchase", "checkout", "cancel", "confirm", "vote", "reset",
];

/// Limits of a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of links from the home page to a page.
    pub depth: u32,
    /// Maximum number of visited pages.
    pub pages: usize,
}

/// Reason for not visiting an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Left {
    /// It is on another server, or not http.
    Elsewhere,
    /// `robots.txt` disallows it.
    Robots,
    /// It is further from the home page than the limit.
    Deep,
    /// Enough pages that look like it are visited.
    Alike,
    /// It would perform an action.
    Doing,
    /// The maximum number of pages is reached.
    Full,
    /// It is too long, or no route could name it: it has a `*`, empty segments, or a repeated parameter.
    Odd,
}

impl Left {
    /// Returns the reason, for people.
    pub fn why(self) -> &'static str {
        match self {
            Left::Elsewhere => "to other servers",
            Left::Robots => "that robots.txt disallows",
            Left::Deep => "beyond --max-depth",
            Left::Alike => "to pages similar to visited ones",
            Left::Doing => "that may act (log out, delete, buy …)",
            Left::Full => "beyond --max-pages",
            Left::Odd => "too long, or that no route could name",
        }
    }
}

impl Left {
    /// Returns the reason for skipping a single page, as the continuation of "the page is".
    pub fn of_page(self) -> &'static str {
        match self {
            Left::Elsewhere => "on another server",
            Left::Robots => "disallowed by robots.txt",
            Left::Deep | Left::Alike | Left::Full => "beyond the bounds of the crawl",
            Left::Doing => {
                "skipped, because its address has a word such as `logout` or `delete`: begin at another \
                            page"
            }
            Left::Odd => "at an address that is too long, or that no route could name: begin at another page",
        }
    }
}

/// Pages found, and pages still to be visited.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Frontier {
    queue: VecDeque<(String, u32)>,
    seen: BTreeSet<String>,
    looks: BTreeMap<String, u32>,
    accepted: usize,
    left: BTreeMap<Left, u64>,
}

impl Frontier {
    /// Offers the address of a page, `depth` links away from the home page. `home` is the origin of the home
    /// page.
    pub fn offer(&mut self, url: &Url, depth: u32, home: &Origin, robots: &Robots, bounds: Bounds) {
        let target = target(url);
        let left = if url.origin() != *home {
            Left::Elsewhere
        } else if let Some(route) = route(&target) {
            // A differently written address is the same page.
            if self.seen.contains(&route) {
                return;
            }
            match self.accept(target, route, depth, robots, bounds) {
                Some(left) => left,
                None => return,
            }
        } else {
            Left::Odd
        };
        *self.left.entry(left).or_default() += 1;
    }

    /// Accepts a page, or returns the reason for skipping it.
    fn accept(&mut self, target: String, route: String, depth: u32, robots: &Robots, bounds: Bounds) -> Option<Left> {
        if depth > bounds.depth {
            return Some(Left::Deep);
        }
        if !robots.allows(&target) {
            return Some(Left::Robots);
        }
        if does_something(&target) {
            return Some(Left::Doing);
        }
        if self.accepted >= bounds.pages {
            return Some(Left::Full);
        }
        let visited = self.looks.entry(look(&target)).or_default();
        if *visited >= ALIKE {
            return Some(Left::Alike);
        }
        // Only visited pages are recorded, so that the set stays as small as the list of pages.
        self.seen.insert(route);
        *visited += 1;
        self.accepted += 1;
        self.queue.push_back((target, depth));
        None
    }

    /// Returns the next page to visit (path and query) and its distance from the home page. The nearest comes
    /// first.
    pub fn take(&mut self) -> Option<(String, u32)> {
        self.queue.pop_front()
    }

    /// Puts back a page that was taken but not visited.
    pub fn put_back(&mut self, target: String, depth: u32) {
        self.queue.push_front((target, depth));
    }

    /// Returns the number of pages still to be visited.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of skipped addresses by reason. An address that is linked twice may count twice.
    pub fn left(&self) -> &BTreeMap<Left, u64> {
        &self.left
    }
}

/// Returns the path and query of an address.
pub fn target(url: &Url) -> String {
    match url.query().filter(|query| !query.is_empty()) {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

/// Returns the route of one page as in a page table, or `None` if no route could identify that page.
pub fn route(target: &str) -> Option<String> {
    let plain = target.len() <= LONGEST && !target.contains('*');
    Pattern::parse(target).ok().filter(|_| plain).map(|pattern| pattern.to_string())
}

/// Returns the part that pages which look alike have in common.
fn look(target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let open = |segment: &str| segment.bytes().any(|byte| byte.is_ascii_digit());
    let segments: Vec<&str> = path.split('/').map(|segment| if open(segment) { "*" } else { segment }).collect();
    let mut names: Vec<&str> = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default()).collect();
    names.sort_unstable();
    names.dedup();
    format!("{}?{}", segments.join("/"), names.join("&"))
}

/// Returns whether an address has one of the words in [`DOING`], also as two consecutive words.
fn does_something(target: &str) -> bool {
    let words = words(target);
    let is_doing = |word: &str| DOING.contains(&word);
    words.iter().any(|word| is_doing(word)) || words.array_windows().any(|[a, b]| is_doing(&format!("{a}{b}")))
}

/// Returns the words of an address in lower case. A word ends at any character that is no letter, also an
/// encoded one, and before a capital letter that follows a small one.
fn words(target: &str) -> Vec<String> {
    let pairs = form_urlencoded::parse(target.as_bytes());
    let decoded: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
    let (mut words, mut was_small) = (vec![String::new()], false);
    for c in decoded.join("&").chars() {
        if !c.is_alphabetic() || (was_small && c.is_uppercase()) {
            words.push(String::new());
        }
        was_small = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphabetic()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { depth: 2, pages: 8 };

    fn frontier(urls: &[(&str, u32)]) -> Frontier {
        let robots = Robots::parse("User-agent: *\nDisallow: /closed\n", "weirgate-probe");
        let home = Url::parse("http://a.test/").expect("a URL");
        let mut frontier = Frontier::default();
        for (url, depth) in urls {
            frontier.offer(&home.join(url).expect("a URL"), *depth, &home.origin(), &robots, BOUNDS);
        }
        frontier
    }

    #[test]
    fn the_nearest_page_is_next_and_each_is_visited_once() {
        let mut frontier = frontier(&[("/", 0), ("/a", 1), ("/b?", 1), ("/a", 2), ("/b", 2), ("/%61", 1)]);
        assert_eq!(
            [0; 4].map(|_| frontier.take()),
            [Some(("/".to_owned(), 0)), Some(("/a".to_owned(), 1)), Some(("/b".to_owned(), 1)), None]
        );
        frontier.put_back("/a".to_owned(), 1);
        assert_eq!((frontier.waiting(), frontier.take()), (1, Some(("/a".to_owned(), 1))));
        assert!(frontier.left().is_empty(), "a page that is linked twice is not left");
    }

    #[test]
    fn what_is_left_is_counted_with_its_reason() {
        let frontier = frontier(&[
            ("http://b.test/", 1),
            ("http://a.test:81/", 1),
            ("https://a.test/", 1),
            ("mailto:x@y.z", 1),
            ("/closed/x", 1),
            ("/far", 3),
            ("/user/logout", 1),
            ("/cart.php?do=Delete&id=3", 1),
            ("/logout.php", 1),
            ("/a*b", 1),
            ("/a//b", 1),
            ("/a?b=1&b=2", 1),
            (&"/x".repeat(2000), 1),
            ("/deleted-scenes", 1),
            ("/address/editorial/signs-of-life?reseting=voters&pay=no", 1),
        ]);
        let left: Vec<(Left, u64)> = frontier.left().iter().map(|(left, count)| (*left, *count)).collect();
        assert_eq!(left, [(Left::Elsewhere, 4), (Left::Robots, 1), (Left::Deep, 1), (Left::Doing, 3), (Left::Odd, 4)]);
        assert_eq!(frontier.waiting(), 2);
    }

    #[test]
    fn what_does_something_is_found_however_it_is_written() {
        for target in [
            "/?add-to-cart=17", "/users/sign_out", "/users/sign-out", "/signOut.do", "/delete_post.php?id=3",
            "/deletePost/3", "/cart?action=remove_item", "/%6Cogout", "/x?do=%64elete", "/x?do%3Ddelete%26y",
            "/post.php?post=3&action=trash", "/DELETE/3", "/cart+buy", "/a%2Flog%20off",
        ] {
            assert!(does_something(target), "{target}");
        }
        assert!(!does_something("/%") && !does_something("/a%zz?%e4") && !does_something(""));
    }

    #[test]
    fn of_pages_that_look_alike_a_few_are_visited() {
        let urls: Vec<String> = (0..100).map(|n| format!("/item/{n}/view?page={n}&sort=up")).collect();
        let urls: Vec<(&str, u32)> = urls.iter().map(|url| (url.as_str(), 1)).collect();
        let frontier = frontier(&urls);
        assert_eq!((frontier.waiting(), frontier.left().get(&Left::Alike)), (4, Some(&96)));
    }

    #[test]
    fn there_is_an_end() {
        let urls: Vec<String> = (0..20).map(|n| format!("/{}", "x".repeat(n + 1))).collect();
        let urls: Vec<(&str, u32)> = urls.iter().map(|url| (url.as_str(), 1)).collect();
        let frontier = frontier(&urls);
        assert_eq!((frontier.waiting(), frontier.left().get(&Left::Full)), (8, Some(&12)));
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let before = frontier(&[("/a", 1), ("/closed", 1)]);
        let text = serde_json::to_string(&before).expect("it is written");
        let mut after: Frontier = serde_json::from_str(&text).expect("it is read");
        assert_eq!((after.take(), after.left()), (Some(("/a".to_owned(), 1)), before.left()));
    }
}
