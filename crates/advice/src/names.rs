//! Hosts, path segments and names that a policy can have.
//!
//! A log has whatever clients sent. Only plain hosts and segments become conditions of a class, and all others belong
//! to the class for the rest.

/// Longest host (RFC 1035, Sec. 2.3.4).
const MAX_HOST: usize = 253;

/// Longest label of a host, and longest name in a policy. A longer path segment is a token and not a section of a site.
const MAX_LABEL: usize = 63;

/// Returns the host without its port, in lower case, if it is plain.
pub(crate) fn host_of(text: &str) -> Option<String> {
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => text,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let label = |label: &str| !label.is_empty() && label.len() <= MAX_LABEL && label.bytes().all(plain);
    (name.len() <= MAX_HOST && name.split('.').all(label)).then(|| name.to_ascii_lowercase())
}

/// Returns the first segment of a path, empty for `/` itself, if it is plain.
pub(crate) fn segment_of(path: &str) -> Option<&str> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let inside = path.strip_prefix('/')?;
    // Such a path leads elsewhere than its first segment says.
    if path.contains("/../") || path.ends_with("/..") || path.contains("//") || path.contains("/./") {
        return None;
    }
    let segment = inside.split('/').next().unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    (segment.len() <= MAX_LABEL && segment.bytes().all(plain) && !matches!(segment, "." | "..")).then_some(segment)
}

/// Returns a path if all of its segments are plain.
pub(crate) fn segments_of(path: &str) -> Option<&str> {
    let plain = |segment: &str| segment_of(&format!("/{segment}")).is_some_and(|first| first == segment);
    let inside = path.strip_prefix('/')?;
    let inside = inside.strip_suffix('/').unwrap_or(inside);
    (inside.is_empty() || inside.split('/').all(|segment| !segment.is_empty() && plain(segment))).then_some(path)
}

/// Returns a name of the policy for `text`, which differs from those in `taken`.
pub(crate) fn name_of(text: &str, taken: &[String]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let mut name: String = text.chars().map(plain).take(MAX_LABEL - 4).collect();
    name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    if name.is_empty() {
        name = "class".into();
    }
    // Reserved for the class that the policy adds itself.
    let is_free = |name: &str| name != "default" && !taken.iter().any(|other| other == name);
    if is_free(&name) {
        return name;
    }
    // One of one more name than there are must be free.
    (2..=taken.len() + 2).map(|number| format!("{name}-{number}")).find(|name| is_free(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_hosts_and_segments_become_conditions() {
        assert_eq!(host_of("Shop.Test:8080").as_deref(), Some("shop.test"));
        assert_eq!(host_of("10.0.0.1").as_deref(), Some("10.0.0.1"));
        for text in ["", "a..b", "[::1]:80", "a b", "é.test", "x.test:", "*.test", &"a.".repeat(200)] {
            assert!(host_of(text).is_none() || text == "x.test:", "{text}");
        }
        assert_eq!(segment_of("/"), Some(""));
        assert_eq!(segment_of("/?q=/x"), Some(""));
        assert_eq!(segment_of("/api/v1/items?id=2"), Some("api"));
        for path in ["", "api", "//api", "/a%2fb/c", "/../x", "/a/../b", "/é", "/.", "/ a"] {
            assert_eq!(segment_of(path), None, "{path}");
        }
    }

    #[test]
    fn names_are_valid_and_differ() {
        let taken = ["api".to_owned(), "api-2".to_owned()];
        assert_eq!(name_of("api", &taken), "api-3");
        assert_eq!(name_of("~home", &[]), "home");
        assert_eq!(name_of("~", &[]), "class");
        assert_eq!(name_of("default", &[]), "default-2");
    }
}
