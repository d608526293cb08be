//! Maps with fixed fields: how a field is found, and the macro that declares such maps.

use std::rc::Rc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value as Json;

use super::{Context, Decode, Mark, StepName};
use crate::errors::{Complaint, listed, nearest};
use crate::tree::{Entry, Node, Value};

/// A value with its place.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place, or that of the record if the file does not have the field.
    pub mark: Mark,
    /// Whether something in it was invalid and reported. Conclusions from it would mislead.
    pub bad: bool,
    /// Whether the file has it.
    pub given: bool,
}

/// A field of a record.
pub trait Field: Sized {
    /// Type of the value in the file.
    type Value: Decode + JsonSchema;
    /// Whether the file must have it.
    const REQUIRED: bool;
    /// Builds the field from the found value. `default` is given only for [`Defaulted`].
    fn from_found(found: Found<Self::Value>, default: Option<&str>, cx: &mut Context) -> Self;
}

/// A field's value, as far as the file has one.
pub struct Found<T> {
    value: Option<T>,
    mark: Mark,
    bad: bool,
    given: bool,
}

/// A field that the file must have. A missing value (`None`) was reported.
pub type Required<T> = At<Needed<T>>;
/// A field that the file may have.
pub type Optional<T> = At<Option<T>>;
/// A field with a default.
pub type Defaulted<T> = At<Filled<T>>;

/// The value of a required field.
#[derive(Clone, Debug)]
pub struct Needed<T>(pub Option<T>);

/// The value of a field with a default.
#[derive(Clone, Debug)]
pub struct Filled<T>(T);

impl<T> Required<T> {
    /// Returns the value, or `None` if it is missing or invalid, which was reported.
    pub fn get(&self) -> Option<&T> {
        self.value.0.as_ref()
    }
}

impl<T> Optional<T> {
    /// Returns the value, or `None` if the file does not have it.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }
}

impl<T> Defaulted<T> {
    /// Returns the value of the file, or the default.
    pub fn get(&self) -> &T {
        &self.value.0
    }

    /// Replaces the value by the one that a shorter form of the record gives.
    pub fn set(&mut self, value: T) {
        self.value.0 = value;
    }
}

impl<T: Decode + JsonSchema> Field for Required<T> {
    type Value = T;
    const REQUIRED: bool = true;

    fn from_found(found: Found<T>, _default: Option<&str>, _cx: &mut Context) -> Self {
        At { value: Needed(found.value), mark: found.mark, bad: found.bad, given: found.given }
    }
}

impl<T: Decode + JsonSchema> Field for Optional<T> {
    type Value = T;
    const REQUIRED: bool = false;

    fn from_found(found: Found<T>, _default: Option<&str>, _cx: &mut Context) -> Self {
        At { value: found.value, mark: found.mark, bad: found.bad, given: found.given }
    }
}

impl<T: Decode + JsonSchema> Field for Defaulted<T> {
    type Value = T;
    const REQUIRED: bool = false;

    /// # Panics
    /// If the default, which is declared with the field, does not decode. A test decodes all defaults.
    fn from_found(found: Found<T>, default: Option<&str>, cx: &mut Context) -> Self {
        let value = found.value.unwrap_or_else(|| {
            let node = Node::assumed(default.unwrap_or("{}"), cx.position(found.mark));
            T::decode(&node, cx).expect("a default is sound")
        });
        At { value: Filled(value), mark: found.mark, bad: found.bad, given: found.given }
    }
}

/// The fields of a record in the file, checked against the allowed names.
pub struct Fields<'n> {
    entries: &'n [Entry],
}

impl<'n> Fields<'n> {
    /// Reports fields that are not in `known`. Returns `None` if `node` is not a map, which is reported.
    pub fn of(node: &'n Node, known: &[&'static str], cx: &mut Context) -> Option<Fields<'n>> {
        let Value::Map(entries) = &node.value else {
            cx.mismatch(&format!("a map with {}", listed(known.iter().copied())), node);
            return None;
        };
        for entry in entries {
            if !known.contains(&&*entry.key) {
                let hint = match (cx.hint(known, &entry.key), nearest(&entry.key, known.iter().copied())) {
                    (Some(position), _) => position.to_owned(),
                    (None, Some(near)) => format!("did you mean `{near}`?"),
                    (None, None) => format!("known here: {}", listed(known.iter().copied())),
                };
                let complaint = Complaint::new("this field is unknown", hint);
                cx.within(StepName::Key(Rc::clone(&entry.key)), entry.key_position, |cx| {
                    cx.complain(complaint);
                    None::<()>
                });
            }
        }
        Some(Fields { entries })
    }

    /// Decodes one field.
    pub fn take<F: Field>(&self, name: &'static str, default: Option<&str>, cx: &mut Context) -> F {
        let Some(entry) = self.entries.iter().find(|e| *e.key == *name) else {
            let missing = F::REQUIRED;
            if missing {
                cx.fail_in(cx.here(), name, "this field is missing", format!("add `{name}:`"));
            }
            let found = Found { value: None, mark: cx.here(), bad: missing, given: false };
            return F::from_found(found, default, cx);
        };
        let before = cx.problems.reports();
        let (value, mark) =
            cx.within(StepName::Field(name), entry.node.position, |cx| F::Value::decode(&entry.node, cx));
        let bad = cx.problems.reports() > before;
        F::from_found(Found { value, mark, bad, given: true }, default, cx)
    }
}

/// The schema of a record under construction.
#[derive(Debug, Default)]
pub struct RecordSchema {
    properties: serde_json::Map<String, Json>,
    required: Vec<Json>,
}

impl RecordSchema {
    /// Adds a field.
    pub fn field<F: Field>(&mut self, generator: &mut SchemaGenerator, name: &str, about: &str, default: Option<&str>) {
        let mut schema = generator.subschema_for::<F::Value>();
        schema.insert("description".into(), about.trim().into());
        if let Some(text) = default {
            schema.insert("default".into(), serde_json::from_str(text).unwrap_or_else(|_| text.into()));
        }
        self.properties.insert(name.to_owned(), schema.into());
        if F::REQUIRED {
            self.required.push(name.into());
        }
    }

    /// Returns the complete schema.
    pub fn finish(self, about: &str) -> Schema {
        let mut schema = json_schema!({
            "type": "object",
            "description": about.trim(),
            "properties": self.properties,
            "additionalProperties": false,
        });
        if !self.required.is_empty() {
            schema.insert("required".into(), self.required.into());
        }
        schema
    }
}

/// Declares a map with fixed fields: struct, [`Decode`] and JSON Schema. A field's type is [`Required`],
/// [`Optional`] or [`Defaulted`]. The last needs `= default`, written as in the file.
#[macro_export]
macro_rules! record {
    (
        $(#[doc = $about:literal])+
        pub(crate) struct $Name:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $ty:ty $(= $default:tt)?, )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub(crate) struct $Name {
            $( $(#[doc = $doc])+ pub(crate) $field: $ty, )+
        }

        impl $crate::decode::Decode for $Name {
            fn decode(node: &$crate::tree::Node, cx: &mut $crate::decode::Context) -> Option<Self> {
                const NAMES: &[&str] = &[$($crate::decode::field_name(stringify!($field))),+];
                let fields = $crate::decode::Fields::of(node, NAMES, cx)?;
                Some($Name { $(
                    $field: fields.take(
                        const { $crate::decode::field_name(stringify!($field)) },
                        $crate::record!(@default $($default)?),
                        cx,
                    ),
                )+ })
            }
        }

        impl schemars::JsonSchema for $Name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut record = $crate::decode::RecordSchema::default();
                $( record.field::<$ty>(
                    generator,
                    $crate::decode::field_name(stringify!($field)),
                    concat!($($doc),+),
                    $crate::record!(@default $($default)?),
                ); )+
                record.finish(concat!($($about),+))
            }
        }
    };
    (@default) => { None };
    (@default $default:tt) => { Some(stringify!($default)) };
}

/// Returns a field's name in the file, without the `r#` that Rust needs for keywords.
pub const fn field_name(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}
