//! JSON Schema for tests: as much of it as the schemas of Weirgate's files use.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "files.rs"]
mod files;

use std::path::{Path, PathBuf};

pub use files::yaml;
use regex_automata::meta::Regex;
use serde_json::{Map, Value as Json};
use weirgate_spanned_yaml::errors::{Problems, SourceId};
use weirgate_spanned_yaml::tree::{Kind, Node, Value, parse};

/// A sound file; its hints are never shown.
const FILE: Kind = Kind { name: "a file", min: "", too_long: "", too_deep: "" };

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the repository.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Returns a tree as a JSON tool would read it.
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

/// A YAML text as a JSON tool would read it.
pub fn instance(text: &str) -> Json {
    let mut problems = Problems::default();
    json(&parse(text, FILE, SourceId::FILE, &mut problems).unwrap().root)
}

/// Whether `value` satisfies `schema`. Handles only the parts of JSON Schema that our schemas use.
pub fn valid(schema: &Json, value: &Json, root: &Json) -> Result<(), String> {
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
