//! What surplus gets where service times are declared as CPU time, although requests mostly wait.

use std::path::Path;

use weirgate_experiment::load_experiment_file;
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::judge;

/// Cells of `experiments/knowledge.yaml`, and the share of the possible load that is served there at least. Without the
/// rule for what the guarantees need before contention is seen, it was 0.72 and 0.43.
const CELLS: [(&str, f64); 2] = [("80 %", 0.85), ("90 %", 0.6)];

#[test]
fn idle_nodes_serve_surplus_whatever_is_declared() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/knowledge.yaml");
    let grid = load_experiment_file(&file, &[]).expect("an experiment").experiment.grid;
    for (name, least) in CELLS {
        let cells = grid.iter().flat_map(|row| &row.cells);
        let set: &[Override] = cells.clone().find(|cell| cell.name == name).map(|cell| &cell.set[..]).expect(name);
        let experiment = load_experiment_file(&file, set).expect("a cell").experiment;
        for seed in 1..=3 {
            let verdict = judge(&experiment, &weirgate_sim::run(&experiment, seed, |_| ()));
            assert_eq!(verdict.misses().count(), 0, "{name}, seed {seed}");
            let judged = verdict.phases.iter().filter(|phase| phase.judged);
            let served: Vec<f64> = judged.filter_map(|phase| phase.served_over_oracle).collect();
            let mean = served.iter().sum::<f64>() / served.len() as f64;
            assert!(mean >= least, "{name}, seed {seed}: {mean:.2} of the possible load is served");
        }
    }
}
