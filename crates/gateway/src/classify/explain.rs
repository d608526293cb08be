//! Explanation of a request's class: the result of every rule up to the one that matched.

use std::fmt::Write as _;

use weirgate_config::{
    BodyCondition, CertificatePart, HostPattern, Key, Match, PathPattern, Rule, RuleTarget, ValuePattern, client_text,
    network_text,
};

use super::view::{Fields, MAX_VALUE_BYTES, View};
use super::{Classifier, Payload, condition, key_of, payload, target};

/// Result of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Index of the rule.
    pub rule: usize,
    /// Whether it matched. Only the last one can have matched.
    pub matched: bool,
    /// Reason, as text for people.
    pub why: String,
}

impl Classifier {
    /// Evaluates the rules in order, without the index, up to the first one that matches.
    pub fn explain(&self, view: &View<'_>, payload: Payload<'_>) -> Vec<Explained> {
        let fields = Fields::new(view, payload);
        let mut said = Vec::new();
        for (rule, it) in self.rules().iter().enumerate() {
            let matched = matches!(target(it, &fields), Some(Ok(_)));
            let why = match matched {
                true => format!("{}{}", holds_text(it), lines_text(&it.matches, view)),
                false => fails_text(it, &fields),
            };
            said.push(Explained { rule, matched, why });
            if matched {
                break;
            }
        }
        said
    }
}

/// Describes the conditions of the rule that matched.
fn holds_text(rule: &Rule) -> String {
    let mut text = describe(&rule.matches, Values::Shown);
    if let RuleTarget::Template(_, key) = &rule.target {
        let _ = write!(text, ", keyed by {}", describe_key(key));
    }
    text
}

/// Tells the lines of the address lists in `condition` that contain the client.
fn lines_text(condition: &Match, view: &View<'_>) -> String {
    match condition {
        Match::All(parts) | Match::Either(parts) => parts.iter().map(|part| lines_text(part, view)).collect(),
        Match::Not(part) => lines_text(part, view),
        Match::Listed(list) => {
            list.line(view.client).map_or_else(String::new, |line| format!("; line {line} of {}", list.name))
        }
        _ => String::new(),
    }
}

/// Describes the conditions of a rule, with the values that they compare.
pub fn described(rule: &Rule) -> String {
    holds_text(rule)
}

/// Describes the value of a request that is a key, or that tells its source.
pub fn described_key(key: &Key) -> String {
    describe_key(key)
}

/// Describes the first condition that the request does not meet.
fn fails_text(rule: &Rule, fields: &Fields<'_, '_>) -> String {
    if let Some(why) = lacks(&rule.matches, fields) {
        return why;
    }
    match &rule.target {
        RuleTarget::Template(_, key) => {
            let why = key_of(key, fields).err().unwrap_or("does not serve as a key");
            format!("{} {why}", describe_key(key))
        }
        RuleTarget::Class(_) => String::new(),
    }
}

/// Describes the value that `condition` requires and the value in the request, or returns `None` if it holds.
fn lacks(condition: &Match, fields: &Fields<'_, '_>) -> Option<String> {
    if condition::holds(condition, fields) == Some(true) {
        return None;
    }
    let view = fields.view;
    let wants = describe(condition, Values::Shown);
    Some(match condition {
        Match::Any => wants,
        Match::All(parts) => parts.iter().find_map(|part| lacks(part, fields)).unwrap_or(wants),
        Match::Either(_) => format!("none of these holds: {wants}"),
        Match::Not(part) => format!("this must not hold: {}", describe(part, Values::Shown)),
        Match::Host(_) => format!("needs {wants}, but the host is {}", quoted(view.request.host().as_bytes())),
        Match::Path(_) => format!("needs {wants}, but the path is {}", quoted(view.path.as_bytes())),
        Match::Method(_) => {
            format!("needs {wants}, but the method is {}", view.request.method().map_or("", http::Method::as_str))
        }
        Match::Port(_) => format!("needs {wants}, but the port is {}", view.port),
        Match::Encrypted(true) => format!("needs {wants}, but the connection is not encrypted"),
        Match::Encrypted(false) => format!("needs {wants}, but the connection is encrypted"),
        Match::Sni(_) => match condition::sni(view) {
            Some(name) => format!("needs {wants}, but the client asked for {}", quoted(name.as_bytes())),
            None => format!("needs {wants}, but the client asked for no name"),
        },
        Match::ClientCertificate(part, _) => match condition::identity(view) {
            None => format!("needs {wants}, but the client has no certificate"),
            Some(identity) => {
                let values: Vec<&[u8]> = match part {
                    CertificatePart::Subject => vec![identity.subject.as_bytes()],
                    CertificatePart::CommonName => identity.common_name.iter().map(String::as_bytes).collect(),
                    CertificatePart::Name => identity.names.iter().map(String::as_bytes).collect(),
                };
                with_values(&wants, values.into_iter())
            }
        },
        Match::Visitor(_) => match view.visitor {
            Some(visitor) => format!("needs {wants}, but the visitor is {}", visitor.standing.as_str()),
            None => format!("needs {wants}, but the visitor is unknown"),
        },
        Match::Source(_) | Match::Listed(_) => format!("needs {wants}, but the client is {}", client_text(view.client)),
        Match::Header(name, _) => with_values(&wants, view.request.values(name.as_str())),
        Match::Cookie(name, _) => {
            with_values(&wants, fields.cookies().iter().filter(|(n, _)| *n == name.as_bytes()).map(|&(_, v)| v))
        }
        Match::Body(condition) => body_lacks(&wants, condition, fields),
        Match::Query(name, _) => {
            let values = fields.query().iter().filter(|(n, _)| n.as_ref() == name.as_bytes());
            with_values(&wants, values.map(|(_, v)| v.as_ref()))
        }
    })
}

/// Describes a condition on the body, and the reason why it does not hold.
fn body_lacks(wants: &str, condition: &BodyCondition, fields: &Fields<'_, '_>) -> String {
    let (bytes, whole) = match fields.payload {
        Payload::Awaited => return format!("needs {wants}, but the body is not known"),
        Payload::Opaque(why) => return format!("needs {wants}, but the body cannot be read: {why}"),
        Payload::Read { bytes: b"", .. } => return format!("needs {wants}, but there is no body"),
        Payload::Read { bytes, whole } => (bytes, whole),
    };
    let request = fields.view.request;
    match condition {
        BodyCondition::Form(..) if !payload::is_form(request) => {
            format!("needs {wants}, but the body is no form (Content-Type: application/x-www-form-urlencoded)")
        }
        BodyCondition::Json(..) if !payload::is_json(request) => {
            format!("needs {wants}, but the body is not JSON (Content-Type: application/json)")
        }
        BodyCondition::Form(name, _) => {
            let values = fields.form().iter().filter(|(n, _)| n.as_ref() == name.as_bytes());
            with_values(wants, values.map(|(_, v)| v.as_ref()))
        }
        _ => {
            let part = if whole { "the body" } else { "its first part" };
            format!("needs {wants}, but {part} is {}", quoted(bytes))
        }
    }
}

/// Describes `wants` together with the actual values. Values of cookies and headers are shown, because the
/// user has typed them.
fn with_values<'a>(wants: &str, values: impl Iterator<Item = &'a [u8]>) -> String {
    let values: Vec<String> = values
        .map(|v| if v.len() > MAX_VALUE_BYTES { format!("{} bytes, too long to compare", v.len()) } else { quoted(v) })
        .collect();
    match values.as_slice() {
        [] => format!("needs {wants}, but there is none"),
        values => format!("needs {wants}, but it is {}", values.join(" and ")),
    }
}

/// Whether to show values of headers, cookies and query parameters. They may be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    Shown,
    Hidden,
}

/// Describes a condition in words.
pub(crate) fn describe(condition: &Match, values: Values) -> String {
    match condition {
        Match::Any => "anything matches".to_owned(),
        Match::All(parts) if parts.is_empty() => "anything matches".to_owned(),
        Match::Either(parts) if parts.is_empty() => "nothing matches".to_owned(),
        Match::All(parts) => join(parts, " and ", values),
        Match::Either(parts) => join(parts, " or ", values),
        Match::Not(part) => format!("not ({})", describe(part, values)),
        Match::Host(HostPattern::Exact(name)) => format!("host {name}"),
        Match::Host(HostPattern::Below(suffix)) => format!("host *{suffix}"),
        Match::Path(PathPattern::Exact(path)) => format!("path {path}"),
        Match::Path(PathPattern::Prefix(path)) => format!("path below {path}"),
        Match::Path(PathPattern::Pattern(pattern)) => format!("path like {}", pattern.text),
        Match::Method(method) => format!("method {method}"),
        Match::Port(port) => format!("port {port}"),
        Match::Encrypted(true) => "scheme https".to_owned(),
        Match::Encrypted(false) => "scheme http".to_owned(),
        Match::Sni(HostPattern::Exact(name)) => format!("sni {name}"),
        Match::Sni(HostPattern::Below(suffix)) => format!("sni *{suffix}"),
        Match::ClientCertificate(part, value) => {
            let part = match (part, value) {
                (_, ValuePattern::Present) => return "client certificate".to_owned(),
                (CertificatePart::Subject, _) => "subject",
                (CertificatePart::CommonName, _) => "common name",
                (CertificatePart::Name, _) => "alternative name",
            };
            format!("client certificate with {part}{}", describe_value(value, values))
        }
        Match::Visitor(standing) => format!("visitor {}", standing.as_str()),
        Match::Source(net) => format!("client in {}", network_text(net)),
        Match::Listed(list) => {
            format!("client in {} ({} network{})", list.name, list.networks, if list.networks == 1 { "" } else { "s" })
        }
        Match::Header(name, value) => format!("header {name}{}", describe_value(value, values)),
        Match::Cookie(name, value) => format!("cookie {name}{}", describe_value(value, values)),
        Match::Query(name, value) => format!("query parameter {name}{}", describe_value(value, values)),
        Match::Body(condition) => match condition {
            _ if values == Values::Hidden => "body …".to_owned(),
            BodyCondition::Contains(pattern) => format!("body containing {:?}", pattern.text),
            BodyCondition::Like(pattern) => format!("body like {}", pattern.text),
            BodyCondition::Form(name, value) => format!("form field {name}{}", describe_value(value, values)),
            BodyCondition::Json(place, value) => format!("JSON value {place}{}", describe_value(value, values)),
        },
    }
}

fn join(parts: &[Match], word: &str, values: Values) -> String {
    let each = parts.iter().map(|part| match part {
        Match::All(inner) | Match::Either(inner) if inner.len() > 1 => format!("({})", describe(part, values)),
        _ => describe(part, values),
    });
    each.collect::<Vec<_>>().join(word)
}

fn describe_value(value: &ValuePattern, values: Values) -> String {
    match value {
        ValuePattern::Present => String::new(),
        _ if values == Values::Hidden => " = …".to_owned(),
        ValuePattern::Exact(text) => format!(" = {text:?}"),
        ValuePattern::Prefix(text) => format!(" starting with {text:?}"),
        ValuePattern::Pattern(pattern) => format!(" like {}", pattern.text),
    }
}

pub(crate) fn describe_key(key: &Key) -> String {
    match key {
        Key::Header(name) => format!("header {name}"),
        Key::Cookie(name) => format!("cookie {name}"),
        Key::Network(size) => format!("source {size}"),
        Key::Visitor => "visitor".to_owned(),
    }
}

/// Quotes a value for one terminal line: control bytes escaped, truncated after 80 characters.
fn quoted(value: &[u8]) -> String {
    const MAX: usize = 80;
    let text = String::from_utf8_lossy(value);
    match text.char_indices().nth(MAX) {
        Some((at, _)) => format!("{:?}…", text.get(..at).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}
