//! What load to make: classes, phases, rates, demands.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::running::Running;
use crate::random::Distribution;

/// Load of several classes in several phases.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Who sends.
    pub classes: Vec<ClassPlan>,
    /// What is sent when, one after the other.
    pub phases: Vec<Phase>,
    /// The first part of each phase, which is judged apart. 5 s unless the phases are compressed.
    pub settle: Duration,
    /// Time between two [`super::Point`]s.
    pub tick: Duration,
    /// Sending ends after so many requests.
    pub most_requests: u64,
    /// Names the draws of instants and demands.
    pub seed: u64,
}

/// Requests of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassPlan {
    /// Its name.
    pub name: String,
    /// The server.
    pub target: SocketAddr,
    /// The `Host` header.
    pub host: String,
    /// The method. Requests have no body.
    pub method: String,
    /// Further header fields. `{id}` and `{us}` are replaced as in [`Load::path`].
    pub headers: Vec<(String, String)>,
    /// What it is promised.
    pub guarantee: Guarantee,
    /// Most connections at once. A request that finds none free waits for one and counts as delayed.
    pub connections: usize,
    /// After so long since its intended instant a request is given up and its connection closed.
    pub timeout: Duration,
}

/// A stretch of time with steady rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// How long it lasts.
    pub length: Duration,
    /// What each class sends, in the order of [`Plan::classes`].
    pub loads: Vec<Load>,
}

/// What a class sends in a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Requests per second; 0 is none.
    pub rate: f64,
    /// How the instants are spread.
    pub arrivals: Arrivals,
    /// What a request costs the server. Its mean is the actual cost of the floor's judgement.
    pub demand: Distribution,
    /// The request target. `{us}` is replaced by the drawn demand in whole microseconds, `{id}` by a
    /// number that no other request of the run has.
    pub path: String,
}

/// How instants are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Independent of each other, as those of many users.
    Poisson,
    /// Evenly.
    Even,
}

/// What a class is promised; every part is optional.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guarantee {
    /// Least throughput in requests per second.
    pub throughput: Option<f64>,
    /// Largest response time.
    pub response_time: Option<(Statistic, Duration)>,
    /// The agreed cost of a request. A class whose requests cost more is owed its capacity, not its rate.
    pub cost: Option<Duration>,
}

/// Which statistic of the response times is limited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The mean.
    Average,
    /// A percentile, in percent, above 0 and at most 100.
    Percentile(f64),
}

impl fmt::Display for Statistic {
    /// `avg`, `p95`, `p99.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Average => f.write_str("avg"),
            Statistic::Percentile(p) => write!(f, "p{p}"),
        }
    }
}

impl ClassPlan {
    /// GET requests without a guarantee, with their id in `X-Request-Id`. 1,024 connections are as many
    /// requests as a server may have in hand without running out of common descriptor limits; 10 s are
    /// as long as a patient user waits.
    #[must_use]
    pub fn new(name: impl Into<String>, target: SocketAddr, host: impl Into<String>) -> ClassPlan {
        ClassPlan {
            name: name.into(),
            target,
            host: host.into(),
            method: "GET".into(),
            headers: vec![("X-Request-Id".into(), "{id}".into())],
            guarantee: Guarantee::default(),
            connections: 1024,
            timeout: Duration::from_secs(10),
        }
    }
}

impl Phase {
    /// A phase.
    #[must_use]
    pub fn new(name: impl Into<String>, length: Duration, loads: Vec<Load>) -> Phase {
        Phase { name: name.into(), length, loads }
    }
}

impl Load {
    /// Poisson arrivals of so many requests per second.
    #[must_use]
    pub fn poisson(rate: f64, demand: Distribution, path: impl Into<String>) -> Load {
        Load { rate, arrivals: Arrivals::Poisson, demand, path: path.into() }
    }

    /// Evenly spread arrivals of so many requests per second.
    #[must_use]
    pub fn even(rate: f64, demand: Distribution, path: impl Into<String>) -> Load {
        Load { arrivals: Arrivals::Even, ..Load::poisson(rate, demand, path) }
    }
}

/// Why a plan cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPlan(String);

impl fmt::Display for InvalidPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidPlan {}

/// Longest plan: a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Most points of a run: a day of seconds.
const MOST_POINTS: u128 = 86_400;

/// Most classes times phases. Each has histograms of some 100 KiB.
const MOST_TALLIES: usize = 4096;

/// Longest time-out; histograms end there.
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);

impl Plan {
    /// A plan with seed 1, 5 s to settle, a point per second and at most 100 million requests.
    #[must_use]
    pub fn new(classes: Vec<ClassPlan>, phases: Vec<Phase>) -> Plan {
        let (settle, tick) = (Duration::from_secs(5), Duration::from_secs(1));
        Plan { classes, phases, settle, tick, most_requests: 100_000_000, seed: 1 }
    }

    /// The length of all phases together.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.phases.iter().map(|p| p.length).sum()
    }

    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// The first thing found wrong, with the name of the class or phase.
    pub fn validate(&self) -> Result<(), InvalidPlan> {
        let fail = |text: String| Err(InvalidPlan(text));
        if self.classes.is_empty() || self.phases.is_empty() {
            return fail("a plan needs at least one class and one phase".into());
        }
        if self.classes.len().saturating_mul(self.phases.len()) > MOST_TALLIES {
            return fail(format!("classes times phases must not exceed {MOST_TALLIES}"));
        }
        if self.length() > LONGEST {
            return fail(format!("the phases last longer than {} s together", LONGEST.as_secs()));
        }
        if self.tick.is_zero() || self.length().as_nanos() / self.tick.as_nanos() > MOST_POINTS {
            return fail(format!("a tick of {:?} makes more than {MOST_POINTS} points", self.tick));
        }
        for class in &self.classes {
            let texts = [&class.host, &class.method].into_iter();
            let texts = texts.chain(class.headers.iter().flat_map(|(name, value)| [name, value]));
            if texts.clone().any(|t| t.contains(['\r', '\n'])) || class.method.is_empty() || class.method.contains(' ')
            {
                return fail(format!("class {}: method, host and headers must each be one line", class.name));
            }
            if class.connections == 0 {
                return fail(format!("class {}: connections must be at least 1", class.name));
            }
            if class.timeout.is_zero() || class.timeout > LONGEST_TIMEOUT {
                return fail(format!("class {}: a time-out lies within {LONGEST_TIMEOUT:?}", class.name));
            }
            if class.guarantee.throughput.is_some_and(|g| !(g.is_finite() && g > 0.0)) {
                return fail(format!("class {}: throughput must be finite and > 0", class.name));
            }
            if let Some((Statistic::Percentile(p), _)) = class.guarantee.response_time
                && !(p > 0.0 && p <= 100.0)
            {
                return fail(format!("class {}: a percentile lies above 0 and at most at 100", class.name));
            }
        }
        for phase in &self.phases {
            if phase.length.is_zero() {
                return fail(format!("phase {}: its length must be > 0", phase.name));
            }
            if phase.loads.len() != self.classes.len() {
                let (has, want) = (phase.loads.len(), self.classes.len());
                return fail(format!("phase {}: {has} loads for {want} classes", phase.name));
            }
            for (load, class) in phase.loads.iter().zip(&self.classes) {
                if !(load.rate.is_finite() && load.rate >= 0.0) {
                    return fail(format!("phase {}, class {}: the rate must be ≥ 0", phase.name, class.name));
                }
                if !load.path.starts_with('/') || load.path.contains([' ', '\r', '\n']) {
                    return fail(format!(
                        "phase {}, class {}: the path must start with / and have no spaces or line ends",
                        phase.name, class.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Starts to send, on a thread of its own.
    ///
    /// # Errors
    /// The plan is invalid ([`io::ErrorKind::InvalidInput`]), or the system has no thread or descriptor left.
    pub fn start(self) -> io::Result<Running> {
        self.validate().map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        Running::start(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let class = ClassPlan::new("a", ([127, 0, 0, 1], 1).into(), "a.test");
        let load = Load::poisson(1.0, Distribution::ZERO, "/");
        Plan::new(vec![class], vec![Phase::new("p", Duration::from_secs(1), vec![load])])
    }

    #[test]
    fn a_plan_that_makes_no_sense_is_refused_by_name() {
        assert_eq!(plan().validate(), Ok(()));
        type Break = (&'static str, fn(&mut Plan));
        let broken: [Break; 11] = [
            ("at least one class", |p| p.classes.clear()),
            ("at least one class", |p| p.phases.clear()),
            ("class a: connections", |p| p.classes[0].connections = 0),
            ("class a: a time-out", |p| p.classes[0].timeout = Duration::from_secs(1000)),
            ("class a: throughput", |p| p.classes[0].guarantee.throughput = Some(f64::NAN)),
            ("one line", |p| p.classes[0].host = "x\r\nEvil: 1".into()),
            ("phase p: 0 loads for 1", |p| p.phases[0].loads.clear()),
            ("phase p, class a: the rate", |p| p.phases[0].loads[0].rate = -1.0),
            ("phase p, class a: the path", |p| p.phases[0].loads[0].path = "x".into()),
            ("longer than", |p| p.phases[0].length = Duration::from_secs(1_000_000)),
            ("points", |p| p.tick = Duration::from_nanos(1)),
        ];
        for (word, breaks) in broken {
            let mut plan = plan();
            breaks(&mut plan);
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.contains(word), "{error:?} does not say {word:?}");
        }
    }
}
