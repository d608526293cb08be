//! The experiments of Cluster Reserves (Aron, Druschel and Zwaenepoel, SIGMETRICS 2000, Sec. 5): the logs
//! have the printed shape, and runs are repeatable. The results of the experiments are held to bands in
//! `weirgate_sim::bands`.

mod support;

use support::{example, sound};
use weirgate_experiment::Experiment;
use weirgate_experiment::traffic::Library;
use weirgate_sim::run;

#[test]
fn the_synthetic_logs_have_the_printed_shape() {
    const MIB: f64 = (1u32 << 20) as f64;
    let library = |experiment: &Experiment, stream: usize| {
        let documents = experiment.traffic[stream].documents.as_ref().expect("a stream with files");
        (documents.bytes as f64 / MIB, Library::new(documents, stream))
    };
    let merged = example("reserves-table3", &[]);
    let departments = example("reserves-lard3", &[]);
    let printed = [
        (&merged, 0, 1015.0, vec![(0.97, 526.0), (0.98, 619.0), (0.99, 745.0)]),
        (&departments, 0, 358.0, vec![(0.98, 248.0)]),
        (&departments, 1, 24.0, vec![(0.98, 16.0)]),
        (&departments, 2, 193.0, vec![(0.98, 67.0)]),
    ];
    for (experiment, stream, total, points) in printed {
        let (bytes, library) = library(experiment, stream);
        assert_eq!(bytes, total);
        for (share, printed) in points {
            let needs = library.memory_for(share) as f64 / MIB;
            assert!((needs / printed - 1.0).abs() < 0.03, "{share}: {needs:.1} MB, printed {printed}");
        }
    }
    assert_eq!(library(&merged, 0).1.files().count(), 31_000);
}

#[test]
fn without_reserves_shares_are_not_counted() {
    let run = sound(&example("reserves-lard3", &["reserves=null", "phases.warm.until=130s"]), 1);
    assert!(run.samples.iter().all(|sample| sample.usage.is_empty()));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let experiment = example("reserves-geographic", &[]);
    assert_eq!(run(&experiment, 3, |_| ()), run(&experiment, 3, |_| ()));
}
