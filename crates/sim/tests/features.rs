//! The example experiments of file features. Each is played whole and must show the effect that its header
//! describes.

mod support;

use weirgate_experiment::{Experiment, Fate, Record, Run};
use weirgate_verdict::judge;

/// Plays the example `name` under the discipline `none`, which sheds nothing, so effects come from the
/// experiment.
fn played(name: &str) -> (Experiment, Run) {
    let experiment = support::example(name, &["policy.discipline=none"]);
    let run = support::sound(&experiment, 1);
    (experiment, run)
}

fn seconds(record: &Record) -> f64 {
    (record.ended - record.arrived) as f64 / 1e9
}

#[test]
fn a_leak_makes_machines_busy() {
    let (experiment, run) = played("leak");
    let verdict = judge(&experiment, &run);
    let used: Vec<f64> = verdict.phases.iter().map(|phase| phase.utilisation).collect();
    // The same load on less and less capacity, and then on as much as at first.
    assert!(used[1] > used[0] + 0.1 && used[2] > used[3] + 0.05, "{used:?}");
    assert!((used[0] - used[3]).abs() < 0.05, "{used:?}");
}

#[test]
fn requests_take_what_their_trace_says() {
    let (experiment, run) = played("tokens");
    let traced: Vec<f32> = experiment.traffic[0].traced.iter().map(|cost| (cost[1] as f64 / 1e9) as f32).collect();
    let taken: Vec<f32> = run.records.iter().filter(|record| record.traffic == 0).map(|record| record.io).collect();
    assert!(taken == traced && taken.len() > 300, "{} of {}", taken.len(), traced.len());
}

#[test]
fn streams_hold_their_slots_and_one_class_fails() {
    let (experiment, run) = played("event-streams");
    let streams: Vec<&Record> = run.records.iter().filter(|r| r.traffic == 2 && r.fate == Fate::Served).collect();
    let mean = streams.iter().map(|record| seconds(record)).sum::<f64>() / streams.len() as f64;
    assert!(mean > 10.0 && streams.len() > 50, "{} of {mean} s", streams.len());
    let failed = |traffic| {
        run.records
            .iter()
            .filter(move |r| r.traffic == traffic && r.fate == Fate::Failed)
            .map(|r| r.arrived / 1_000_000_000)
    };
    let (from, until) = (experiment.faults[0].at.as_secs(), experiment.faults[0].until.expect("an end").as_secs());
    let pages: Vec<u64> = failed(0).collect();
    // A node that fails so many requests is soon ejected, and again with its first failure after its return.
    assert!(pages.len() > 10 && pages.iter().all(|at| (from - 1..until).contains(at)), "{pages:?}");
    assert_eq!((failed(1).count(), failed(2).count()), (0, 0));
}

#[test]
fn a_shared_server_carries_one_addresss_load_to_the_other() {
    let (experiment, run) = played("shared-servers");
    let slowest = |phase: usize| {
        let (from, to) = (experiment.phase_from(phase), experiment.phases[phase].until);
        let range = from.as_nanos() as u64..to.as_nanos() as u64;
        let mut times: Vec<f64> =
            run.records.iter().filter(|r| r.traffic == 0 && range.contains(&r.arrived)).map(seconds).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() * 95 / 100]
    };
    // Pages go to the first address, the growing load goes to the second.
    assert!(slowest(1) > 1.2 * slowest(0), "{} and {}", slowest(0), slowest(1));
}

#[test]
fn each_phase_is_judged_by_the_promises_in_force() {
    let (experiment, run) = played("other-promises");
    let verdict = judge(&experiment, &run);
    let promised = |phase: usize, class: usize| {
        let part = &verdict.phases[phase].classes[class].part;
        (part.floor.expect("a floor").guaranteed_per_s, part.ceiling.as_ref().expect("a ceiling").limit_ms)
    };
    assert_eq!([promised(0, 0), promised(0, 1)], [(300.0, 500.0), (100.0, 500.0)]);
    assert_eq!([promised(1, 0), promised(1, 1)], [(150.0, 500.0), (250.0, 300.0)]);
}
