//! One request as the stages see it: its head as received, and the forms of its parts that rules compare.
//!
//! Source: RFC 9112 Sec. 3.2 (the four forms of a request target) and 3.2.2 (an absolute target replaces `Host`).
//! Departure: a `Host` that names another authority than the target is refused, because it is not known which of the
//! two a node uses. Nodes get the target as the client sent it. Rules compare the normal form of [`crate::path`].
//!
//! The head is kept as bytes with an index over them (`weirgate-http1`), so that a request that waits costs little more
//! than its head. Another protocol than HTTP/1.1 can feed the stages by writing such a head.

use bytes::BytesMut;
use http::Method;
use weirgate_http1::{Authority, Event, Fault, Head, Limits, Name, Requests, Version, split};

use crate::hops::PROTECTED;
use crate::path;
use crate::refusal::Refusal;

/// A request. The default one has no head, for input that is refused before it is a request.
#[derive(Debug, Default)]
pub struct Request {
    bytes: BytesMut,
    head: Head,
    method: Option<Method>,
    /// Host in lower case, without port and final dot.
    host: Text,
    /// Host and port as sent.
    authority: Text,
    /// Path and query as sent.
    target: Text,
    /// Whether the target names the authority.
    absolute: bool,
    /// Normal form of the path, or `*`.
    path: Text,
    /// Other forms of the path in which a node may read it.
    readings: Vec<String>,
    query: Option<Text>,
}

/// A part of the head in which the parser admits only ASCII, or a text that differs from it.
#[derive(Debug)]
enum Text {
    Part { start: u32, end: u32 },
    Own(Box<str>),
}

impl Default for Text {
    fn default() -> Text {
        Text::Part { start: 0, end: 0 }
    }
}

impl Text {
    /// Keeps `part`, which is a part of `bytes`.
    fn part(bytes: &[u8], part: &[u8]) -> Text {
        // A head is smaller than 4 GiB, so positions within it fit.
        let start = (part.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize) as u32;
        Text::Part { start, end: start + part.len() as u32 }
    }

    fn own(text: impl Into<Box<str>>) -> Text {
        Text::Own(text.into())
    }

    fn of<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        match self {
            Text::Part { start, end } => bytes.get(*start as usize..*end as usize).unwrap_or_default(),
            Text::Own(text) => text.as_bytes(),
        }
    }
}

impl Request {
    /// Takes a head with its index, and normalises nothing yet.
    pub(crate) fn new(bytes: BytesMut, mut head: Head) -> Request {
        let method = Method::from_bytes(head.method(&bytes)).ok();
        head.drop_named(&bytes, PROTECTED);
        Request { bytes, head, method, ..Request::default() }
    }

    /// Parses a complete head, as the gateway does it for a head from a client.
    ///
    /// # Errors
    /// The status and the reason with which the gateway would refuse it.
    pub fn parse(head: &[u8]) -> Result<Request, (u16, String)> {
        let mut requests = Requests::new(Limits { head_bytes: head.len() + 1, fields: usize::MAX });
        match requests.receive(head) {
            Ok(Event::Head(bytes)) if bytes == head.len() => {}
            Ok(_) => return Err((400, "the head is not complete".to_owned())),
            Err(fault) => return Err((fault.status(), fault.text().to_owned())),
        }
        let mut request = Request::new(BytesMut::from(head), requests.take_head());
        let sound = request.normalise().and_then(|()| request.check_expectation());
        sound.map_err(|refusal| (refusal.status().as_u16(), refusal.text().to_owned()))?;
        Ok(request)
    }

    /// Checks that the client expects nothing that the gateway does not know.
    ///
    /// # Errors
    /// It does.
    pub(crate) fn check_expectation(&self) -> Result<(), Refusal> {
        match self.all(Name::Expect).all(|expected| expected.eq_ignore_ascii_case(b"100-continue")) {
            true => Ok(()),
            false => Err(Refusal::Expectation),
        }
    }

    /// Determines host, path and query.
    ///
    /// # Errors
    /// The target is ambiguous or has a form that this gateway does not serve.
    pub(crate) fn normalise(&mut self) -> Result<(), Refusal> {
        let bytes = &self.bytes[..];
        if matches!(self.method, None | Some(Method::CONNECT | Method::TRACE)) {
            return Err(Refusal::Method);
        }
        let sent = self.head.target(bytes);
        let host = self.head.authority(bytes);
        let mut authority = self.head.get(bytes, Name::Host).zip(host);
        let mut target = sent;
        match sent {
            [b'/', ..] => {}
            b"*" if self.method == Some(Method::OPTIONS) => {}
            b"*" => return Err(Refusal::Asterisk),
            _ => {
                let (port, text, rest) = absolute(sent).ok_or(Refusal::TargetForm)?;
                let named = split(text).ok_or(Refusal::Host)?;
                if host.is_some_and(|host| !same(host, named, port)) {
                    return Err(Refusal::Authorities);
                }
                self.absolute = true;
                authority = Some((text, named));
                target = rest;
            }
        }
        if authority.is_none() && self.head.version() == Version::Http11 {
            return Err(Fault::NoHost.into());
        }
        if let Some((text, Authority { host, .. })) = authority {
            self.authority = Text::part(bytes, text);
            self.host = match host.iter().any(u8::is_ascii_uppercase) {
                true => Text::own(ascii(host).to_ascii_lowercase()),
                false => Text::part(bytes, host),
            };
        }
        let (path, query) = match target.iter().position(|&b| b == b'?') {
            Some(cut) => (&target[..cut], Some(&target[cut + 1..])),
            None => (target, None),
        };
        self.query = query.map(|query| Text::part(bytes, query));
        // An absolute target may have no path, which is the same as an empty one (RFC 9110 Sec. 4.2.3).
        if path.is_empty() {
            self.target = Text::own(format!("/{}", ascii(target)));
            self.path = Text::own("/");
            return Ok(());
        }
        self.target = Text::part(bytes, target);
        match path::forms(path)? {
            None => self.path = Text::part(bytes, path),
            Some(forms) => {
                self.path = Text::own(forms.normal);
                self.readings = forms.others;
            }
        }
        Ok(())
    }

    /// The method, or `None` if there is no head.
    pub fn method(&self) -> Option<&Method> {
        self.method.as_ref()
    }

    /// Host, in lower case and without port. Empty for HTTP/1.0 without `Host`.
    pub fn host(&self) -> &str {
        ascii(self.host.of(&self.bytes))
    }

    /// Host and port as sent. Empty for HTTP/1.0 without `Host`.
    pub(crate) fn authority(&self) -> &[u8] {
        self.authority.of(&self.bytes)
    }

    /// Returns the same URL over `https` at `port`, with path and query as sent.
    ///
    /// # Errors
    /// The request names no host, or its target is no URL.
    pub(crate) fn at_https(&self, port: u16) -> Result<Vec<u8>, Refusal> {
        let (head, bytes) = self.head();
        let target = head.target(bytes);
        // An absolute target is known in its normal form only.
        let query = self.query().map_or_else(String::new, |query| format!("?{query}"));
        let path = format!("{}{query}", self.path());
        let rest = if target.starts_with(b"/") { target } else { path.as_bytes() };
        if self.host().is_empty() {
            return Err(Refusal::RedirectHost);
        }
        if !rest.starts_with(b"/") {
            return Err(Refusal::RedirectAsterisk);
        }
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        Ok([b"https://", self.host().as_bytes(), port.as_bytes(), rest].concat())
    }

    /// Whether the target names the authority, which then replaces `Host`.
    pub(crate) fn is_absolute(&self) -> bool {
        self.absolute
    }

    /// Path and query as sent. An absolute target has lost its scheme and authority.
    pub(crate) fn target(&self) -> &[u8] {
        self.target.of(&self.bytes)
    }

    /// Normal form of the path, starting with `/`, or `*`.
    pub fn path(&self) -> &str {
        ascii(self.path.of(&self.bytes))
    }

    /// Other normal forms of the path, if nodes differ in how they read it.
    pub fn readings(&self) -> &[String] {
        &self.readings
    }

    /// Text after the `?`, as sent.
    pub fn query(&self) -> Option<&str> {
        self.query.as_ref().map(|query| ascii(query.of(&self.bytes)))
    }

    /// Returns the values of a field by its name in any case, without the fields that `Connection` names.
    pub fn values<'a>(&'a self, name: &str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.head.named(&self.bytes, name.as_bytes())
    }

    /// Returns the values of a field that the gateway knows.
    pub(crate) fn all(&self, name: Name) -> weirgate_http1::Fields<'_, '_> {
        self.head.all(&self.bytes, name)
    }

    /// The index of the head, and the bytes that it refers to.
    pub(crate) fn head(&self) -> (&Head, &[u8]) {
        (&self.head, &self.bytes)
    }

    /// Whether the head has a field that the gateway knows.
    pub(crate) fn has(&self, name: Name) -> bool {
        self.head.names().contains(name)
    }

    /// Whether the client asked for another protocol.
    pub(crate) fn asks_for_upgrade(&self) -> bool {
        let upgrade = self.head.version() == Version::Http11 && self.has(Name::Upgrade);
        upgrade || self.method == Some(Method::CONNECT)
    }

    /// Returns the protocol that the client asks for, if a node may switch to it. `h2c` may not be asked for, because
    /// requests within it would not be classified.
    pub(crate) fn upgrade(&self) -> Option<&[u8]> {
        if self.head.version() == Version::Http10 || !self.has(Name::Upgrade) {
            return None;
        }
        let protocol = self.all(Name::Upgrade).next().filter(|p| !p.eq_ignore_ascii_case(b"h2c"))?;
        let mut options = self.head.list(&self.bytes, Name::Connection);
        options.any(|option| option.eq_ignore_ascii_case(b"upgrade")).then_some(protocol)
    }

    /// Whether the client waits for a 100 before it sends the body.
    pub(crate) fn expects_continue(&self) -> bool {
        self.has(Name::Expect) && self.head.version() == Version::Http11
    }

    /// Gives back the memory of the head.
    pub(crate) fn into_memory(self) -> (BytesMut, Head) {
        (self.bytes, self.head)
    }
}

/// Text of which the parser has admitted ASCII only.
fn ascii(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or_default()
}

/// Takes an absolute target apart: the default port of its scheme, the authority, and the rest.
fn absolute(target: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let colon = target.iter().position(|&b| b == b':')?;
    let (scheme, rest) = target.split_at(colon);
    let rest = rest.strip_prefix(b"://")?;
    let port = if scheme.eq_ignore_ascii_case(b"http") {
        80
    } else if scheme.eq_ignore_ascii_case(b"https") {
        443
    } else {
        return None;
    };
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    Some((port, authority, rest))
}

/// Whether two authorities are the same, if a missing port means `default`.
fn same(a: Authority<'_>, b: Authority<'_>, default: u16) -> bool {
    a.host.eq_ignore_ascii_case(b.host) && a.port.unwrap_or(default) == b.port.unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(method: &str, target: &str, host: Option<&str>) -> Result<Request, u16> {
        let head = match host {
            Some(host) => format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            None => format!("{method} {target} HTTP/1.0\r\n\r\n"),
        };
        Request::parse(head.as_bytes()).map_err(|(status, _)| status)
    }

    /// Host, authority, normal form with the query, and the target for the node.
    fn forms(method: &str, target: &str, host: Option<&str>) -> Result<[String; 4], u16> {
        parsed(method, target, host).map(|request| {
            let query = request.query().map_or(String::new(), |query| format!("?{query}"));
            let form = format!("{}{query}", request.path());
            [request.host(), ascii(request.authority()), &form, ascii(request.target())].map(str::to_owned)
        })
    }

    fn ok(host: &str, authority: &str, form: &str, target: &str) -> Result<[String; 4], u16> {
        Ok([host, authority, form, target].map(str::to_owned))
    }

    #[test]
    fn every_form_of_target_has_one_meaning() {
        assert_eq!(
            forms("GET", "/a//b?x=//", Some("A.Test.:8080")),
            ok("a.test", "A.Test.:8080", "/a/b?x=//", "/a//b?x=//")
        );
        assert_eq!(forms("GET", "/", Some("a.test:")), ok("a.test", "a.test:", "/", "/"));
        assert_eq!(forms("GET", "http://A.test/x?y", Some("a.test")), ok("a.test", "A.test", "/x?y", "/x?y"));
        assert_eq!(forms("GET", "HTTP://a.test", Some("a.test")), ok("a.test", "a.test", "/", "/"));
        assert_eq!(forms("GET", "http://a.test?q=/", Some("a.test")), ok("a.test", "a.test", "/?q=/", "/?q=/"));
        assert_eq!(forms("GET", "http://a.test/", None), ok("a.test", "a.test", "/", "/"));
        assert_eq!(forms("GET", "http://a.test:80/", Some("a.test")), ok("a.test", "a.test:80", "/", "/"));
        assert_eq!(forms("GET", "https://a.test/", Some("a.test:443")), ok("a.test", "a.test", "/", "/"));
        assert_eq!(forms("OPTIONS", "*", Some("a.test")), ok("a.test", "a.test", "*", "*"));
        assert_eq!(forms("GET", "/", None), ok("", "", "/", "/"));
    }

    #[test]
    fn other_forms_are_refused() {
        assert_eq!(forms("CONNECT", "a.test:443", Some("a.test")), Err(405));
        assert_eq!(forms("TRACE", "/", Some("a.test")), Err(405));
        assert_eq!(forms("GET", "a.test", Some("a.test")), Err(400));
        assert_eq!(forms("GET", "a.test:80", Some("a.test")), Err(400));
        assert_eq!(forms("GET", "*", Some("a.test")), Err(400));
        assert_eq!(forms("GET", "ftp://a.test/", Some("a.test")), Err(400));
        assert_eq!(forms("GET", "http://a.test/", Some("b.test")), Err(400));
        assert_eq!(forms("GET", "http://u@a.test/", Some("a.test")), Err(400));
        assert_eq!(forms("GET", "http://a.test:81/", Some("a.test")), Err(400));
        assert_eq!(forms("GET", "https://a.test:80/", Some("a.test")), Err(400));
        assert_eq!(forms("GET", "http:///", Some("a.test")), Err(400));
    }

    #[test]
    fn a_field_that_connection_names_is_not_found() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x-a, host, via\r\nX-A: 1\r\nX-B: 2\r\nVia: v\r\n\r\n";
        let request = Request::parse(head).expect("it is sound");
        assert_eq!((request.values("x-a").count(), request.values("x-b").count()), (0, 1));
        assert_eq!((request.host(), request.all(Name::Via).count()), ("a", 1));
    }

    #[test]
    fn protocols_are_asked_for_by_name_and_option() {
        let upgrade = |fields: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            Request::parse(head.as_bytes()).expect("it is sound").upgrade().map(<[u8]>::to_vec)
        };
        assert_eq!(upgrade("Connection: Upgrade\r\nUpgrade: websocket\r\n"), Some(b"websocket".to_vec()));
        assert_eq!(upgrade("Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n"), Some(b"websocket".to_vec()));
        assert_eq!(upgrade("Upgrade: websocket\r\n"), None);
        assert_eq!(upgrade("Connection: upgrade\r\nUpgrade: H2C\r\n"), None);
    }
}
