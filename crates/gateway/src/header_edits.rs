//! Header rules of the policy, applied to a head that has been written.
//!
//! The rules come last: they see the head as it would be sent, with the fields that the gateway adds. So one pass
//! serves requests, responses of nodes and responses of the gateway, in HTTP/1.1 and HTTP/2. A policy without rules
//! costs one comparison per head. Fields that frame the message cannot be named (`weirgate-config` refuses them), and
//! values cannot break a line: a control character in the value of a variable is escaped as in RFC 4514 Sec. 2.4.

use std::borrow::Cow;

use weirgate_config::{FieldTemplate, HeaderEdits, Piece, UNIX_CLIENT, Variable};

use crate::exchange::Exchange;
use crate::forwarded;

/// The facts that the variables of a value stand for.
pub(crate) trait Facts {
    /// Returns the value of a variable, if the request has one.
    fn value(&self, variable: Variable) -> Option<Cow<'_, [u8]>>;
}

/// The rules for one head.
#[derive(Clone, Copy)]
pub(crate) struct Edits<'a> {
    rules: &'a HeaderEdits,
    facts: &'a dyn Facts,
}

impl std::fmt::Debug for Edits<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.rules.fmt(f)
    }
}

impl<'a> Edits<'a> {
    pub(crate) fn new(rules: &'a HeaderEdits, facts: &'a dyn Facts) -> Edits<'a> {
        Edits { rules, facts }
    }

    /// Changes the head that begins at `start` of `out`. Only its last, empty line has not been written.
    #[inline]
    pub(crate) fn apply(&self, out: &mut Vec<u8>, start: usize) {
        if !self.rules.is_empty() {
            self.change(out, start);
        }
    }

    fn change(&self, out: &mut Vec<u8>, start: usize) {
        take_out(out, start, &self.rules.removed);
        for field in &self.rules.written {
            let before = out.len();
            if self.write(out, field).is_none() {
                out.truncate(before);
            }
        }
    }

    /// Writes a field. Returns `None` if it is not for this request.
    fn write(&self, out: &mut Vec<u8>, field: &FieldTemplate) -> Option<()> {
        if field.https_only && self.facts.value(Variable::Scheme)?.as_ref() != b"https" {
            return None;
        }
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b": ");
        for piece in &field.value {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(variable) => escape(out, &self.facts.value(*variable).filter(|v| !v.is_empty())?),
            }
        }
        out.extend_from_slice(b"\r\n");
        Some(())
    }
}

/// Removes the lines of fields with one of these names.
pub(crate) fn take_out(out: &mut Vec<u8>, start: usize, names: &[String]) {
    let line_end = |out: &[u8], at: usize| {
        let rest = out.get(at..).unwrap_or_default();
        at + rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |feed| feed + 1)
    };
    let mut kept = line_end(out, start);
    let mut at = kept;
    while at < out.len() {
        let end = line_end(out, at);
        let line = out.get(at..end).unwrap_or_default();
        let name = line.split(|&b| b == b':').next().unwrap_or_default();
        if !names.iter().any(|known| is_same(name, known.as_bytes())) {
            out.copy_within(at..end, kept);
            kept += end - at;
        }
        at = end;
    }
    out.truncate(kept);
}

/// Whether a name has this canonical form (see `weirgate_config::canonical`).
fn is_same(name: &[u8], canonical: &[u8]) -> bool {
    let same = |(&a, &b): (&u8, &u8)| if a == b'_' { b == b'-' } else { a.to_ascii_lowercase() == b };
    name.len() == canonical.len() && name.iter().zip(canonical).all(same)
}

fn escape(out: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        if byte.is_ascii_control() {
            out.extend_from_slice(format!("\\{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
}

impl Exchange {
    /// The rules for the request on its way to the node.
    pub(crate) fn request_edits(&self) -> Edits<'_> {
        Edits::new(&self.headers().request, self)
    }

    /// The rules for the response on its way to the client.
    pub(crate) fn response_edits(&self) -> Edits<'_> {
        Edits::new(&self.headers().response, self)
    }
}

impl Facts for Exchange {
    fn value(&self, variable: Variable) -> Option<Cow<'_, [u8]>> {
        fn own<'a>(text: impl ToString) -> Cow<'a, [u8]> {
            Cow::Owned(text.to_string().into_bytes())
        }
        let tls = || self.conn.tls.get();
        let identity = || tls().and_then(|tls| tls.identity.as_ref());
        let text: &str = match variable {
            Variable::Client => return (self.origin.client != UNIX_CLIENT).then(|| own(self.origin.client)),
            Variable::Port => return (self.conn.port != 0).then(|| own(self.conn.port)),
            Variable::RequestId => return Some(own(self.trace.as_ref()?.id)),
            Variable::Target => return Some(Cow::Borrowed(self.request.target())),
            Variable::Scheme => {
                let scheme = self.conn.scheme().as_bytes();
                let stated = self.origin.listed.then(|| forwarded::scheme(&self.request)).flatten();
                return Some(Cow::Borrowed(stated.unwrap_or(scheme)));
            }
            Variable::Host => self.request.host(),
            Variable::Method => self.request.method()?.as_str(),
            Variable::Protocol => self.protocol().as_str(),
            Variable::Class => self.class_name()?,
            Variable::Upstream => &self.endpoint.as_ref()?.pool,
            Variable::Node => &self.endpoint.as_ref()?.name,
            Variable::NodeAddress => self.endpoint.as_ref()?.authority(),
            Variable::TlsVersion => tls()?.version,
            Variable::Sni => tls()?.sni.as_deref()?,
            Variable::CertificateSubject => &identity()?.subject,
            Variable::CertificateCommonName => identity()?.common_name.as_deref()?,
        };
        Some(Cow::Borrowed(text.as_bytes()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A request that has these facts and no others.
    pub(crate) struct Known(pub(crate) &'static [(Variable, &'static str)]);

    impl Facts for Known {
        fn value(&self, variable: Variable) -> Option<Cow<'_, [u8]>> {
            let found = self.0.iter().find(|(known, _)| *known == variable);
            found.map(|(_, text)| Cow::Borrowed(text.as_bytes()))
        }
    }

    /// For heads that no rule changes.
    pub(crate) const NO_EDITS: Edits<'static> = Edits { rules: &HeaderEdits::NONE, facts: &Known(&[]) };

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn changed(head: &str, removed: &[&str], written: Vec<(&str, Vec<Piece>)>, facts: Known) -> String {
        let removed = removed.iter().map(|name| (*name).to_owned()).collect();
        let written = written.into_iter().map(|(name, value)| FieldTemplate {
            name: name.to_owned(),
            value,
            https_only: name == "Strict-Transport-Security",
        });
        let rules = HeaderEdits { removed, written: written.collect() };
        let mut out = format!("before\r\n{head}").into_bytes();
        Edits::new(&rules, &facts).apply(&mut out, 8);
        String::from_utf8(out).expect("UTF-8").strip_prefix("before\r\n").expect("it is left alone").to_owned()
    }

    #[test]
    fn fields_are_removed_in_any_spelling_and_written_last() {
        let head = "GET / HTTP/1.1\r\nX-User: a\r\nx_user: b\r\nX-Users: c\r\nhost: x\r\nX-USER:d\r\n";
        let user = vec![Piece::Variable(Variable::Client), text("!")];
        assert_eq!(
            changed(head, &["x-user"], vec![("X-User", user)], Known(&[(Variable::Client, "192.0.2.7")])),
            "GET / HTTP/1.1\r\nX-Users: c\r\nhost: x\r\nX-User: 192.0.2.7!\r\n"
        );
        assert_eq!(changed("GET / HTTP/1.1\r\n", &["x"], vec![], Known(&[])), "GET / HTTP/1.1\r\n");
    }

    #[test]
    fn a_field_without_its_fact_is_removed_and_not_written() {
        let subject = || vec![text("a "), Piece::Variable(Variable::CertificateSubject)];
        let with = |facts| {
            changed("GET / HTTP/1.1\r\nX-Subject: forged\r\n", &["x-subject"], vec![("X-Subject", subject())], facts)
        };
        assert_eq!(with(Known(&[])), "GET / HTTP/1.1\r\n");
        assert_eq!(with(Known(&[(Variable::CertificateSubject, "")])), "GET / HTTP/1.1\r\n");
        assert_eq!(
            with(Known(&[(Variable::CertificateSubject, "CN=a\r\nX: b\u{7f}é")])),
            "GET / HTTP/1.1\r\nX-Subject: a CN=a\\0D\\0AX: b\\7Fé\r\n"
        );
    }

    #[test]
    fn strict_transport_is_for_https() {
        let with = |scheme| {
            let age = vec![("Strict-Transport-Security", vec![text("max-age=1")])];
            changed("HTTP/1.1 200 OK\r\n", &[], age, Known(scheme))
        };
        assert_eq!(with(&[(Variable::Scheme, "http")]), "HTTP/1.1 200 OK\r\n");
        assert_eq!(with(&[]), "HTTP/1.1 200 OK\r\n");
        assert!(with(&[(Variable::Scheme, "https")]).ends_with("Strict-Transport-Security: max-age=1\r\n"));
    }
}
