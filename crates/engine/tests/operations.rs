//! Random operations over the whole interface, checked against a model, and a comparison of two runs with the
//! same seed.

#[path = "support/operations.rs"]
mod operations;

use operations::{Model, Source, VARIANTS};

struct Seeded(u64);

impl Source for Seeded {
    fn below(&mut self, n: u64) -> Option<u64> {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(((self.0 >> 33) * n) >> 31)
    }
}

fn run(seed: u64, steps: usize) -> Vec<String> {
    let mut source = Seeded(seed);
    let mut model = Model::new(seed % VARIANTS, seed);
    for _ in 0..steps {
        model.step(&mut source).expect("a seeded source never runs dry");
    }
    model.drain();
    model.trace
}

/// Runs every variant of the policy. A failure names its seed.
#[test]
fn nothing_is_lost_doubled_or_left_waiting() {
    for seed in 0..VARIANTS {
        let result = std::panic::catch_unwind(|| run(seed, 400));
        assert!(result.is_ok(), "seed {seed} fails; see above");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 77, 200] {
        let (a, b) = (run(seed, 1500), run(seed, 1500));
        assert!(a.len() > 500, "the run does something");
        assert_eq!(a, b, "seed {seed}");
    }
    assert_ne!(run(1, 1500), run(289, 1500), "another seed is another run");
}
