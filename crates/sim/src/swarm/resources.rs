//! The family `resources`: scenarios with requests that use processors, disks and network, and with a page
//! table.
//!
//! The family draws equal machines or machines of several sizes, one pool or two (on the same machines, on
//! partly the same, or apart), two to eight classes with weights, and three to eight routes. Requests of
//! nearly all routes are small, some take a tenth of a node and some nearly a whole one. Sometimes a route
//! is missing in the table, or the table is wrong and learned, clients leave, machines are lost and return,
//! or the policy is loaded again. Each class asks for more than its part, for less, or for nothing, and
//! this changes in the next phase.
//!
//! The file has no discipline of its own. `mqos`, `mqos-drfq` and `sqos` are played by their names and
//! share by weights. Under `weirgate` classes have guarantees that fit every resource by the rule of
//! [`super::rule`], in every judged phase and for every set of pools. This family takes no turn among the
//! others, because their scenarios have no page table.

use weirgate_experiment::FaultKind;

use super::draw::Draw;
use super::rule::MAX_OWED;
use super::sketch::{FaultSketch, PhaseSketch, tidy, tidy_down, tidy_up};
use super::table;

/// The number of resources: CPU, disk, link.
pub(super) const RESOURCES: usize = weirgate_wire::RESOURCE_NAMES.len();

/// Maximum number of requests per second of all classes. Runs take about a second.
const MAX_RATE: f64 = 2_500.0;

/// A request is large if few of its kind fit. Costs up to this share of a horizon may grow to reduce the
/// number of requests.
const SMALL: f64 = 0.2;

/// Maximum number of users of a stream. A horizon's work is in flight, and with twice as many users one
/// always waits.
const MAX_USERS: f64 = 500.0;

/// A route and the cost of its requests.
pub(super) struct Route {
    /// Cost by the table per resource, in node-seconds.
    pub(super) cost: [f64; RESOURCES],
    /// The true cost over the cost by the table.
    pub(super) actual: f64,
    /// Whether the table has the route. If not, its class's `cost` applies.
    pub(super) known: bool,
    pub(super) shape: super::sketch::Shape,
}

impl Route {
    /// Returns the true cost.
    pub(super) fn takes(&self) -> [f64; RESOURCES] {
        self.cost.map(|cost| cost * self.actual)
    }

    fn dominant(&self) -> f64 {
        self.cost.into_iter().fold(0.0, f64::max)
    }
}

/// A stream of requests of a class.
pub(super) struct Stream {
    pub(super) route: usize,
    /// Its share of the class's requests.
    pub(super) part: f64,
    /// Whether users send the requests and wait for their replies. If not, requests arrive independently of
    /// replies.
    pub(super) closed: bool,
    /// Patience of the clients, in seconds in addition to the request's own time. `None` is for ever.
    pub(super) patience_s: Option<f64>,
    /// Requests per second, or users, per phase.
    pub(super) volume: Vec<f64>,
}

pub(super) struct Class {
    pub(super) pool: usize,
    pub(super) weight: f64,
    pub(super) streams: Vec<Stream>,
    /// Maximum number of waiting requests.
    pub(super) max_waiting: usize,
    /// Guaranteed requests per second, and the limit on p95 in milliseconds.
    pub(super) guarantee: Option<(f64, f64)>,
}

/// A whole scenario.
pub(super) struct Site {
    pub(super) about: String,
    pub(super) cpus: u32,
    /// Number of servers per machine, which is its weight.
    pub(super) servers: Vec<u32>,
    /// Machines per pool.
    pub(super) pools: Vec<Vec<usize>>,
    pub(super) horizon_ms: f64,
    /// The resource that `sqos` manages.
    pub(super) only: usize,
    pub(super) learned: bool,
    pub(super) routes: Vec<Route>,
    pub(super) classes: Vec<Class>,
    pub(super) phases: Vec<PhaseSketch>,
    pub(super) faults: Vec<FaultSketch>,
}

/// Returns the experiment file of scenario `seed` and a description of its difficulty.
pub(super) fn written(seed: u64, draw: &mut Draw) -> (String, String) {
    let site = site(draw);
    (table::yaml(seed, &site), site.about)
}

fn site(draw: &mut Draw) -> Site {
    let horizon_ms = draw.pick(&[200.0, 300.0, 500.0, 1000.0]);
    let (servers, pools, told) = machines(draw);
    let mut about = vec![told];
    let learned = draw.chance(0.2);
    let routes = routes(horizon_ms / 1e3, learned, draw);
    let (phases, faults, told) = events(servers.len(), draw);
    about.extend(told);
    about.extend(learned.then(|| "a table that is wrong and learned".to_owned()));
    let large = routes.iter().filter(|route| route.dominant() > 0.5 * horizon_ms / 1e3).count();
    about.extend((large > 0).then(|| format!("{large} routes need more than half of a node")));
    let classes = (0..draw.whole(2, 8)).map(|_| class(pools.len(), routes.len(), draw)).collect();
    let (cpus, only) = (draw.pick(&[1, 1, 2, 4]), draw.whole(0, RESOURCES - 1));
    let about = String::new() + &about.join(", ");
    let mut site = Site { about, cpus, servers, pools, horizon_ms, only, learned, routes, classes, phases, faults };
    spread(&mut site);
    volumes(&mut site, draw);
    guarantees(&mut site, draw);
    site
}

fn machines(draw: &mut Draw) -> (Vec<u32>, Vec<Vec<usize>>, String) {
    let count = draw.whole(1, 5);
    let unlike = draw.chance(0.4);
    let servers = (0..count).map(|_| if unlike { draw.pick(&[1, 1, 2, 3]) } else { 1 }).collect();
    let all: Vec<usize> = (0..count).collect();
    let sizes = if unlike { "of several sizes" } else { "alike" };
    let kind = if draw.chance(0.6) { 0 } else { draw.whole(1, 3) };
    let (pools, told) = match kind {
        1 => (vec![all.clone(), all], "two pools on the same machines"),
        2 if count >= 3 => (vec![all[..count - 1].to_vec(), all[1..].to_vec()], "two pools that share machines"),
        2 | 3 if count >= 2 => (vec![all[..count / 2].to_vec(), all[count / 2..].to_vec()], "two separate pools"),
        _ => (vec![all], "one pool"),
    };
    (servers, pools, format!("{count} machines {sizes}, {told}"))
}

fn routes(horizon_s: f64, learned: bool, draw: &mut Draw) -> Vec<Route> {
    let shapes = [super::sketch::Shape::Fixed, super::sketch::Shape::Exponential, super::sketch::Shape::Hyper];
    let missing = draw.chance(0.3);
    let count = draw.whole(3, 8);
    let route = |index: usize, draw: &mut Draw| {
        let known = !(missing && index == 0);
        let max = horizon_s
            * match draw.between(0.0, 1.0) {
                kind if kind < 0.75 => draw.decades(0.01, 0.05),
                kind if kind < 0.9 => draw.decades(0.05, 0.3),
                _ => draw.between(0.6, 0.98),
            };
        let tendency = draw.whole(0, RESOURCES - 1);
        let cost = std::array::from_fn(|resource| match resource {
            resource if resource == tendency => max,
            // Every request needs a processor.
            _ if resource > 0 && draw.chance(0.25) => 0.0,
            _ => max * draw.between(0.05, 1.0),
        });
        let actual = if learned || !known { draw.pick(&[0.5, 1.0, 1.0, 2.0]) } else { 1.0 };
        Route { cost, actual, known, shape: draw.pick(&shapes) }
    };
    (0..count).map(|index| route(index, draw)).collect()
}

fn events(machines: usize, draw: &mut Draw) -> (Vec<PhaseSketch>, Vec<FaultSketch>, Option<String>) {
    let mut until_s = draw.between(50.0, 80.0).round();
    let mut phases = vec![PhaseSketch { name: "first", until_s, judged: true }];
    let (mut faults, mut told) = (Vec::new(), Vec::new());
    if draw.chance(0.35) {
        let from_s = until_s;
        until_s += draw.between(10.0, 25.0).round();
        // Other families test guarantees while machines are missing.
        phases.push(PhaseSketch { name: "lost", until_s, judged: false });
        let kind = match draw.whole(0, 4) {
            0 | 1 => FaultKind::Removed,
            2 => FaultKind::Crash,
            3 => FaultKind::Stall,
            _ => FaultKind::FailFast(0.5),
        };
        let lost = draw.whole(1, machines.div_ceil(2));
        let machines = draw.some(lost, machines);
        told.push(format!("{lost} lost ({kind:?})"));
        faults.push(FaultSketch { kind, from_s, until_s: Some(until_s), machines });
    }
    for name in ["second", "third"].into_iter().take(draw.whole(1, 2)) {
        until_s += draw.between(50.0, 80.0).round();
        phases.push(PhaseSketch { name, until_s, judged: true });
    }
    for _ in 0..if draw.chance(0.3) { draw.whole(1, 3) } else { 0 } {
        let from_s = draw.between(5.0, until_s - 5.0).round();
        faults.push(FaultSketch { kind: FaultKind::Reload, from_s, until_s: None, machines: Vec::new() });
        told.push("a reload".to_owned());
    }
    (phases, faults, (!told.is_empty()).then(|| told.join(", ")))
}

fn class(pools: usize, routes: usize, draw: &mut Draw) -> Class {
    let count = draw.whole(1, 3);
    let chosen = draw.some(count, routes);
    let leaves = draw.chance(0.2);
    let stream = |route: usize, draw: &mut Draw| Stream {
        route,
        part: draw.between(0.3, 1.0),
        closed: draw.chance(0.15),
        patience_s: leaves.then(|| draw.between(0.5, 6.0)),
        volume: Vec::new(),
    };
    let mut streams: Vec<Stream> = chosen.into_iter().map(|route| stream(route, draw)).collect();
    let sum: f64 = streams.iter().map(|stream| stream.part).sum();
    streams.iter_mut().for_each(|stream| stream.part /= sum);
    Class {
        pool: draw.whole(0, pools - 1),
        weight: draw.pick(&[1.0, 1.0, 2.0, 3.0, 4.0, 6.0, 10.0]),
        streams,
        max_waiting: draw.pick(&[50, 500, 5000]),
        guarantee: None,
    }
}

impl Site {
    /// Returns the amount of each resource of a pool's machines.
    fn whole(&self, pool: usize) -> f64 {
        self.pools[pool].iter().map(|machine| f64::from(self.servers[*machine])).sum()
    }

    /// Returns the mean cost by the table of a class's request, in the resource that it uses most.
    fn dominant(&self, class: &Class) -> f64 {
        class.streams.iter().map(|stream| stream.part * self.routes[stream.route].dominant()).sum()
    }

    /// Returns the requests per second that are a class's part of its pool if every class asks for its
    /// part.
    fn due(&self, class: &Class) -> f64 {
        let weights: f64 = self.classes.iter().filter(|c| c.pool == class.pool).map(|c| c.weight).sum();
        self.whole(class.pool) * class.weight / weights / self.dominant(class)
    }
}

/// Makes small requests larger until the request rate is within [`MAX_RATE`].
fn spread(site: &mut Site) {
    let max = SMALL * site.horizon_ms / 1e3;
    while site.classes.iter().map(|class| site.due(class)).sum::<f64>() > MAX_RATE {
        let small = site.routes.iter_mut().filter(|route| route.dominant() < max);
        let mut grown = 0;
        for route in small {
            route.cost.iter_mut().for_each(|cost| *cost *= 1.25);
            grown += 1;
        }
        if grown == 0 {
            break;
        }
    }
    site.routes.iter_mut().for_each(|route| route.cost = route.cost.map(|cost| tidy(cost * 100.0) / 100.0));
}

/// Draws the demand of each class in each phase: more than its part, less, or nothing.
fn volumes(site: &mut Site, draw: &mut Draw) {
    let due: Vec<f64> = site.classes.iter().map(|class| site.due(class)).collect();
    let phases = site.phases.len();
    for (class, due) in site.classes.iter_mut().zip(due) {
        for phase in 0..phases {
            let level = match draw.between(0.0, 1.0) {
                kind if kind < 0.55 => draw.between(1.5, 3.0),
                kind if kind < 0.85 => draw.between(0.2, 0.9),
                _ => 0.0,
            };
            for stream in &mut class.streams {
                let rate = due * level * stream.part;
                // A user's request is in flight for about a second, and the user asks again soon.
                let users = (2.0 * rate).ceil().min(MAX_USERS);
                let volume = if stream.closed { users } else { tidy_down(rate) };
                // The phase of the fault is like the one before it.
                let before = stream.volume.last().copied();
                stream.volume.push(before.filter(|_| site.phases[phase].name == "lost").unwrap_or(volume));
            }
        }
    }
}

/// Draws guarantees that fit every resource for every set of pools, and limits that leave room for the
/// largest requests.
fn guarantees(site: &mut Site, draw: &mut Draw) {
    let mut wanted: Vec<f64> = Vec::new();
    for class in &site.classes {
        wanted.push(if draw.chance(0.7) { site.due(class) * draw.between(0.4, 1.0) } else { 0.0 });
    }
    let takes = |class: &Class| -> [f64; RESOURCES] {
        std::array::from_fn(|resource| {
            let of = |stream: &Stream| stream.part * site.routes[stream.route].takes()[resource];
            class.streams.iter().map(of).sum()
        })
    };
    let mut room = f64::INFINITY;
    for set in 1u32..1 << site.pools.len() {
        let within = |pool: usize| set >> pool & 1 == 1;
        let serves = |machine: &usize| (0..site.pools.len()).any(|p| within(p) && site.pools[p].contains(machine));
        let whole: f64 = (0..site.servers.len()).filter(serves).map(|m| f64::from(site.servers[m])).sum();
        for resource in 0..RESOURCES {
            let classes = site.classes.iter().zip(&wanted).filter(|(class, _)| within(class.pool));
            let owed: f64 = classes.map(|(class, rate)| rate * takes(class)[resource]).sum();
            room = room.min(if owed > 0.0 { whole / owed } else { f64::INFINITY });
        }
    }
    let tight = MAX_OWED * draw.between(0.5, 1.0);
    // The class's own request, and the largest of all requests ahead of it at every stage.
    let longest = |route: &Route| route.takes().iter().sum::<f64>() * 1e3;
    let largest = site.routes.iter().map(longest).fold(0.0, f64::max);
    let limits: Vec<f64> = site
        .classes
        .iter()
        .map(|class| {
            let own = class.streams.iter().map(|stream| longest(&site.routes[stream.route])).fold(0.0, f64::max);
            tidy_up(300.0 + 10.0 * own + 5.0 * largest)
        })
        .collect();
    for ((class, wanted), limit) in site.classes.iter_mut().zip(wanted).zip(limits) {
        let rate = tidy_down(wanted * room * tight);
        class.guarantee = (rate > 0.0).then_some((rate, limit));
    }
}
