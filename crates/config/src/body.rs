//! Conditions on the first bytes of a request's body.

use std::fmt;

use crate::site::{Pattern, ValuePattern};

/// A condition on the first bytes of a request's body.
#[derive(Clone, Debug)]
pub enum BodyCondition {
    /// They contain this text, which is compiled as it stands.
    Contains(Pattern),
    /// A regular expression matches somewhere in them.
    Like(Pattern),
    /// A field of a form (`application/x-www-form-urlencoded`) has this value, decoded.
    Form(String, ValuePattern),
    /// A value of a JSON document.
    Json(JsonPointer, ValuePattern),
}

/// The place of a value in a JSON document (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer(Vec<String>);

/// Maximum number of steps. Documents that people write are less deep.
const MAX_STEPS: usize = 32;

impl JsonPointer {
    /// Reads a pointer such as `/params/0/name`. The steps are unescaped: `~1` is `/`, and `~0` is `~`. Returns `None`
    /// if it is not a pointer, or has more than 32 steps.
    pub fn new(text: &str) -> Option<JsonPointer> {
        let steps = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(unescaped).collect::<Option<Vec<_>>>()?,
            None if text.is_empty() => Vec::new(),
            None => return None,
        };
        (steps.len() <= MAX_STEPS).then_some(JsonPointer(steps))
    }

    /// Returns its steps: names of members, or indices of elements.
    pub fn steps(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

fn unescaped(step: &str) -> Option<String> {
    let sound = step.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    sound.then(|| step.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_those_of_the_rfc() {
        let steps = |text| JsonPointer::new(text).map(|pointer| pointer.0.join("|"));
        assert_eq!(steps(""), Some(String::new()));
        assert_eq!(steps("/a/0/~01~1b"), Some("a|0|~1/b".to_owned()));
        assert_eq!(steps("/"), Some(String::new()));
        for wrong in ["a", "a/b", "/~", "/a~2", "/~/x", "é", &"/a".repeat(33)] {
            assert_eq!(steps(wrong), None, "{wrong}");
        }
        assert_eq!(JsonPointer::new("/a~1b/~0").unwrap().to_string(), "/a~1b/~0");
    }
}
