//! No text makes the loader panic, however broken it is, and all errors are limited in number and have a place.

use proptest::prelude::*;
use weirgate_config::{Errors, feasibility, load, load_bytes};

const SOUND: &[&str] = &[
    include_str!("../../../policies/two-tenants.yaml"),
    include_str!("../../../policies/reference.yaml"),
    include_str!("errors/several-errors.yaml"),
];

/// Pieces with a meaning in YAML or in the format.
const PIECES: &[&str] = &[
    ":", ": ", "- ", "\n", "\n  ", "{", "}", "[", "]", "&a ", "*a", "<<: *a", "!t ", "|", ">", "'", "\"", "#", "\t",
    "~", "%", "---\n", "? ", "listen", "classes", "match", "host", "any", "not", "p95", "800/s", "0", "-1", "1e9",
    "off", "custom", "\u{feff}", "\u{0}", "é", "\u{2028}",
];

fn check(errors: &Errors, text: &str) {
    assert!(!errors.problems.is_empty());
    assert!(errors.problems.is_sorted());
    let lines = text.split('\n').count() as u32 + 1;
    for problem in &errors.problems {
        assert!(!problem.what.is_empty());
        let Some(place) = problem.position else { panic!("{problem} has no place") };
        assert!(place.line >= 1 && place.column >= 1 && place.line <= lines, "{problem}");
    }
    let shown = errors.to_string();
    assert_eq!(shown.lines().count(), errors.problems.len() + usize::from(errors.more > 0), "{shown}");
}

fn try_text(text: &str) {
    match load("t.yaml", text) {
        Ok(loaded) => {
            // `\r` ends a line in YAML too.
            assert!(loaded.site.policy.validate().is_ok());
            let _ = feasibility(&loaded.site).to_string();
        }
        Err(errors) => check(&errors, &text.replace('\r', "\n")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in any::<String>()) {
        try_text(&text);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = load_bytes("t.yaml", &bytes) {
            prop_assert!(!errors.to_string().is_empty());
        }
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        try_text(&pieces.concat());
    }

    #[test]
    fn a_policy_with_pieces_cut_and_put_in(
        which in 0..SOUND.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..40usize, prop::sample::select(PIECES)), 1..6),
    ) {
        let mut text: Vec<char> = SOUND[which].chars().collect();
        for (at, cut, piece) in edits {
            let from = at.index(text.len().max(1)).min(text.len());
            let to = (from + cut).min(text.len());
            text.splice(from..to, piece.chars());
        }
        try_text(&text.into_iter().collect::<String>());
    }

    #[test]
    fn a_policy_with_lines_moved(which in 0..SOUND.len(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let mut lines: Vec<&str> = SOUND[which].lines().collect();
        let line = lines.remove(from.index(lines.len()));
        lines.insert(to.index(lines.len() + 1), line);
        try_text(&lines.join("\n"));
    }
}

#[test]
fn aliases_that_multiply_are_bounded() {
    // Ten levels of ten aliases each would be ten thousand million conditions.
    let mut text = String::from("listen: 127.0.0.1:80\nupstreams: { web: { nodes: [a:1] } }\nclasses:\n");
    text.push_str("  - { name: a, match: &m0 { host: a } }\n");
    for level in 1..=10 {
        let parts: Vec<String> = (0..10).map(|_| format!("*m{}", level - 1)).collect();
        text.push_str(&format!("  - {{ name: c{level}, match: &m{level} {{ any: [{}] }} }}\n", parts.join(", ")));
    }
    let errors = load("t.yaml", &text).unwrap_err();
    assert!(errors.to_string().contains("multiply"), "{errors}");
}

#[test]
fn twenty_thousand_classes_load() {
    let mut text = String::from("listen: 127.0.0.1:80\nupstreams: { web: { nodes: [a:1] } }\nclasses:\n");
    for i in 0..20_000 {
        text.push_str(&format!(
            "  - {{ name: t{i}, match: {{ host: t{i}.test }}, guarantee: {{ throughput: 1/s, response_time: {{ p95: 1s }} }} }}\n"
        ));
    }
    text.push_str("  - { name: other }\n");
    let loaded = load("t.yaml", &text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(loaded.site.policy.classes.len(), 20_001);
}
