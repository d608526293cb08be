//! Temporary.
use weirgate_config::{Override, load_experiment_file};
fn main() {
    let d = std::env::args().nth(1).unwrap();
    let e = load_experiment_file(std::path::Path::new("experiments/quorum-fig9.yaml"), &[Override::discipline(&d)]).unwrap().experiment;
    let mut n = 0;
    for seed in 0..10 { n += weirgate_sim::run(&e, seed, |_| ()).records.len(); }
    println!("{n}");
}
