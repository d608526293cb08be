//! The demo's experiment in virtual time: with control every guarantee is held at any length, and without control
//! none of those that the surge and the expensive requests touch.

mod support;

use weirgate_experiment::{Experiment, lasting};
use weirgate_verdict::judge;

/// The experiment, `seconds` long, as `weirgate demo --seconds` plays it.
fn demo(seconds: f64, discipline: &str) -> Experiment {
    let experiment = support::example("demo", &[&format!("policy.discipline={discipline}")]);
    lasting(&experiment, seconds).expect("every length from 6 s on can be played")
}

#[test]
fn every_guarantee_is_held_with_control() {
    for discipline in ["weirgate", "quorum"] {
        for seconds in [6.0, 12.0, 40.0, 90.0] {
            let experiment = demo(seconds, discipline);
            for seed in 1..=5 {
                let verdict = judge(&experiment, &weirgate_sim::run(&experiment, seed, |_| ()));
                let missed: Vec<_> = verdict.misses().collect();
                assert!(missed.is_empty(), "{discipline}, {seconds} s, seed {seed}: {missed:?}");
                assert!(verdict.judged() >= 16, "two classes in four phases");
            }
        }
    }
}

#[test]
fn without_control_every_class_misses_in_both_hot_phases() {
    let experiment = demo(40.0, "none");
    let verdict = judge(&experiment, &weirgate_sim::run(&experiment, 1, |_| ()));
    for (phase, missed) in verdict.phases.iter().zip([false, true, true]) {
        for class in phase.classes.iter().take(2) {
            let floor = class.part.floor.is_some_and(|floor| !floor.ok);
            let ceiling = class.part.ceiling.as_ref().is_some_and(|ceiling| !ceiling.ok);
            assert_eq!(floor || ceiling, missed, "{} in {}", class.class, phase.name);
        }
    }
}
