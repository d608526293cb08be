//! The judge: decides which guarantees a run held.
//!
//! A phase is judged from [`Experiment::settle`] after its start, because no control is instant. The part
//! before that is judged in the same way, but it is reported separately ([`Kind::Settling`]) and breaks
//! nothing. In the judged part:
//!
//! - a *floor* is held if served ≥ 0.99 × owed. Requests are owed if a token bucket of the guaranteed rate
//!   covers them, with a burst of one second. Each arrival takes as many tokens as the ratio of its class's
//!   cost on the scarce resource to the declared cost (`owed`). The bucket runs over the whole run. `class`
//!   defines which requests count as served at the borders. Where a reload puts another policy in force,
//!   each phase is judged by the guarantees of that phase (`terms`).
//! - a *ceiling* is held if the statistic over the served requests, from arrival to the node's last byte,
//!   is within the limit. For a class with traffic that consists of pages, the statistic is over complete
//!   pages (`pages`). A limit that the requests exceed even alone on an idle machine is *impossible by
//!   itself* and does not count.
//! - a phase is *feasible* if the live machines can carry the work of all owed requests, for CPUs, disks,
//!   links and workers (a maximum flow for each, see [`crate::oracle`]). Floors of an infeasible phase are
//!   reported and do not count. Ceilings always count, because a gateway can keep them by shedding.
//!
//! From the first request on, the judge also looks for *avoidable* refusals (`avoidable`): owed requests
//! that were refused or late while idle machines could have served them. More than one in a thousand in a
//! class break a run.
//!
//! A request that the end of the run cuts off is neither owed nor served, unless the time left for it was
//! at least the larger of the settling time and its class's limit. Then it is owed. `rules` has the constants.

mod actual_costs;
mod avoidable;
#[cfg(test)]
mod brute;
mod bucket;
mod class;
pub(crate) mod learned;
mod owed;
mod pages;
mod resources;
mod rules;
mod statistic;
mod terms;
#[cfg(test)]
pub(crate) mod tests;
mod verdict;

use std::ops::Range;
use std::time::Duration;

use weirgate_engine::Class;
use weirgate_experiment::Experiment;

pub use learned::{BAND, CostChange, LearnedCost, LearnedRoute, LearnedTable, PhaseCost};
pub use resources::{ClassUse, Portion, ResourceUse};
pub use rules::Rules;
pub use verdict::{
    Avoidable, AvoidableVerdict, CeilingVerdict, ClassVerdict, FloorVerdict, Kind, Miss, PageCounts, Part,
    PhaseVerdict, ResponseTimes, ShedLatency, Sheds, Verdict, ViolationFound, Word,
};

use crate::oracle::{Cluster, Demand, weights};
use avoidable::Lacking;
use class::{Subject, seconds};
pub(crate) use owed::{Declared, at_first};
pub(crate) use pages::Pages;
pub use statistic::percentile;
pub(crate) use statistic::statistic;
use terms::Terms;
use weirgate_experiment::Idle;
use weirgate_experiment::{Record, Run, Sample, Work};

/// Judges a run of an experiment.
pub fn judge(experiment: &Experiment, run: &Run) -> Verdict {
    judge_by(experiment, run, &Rules::default())
}

/// Judges a run by other constants.
pub fn judge_by(experiment: &Experiment, run: &Run, rules: &Rules) -> Verdict {
    Judge::new(experiment, run, rules).verdict(false)
}

/// Judges a run, and adds the rate at which an oracle would have served each class.
pub fn judge_against_oracle(experiment: &Experiment, run: &Run) -> Verdict {
    Judge::new(experiment, run, &Rules::default()).verdict(true)
}

struct Judge<'a> {
    experiment: &'a Experiment,
    run: &'a Run,
    subjects: Vec<Subject<'a>>,
    rules: Rules,
}

impl<'a> Judge<'a> {
    fn new(experiment: &'a Experiment, run: &'a Run, rules: &Rules) -> Judge<'a> {
        // Every policy of a run has the same classes in the same order.
        let policy = &experiment.site.policy;
        let end = nanos(experiment.duration());
        let phases = 0..experiment.phases.len();
        let stretches: Vec<Range<u64>> = phases.clone().flat_map(|phase| split(experiment, phase)).collect();
        let in_force = phases.map(|phase| experiment.policy_at(experiment.phase_from(phase)));
        let in_force: Vec<Vec<&Class>> = in_force.map(|policy| policy.all_classes().collect()).collect();
        let whose: Vec<usize> = experiment.traffic.iter().map(|t| t.class.index(policy)).collect();
        let nominal = Cluster::nominal(experiment);
        let subject = |(index, class): (usize, &'a Class)| {
            let records = run.records.iter().filter(|r| whose.get(r.traffic as usize) == Some(&index));
            let (pace, best_pace) = paces(experiment, class.pool);
            let way = nanos(experiment.network_delay).saturating_mul(2);
            let at_first = at_first(experiment, run, index, pace);
            let terms = in_force.iter().map(|classes| classes[index]).map(|class| Terms {
                class,
                // The engine distinguishes the keys of a template, but the records do not.
                floor: class.guarantee.throughput.filter(|_| index < policy.classes.len()),
                declared: class.service_time.map(|service| Declared::of(service, at_first)),
                has: nominal.reached(index),
                pace,
                best_pace,
                way,
                grace: nanos(
                    experiment.settle.max(class.guarantee.response_time.map_or(Duration::ZERO, |rt| rt.limit)),
                ),
                end,
                rules: *rules,
            });
            let pages = Pages::of(experiment, run, index, |record: &Record| {
                let work = f64::from(record.cpu) * best_pace + record.beside_cpu();
                (work * 1e9) as u64 + way
            });
            Subject::new(terms.collect(), records, &stretches).in_pages(pages)
        };
        let mut subjects: Vec<Subject<'a>> = policy.all_classes().enumerate().map(subject).collect();
        let short = |(index, stretch): (usize, &Range<u64>)| {
            owed::short_of_workers(&live(experiment, stretch), &subjects, (index / 2, stretch))
        };
        let short: Vec<Vec<bool>> = stretches.iter().enumerate().map(short).collect();
        for (index, subject) in subjects.iter_mut().enumerate() {
            subject.pay_for_workers(&short.iter().map(|short| short[index]).collect::<Vec<bool>>());
            subject.mark_late();
        }
        mark_avoidable(&run.idle, &mut subjects);
        Judge { experiment, run, subjects, rules: *rules }
    }

    fn verdict(&self, against_oracle: bool) -> Verdict {
        let phases = (0..self.experiment.phases.len()).map(|index| self.phase(index, against_oracle));
        let phases: Vec<PhaseVerdict> = phases.collect();
        let promised = self.subjects.iter().filter(|subject| subject.has_floor());
        let violations = self.run.violations.iter().map(|violation| ViolationFound {
            at_s: violation.at as f64 / 1e9,
            invariant: violation.invariant.to_owned(),
            what: violation.what.clone(),
        });
        let mut verdict = Verdict {
            experiment: self.experiment.name.clone(),
            discipline: self.run.discipline.clone(),
            seed: self.run.seed,
            avoidable: promised.map(|subject| self.avoidable(subject, &phases)).collect(),
            phases,
            learned: learned::table(self.experiment, self.run),
            violations: violations.collect(),
            verdict: Word::Held,
        };
        if verdict.misses().next().is_some() {
            verdict.verdict = Word::Broken;
        }
        verdict
    }

    fn phase(&self, index: usize, against_oracle: bool) -> PhaseVerdict {
        let phase = &self.experiment.phases[index];
        let [settling, judged] = split(self.experiment, index);
        let length = seconds(&judged);
        let per_second = |work: Work| work.map(|work| if length > 0.0 { work / length } else { 0.0 });
        let asked = self.subjects.iter().map(|subject| subject.asked_work(index, &judged));
        let (offered, owed) = asked.map(|(offered, owed)| (per_second(offered), owed)).unzip();
        let demand = Demand { offered, owed };
        let cluster = live(self.experiment, &judged);
        let owed: Vec<Work> =
            demand.offered.iter().zip(&demand.owed).map(|(offered, owed)| offered.map(|work| work * owed)).collect();
        let held = self.subjects.iter().map(|subject| subject.owed_workers(index, &judged) / length.max(1e-9));
        let holds = length <= 0.0 || cluster.holds(&held.collect::<Vec<f64>>());
        let oracle = against_oracle.then(|| self.oracle_rates(index, (&cluster, &demand), &judged));
        let classes = self.subjects.iter().enumerate().map(|(i, subject)| ClassVerdict {
            class: subject.name().to_owned(),
            part: subject.part(index, &judged),
            cpu_share: self.cpu_share(&cluster, &judged, i),
            would_shed: self.would_shed(&judged, i),
            oracle_served_per_s: oracle.as_ref().map(|rates| rates[i]),
            reaction_s: subject.reaction(index),
            settling: subject.part(index, &settling),
        });
        PhaseVerdict {
            name: phase.name.clone(),
            from_s: self.experiment.phase_from(index).as_secs_f64(),
            to_s: phase.until.as_secs_f64(),
            judged_from_s: judged.start as f64 / 1e9,
            judged: phase.judged && length > 0.0,
            unsettled: phase.judged && length <= 0.0,
            feasible: holds && cluster.carries(&owed),
            utilisation: self.utilisation(&cluster, &judged),
            served_over_oracle: self.over_oracle(&cluster.max(&demand.offered), &judged),
            resources: resources::used(self.experiment, self.run, &cluster, &judged),
            classes: classes.collect(),
        }
    }

    /// Owed requests of a class that were refused or late while machines idled, in the phases that are
    /// judged and in which all owed work fits.
    fn avoidable(&self, subject: &Subject<'_>, phases: &[PhaseVerdict]) -> AvoidableVerdict {
        let after = |from: u64| {
            let phases = phases.iter().enumerate().filter(|(_, phase)| phase.is_judged() && phase.feasible);
            let phases =
                phases.map(|(index, _)| split(self.experiment, index)).map(|[first, last]| first.start..last.end);
            let all = phases.map(|phase| subject.avoidable(&(phase.start.max(from)..phase.end.max(from))));
            all.fold(Avoidable::default(), |sum, own| sum + own)
        };
        let (whole, after_first_second) = (after(0), after(nanos(self.rules.beginning)));
        let allowed = self.rules.max_avoidable;
        // A single request of a class with few requests is no meaningful share of them.
        let ok = [whole, after_first_second].iter().all(|of| of.count() <= 1 || of.share() <= allowed);
        AvoidableVerdict { class: subject.name().to_owned(), whole, after_first_second, allowed, ok }
    }

    /// Rate at which the oracle serves each class, in requests per second.
    fn oracle_rates(&self, phase: usize, (cluster, demand): (&Cluster, &Demand), stretch: &Range<u64>) -> Vec<f64> {
        let costs: Vec<f64> = self.subjects.iter().map(|subject| subject.cost(phase, stretch)).collect();
        let policy = self.experiment.policy_at(self.experiment.phase_from(phase));
        let shares = cluster.shares(demand, &weights(policy, &costs));
        let rates = self.subjects.iter().zip(shares);
        rates.map(|(subject, share)| subject.part(phase, stretch).offered_per_s * share).collect()
    }

    /// Work served as a fraction of the maximum that could have been, for the resource with the largest fraction.
    fn over_oracle(&self, max: &Work, stretch: &Range<u64>) -> Option<f64> {
        let served: Vec<Work> = self.subjects.iter().map(|subject| subject.served_work(stretch)).collect();
        let asked = (0..max.len()).filter(|resource| max[*resource] > 0.0);
        let part = |resource: usize| {
            served.iter().map(|work| work[resource]).sum::<f64>() / (max[resource] * seconds(stretch))
        };
        asked.map(part).reduce(f64::max)
    }

    /// CPU-seconds done as a fraction of the CPU-seconds that the live machines had.
    fn utilisation(&self, cluster: &Cluster, stretch: &Range<u64>) -> f64 {
        self.part_of(cluster, stretch, |sample| sample.busy.iter().sum())
    }

    /// The same for one class, if it was counted.
    fn cpu_share(&self, cluster: &Cluster, stretch: &Range<u64>, class: usize) -> Option<f64> {
        let counted = self.run.samples.iter().all(|sample| class < sample.usage.len());
        (counted && !self.run.samples.is_empty()).then(|| self.part_of(cluster, stretch, |sample| sample.usage[class]))
    }

    /// Requests of a class that passed and would have been shed, if they were counted.
    fn would_shed(&self, stretch: &Range<u64>, class: usize) -> Option<u64> {
        let counted = self.run.samples.iter().all(|sample| class < sample.would_shed.len());
        let count = |at| done(&self.run.samples, at, |sample| sample.would_shed[class] as f64);
        (counted && !self.run.samples.is_empty()).then(|| (count(stretch.end) - count(stretch.start)).round() as u64)
    }

    fn part_of(&self, cluster: &Cluster, stretch: &Range<u64>, figure: impl Fn(&Sample) -> f64) -> f64 {
        let had = cluster.whole()[0] * seconds(stretch);
        let done = done(&self.run.samples, stretch.end, &figure) - done(&self.run.samples, stretch.start, &figure);
        if had > 0.0 { done / had } else { 0.0 }
    }
}

/// Count up to an instant, interpolated linearly between samples.
fn done(samples: &[Sample], at: u64, sum: impl Fn(&Sample) -> f64) -> f64 {
    let next = samples.partition_point(|sample| sample.at < at);
    match (next.checked_sub(1).and_then(|i| samples.get(i)), samples.get(next)) {
        (None, None) => 0.0,
        (None, Some(only)) | (Some(only), None) => sum(only),
        (Some(before), Some(after)) => {
            let passed = (at - before.at) as f64 / (after.at - before.at).max(1) as f64;
            sum(before) + (sum(after) - sum(before)) * passed
        }
    }
}

/// Settling part and judged part of a phase, in nanoseconds. The second is empty if the phase ends before
/// it has settled.
fn split(experiment: &Experiment, phase: usize) -> [Range<u64>; 2] {
    let (from, to) = (nanos(experiment.phase_from(phase)), nanos(experiment.phases[phase].until));
    let border = from.saturating_add(nanos(experiment.settle)).min(to);
    [from..border, border..to]
}

/// Marks the owed requests that idle machines could have served in time.
fn mark_avoidable(idle: &Idle, subjects: &mut [Subject<'_>]) {
    let lacking = subjects.iter().enumerate();
    let lacking =
        lacking.flat_map(|(subject, of)| of.lacking().into_iter().map(move |(index, what)| (what, (subject, index))));
    let mut lacking: Vec<(Lacking, (usize, usize))> = lacking.collect();
    lacking.sort_by_key(|(what, whose)| (what.time, *whose));
    let (requests, whose): (Vec<Lacking>, Vec<(usize, usize)>) = lacking.into_iter().unzip();
    let served = avoidable::avoidable(idle, &requests);
    for ((subject, index), _) in whose.into_iter().zip(served).filter(|(_, served)| *served) {
        subjects[subject].mark_avoidable(index);
    }
}

/// The cluster during an interval.
fn live(experiment: &Experiment, stretch: &Range<u64>) -> Cluster {
    let end = stretch.end.max(stretch.start);
    Cluster::live(experiment, Duration::from_nanos(stretch.start), Duration::from_nanos(end))
}

/// Seconds that a second of nominal CPU time takes on idle nodes of a pool: with work spread by capacity,
/// and on the fastest of them. Contention and faults are not included, because they cost time and no work.
pub(crate) fn paces(experiment: &Experiment, pool: usize) -> (f64, f64) {
    let nodes = experiment.site.policy.nodes.iter().zip(&experiment.machine_of).filter(|(node, _)| node.pool == pool);
    let machines = nodes.map(|(_, machine)| &experiment.machines[*machine]);
    let (cpus, speed, best) = machines.fold((0.0, 0.0, 0.0_f64), |(cpus, speed, best), machine| {
        let own = f64::from(machine.cpus) * f64::from(machine.servers);
        (cpus + own, speed + own * machine.speed, best.max(machine.speed))
    });
    if speed > 0.0 { (cpus / speed, 1.0 / best) } else { (1.0, 1.0) }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
