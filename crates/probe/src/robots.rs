//! Addresses allowed by `robots.txt` (RFC 9309).
//!
//! All groups that name the agent apply together, or those of `*` if none does. The longest rule that matches
//! an address decides, and `Allow` wins among equally long ones. In a rule, `*` stands for any text, and `$`
//! at its end for the end of the address. Unknown lines (`Crawl-delay`, `Sitemap`) are skipped, as the RFC
//! requires.

/// Number of bytes of the file that are read: the minimum that RFC 9309, Sec. 2.5, requires.
pub const MAX_BYTES: usize = 500 * 1024;

/// Rules of the file for one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Robots {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    allow: bool,
    /// Normalised by [`normal`].
    pattern: String,
}

impl Robots {
    /// Returns the rules of `text` for `agent`.
    pub fn parse(text: &str, agent: &str) -> Robots {
        let text = text.get(..text.floor_char_boundary(MAX_BYTES)).unwrap_or_default();
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let (mut is_own, mut is_others, mut named) = (false, false, false);
        // Whether the last lines named agents. A group may begin with several such lines.
        let mut naming = false;
        for line in text.trim_start_matches('\u{feff}').split(['\r', '\n']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((name, value)) = line.split_once(':') else { continue };
            let (name, value) = (name.trim(), value.trim());
            if name.eq_ignore_ascii_case("user-agent") {
                if !naming {
                    (is_own, is_others) = (false, false);
                }
                naming = true;
                let end = value.find(|c: char| !c.is_ascii_alphabetic() && c != '-' && c != '_');
                let token = value.get(..end.unwrap_or(value.len())).unwrap_or_default();
                let mine = token.eq_ignore_ascii_case(agent);
                (is_own, is_others, named) = (is_own || mine, is_others || value == "*", named || mine);
                continue;
            }
            let allow = name.eq_ignore_ascii_case("allow");
            if !allow && !name.eq_ignore_ascii_case("disallow") {
                continue;
            }
            naming = false;
            // An empty rule is ignored.
            if value.is_empty() {
                continue;
            }
            let rule = Rule { allow, pattern: normal(value) };
            if is_own {
                own.push(rule.clone());
            }
            if is_others {
                others.push(rule);
            }
        }
        Robots { rules: if named { own } else { others } }
    }

    /// Returns rules that disallow everything, for a file that is not available because the server has a
    /// problem (Sec. 2.3.1.4).
    pub fn closed() -> Robots {
        Robots { rules: vec![Rule { allow: false, pattern: "/".to_owned() }] }
    }

    /// Returns whether a path, with its query if it has one, is allowed.
    pub fn allows(&self, target: &str) -> bool {
        if target == "/robots.txt" {
            return true;
        }
        let target = normal(target);
        let fitting = self.rules.iter().filter(|rule| fits(&rule.pattern, &target));
        fitting.max_by_key(|rule| (rule.pattern.len(), rule.allow)).is_none_or(|rule| rule.allow)
    }
}

/// Normalises an address: decodes escapes of letters, digits and `-._~`, writes other escapes in capitals,
/// and escapes characters that are not ASCII (Sec. 2.2.2).
fn normal(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut normal = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = bytes
            .get(at + 1..at + 3)
            .filter(|_| byte == b'%')
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        at += if escaped.is_some() { 3 } else { 1 };
        match escaped.unwrap_or(byte) {
            plain if escaped.is_some() && (plain.is_ascii_alphanumeric() || b"-._~".contains(&plain)) => {
                normal.push(char::from(plain));
            }
            other if escaped.is_some() || !other.is_ascii() => normal.push_str(&format!("%{other:02X}")),
            plain => normal.push(char::from(plain)),
        }
    }
    normal
}

/// Returns whether a rule matches the beginning of an address.
fn fits(pattern: &str, target: &str) -> bool {
    let (pattern, whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let Some(mut rest) = target.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return !whole || rest.is_empty() };
    // The first position of each part leaves the most text for the parts after it.
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    if whole { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "weirgate-probe";

    #[test]
    fn the_longest_rule_decides() {
        let robots = Robots::parse(
            "User-Agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /*.gif$\nDisallow: /x*y\nAllow: /same\nDisallow: /same\n",
            AGENT,
        );
        for (target, open) in [
            ("/", true),
            ("/private", false),
            ("/private.html", false),
            ("/private/open/a", true),
            ("/a/b.gif", false),
            ("/a/b.gif?x", true),
            ("/x1y2", false),
            ("/x12", true),
            ("/same", true),
            ("/robots.txt", true),
        ] {
            assert_eq!(robots.allows(target), open, "{target}");
        }
    }

    #[test]
    fn the_groups_of_the_agent_apply_together() {
        let text = "user-agent: other\nuser-agent: Weirgate-Probe/1.0\ndisallow: /a # why\n\nuser-agent: *\ndisallow: /\n\
                    User-agent: weirgate-probe\nCrawl-delay: 5\nDisallow: /b\nDisallow:\n";
        let robots = Robots::parse(text, AGENT);
        assert_eq!(["/a", "/b", "/c"].map(|target| robots.allows(target)), [false, false, true]);
        assert!(!Robots::parse(text, "third").allows("/c"));
        let empty = Robots::parse("user-agent: weirgate-probe\nuser-agent: *\ndisallow:\n", AGENT);
        assert!(empty.allows("/c") && Robots::default().allows("/c") && !Robots::closed().allows("/c"));
        assert!(Robots::parse("user-agent: weirgate-prober\ndisallow: /", AGENT).allows("/"), "another name");
    }

    #[test]
    fn lines_end_as_the_rfc_has_it() {
        for end in ["\n", "\r", "\r\n"] {
            let text = ["User-agent: *", "", "Disallow: /a", "Disallow: /b", ""].join(end);
            let robots = Robots::parse(&text, AGENT);
            assert_eq!(["/a", "/b", "/c"].map(|target| robots.allows(target)), [false, false, true], "{end:?}");
        }
    }

    #[test]
    fn escapes_are_one_form() {
        let robots = Robots::parse("User-agent: *\nDisallow: /caf%c3%a9\nDisallow: /%7Ejoe\nDisallow: /a%2fb\n", AGENT);
        for target in ["/café", "/caf%C3%A9", "/~joe", "/%7ejoe", "/a%2Fb"] {
            assert!(!robots.allows(target), "{target}");
        }
        assert!(robots.allows("/a/b"), "an escaped slash is not a slash");
    }

    #[test]
    fn odd_files_do_no_harm() {
        for text in ["", ":::\n\n", "Disallow: /\n", "\u{feff}User-agent\n%%%\n", "User-agent: *\nDisallow: %\n"] {
            assert!(Robots::parse(text, AGENT).allows("/x"), "{text}");
        }
        let stars = format!("User-agent: *\nDisallow: /{}z$\n", "*a".repeat(2000));
        assert!(Robots::parse(&stars, AGENT).allows(&format!("/{}", "a".repeat(10_000))));
    }
}
