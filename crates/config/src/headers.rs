//! The header rules of a policy: changes to the fields of heads.
//!
//! The rules of the policy and of a class are merged when the policy is read, so that one list is applied to a head:
//! it removes some fields, and then adds others after the rest.

use std::sync::Arc;

/// The changes to requests on their way to nodes, and to responses on their way to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    /// Changes to requests.
    pub request: Arc<HeaderEdits>,
    /// Changes to responses, also to those of the gateway itself.
    pub response: Arc<HeaderEdits>,
}

/// Changes to the fields of one head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Names of fields that are taken out, as [`canonical`] returns them.
    pub removed: Vec<String>,
    /// Fields that are written after the others.
    pub written: Vec<FieldTemplate>,
}

impl HeaderEdits {
    /// Changes nothing.
    pub const NONE: HeaderEdits = HeaderEdits { removed: Vec::new(), written: Vec::new() };

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.written.is_empty()
    }
}

/// Returns the form in which names of fields are compared: in lower case, and with `-` for `_`. CGI and its successors
/// read both characters as the same, so a client could otherwise send a field under a second spelling.
pub fn canonical(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// A field to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTemplate {
    /// Its name, as the policy spells it.
    pub name: String,
    /// Its value. The field is left out if a variable in it has no value.
    pub value: Vec<Piece>,
    /// Whether it is for clients that use `https` only.
    pub https_only: bool,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// This text.
    Text(String),
    /// A fact about the request.
    Variable(Variable),
}

/// Declares the variables once: variant and name.
macro_rules! variables {
    ($($(#[doc = $doc:literal])+ $Name:ident = $text:literal,)+) => {
        /// A fact about a request that a value may contain, as `${name}`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Variable {
            $($(#[doc = $doc])+ $Name,)+
        }

        impl Variable {
            /// All variables.
            pub const ALL: &[Variable] = &[$(Variable::$Name),+];

            /// Returns its name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Variable::$Name => $text,)+
                }
            }
        }
    };
}

variables! {
    /// The client's address, behind `trusted_proxies` the one that they state.
    Client = "client",
    /// `http` or `https`, as the client used it. Behind `trusted_proxies` the one that they state.
    Scheme = "scheme",
    /// The host that the client asks for, in lower case and without its port.
    Host = "host",
    /// The port of the listener.
    Port = "port",
    /// The method.
    Method = "method",
    /// Path and query, as they were sent.
    Target = "target",
    /// The protocol of the request, such as `HTTP/1.1`.
    Protocol = "protocol",
    /// The trace id, as in the access log.
    RequestId = "request_id",
    /// The name of the class.
    Class = "class",
    /// The name of the upstream of the request's node.
    Upstream = "upstream",
    /// The name of the node that has the request.
    Node = "node",
    /// The address of the node that has the request, or `localhost` for a Unix socket.
    NodeAddress = "node_address",
    /// The version of TLS of the client's connection, such as `1.3`.
    TlsVersion = "tls_version",
    /// The name that the client asked for when it began TLS (SNI).
    Sni = "sni",
    /// The subject of the client's certificate (RFC 4514).
    CertificateSubject = "client_certificate_subject",
    /// The common name of that subject.
    CertificateCommonName = "client_certificate_common_name",
}
