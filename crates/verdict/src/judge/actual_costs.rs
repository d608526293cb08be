//! Actual costs of a route's requests at a node: the means of the distributions from which the streams of
//! the route are drawn.
//!
//! Between two instants at which the experiment changes something, the actual cost of a route is the mean
//! over its streams, weighted by the number of requests released there. Under load control, a class that is
//! admitted more often weighs more. The cost is linear in time, and constant unless a demand is changing.
//! Costs are fractions as in the page table: of the capacity that a node of weight 1 has in a second, where
//! a CPU of half the speed is occupied for twice as long. For machines that differ, it is the mean by weight.
//!
//! Departures: faults are left out, although a machine that is slowed down makes requests more expensive
//! while it lasts. The cost of requests for documents on disks is unknown here, because it depends on the
//! contents of the memory. The same holds for requests with individual costs from a trace.

use std::time::Duration;

use weirgate_experiment::{DemandFrom, Experiment, RESOURCES, Run};
use weirgate_pages::{Index, Pattern};

/// Costs of a route over time.
#[derive(Clone, Debug, Default)]
pub(super) struct ActualCosts {
    /// Intervals in order of time, without gaps between them.
    stretches: Vec<Stretch>,
    /// Requests of the route that were released.
    pub(super) requests: u64,
}

/// An interval with linear costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Start and end in seconds.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Costs at both ends. `None` if no request was released in the interval.
    cost: Option<[[f64; RESOURCES]; 2]>,
}

impl Stretch {
    fn at(&self, seconds: f64) -> Option<[f64; RESOURCES]> {
        let [first, last] = self.cost?;
        let passed = ((seconds - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        Some(std::array::from_fn(|resource| first[resource] + (last[resource] - first[resource]) * passed))
    }

    /// Cost of a resource, if it is constant.
    pub(super) fn flat(&self, resource: usize) -> Option<f64> {
        let [first, last] = self.cost?;
        (first[resource] == last[resource]).then_some(first[resource])
    }
}

impl ActualCosts {
    /// Actual costs of each of `routes`. They are unknown for a string that is not a pattern.
    pub(super) fn of<'a>(
        experiment: &Experiment,
        run: &Run,
        routes: impl Iterator<Item = &'a str>,
    ) -> Vec<ActualCosts> {
        // A pattern that cannot be parsed matches nothing, and keeps its index.
        let parsed: Vec<Option<Pattern>> = routes.map(|pattern| Pattern::parse(pattern).ok()).collect();
        let places: Vec<usize> = (0..parsed.len()).filter(|place| parsed[*place].is_some()).collect();
        let index = Index::new(parsed.iter().flatten().cloned().collect());
        let mut streams: Vec<Vec<usize>> = vec![Vec::new(); parsed.len()];
        for (stream, traffic) in experiment.traffic.iter().enumerate() {
            let (path, query) = traffic.address();
            if let Some(place) = index.find(path, query).and_then(|found| places.get(found)) {
                streams[*place].push(stream);
            }
        }
        streams.iter().map(|streams| ActualCosts::of_streams(experiment, run, streams)).collect()
    }

    fn of_streams(experiment: &Experiment, run: &Run, streams: &[usize]) -> ActualCosts {
        let borders = borders(experiment, streams);
        let mut counts = vec![vec![0_u64; streams.len()]; borders.len().saturating_sub(1)];
        for record in run.records.iter().filter(|record| record.released > 0) {
            let Some(stream) = streams.iter().position(|stream| *stream == record.traffic as usize) else { continue };
            let arrived = Duration::from_nanos(record.arrived);
            let stretch = borders.partition_point(|border| *border <= arrived);
            if let Some(counts) = stretch.checked_sub(1).and_then(|stretch| counts.get_mut(stretch)) {
                counts[stream] += 1;
            }
        }
        let requests = counts.iter().flatten().sum();
        let is_known = streams.iter().all(|stream| {
            let traffic = &experiment.traffic[*stream];
            traffic.documents.is_none() && traffic.traced.is_empty()
        });
        let units: Vec<[f64; RESOURCES]> = streams.iter().map(|stream| unit(experiment, *stream)).collect();
        let stretch = |(ends, counts): (&[Duration], &Vec<u64>)| {
            let all: u64 = counts.iter().sum();
            let mean = |at: Duration, begun: &dyn Fn(&DemandFrom) -> bool| {
                let mut sum = [0.0; RESOURCES];
                for ((stream, count), unit) in streams.iter().zip(counts).zip(&units) {
                    let demand = demand(&experiment.traffic[*stream].demand, at, begun);
                    for resource in 0..RESOURCES {
                        sum[resource] += demand[resource] * unit[resource] * (*count as f64 / all as f64);
                    }
                }
                sum
            };
            let (from, to) = (ends[0], ends[1]);
            let cost = || [mean(from, &|entry| entry.at <= from), mean(to, &|entry| entry.at < to)];
            let cost = (all > 0 && is_known).then(cost);
            Stretch { from: from.as_secs_f64(), to: to.as_secs_f64(), cost }
        };
        ActualCosts { stretches: borders.windows(2).zip(&counts).map(stretch).collect(), requests }
    }

    /// Intervals of linear costs.
    pub(super) fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Costs of requests that arrive at `seconds`.
    pub(super) fn at(&self, seconds: f64) -> Option<[f64; RESOURCES]> {
        let next = self.stretches.partition_point(|stretch| stretch.from <= seconds);
        self.stretches.get(next.checked_sub(1)?)?.at(seconds)
    }

    /// Costs of requests that arrived just before `seconds`.
    pub(super) fn before(&self, seconds: f64) -> Option<[f64; RESOURCES]> {
        let next = self.stretches.partition_point(|stretch| stretch.from < seconds);
        self.stretches.get(next.checked_sub(1)?)?.at(seconds)
    }

    /// Cost of a resource over time, in seconds and fractions. A jump is two points at one instant. `None`
    /// begins a gap.
    pub(super) fn line(&self, resource: usize) -> Vec<(f64, Option<f64>)> {
        let mut points: Vec<(f64, Option<f64>)> = Vec::new();
        for stretch in &self.stretches {
            let [first, last] = match stretch.cost {
                Some(ends) => ends.map(|cost| Some(cost[resource])),
                None => [None, None],
            };
            let joins = points.last().is_some_and(|(_, cost)| *cost == first);
            if !joins {
                points.push((stretch.from, first));
            } else if first == last && points.len() > 1 && points[points.len() - 2].1 == first {
                // A constant cost needs no point in between.
                points.pop();
            }
            points.push((stretch.to, last));
        }
        points
    }
}

/// Instants at which something changes for these streams, from the start to the end of the run.
fn borders(experiment: &Experiment, streams: &[usize]) -> Vec<Duration> {
    let demands = streams.iter().flat_map(|stream| &experiment.traffic[*stream].demand);
    let changes = demands.flat_map(|entry| [entry.at, entry.at.saturating_add(entry.over)]);
    let phases = experiment.phases.iter().map(|phase| phase.until);
    let end = experiment.duration();
    let mut borders: Vec<Duration> =
        changes.chain(phases).chain([Duration::ZERO]).filter(|border| *border <= end).collect();
    borders.sort_unstable();
    borders.dedup();
    borders
}

/// Mean seconds of CPU, disk and link of a demand at an instant, by the entries that have `begun` by then.
fn demand(entries: &[DemandFrom], at: Duration, begun: &dyn Fn(&DemandFrom) -> bool) -> [f64; RESOURCES] {
    let mut mean = [0.0; RESOURCES];
    for (number, entry) in entries.iter().enumerate().take_while(|(number, entry)| *number == 0 || begun(entry)) {
        let (passed, over) = (at.saturating_sub(entry.at).as_secs_f64(), entry.over.as_secs_f64());
        let done = if number == 0 || passed >= over { 1.0 } else { passed / over };
        let next = [entry.cpu, entry.disk, entry.link].map(|part| part.mean());
        for (mean, next) in mean.iter_mut().zip(next) {
            // Exact where the change is complete, so that constant intervals are recognised.
            *mean = if done >= 1.0 { next } else { *mean + (next - *mean) * done };
        }
    }
    mean
}

/// Converts a second of CPU, disk or link demanded by the stream into seconds of a node of weight 1.
fn unit(experiment: &Experiment, stream: usize) -> [f64; RESOURCES] {
    let policy = &experiment.site.policy;
    let pool = experiment.traffic[stream].class.class(policy).pool;
    let said = experiment.site.page_table.as_ref().map_or([None; RESOURCES], |table| table.capacity);
    let mut sum = [0.0; RESOURCES];
    let mut weights = 0.0;
    for (node, machine) in policy.nodes.iter().zip(&experiment.machine_of).filter(|(node, _)| node.pool == pool) {
        let machine = &experiment.machines[*machine];
        let servers = f64::from(machine.servers);
        let has = [f64::from(machine.cpus) * servers, servers, servers];
        let lasts = [1.0 / machine.speed, 1.0, 1.0];
        for resource in 0..RESOURCES {
            let of_one = said[resource].unwrap_or(has[resource] / node.weight);
            sum[resource] += node.weight * lasts[resource] / of_one;
        }
        weights += node.weight;
    }
    sum.map(|sum| if weights > 0.0 { sum / weights } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{experiment, requests, run, served};
    use super::*;
    use weirgate_experiment::Distribution;

    const MS: u64 = 1_000_000;

    fn entry(at: u64, over: u64, cpu_ms: u64) -> DemandFrom {
        let [cpu, none] = [cpu_ms, 0].map(|ms| Distribution::Fixed(Duration::from_millis(ms)));
        let [at, over] = [at, over].map(Duration::from_secs);
        DemandFrom { at, over, cpu, io: none, disk: none, link: none, stream: none }
    }

    fn actual(change: impl Fn(&mut Experiment), route: &str) -> ActualCosts {
        let mut experiment = experiment();
        for (traffic, path) in experiment.traffic.iter_mut().zip(["/a?n={id}", "/a", "/b"]) {
            traffic.request.path = Some(path.into());
        }
        change(&mut experiment);
        // A sends all the time. B, which needs three times as much, sends from 40 s on and then makes up a third
        // of the requests.
        experiment.traffic[1].demand = vec![entry(0, 0, 30)];
        let run = run(vec![requests(0, 100, 0..60, served(5)), requests(1, 50, 40..60, served(5))]);
        let routes = ["no pattern", "/b", "/a"];
        let place = routes.iter().position(|known| *known == route).expect("it is one of them");
        ActualCosts::of(&experiment, &run, routes.into_iter()).remove(place)
    }

    fn cpu(actual: &ActualCosts) -> Vec<(f64, Option<f64>)> {
        let rounded = |share: f64| (share * 1e9).round() / 1e9;
        actual.line(0).into_iter().map(|(at, share)| (at, share.map(rounded))).collect()
    }

    #[test]
    fn streams_of_a_route_count_as_often_as_their_requests() {
        // Two CPUs: 10 ms of one are half a percent of the node's second.
        let level = actual(|_| (), "/a");
        let mixed = (0.005 * 2.0 + 0.015) / 3.0;
        let mixed = (mixed * 1e9_f64).round() / 1e9;
        assert_eq!(cpu(&level), [(0.0, Some(0.005)), (40.0, Some(0.005)), (40.0, Some(mixed)), (60.0, Some(mixed))]);
        // A release at 0 does not count.
        assert_eq!((level.requests + 1, level.at(40.0).map(|cost| cost[1])), (7000, Some(0.0)));
        assert!(level.before(40.0).is_some_and(|cost| (cost[0] - 0.005).abs() < 1e-12));
        for nothing in ["/b", "no pattern"] {
            let nothing = actual(|_| (), nothing);
            assert_eq!((nothing.requests, nothing.at(10.0), nothing.line(0)[0].1), (0, None, None));
        }
    }

    #[test]
    fn a_demand_on_its_way_is_a_slope_and_slow_cpus_make_requests_dearer() {
        let slope = actual(|e| e.traffic[0].demand = vec![entry(0, 0, 10), entry(5, 10, 20)], "/a");
        let line = [(0.0, Some(0.005)), (5.0, Some(0.005)), (15.0, Some(0.01)), (40.0, Some(0.01))];
        assert_eq!(cpu(&slope)[..4], line);
        assert_eq!(slope.stretches().iter().map(|s| s.flat(0).is_some()).collect::<Vec<_>>()[..3], [true, false, true]);
        assert!(slope.at(10.0).is_some_and(|cost| (cost[0] - 0.0075).abs() < 1e-12));
        let half = actual(|e| e.machines.iter_mut().for_each(|machine| machine.speed = 0.5), "/a");
        assert!(half.at(1.0).is_some_and(|cost| (cost[0] - 0.01).abs() < 1e-12));
        let stored = actual(
            |e| {
                let parts = vec![(0, 1.0)];
                let documents = weirgate_experiment::Documents {
                    files: 1,
                    bytes: MS,
                    zipf: 1.0,
                    seed: 1,
                    counted: Vec::new(),
                    parts,
                };
                e.traffic[0].documents = Some(documents);
            },
            "/a",
        );
        assert_eq!((stored.requests + 1, stored.at(1.0)), (7000, None), "what comes from memory is not known here");
    }
}
