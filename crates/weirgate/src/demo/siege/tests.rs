//! Tests of the table.

use std::path::Path;

use weirgate_experiment::{lasting, load_experiment};
use weirgate_spanned_yaml::overrides::Override;

use super::*;
use crate::demo::SIEGE;

/// The table of the siege in virtual time, a tenth as long.
#[test]
fn the_table_has_a_line_for_each_phase() {
    let policy = Override::new("policy", SIEGE.policy);
    let loaded = load_experiment("siege.yaml", SIEGE.experiment, Path::new(""), &[policy]);
    let experiment = loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment;
    assert_eq!(experiment.traffic.len(), CLIENTS.len());
    let experiment = lasting(&experiment, 33.0).expect("it can be shortened");
    let run = weirgate_sim::run(&experiment, 1, |_| ());
    let text = table(&experiment, &run);
    for (line, phase) in text.lines().skip(2).zip(["calm", "crawl", "archives", "hammer"]) {
        assert!(line.starts_with(phase) && line.ends_with('%'), "{text}");
    }
    assert!(text.contains("\n0 requests of readers were refused or lost."), "{text}");
}
