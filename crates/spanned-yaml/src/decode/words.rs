//! Choices of words.

use crate::errors::{Complaint, unknown};

/// Declares a choice of words: type, [`super::FromText`] and JSON Schema.
///
/// The type is an enum with variants `Name = "word"`, or a struct around a value of an existing type, often an enum
/// of another crate, with words `"word" => value`.
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

        $crate::words! { @read $Name concat!($($about),+); $( $word, concat!($($doc),+), $Name::$Variant; )+ }
    };
    (
        $(#[doc = $about:literal])+
        pub(crate) struct $Name:ident($Value:ty) {
            $( $(#[doc = $doc:literal])+ $word:literal => $value:expr, )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $Name(pub(crate) $Value);

        $crate::words! { @read $Name concat!($($about),+); $( $word, concat!($($doc),+), $Name($value); )+ }
    };
    (@read $Name:ident $about:expr; $( $word:literal, $doc:expr, $value:expr; )+) => {
        impl $crate::decode::FromText for $Name {
            const EXPECTED: &'static str = concat!("one of", $(" `", $word, "`"),+);

            fn from_text(text: &str) -> Result<Self, $crate::errors::Complaint> {
                match text {
                    $( $word => Ok($value), )+
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
                    "description": $about.trim(),
                    "oneOf": [$({ "const": $word, "description": $doc.trim() }),+],
                })
            }
        }
    };
}

/// Returns the complaint about a word that is not in `known`.
pub fn unknown_word(text: &str, known: &[&str]) -> Complaint {
    unknown("", text, known.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use crate::decode::FromText;

    words! {
        /// Which of two comes first.
        pub(crate) struct First(Ordering) {
            /// The smaller one.
            "smaller" => Ordering::Less,
            /// The larger one.
            "larger" => Ordering::Greater,
        }
    }

    #[test]
    fn words_stand_for_values_of_other_crates() {
        assert_eq!(First::from_text("larger").map(|first| first.0).ok(), Some(Ordering::Greater));
        assert_eq!(First::from_text("large").unwrap_err().hint, "did you mean `larger`?");
        let schema = schemars::SchemaGenerator::default().into_root_schema_for::<First>();
        assert_eq!(schema.get("oneOf").unwrap()[0]["description"], "The smaller one.");
    }
}
