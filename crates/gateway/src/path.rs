//! Canonical form of a path, used to classify *and* to forward.
//!
//! Source: RFC 3986 Sec. 6.2.2 (case, percent-encoding and path-segment normalisation). Departures, so that
//! no rule can be evaded: empty segments are merged, as web servers do. Paths that servers are known to read
//! in two ways are refused: encoded slashes and backslashes, raw backslashes, encoded NUL, dot segments with
//! parameters (`/..;/`), and paths that climb above the root.

use std::borrow::Cow;

use crate::refusal::Refusal;

/// Returns the canonical form of `path`, which must start with a slash.
///
/// # Errors
/// The path is ambiguous or is not a path.
pub(crate) fn canonical(path: &str) -> Result<Cow<'_, str>, Refusal> {
    if is_canonical(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    if !path.starts_with('/') {
        return Err(Refusal::bad("the path does not start with a slash"));
    }
    let decoded = normalise(path.as_bytes())?;
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = decoded.split('/').skip(1).peekable();
    let mut open = false;
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        open = match part {
            "" | "." => last,
            ".." => {
                segments.pop().ok_or(Refusal::bad("the path leaves the root"))?;
                last
            }
            _ if part.starts_with(".;") || part.starts_with("..;") => {
                return Err(Refusal::bad("a dot segment has parameters"));
            }
            _ => {
                segments.push(part);
                false
            }
        };
    }
    let mut canonical = String::with_capacity(decoded.len());
    for segment in &segments {
        canonical.push('/');
        canonical.push_str(segment);
    }
    if open || segments.is_empty() {
        canonical.push('/');
    }
    Ok(Cow::Owned(canonical))
}

/// Returns whether `path` is already canonical, as most paths are. Reads each byte once.
fn is_canonical(path: &[u8]) -> bool {
    let mut before = 0u8;
    for &byte in path {
        let plain = matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b'/' | b'.'
            | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@');
        if !plain || (before == b'/' && matches!(byte, b'/' | b'.')) {
            return false;
        }
        before = byte;
    }
    path.first() == Some(&b'/')
}

/// Decodes characters that need no encoding, and encodes characters that must be encoded, in upper case.
fn normalise(path: &[u8]) -> Result<String, Refusal> {
    let mut out = String::with_capacity(path.len() + 8);
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                let [high, low, after @ ..] = tail else { return Err(BAD_ESCAPE) };
                let (Some(high), Some(low)) = ((*high as char).to_digit(16), (*low as char).to_digit(16)) else {
                    return Err(BAD_ESCAPE);
                };
                rest = after;
                match u8::try_from(high << 4 | low).unwrap_or(0) {
                    0 => return Err(Refusal::bad("the path has an encoded NUL")),
                    b'/' | b'\\' => return Err(Refusal::bad("the path has an encoded slash")),
                    b @ (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~') => out.push(b as char),
                    b => escape(&mut out, b),
                }
            }
            b'\\' => return Err(Refusal::bad("the path has a backslash")),
            // RFC 3986 does not allow these characters unencoded, but browsers send them.
            b'"' | b'^' | b'{' | b'|' | b'}' | b'[' | b']' => escape(&mut out, byte),
            b if b.is_ascii_graphic() => out.push(b as char),
            _ => return Err(Refusal::bad("the path has bytes that are not allowed")),
        }
    }
    Ok(out)
}

const BAD_ESCAPE: Refusal = Refusal::bad("the path has a broken percent-encoding");

fn escape(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    for digit in [byte >> 4, byte & 15] {
        out.push(DIGITS[usize::from(digit)] as char);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_have_one_form() {
        for (path, form) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("//", "/"),
            ("//a///b/", "/a/b/"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/a/%2e%2e/b", "/b"),
            ("/%61%2D%5f%7e", "/a-_~"),
            ("/%c3%a4", "/%C3%A4"),
            ("/a%20b%0d%0a", "/a%20b%0D%0A"),
            ("/.hidden", "/.hidden"),
            ("/...", "/..."),
            ("/a;v=1/b", "/a;v=1/b"),
            ("/a|b[1]{2}", "/a%7Cb%5B1%5D%7B2%7D"),
            ("/admin/..//admin", "/admin"),
        ] {
            assert_eq!(canonical(path).as_deref(), Ok(form), "{path}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for path in [
            "",
            "a",
            "*",
            "/%",
            "/%4",
            "/%zz",
            "/%2f",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/%00",
            "/..",
            "/a/../..",
            "/%2e%2e",
            "/..;/x",
            "/a/.;x",
            "/a/%2e%2e;x=y/b",
        ] {
            assert!(canonical(path).is_err(), "{path}");
        }
    }

    proptest! {
        /// The canonical form of a canonical path is the path itself, and it contains nothing ambiguous.
        #[test]
        fn canonical_is_canonical(path in "(/(\\.|\\.\\.|[a-c%/.;|]|%2[ef]|%41|%C3){0,4}){0,6}") {
            if let Ok(form) = canonical(&path) {
                let again = canonical(&form);
                prop_assert_eq!(again.as_deref(), Ok(form.as_ref()));
                prop_assert!(form.starts_with('/') && !form.contains("//") && !form.contains("/../") && !form.contains("/./"));
            }
        }
    }
}
