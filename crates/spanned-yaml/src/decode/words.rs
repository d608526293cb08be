//! Choices of words.

use crate::errors::{Complaint, unknown};

/// Declares a choice of words: enum, [`super::FromText`] and JSON Schema.
#[macro_export]
macro_rules! words {
    (
        $(#[doc = $about:literal])+
        pub(crate) enum $Name:ident {
            $( $(#[doc = $doc:literal])+ $Variant:ident = $word:literal, )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $Name { $( $(#[doc = $doc])+ $Variant, )+ }

        impl $crate::decode::FromText for $Name {
            const EXPECTED: &'static str = concat!("one of", $(" `", $word, "`"),+);

            fn from_text(text: &str) -> Result<Self, $crate::errors::Complaint> {
                match text {
                    $( $word => Ok($Name::$Variant), )+
                    _ => Err($crate::decode::unknown_word(text, &[$($word),+])),
                }
            }
        }

        impl schemars::JsonSchema for $Name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "description": concat!($($about),+).trim(),
                    "oneOf": [$({ "const": $word, "description": concat!($($doc),+).trim() }),+],
                })
            }
        }
    };
}
/// Returns the complaint about a word that is not in `known`.
pub fn unknown_word(text: &str, known: &[&str]) -> Complaint {
    unknown("", text, known.iter().copied())
}
