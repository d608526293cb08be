//! Values at one place of a JSON document (RFC 8259) of which only the first bytes may be there.
//!
//! A parser for whole documents refuses a prefix. This one reads as far as it can: a value counts once its last byte
//! has been seen, whatever follows. If a name occurs several times, all of its values count, because servers differ in
//! which of them they use. Steps into the document are as deep as the pointer, and everything else is skipped without
//! recursion, so that no document can exhaust the stack.

use std::borrow::Cow;

/// Whether `test` holds for a value at the place that `steps` lead to. It gets the text of a string, the literal of a
/// number or word, or `None` for an array or object. `whole` tells whether `text` is the whole document.
pub(super) fn finds(text: &[u8], whole: bool, steps: &[String], test: &dyn Fn(Option<&[u8]>) -> bool) -> bool {
    let mut reader = Reader { rest: text, whole };
    reader.seek(steps, test) == Some(true)
}

struct Reader<'a> {
    rest: &'a [u8],
    whole: bool,
}

/// Whether a byte ends a number or a word.
fn is_end(byte: u8) -> bool {
    matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n')
}

impl<'a> Reader<'a> {
    /// Reads one value. Returns `None` at the end of the text, and if it is not JSON.
    fn seek(&mut self, steps: &[String], test: &dyn Fn(Option<&[u8]>) -> bool) -> Option<bool> {
        let first = self.peek()?;
        let Some((step, further)) = steps.split_first() else { return self.value(first, test) };
        match first {
            b'{' => self.members(|reader, name| match name == step.as_bytes() {
                true => reader.seek(further, test),
                false => reader.skip().map(|()| false),
            }),
            b'[' => {
                let wanted = step.parse::<usize>().ok().filter(|index| index.to_string() == *step);
                self.elements(|reader, index| match wanted == Some(index) {
                    true => reader.seek(further, test),
                    false => reader.skip().map(|()| false),
                })
            }
            _ => self.skip().map(|()| false),
        }
    }

    /// Tests the value that begins with `first`.
    fn value(&mut self, first: u8, test: &dyn Fn(Option<&[u8]>) -> bool) -> Option<bool> {
        match first {
            b'"' => self.string().map(|text| test(Some(&text))),
            // It is there even if its end is not.
            b'{' | b'[' if test(None) => Some(true),
            b'{' | b'[' => self.skip().map(|()| false),
            _ => self.literal().map(|text| test(Some(text))),
        }
    }

    /// Calls `each` for every member of an object, at its value, until it returns true.
    fn members(&mut self, mut each: impl FnMut(&mut Self, &[u8]) -> Option<bool>) -> Option<bool> {
        self.take(b'{')?;
        if self.peek()? == b'}' {
            return self.take(b'}').map(|()| false);
        }
        loop {
            let name = match self.peek()? {
                b'"' => self.string()?,
                _ => return None,
            };
            self.take(b':')?;
            self.peek()?;
            if each(self, &name)? {
                return Some(true);
            }
            match self.peek()? {
                b',' => self.take(b',')?,
                _ => return self.take(b'}').map(|()| false),
            }
        }
    }

    /// Calls `each` for every element of an array, at its value, until it returns true.
    fn elements(&mut self, mut each: impl FnMut(&mut Self, usize) -> Option<bool>) -> Option<bool> {
        self.take(b'[')?;
        if self.peek()? == b']' {
            return self.take(b']').map(|()| false);
        }
        for index in 0.. {
            self.peek()?;
            if each(self, index)? {
                return Some(true);
            }
            match self.peek()? {
                b',' => self.take(b',')?,
                _ => return self.take(b']').map(|()| false),
            }
        }
        None
    }

    /// Skips one value. Brackets are counted and not matched, because no value after them depends on it.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => drop(self.string()?),
                b'{' | b'[' => {
                    depth += 1;
                    self.rest = self.rest.get(1..)?;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.rest = self.rest.get(1..)?;
                }
                b',' | b':' if depth > 0 => self.rest = self.rest.get(1..)?,
                _ => drop(self.literal()?),
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Returns the next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        let start = self.rest.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\r' | b'\n'))?;
        self.rest = self.rest.get(start..)?;
        self.rest.first().copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then_some(())?;
        self.rest = self.rest.get(1..)?;
        Some(())
    }

    /// Reads a number or a word.
    fn literal(&mut self) -> Option<&'a [u8]> {
        let end = match self.rest.iter().position(|&b| is_end(b)) {
            Some(end) => end,
            None if self.whole => self.rest.len(),
            None => return None,
        };
        let (text, rest) = self.rest.split_at_checked(end)?;
        let sound = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.');
        self.rest = rest;
        (!text.is_empty() && text.iter().all(sound)).then_some(text)
    }

    /// Reads a string, without its quotes and escapes.
    fn string(&mut self) -> Option<Cow<'a, [u8]>> {
        let text = self.rest.get(1..)?;
        let plain = text.iter().position(|b| matches!(b, b'"' | b'\\'))?;
        let (start, mut rest) = text.split_at_checked(plain)?;
        if let Some(rest) = rest.strip_prefix(b"\"") {
            self.rest = rest;
            return Some(Cow::Borrowed(start));
        }
        let mut own = start.to_vec();
        loop {
            let (&byte, after) = rest.split_first()?;
            rest = after;
            match byte {
                b'"' => break,
                b'\\' => {
                    let (&kind, after) = rest.split_first()?;
                    rest = after;
                    own.push(match kind {
                        b'"' | b'\\' | b'/' => kind,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'u' => {
                            let (letter, after) = unicode(rest)?;
                            rest = after;
                            own.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                            continue;
                        }
                        _ => return None,
                    });
                }
                byte => own.push(byte),
            }
        }
        self.rest = rest;
        Some(Cow::Owned(own))
    }
}

/// Reads the digits of `\u`, with a second escape for a letter outside the basic plane.
fn unicode(text: &[u8]) -> Option<(char, &[u8])> {
    let unit = |text: &[u8]| {
        let digits = text.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(text)?;
    let rest = text.get(4..)?;
    if let Some(letter) = char::from_u32(first) {
        return Some((letter, rest));
    }
    let second = unit(rest.strip_prefix(b"\\u")?)?;
    let letter = (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second);
    let letter = letter.then(|| char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)))??;
    Some((letter, rest.get(6..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;
    use weirgate_config::JsonPointer;

    use super::*;

    /// The texts at a place, and `[]` for an array or object.
    fn found(text: &[u8], whole: bool, pointer: &str) -> Vec<String> {
        let found = std::cell::RefCell::new(Vec::new());
        let pointer = JsonPointer::new(pointer).expect("a pointer");
        finds(text, whole, pointer.steps(), &|value| {
            found.borrow_mut().push(value.map_or("[]".to_owned(), |text| String::from_utf8_lossy(text).into_owned()));
            false
        });
        found.into_inner()
    }

    #[test]
    fn values_are_found_by_their_place() {
        let text = br#" {"a": [1, {"b":"x\n\u00e9\ud83d\ude00\"/"}, true], "c/d": -1.5e3 ,"e":{}, "a": null} "#;
        let at = |pointer| found(text, true, pointer);
        assert_eq!(at("/a/0"), ["1"]);
        assert_eq!(at("/a/1/b"), ["x\né😀\"/"]);
        assert_eq!(
            (at("/a/2"), at("/c~1d"), at("/e")),
            (vec!["true".into()], vec!["-1.5e3".into()], vec!["[]".into()])
        );
        assert_eq!(at("/a"), ["[]", "null"], "both count");
        assert_eq!((at("/a/00"), at("/a/9"), at("/x"), at("/c~1d/0")), (vec![], vec![], vec![], vec![]));
        assert_eq!(found(b"\"text\"", true, ""), ["text"]);
    }

    #[test]
    fn a_value_counts_once_its_end_is_there() {
        let at = |text: &str| found(text.as_bytes(), false, "/a");
        assert_eq!(at(r#"{"a": "one"#), [""; 0]);
        assert_eq!(at(r#"{"a": "one""#), ["one"]);
        assert_eq!(at(r#"{"a": 12"#), [""; 0]);
        assert_eq!(at(r#"{"a": 12,"#), ["12"]);
        assert_eq!(at(r#"{"a": ["#), ["[]"]);
        assert_eq!(found(b"12", true, ""), ["12"]);
        assert_eq!(found(b"12", false, ""), [""; 0]);
    }

    #[test]
    fn other_texts_have_no_values_and_deep_ones_are_skipped() {
        for text in
            ["", "{", "{a:1}", "{\"a\" 1}", "{\"a\":}", "{\"a\":\"\\x\"}", "{\"a\":\"\\ud800\"}", "{\"a\":@}", "]"]
        {
            assert_eq!(found(text.as_bytes(), true, "/a"), [""; 0], "{text}");
        }
        let deep = format!("{{\"x\":{}{},\"a\":1}}", "[".repeat(30_000), "]".repeat(30_000));
        assert_eq!(found(deep.as_bytes(), true, "/a"), ["1"]);
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c~/\"\\\\\u{0}-\u{20}é😀]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c~/]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The oracle is the parser of whole documents.
        #[test]
        fn values_are_those_of_another_parser(document in documents(), pretty in any::<bool>(), steps in prop::collection::vec("[a-c~/]{0,2}|[0-3]", 0..4), cut in any::<prop::sample::Index>()) {
            let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
            let text = text.expect("it is JSON");
            let pointer: String = steps.iter().map(|s| format!("/{}", s.replace('~', "~0").replace('/', "~1"))).collect();
            let expected: Vec<String> = document.pointer(&pointer).into_iter().map(|value| match value {
                Value::String(text) => text.clone(),
                Value::Array(_) | Value::Object(_) => "[]".to_owned(),
                other => other.to_string(),
            }).collect();
            prop_assert_eq!(&found(text.as_bytes(), true, &pointer), &expected);
            // A prefix has the same values or none.
            let part = found(&text.as_bytes()[..cut.index(text.len() + 1)], false, &pointer);
            prop_assert!(part.is_empty() || part == expected);
        }

        #[test]
        fn any_bytes(text in prop::collection::vec(prop::sample::select(b"{}[]\",:\\u0a1 t".to_vec()), 0..60), whole in any::<bool>()) {
            found(&text, whole, "/a/0");
        }
    }
}
