//! Evaluation of a rule's condition on a request.
//!
//! If a header, cookie or query parameter occurs several times, one matching value is enough. A value longer
//! than [`MAX_VALUE_BYTES`] counts as present and matches no comparison.

use regex_automata::Input;
use weirgate_config::{CertificatePart, HostPattern, Match, PathPattern, Pattern, ValuePattern};
use weirgate_tls::Identity;

use super::payload;
use super::view::{Fields, MAX_VALUE_BYTES, View};

/// Returns whether `condition` holds. `None` if that depends on the body, which has not been received (the three-valued
/// logic of Kleene).
pub(super) fn holds(condition: &Match, fields: &Fields<'_, '_>) -> Option<bool> {
    evaluated(condition, &|leaf| match leaf {
        Match::Body(condition) => payload::holds(condition, fields),
        leaf => Some(is_met(leaf, fields)),
    })
}

/// Returns whether `condition` holds, if `leaf` says this of each condition without parts, or `None` if that is not
/// known.
pub(super) fn evaluated<F: Fn(&Match) -> Option<bool>>(condition: &Match, leaf: &F) -> Option<bool> {
    match condition {
        Match::All(parts) => decided(parts, false, leaf),
        Match::Either(parts) => decided(parts, true, leaf),
        Match::Not(part) => evaluated(part, leaf).map(|holds| !holds),
        other => leaf(other),
    }
}

/// Looks for a part that decides about all: one that is `wanted`. Without one the result is the opposite, unless a part
/// is not known.
fn decided<F: Fn(&Match) -> Option<bool>>(parts: &[Match], wanted: bool, leaf: &F) -> Option<bool> {
    let mut result = Some(!wanted);
    for part in parts {
        match evaluated(part, leaf) {
            Some(holds) if holds == wanted => return Some(wanted),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

/// Returns whether a condition without parts holds, which does not depend on the body.
pub(super) fn is_met(condition: &Match, fields: &Fields<'_, '_>) -> bool {
    let view = fields.view;
    match condition {
        Match::Any => true,
        Match::All(_) | Match::Either(_) | Match::Not(_) | Match::Body(_) => false,
        Match::Host(HostPattern::Exact(name)) => view.request.host() == name,
        Match::Host(HostPattern::Below(suffix)) => view.request.host().ends_with(suffix.as_str()),
        Match::Path(PathPattern::Exact(path)) => view.path == path,
        Match::Path(PathPattern::Prefix(prefix)) => is_below(view.path, prefix),
        Match::Path(PathPattern::Pattern(pattern)) => is_like(pattern, view.path.as_bytes()),
        Match::Method(method) => view.request.method() == Some(method),
        Match::Port(port) => view.port == *port,
        Match::Encrypted(wanted) => view.tls.is_some() == *wanted,
        Match::Sni(HostPattern::Exact(name)) => sni(view) == Some(name),
        Match::Sni(HostPattern::Below(suffix)) => sni(view).is_some_and(|name| name.ends_with(suffix.as_str())),
        Match::ClientCertificate(part, pattern) => identity(view).is_some_and(|identity| match part {
            CertificatePart::Subject => fits(pattern, identity.subject.as_bytes()),
            CertificatePart::CommonName => {
                identity.common_name.as_ref().is_some_and(|name| fits(pattern, name.as_bytes()))
            }
            CertificatePart::Name => identity.names.iter().any(|name| fits(pattern, name.as_bytes())),
        }),
        Match::Visitor(standing) => view.visitor.is_some_and(|visitor| visitor.standing >= *standing),
        Match::Source(net) => net.contains(&view.client),
        Match::Listed(list) => list.line(view.client).is_some(),
        Match::Header(name, pattern) => view.request.values(name.as_str()).any(|value| fits(pattern, value)),
        Match::Cookie(name, pattern) => {
            fields.cookies().iter().any(|(n, value)| *n == name.as_bytes() && fits(pattern, value))
        }
        Match::Query(name, pattern) => {
            fields.query().iter().any(|(n, value)| n.as_ref() == name.as_bytes() && fits(pattern, value))
        }
    }
}

/// Returns the name that the client asked for in its TLS handshake.
pub(super) fn sni<'a>(view: &View<'a>) -> Option<&'a str> {
    view.tls?.sni.as_deref()
}

/// Returns the identity in the client's certificate.
pub(super) fn identity<'a>(view: &View<'a>) -> Option<&'a Identity> {
    view.tls?.identity.as_ref()
}

/// Returns whether `path` equals `prefix` or lies below it, at a segment boundary.
fn is_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn fits(pattern: &ValuePattern, value: &[u8]) -> bool {
    match pattern {
        ValuePattern::Present => true,
        ValuePattern::Exact(text) => value == text.as_bytes(),
        ValuePattern::Prefix(text) => value.len() <= MAX_VALUE_BYTES && value.starts_with(text.as_bytes()),
        ValuePattern::Pattern(pattern) => is_like(pattern, value),
    }
}

fn is_like(pattern: &Pattern, value: &[u8]) -> bool {
    value.len() <= MAX_VALUE_BYTES && pattern.regex.is_match(Input::new(value))
}
