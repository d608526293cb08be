//! Usage of CPUs, disks and links by class: the figures of mQoS.
//!
//! Source: Feng and Lin, *Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway*
//! (2005), Sec. 4: utilisation of each resource split over the classes (Figs. 9 and 12), throughput (Fig.
//! 10), latency split into waiting at the gateway and processing at the server (Figs. 13 and 14).
//!
//! Utilisation is work done over capacity. A class's part of it is the drawn demand of its served requests:
//! those with a last byte in the judged part. Time that machines lose by thrashing is not work done.
//! Latencies are those of the same requests. Requests that arrived earlier also count, because a class with
//! long waits would otherwise be judged by its luckiest requests.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use weirgate_experiment::{Experiment, Fate, RESOURCES, Record, Run, Sample, Work};
use weirgate_wire::RESOURCE_NAMES as NAMES;

use super::verdict::{rounded, rounded_all};
use super::{done, seconds};
use crate::oracle::Cluster;

/// Usage of several resources in the judged part of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Names of the resources.
    pub names: Vec<String>,
    /// Work done over capacity of the live machines, by resource.
    #[serde(serialize_with = "rounded_all")]
    pub utilisation: Vec<f64>,
    /// All classes together.
    pub all: Portion,
    /// Every class of the policy, then its templates.
    pub classes: Vec<ClassUse>,
}

/// Usage by a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassUse {
    /// Name of the class.
    pub class: String,
    /// Its figures.
    #[serde(flatten)]
    pub portion: Portion,
}

/// Usage and latency of served requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Portion {
    /// Work that they needed over the capacity of the live machines, by resource.
    #[serde(serialize_with = "rounded_all")]
    pub used: Vec<f64>,
    /// Requests per second.
    #[serde(serialize_with = "rounded")]
    pub served_per_s: f64,
    /// Mean time from arrival to release, in milliseconds. 0 if nothing was served.
    #[serde(serialize_with = "rounded")]
    pub waiting_ms: f64,
    /// Mean time from release to the last byte, in milliseconds. 0 if nothing was served.
    #[serde(serialize_with = "rounded")]
    pub processing_ms: f64,
}

impl Portion {
    /// Mean time from arrival to the last byte, in milliseconds.
    pub fn latency_ms(&self) -> f64 {
        self.waiting_ms + self.processing_ms
    }
}

impl ResourceUse {
    /// Each class's part, 0 to 1, of the served work of resource number `resource`. Empty if there was none.
    pub fn split(&self, resource: usize) -> impl Iterator<Item = f64> + '_ {
        let all = self.all.used.get(resource).copied().unwrap_or(0.0);
        let own = move |class: &ClassUse| class.portion.used.get(resource).map_or(0.0, |used| used / all);
        self.classes.iter().map(own).filter(|part| part.is_finite())
    }
}

/// Sums over served requests.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    work: Work,
    count: u32,
    waiting: f64,
    processing: f64,
}

impl Sums {
    fn add(&mut self, record: &Record) {
        self.work.iter_mut().zip(record.work()).for_each(|(sum, taken)| *sum += taken);
        self.count += 1;
        // A served request was released, at the earliest at its arrival.
        let released = record.released.max(record.arrived);
        self.waiting += (released - record.arrived) as f64 / 1e6;
        self.processing += record.ended.saturating_sub(released) as f64 / 1e6;
    }

    fn portion(&self, had: &Work, length: f64) -> Portion {
        let share = |(work, had): (&f64, &f64)| if *had > 0.0 { work / had } else { 0.0 };
        let count = f64::from(self.count.max(1));
        Portion {
            used: self.work.iter().zip(had).map(share).collect(),
            served_per_s: if length > 0.0 { f64::from(self.count) / length } else { 0.0 },
            waiting_ms: self.waiting / count,
            processing_ms: self.processing / count,
        }
    }
}

/// Usage over `stretch`. `None` if no request of the experiment needs anything but CPU time.
pub(super) fn used(experiment: &Experiment, run: &Run, cluster: &Cluster, stretch: &Range<u64>) -> Option<ResourceUse> {
    experiment.uses_several_resources().then_some(())?;
    let policy = &experiment.site.policy;
    let length = seconds(stretch);
    let had = cluster.whole().map(|capacity| capacity * length);
    let whose: Vec<usize> = experiment.traffic.iter().map(|t| t.class.index(policy)).collect();
    let mut sums = vec![Sums::default(); policy.all_classes().count()];
    let mut all = Sums::default();
    for record in run.records.iter().filter(|r| r.fate == Fate::Served && stretch.contains(&r.ended)) {
        if let Some(own) = whose.get(record.traffic as usize).and_then(|class| sums.get_mut(*class)) {
            own.add(record);
            all.add(record);
        }
    }
    let busy: [fn(&Sample) -> f64; RESOURCES] =
        [|s| s.busy.iter().sum(), |s| s.disk.iter().sum(), |s| s.link.iter().sum()];
    let grown = |sum| done(&run.samples, stretch.end, sum) - done(&run.samples, stretch.start, sum);
    let utilisation = busy.iter().zip(had).map(|(sum, had)| if had > 0.0 { grown(*sum) / had } else { 0.0 });
    let class = |(class, sums): (&weirgate_engine::Class, &Sums)| ClassUse {
        class: class.name.clone(),
        portion: sums.portion(&had, length),
    };
    Some(ResourceUse {
        names: NAMES.map(str::to_owned).to_vec(),
        utilisation: utilisation.collect(),
        all: all.portion(&had, length),
        classes: policy.all_classes().zip(&sums).map(class).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::super::tests::{experiment, requests, run};
    use super::*;
    use std::time::Duration;
    use weirgate_experiment::Distribution;

    const SECOND: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_used_is_split_by_class_and_what_takes_time_by_place() {
        let mut experiment = experiment();
        let mut runs = run(vec![
            requests(0, 100, 0..60, |_| (50 * MS, Fate::Served)),
            requests(1, 50, 0..60, |_| (200 * MS, Fate::Served)),
        ]);
        assert!(judge(&experiment, &runs).phases.iter().all(|phase| phase.resources.is_none()), "only CPU is used");
        experiment.traffic[0].demand[0].disk = Distribution::Fixed(Duration::from_millis(1));
        for record in &mut runs.records {
            (record.disk, record.link) = if record.traffic == 0 { (0.001, 0.0) } else { (0.002, 0.004) };
            record.released = record.arrived + if record.traffic == 0 { 0 } else { 150 * MS };
        }
        let sample = |at: u64| Sample {
            at: at * SECOND,
            waiting: vec![0; 3],
            busy: vec![at as f64, at as f64 / 2.0],
            disk: vec![at as f64 * 0.2, 0.0],
            link: vec![at as f64 * 0.1, at as f64 * 0.1],
            ..Sample::default()
        };
        runs.samples = (0..=60).step_by(4).map(sample).collect();
        let verdict = judge(&experiment, &runs);
        let found = verdict.phases[1].resources.as_ref().expect("a disk is used");
        let near = |ours: f64, exact: f64| assert!((ours - exact).abs() < 1e-3 * exact.max(1.0), "{ours} for {exact}");
        // Two machines of two CPUs, a disk and a link each.
        let [cpu, disk, link] = [1.5 / 4.0, 0.2 / 2.0, 0.2 / 2.0];
        found.utilisation.iter().zip([cpu, disk, link]).for_each(|(ours, exact)| near(*ours, exact));
        let split: Vec<Vec<f64>> = (0..3).map(|resource| found.split(resource).collect()).collect();
        near(split[0][0], 2.0 / 3.0);
        near(split[1][0], 0.5);
        assert_eq!(split[2][..2], [0.0, 1.0]);
        let portions: Vec<&Portion> = found.classes.iter().map(|class| &class.portion).collect();
        near(portions[0].served_per_s, 100.0);
        near(portions[1].used[2], 50.0 * 0.004 / 2.0);
        near(portions[0].processing_ms, 50.0);
        assert_eq!((portions[0].waiting_ms, portions[1].waiting_ms, portions[1].latency_ms()), (0.0, 150.0, 200.0));
        near(found.all.waiting_ms, 50.0);
        assert_eq!(portions[2].served_per_s, 0.0);
    }
}
