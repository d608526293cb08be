//! Sites of several gateways in virtual time, to compare designs that divide a floor between gateways.
//!
//! Requests arrive at random, and the load of a class moves from gateway to gateway, as behind a balancer that changes
//! its mind. Gateways measure their demand as the real one does. Messages are late and lost, gateways are killed,
//! stopped and cut off, etcd is away, and clocks run at different rates. The observer of this module compares the sum
//! of all shares with the floor, and twice what is served with what is owed: as a fluid, where a share covers load at
//! the same instant or never, and by requests that wait for tokens of a share (`queue`).
//!
//! The designs are those of ADR 23: [`Design::Leases`] runs the very machines of `weirgate-site`.

mod central;
mod faults;
mod gossip;
mod leases;
mod network;
mod queue;
mod split;

use std::time::Duration;

use faults::Faults;
pub use faults::Kind as Fault;
use queue::Queue;
use weirgate_emulator::random::Random;
use weirgate_engine::Time;
use weirgate_site::{Demand, Settings};

/// Step of the simulation. Messages take some milliseconds, and nothing else is faster.
const STEP: Duration = Duration::from_millis(1);

/// Interval of the gateways' measurements of demand, in steps: that of the gateway.
const MEASURE: u64 = 25;

/// A shift is followed, and a class is not short, when this part of what is owed is served. Demands that were measured
/// for some tenths of a second are known to a few percent.
const FOLLOWED: f64 = 0.95;

/// Load at the beginning is not judged for so long: the first coordinator is elected, and asks.
const SETTLING: Duration = Duration::from_secs(5);

weirgate_engine::named! {
    /// How the floor is divided.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Design {
        /// Grants by demand, on leases, of an elected coordinator.
        Leases = "leases",
        /// The same, with a tenth of the floor never granted while there is demand for it.
        LeasesWithReserve = "leases, a tenth never granted",
        /// Every gateway has the same share at all times.
        Split = "static split",
        /// Gateways tell one another their demand, and each computes its share.
        Gossip = "gossip",
        /// A coordinator decides on each request.
        Central = "central, per request",
    }
}

/// A site and its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Number of gateways, at least four.
    pub gateways: usize,
    /// Number of classes. The load of each is elsewhere.
    pub classes: usize,
    /// Floor of each class, requests a second.
    pub floor: f64,
    /// Load of each class over all gateways, as a multiple of the floor.
    pub load: f64,
    /// Time between two shifts of load: of 70, 20, 10 and 0 % each part moves to the next gateway.
    pub shift_every: Duration,
    /// Length of a run.
    pub length: Duration,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Delay of a message, from the least to the most.
    pub delay: [Duration; 2],
    /// Part of the messages that are lost.
    pub loss: f64,
    /// Largest difference of a clock's rate from true time.
    pub skew: f64,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            gateways: 4,
            classes: 3,
            floor: 800.0,
            load: 1.2,
            shift_every: Duration::from_secs(10),
            length: Duration::from_secs(65),
            faults: Vec::new(),
            delay: [Duration::from_micros(500), Duration::from_millis(3)],
            loss: 0.0,
            skew: 0.0,
        }
    }
}

impl Scenario {
    /// The scenario in which everything goes wrong: loss of 2 %, slewed clocks, and faults of all kinds.
    pub fn with_faults() -> Scenario {
        Scenario {
            length: Duration::from_secs(185),
            faults: Fault::ALL.to_vec(),
            loss: 0.02,
            skew: 0.08,
            ..Scenario::default()
        }
    }
}

/// What the observer saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Part of what was owed that no share covered at the instant.
    pub floor_error: f64,
    /// Part of the requests that one gateway with the whole floor would have let through, and these did not.
    pub lost: f64,
    /// Largest sum of shares at any instant, as a multiple of the floor.
    pub largest_sum: f64,
    /// Time for which a sum exceeded the floor.
    pub exceeded: Duration,
    /// Longest time for which a class of the living gateways was served less than 95 % of what was owed.
    pub longest_shortfall: Duration,
    /// Time from each shift of load until 95 % of what was owed was served, for each class.
    pub follow: Vec<Duration>,
    /// Messages a second between gateways, of all gateways.
    pub messages_per_s: f64,
    /// Writes and reads of etcd a second, of all gateways.
    pub etcd_per_s: f64,
    /// Delay that the design adds to a request, on average.
    pub added_delay: Duration,
}

/// One design at work.
trait Sharing {
    /// Everything that happens at `site.now`, before shares are asked for.
    fn step(&mut self, site: &mut Site);

    /// The share that a gateway believes to have, requests a second.
    fn share(&self, site: &Site, gateway: usize, class: usize) -> f64;

    /// The process of a gateway has ended.
    fn killed(&mut self, gateway: usize);

    /// A gateway was started again.
    fn started(&mut self, site: &Site, gateway: usize);

    /// Messages that the design sent, and operations of etcd.
    fn sent(&self) -> (u64, u64);

    /// Delay that it adds to a request.
    fn added_delay(&self) -> Duration {
        Duration::ZERO
    }
}

/// State of the gateways that all designs see.
struct Site {
    scenario: Scenario,
    /// True time since the beginning, in nanoseconds.
    now: u64,
    random: Random,
    up: Vec<bool>,
    stopped: Vec<bool>,
    cut: Vec<bool>,
    etcd: bool,
    loss: f64,
    /// Offered and measured load by gateway and class, requests a second.
    offered: Vec<Vec<f64>>,
    measured: Vec<Vec<Demand>>,
    /// Requests that arrive in this step, and those since the last measurement.
    arrived: Vec<Vec<u64>>,
    counted: Vec<Vec<u64>>,
    /// Load until the next arrival, in requests.
    next: Vec<Vec<f64>>,
    /// Rate and beginning of each gateway's clock.
    clocks: Vec<(f64, u64)>,
}

impl Site {
    fn new(scenario: &Scenario, seed: u64) -> Site {
        let mut random = Random::new(seed);
        let clock =
            |random: &mut Random| (1.0 + scenario.skew * (2.0 * random.unit() - 1.0), (random.unit() * 1e15) as u64);
        Site {
            clocks: (0..scenario.gateways).map(|_| clock(&mut random)).collect(),
            scenario: scenario.clone(),
            now: 0,
            random,
            up: vec![true; scenario.gateways],
            stopped: vec![false; scenario.gateways],
            cut: vec![false; scenario.gateways],
            etcd: true,
            loss: scenario.loss,
            offered: vec![vec![0.0; scenario.classes]; scenario.gateways],
            measured: vec![vec![Demand::default(); scenario.classes]; scenario.gateways],
            arrived: vec![vec![0; scenario.classes]; scenario.gateways],
            counted: vec![vec![0; scenario.classes]; scenario.gateways],
            next: vec![vec![1.0; scenario.classes]; scenario.gateways],
        }
    }

    /// What the clock of `gateway` shows.
    fn clock(&self, gateway: usize) -> Time {
        let (rate, beginning) = self.clocks[gateway];
        Time::from_nanos(beginning + (self.now as f64 * rate) as u64)
    }

    /// Whether the processes of `gateway` do anything.
    fn runs(&self, gateway: usize) -> bool {
        self.up[gateway] && !self.stopped[gateway]
    }

    /// Whether `gateway` reaches etcd.
    fn reaches_etcd(&self, gateway: usize) -> bool {
        self.etcd && !self.cut[gateway]
    }

    /// Number of the present shift.
    fn shift(&self) -> u64 {
        self.now / self.scenario.shift_every.as_nanos() as u64
    }

    /// Offers the load of this instant. Clients of a gateway that does not run go to the others.
    fn offer(&mut self) {
        const PARTS: [f64; 4] = [0.7, 0.2, 0.1, 0.0];
        let (gateways, shift) = (self.scenario.gateways, self.shift() as usize);
        let alive = (0..gateways).filter(|gateway| self.runs(*gateway)).count();
        for class in 0..self.scenario.classes {
            let all = self.scenario.floor * self.scenario.load;
            let part = |gateway: usize| {
                let place = (gateway + 4 * gateways - (shift + class) % gateways) % gateways;
                PARTS.get(place).copied().unwrap_or(0.0)
            };
            let dead: f64 = (0..gateways).filter(|gateway| !self.runs(*gateway)).map(part).sum();
            for gateway in 0..gateways {
                let runs = self.runs(gateway);
                self.offered[gateway][class] = if runs { all * (part(gateway) + dead / alive as f64) } else { 0.0 };
            }
        }
    }

    /// Lets requests arrive, as a Poisson process of the offered load.
    fn arrive(&mut self) {
        for gateway in 0..self.scenario.gateways {
            for class in 0..self.scenario.classes {
                let left = &mut self.next[gateway][class];
                *left -= self.offered[gateway][class] * STEP.as_secs_f64();
                let mut arrivals = 0;
                while *left <= 0.0 {
                    *left += self.random.exponential();
                    arrivals += 1;
                }
                self.arrived[gateway][class] = arrivals;
                self.counted[gateway][class] += arrivals;
            }
        }
    }

    /// Ends an interval of the measurement.
    fn measure(&mut self, sharing: &dyn Sharing) {
        for gateway in 0..self.scenario.gateways {
            for class in 0..self.scenario.classes {
                let share = micro(sharing.share(self, gateway, class));
                let count = std::mem::take(&mut self.counted[gateway][class]);
                self.measured[gateway][class].note(count, share, interval());
            }
        }
    }

    /// The measured demand of a gateway for a class, in millionths of a request a second.
    fn demand(&self, gateway: usize, class: usize) -> u64 {
        self.measured[gateway][class].micro_per_s(interval())
    }
}

/// The interval of measurements.
fn interval() -> Duration {
    STEP * MEASURE as u32
}

/// Millionths of a request a second, the unit of `weirgate-site`.
fn micro(rate: f64) -> u64 {
    (rate * 1e6).max(0.0) as u64
}

/// The settings of the site's gateways, whose budgets are the floors.
fn settings(scenario: &Scenario) -> Settings {
    Settings::new(scenario.gateways, vec![micro(scenario.floor); scenario.classes])
}

/// Plays `scenario` under `design`. The same seed gives the same run.
///
/// # Panics
/// If the scenario has less than four gateways or a floor of less than 100 requests a second for 1,000 gateways.
pub fn play(scenario: &Scenario, design: Design, seed: u64) -> Outcome {
    assert!(scenario.gateways >= 4, "the load has four parts");
    let mut site = Site::new(scenario, seed);
    let mut sharing: Box<dyn Sharing> = match design {
        Design::Leases => Box::new(leases::Leases::new(&site, 0)),
        Design::LeasesWithReserve => Box::new(leases::Leases::new(&site, 100_000)),
        Design::Split => Box::new(split::Split),
        Design::Gossip => Box::new(gossip::Gossip::new(&site)),
        Design::Central => Box::new(central::Central::new()),
    };
    let mut faults = Faults::new(scenario, seed);
    let mut observer = Observer::new(scenario);
    let steps = (scenario.length.as_nanos() / STEP.as_nanos()) as u64;
    for step in 0..steps {
        site.now = step * STEP.as_nanos() as u64;
        for (gateway, up) in faults.step(&mut site) {
            if up { sharing.started(&site, gateway) } else { sharing.killed(gateway) }
        }
        site.offer();
        site.arrive();
        if step % MEASURE == MEASURE - 1 {
            site.measure(sharing.as_ref());
        }
        sharing.step(&mut site);
        observer.look(&site, sharing.as_ref());
    }
    let (messages, etcd) = sharing.sent();
    let seconds = scenario.length.as_secs_f64();
    let mut outcome = observer.outcome();
    outcome.messages_per_s = messages as f64 / seconds;
    outcome.etcd_per_s = etcd as f64 / seconds;
    outcome.added_delay = sharing.added_delay();
    outcome
}

/// Sees all gateways at the same instant.
struct Observer {
    outcome: Outcome,
    owed: f64,
    served: f64,
    /// Requests of each class at each gateway, and at a single gateway for comparison.
    queues: Vec<Vec<Queue>>,
    single: Vec<Queue>,
    /// Requests that the single one and all others let through.
    expected: u64,
    passed: u64,
    /// By class: since when too little is served, and since when a shift is not yet followed.
    short_since: Vec<Option<u64>>,
    shifted_at: Vec<Option<u64>>,
    shift: u64,
}

impl Observer {
    fn new(scenario: &Scenario) -> Observer {
        Observer {
            outcome: Outcome::default(),
            owed: 0.0,
            served: 0.0,
            queues: vec![vec![Queue::new(); scenario.classes]; scenario.gateways],
            single: vec![Queue::new(); scenario.classes],
            expected: 0,
            passed: 0,
            short_since: vec![None; scenario.classes],
            shifted_at: vec![None; scenario.classes],
            shift: 0,
        }
    }

    fn look(&mut self, site: &Site, sharing: &dyn Sharing) {
        let floor = site.scenario.floor;
        let settled = site.now >= SETTLING.as_nanos() as u64;
        let shift = site.shift();
        if std::mem::replace(&mut self.shift, shift) != shift {
            self.shifted_at.fill(Some(site.now));
        }
        let mut exceeded = false;
        for class in 0..site.scenario.classes {
            let (mut sum, mut offered, mut served) = (0.0, 0.0, 0.0);
            let (mut arrivals, mut passed) = (0, 0);
            for gateway in (0..site.scenario.gateways).filter(|gateway| site.up[*gateway]) {
                let share = sharing.share(site, gateway, class);
                let arrived = site.arrived[gateway][class];
                arrivals += arrived;
                passed += self.queues[gateway][class].step(site.now, arrived, share);
                sum += share;
                offered += site.offered[gateway][class];
                served += share.min(site.offered[gateway][class]);
            }
            self.outcome.largest_sum = self.outcome.largest_sum.max(sum / floor);
            // Shares are rounded to millionths.
            exceeded |= sum > floor * (1.0 + 1e-9);
            let owed = offered.min(floor);
            let enough = served >= FOLLOWED * owed;
            if enough && let Some(at) = self.shifted_at[class].take() {
                self.outcome.follow.push(Duration::from_nanos(site.now - at));
            }
            let expected = self.single[class].step(site.now, arrivals, floor);
            if !settled {
                continue;
            }
            (self.expected, self.passed) = (self.expected + expected, self.passed + passed);
            self.owed += owed;
            self.served += served.min(owed);
            self.short_since[class] = if enough { None } else { Some(self.short_since[class].unwrap_or(site.now)) };
            let short = self.short_since[class].map_or(0, |since| site.now - since);
            self.outcome.longest_shortfall = self.outcome.longest_shortfall.max(Duration::from_nanos(short));
        }
        self.outcome.exceeded += if exceeded { STEP } else { Duration::ZERO };
    }

    fn outcome(self) -> Outcome {
        Outcome {
            floor_error: 1.0 - self.served / self.owed.max(f64::MIN_POSITIVE),
            lost: 1.0 - self.passed as f64 / self.expected.max(1) as f64,
            ..self.outcome
        }
    }
}
