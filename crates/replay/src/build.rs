//! The experiment that a log makes of a policy: its requests as traces, and machines for its nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_emulator::random::Random;
use weirgate_engine::Policy;
use weirgate_experiment::random::{Purpose, seed_for};
use weirgate_experiment::{
    Distribution, Experiment, Fault, FaultKind, PARTS, Phase, RequestShape, Sender, Source, Traffic, TrafficClass,
};

use crate::cluster::{Measured, machines, measure};
use crate::outages::Outage;
use crate::requests::{Ending, Logged, MAX_REQUESTS, Requests};
use crate::side::{Assigned, NO_ROUTE, Side};

/// Shortest part of a log over which guarantees are judged: the window over which the gateway itself tells whether they
/// are held.
const SHORTEST_PART: Duration = Duration::from_secs(10);

/// Maximum number of such parts. A long log has longer ones, so that the list of misses can be read.
const MAX_PARTS: u32 = 30;

/// Time after the last arrival in which waiting requests can end. The longest wait of a queue is 30 s by default.
const REST: Duration = Duration::from_secs(60);

/// Beginning of the run that is not judged, because the simulated gateway starts empty and has learned nothing. It is
/// the settling time of experiments. A short log is not spent on it: it is at most a tenth of the log.
const START: Duration = Duration::from_secs(5);

/// A log with all that a replay needs to know about it, whatever the policy.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The requests.
    pub requests: Requests,
    /// What they tell about machines and costs.
    pub measured: Measured,
    /// Arrival since the first one, and the number of the request, in order of arrival. A request of a sample occurs as
    /// often as it stands for requests.
    pub arrivals: Vec<(Duration, u32)>,
    /// Time from the first arrival to the end of the last one's nanosecond.
    pub length: Duration,
}

impl Recording {
    /// Computes the costs of the requests and orders them, and fills in those that a sample lacks: between two logged
    /// requests, at random instants, as many as were left out there.
    ///
    /// `recorded` is the policy of the log, as far as it is known. Every machine has `slots` slots, if that is given.
    ///
    /// # Errors
    /// There are no requests, or too many, or none was served.
    pub fn new(requests: Requests, recorded: &Policy, slots: Option<f64>, seed: u64) -> Result<Recording, String> {
        let Some((first, last)) = requests.span() else {
            return Err("there is no request to play in this part of the log".to_owned());
        };
        let arrivals = arrivals(&requests, first, seed)?;
        let measured = measure(&requests, recorded, slots, seed)?;
        Ok(Recording { requests, measured, arrivals, length: Duration::from_nanos(last - first + 1) })
    }
}

fn arrivals(requests: &Requests, first: u64, seed: u64) -> Result<Vec<(Duration, u32)>, String> {
    let count: f64 = requests.all.iter().map(|request| f64::from(request.copies)).sum();
    if count > MAX_REQUESTS as f64 {
        return Err(format!(
            "the log stands for {count:.0} requests, more than {MAX_REQUESTS}; choose a part of it with --from and --to"
        ));
    }
    let mut order: Vec<u32> = (0..requests.all.len() as u32).collect();
    order.sort_by_key(|number| requests.all[*number as usize].at);
    let mut random = Random::new(seed_for(seed, Purpose::Arrivals, usize::MAX));
    let mut arrivals = Vec::with_capacity(count as usize + 1);
    let (mut missing, mut before) = (0.0, first);
    for number in order {
        let Logged { at, copies, .. } = requests.all[number as usize];
        arrivals.push((at - first, number));
        if copies > 1.0 {
            missing += f64::from(copies) - 1.0;
            while missing >= 1.0 {
                missing -= 1.0;
                arrivals.push((before - first + ((at - before) as f64 * random.unit()) as u64, number));
            }
            before = at;
        }
    }
    // Stable, so that equal instants keep the order of the log.
    arrivals.sort_by_key(|(at, _)| *at);
    Ok(arrivals.into_iter().map(|(at, number)| (Duration::from_nanos(at), number)).collect())
}

/// Returns the experiment of `side` with the requests of a log. `assigned` has the class of each of them.
pub fn experiment(side: &Side, recording: &Recording, assigned: &[Assigned]) -> Experiment {
    let Recording { requests, measured, arrivals, length } = recording;
    let Measured { capacities, costs, beside, outages, .. } = measured;
    let (machines, machine_of) = machines(&side.site, capacities);
    let mut streams: BTreeMap<(u32, u32), Stream> = BTreeMap::new();
    for (index, (at, number)) in arrivals.iter().enumerate() {
        let (request, own) = (&requests.all[*number as usize], &assigned[*number as usize]);
        let stream = streams.entry((own.spec, own.route)).or_default();
        stream.instants.push(*at);
        stream.costs.push([costs[*number as usize], *beside, 0, 0, 0]);
        // Requests that a sample lacks come from unknown clients.
        let flow = if request.copies > 1.0 { own.flow ^ (index as u64).rotate_left(32) } else { own.flow };
        // A client that left had had enough by then. Of the others it is not known how long they would have waited.
        let patience = match request.ending {
            Ending::Left => u64::from(request.total).max(1) * 1000,
            _ => u64::MAX,
        };
        stream.senders.push(Sender { key: own.key, flow, patience });
    }
    let until = *length;
    let out = |outage: &Outage| {
        let machine = machines.iter().position(|machine| machine.name == outage.machine)?;
        Some(Fault::plain(FaultKind::Removed, outage.from, outage.until, &[machine]))
    };
    let faults = outages.iter().filter_map(out).collect();
    let traffic = streams.into_iter().map(|((spec, route), stream)| stream.traffic(side, spec as usize, route));
    Experiment {
        name: side.name.clone(),
        traffic: traffic.collect(),
        faults,
        // The delay of the network is a part of the measured times.
        ..Experiment::plain(side.site.clone(), machines, machine_of, phases(until))
    }
}

/// Parts of a log of this length, each with its own verdict.
fn phases(until: Duration) -> Vec<Phase> {
    let phase = |name: String, until, judged| Phase { name, until, judged, x: None };
    let start = START.min(until / 10);
    let parts = ((until - start).div_duration_f64(SHORTEST_PART) as u32).clamp(1, MAX_PARTS);
    let mut phases = vec![phase("start".to_owned(), start, false)];
    let mut from = start;
    for part in 1..=parts {
        let to = if part == parts { until } else { start + (until - start) / parts * part };
        phases.push(phase(format!("{:.0}–{:.0} s", from.as_secs_f64(), to.as_secs_f64()), to, true));
        from = to;
    }
    phases.push(phase("rest".to_owned(), until + REST, false));
    phases.retain(|phase| phase.until > Duration::ZERO);
    phases
}

/// Requests of one class and one route.
#[derive(Default)]
struct Stream {
    instants: Vec<Duration>,
    costs: Vec<[u64; PARTS]>,
    senders: Vec<Sender>,
}

impl Stream {
    fn traffic(self, side: &Side, spec: usize, route: u32) -> Traffic {
        let classes = side.site.policy.classes.len();
        let class = match spec.checked_sub(classes) {
            None => TrafficClass::Class(spec),
            Some(template) => TrafficClass::Template { template, keys: side.keys(template) },
        };
        // The page table finds the route of a stream by its path.
        let pattern = side.site.page_table.as_ref().and_then(|table| table.routes.get(route as usize));
        let path = match pattern {
            Some(route) => Some(route.pattern.to_string()),
            None => side.path_of(NO_ROUTE).map(str::to_owned),
        };
        Traffic {
            traced: self.costs,
            senders: self.senders,
            request: RequestShape { path, ..RequestShape::default() },
            ..Traffic::plain(class, Source::Trace(self.instants), Distribution::Fixed(Duration::ZERO))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_and_are_few() {
        for length in [1, 10, 1_000_000, 9_000_000_000, 36_000_000_000, 100_000_000_000_000] {
            let length = Duration::from_nanos(length);
            let phases = phases(length);
            assert!(phases.windows(2).all(|pair| pair[0].until < pair[1].until && pair[0].name != pair[1].name));
            let judged: Vec<&Phase> = phases.iter().filter(|phase| phase.judged).collect();
            assert!((1..=MAX_PARTS as usize).contains(&judged.len()), "{}", judged.len());
            assert_eq!(judged.last().map(|phase| phase.until), Some(length));
        }
        let names: Vec<String> = phases(Duration::from_secs(36)).into_iter().map(|phase| phase.name).collect();
        assert_eq!(names, ["start", "4–14 s", "14–25 s", "25–36 s", "rest"]);
    }
}
