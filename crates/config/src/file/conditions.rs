//! Conditions on a request.
//!
//! They are compared with the canonical form of the request, so that `%2f`, `//` and `../` cannot evade a
//! rule. A rule that can never match a canonical form is refused.

use schemars::{JsonSchema, json_schema};
use weirgate_spanned_yaml::decode::{At, Context, Decode, FromText, Named, OneOrMany, Optional, Required, TextOrMap};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::Text;
use weirgate_spanned_yaml::{any_of, inline_schema, record, text_schema, words};

use super::address::{Net, is_host_name};
use super::body::Body;
use super::visitors::StandingWord;
use crate::site::HostPattern;

record! {
    /// Conditions on a request. Every field given must hold. A field with a list holds if one of its values does.
    pub(crate) struct Match {
        /// The host without its port, in upper or lower case. `*.example.com` is every name below `example.com`.
        host: Optional<OneOrMany<HostText>>,
        /// The path and everything below it: `/mail` is `/mail` and `/mail/x`, not `/mailbox`.
        path_prefix: Optional<OneOrMany<PathText>>,
        /// The whole path.
        path: Optional<OneOrMany<PathText>>,
        /// A regular expression over the whole path.
        path_pattern: Optional<OneOrMany<PatternText>>,
        /// The method, as sent.
        method: Optional<OneOrMany<MethodText>>,
        /// The port of the listener.
        port: Optional<OneOrMany<Port>>,
        /// `https` if the client's connection to the listener is encrypted with TLS, or to the balancer that says so by
        /// the PROXY protocol, else `http`.
        scheme: Optional<SchemeWord>,
        /// The name that the client asks for when it begins TLS (SNI), as in `host`.
        sni: Optional<OneOrMany<HostText>>,
        /// The client's certificate: `present`, or a map with conditions on it.
        client_certificate: Optional<ClientCertificateForm>,
        /// The client's address or network: an address, a network, `unix`, or `{ file: … }` for the networks that are
        /// listed in a file.
        source: Optional<OneOrMany<SourceNet>>,
        /// Headers: a name (the header is present), or a map from names to values.
        header: Optional<Values<HeaderName>>,
        /// Cookies: a name (the cookie is present), or a map from names to values.
        cookie: Optional<Values<Token>>,
        /// Lowest standing that the visitor's cookie may have: `new`, `returning` or `vouched`.
        visitor: Optional<StandingWord>,
        /// Query parameters: a name (the parameter is present), or a map from names to values.
        query: Optional<Values<QueryName>>,
        /// The first bytes of the body.
        body: Optional<Body>,
        /// All of these hold.
        all: Optional<Vec<At<Match>>>,
        /// At least one of these holds.
        any: Optional<Vec<At<Match>>>,
        /// This does not hold.
        not: Optional<Inner>,
    }
}

/// A network, or a file of them.
pub(crate) type SourceNet = TextOrMap<Net, ListFile>;

record! {
    /// Networks that are listed in a file.
    pub(crate) struct ListFile {
        /// The file: a network or address a line, and comments after `#` or `;`. It is read again with each reload of
        /// the policy. Paths count from the folder of the policy. The files of a policy have at most 1,000,000
        /// networks.
        file: Required<Text>,
    }
}

words! {
    /// Whether a connection is encrypted.
    pub(crate) struct SchemeWord(bool) {
        /// Without TLS.
        "http" => false,
        /// With TLS.
        "https" => true,
    }
}

/// A condition on the client's certificate.
#[derive(Clone, Debug)]
pub(crate) enum ClientCertificateForm {
    /// There is one.
    Present,
    /// Conditions on its parts.
    Parts(Box<ClientCertificateParts>),
}

record! {
    /// Conditions on the client's certificate. Every field given must hold.
    pub(crate) struct ClientCertificateParts {
        /// The whole subject as text (RFC 4514), such as `CN=alice,O=Example`.
        subject: Optional<OneOrMany<ValueForm>>,
        /// The common name of the subject.
        common_name: Optional<OneOrMany<ValueForm>>,
        /// An alternative name: a DNS name in lower case, an e-mail address, a URI or an IP address.
        san: Optional<OneOrMany<ValueForm>>,
    }
}

impl Decode for ClientCertificateForm {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Map(_) => {
                let parts = ClientCertificateParts::decode(node, cx)?;
                if !parts.subject.given && !parts.common_name.given && !parts.san.given {
                    let hint = "write `present`, or give it `subject:`, `common_name:` or `san:`";
                    cx.complain(Complaint::new("this has no condition on the certificate", hint));
                    return None;
                }
                Some(ClientCertificateForm::Parts(Box::new(parts)))
            }
            Value::Text(text) if &**text == "present" => Some(ClientCertificateForm::Present),
            _ => {
                cx.mismatch("`present`, or a map with `subject:`, `common_name:` or `san:`", node);
                None
            }
        }
    }
}

/// A condition nested in another.
#[derive(Clone, Debug)]
pub(crate) struct Inner(pub(crate) Box<Match>);

impl Decode for Inner {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        Match::decode(node, cx).map(|inner| Inner(Box::new(inner)))
    }
}

inline_schema! {
    Inner: |generator| generator.subschema_for::<Match>()
}

/// A host name, or every name below one.
#[derive(Clone, Debug)]
pub(crate) struct HostText(pub(crate) HostPattern);

/// A canonical path.
#[derive(Clone, Debug)]
pub(crate) struct PathText(pub(crate) String);

/// A regular expression, not yet compiled.
#[derive(Clone, Debug)]
pub(crate) struct PatternText(pub(crate) String);

/// A method.
#[derive(Clone, Debug)]
pub(crate) struct MethodText(pub(crate) http::Method);

/// A listener's port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port(pub(crate) u16);

/// The name of a header.
#[derive(Clone, Debug)]
pub(crate) struct HeaderName(pub(crate) http::HeaderName);

/// The name of a cookie (an RFC 9110 token).
#[derive(Clone, Debug)]
pub struct Token(pub String);

/// The name of a query parameter.
#[derive(Clone, Debug)]
pub(crate) struct QueryName(pub(crate) String);

/// Conditions on named values.
#[derive(Clone, Debug)]
pub(crate) enum Values<K> {
    /// One of these names is present.
    Present(OneOrMany<K>),
    /// Each of these names has one of its values.
    Are(Named<K, OneOrMany<ValueForm>>),
}

/// A condition on one value.
#[derive(Clone, Debug)]
pub(crate) enum ValueForm {
    /// The value equals this text.
    Exact(String),
    /// A condition in a map.
    Rule(ValueRule),
}

record! {
    /// A condition on a value: exactly one of the fields.
    pub(crate) struct ValueRule {
        /// The value starts with this text.
        prefix: Optional<Text>,
        /// This regular expression matches the whole value.
        pattern: Optional<PatternText>,
    }
}

impl<K: FromText> Decode for Values<K> {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match node.value {
            Value::Map(_) => Named::decode(node, cx).map(Values::Are),
            _ => OneOrMany::decode(node, cx).map(Values::Present),
        }
    }
}

inline_schema! {
    <K: JsonSchema> Values<K>: |generator| {
        let present = generator.subschema_for::<OneOrMany<K>>();
        let are = generator.subschema_for::<Named<K, OneOrMany<ValueForm>>>();
        json_schema!({ "anyOf": [present, are] })
    }
}

impl Decode for ValueForm {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(ValueForm::Exact(text.as_ref().to_owned())),
            Value::Map(_) => {
                let rule = ValueRule::decode(node, cx)?;
                let bad = rule.prefix.bad || rule.pattern.bad;
                if !bad && rule.prefix.get().is_some() == rule.pattern.get().is_some() {
                    let hint = "give it either `prefix:` or `pattern:`";
                    cx.complain(Complaint::new("this is not one condition on a value", hint));
                    return None;
                }
                Some(ValueForm::Rule(rule))
            }
            _ => {
                cx.mismatch("a value, `prefix: …` or `pattern: …`", node);
                None
            }
        }
    }
}

any_of! {
    ClientCertificateForm = [{ "const": "present" }, ClientCertificateParts];
    ValueForm = [{ "type": ["string", "number", "boolean"] }, ValueRule];
}

impl FromText for HostText {
    const EXPECTED: &'static str = "a host name";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let refuse = |hint: &str| Err(Complaint::about(text, "is not a host name", hint));
        if text == "*" {
            return refuse("leave `host` out to match every host");
        }
        if text.contains('/') {
            return refuse("write the name alone (paths belong in `path_prefix`)");
        }
        if !text.is_ascii() {
            return refuse("write it in its ASCII form (`xn--…`), which is what clients send");
        }
        let lower = text.to_ascii_lowercase();
        if let Some(literal) = lower.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            return match literal.parse::<std::net::Ipv6Addr>() {
                Ok(ip) => Ok(HostText(HostPattern::Exact(format!("[{ip}]")))),
                Err(_) => refuse("write an IPv6 address inside the brackets"),
            };
        }
        if lower.contains(':') {
            return refuse("write the name without port (that of the listener belongs in `port`)");
        }
        let (below, name) = match lower.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, lower.as_str()),
        };
        if name.contains('*') {
            return refuse("a `*` can only stand for everything below a name, as in `*.example.com`");
        }
        if !is_host_name(name) {
            return refuse("write letters, digits, `-` and `_` between dots, and no dot at the end");
        }
        Ok(HostText(if below { HostPattern::Below(format!(".{name}")) } else { HostPattern::Exact(lower) }))
    }
}

impl FromText for PathText {
    const EXPECTED: &'static str = "a path such as `/mail`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let refuse = |why: &str, hint: &str| Err(Complaint::new(format!("{} {why}", quoted(text)), hint));
        let Some(rest) = text.strip_prefix('/') else {
            return refuse("does not start with `/`", "write the path from the root");
        };
        if text.contains(['?', '#']) {
            return refuse("has a query or fragment", "write the path alone; use `query` for parameters");
        }
        if !text.is_ascii() || text.contains(|c: char| c.is_ascii_control() || c == ' ' || c == '\\') {
            return refuse(
                "has characters that a path cannot have",
                "write them percent-encoded, as clients send them",
            );
        }
        if rest.contains("//") || rest.starts_with('/') {
            return refuse("has an empty segment, which paths lose before they are compared", "write one `/`");
        }
        if text.split('/').any(|segment| segment == "." || segment == "..") {
            return refuse(
                "has a `.` or `..`, which paths lose before they are compared",
                "write the path it leads to",
            );
        }
        match canonical_escapes(text) {
            Ok(path) => Ok(PathText(path)),
            Err((why, hint)) => refuse(why, hint),
        }
    }
}

/// Returns the path with the escapes of a canonical request (RFC 3986 Sec. 6.2.2): characters that need no
/// escape are unescaped, the other escapes are in upper case.
fn canonical_escapes(path: &str) -> Result<String, (&'static str, &'static str)> {
    let mut parts = path.split('%');
    let mut canonical = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let escape = part.get(..2).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(byte) = escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
            return Err(("has a `%` without two hexadecimal digits", "write `%25` for a percent sign"));
        };
        match byte {
            0 | b'/' | b'\\' => {
                return Err((
                    "has an escape that is refused in requests",
                    "write the path without `%00`, `%2F` and `%5C`",
                ));
            }
            b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => canonical.push(char::from(b)),
            b => canonical.push_str(&format!("%{b:02X}")),
        }
        canonical.push_str(part.get(2..).unwrap_or_default());
    }
    // Canonical requests have these characters escaped.
    Ok(['"', '^', '{', '|', '}', '[', ']'].into_iter().fold(canonical, |path, c| match path.contains(c) {
        true => path.replace(c, &format!("%{:02X}", u32::from(c))),
        false => path,
    }))
}

/// Longest regular expression. A longer one should be a list.
const MAX_PATTERN: usize = 8 << 10;

impl FromText for PatternText {
    const EXPECTED: &'static str = "a regular expression";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text.len() {
            0 => Err(Complaint::new("this pattern is empty", "write what should match; it covers the whole text")),
            1..=MAX_PATTERN => Ok(PatternText(text.to_owned())),
            length => Err(Complaint::new(format!("this pattern has {length} bytes"), "write at most 8192")),
        }
    }
}

impl FromText for MethodText {
    const EXPECTED: &'static str = "a method such as `GET`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let standard = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
        let upper = text.to_ascii_uppercase();
        if upper != text && standard.contains(&&*upper) {
            let hint = format!("write `{upper}`");
            return Err(Complaint::about(text, "never matches: methods are compared as they are sent", hint));
        }
        match http::Method::from_bytes(text.as_bytes()) {
            Ok(method) if text.len() <= 32 => Ok(MethodText(method)),
            _ => Err(Complaint::about(text, "is not a method", "write one such as `GET`")),
        }
    }
}

impl FromText for Port {
    const EXPECTED: &'static str = "a port number";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Port(port)),
            _ => Err(Complaint::about(text, "is not a port", "write a number from 1 to 65535")),
        }
    }
}

impl FromText for HeaderName {
    const EXPECTED: &'static str = "the name of a header";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let what = || format!("{} is not used as a header here", quoted(text));
        match http::HeaderName::from_bytes(text.as_bytes()) {
            Ok(http::header::HOST) => Err(Complaint::new(what(), "use `host:` of `match:`")),
            Ok(http::header::COOKIE) => Err(Complaint::new(what(), "use `cookie:`, which compares one cookie")),
            Ok(name) if text.len() <= 128 => Ok(HeaderName(name)),
            _ => {
                Err(Complaint::about(text, "is not a header name", "write letters, digits and `-`, such as `X-Tenant`"))
            }
        }
    }
}

impl FromText for Token {
    const EXPECTED: &'static str = "the name of a cookie";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let sound = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !text.is_empty() && text.len() <= 128 && text.bytes().all(sound) {
            return Ok(Token(text.to_owned()));
        }
        Err(Complaint::about(text, "is not the name of a cookie", "write letters, digits, `-` and `_`, at most 128"))
    }
}

impl FromText for QueryName {
    const EXPECTED: &'static str = "the name of a query parameter";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if !text.is_empty() && text.len() <= 128 {
            return Ok(QueryName(text.to_owned()));
        }
        Err(Complaint::new("this is not the name of a query parameter", "write 1 to 128 bytes, not percent-encoded"))
    }
}

text_schema! {
    HostText: { "type": "string", "examples": ["bigcorp.test", "*.bigcorp.test"] };
    PathText: { "type": "string", "pattern": "^/[^?#]*$" };
    PatternText: { "type": "string", "minLength": 1, "maxLength": 8192 };
    MethodText: { "type": "string", "examples": ["GET", "POST"] };
    Port: { "type": "integer", "minimum": 1, "maximum": 65535 };
    HeaderName: { "type": "string", "examples": ["X-Tenant"] };
    Token: { "type": "string", "examples": ["tenant"] };
    QueryName: { "type": "string", "minLength": 1, "maxLength": 128 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_what_requests_have() {
        for (written, canonical) in [
            ("/", "/"),
            ("/a/b/", "/a/b/"),
            ("/%61%2d%c3%a9", "/a-%C3%A9"),
            ("/a|b", "/a%7Cb"),
            ("/100%25", "/100%25"),
            ("/.well-known", "/.well-known"),
        ] {
            assert_eq!(PathText::from_text(written).unwrap().0, canonical);
        }
        for text in ["", "a", "//", "/a//b", "/a/..", "/./a", "/a%2Fb", "/a%", "/a%4", "/a%zz", "/é", "/a\\b", "/a?b"]
        {
            assert!(PathText::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_are_what_requests_have() {
        let host = |text| HostText::from_text(text).unwrap().0;
        assert_eq!(host("BigCorp.TEST"), HostPattern::Exact("bigcorp.test".into()));
        assert_eq!(host("*.BigCorp.test"), HostPattern::Below(".bigcorp.test".into()));
        assert_eq!(host("[0:0::1]"), HostPattern::Exact("[::1]".into()));
        assert_eq!(host("10.0.0.1"), HostPattern::Exact("10.0.0.1".into()));
        for text in ["", "*", "*.", "a.*.b", "a:80", "a/b", "a..b", "a.", "é.test", "[x]"] {
            assert!(HostText::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_headers_cookies_and_methods() {
        assert_eq!(HeaderName::from_text("X-Tenant").unwrap().0, "x-tenant");
        assert!(HeaderName::from_text("Host").is_err() && HeaderName::from_text("cookie").is_err());
        assert!(HeaderName::from_text("a\r\nb").is_err() && HeaderName::from_text(&"x".repeat(129)).is_err());
        assert!(Token::from_text("session_id").is_ok() && Token::from_text("a b").is_err());
        assert!(MethodText::from_text("PURGE").is_ok() && MethodText::from_text("get").is_err());
        assert!(QueryName::from_text("").is_err());
    }
}
