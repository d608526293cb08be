//! Any report of an agent is either read or refused, and the costs learned from such reports remain valid numbers.

#[path = "support/reports.rs"]
mod reports;

use proptest::prelude::*;
use reports::{Model, Source, parsed};

struct Seeded(u64);

impl Source for Seeded {
    fn below(&mut self, n: u64) -> Option<u64> {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(((self.0 >> 33) * n) >> 31)
    }
}

/// Returns the number of complete windows after `steps` steps.
fn run(seed: u64, steps: usize) -> u64 {
    let (mut source, mut model) = (Seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), Model::new());
    for _ in 0..steps {
        model.step(&mut source).expect("a seeded source never runs dry");
    }
    model.windows
}

/// A failure names its seed.
#[test]
fn whatever_agents_say_costs_stay_within_their_bounds() {
    let mut windows = 0;
    for seed in 0..60 {
        match std::panic::catch_unwind(|| run(seed, 400)) {
            Ok(complete) => windows += complete,
            Err(_) => panic!("seed {seed} fails; see above"),
        }
    }
    assert!(windows > 60 * 50, "{windows} windows: something is learned of");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        parsed(&bytes);
    }

    #[test]
    fn any_figures_are_read_or_refused(used in any::<f64>(), capacity in any::<f64>(), requests in any::<i64>()) {
        let text = format!(
            r#"{{"version":1,"active":{{"static":{requests},"dynamic":0}},"usage":{{"disk":{{"used":{used:e},"capacity":{capacity:e}}}}}}}"#
        );
        let sound = u32::try_from(requests).is_ok() && (0.0..=2f64.powi(64)).contains(&used)
            && capacity > 0.0 && capacity <= 2f64.powi(64);
        prop_assert_eq!(parsed(text.as_bytes()).is_some(), sound, "{}", text);
    }
}
