//! Conversion of the file's conditions to the gateway's, with patterns compiled.
//!
//! Regular expressions run in linear time (finite automata, no backreferences) for any input, and their
//! compiled size is limited, so that no rule can stall a thread.

use std::path::Path;

use regex_automata::meta;
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;
use weirgate_spanned_yaml::decode::{At, Context, Mark, OneOrMany, TextOrMap};
use weirgate_spanned_yaml::errors::{Complaint, listed};
use weirgate_tls::ServerSettings;

use super::lists::Lists;
use super::visitors;
use crate::body::BodyCondition;
use crate::file::{self, ClientCertificateForm, Inner, PatternText, ValueForm, ValueRule, Values};
use crate::site::{CertificatePart, Listener, Match, PathPattern, Pattern, ValuePattern};

/// Largest compiled automaton of one pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// Memory that one thread may keep for a pattern's lazily built automaton.
const PATTERN_CACHE_BYTES: usize = 256 << 10;

/// Maximum nesting of a pattern, because its parser is recursive.
const PATTERN_DEPTH: u32 = 64;

/// Maximum number of patterns in a policy. With the limits above it bounds the memory of all patterns.
const MAX_PATTERNS: usize = 1_000;

/// Maximum number of conditions on bodies in a policy. Each looks through `limits.body_prefix` bytes of a request, so
/// this bounds the work for a request.
const MAX_BODIES: usize = 100;

/// Compiles conditions and counts their patterns.
pub(super) struct Compiler {
    patterns: usize,
    bodies: usize,
    lists: Lists,
    /// Whether the gateway knows visitors.
    visitors: bool,
    /// The ports that clients can connect to, if they are known.
    ports: Option<Vec<u16>>,
    /// The TLS of the listeners, if it is known.
    tls: Option<Vec<Option<ServerSettings>>>,
}

impl Compiler {
    /// `listeners` are those of the policy, if all of them could be read. The paths of lists start from `folder`.
    /// `visitors` tells whether the policy has any.
    pub(super) fn new(listeners: Option<&[Listener]>, folder: Option<&Path>, visitors: bool) -> Compiler {
        let port = |one: &Listener| one.name.address.tcp().map(|address| address.port());
        let ports = listeners.map(|all| all.iter().filter_map(port).collect::<Vec<_>>());
        Compiler {
            patterns: 0,
            bodies: 0,
            lists: Lists::new(folder.map(Path::to_owned)),
            visitors,
            // Port 0 is replaced when the gateway starts.
            ports: ports.filter(|ports| !ports.contains(&0)),
            // A balancer may tell of the client's TLS.
            tls: listeners
                .filter(|all| all.iter().all(|one| one.proxy_protocol.is_empty()))
                .map(|all| all.iter().map(|one| one.tls.clone()).collect()),
        }
    }

    /// Reports a condition that no listener can meet.
    fn needs(
        &self,
        mark: Mark,
        what: &str,
        hint: &str,
        meets: impl Fn(Option<&ServerSettings>) -> bool,
        cx: &mut Context,
    ) {
        if self.tls.as_ref().is_some_and(|all| !all.iter().any(|tls| meets(tls.as_ref()))) {
            cx.fail(mark, what, hint);
        }
    }

    /// Returns the condition described by `file`, which is at `mark`.
    pub(super) fn condition(&mut self, file: &file::Match, mark: Mark, bad: bool, cx: &mut Context) -> Match {
        let mut all = Vec::new();
        all.extend(each(file.host.get(), |host| Match::Host(host.value.0.clone())));
        all.extend(each(file.path_prefix.get(), |path| match path.value.0.as_str() {
            "/" => Match::Any,
            prefix => Match::Path(PathPattern::Prefix(prefix.to_owned())),
        }));
        all.extend(each(file.path.get(), |path| Match::Path(PathPattern::Exact(path.value.0.clone()))));
        all.extend(each(file.path_pattern.get(), |pattern| match self.pattern(&pattern.value, pattern.mark, cx) {
            Some(compiled) => Match::Path(PathPattern::Pattern(compiled)),
            None => Match::Any,
        }));
        all.extend(each(file.method.get(), |method| Match::Method(method.value.0.clone())));
        all.extend(each(file.port.get(), |port| {
            let number = port.value.0;
            if let Some(ports) = self.ports.as_ref().filter(|ports| !ports.contains(&number)) {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                let hint = format!("clients connect to {}", listed(ports.iter().map(String::as_str)));
                cx.fail(port.mark, format!("no listener has port {number}"), hint);
            }
            Match::Port(number)
        }));
        if let Some(scheme) = file.scheme.get() {
            let (what, hint) = match scheme.0 {
                true => ("no listener has TLS", "give a listener `tls:`, or remove the condition"),
                false => ("every listener has TLS", "add one without, or remove the condition"),
            };
            self.needs(file.scheme.mark, what, hint, |tls| tls.is_some() == scheme.0, cx);
            all.push(Match::Encrypted(scheme.0));
        }
        if file.sni.get().is_some() {
            let hint = "give a listener `tls:`, or use `host:`";
            self.needs(file.sni.mark, "no listener has TLS", hint, |tls| tls.is_some(), cx);
        }
        all.extend(each(file.sni.get(), |name| Match::Sni(name.value.0.clone())));
        if let Some(form) = file.client_certificate.get() {
            let what = "no listener asks clients for a certificate";
            let hint = "give the `tls:` of a listener `client_certificates:`";
            let mark = file.client_certificate.mark;
            self.needs(mark, what, hint, |tls| tls.is_some_and(|tls| tls.clients.is_some()), cx);
            self.client_certificate(form, &mut all, cx);
        }
        all.extend(each(file.source.get(), |net| match &net.value {
            TextOrMap::Text(net) => Match::Source(net.0),
            TextOrMap::Map(list) => match list.file.get() {
                Some(file) => self.lists.listed(&file.0, list.file.mark, cx),
                None => Match::Any,
            },
        }));
        if let Some(values) = file.header.get() {
            self.values(values, cx, &mut all, |name, value| Match::Header(name.0.clone(), value));
        }
        if let Some(values) = file.cookie.get() {
            self.values(values, cx, &mut all, |name, value| Match::Cookie(name.0.clone(), value));
        }
        if let Some(standing) = file.visitor.get() {
            if !self.visitors {
                cx.report(file.visitor.mark, visitors::unknown());
            }
            all.push(Match::Visitor(standing.0));
        }
        if let Some(values) = file.query.get() {
            self.values(values, cx, &mut all, |name, value| Match::Query(name.0.clone(), value));
        }
        if let Some(form) = file.body.get() {
            self.body(form, file.body.mark, file.body.bad, &mut all, cx);
        }
        if let Some(parts) = file.all.get() {
            all.extend(self.conditions(parts, cx));
        }
        if let Some(parts) = file.any.get() {
            all.push(either(self.conditions(parts, cx)));
        }
        if let Some(Inner(part)) = file.not.get() {
            let inner = self.condition(part, file.not.mark, file.not.bad, cx);
            if matches!(inner, Match::Any) && !file.not.bad {
                let hint = "remove the class, or name what it must not be";
                cx.fail(file.not.mark, "everything is excluded: this matches nothing", hint);
            }
            all.push(Match::Not(Box::new(inner)));
        }
        if all.is_empty() && !bad {
            let hint = "remove it to match everything, or give it a condition such as `host: example.com`";
            cx.fail(mark, "this match has no condition", hint);
        }
        all.retain(|condition| !matches!(condition, Match::Any));
        match (all.pop(), all.is_empty()) {
            (None, _) => Match::Any,
            (Some(only), true) => only,
            (Some(last), false) => {
                all.push(last);
                all.shrink_to_fit();
                Match::All(all)
            }
        }
    }

    /// Adds the conditions on a client's certificate.
    fn client_certificate(&mut self, form: &ClientCertificateForm, all: &mut Vec<Match>, cx: &mut Context) {
        let parts = match form {
            ClientCertificateForm::Present => {
                return all.push(Match::ClientCertificate(CertificatePart::Subject, ValuePattern::Present));
            }
            ClientCertificateForm::Parts(parts) => parts,
        };
        for (part, values) in [
            (CertificatePart::Subject, &parts.subject),
            (CertificatePart::CommonName, &parts.common_name),
            (CertificatePart::Name, &parts.san),
        ] {
            all.extend(each(values.get(), |form| {
                Match::ClientCertificate(part, self.value(&form.value, form.mark, cx))
            }));
        }
    }

    /// Adds the conditions on the body.
    fn body(&mut self, form: &file::Body, mark: Mark, bad: bool, all: &mut Vec<Match>, cx: &mut Context) {
        let before = all.len();
        all.extend(each(form.contains.get(), |text| {
            let literal = text.value.0.as_str();
            let found = self.compiled(literal, &[&escape(literal)], text.mark, cx);
            found.map_or(Match::Any, |pattern| Match::Body(BodyCondition::Contains(pattern)))
        }));
        all.extend(each(form.pattern.get(), |pattern| {
            let text = pattern.value.0.as_str();
            let found = self.compiled(text, &[text], pattern.mark, cx);
            found.map_or(Match::Any, |pattern| Match::Body(BodyCondition::Like(pattern)))
        }));
        if let Some(values) = form.form.get() {
            self.values(values, cx, all, |name, value| Match::Body(BodyCondition::Form(name.0.clone(), value)));
        }
        if let Some(values) = form.json.get() {
            self.values(values, cx, all, |place, value| Match::Body(BodyCondition::Json(place.0.clone(), value)));
        }
        if all.len() == before && !bad {
            let hint = "give it `contains:`, `pattern:`, `form:` or `json:`";
            cx.fail(mark, "this has no condition on the body", hint);
            all.push(Match::Any);
        }
        self.bodies += all.iter().skip(before).map(leaves).sum::<usize>();
        if self.bodies > MAX_BODIES {
            let hint = "use fewer, or tell classes by a header or the path, which is also faster";
            cx.fail(mark, format!("a policy has at most {MAX_BODIES} conditions on bodies"), hint);
        }
    }

    fn conditions(&mut self, parts: &[At<file::Match>], cx: &mut Context) -> Vec<Match> {
        parts.iter().map(|part| self.condition(&part.value, part.mark, part.bad, cx)).collect()
    }

    /// Adds the conditions on a header, cookie or query parameter.
    fn values<K>(
        &mut self,
        values: &Values<K>,
        cx: &mut Context,
        all: &mut Vec<Match>,
        make: impl Fn(&K, ValuePattern) -> Match,
    ) {
        match values {
            Values::Present(names) => {
                all.extend(each(Some(names), |name| make(&name.value, ValuePattern::Present)));
            }
            Values::Are(named) => {
                for item in &named.items {
                    all.extend(each(item.value.get(), |form| {
                        let value = self.value(&form.value, form.mark, cx);
                        make(&item.name, value)
                    }));
                }
            }
        }
    }

    fn value(&mut self, form: &ValueForm, mark: Mark, cx: &mut Context) -> ValuePattern {
        match form {
            ValueForm::Exact(text) => ValuePattern::Exact(text.clone()),
            ValueForm::Rule(ValueRule { prefix, pattern }) => match (prefix.get(), pattern.get()) {
                (Some(prefix), _) if prefix.0.is_empty() => {
                    let hint = "write the name without a value, such as `header: NAME`, to ask whether it is there";
                    cx.fail(mark, "every value starts with this empty prefix", hint);
                    ValuePattern::Present
                }
                (Some(prefix), _) => ValuePattern::Prefix(prefix.0.clone()),
                (None, Some(text)) => {
                    self.pattern(text, pattern.mark, cx).map_or(ValuePattern::Present, ValuePattern::Pattern)
                }
                (None, None) => ValuePattern::Present,
            },
        }
    }

    /// Compiles a pattern, anchored at both ends.
    fn pattern(&mut self, PatternText(text): &PatternText, mark: Mark, cx: &mut Context) -> Option<Pattern> {
        // Compiled without the group first: `a)|(b` must not become valid through the brackets added around it.
        self.compiled(text, &[text, &format!(r"\A(?:{text})\z")], mark, cx)
    }

    /// Compiles the last of `expressions`, which the policy has as `text`. All of them must be valid.
    fn compiled(&mut self, text: &str, expressions: &[&str], mark: Mark, cx: &mut Context) -> Option<Pattern> {
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            if self.patterns == MAX_PATTERNS + 1 {
                let hint = "write names, prefixes or lists instead: they are also faster";
                cx.fail(mark, "a policy has at most 1000 patterns", hint);
            }
            return None;
        }
        match expressions.iter().map(|expression| compile(expression)).collect::<Result<Vec<_>, _>>() {
            Ok(mut all) => all.pop().map(|regex| Pattern { text: text.to_owned(), regex }),
            Err(complaint) => {
                cx.report(mark, complaint);
                None
            }
        }
    }
}

/// Condition of a field with one value, or with several of which one must hold.
fn each<T>(values: Option<&OneOrMany<T>>, mut f: impl FnMut(&At<T>) -> Match) -> Option<Match> {
    match values?.0.as_slice() {
        [] => None,
        [one] => Some(f(one)),
        several => Some(either(several.iter().map(f).collect())),
    }
}

/// Condition that at least one of `parts` holds.
fn either(parts: Vec<Match>) -> Match {
    if parts.iter().any(|part| matches!(part, Match::Any)) { Match::Any } else { Match::Either(parts) }
}

/// Number of single conditions in a condition.
fn leaves(condition: &Match) -> usize {
    match condition {
        Match::Either(parts) => parts.len(),
        _ => 1,
    }
}

/// Returns the regular expression for a text as it stands.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, c| {
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
        escaped
    })
}

fn compile(text: &str) -> Result<meta::Regex, Complaint> {
    let config = meta::Config::new()
        .nfa_size_limit(Some(PATTERN_BYTES))
        .onepass_size_limit(Some(PATTERN_BYTES))
        .hybrid_cache_capacity(PATTERN_CACHE_BYTES)
        .which_captures(WhichCaptures::None);
    let syntax = syntax::Config::new().nest_limit(PATTERN_DEPTH);
    meta::Builder::new().configure(config).syntax(syntax).build(text).map_err(|error| {
        if error.size_limit().is_some() {
            return Complaint::new("this pattern compiles to more than 1 MiB", "repeat less, or use several rules");
        }
        let reason = match error.syntax_error() {
            // The library's message is a drawing of several lines that ends with the reason.
            Some(syntax) => {
                syntax.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
            None => error.to_string(),
        };
        let hint =
            "see <https://docs.rs/regex/1/regex/#syntax>; quote it in single quotes so that YAML leaves it alone";
        Complaint::new(format!("this is not a regular expression: {reason}"), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_the_whole_text_and_no_input_is_slow() {
        let regex = compile(r"\A(?:(a+)+|b)\z").unwrap();
        // Exponential for a backtracking matcher, linear here. The test passes if this returns in reasonable time.
        assert!(!regex.is_match(&format!("{}!", "a".repeat(8 << 10))));
        assert!(regex.is_match("b") && regex.is_match("aaa") && !regex.is_match("ba"));
        assert!(compile(r"(?i)gold").unwrap().is_match("GOLD"));
    }

    #[test]
    fn what_is_not_a_pattern_says_why() {
        assert_eq!(compile("(a").unwrap_err().what, "this is not a regular expression: unclosed group");
        assert!(compile(r"(a)\1").unwrap_err().what.contains("backreferences are not supported"));
        assert!(compile("a{1000}{1000}").unwrap_err().what.contains("1 MiB"));
        assert!(compile(&"(".repeat(8_000)).is_err());
    }
}
