//! Normal form of a path, which rules compare. Nodes get the path as the client sent it.
//!
//! Source: RFC 3986 Sec. 6.2.2 (case, percent-encoding and path-segment normalisation). Departures: empty segments are
//! merged, as web servers do. Characters that RFC 3986 does not allow unencoded, but clients send, are encoded.
//!
//! Servers differ in how they read some paths that are in legitimate use: an encoded slash (`%2F` in the names of npm's
//! packages, GitLab's projects and S3's keys) can be a slash or a part of a name, a backslash likewise, and an empty
//! segment can be a segment that `..` removes. For such a path there are several forms, and a request is of the class
//! that grants the least of those that the rules find for them. So no spelling of a path leads to a better class than
//! every node would agree to. Paths that lead out of the root, hide a dot segment behind parameters (`/..;/`) or have
//! an encoded NUL are refused. They occur in attacks only, and servers do refuse them. See ADR 14.

use crate::refusal::Refusal;

/// The forms of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forms {
    /// The normal form.
    pub(crate) normal: String,
    /// Forms that other readings result in, if they differ.
    pub(crate) others: Vec<String>,
}

/// Returns the forms of `path`, which starts with a slash or is `*`. Returns `None` if it has the normal form and no
/// other, as most paths do.
///
/// # Errors
/// No server should serve the path, in one of its readings.
pub(crate) fn forms(path: &[u8]) -> Result<Option<Forms>, Refusal> {
    if is_normal(path) || path == b"*" {
        return Ok(None);
    }
    let spelled = spell(path, false)?;
    let normal = resolve(&spelled, false)?;
    let mut others = Vec::new();
    let mut add = |form: String| {
        if form != normal && !others.contains(&form) {
            others.push(form);
        }
    };
    // Dot segments remove different segments if empty ones count.
    if spelled.contains("//") {
        add(resolve(&spelled, true)?);
    }
    if spelled.contains("%2F") || spelled.contains("%5C") {
        // Some servers decode before they remove dot segments, and some afterwards.
        for decoded in [spell(path, true)?, spell(normal.as_bytes(), true)?] {
            add(resolve(&decoded, false)?);
            add(resolve(&decoded, true)?);
        }
    }
    Ok(Some(Forms { normal, others }))
}

/// Whether a byte has one reading and is the same in the normal form. A semicolon starts parameters, which some servers
/// remove.
static PLAIN: [bool; 256] = {
    let bytes = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~/.!$&'()*+,=:@";
    let mut plain = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        plain[bytes[at] as usize] = true;
        at += 1;
    }
    plain
};

/// Returns whether `path` has the normal form and only one reading.
fn is_normal(path: &[u8]) -> bool {
    let empty_or_dot = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    path.first() == Some(&b'/')
        && path.iter().all(|&byte| PLAIN[usize::from(byte)])
        && !path.windows(2).any(empty_or_dot)
}

/// Decodes characters that need no encoding, and encodes characters that must be encoded, in upper case. Slashes and
/// backslashes in either spelling become slashes if `slashes`, and else stay encoded.
fn spell(path: &[u8], slashes: bool) -> Result<String, Refusal> {
    let mut out = String::with_capacity(path.len() + 8);
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                let [high, low, after @ ..] = tail else { return Err(Refusal::Escape) };
                let (Some(high), Some(low)) = ((*high as char).to_digit(16), (*low as char).to_digit(16)) else {
                    return Err(Refusal::Escape);
                };
                rest = after;
                match u8::try_from(high << 4 | low).unwrap_or(0) {
                    0 => return Err(Refusal::Nul),
                    b'/' | b'\\' if slashes => out.push('/'),
                    b @ (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~') => out.push(b as char),
                    b => escape(&mut out, b),
                }
            }
            b'\\' if slashes => out.push('/'),
            // RFC 3986 does not allow these characters unencoded, but clients send them.
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'[' | b']' => escape(&mut out, byte),
            b if b.is_ascii_graphic() => out.push(b as char),
            _ => return Err(Refusal::PathBytes),
        }
    }
    Ok(out)
}

/// Removes dot segments and empty segments. With `empty_counts`, `..` can remove an empty segment.
fn resolve(path: &str, empty_counts: bool) -> Result<String, Refusal> {
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    let mut open = false;
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        open = match part {
            "" if empty_counts && !last => {
                segments.push(part);
                false
            }
            "" | "." => last,
            ".." => {
                segments.pop().ok_or(Refusal::AboveRoot)?;
                last
            }
            _ if part.starts_with(".;") || part.starts_with("..;") => {
                return Err(Refusal::DotParameters);
            }
            _ => {
                segments.push(part);
                false
            }
        };
    }
    segments.retain(|segment| !segment.is_empty());
    let mut form = String::with_capacity(path.len());
    for segment in &segments {
        form.push('/');
        form.push_str(segment);
    }
    if open || segments.is_empty() {
        form.push('/');
    }
    Ok(form)
}

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

    /// The normal form and the others.
    fn all(path: &str) -> Result<Forms, Refusal> {
        let own = || Forms { normal: path.to_owned(), others: Vec::new() };
        forms(path.as_bytes()).map(|forms| forms.unwrap_or_else(own))
    }

    #[test]
    fn paths_have_one_form() {
        for (path, form) in [
            ("/", "/"),
            ("*", "*"),
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
            ("/a`b<c>\"", "/a%60b%3Cc%3E%22"),
            ("/admin/..//admin", "/admin"),
        ] {
            assert_eq!(all(path), Ok(Forms { normal: form.into(), others: Vec::new() }), "{path}");
        }
    }

    #[test]
    fn readings_that_differ_are_all_forms() {
        for (path, form, others) in [
            // npm, GitLab, S3
            ("/@scope%2fname", "/@scope%2Fname", &["/@scope/name"][..]),
            (
                "/api/v4/projects/group%2Fproject/issues",
                "/api/v4/projects/group%2Fproject/issues",
                &["/api/v4/projects/group/project/issues"],
            ),
            ("/bucket/a%5Cb", "/bucket/a%5Cb", &["/bucket/a/b"]),
            ("/a\\b", "/a%5Cb", &["/a/b"]),
            ("/public/%2e%2e%2fadmin", "/public/..%2Fadmin", &["/admin"]),
            ("/x//../admin", "/admin", &["/x/admin"]),
            ("/a%2f%2f..%2fb", "/a%2F%2F..%2Fb", &["/b", "/a/b"]),
        ] {
            let others = others.iter().map(|&form| form.to_owned()).collect();
            assert_eq!(all(path), Ok(Forms { normal: form.into(), others }), "{path}");
        }
    }

    #[test]
    fn paths_of_attacks_are_refused() {
        for path in [
            "/%", "/%4", "/%zz", "/%00", "/..", "/a/../..", "/%2e%2e", "/..%2f", "/a%2f..%5c..", "/..;/x", "/a/.;x",
            "/a/%2e%2e;x=y/b", "/a%2f..;/b", "/%41%5ca/../%5c..",
        ] {
            assert!(all(path).is_err(), "{path}");
        }
    }

    proptest! {
        /// The normal form of a normal form is the form itself, in every reading.
        #[test]
        fn a_form_is_normal(path in "(/(\\.|\\.\\.|[a-c%/.;|\\\\]|%2[ef]|%41|%5c|%C3){0,4}){1,6}") {
            if let Ok(of) = all(&path) {
                for form in of.others.iter().chain([&of.normal]) {
                    let again = all(form).expect("a form is sound");
                    prop_assert_eq!(&again.normal, form);
                    prop_assert!(form.starts_with('/') && !form.contains("//") && !form.contains("/../") && !form.contains("/./"));
                }
            }
        }
    }
}
