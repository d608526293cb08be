//! Rules: the conditions on a request, and the class that they select.

use std::sync::Arc;

use ipnet::IpNet;
use weirgate_engine as engine;

use super::pattern::{HostPattern, PathPattern, ValuePattern};
use super::source::Key;
use crate::address_list::AddressList;
use crate::body::BodyCondition;
use crate::visitors::Standing;

/// One classification rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Condition on a request.
    pub matches: Match,
    /// The class or template that it selects.
    pub target: RuleTarget,
}

/// Class or template that a rule selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleTarget {
    /// A class of the policy.
    Class(engine::ClassId),
    /// A class made from a template, keyed by a value of the request. A request without the value does not
    /// match the rule.
    Template(engine::TemplateId, Key),
}

/// A condition on a request.
#[derive(Clone, Debug)]
pub enum Match {
    /// Always holds.
    Any,
    /// Every one of these holds.
    All(Vec<Match>),
    /// At least one of these holds.
    Either(Vec<Match>),
    /// This does not hold.
    Not(Box<Match>),
    /// The host without its port, in lower case. `*.example.com` matches every name below it.
    Host(HostPattern),
    /// The canonical path.
    Path(PathPattern),
    /// The method, as sent.
    Method(http::Method),
    /// The port of the listener that accepted the connection.
    Port(u16),
    /// Whether the client's connection is encrypted with TLS.
    Encrypted(bool),
    /// The name that the client asked for in the TLS handshake (SNI).
    Sni(HostPattern),
    /// A part of the client's certificate.
    ClientCertificate(CertificatePart, ValuePattern),
    /// The client's address (the rightmost untrusted hop).
    Source(IpNet),
    /// The client's address is in a list.
    Listed(Arc<AddressList>),
    /// A header's value.
    Header(http::HeaderName, ValuePattern),
    /// A cookie's value.
    Cookie(String, ValuePattern),
    /// The visitor's cookie says at least this.
    Visitor(Standing),
    /// A query parameter's value, percent-decoded.
    Query(String, ValuePattern),
    /// The first bytes of the body.
    Body(BodyCondition),
}

/// A part of a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePart {
    /// The whole subject, such as `CN=alice,O=Example`. Every certificate has one, which may be empty.
    Subject,
    /// The subject's common name.
    CommonName,
    /// An alternative name: a DNS name, an e-mail address, a URI or an IP address.
    Name,
}
