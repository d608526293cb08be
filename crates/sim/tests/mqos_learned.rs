//! A page table that is learned in production.

use std::path::Path;

use weirgate_config::{Experiment, Override, load_experiment_file};
use weirgate_experiment::{PhaseVerdict, judge};
use weirgate_sim::run;

fn load(changes: &[&str]) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/mqos-learned.yaml");
    let changes: Vec<Override> = changes.iter().map(|text| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))).collect();
    load_experiment_file(&path, &changes).unwrap_or_else(|errors| panic!("{errors}")).experiment
}

fn played(changes: &[&str]) -> Vec<PhaseVerdict> {
    let experiment = load(changes);
    let run = run(&experiment, 1, |_| ());
    assert_eq!(run.violations, []);
    judge(&experiment, &run).phases
}

#[test]
fn explore() {
    for changes in [&[][..], &["policy.page_table.learned=no"]] {
        for phase in played(changes) {
            let r = phase.resources.unwrap();
            println!("PH {:.3?} all {:.3?} {:?}", r.utilisation, r.all, r.classes.iter().map(|c| (c.portion.used.clone(), c.portion.processing_ms)).collect::<Vec<_>>());
        }
    }
}
