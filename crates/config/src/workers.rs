//! Workers of a pool: whether they suffice for the guarantees, and whether long requests leave any free.
//!
//! A server works on as many requests at once as it has workers, which a policy states as `max_outstanding`
//! of its nodes. A request that takes longer than another class may wait holds its worker for all of that
//! time. So while long requests hold all workers of a pool, nothing can keep the limits of its other classes
//! (load control can only hold back surplus, not the guaranteed requests of long classes).
//!
//! Source: Little's law for the workers that long requests hold. There is no warning without the necessary
//! numbers: for a pool without `max_outstanding` of each node, and for classes without a `service_time`.

use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_engine::{Class, Policy};
use weirgate_spanned_yaml::errors::listed;
use weirgate_spanned_yaml::unit::{number_text, span_text};

/// Number of workers that a class may hold, in multiples of its average: the default discipline lets a class
/// have this many requests in flight whatever the others need.
const PART: f64 = 1.5;

/// A class that has too few workers, or that may find none within its limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShortOfWorkers {
    /// Index into the policy's classes.
    pub(crate) class: usize,
    /// Description of the problem.
    pub(crate) what: String,
}

/// The workers of one pool, and its classes.
struct PoolWorkers<'p> {
    /// Number of requests that its nodes work on at once, if each of them declares it.
    workers: Option<u32>,
    classes: Vec<&'p Class>,
    /// The longest declared service time.
    longest: Option<Duration>,
    /// Workers that the classes so far need.
    before: f64,
    /// Workers that long requests can hold, and those that the other classes need, by the time from which a request is
    /// long. Generated classes have few different limits.
    divided: BTreeMap<Duration, (f64, f64)>,
}

impl<'p> PoolWorkers<'p> {
    fn all(policy: &'p Policy) -> Vec<PoolWorkers<'p>> {
        let pool = |_| PoolWorkers {
            workers: Some(0),
            classes: Vec::new(),
            longest: None,
            before: 0.0,
            divided: BTreeMap::new(),
        };
        let mut pools: Vec<PoolWorkers<'p>> = policy.pools.iter().map(pool).collect();
        for node in &policy.nodes {
            let workers = &mut pools[node.pool].workers;
            *workers = workers.zip(node.max_outstanding).map(|(sum, max)| sum.saturating_add(max));
        }
        // Nodes that are yet to be discovered have an unknown number of workers.
        for pool in pools.iter_mut().filter(|pool| pool.workers == Some(0)) {
            pool.workers = None;
        }
        for class in policy.all_classes() {
            let pool = &mut pools[class.pool];
            pool.classes.push(class);
            pool.longest = pool.longest.max(class.service_time);
        }
        pools
    }

    /// Returns the classes with requests longer than `slack`.
    fn long(&self, slack: Duration) -> Vec<&'p Class> {
        self.classes.iter().copied().filter(|class| is_longer(class, slack)).collect()
    }

    /// Returns the workers that requests longer than `slack` can hold, and those that the other classes need.
    fn divide(&mut self, slack: Duration) -> (f64, f64) {
        let classes = &self.classes;
        *self.divided.entry(slack).or_insert_with(|| {
            let (long, short): (Vec<&Class>, Vec<&Class>) = classes.iter().partition(|class| is_longer(class, slack));
            let needed = |classes: Vec<&Class>| classes.into_iter().map(needed).sum::<f64>();
            ((PART * needed(long)).max(1.0), needed(short).max(1.0))
        })
    }
}

/// Checks every class with a guaranteed throughput.
pub(crate) fn short_of_workers(policy: &Policy) -> Vec<ShortOfWorkers> {
    let mut pools = PoolWorkers::all(policy);
    let mut found = Vec::new();
    for (index, class) in policy.classes.iter().enumerate() {
        let pool = &mut pools[class.pool];
        let Some(workers) = pool.workers else { continue };
        let before = pool.before;
        pool.before += needed(class);
        if needed(class) > 0.0 && before + needed(class) > f64::from(workers) {
            found.push(ShortOfWorkers { class: index, what: too_many(policy, class, workers, before) });
            continue;
        }
        let Some(slack) = slack(class).filter(|slack| pool.longest.is_some_and(|longest| longest > *slack)) else {
            continue;
        };
        let (held, others) = pool.divide(slack);
        if held + others > f64::from(workers) {
            let long = pool.long(slack);
            found.push(ShortOfWorkers { class: index, what: none_left(policy, class, slack, workers, &long, held) });
        }
    }
    found
}

/// Returns how long a request of the class may wait: its limit minus its service time, if declared.
fn slack(class: &Class) -> Option<Duration> {
    class.guarantee.throughput?;
    let limit = class.guarantee.response_time?.limit;
    Some(limit.saturating_sub(class.service_time.unwrap_or_default()))
}

/// Whether a request of the class holds its worker for longer than `slack`.
fn is_longer(class: &Class, slack: Duration) -> bool {
    class.service_time.is_some_and(|time| time > slack)
}

/// Returns the average number of workers that its guarantee needs, if its service time is declared (Little's law).
fn needed(class: &Class) -> f64 {
    let time = class.service_time.map_or(0.0, |time| time.as_secs_f64());
    class.guarantee.throughput.map_or(0.0, |rate| rate * time)
}

fn too_many(policy: &Policy, class: &Class, workers: u32, before: f64) -> String {
    format!(
        "class {} does not fit: on average its requests need {} of the workers, and pool {} has {} left of {workers} \
         (`max_outstanding` of its nodes)",
        class.name,
        number_text(needed(class)),
        policy.pools[class.pool].name,
        number_text((f64::from(workers) - before).max(0.0)),
    )
}

fn none_left(policy: &Policy, class: &Class, slack: Duration, workers: u32, long: &[&Class], held: f64) -> String {
    let longest = long.iter().filter_map(|class| class.service_time).max().unwrap_or_default();
    format!(
        "class {} may find no worker in time: it can wait for {}, pool {} has {workers} (`max_outstanding` of its nodes), \
         and requests of {} can hold {} of them for up to {}",
        class.name,
        span_text(slack),
        policy.pools[class.pool].name,
        listed(long.iter().map(|class| class.name.as_str())),
        number_text(held.min(f64::from(workers))),
        span_text(longest),
    )
}

#[cfg(test)]
mod tests {
    use crate::load;

    /// Returns the warnings for a policy with one node of this many workers.
    fn warnings(workers: u32, classes: &str) -> Vec<String> {
        let nodes = format!("nodes: [{{ address: \"a:1\", max_outstanding: {workers} }}]");
        let text = format!("listen: 127.0.0.1:80\nupstreams: {{ web: {{ {nodes} }} }}\nclasses:\n{classes}");
        load("t", &text).unwrap_or_else(|e| panic!("{e}")).warning_lines("t")
    }

    fn class(name: &str, service: &str, guarantee: &str) -> String {
        format!(
            "  - {{ name: {name}, match: {{ host: {name} }}, service_time: {service}, guarantee: {{ {guarantee} }} }}\n"
        )
    }

    const REST: &str = "  - { name: rest }\n";

    #[test]
    fn one_worker_is_too_few_beside_a_long_request() {
        let gold = class("gold", "20ms", "throughput: 5/s, response_time: { p95: 200ms }");
        let long = "  - { name: reports, match: { host: reports }, service_time: 8s }\n";
        let told = warnings(1, &(gold.clone() + long + REST));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with(
                "t:4:5: classes[0]: warning: class gold may find no worker in time: it can wait for 180 ms, pool web has 1 \
                 (`max_outstanding` of its nodes), and requests of `reports` can hold 1 of them for up to 8 s"
            ),
            "{told:?}"
        );
        assert!(told[0].contains("an upstream of their own"), "{told:?}");
        assert_eq!(
            warnings(2, &(gold.clone() + long + REST)),
            Vec::<String>::new(),
            "surplus is left out by the gateway"
        );
        let short = long.replace("8s", "100ms");
        assert_eq!(warnings(1, &(gold + &short + REST)), Vec::<String>::new(), "what is short is gone in time");
    }

    #[test]
    fn long_requests_that_are_guaranteed_need_workers_of_their_own() {
        let gold = class("gold", "20ms", "throughput: 5/s, response_time: { p95: 200ms }");
        // 0.5/s × 4 s are two workers on average, and half more at times. With gold, two do not even suffice
        // on average.
        let long = class("reports", "4s", "throughput: 0.5/s");
        for (workers, warned) in [(2, 2), (3, 1), (4, 0)] {
            assert_eq!(warnings(workers, &(gold.clone() + &long + REST)).len(), warned, "{workers} workers");
        }
    }

    #[test]
    fn guarantees_that_hold_more_workers_than_there_are_do_not_fit() {
        let classes = class("a", "100ms", "throughput: 15/s") + &class("b", "100ms", "throughput: 10/s") + REST;
        assert_eq!(warnings(3, &classes), Vec::<String>::new());
        let told = warnings(2, &classes);
        assert_eq!(told.len(), 1, "{told:?}");
        let what = "t:5:5: classes[1]: warning: class b does not fit: on average its requests need 1 of the workers, and pool web \
                    has 0.5 left of 2 (`max_outstanding` of its nodes)";
        assert!(told[0].starts_with(what), "{told:?}");
    }

    #[test]
    fn nothing_is_said_of_what_is_not_stated() {
        let gold =
            "  - { name: gold, match: { host: g }, guarantee: { throughput: 5/s, response_time: { p95: 200ms } } }\n";
        assert_eq!(warnings(1, &(gold.to_owned() + REST)), Vec::<String>::new());
        let long = class("reports", "4s", "throughput: 0.1/s");
        assert_eq!(warnings(1, &(gold.to_owned() + &long + REST)).len(), 1);
        let text =
            format!("listen: 127.0.0.1:80\nupstreams: {{ web: {{ nodes: [\"a:1\"] }} }}\nclasses:\n{gold}{long}{REST}");
        let loaded = load("t", &text).unwrap_or_else(|e| panic!("{e}"));
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }
}
