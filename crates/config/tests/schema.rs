//! The JSON Schema of a policy says the same as the decoder: the examples satisfy it, and it names every field.

#[path = "support/schema.rs"]
mod support;

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use support::{instance, read, repository, valid, yaml};
use weirgate_config::schema;

#[test]
fn the_examples_satisfy_it() {
    let schema = schema();
    let mut examples = yaml(&repository().join("policies"));
    examples.extend(yaml(&repository().join("packaging")));
    assert!(examples.len() >= 6);
    for path in examples {
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(valid(&schema, &instance(&text), &schema), Ok(()), "{}", path.display());
    }
}

#[test]
fn it_refuses_what_the_decoder_refuses() {
    let schema = schema();
    for broken in [
        "unknown-field", "misplaced-field", "missing-fields", "missing-unit", "wrong-unit", "two-statistics",
        "bad-switches", "percentile-range", "no-nodes", "wrong-shapes", "not-a-map", "unknown-discipline", "no-value",
        "bad-names",
    ] {
        let text = read(&format!("crates/config/tests/errors/{broken}.yaml"));
        assert!(valid(&schema, &instance(&text), &schema).is_err(), "{broken}");
    }
}

/// Collects every field name in `schema`.
fn names(schema: &Json, found: &mut BTreeSet<String>) {
    match schema {
        Json::Object(object) => {
            if let Some(properties) = object.get("properties").and_then(Json::as_object) {
                found.extend(properties.keys().cloned());
            }
            object.values().for_each(|inner| names(inner, found));
        }
        Json::Array(items) => items.iter().for_each(|inner| names(inner, found)),
        _ => {}
    }
}

#[test]
fn the_example_of_everything_names_every_field() {
    let mut all = BTreeSet::new();
    names(&schema(), &mut all);
    assert!(all.len() > 60, "{all:?}");
    let example = read("policies/reference.yaml");
    for name in all {
        assert!(example.contains(&format!("{name}:")), "policies/reference.yaml does not name {name}");
    }
}

#[test]
fn fields_tell_what_they_are_for() {
    let schema = schema();
    assert_eq!(schema["title"], "Weirgate policy");
    let limits = &schema["$defs"]["Limits"]["properties"];
    assert_eq!(limits["headers"]["default"], json!(100));
    assert_eq!(limits["head_bytes"]["default"], json!("64KiB"));
    assert!(limits["head_bytes"]["description"].as_str().unwrap().contains("431"));
    assert_eq!(schema["$defs"]["Class"]["required"], json!(["name"]));
    assert_eq!(schema["$defs"]["Dispatch"]["anyOf"][1]["const"], "least_loaded");
}
