//! No text and no override makes the loader of experiments panic, and every error has its place.

use std::path::Path;

use proptest::prelude::*;
use weirgate_experiment::{Experiment, load_experiment};
use weirgate_spanned_yaml::overrides::Override;

/// Pieces that YAML and the format give a meaning to.
const PIECES: &[&str] = &[
    ":", ": ", "- ", "\n", "\n  ", "{", "}", "[", "]", "&a ", "*a", "<<: *a", "!t ", "|", ">", "'", "\"", "#", "\t",
    "~", "%", "---\n", "? ", "listen", "classes", "match", "host", "any", "not", "p95", "800/s", "0", "-1", "1e9",
    "off", "custom", "\u{feff}", "\u{0}", "é", "\u{2028}",
];

const EXPERIMENTS: &[&str] = &[
    include_str!("../../../experiments/quorum-fig13.yaml"),
    include_str!("../../../experiments/impatient.yaml"),
    include_str!("errors/impossible-faults.yaml"),
];

fn try_experiment(text: &str, overrides: &[Override]) {
    match load_experiment("t.yaml", text, Path::new("nowhere"), overrides) {
        Ok(loaded) => {
            let Experiment { site, machines, machine_of, traffic, phases, faults, .. } = &loaded.experiment;
            assert!(site.policy.validate().is_ok());
            assert_eq!(machine_of.len(), site.policy.nodes.len());
            assert!(machine_of.iter().chain(faults.iter().flat_map(|f| &f.machines)).all(|&m| m < machines.len()));
            assert!(!phases.is_empty() && !traffic.is_empty());
        }
        Err(errors) => {
            assert!(!errors.problems.is_empty());
            assert!(
                errors.problems.iter().all(|problem| problem.position.is_some() || problem.source.is_some()),
                "{errors}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_experiment_with_pieces_cut_and_put_in(
        which in 0..EXPERIMENTS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..40usize, prop::sample::select(PIECES)), 1..6),
    ) {
        let mut text: Vec<char> = EXPERIMENTS[which].chars().collect();
        for (at, cut, piece) in edits {
            let at = at.index(text.len());
            text.splice(at..(at + cut).min(text.len()), piece.chars());
        }
        try_experiment(&text.into_iter().collect::<String>(), &[]);
    }

    #[test]
    fn an_experiment_with_any_override(
        which in 0..2usize,
        steps in prop::collection::vec(prop::sample::select(STEPS), 1..5),
        value in prop_oneof![any::<String>(), prop::sample::select(VALUES).prop_map(str::to_owned)],
    ) {
        if let Ok(change) = format!("{}={value}", steps.join(".")).parse::<Override>() {
            try_experiment(EXPERIMENTS[which], &[change]);
        }
    }
}

/// Steps that lead somewhere, and some that do not.
const STEPS: &[&str] = &[
    "policy", "classes", "upstreams", "traffic", "A", "search", "0", "1", "*", "rate", "demand", "phases", "before",
    "until", "machines", "faults", "machine", "at", "users", "zz",
];

/// Values that belong somewhere, and some that do not.
const VALUES: &[&str] = &[
    "null", "5s", "800/s", "[]", "{}", "[5/s, { at: 10s, rate: 9/s }]", "{ exponential: 8ms }", "all", "weirgate",
    "*a", "[1, [2", "{ a: { b: 1 } }", "0s", "0",
];
