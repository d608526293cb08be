//! Observed classes: what would have been refused, compared with what is refused under the same seeds.

mod support;

use support::{example, sound};
use weirgate_experiment::{Experiment, Fate, TrafficClass};

/// The experiment with these changes.
fn load(changes: &[&str]) -> Experiment {
    example("observe", changes)
}

/// Refused requests of each class when it is enforced, and those that would have been when it is observed.
fn counts(changes: &[&str], seeds: std::ops::RangeInclusive<u64>) -> Vec<(u64, u64)> {
    let with = |mode| load(&[&[mode], changes].concat());
    let (enforce, observe) = (with("policy.mode=enforce"), with("policy.mode=observe"));
    let mut sums = vec![(0, 0); enforce.site.policy.classes.len()];
    for seed in seeds {
        let (enforced, observed) = (sound(&enforce, seed), sound(&observe, seed));
        assert!(observed.records.iter().all(|record| record.fate != Fate::Shed), "nothing is refused");
        assert!(enforced.samples.iter().all(|sample| sample.would_shed.is_empty()));
        let last = observed.samples.last().expect("a sample at the end");
        for (class, sum) in sums.iter_mut().enumerate() {
            let of_class = |traffic: u32| enforce.traffic[traffic as usize].class == TrafficClass::Class(class);
            let shed = enforced.records.iter().filter(|r| r.fate == Fate::Shed && of_class(r.traffic));
            sum.0 += shed.count() as u64;
            sum.1 += last.would_shed[class];
        }
    }
    sums
}

/// Checks that the counts of each class that is refused at all differ by no more than this share.
fn close(name: &str, most: f64, changes: &[&str]) {
    let counts = counts(changes, 1..=4);
    // `cargo test -p weirgate-sim --test observe -- --nocapture` gives the figures of docs/guide/observe.md.
    println!("{name}: refused and would be refused, by class: {counts:?}");
    for (class, (shed, would)) in counts.iter().enumerate() {
        let near = would.abs_diff(*shed) as f64 <= most * *shed as f64;
        assert!(near || would.max(shed) < &200, "{name}, class {class}: {counts:?}");
    }
    assert!(counts.iter().any(|(shed, _)| *shed > 1_000), "{name}: {counts:?}");
}

#[test]
fn a_surge_is_counted_within_a_tenth() {
    close("as it is", 0.1, &[]);
}

#[test]
fn equal_requests_are_counted_within_a_tenth() {
    close("equal", 0.1, &["traffic.*.demand=10ms"]);
}

#[test]
fn clients_that_leave_do_not_change_the_counts() {
    close("impatient", 0.1, &["traffic.*.patience=2s", "policy.classes.*.queue={ max_wait: 1s }"]);
}

#[test]
fn quorum_is_counted_within_a_tenth() {
    close("quorum", 0.1, &["policy.discipline=quorum", "policy.classes.*.queue={ max_wait: 2s }"]);
}

/// The learned service time is the smallest mean, and answers are worth as much. So their ratio is nearly right.
#[test]
fn learned_service_times_are_nearly_as_good() {
    close("learned", 0.15, &["policy.classes.*.service_time=null"]);
}

/// Half of the sources are enforced. Those that are not would be refused as often.
#[test]
fn a_share_of_the_sources_is_enforced() {
    let half = load(&["policy.mode={ enforce: 50% }"]);
    let all = load(&["policy.mode=enforce"]);
    let shed = |experiment: &Experiment| {
        let run = sound(experiment, 1);
        let shed = run.records.iter().filter(|record| record.fate == Fate::Shed).count() as f64;
        (shed, run.samples.last().map_or(0, |sample| sample.would_shed.iter().sum::<u64>()) as f64)
    };
    let ((all, none), (shed, would)) = (shed(&all), shed(&half));
    assert!(none < 1.0 && (0.4..0.6).contains(&(would / all)), "{shed} and {would} of {all}");
    assert!(shed > 0.2 * all, "{shed} of {all}");
}

#[test]
fn the_report_shows_what_would_have_been_refused() {
    let played = sound(&load(&[]), 1);
    let verdict = weirgate_verdict::judge(&load(&[]), &played);
    let surge = &verdict.phases[1];
    assert!(surge.classes[1].would_shed.is_some_and(|count| count > 1_000), "{:?}", surge.classes[1]);
    assert_eq!(surge.classes[1].part.shed.count, 0);
}
