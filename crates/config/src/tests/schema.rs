//! The JSON Schema says what the decoder does: the examples satisfy it, and it names every field.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex_automata::meta::Regex;
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::errors::{Problems, SourceId};
use crate::tree::{Node, POLICY, Value, parse};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A tree as a JSON tool would read it.
fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null | Value::Wrong => Json::Null,
        Value::Text(text) => match serde_json::from_str(text) {
            Ok(value @ (Json::Number(_) | Json::Bool(_))) => value,
            _ => Json::String(text.to_string()),
        },
        Value::List(items) => items.iter().map(|n| json(n)).collect(),
        Value::Map(entries) => entries.iter().map(|e| (e.key.to_string(), json(&e.node))).collect::<Map<_, _>>().into(),
    }
}

fn instance(text: &str) -> Json {
    let mut problems = Problems::default();
    json(&parse(text, POLICY, SourceId::FILE, &mut problems).unwrap().root)
}

/// Whether `value` satisfies `schema`: the part of JSON Schema that ours uses, and nothing else.
fn valid(schema: &Json, value: &Json, root: &Json) -> Result<(), String> {
    let object = schema.as_object().ok_or("a schema is an object")?;
    let fail = |what: &str| Err(format!("{value} is not {what}"));
    for (keyword, argument) in object {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "examples" | "$defs" => {}
            "$ref" => {
                let pointer = argument.as_str().and_then(|p| p.strip_prefix('#')).ok_or("a local reference")?;
                valid(root.pointer(pointer).ok_or(pointer)?, value, root)?;
            }
            "type" => {
                let is = |kind: &Json| match kind.as_str() {
                    Some("object") => value.is_object(),
                    Some("array") => value.is_array(),
                    Some("string") => value.is_string(),
                    Some("integer") => value.is_u64(),
                    Some("number") => value.is_number(),
                    Some("boolean") => value.is_boolean(),
                    other => panic!("type {other:?}"),
                };
                if !argument.as_array().map_or_else(|| is(argument), |kinds| kinds.iter().any(is)) {
                    return fail(&argument.to_string());
                }
            }
            "const" if value != argument => return fail(&argument.to_string()),
            "enum" if !argument.as_array().unwrap().contains(value) => return fail(&argument.to_string()),
            "const" | "enum" => {}
            "anyOf" | "oneOf" => {
                let errors: Vec<String> =
                    argument.as_array().unwrap().iter().filter_map(|s| valid(s, value, root).err()).collect();
                if errors.len() == argument.as_array().unwrap().len() {
                    return Err(errors.join(" | "));
                }
            }
            "properties" | "patternProperties" | "additionalProperties" | "required" if !value.is_object() => {}
            "properties" => {
                for (name, schema) in argument.as_object().unwrap() {
                    if let Some(field) = value.get(name) {
                        valid(schema, field, root).map_err(|e| format!("{name}: {e}"))?;
                    }
                }
            }
            "patternProperties" => {
                for (name, field) in value.as_object().unwrap() {
                    for (pattern, schema) in argument.as_object().unwrap() {
                        if Regex::new(pattern).unwrap().is_match(name) {
                            valid(schema, field, root)?;
                        }
                    }
                }
            }
            "additionalProperties" => {
                let known = object.get("properties").and_then(Json::as_object);
                let patterns = object.get("patternProperties").and_then(Json::as_object);
                for (name, field) in value.as_object().unwrap() {
                    let matched = |p: &Map<String, Json>| p.keys().any(|p| Regex::new(p).unwrap().is_match(name));
                    if !known.is_some_and(|k| k.contains_key(name)) && !patterns.is_some_and(matched) {
                        match argument {
                            Json::Bool(false) => return Err(format!("{name} is unknown")),
                            schema => valid(schema, field, root).map_err(|e| format!("{name}: {e}"))?,
                        }
                    }
                }
            }
            "required" => {
                for name in argument.as_array().unwrap() {
                    value.get(name.as_str().unwrap()).ok_or(format!("{name} is missing"))?;
                }
            }
            "dependentRequired" if !value.is_object() => {}
            "dependentRequired" => {
                for (name, others) in argument.as_object().unwrap().iter().filter(|(name, _)| value.get(name).is_some())
                {
                    for other in others.as_array().unwrap() {
                        value.get(other.as_str().unwrap()).ok_or(format!("{other} is missing beside {name}"))?;
                    }
                }
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    valid(argument, item, root)?;
                }
            }
            "pattern" => {
                let pattern = Regex::new(argument.as_str().unwrap()).unwrap();
                if value.as_str().is_some_and(|text| !pattern.is_match(text)) {
                    return fail(&argument.to_string());
                }
            }
            "minItems" | "maxItems" | "minProperties" | "minLength" | "maxProperties" | "maxLength" => {
                let size = match value {
                    Json::Array(items) => items.len(),
                    Json::Object(fields) => fields.len(),
                    Json::String(text) => text.chars().count(),
                    _ => continue,
                };
                let bound = usize::try_from(argument.as_u64().unwrap()).unwrap();
                if (keyword.starts_with("min") && size < bound) || (keyword.starts_with("max") && size > bound) {
                    return fail(&format!("{keyword} {bound}"));
                }
            }
            "minimum" if value.as_f64() < argument.as_f64() => return fail("large enough"),
            "maximum" if value.as_f64() > argument.as_f64() => return fail("small enough"),
            "exclusiveMinimum" if value.as_f64().is_some_and(|value| Some(value) <= argument.as_f64()) => {
                return fail("large enough");
            }
            "minimum" | "maximum" | "exclusiveMinimum" => {}
            other => panic!("the test does not know the keyword {other}"),
        }
    }
    Ok(())
}

/// Every name of a field in `schema`.
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
fn the_examples_satisfy_it() {
    let schema = schema();
    let files = std::fs::read_dir(repository().join("policies")).unwrap().map(|entry| entry.unwrap().path());
    let examples: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
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
        "unknown-field",
        "misplaced-field",
        "missing-fields",
        "missing-unit",
        "wrong-unit",
        "two-statistics",
        "bad-switches",
        "percentile-range",
        "no-nodes",
        "wrong-shapes",
        "not-a-map",
        "unknown-discipline",
        "no-value",
        "bad-names",
    ] {
        let text = read(&format!("policies/broken/{broken}.yaml"));
        assert!(valid(&schema, &instance(&text), &schema).is_err(), "{broken}");
    }
}

#[test]
fn the_reference_and_the_guide_name_every_field() {
    let mut all = BTreeSet::new();
    names(&schema(), &mut all);
    assert!(all.len() > 60, "{all:?}");
    let (reference, guide) = (read("policies/reference.yaml"), read("docs/guide/policy.md"));
    for name in all {
        assert!(reference.contains(&format!("{name}:")), "policies/reference.yaml does not name {name}");
        assert!(guide.contains(&format!("`{name}`")), "docs/guide/policy.md does not name {name}");
    }
}

#[test]
fn the_guide_tells_every_default() {
    fn collect(schema: &Json, found: &mut Vec<(String, Json)>) {
        match schema {
            Json::Object(object) => {
                for (name, property) in object.get("properties").and_then(Json::as_object).into_iter().flatten() {
                    found.extend(property.get("default").map(|default| (name.clone(), default.clone())));
                }
                object.values().for_each(|inner| collect(inner, found));
            }
            Json::Array(items) => items.iter().for_each(|inner| collect(inner, found)),
            _ => {}
        }
    }
    let mut defaults = Vec::new();
    collect(&schema(), &mut defaults);
    assert!(defaults.len() > 40);
    let guide = read("docs/guide/policy.md");
    for (name, default) in defaults {
        // Records default to their own defaults; the body of a reply is a sentence.
        let text = match &default {
            Json::Object(_) => continue,
            Json::String(text) => text.trim().to_owned(),
            other => other.to_string(),
        };
        let row =
            guide.lines().any(|line| line.starts_with(&format!("| `{name}` |")) && line.contains(&format!("`{text}`")));
        assert!(row, "docs/guide/policy.md has no row for {name} with its default {text}");
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
    assert_eq!(schema["$defs"]["Dispatch"]["anyOf"][1]["const"], "wrr");
}

#[test]
fn every_experiment_satisfies_its_schema() {
    let schema = experiment_schema();
    assert_eq!(schema["title"], "Weirgate experiment");
    let files = std::fs::read_dir(repository().join("experiments")).unwrap().map(|entry| entry.unwrap().path());
    let experiments: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
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
        let text = read(&format!("experiments/broken/{broken}.yaml"));
        assert!(valid(&schema, &instance(&text), &schema).is_err(), "{broken}");
    }
}

#[test]
fn the_guide_to_experiments_names_every_field_with_its_default() {
    // The policy has a guide of its own.
    let (mut own, mut policy) = (BTreeSet::new(), BTreeSet::new());
    names(&experiment_schema(), &mut own);
    names(&schema(), &mut policy);
    let guide = read("docs/guide/experiments.md");
    let own: Vec<&String> = own.difference(&policy).collect();
    assert!(own.len() > 30, "{own:?}");
    for name in own {
        assert!(guide.contains(&format!("`{name}`")), "docs/guide/experiments.md does not name {name}");
    }
    let schema = experiment_schema();
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
