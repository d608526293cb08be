//! Shapes that occur in many places of the file: one value or a list, a map of names, a value or `off`, a text or a
//! map.

use std::rc::Rc;

use schemars::{JsonSchema, json_schema};

use super::{At, Context, Decode, FromText, StepName};
use crate::errors::Complaint;
use crate::tree::{Entry, Node, Value};

/// Implements [`JsonSchema`] for a type whose schema stands where the type is used. Its parameters may have bounds.
#[macro_export]
macro_rules! inline_schema {
    (<$($P:ident $(: $Bound:ident)?),*> $Type:ty: |$generator:pat_param| $schema:expr) => {
        impl<$($P $(: $Bound)?),*> schemars::JsonSchema for $Type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                std::any::type_name::<Self>().into()
            }

            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
    ($Type:ty: |$generator:pat_param| $schema:expr) => {
        $crate::inline_schema! { <> $Type: |$generator| $schema }
    };
}

/// One value or a list of them.
#[derive(Clone, Debug)]
pub struct OneOrMany<T>(pub Vec<At<T>>);

impl<T: Decode> Decode for OneOrMany<T> {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        if matches!(node.value, Value::List(_)) {
            return Vec::decode(node, cx).map(OneOrMany);
        }
        let before = cx.problems.reports();
        let value = T::decode(node, cx)?;
        Some(OneOrMany(vec![At { value, mark: cx.here(), bad: cx.problems.reports() > before, given: true }]))
    }
}

inline_schema! {
    <T: JsonSchema> OneOrMany<T>: |generator| {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

impl<T: Decode> Decode for Vec<At<T>> {
    /// Decodes a list that must not be empty. Invalid items are left out.
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let Value::List(nodes) = &node.value else {
            cx.mismatch("a list: each item on its own line behind `- `", node);
            return None;
        };
        if nodes.is_empty() {
            cx.complain(Complaint::new("this list is empty", "give it at least one item"));
            return None;
        }
        let mut items = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let before = cx.problems.reports();
            let (value, mark) = cx.within(StepName::Index(index), node.position, |cx| T::decode(node, cx));
            let bad = cx.problems.reports() > before;
            items.extend(value.map(|value| At { value, mark, bad, given: true }));
        }
        Some(items)
    }
}

inline_schema! {
    <T: JsonSchema> At<T>: |generator| generator.subschema_for::<T>()
}

/// A map with names chosen by the operator as keys, in the order of the file.
#[derive(Clone, Debug)]
pub struct Named<K, T> {
    /// The entries with a valid name, in the order of the file.
    pub items: Vec<NamedItem<K, T>>,
    /// Whether every key was a valid name. Others are left out.
    pub complete: bool,
}

/// An item of a [`Named`] map. The value is `None` if it could not be decoded.
#[derive(Clone, Debug)]
pub struct NamedItem<K, T> {
    /// The name.
    pub name: K,
    /// Its value.
    pub value: At<Option<T>>,
}

impl<K: FromText, T: Decode> Decode for Named<K, T> {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            cx.mismatch("a map: `name: value`", node);
            return None;
        };
        if entries.is_empty() {
            cx.complain(Complaint::new("this map is empty", "give it at least one entry"));
            return None;
        }
        let mut items = Vec::with_capacity(entries.len());
        for Entry { key, key_position, node } in entries {
            let name = match K::from_text(key) {
                Ok(name) => Some(name),
                Err(complaint) => {
                    cx.within(StepName::Key(Rc::clone(key)), *key_position, |cx| {
                        cx.complain(complaint);
                        None::<()>
                    });
                    None
                }
            };
            let before = cx.problems.reports();
            let (value, mark) = cx.within(StepName::Key(Rc::clone(key)), node.position, |cx| T::decode(node, cx));
            let bad = cx.problems.reports() > before;
            items.extend(name.map(|name| NamedItem { name, value: At { value, mark, bad, given: true } }));
        }
        Some(Named { complete: items.len() == entries.len(), items })
    }
}

inline_schema! {
    <K, T: JsonSchema> Named<K, T>: |generator| {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>(), "minProperties": 1 })
    }
}

/// A value that can be switched off with the word `off`.
#[derive(Clone, Debug)]
pub enum Switch<T> {
    /// The word `off`.
    Off,
    /// Any other value.
    On(T),
}

impl<T> Switch<T> {
    /// Returns the value, or `None` for `off`.
    pub fn on(&self) -> Option<&T> {
        match self {
            Switch::Off => None,
            Switch::On(value) => Some(value),
        }
    }
}

impl<T: Decode> Decode for Switch<T> {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) if &**text == "off" => Some(Switch::Off),
            Value::Text(text) => {
                let hint = match text.to_ascii_lowercase().as_str() {
                    "false" | "no" | "none" | "never" | "disabled" | "off" => "write `off`",
                    "true" | "yes" | "on" | "enabled" => {
                        "write a map with its figures; what you leave out has its default"
                    }
                    _ => return T::decode(node, cx).map(Switch::On),
                };
                cx.complain(Complaint::about(text, "means nothing here", hint));
                None
            }
            _ => T::decode(node, cx).map(Switch::On),
        }
    }
}

inline_schema! {
    <T: JsonSchema> Switch<T>: |generator| {
        json_schema!({ "anyOf": [{ "const": "off" }, generator.subschema_for::<T>()] })
    }
}

/// A text such as a name or an address, or a map that says more.
#[derive(Clone, Debug)]
pub enum TextOrMap<T, M> {
    /// The text alone.
    Text(T),
    /// The map.
    Map(Box<M>),
}

impl<T: FromText, M: Decode> Decode for TextOrMap<T, M> {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match node.value {
            Value::Map(_) => M::decode(node, cx).map(|map| TextOrMap::Map(Box::new(map))),
            Value::Text(_) => T::decode(node, cx).map(TextOrMap::Text),
            _ => {
                cx.mismatch(&format!("{}, or a map", T::EXPECTED), node);
                None
            }
        }
    }
}

inline_schema! {
    <T: JsonSchema, M: JsonSchema> TextOrMap<T, M>: |generator| {
        json_schema!({ "anyOf": [generator.subschema_for::<T>(), generator.subschema_for::<M>()] })
    }
}

/// Declares the JSON Schema of types that are written in one of several forms. A form is a type, or a schema in braces.
/// The schema of a type without a description stands where the type is used, and not in `$defs`.
#[macro_export]
macro_rules! any_of {
    ($($Name:ident $(: $about:literal)? = [$($form:tt),+];)+) => {
        $( impl schemars::JsonSchema for $Name {
            fn inline_schema() -> bool {
                $crate::any_of!(@inline $($about)?)
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    $("description": $about,)?
                    "anyOf": [$($crate::any_of!(@form generator $form)),+],
                })
            }
        } )+
    };
    (@inline) => { true };
    (@inline $about:literal) => { false };
    (@form $generator:ident { $($schema:tt)* }) => { schemars::json_schema!({ $($schema)* }) };
    (@form $generator:ident $Type:ident) => { $generator.subschema_for::<$Type>() };
}
