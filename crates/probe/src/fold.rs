//! Folding of routes with similar costs into one pattern.
//!
//! The paper's page table has a line for each page. A site with a page for each article needs one line for
//! all of them, including pages that have not been seen. So pages become one route if their addresses differ
//! in one parameter's value or in one path segment, and their costs are similar. The route has `*` in that
//! position. A page with a different cost keeps its own line, which is more specific than the pattern and
//! therefore takes precedence.

use std::collections::BTreeMap;
use std::fmt;

/// Maximum difference between costs of similar pages, as a fraction of the larger one. Articles differ in
/// length.
const ALIKE: f64 = 0.25;

/// Maximum difference between small shares, as a fraction of the page's largest share.
const SMALL: f64 = 0.05;

/// Minimum number of word segments that stand for a variable (names of albums, for example). Two may be two
/// programs. Numbered segments that are otherwise equal (`photo1`, `photo2`) need no third.
const WORDS: usize = 3;

/// A route and the cost of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    segments: Vec<Option<String>>,
    /// Parameters, sorted by name.
    parameters: Vec<(String, Option<String>)>,
    /// Cost for each resource, as a fraction of the server's capacity per second.
    pub share: [f64; 3],
    /// Confidence in the cost, from 0 to 1: the minimum over its pages.
    pub confidence: f64,
    /// Number of requests in the measurement.
    pub samples: u32,
}

impl Route {
    /// Creates the route of one page from its canonical path and query.
    pub fn of(target: &str, share: [f64; 3], confidence: f64, samples: u32) -> Route {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.strip_prefix('/').unwrap_or(path);
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let mut parameters: Vec<(String, Option<String>)> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .collect();
        // For a repeated name the first value counts, as in the gateway.
        parameters.sort_by(|a, b| a.0.cmp(&b.0));
        parameters.dedup_by(|later, first| later.0 == first.0);
        let segments = path.split('/').map(|segment| Some(segment.to_owned())).collect();
        Route { segments, parameters, share, confidence, samples }
    }

    /// Returns the resource with the largest share, or the first of several equal ones.
    pub fn tendency(&self) -> usize {
        (1..3).fold(0, |max, at| if self.share[at] > self.share[max] { at } else { max })
    }

    fn dominant(&self) -> f64 {
        self.share[self.tendency()]
    }

    fn is_like(&self, other: &Route) -> bool {
        let small = SMALL * self.dominant().max(other.dominant());
        (0..3).all(|at| {
            let (a, b) = (self.share[at], other.share[at]);
            (a - b).abs() <= (ALIKE * a.max(b)).max(small)
        })
    }

    fn place(&mut self, at: usize) -> Option<&mut Option<String>> {
        let parameters = self.parameters.len();
        match at < parameters {
            true => self.parameters.get_mut(at).map(|(_, value)| value),
            // Starts at the end of the path, because differences there matter least for the site's structure.
            false => self.segments.iter_mut().rev().nth(at - parameters),
        }
    }

    /// Returns the route with one position replaced by a wildcard, and the previous value of that position.
    fn opened(&self, at: usize) -> Option<(Route, Option<String>)> {
        let mut route = self.clone();
        let value = route.place(at)?.take();
        Some((route, value))
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        weirgate_pages::write_route(f, &self.segments, &self.parameters)
    }
}

/// Folds routes into patterns, sorted.
pub fn fold(mut routes: Vec<Route>) -> Vec<Route> {
    let places = routes.iter().map(|route| route.parameters.len() + route.segments.len()).max().unwrap_or(0);
    for place in 0..places {
        routes = fold_place(routes, place);
    }
    routes.sort_by_key(ToString::to_string);
    routes.dedup_by_key(|route| route.to_string());
    routes
}

/// Folds routes that differ in one position.
fn fold_place(routes: Vec<Route>, place: usize) -> Vec<Route> {
    let mut groups: BTreeMap<String, Vec<(Route, Option<String>)>> = BTreeMap::new();
    let mut folded = Vec::new();
    for route in routes {
        match route.opened(place) {
            Some((open, value)) => groups.entry(open.to_string()).or_default().push((route, value)),
            None => folded.push(route),
        }
    }
    for (_, group) in groups {
        let is_segment = group.first().is_some_and(|(route, _)| place >= route.parameters.len());
        let root = group.first().is_some_and(|(route, _)| route.segments.len() == 1);
        // The largest set of routes that are similar to one of its members.
        let like = |one: &Route| group.iter().filter(|(other, _)| one.is_like(other)).count();
        let centre = group.iter().map(|(route, _)| (like(route), route)).rev().max_by_key(|(count, _)| *count);
        let Some((_, centre)) = centre else { continue };
        let (alike, others): (Vec<_>, Vec<_>) = group.iter().cloned().partition(|(route, _)| centre.is_like(route));
        let values: Option<Vec<&str>> = alike.iter().map(|(_, value)| value.as_deref()).collect();
        let is_open = values.is_some_and(|values| {
            values.len() > 1
                && others.iter().all(|(_, value)| value.is_some())
                && (!is_segment || are_one(&values, root))
        });
        match is_open {
            true => {
                folded.extend(others.into_iter().map(|(route, _)| route));
                let open = alike.first().and_then(|(route, _)| route.opened(place)).map(|(open, _)| open);
                folded.extend(open.map(|open| mean(open, alike.iter().map(|(route, _)| route))));
            }
            false => folded.extend(group.into_iter().map(|(route, _)| route)),
        }
    }
    folded
}

/// Returns whether segments name things of one kind.
fn are_one(values: &[&str], at_root: bool) -> bool {
    let stem = |value: &str| value.replace(|c: char| c.is_ascii_digit(), "");
    let numbered = |value: &str| value.bytes().any(|byte| byte.is_ascii_digit());
    let stems_equal = values.iter().all(|value| numbered(value) && stem(value) == stem(values[0]));
    let ending = |value: &str| value.rsplit_once('.').map(|(_, ending)| ending.to_owned());
    let endings_equal = values.iter().all(|value| ending(value) == ending(values[0]) && !value.is_empty());
    stems_equal || (!at_root && endings_equal && values.len() >= WORDS)
}

/// Returns `open` with the mean cost of the routes that it replaces.
fn mean<'a>(mut open: Route, of: impl Iterator<Item = &'a Route> + Clone) -> Route {
    let samples: u32 = of.clone().map(|route| route.samples).sum();
    let weight = |route: &Route| f64::from(route.samples) / f64::from(samples.max(1));
    open.share = [0, 1, 2].map(|at| of.clone().map(|route| route.share[at] * weight(route)).sum());
    open.confidence = of.map(|route| route.confidence).fold(1.0, f64::min);
    open.samples = samples;
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(pages: &[(&str, [f64; 3])]) -> Vec<String> {
        let routes = pages.iter().map(|(target, share)| Route::of(target, *share, 0.99, 10)).collect();
        fold(routes).iter().map(ToString::to_string).collect()
    }

    const CPU: [f64; 3] = [0.02, 0.0, 0.001];
    const DISK: [f64; 3] = [0.005, 0.04, 0.002];

    #[test]
    fn values_of_parameters_fold() {
        let pages = [("/item.php?id=1", CPU), ("/item.php?id=2", CPU), ("/item.php?id=2&x=1", CPU), ("/item.php", CPU)];
        assert_eq!(folded(&pages), ["/item.php", "/item.php?id=*", "/item.php?id=2&x=1"]);
    }

    #[test]
    fn what_costs_differently_stays_apart() {
        let triple = CPU.map(|share| share * 3.0);
        let pages = [("/m?n=1", CPU), ("/m?n=2", CPU), ("/m?n=3", triple), ("/o?n=1", CPU), ("/o?n=2", triple)];
        assert_eq!(folded(&pages), ["/m?n=*", "/m?n=3", "/o?n=1", "/o?n=2"]);
        let two = [("/m?n=1", CPU), ("/m?n=2", CPU), ("/m?n=3", triple), ("/m?n=4", triple)];
        assert_eq!(folded(&two), ["/m?n=*", "/m?n=3", "/m?n=4"], "one pattern a place");
    }

    #[test]
    fn several_places_fold_one_after_the_other() {
        let pages = [
            ("/album/1/photo.php?size=s", DISK),
            ("/album/1/photo.php?size=m", DISK),
            ("/album/2/photo.php?size=s", DISK),
            ("/album/2/photo.php?size=m", DISK),
        ];
        assert_eq!(folded(&pages), ["/album/*/photo.php?size=*"]);
    }

    #[test]
    fn segments_fold_if_they_name_one_kind_of_thing() {
        assert_eq!(folded(&[("/p/photo1.jpg", DISK), ("/p/photo22.jpg", DISK)]), ["/p/*"]);
        assert_eq!(folded(&[("/1", DISK), ("/2", DISK)]), ["/*"]);
        assert_eq!(folded(&[("/math", CPU), ("/stat", CPU), ("/graph", CPU)]), ["/graph", "/math", "/stat"]);
        assert_eq!(folded(&[("/album/sea", CPU), ("/album/land", CPU)]), ["/album/land", "/album/sea"]);
        assert_eq!(folded(&[("/album/sea", CPU), ("/album/land", CPU), ("/album/sky", CPU)]), ["/album/*"]);
        let files = [("/f/a.css", CPU), ("/f/b.js", CPU), ("/f/c.png", CPU), ("/f/", CPU)];
        assert_eq!(folded(&files).len(), 4);
    }

    #[test]
    fn a_pattern_has_the_mean_of_its_pages_and_the_worst_confidence() {
        let routes =
            vec![Route::of("/a?n=1", [0.010, 0.0, 0.0], 0.99, 30), Route::of("/a?n=2", [0.012, 0.0, 0.0], 0.95, 10)];
        let [route] = fold(routes).try_into().expect("one");
        assert!((route.share[0] - 0.0105).abs() < 1e-12, "{route:?}");
        assert_eq!((route.confidence, route.samples, route.tendency()), (0.95, 40, 0));
        assert_eq!(Route::of("/", [0.1, 0.2, 0.2], 1.0, 1).tendency(), 1, "the first of equals");
    }

    #[test]
    fn a_page_that_is_sent_twice_is_one_route() {
        assert_eq!(folded(&[("/a?b=1&b=2", CPU), ("/a?b=1&b=3", DISK), ("/a?flag", CPU)]), ["/a?b=1", "/a?flag"]);
    }
}
