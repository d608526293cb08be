//! A route: a path and, optionally, parameters of the query, some of them open.
//!
//! Source: mQoS, Sec. 3.1. Its table has a line per page. Departure: `*` stands for one whole, non-empty
//! segment of the path or for one whole value of a parameter, so that `/album/*/photo.php?size=*` is one
//! line. Parameters that a pattern does not name do not matter, and neither does their order. If a parameter
//! is sent twice, its first value counts. Some servers use the last one, but a cost must not depend on the
//! server.
//!
//! Paths are compared in the gateway's canonical form: characters that need no percent-encoding are decoded,
//! and other percent-encodings are in upper case. Queries are compared as they were sent, because servers
//! read them in too many ways for one canonical form.

use std::fmt;

/// Maximum number of segments of a path in a pattern. Paths of sites have fewer than ten, and a lookup
/// recurses once per segment.
pub const MAX_SEGMENTS: usize = 64;

/// Maximum number of parameters in a pattern. Only few parameters affect the cost of a page.
pub const MAX_PARAMETERS: usize = 16;

/// Maximum length of a pattern, in bytes. Longer addresses are rare, and errors repeat the pattern.
const LONGEST: usize = 1024;

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    /// `None` is `*`. If the path ends with a slash, the last segment is empty.
    pub(crate) segments: Vec<Option<String>>,
    /// Sorted by name without duplicates. A value of `None` is `*`.
    pub(crate) parameters: Vec<(String, Option<String>)>,
}

impl Pattern {
    /// Parses a pattern: a path, then optionally `?name=value&name=*`.
    ///
    /// # Errors
    /// The fault and, after the last colon, a hint on how to fix it.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if text.len() > LONGEST {
            return Err(format!("this route has {} bytes: fold it into at most {LONGEST}", text.len()));
        }
        if let Some(odd) = text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '#' | '\\')) {
            let text = text.escape_debug();
            return Err(format!("`{text}` has the character {odd:?}, which no address has: percent-encode it"));
        }
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        let Some(in_flight) = path.strip_prefix('/') else {
            return Err(format!("`{text}` does not start with a slash: write it as in `/index.php`"));
        };
        let segments = in_flight.split('/').map(|segment| piece(text, segment)).collect::<Result<Vec<_>, _>>()?;
        if segments.len() > MAX_SEGMENTS {
            return Err(format!("`{text}` has more than {MAX_SEGMENTS} segments: shorten it"));
        }
        let last = segments.len() - 1;
        let odd = |segment: &str| matches!(segment, "." | "..");
        if segments
            .iter()
            .enumerate()
            .any(|(at, s)| s.as_deref().is_some_and(|s| odd(s) || (s.is_empty() && at < last)))
        {
            return Err(format!(
                "`{text}` has a segment that is empty, `.` or `..`, without which requests are compared: leave it out"
            ));
        }
        Ok(Pattern { segments, parameters: query.map_or(Ok(Vec::new()), |query| parameters(text, query))? })
    }

    /// Returns whether a request with this canonical path and raw query matches the route.
    pub fn matches(&self, path: &str, query: Option<&str>) -> bool {
        let Some(in_flight) = path.strip_prefix('/') else { return false };
        let mut sent = in_flight.split('/');
        let same = self.segments.iter().all(|segment| match (segment, sent.next()) {
            (Some(literal), Some(sent)) => literal == sent,
            (None, Some(sent)) => !sent.is_empty(),
            (_, None) => false,
        });
        same && sent.next().is_none()
            && self.parameters.iter().all(|(name, value)| match (value, value_of(query, name)) {
                (Some(literal), Some(sent)) => literal == sent,
                (None, sent) => sent.is_some(),
                (Some(_), None) => false,
            })
    }
}

/// Returns the first value of a parameter of a raw query. A name without `=` has an empty value.
pub(crate) fn value_of<'q>(query: Option<&'q str>, name: &str) -> Option<&'q str> {
    query?.split('&').find_map(|pair| {
        let (sent, value) = pair.split_once('=').unwrap_or((pair, ""));
        (sent == name).then_some(value)
    })
}

/// Returns one segment in canonical form, or `None` for `*`.
fn piece(whole: &str, segment: &str) -> Result<Option<String>, String> {
    if segment == "*" {
        return Ok(None);
    }
    if segment.contains('*') {
        return Err(format!(
            "in `{whole}`, `*` stands for a whole segment or value, `{segment}` has it next to other characters: \
             write `*` alone"
        ));
    }
    unescape(segment).map(Some).ok_or_else(|| {
        format!("`{whole}` has a broken percent-encoding in `{segment}`: write `%` and two hexadecimal digits")
    })
}

/// Decodes percent-encodings of characters that need none, and puts the others in upper case.
fn unescape(segment: &str) -> Option<String> {
    let mut parts = segment.split('%');
    let mut form = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        let byte = u8::from_str_radix(code, 16).ok().filter(|_| !code.starts_with('+'))?;
        match char::from(byte) {
            plain if plain.is_ascii_alphanumeric() || "-._~".contains(plain) => form.push(plain),
            _ => form.push_str(&format!("%{}", code.to_ascii_uppercase())),
        }
        form.push_str(rest);
    }
    Some(form)
}

fn parameters(whole: &str, query: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let mut parameters = Vec::new();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name.is_empty() || name.contains('*') {
            return Err(format!("`{whole}` has `{pair}`, which names no parameter: write `name=value` or `name=*`"));
        }
        let value = match value {
            "*" => None,
            value if value.contains('*') => {
                return Err(format!(
                    "in `{whole}`, `*` stands for a whole segment or value, `{pair}` has it next to other characters: \
                     write `*` alone"
                ));
            }
            value => Some(value.to_owned()),
        };
        parameters.push((name.to_owned(), value));
    }
    parameters.sort();
    if parameters.len() > MAX_PARAMETERS {
        return Err(format!(
            "`{whole}` names more than {MAX_PARAMETERS} parameters: leave out those that do not decide the cost"
        ));
    }
    if let Some([twice, _]) = parameters.array_windows().find(|[a, b]| a.0 == b.0) {
        return Err(format!("`{whole}` names the parameter `{}` twice: leave one out", twice.0));
    }
    Ok(parameters)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_route(f, &self.segments, &self.parameters)
    }
}

/// Writes the canonical form of a route, with `*` for `None`. Its parameters are sorted by name.
///
/// # Errors
/// `f` cannot be written to.
pub fn write_route(
    f: &mut fmt::Formatter<'_>,
    segments: &[Option<String>],
    parameters: &[(String, Option<String>)],
) -> fmt::Result {
    for segment in segments {
        write!(f, "/{}", segment.as_deref().unwrap_or("*"))?;
    }
    for (at, (name, value)) in parameters.iter().enumerate() {
        let mark = if at == 0 { '?' } else { '&' };
        match value.as_deref() {
            Some("") => write!(f, "{mark}{name}")?,
            value => write!(f, "{mark}{name}={}", value.unwrap_or("*"))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).expect("a pattern")
    }

    #[test]
    fn a_pattern_has_one_form() {
        for (text, form) in [
            ("/", "/"),
            ("/math.php", "/math.php"),
            ("/a/*/b/", "/a/*/b/"),
            ("/%7euser/%c3%a4", "/~user/%C3%A4"),
            ("/p?b=*&a=1", "/p?a=1&b=*"),
            ("/p?debug=", "/p?debug"),
            ("/p?x=a=b", "/p?x=a=b"),
        ] {
            assert_eq!(pattern(text).to_string(), form);
            assert_eq!(pattern(form), pattern(text));
        }
    }

    #[test]
    fn an_invalid_pattern_comes_with_a_hint() {
        let huge = "/a".repeat(600);
        let long = "/a".repeat(MAX_SEGMENTS + 1);
        let wide = format!("/?{}", (0..=MAX_PARAMETERS).map(|i| format!("p{i}=1")).collect::<Vec<_>>().join("&"));
        for (text, problem) in [
            ("", "does not start with a slash"),
            ("index.php", "does not start with a slash"),
            ("http://a/b", "does not start with a slash"),
            ("a\u{1b}[2J", "`a\\u{1b}[2J` has the character"),
            (huge.as_str(), "at most 1024"),
            ("/a b", "percent-encode"),
            ("/a#b", "percent-encode"),
            ("/ä", "percent-encode"),
            ("/a//b", "is empty"),
            ("/a/../b", "is empty, `.` or `..`"),
            ("/%2e", "is empty, `.` or `..`"),
            ("/photo*.php", "a whole segment or value"),
            ("/p?a=x*", "a whole segment or value"),
            ("/p?", "names no parameter"),
            ("/p?*=1", "names no parameter"),
            ("/p?a=1&a=2", "`a` twice"),
            ("/%4", "broken percent-encoding"),
            ("/%+4", "broken percent-encoding"),
            (long.as_str(), "more than 64 segments"),
            (wide.as_str(), "more than 16 parameters"),
        ] {
            let error = Pattern::parse(text).expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_star_is_one_whole_segment_or_value() {
        let open = pattern("/album/*/photo.php?size=*");
        assert!(open.matches("/album/7/photo.php", Some("x=1&size=big")));
        assert!(open.matches("/album/7/photo.php", Some("size")));
        for (path, query) in [
            ("/album//photo.php", Some("size=1")),
            ("/album/7/8/photo.php", Some("size=1")),
            ("/album/7/photo.php/", Some("size=1")),
            ("/album/7/photo.php", Some("sizes=1")),
            ("/album/7/photo.php", None),
            ("*", None),
        ] {
            assert!(!open.matches(path, query), "{path} {query:?}");
        }
        assert!(pattern("/p?a=1").matches("/p", Some("a=1&a=2")), "the first value counts");
        assert!(!pattern("/p?a=2").matches("/p", Some("a=1&a=2")));
    }
}
