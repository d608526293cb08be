//! Classes at zero: requests arrive and none is served, although no fault lasts any more.

use std::time::Duration;

use weirgate_experiment::{Experiment, Fate, Record, Run};

use super::rule::Usable as _;

/// Maximum time that a class may be at zero after the cause has ended.
const MAX: Duration = Duration::from_secs(1);

/// The same for classes without a guaranteed throughput. They get at least one release a second, so two
/// completions are at most a second plus a request's own time apart.
const MAX_BEST_EFFORT: Duration = Duration::from_secs(2);

/// Number of unserved requests after which a class counts as starved. One or two may simply take long.
const IN_VAIN: usize = 5;

/// A request's own time, in multiples of the mean. One in fifty exponential times is longer, but five in a
/// row are not.
const OWN_TIME: f64 = 4.0;

/// A class at zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Starved {
    /// Index into the policy's classes and then its templates.
    pub(super) class: usize,
    pub(super) phase: usize,
    /// Length of the time, in seconds.
    pub(super) seconds: f64,
}

/// Returns the longest time at zero of every class in every phase without a failing machine, if it is
/// longer than allowed. It counts from its first request on, and from the start of the phase at the
/// earliest.
pub(super) fn starved(experiment: &Experiment, run: &Run) -> Vec<Starved> {
    let policy = &experiment.site.policy;
    let class_of = |record: &Record| experiment.traffic[record.traffic as usize].class.index(policy);
    let mut records: Vec<Vec<&Record>> = vec![Vec::new(); policy.classes.len() + policy.templates.len()];
    run.records.iter().for_each(|record| records[class_of(record)].push(record));
    let slowest = experiment.machines.iter().map(|machine| machine.speed).fold(f64::INFINITY, f64::min);
    let mut found = Vec::new();
    for phase in (0..experiment.phases.len()).filter(|phase| is_sound(experiment, *phase)) {
        let (from, until) =
            (experiment.phase_from(phase).as_nanos() as u64, experiment.phases[phase].until.as_nanos() as u64);
        for (index, class) in policy.all_classes().enumerate() {
            let of_class = &records[index];
            let during = &of_class
                [of_class.partition_point(|r| r.arrived < from)..of_class.partition_point(|r| r.arrived < until)];
            let mut served: Vec<u64> = of_class.iter().filter(|r| r.fate == Fate::Served).map(|r| r.ended).collect();
            served.retain(|end| (from..until).contains(end));
            served.sort_unstable();
            served.push(until);
            let own = |record: &&Record| f64::from(record.cpu) / slowest + record.beside_cpu();
            let mean = during.iter().map(own).sum::<f64>() / during.len().max(1) as f64;
            let max = match class.guarantee.throughput {
                Some(rate) => MAX.max(owed_gap(rate, class.service_time, mean)),
                None => MAX_BEST_EFFORT,
            };
            let max = ((max.as_secs_f64() + OWN_TIME * mean) * 1e9) as u64;
            if let Some(longest) = longest_at_zero(from, during, &served, max) {
                found.push(Starved { class: index, phase, seconds: longest as f64 / 1e9 });
            }
        }
    }
    found
}

/// Returns the longest usual time between two owed requests: one in twenty exponential gaps is longer.
/// It matters if a class is owed a few requests a second or less.
fn owed_gap(rate: f64, declared: Option<Duration>, mean: f64) -> Duration {
    let fewer = declared.map_or(1.0, |declared| (declared.as_secs_f64() / mean.max(1e-9)).min(1.0));
    Duration::from_secs_f64(3.0 / (rate * fewer).max(1e-3))
}

/// Returns the longest time without an instant of `served`, from its first arrival on, if it is longer
/// than `max` and at least `IN_VAIN` requests arrived more than `max` before its end.
fn longest_at_zero(from: u64, arrivals: &[&Record], served: &[u64], max: u64) -> Option<u64> {
    let mut longest = None;
    let mut start = from;
    for &end in served {
        let first = arrivals.partition_point(|record| record.arrived < start);
        start = end;
        let Some(begin) = arrivals.get(first).map(|record| record.arrived) else { break };
        let Some(vain_until) = end.checked_sub(max).filter(|until| *until > begin) else { continue };
        let in_vain = arrivals.partition_point(|record| record.arrived < vain_until) - first;
        if in_vain >= IN_VAIN {
            longest = longest.max(Some(end - begin));
        }
    }
    longest
}

/// Returns whether the phase counts and no machine is impaired in it.
pub(super) fn is_sound(experiment: &Experiment, phase: usize) -> bool {
    let (from, until) = (experiment.phase_from(phase), experiment.phases[phase].until);
    let impairs = |fault: &&weirgate_experiment::Fault| fault.kind.usable() < 1.0;
    let mut during = experiment.faults.iter().filter(|f| f.at < until && f.until.is_none_or(|end| end > from));
    experiment.phases[phase].judged && !during.any(|fault| impairs(&fault))
}

#[cfg(test)]
mod tests {
    use weirgate_emulator::station::Demand;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn arrivals(from: u64, until: u64, gap: u64) -> Vec<Record> {
        let record = |arrived| Record { fate: Fate::Shed, cpu: 0.01, ..Record::new(0, arrived, Demand::default()) };
        (from..until).step_by(gap as usize).map(record).collect()
    }

    fn longest(arrivals: &[Record], served: &[u64]) -> Option<u64> {
        let arrivals: Vec<&Record> = arrivals.iter().collect();
        longest_at_zero(0, &arrivals, served, SECOND)
    }

    #[test]
    fn a_class_that_gets_nothing_is_at_zero_from_its_first_request_on() {
        let many = arrivals(2 * SECOND, 10 * SECOND, SECOND / 10);
        assert_eq!(longest(&many, &[10 * SECOND]), Some(8 * SECOND));
        let often: Vec<u64> = (0..=100).map(|i| i * SECOND / 10).collect();
        assert_eq!(longest(&many, &often), None);
        let gap: Vec<u64> = often.iter().copied().filter(|end| !(4 * SECOND..6 * SECOND).contains(end)).collect();
        assert_eq!(longest(&many, &gap), Some(6 * SECOND - 39 * SECOND / 10));
    }

    #[test]
    fn a_class_that_asks_for_nothing_is_not_starved() {
        assert_eq!(longest(&[], &[10 * SECOND]), None);
        let few = arrivals(0, SECOND, SECOND / 4);
        assert_eq!(longest(&few, &[10 * SECOND]), None);
    }
}
