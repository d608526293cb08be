//! Conditions on the first bytes of a request's body.

use weirgate_spanned_yaml::decode::{FromText, OneOrMany, Optional};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::{record, text_schema};

use super::conditions::{PatternText, QueryName, Values};
use crate::body::JsonPointer;

record! {
    /// Conditions on the first `limits.body_prefix` bytes of the body, which are received before the request has a
    /// class. Every field given must hold. A body with a `Content-Encoding`, and the messages of a call of gRPC, meet
    /// none of them.
    pub(crate) struct Body {
        /// The bytes contain this text.
        contains: Optional<OneOrMany<Fragment>>,
        /// This regular expression matches somewhere in the bytes.
        pattern: Optional<OneOrMany<PatternText>>,
        /// Fields of a form (`application/x-www-form-urlencoded`): a name (the field is present), or a map from names
        /// to values.
        form: Optional<Values<QueryName>>,
        /// Values of a JSON document (`application/json` or a type that ends with `+json`): a place such as
        /// `/params/0/name` (RFC 6901), at which there is a value, or a map from places to values.
        json: Optional<Values<PointerText>>,
    }
}

/// A text in a body.
#[derive(Clone, Debug)]
pub(crate) struct Fragment(pub(crate) String);

/// A place in a JSON document.
#[derive(Clone, Debug)]
pub(crate) struct PointerText(pub(crate) JsonPointer);

/// Longest text, as for the prefix in which it is looked for.
const MAX_TEXT: usize = 8 << 10;

impl FromText for Fragment {
    const EXPECTED: &'static str = "a text in the body";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text.len() {
            0 => Err(Complaint::new("every body contains this empty text", "write the text to look for")),
            1..=MAX_TEXT => Ok(Fragment(text.to_owned())),
            length => Err(Complaint::new(format!("the text has {length} bytes"), "write at most 8192")),
        }
    }
}

impl FromText for PointerText {
    const EXPECTED: &'static str = "a place in a JSON document such as `/method`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if let Some(pointer) = JsonPointer::new(text).filter(|_| text.len() <= 1024) {
            return Ok(PointerText(pointer));
        }
        let hint = match text.trim_start_matches(['$', '.', '/']).replace('.', "/") {
            path if text.starts_with('/') || path.is_empty() => {
                "write at most 32 steps, `~1` for `/` and `~0` for `~` in a name".to_owned()
            }
            path => format!("write {}", quoted(&format!("/{path}"))),
        };
        Err(Complaint::about(text, "is not a place in a JSON document", hint))
    }
}

text_schema! {
    Fragment: { "type": "string", "minLength": 1, "maxLength": 8192 };
    PointerText: { "type": "string", "pattern": "^(/.*)?$", "examples": ["/method", "/params/0/name"] };
}
