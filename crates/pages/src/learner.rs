//! Learns the cost of each route's requests from the nodes' use and the requests that they served meanwhile.
//!
//! Source: none of the papers that Weirgate implements. mQoS, Sec. 3.1, measures pages one by one on an idle
//! server. Here every window of a node in production is one equation per resource (`equations.rs`). The
//! [`MAX_APART`] busiest routes are learned separately. The other routes, and requests of no route, share
//! one factor: the ratio of their cost to the table's. A table of thousands of routes therefore still follows
//! a node that becomes slower, and the work per window stays bounded.

mod elsewhere;

pub use elsewhere::Learned;

use crate::equations::{Equations, MAX, Prior};
use crate::slowdown::{ServiceInterval, ServiceIntervals, Usual};
use crate::sums::product;
use crate::windows::Mute;

/// Number of resources that agents report: CPU, disk, bandwidth.
pub const RESOURCES: usize = 3;

/// Maximum number of routes that are learned separately. With this many, a window takes some 20 µs, and a
/// window of a full node takes less than a millisecond. Few sites have more routes that matter.
pub const MAX_APART: usize = 64;

/// Per resource, a part of a node's capacity in a second. 1 is the whole capacity.
pub type Shares = [f64; RESOURCES];

/// Cost assumed for a request without an entry in a table: 1 % of each resource, as for unknown routes.
const ASSUMED: f64 = 0.01;

/// Standard deviation of that assumption. Costs of pages span three orders of magnitude.
const ASSUMED_DEVIATION: f64 = 0.05;

/// Standard deviation of a cost in a table, as a multiple of the cost. Twice the cost covers a cost that
/// triples.
const TABLE_DEVIATION: f64 = 2.0;

/// Minimum standard deviation of a cost in a table, because tables are rounded to percents.
const MIN_DEVIATION: f64 = 0.005;

/// Prior of the use of an idle node. It is small, and it shows when the node is idle. At an even request rate
/// it cannot be told from the cost of requests.
const BACKGROUND: Prior = Prior { cost: 0.0, deviation: 0.01, max: MAX };

/// Prior of the factor of the other routes. With an upper bound, the rest of their cost would go to routes
/// that come at the same time.
const FACTOR: Prior = Prior { cost: 1.0, deviation: TABLE_DEVIATION, max: f64::INFINITY };

/// Minimum cost to which the factor applies, a thousandth of a percent. A multiple of zero is always zero.
const MIN_BASE: f64 = 1e-5;

/// Indices in the equations: the background, the factor of the other routes, then the routes that are learned
/// separately.
const BEHIND: usize = 0;
const OTHERS: usize = 1;
const FIRST: usize = 2;

/// Part of a node's capacity from which it counts as full. Agents and their clocks have errors of a few
/// percent.
const FULL: f64 = 0.95;

/// Windows after which the cost of a route without a table entry counts as found: two minutes, as agents
/// report once a second.
const FOUND: u64 = 120;

/// Time constant with which requests fade from a route's activity, in seconds.
const BUSY_MEMORY: f64 = 120.0;

/// Activity below which a route is idle, in requests: half of the number that makes a route.
const IDLE: f64 = 4.0;

/// Ratio of activities from which a busier route replaces another. The costs of the replaced route are
/// forgotten.
const BUSIER: f64 = 2.0;

/// A completed window of one node, ready to be learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// When it ended, in seconds since some beginning.
    pub until: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// Weight of the node: its capacity relative to a node of weight 1.
    pub weight: f64,
    /// Use per resource, in seconds of a node of weight 1, or the reason why it is unknown.
    pub used: [Result<f64, Mute>; RESOURCES],
    /// Number of requests per route, including parts of requests. `None` stands for requests of no route.
    pub requests: Vec<(Option<u32>, f64)>,
    /// For each of `requests`, the seconds in flight.
    pub in_flight: Vec<f64>,
    /// Requests per second and route in the windows before this one.
    pub before: Vec<(Option<u32>, f64)>,
}

/// Learned state of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Cost of one request.
    pub cost: Shares,
    /// Standard error of each cost, or `None` if no window told anything about the resource.
    pub error: [Option<f64>; RESOURCES],
    /// Cost in the table.
    pub table: Option<Shares>,
    /// Whether the route is learned separately.
    pub apart: bool,
    /// Number of requests that contributed.
    pub requests: f64,
    /// Number of windows with such requests.
    pub windows: u64,
}

#[derive(Clone, Debug)]
struct Route {
    table: Option<Shares>,
    /// The cost that was learned elsewhere. It takes the place of the table.
    elsewhere: Option<Learned>,
    place: Option<usize>,
    /// Activity in requests, which fades, and the time of its last update.
    busy: (f64, f64),
    requests: f64,
    windows: u64,
}

impl Route {
    fn new(table: Option<Shares>) -> Route {
        Route { table, elsewhere: None, place: None, busy: (0.0, 0.0), requests: 0.0, windows: 0 }
    }

    fn busy(&self, at: f64) -> f64 {
        self.busy.0 * (-(at - self.busy.1).max(0.0) / BUSY_MEMORY).exp()
    }

    /// Returns the cost that learning starts from.
    fn start(&self, resource: usize) -> Option<f64> {
        self.elsewhere.and_then(|known| known.cost[resource]).or(self.table.map(|table| table[resource]))
    }

    fn prior(&self, resource: usize) -> Prior {
        match self.start(resource) {
            Some(cost) => Prior { cost, deviation: (TABLE_DEVIATION * cost).max(MIN_DEVIATION), max: MAX },
            None => Prior { cost: ASSUMED, deviation: ASSUMED_DEVIATION, max: MAX },
        }
    }
}

/// Returns the contribution of one request of a route, or of none, to the factor of the others.
fn base(route: Option<&Route>, resource: usize) -> f64 {
    route.and_then(|route| route.start(resource)).map_or(ASSUMED, |cost| cost.max(MIN_BASE))
}

/// Learns the costs of a table's routes.
#[derive(Clone, Debug)]
pub struct Learner {
    routes: Vec<Route>,
    /// The route at each index from [`FIRST`] on.
    apart: Vec<Option<u32>>,
    resources: [Equations; RESOURCES],
    /// Number of windows with information, per resource.
    windows: [u64; RESOURCES],
    usual: Usual,
}

/// Turns the window of a full node into one that tells only the total cost. It has the request mix of the
/// windows `before` it, scaled so that the total by `costs` equals its own.
fn level(row: Vec<f64>, mut before: Vec<f64>, costs: &[f64]) -> Vec<f64> {
    let taken = product(&before, costs);
    if taken <= 0.0 {
        return row;
    }
    let scale = product(&row, costs) / taken;
    before.iter_mut().for_each(|rate| *rate *= scale);
    before
}

impl Learner {
    /// Takes the table's costs of each route, if any.
    pub fn new(routes: impl IntoIterator<Item = Option<Shares>>) -> Learner {
        Learner {
            routes: routes.into_iter().map(Route::new).collect(),
            apart: Vec::new(),
            resources: std::array::from_fn(|_| Equations::new(vec![BACKGROUND, FACTOR])),
            windows: [0; RESOURCES],
            usual: Usual::default(),
        }
    }

    /// Returns the number of routes.
    pub fn routes(&self) -> usize {
        self.routes.len()
    }

    /// Returns the least active route at `at`, if it is less active than a newly found route.
    pub fn idlest(&self, at: f64) -> Option<usize> {
        let busy = self.routes.iter().enumerate().map(|(number, route)| (number, route.busy(at)));
        busy.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, busy)| *busy < IDLE).map(|(number, _)| number)
    }

    /// Counts requests of a route that are in no window because they led to its discovery. The route is then
    /// not idle at `at`.
    pub fn saw(&mut self, route: usize, requests: f64, at: f64) {
        if let Some(route) = self.routes.get_mut(route) {
            route.busy = (route.busy(at) + requests, at);
        }
    }

    /// Adds a route and returns its number.
    pub fn add(&mut self, table: Option<Shares>) -> usize {
        self.routes.push(Route::new(table));
        self.routes.len() - 1
    }

    /// Replaces the table. For each route `routes` has its previous number, if any, and its cost in the
    /// table. Learned costs of routes that stay are kept.
    pub fn replace(&mut self, routes: impl IntoIterator<Item = (Option<usize>, Option<Shares>)>) {
        let mut before: Vec<Option<Route>> = std::mem::take(&mut self.routes).into_iter().map(Some).collect();
        for (was, table) in routes {
            let kept = was.and_then(|was| before.get_mut(was)?.take());
            self.routes.push(kept.map_or_else(|| Route::new(table), |route| Route { table, ..route }));
        }
        for place in before.into_iter().flatten().filter_map(|gone| gone.place) {
            self.free(place);
        }
        for (number, route) in self.routes.iter().enumerate() {
            if let Some(place) = route.place {
                self.apart[place - FIRST] = u32::try_from(number).ok();
                for (resource, equations) in self.resources.iter_mut().enumerate() {
                    equations.set_prior(place, route.prior(resource));
                }
            }
        }
    }

    /// Adjusts to a new capacity of a resource. All costs are multiplied by `factor`, or forgotten if it is
    /// unknown.
    pub(crate) fn rescale(&mut self, resource: usize, factor: Option<f64>) {
        if let Some(factor) = factor {
            return self.resources[resource].scale(factor);
        }
        let elsewhere = self.routes.iter_mut().filter_map(|route| route.elsewhere.as_mut());
        elsewhere.for_each(|known| known.cost[resource] = None);
        let nothing = Prior { cost: 0.0, deviation: ASSUMED_DEVIATION, max: MAX };
        let place = |route: &Option<u32>| route.map_or(nothing, |route| self.routes[route as usize].prior(resource));
        let priors: Vec<Prior> = [BACKGROUND, FACTOR].into_iter().chain(self.apart.iter().map(place)).collect();
        self.resources[resource] = Equations::new(priors);
        self.windows[resource] = 0;
    }

    /// Learns from a window. A window without length is ignored.
    pub fn learn(&mut self, window: &Window) {
        if window.seconds <= 0.0 {
            return;
        }
        for (route, count) in &window.requests {
            let known = route.and_then(|route| Some((route, self.routes.get_mut(route as usize)?)));
            let Some((number, route)) = known else { continue };
            route.busy = (route.busy(window.until) + count, window.until);
            route.requests += count;
            route.windows += 1;
            if route.place.is_none() {
                self.find_place(number, window.until);
            }
        }
        let intervals = self.intervals(window);
        let rates: Vec<(Option<u32>, f64)> =
            window.requests.iter().map(|(route, count)| (*route, count / window.seconds)).collect();
        for (resource, used) in window.used.iter().enumerate() {
            let Ok(used) = *used else { continue };
            let used = used / window.seconds;
            let mut row = self.row(&rates, resource);
            self.windows[resource] += 1;
            let equations = &self.resources[resource];
            if used < FULL * window.weight {
                row[BEHIND] = 1.0;
                self.resources[resource].learn(window.until, window.seconds, &row, used);
                continue;
            }
            let used = (used - equations.costs()[BEHIND]).max(0.0);
            let missing = used - product(&row, equations.settled());
            let told = self.usual.suspicion(&intervals, resource, &row, equations.settled(), missing);
            let firm: Vec<bool> = (0..row.len()).map(|place| row[place] == 0.0 || self.is_firm(place)).collect();
            let row = match firm.iter().all(|firm| *firm) {
                true => level(row, self.row(&window.before, resource), equations.costs()),
                // An unknown cost has to be learned from somewhere, and chance is better than a guess.
                false => row,
            };
            let equations = &mut self.resources[resource];
            equations.suspect(window.seconds, &told);
            equations.learn_level(window.until, window.seconds, &row, used, &firm);
        }
    }

    /// Returns whether the cost at this index is more than a guess.
    fn is_firm(&self, place: usize) -> bool {
        let route = place.checked_sub(FIRST).and_then(|at| self.routes.get(self.apart[at]? as usize));
        route.is_none_or(|route| route.table.is_some() || route.elsewhere.is_some() || route.windows >= FOUND)
    }

    /// Returns the coefficients of these request rates in the equations of a resource.
    fn row(&self, rates: &[(Option<u32>, f64)], resource: usize) -> Vec<f64> {
        let mut row = vec![0.0; FIRST + self.apart.len()];
        for (route, rate) in rates {
            let route = route.and_then(|route| self.routes.get(route as usize));
            match route.and_then(|route| route.place) {
                Some(place) => row[place] += rate,
                None => row[OTHERS] += rate * base(route, resource),
            }
        }
        row
    }

    /// Returns the service times in a window.
    fn intervals(&mut self, window: &Window) -> ServiceIntervals {
        let utilisation = window.used.map(|used| used.map_or(0.0, |used| used / window.seconds / window.weight));
        let interval = |((route, requests), in_flight): (&(Option<u32>, f64), &f64)| {
            let place = self.routes.get((*route)? as usize)?.place?;
            let costs = std::array::from_fn(|resource| self.resources[resource].costs()[place]);
            let seconds = in_flight / requests;
            (seconds > 0.0 && seconds.is_finite()).then_some(ServiceInterval {
                place,
                requests: *requests,
                seconds,
                costs,
            })
        };
        let routes = window.requests.iter().zip(&window.in_flight).filter_map(interval).collect();
        let intervals = ServiceIntervals { utilisation, full: FULL, routes };
        if utilisation.iter().any(|used| *used >= FULL) {
            self.usual.watch(window.seconds, &intervals);
        }
        intervals
    }

    /// Assigns a free index to a route, or the index of a much less active one.
    fn find_place(&mut self, number: u32, at: f64) {
        let route = &self.routes[number as usize];
        let priors: [Prior; RESOURCES] = std::array::from_fn(|resource| route.prior(resource));
        let min = self
            .apart
            .iter()
            .enumerate()
            .map(|(place, route)| (place, route.map_or(-1.0, |route| self.routes[route as usize].busy(at))));
        let min = min.min_by(|a, b| a.1.total_cmp(&b.1));
        let place = match min {
            Some((place, busy)) if busy < 0.0 => FIRST + place,
            _ if self.apart.len() < MAX_APART => {
                self.apart.push(None);
                self.resources.iter_mut().zip(priors).for_each(|(equations, prior)| equations.push(prior));
                FIRST + self.apart.len() - 1
            }
            Some((place, busy)) if route.busy(at) > BUSIER * busy => {
                let loser = self.apart[place].map(|route| &mut self.routes[route as usize]);
                if let Some(loser) = loser {
                    loser.place = None;
                }
                FIRST + place
            }
            _ => return,
        };
        self.resources.iter_mut().zip(priors).for_each(|(equations, prior)| equations.reset(place, prior));
        self.usual.reset(place);
        self.apart[place - FIRST] = Some(number);
        let route = &mut self.routes[number as usize];
        (route.place, route.requests, route.windows) = (Some(place), 0.0, 0);
    }

    fn free(&mut self, place: usize) {
        self.apart[place - FIRST] = None;
        let nothing = Prior { cost: 0.0, deviation: ASSUMED_DEVIATION, max: MAX };
        self.resources.iter_mut().for_each(|equations| equations.reset(place, nothing));
    }

    /// Returns the cost of a route's request, or `None` if neither the table nor any request tells it.
    pub fn cost(&self, route: usize) -> Option<Shares> {
        let route = self.routes.get(route)?;
        if route.table.is_none() && route.elsewhere.is_none() && route.windows == 0 {
            return None;
        }
        Some(std::array::from_fn(|resource| {
            let costs = self.resources[resource].costs();
            match (route.place, route.start(resource)) {
                // Without a window and a cost to start from, the cost is assumed to be 0.
                (_, None) if self.windows[resource] == 0 => 0.0,
                (Some(place), _) => costs[place],
                (None, _) => costs[OTHERS] * base(Some(route), resource),
            }
        }))
    }

    /// Returns the use of an idle node per second.
    pub fn background(&self) -> Shares {
        std::array::from_fn(|resource| self.resources[resource].costs()[BEHIND])
    }

    /// Returns the state of all routes. It takes far longer than a window, so call it for display and not for
    /// every request.
    pub fn estimates(&self) -> Vec<Estimate> {
        let errors: [Vec<f64>; RESOURCES] = std::array::from_fn(|resource| self.resources[resource].deviations());
        let one = |(number, route): (usize, &Route)| Estimate {
            cost: self.cost(number).unwrap_or([ASSUMED; RESOURCES]),
            error: std::array::from_fn(|resource| {
                let error = route.place.map_or_else(
                    || errors[resource][OTHERS] * base(Some(route), resource),
                    |place| errors[resource][place],
                );
                (self.windows[resource] > 0).then_some(error)
            }),
            table: route.table,
            apart: route.place.is_some(),
            requests: route.requests,
            windows: route.windows,
        };
        self.routes.iter().enumerate().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of one second: requests per route, and the CPU cost of them and of the node itself.
    pub(super) fn second(at: f64, counts: &[f64], costs: &[f64]) -> Window {
        let used = 0.01 + counts.iter().zip(costs).map(|(count, cost)| count * cost).sum::<f64>();
        let requests: Vec<_> =
            (0u32..).map(Some).zip(counts.iter().copied()).filter(|(_, count)| *count > 0.0).collect();
        let used = [Ok(used), Err(Mute::NoCounter), Err(Mute::NoCounter)];
        let in_flight = vec![0.0; requests.len()];
        // The node is never full, so its use is taken literally.
        Window { until: at, seconds: 1.0, weight: 100.0, used, requests, in_flight, before: Vec::new() }
    }

    /// Returns pseudo-random counts from zero to twice the mean.
    pub(super) fn mix(at: usize, route: usize, mean: f64) -> f64 {
        let mixed = ((at * 1009 + route) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mean * 2.0 * ((mixed ^ (mixed >> 29)) >> 11) as f64 / (1u64 << 53) as f64).round()
    }

    pub(super) fn cpu(learner: &Learner, route: usize) -> f64 {
        learner.cost(route).expect("it is known")[0]
    }

    #[test]
    fn the_busiest_are_learned_apart_and_the_others_together() {
        // All requests cost twice as much as in the table, and those of the first three routes three times as
        // much.
        let table: Vec<f64> = (0..200).map(|route| 0.0002 + 0.000_01 * f64::from(route % 7)).collect();
        let actual: Vec<f64> = table.iter().enumerate().map(|(r, c)| c * if r < 3 { 3.0 } else { 2.0 }).collect();
        let mut learner = Learner::new(table.iter().map(|cost| Some([*cost, 0.02, 0.0])));
        for at in 0..400 {
            let counts: Vec<f64> = (0..200).map(|r| mix(at, r, if r < 10 { 30.0 } else { 3.0 })).collect();
            learner.learn(&second(at as f64, &counts, &actual));
        }
        let estimates = learner.estimates();
        assert_eq!(estimates.iter().filter(|estimate| estimate.apart).count(), MAX_APART);
        assert!(estimates[..10].iter().all(|estimate| estimate.apart), "the busy ones are");
        for (route, actual) in actual.iter().enumerate().filter(|(route, _)| *route < 3 || !estimates[*route].apart) {
            assert!((cpu(&learner, route) / actual - 1.0).abs() < 0.2, "{route}: {:?} {actual}", estimates[route]);
        }
        let first = &estimates[0];
        assert_eq!((first.cost[1], first.cost[2], first.error[1]), (0.02, 0.0, None), "nobody said anything of these");
        assert!(first.windows > 380 && first.table == Some([table[0], 0.02, 0.0]), "{first:?}");
        assert!(first.error[0].is_some_and(|error| error > 0.0 && error < 0.1 * first.cost[0]), "{first:?}");
    }

    #[test]
    fn a_route_that_gets_busy_takes_the_place_of_one_that_is_not() {
        let mut learner = Learner::new((0..=MAX_APART).map(|_| Some([0.001; RESOURCES])));
        let costs = vec![0.001; MAX_APART + 1];
        let late = MAX_APART;
        for at in 0..600 {
            let counts: Vec<f64> = (0..=late)
                .map(|route| match (route, at) {
                    (0, 200..) => 0.0,
                    (_, 200..) if route == late => mix(at, route, 40.0),
                    _ if route == late => 0.0,
                    _ => mix(at, route, 10.0),
                })
                .collect();
            learner.learn(&second(at as f64, &counts, &costs));
        }
        let estimates = learner.estimates();
        assert_eq!((estimates[0].apart, estimates[late].apart), (false, true));
        assert!((cpu(&learner, late) / 0.001 - 1.0).abs() < 0.2, "{:?}", estimates[late]);
    }

    #[test]
    fn requests_of_no_route_may_be_ten_times_as_dear_as_is_assumed() {
        // A search that is in no table, and pages that each bring six assets.
        let mut learner = Learner::new([Some([0.002; RESOURCES]), Some([0.000_1; RESOURCES])]);
        for at in 0..300 {
            let (searches, pages) = (mix(at, 2, 2.0), mix(at, 0, 10.0));
            let mut window = second(at as f64, &[pages, 6.0 * pages], &[0.002, 0.000_1]);
            window.requests.push((None, searches));
            window.in_flight.push(0.0);
            window.used[0] = window.used[0].map(|used| used + 0.1 * searches);
            learner.learn(&window);
        }
        let costs = [cpu(&learner, 0) + 6.0 * cpu(&learner, 1), cpu(&learner, 1)];
        assert!((costs[0] / 0.002_6 - 1.0).abs() < 0.3 && costs[1] < 0.000_5, "{costs:?}");
        let unknown = learner.add(Some([ASSUMED; RESOURCES]));
        assert!((cpu(&learner, unknown) / 0.1 - 1.0).abs() < 0.1, "{}", cpu(&learner, unknown));
    }

    #[test]
    fn the_route_that_had_no_requests_for_long_is_the_idlest() {
        let mut learner = Learner::new([None, None]);
        (0..100).for_each(|at| learner.learn(&second(at as f64, &[2.0, if at < 10 { 2.0 } else { 0.0 }], &[0.01; 2])));
        assert_eq!(learner.idlest(100.0), None, "not yet");
        assert_eq!((learner.idlest(500.0), learner.idlest(5_000.0)), (Some(1), Some(1)));
        learner.saw(1, 8.0, 5_000.0);
        assert_eq!(learner.idlest(5_000.0), Some(0), "it was just found");
    }

    #[test]
    fn another_table_keeps_what_was_learned_of_routes_that_stay() {
        let costs = [0.004, 0.001];
        let mut learner = Learner::new([Some([0.001; RESOURCES]), None]);
        assert_eq!(learner.cost(1), None, "nobody knows");
        for at in 0..100 {
            learner.learn(&second(at as f64, &[mix(at, 0, 20.0), mix(at, 1, 50.0)], &costs));
        }
        let (before, found) = (cpu(&learner, 0), cpu(&learner, 1));
        assert!((before / 0.004 - 1.0).abs() < 0.1 && (found / 0.001 - 1.0).abs() < 0.1, "{before} {found}");
        learner.replace([(None, Some([0.5; RESOURCES])), (Some(0), Some([0.002; RESOURCES]))]);
        assert_eq!((cpu(&learner, 0), cpu(&learner, 1)), (0.5, before));
        let added = learner.add(None);
        assert_eq!((added, learner.cost(added), learner.cost(99)), (2, None, None));
        for at in 100..200 {
            learner.learn(&second(at as f64, &[0.0, mix(at, 0, 20.0), mix(at, 1, 50.0)], &[0.0, 0.004, 0.001]));
        }
        assert!((cpu(&learner, 1) / 0.004 - 1.0).abs() < 0.1 && (cpu(&learner, added) / 0.001 - 1.0).abs() < 0.1);
    }
}
