//! The figures of `weirgate demo --siege`: how its readers fared in each phase, and how busy the nodes were.

use std::collections::BTreeSet;
use std::time::Duration;

use weirgate_experiment::{Experiment, Run, Sample, TrafficClass};
use weirgate_lab::evidence::clients;
use weirgate_lab::report::Clients;
use weirgate_lab::trial::Outcome;

/// The clients of the experiment, in its order.
pub(super) const CLIENTS: [&str; 5] = ["reader", "passer", "known", "crawl", "hammer"];

/// The name of the readers in the experiment.
const READERS: &str = "readers";

/// Largest p95 of the readers in a phase, as a multiple of that in calm, for which people do not notice the siege.
const SAME: f64 = 1.3;

/// Returns the table of the phases, and how many readers were refused.
pub(super) fn figures(outcome: &Outcome) -> String {
    table(&outcome.played, &outcome.run)
}

/// Returns the share of the time between two instants for which the CPUs behind the readers' upstream were busy.
fn busy(experiment: &Experiment, run: &Run, (from, until): (Duration, Duration)) -> f64 {
    let policy = &experiment.site.policy;
    let mut traffic = experiment.traffic.iter();
    let readers = traffic.find(|traffic| traffic.name.as_deref() == Some(READERS)).map(|traffic| &traffic.class);
    let Some(&TrafficClass::Class(class)) = readers else { return 0.0 };
    let pool = policy.classes[class].pool;
    let of_pool = policy.nodes.iter().zip(&experiment.machine_of).filter(|(node, _)| node.pool == pool);
    let machines: BTreeSet<usize> = of_pool.map(|(_, machine)| *machine).collect();
    let work = |sample: &Sample| machines.iter().filter_map(|machine| sample.busy.get(*machine)).sum::<f64>();
    let within = |sample: &&Sample| (from.as_nanos()..=until.as_nanos()).contains(&u128::from(sample.at));
    let (first, last) = (run.samples.iter().find(within), run.samples.iter().rev().find(within));
    let (Some(first), Some(last)) = (first, last) else { return 0.0 };
    let cpus: f64 = machines.iter().map(|machine| f64::from(experiment.machines[*machine].cpus)).sum();
    (work(last) - work(first)) / (last.at.saturating_sub(first.at) as f64 / 1e9 * cpus).max(f64::MIN_POSITIVE)
}

fn table(experiment: &Experiment, run: &Run) -> String {
    let mut text = "\nreaders    p95, ms  of calm      served  refused   nodes busy\n".to_owned();
    let (mut calm, mut refused) = (None, 0);
    let named = clients(experiment, &run.records);
    for (index, phase) in experiment.phases.iter().enumerate() {
        let from = experiment.phase_from(index) + experiment.settle;
        let readers = named.iter().find(|row| row.phase == phase.name && row.clients == READERS);
        let Clients { served, unserved, p95_ms, .. } = readers.cloned().unwrap_or_default();
        refused += unserved;
        calm = calm.or(p95_ms);
        let busy = busy(experiment, run, (from, phase.until));
        let (shown, ratio) = match (p95_ms, calm) {
            (Some(p95), Some(calm)) => (format!("{p95:.1}"), p95 / calm),
            _ => ("-".to_owned(), 0.0),
        };
        let mark = if ratio > SAME { "!" } else { " " };
        text += &format!(
            "{:<9} {shown:>8} {ratio:>8.2}{mark} {served:>10} {unserved:>8} {:>10.0} %\n",
            phase.name,
            busy * 100.0
        );
    }
    text + &format!(
        "{refused} requests of readers were refused or lost. `!` marks a p95 above {SAME} times that of calm.\n"
    )
}

#[cfg(test)]
mod tests;
