//! Evidence that the figures of a trial can be trusted: every request is accounted for, requests left and
//! nodes answered on time, and the gateway's own CPU use is known.

use std::time::Duration;

use hdrhistogram::Histogram;
use weirgate_experiment::{Experiment, Fate, Record, Violation};
use weirgate_verdict::percentile;

use crate::load::{Sent, histogram};
use crate::proof::{Attempt, Found, Proof, Watch};
use crate::report::{Clients, Evidence, Ids, Lateness, Quantiles};
use crate::servers::Ledger;

/// Time after which an attempt without an end counts as lost. It exceeds every limit of an experiment and every
/// time-out of a gateway. An attempt that is younger when the trial ends counts as cut off, not as lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the evidence of a trial. `used` is the gateway's CPU time.
///
/// # Errors
/// Nothing can be proved, because an id was sent twice or a node's log was too short.
pub fn evidence(sent: &Sent, ledger: &Ledger, used: Duration) -> Result<(Evidence, Proof), String> {
    let ids: Vec<String> = sent.ids.iter().map(ToString::to_string).collect();
    let signed = !ledger.stats.is_empty();
    let attempts = sent.records.iter().zip(&ids).map(|(record, id)| Attempt {
        id,
        sent: Duration::from_nanos(record.arrived),
        fate: record.fate,
        from_node: signed && record.fate == Fate::Served,
    });
    let logs: Vec<_> = ledger.logs.iter().collect();
    let proof = Proof::of(attempts, Watch { ended: sent.elapsed, patience: PATIENCE }, &logs)?;
    let count = |fate| sent.records.iter().filter(|record| record.fate == fate).count() as u64;
    let mut node_lateness = Histogram::<u32>::new(2).map_err(|error| error.to_string())?;
    for node in &ledger.stats {
        node_lateness.add(&node.lateness).map_err(|error| error.to_string())?;
    }
    let mut shed_after = histogram();
    for record in sent.records.iter().filter(|record| record.fate == Fate::Shed) {
        shed_after.saturating_record(((record.ended - record.arrived) / 1000).max(1));
    }
    let requests = sent.records.len();
    let evidence = Evidence {
        sent: requests as u64,
        served: count(Fate::Served),
        shed: count(Fate::Shed),
        failed: count(Fate::Failed),
        left: count(Fate::Left),
        cut: count(Fate::Cut),
        lost: named(&proof.lost),
        doubled: named(&proof.doubled),
        phantom: named(&proof.phantom),
        generator_late_ms: lateness(&sent.lateness, 1e3),
        node_late_ms: lateness(&node_lateness, 1e6),
        shed_after_ms: lateness(&shed_after, 1e3),
        gateway_cpu_us: (requests > 0).then(|| used.as_secs_f64() * 1e6 / requests as f64),
    };
    Ok((evidence, proof))
}

/// Returns lost, doubled and phantom requests as violations for the judge.
pub fn violations(proof: &Proof, end: Duration) -> Vec<Violation> {
    let found = [("lost", &proof.lost), ("doubled", &proof.doubled), ("phantom", &proof.phantom)];
    let found = found.into_iter().filter(|(_, found)| found.count > 0);
    let at = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
    found.map(|(invariant, found)| Violation { at, invariant, what: format!("requests {found}") }).collect()
}

/// Returns quantiles of the response times per phase and class.
pub fn quantiles(experiment: &Experiment, sent: &Sent) -> Vec<Quantiles> {
    let policy = &experiment.site.policy;
    let classes = policy.all_classes();
    let mut rows = Vec::new();
    for (class, histograms) in classes.zip(&sent.histograms) {
        for (phase, histogram) in experiment.phases.iter().zip(histograms) {
            if histogram.is_empty() {
                continue;
            }
            let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
            rows.push(Quantiles {
                phase: phase.name.clone(),
                class: class.name.clone(),
                count: histogram.len(),
                p50: at(0.5),
                p90: at(0.9),
                p95: at(0.95),
                p99: at(0.99),
                p99_9: at(0.999),
                max: histogram.max() as f64 / 1e3,
            });
        }
    }
    rows
}

/// Returns how the clients with a name fared in each phase, without its first seconds, in which it settles.
pub fn clients(experiment: &Experiment, records: &[Record]) -> Vec<Clients> {
    let named = experiment.traffic.iter().enumerate();
    let named = named.filter_map(|(traffic, clients)| clients.name.as_ref().map(|name| (traffic, name)));
    let mut rows = Vec::new();
    for (traffic, name) in named {
        for (index, phase) in experiment.phases.iter().enumerate() {
            let from = experiment.phase_from(index) + experiment.settle;
            let instants = from.as_nanos()..phase.until.as_nanos();
            // A request that the end of the run cut off was neither served nor refused.
            let of_phase = records.iter().filter(|record| {
                record.traffic as usize == traffic
                    && instants.contains(&u128::from(record.arrived))
                    && record.fate != Fate::Cut
            });
            let (served, unserved): (Vec<&Record>, Vec<&Record>) =
                of_phase.partition(|record| record.fate == Fate::Served);
            if served.is_empty() && unserved.is_empty() {
                continue;
            }
            let mut times: Vec<u64> = served.iter().map(|record| record.ended.saturating_sub(record.arrived)).collect();
            times.sort_unstable();
            rows.push(Clients {
                phase: phase.name.clone(),
                clients: name.clone(),
                served: served.len() as u64,
                unserved: unserved.len() as u64,
                p95_ms: percentile(&times, 95.0).map(|nanos| nanos as f64 / 1e6),
            });
        }
    }
    rows
}

fn named(found: &Found) -> Ids {
    Ids { count: found.count, examples: found.first.clone() }
}

/// Converts lateness to milliseconds. `unit` is the number of histogram units in a millisecond.
fn lateness<C: hdrhistogram::Counter>(histogram: &Histogram<C>, unit: f64) -> Lateness {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / unit;
    Lateness { p50: at(0.5), p99: at(0.99), max: histogram.max() as f64 / unit }
}
