//! A choice of methods, each with figures of its own: the name of a method, or a map with the name as its only key.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value as Json;

use super::{Context, Decode, Fields, Optional, RecordSchema};
use crate::errors::Complaint;
use crate::tree::Node;

/// Declares a choice: enum, [`Decode`] and JSON Schema.
///
/// A variant is `Name = "word"`, `Name(Value) = "word"` or `Name(Value) = "word" needs "…": "…"`. All of the second and
/// third kind can be written as `{ word: value }`, and the first two as the word alone. Then the value is that of `{}`:
/// a record with every field at its default. The third kind complains about the word alone: the first text names the
/// missing part, and the second text is an example.
///
/// `expects` is the expected form, as in "write …", for a list or nothing in place of the choice. The enum has a
/// constant `FIELDS` with the words that may be keys.
#[macro_export]
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        pub(crate) enum $Name:ident expects $expects:literal {
            $(
                $(#[doc = $doc:literal])+
                $Variant:ident $(($Value:ty))? = $word:literal $(needs $needs:literal: $example:literal)?,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub(crate) enum $Name {
            $( $(#[doc = $doc])+ $Variant $((Box<$Value>))?, )+
        }

        impl $Name {
            /// The words that are keys of the map.
            pub(crate) const FIELDS: &[&str] = &[$( $( $crate::choice!(@first $word, $Value), )? )+];
        }

        impl $crate::decode::Decode for $Name {
            fn decode(node: &$crate::tree::Node, cx: &mut $crate::decode::Context) -> Option<Self> {
                match &node.value {
                    $crate::tree::Value::Text(text) => match &**text {
                        $( $word => $crate::choice!(
                            @alone (node, cx, $word) $Name::$Variant, [$($Value)?] [$($needs, $example)?]
                        ), )+
                        word => {
                            cx.unknown_word(word, &[$($word),+]);
                            None
                        }
                    },
                    $crate::tree::Value::Map(_) => {
                        let mut one = $crate::decode::OneOf::of(node, $Name::FIELDS, cx)?;
                        $( $( one.field::<$Value>($word, |value| $Name::$Variant(Box::new(value)), cx); )? )+
                        one.finish(cx)
                    }
                    _ => {
                        cx.mismatch($expects, node);
                        None
                    }
                }
            }
        }

        impl schemars::JsonSchema for $Name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut choice = $crate::decode::ChoiceSchema::default();
                $( $crate::choice!(
                    @schema (choice, generator) $word, concat!($($doc),+), [$($Value)?] [$($needs)?]
                ); )+
                choice.finish(concat!($($about),+))
            }
        }
    };
    (@first $word:literal, $Value:ty) => { $word };
    (@alone ($node:ident, $cx:ident, $word:literal) $Name:ident::$Variant:ident, [] []) => { Some($Name::$Variant) };
    (@alone ($node:ident, $cx:ident, $word:literal) $Name:ident::$Variant:ident, [$Value:ty] []) => {
        $crate::decode::defaults::<$Value>($node, $cx).map(|value| $Name::$Variant(Box::new(value)))
    };
    (
        @alone ($node:ident, $cx:ident, $word:literal) $Name:ident::$Variant:ident,
        [$Value:ty] [$needs:literal, $example:literal]
    ) => {{
        let what = concat!("`", $word, "` needs ", $needs);
        $cx.complain($crate::errors::Complaint::new(what, concat!("write `", $example, "`")));
        None
    }};
    (@schema ($choice:ident, $generator:ident) $word:literal, $doc:expr, [] []) => { $choice.word($word, $doc) };
    (@schema ($choice:ident, $generator:ident) $word:literal, $doc:expr, [$Value:ty] []) => {
        $choice.word($word, $doc);
        $choice.field::<$Value>($generator, $word, $doc);
    };
    (@schema ($choice:ident, $generator:ident) $word:literal, $doc:expr, [$Value:ty] [$needs:literal]) => {
        $choice.field::<$Value>($generator, $word, $doc)
    };
}

/// Returns a record with every field at its default.
pub fn defaults<T: Decode>(node: &Node, cx: &mut Context) -> Option<T> {
    T::decode(&Node::assumed("{}", node.position), cx)
}

/// A map with exactly one of several fields, while it is decoded.
pub struct OneOf<'n, T> {
    fields: Fields<'n>,
    names: &'static [&'static str],
    found: Vec<(&'static str, T)>,
    /// Whether the value of a field was invalid and reported.
    bad: bool,
}

impl<'n, T> OneOf<'n, T> {
    /// Reports fields that are not in `names`. Returns `None` if `node` is not a map, which is reported.
    pub fn of(node: &'n Node, names: &'static [&'static str], cx: &mut Context) -> Option<Self> {
        Some(OneOf { fields: Fields::of(node, names, cx)?, names, found: Vec::new(), bad: false })
    }

    /// Decodes one field, if the map has it.
    pub fn field<V: Decode + JsonSchema>(&mut self, name: &'static str, choose: impl FnOnce(V) -> T, cx: &mut Context) {
        let field: Optional<V> = self.fields.take(name, None, cx);
        self.bad |= field.bad;
        self.found.extend(field.value.map(|value| (name, choose(value))));
    }

    /// Returns the one field that is present, and complains unless there is exactly one.
    pub fn finish(mut self, cx: &mut Context) -> Option<T> {
        match self.found.as_slice() {
            [] if self.bad => None,
            [] => {
                let names: Vec<String> = self.names.iter().map(|name| format!("`{name}:`")).collect();
                cx.complain(Complaint::new("this map is empty", format!("give it {}", names.join(" or "))));
                None
            }
            [_] => self.found.pop().map(|(_, value)| value),
            [(first, _), (second, _), ..] => {
                let what = format!("`{first}` and `{second}` exclude each other");
                cx.complain(Complaint::new(what, "keep one of them"));
                None
            }
        }
    }
}

/// The schema of a choice under construction.
#[derive(Debug, Default)]
pub struct ChoiceSchema {
    forms: Vec<Json>,
    map: RecordSchema,
}

impl ChoiceSchema {
    /// Adds a word that may stand alone.
    pub fn word(&mut self, word: &str, about: &str) {
        self.forms.push(json_schema!({ "const": word, "description": about.trim() }).into());
    }

    /// Adds a word that may be the key of the map.
    pub fn field<V: Decode + JsonSchema>(&mut self, generator: &mut SchemaGenerator, word: &str, about: &str) {
        self.map.field::<Optional<V>>(generator, word, about, None);
    }

    /// Returns the complete schema.
    pub fn finish(mut self, about: &str) -> Schema {
        let mut map = self.map.finish("The method with its figures: exactly one of the fields.");
        map.insert("minProperties".into(), 1.into());
        map.insert("maxProperties".into(), 1.into());
        self.forms.push(map.into());
        json_schema!({ "description": about.trim(), "anyOf": self.forms })
    }
}

#[cfg(test)]
mod tests {
    use crate::decode::{Context, Decode, Defaulted};
    use crate::errors::{Problems, SourceId};
    use crate::record;
    use crate::tree::{Kind, parse};
    use crate::unit::Count;

    record! {
        /// Figures of a window.
        pub(crate) struct Window {
            /// Its size.
            size: Defaulted<Count> = 7,
        }
    }

    choice! {
        /// How many may enter.
        pub(crate) enum Limit expects "a limit" {
            /// Any number.
            None = "none",
            /// A window.
            Window(Window) = "window",
            /// A number.
            Fixed(Count) = "fixed" needs "a number": "{ fixed: 3 }",
        }
    }

    /// The value of `text`, or its only problem.
    fn read(text: &str) -> Result<Limit, String> {
        const KIND: Kind = Kind { name: "a limit", min: "", too_long: "", too_deep: "" };
        let mut problems = Problems::default();
        let tree = parse(text, KIND, SourceId::FILE, &mut problems).unwrap();
        let mut cx = Context::new(problems, tree.nodes, |_, _| None);
        let value = Limit::decode(&tree.root, &mut cx);
        match cx.problems.into_errors("f") {
            Some(errors) => Err(errors.to_string().trim_end().to_owned()),
            None => Ok(value.unwrap()),
        }
    }

    #[test]
    fn both_spellings() {
        assert!(matches!(read("none"), Ok(Limit::None)));
        assert!(matches!(read("window"), Ok(Limit::Window(w)) if w.size.get().0 == 7));
        assert!(matches!(read("{ window: { size: 8 } }"), Ok(Limit::Window(w)) if w.size.get().0 == 8));
        assert!(matches!(read("{ fixed: 3 }"), Ok(Limit::Fixed(count)) if count.0 == 3));
    }

    #[test]
    fn mistakes() {
        for (text, said) in [
            ("fixed", "`fixed` needs a number; write `{ fixed: 3 }`"),
            ("widow", "`widow` is unknown; did you mean `window`?"),
            ("[none]", "this is a list; write a limit"),
            ("{}", "this map is empty; give it `window:` or `fixed:`"),
            ("{ window: {}, fixed: 3 }", "`window` and `fixed` exclude each other; keep one of them"),
        ] {
            assert_eq!(read(text).unwrap_err(), format!("f:1:1: {said}"));
        }
        assert!(read("{ none: {} }").unwrap_err().contains("is unknown"), "it has no value");
        assert!(read("{ fixed: 0 }").is_err());
    }

    #[test]
    fn the_schema_has_every_word_with_its_description() {
        let schema = schemars::SchemaGenerator::default().into_root_schema_for::<Limit>();
        let forms = schema.get("anyOf").and_then(|forms| forms.as_array()).unwrap();
        assert_eq!(forms[0], serde_json::json!({ "const": "none", "description": "Any number." }));
        assert_eq!(forms[1]["const"], "window");
        let keys: Vec<&str> = forms[2]["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!((forms.len(), keys), (3, vec!["fixed", "window"]));
    }
}
