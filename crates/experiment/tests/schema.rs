//! The JSON Schema of an experiment says the same as the decoder: it accepts the experiments and refuses broken ones.

#[path = "../../config/tests/support/schema.rs"]
mod support;

use support::{instance, read, repository, valid, yaml};
use weirgate_experiment::experiment_schema;

#[test]
fn every_experiment_satisfies_its_schema() {
    let schema = experiment_schema();
    assert_eq!(schema["title"], "Weirgate experiment");
    let experiments = yaml(&repository().join("experiments"));
    assert!(experiments.len() >= 18);
    for path in experiments {
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(valid(&schema, &instance(&text), &schema), Ok(()), "{}", path.display());
    }
}

#[test]
fn the_schema_of_experiments_refuses_what_the_decoder_refuses() {
    let schema = experiment_schema();
    for broken in
        ["bad-bursts", "bad-demand", "bad-machines", "missing-fields", "phases-out-of-order", "unknown-fields"]
    {
        let text = read(&format!("crates/experiment/tests/errors/{broken}.yaml"));
        assert!(valid(&schema, &instance(&text), &schema).is_err(), "{broken}");
    }
}

#[test]
fn the_guide_to_experiments_tells_every_default() {
    let (schema, guide) = (experiment_schema(), read("docs/guide/experiments.md"));
    for record in
        ["ExperimentFile", "MachineForm", "PhaseForm", "FaultForm", "PublishedForm", "TrafficForm", "RateFrom"]
    {
        let record = if record == "ExperimentFile" { &schema } else { &schema["$defs"][record] };
        for (name, property) in record["properties"].as_object().expect("a record") {
            let Some(default) = property.get("default") else { continue };
            let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            let tells =
                |line: &str| line.starts_with(&format!("| `{name}` |")) && line.contains(&format!("`{default}`"));
            assert!(guide.lines().any(tells), "the guide has no row for {name} with its default {default}");
        }
    }
}
