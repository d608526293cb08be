//! The experiment of `weirgate demo --siege` in virtual time: no reader is refused, and their response times stay near
//! those of calm.

mod support;

use support::{example, sound};
use weirgate_experiment::Fate;
use weirgate_verdict::judge;

/// The readers among the traffic of the experiment.
const READERS: u32 = 0;

/// p95 of the readers in the phases of a run, in milliseconds, from the sixth second of each phase on.
fn p95(experiment: &weirgate_experiment::Experiment, run: &weirgate_experiment::Run) -> Vec<f64> {
    let of_phase = |index: usize| {
        let from = experiment.phase_from(index) + experiment.settle;
        let (from, until) = (from.as_nanos() as u64, experiment.phases[index].until.as_nanos() as u64);
        let served = run.records.iter().filter(|record| record.traffic == READERS && record.fate == Fate::Served);
        let mut times: Vec<u64> = served
            .filter(|record| (from..until).contains(&record.arrived))
            .map(|record| record.ended - record.arrived)
            .collect();
        times.sort_unstable();
        times[times.len() * 95 / 100] as f64 / 1e6
    };
    (0..experiment.phases.len()).map(of_phase).collect()
}

#[test]
fn no_reader_is_refused_while_ten_thousand_addresses_crawl() {
    let experiment = example("siege", &[]);
    let mut ratios = vec![Vec::new(); experiment.phases.len()];
    for seed in 1..=8 {
        let run = sound(&experiment, seed);
        let refused = |record: &&weirgate_experiment::Record| {
            record.traffic == READERS && !matches!(record.fate, Fate::Served | Fate::Cut)
        };
        assert_eq!(run.records.iter().filter(refused).count(), 0, "seed {seed}");
        let verdict = judge(&experiment, &run);
        let missed: Vec<_> = verdict.misses().collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?}");
        let p95 = p95(&experiment, &run);
        println!("seed {seed}: p95 of the readers {p95:.1?} ms");
        ratios.iter_mut().zip(&p95).for_each(|(all, phase)| all.push(phase / p95[0]));
    }
    for (phase, ratios) in experiment.phases.iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        println!("{}: of calm {ratios:.2?}", phase.name);
        // p95 of 400 requests varies by a tenth from run to run, so the median of the seeds counts.
        assert!(ratios[ratios.len() / 2] < 1.5, "{}: {ratios:?}", phase.name);
    }
}
